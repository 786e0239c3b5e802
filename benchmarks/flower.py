"""Rounds on Flower: seconds compared with an app that does nothing, bytes compared with the arrays.

Real processes on this machine: SuperLink, executor, gate and one SuperNode per site, with TLS and keys.
Both apps run alternately on the same federation and look for replies equally often.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tests.flower.processes import Running, federation

from benchmarks.report import Row, Table, duration, field, times
from benchmarks.timing import Settings, spread
from fedkmeans import Site
from fedkmeans.flower.deploy import services
from fedkmeans.flower.deploy.folder import CONNECTION
from fedkmeans.flower.transport import WaitPolicy

EMPTY_APP = Path(__file__).parent / "empty_flower_app"
K, M, ROWS = 20, 784, 200
N_SITES, ROUNDS, REPEATS = (2, 5), 8, 3
# Largest ratios of our seconds to those of the empty app, and of our bytes to those of the arrays.
MOST_SECONDS, MOST_BYTES = 1.2, 1.1

TABLES = {
    "flower": Table(
        "Rounds on Flower",
        f"k = {K} centroids of {M} columns in double precision, {ROWS} rows per site, one local step, all "
        "sites in each round. Seconds per round: medians over repeats; ratio of the medians of each repeat: "
        "median (smallest–largest). Bytes: what the SuperLink counts in both directions in the whole run, "
        "compared with the numbers in queries and replies.",
        (
            ("sites", field("n_sites")),
            ("ours", duration("ours")),
            ("empty app", duration("empty")),
            ("ours against it", times("ratio")),
            ("bytes per round", field("bytes_per_round", "{:,.0f}")),
            ("against the arrays", field("bytes_ratio", "{:.3f}×")),
        ),
    )
}


def measure(settings: Settings) -> Iterator[Row]:
    for n_sites in N_SITES[:1] if settings.quick else N_SITES:
        with tempfile.TemporaryDirectory() as folder:
            yield {"table": "flower", **_compare(Path(folder), n_sites, settings.quick)}


def _compare(folder: Path, n_sites: int, quick: bool) -> Row:
    rng = np.random.default_rng(0)
    sites = [Site(f"site-{i}", rng.normal(size=(ROWS, M))) for i in range(n_sites)]
    rounds, repeats = (2, 1) if quick else (ROUNDS, REPEATS)
    ours, empty, traffic = [], [], []
    names = [site.name for site in sites]
    with federation(folder, sites, start=[]) as running:
        for name in names:  # without the limit to our app, because the empty one must run there, too
            running.start_site(name, PATH=services.search_path())
        running.wait_for_sites(*names)
        for repeat in range(repeats):
            empty.append(_run_empty(running, folder / f"empty-{repeat}.json", rounds))
            seconds, ratio = _run_ours(running, f"repeat-{repeat}", rounds, n_sites)
            ours.append(seconds)
            traffic.append(ratio)
    ratio = [float(np.median(a) / np.median(b)) for a, b in zip(ours, empty, strict=True)]
    bytes_per_round, bytes_ratio = np.median(traffic, axis=0)
    return {
        "n_sites": n_sites,
        "ours": spread([float(np.median(values)) for values in ours]),
        "empty": spread([float(np.median(values)) for values in empty]),
        "ratio": spread(ratio),
        "bytes_per_round": float(bytes_per_round),
        "bytes_ratio": float(bytes_ratio),
        "within": float(np.median(ratio)) <= MOST_SECONDS and float(bytes_ratio) <= MOST_BYTES,
    }


def _run_empty(running: Running, out: Path, rounds: int) -> list[float]:
    """Seconds of each round of the empty app."""
    config = f'rounds={rounds} poll={WaitPolicy().poll} out="{out}"'
    services.flwr(running.folder, "run", str(EMPTY_APP), CONNECTION, "--run-config", config)
    while not out.exists() or not out.read_text():
        time.sleep(0.2)
    return json.loads(out.read_text())


def _run_ours(
    running: Running, name: str, rounds: int, n_sites: int
) -> tuple[list[float], tuple[float, float]]:
    """Seconds of each of our rounds, bytes per round, and the ratio of all bytes to those of the arrays."""
    tuning = {"max_rounds": rounds, "min_rounds": rounds, "max_local": 1, "tol": 0.0, "init": "random"}
    run, run_id = running.start_run(name, n_clusters=K, seed=0, tuning=tuning)
    status = running.wait_for_run(run, timeout=600)
    assert status["status"] == "finished", status
    moments = [line["time"] for line in run.progress()]
    counted = running.flower_status(run_id)["network-traffic"]
    total = counted["inbound-bytes"] + counted["outbound-bytes"]
    arrays = _bytes_of_arrays(rounds, n_sites)
    return list(np.diff(moments)), (total / rounds, total / arrays)


def _bytes_of_arrays(rounds: int, n_sites: int) -> int:
    """Centroids in queries; sums, weights, holders and two numbers in replies; a query for the score."""
    query, reply = K * M, K * M + 2 * K + 2
    return 8 * n_sites * (rounds * (query + reply) + query)
