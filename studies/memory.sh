#!/usr/bin/env bash
# Run or resume studies/memory.toml, and write docs/results/memory: its tables, figures and runs.
# Usage: studies/memory.sh [FOLDER OF THE RUNS]   (default: fedkmeans-studies/memory)
set -euo pipefail
cd "$(dirname "$0")/.."
plan=studies/memory.toml
store="${1:-fedkmeans-studies/memory}"
out=docs/results/memory
study() { # COMMAND MORE...
    fedkmeans study "$1" "$plan" --store "$store" "${@:2}"
}

# The reference first. With all clients per round the other rules are like it, or take long.
study run --clients 100 --only algorithm=last-word --only data=synthetic,digits,mnist
study run --clients 5,10 --only data=synthetic,digits,mnist
study run --runs 3 --clients 100 --only algorithm=last-word --only data=femnist
study run --runs 3 --clients 5,10 --only data=femnist

for clients in 5 10; do
    for rounds in 20 100 500; do
        study table --metric excess --clients $clients --rounds $rounds --format markdown \
            --out "$out/excess-$clients-clients-$rounds-rounds.md"
    done
    study table --metric rounds_to_within --clients $clients --format markdown \
        --out "$out/rounds-$clients-clients.md"
    study figure --convergence --metric excess --clients $clients --out "$out/curves-$clients-clients.png"
done
study export --out "$out/runs.csv.gz"
study report
