#!/usr/bin/env bash
# Write docs/results/paper: tables, figures and runs of the paper's study, from runs that are kept.
# Usage: studies/results.sh [FOLDER WITH A STORE FOR EACH STUDY]   (default: fedkmeans-studies)
set -euo pipefail
cd "$(dirname "$0")/.."
stores="${1:-fedkmeans-studies}"
out=docs/results/paper
mkdir -p "$out"

study() { # COMMAND STUDY MORE...
    fedkmeans study "$1" "studies/$2.toml" --store "$stores/$2" "${@:3}" >/dev/null
}

for data in synthetic mnist femnist; do
    plan="paper-$data"
    for metric in score accuracy v_measure; do
        # Scores are means over all runs, accuracy and v-measure over the best half, as in the paper.
        best=0.5
        if [ "$metric" = score ]; then best=1; fi
        for form in markdown:md latex:tex csv:csv; do
            study table "$plan" --metric "$metric" --clients 100 --best "$best" \
                --format "${form%:*}" --out "$out/$data-$metric.${form#*:}"
        done
    done
    study figure "$plan" --convergence --clients 100 --out "$out/$data-convergence.png"
    study export "$plan" --out "$out/$data-runs.csv.gz"
done
for data in synthetic mnist; do
    for suffix in png pdf; do
        study figure "paper-$data" --out "$out/$data.$suffix"
    done
done
study table ewf-stopping --format markdown --out "$out/ewf-stopping.md"
study table fkm-server-init --format markdown --out "$out/fkm-server-init.md"
