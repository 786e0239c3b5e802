"""Time of the first fit with and without compiled code in the cache: the cost of compiling."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.report import Row, Table, duration, field
from benchmarks.timing import Settings, spread

# Rows, columns and estimator; 40 clients of a hundred rows each.
CASES = {
    "default settings": (100, "FederatedKMeans(10, max_rounds=20, random_state=0, kernel='numba')"),
    "the paper's settings": (100, "FederatedKMeans.paper(10, max_rounds=20, random_state=0, kernel='numba')"),
    "the paper's, two columns": (
        2,
        "FederatedKMeans.paper(5, max_rounds=20, random_state=0, kernel='numba')",
    ),
}
SCRIPT = """
import time
import numpy as np
from fedkmeans import FederatedKMeans
X = np.random.default_rng(0).normal(size=(4000, {m}))
clients = np.repeat(np.arange(40), 100)
start = time.perf_counter()
{estimator}.fit(X, clients=clients)
print(time.perf_counter() - start)
"""

TABLES = {
    "compilation": Table(
        "Compiling",
        "The first fit in a process, on 4,000 rows of 40 clients in double precision, with an empty cache "
        "of compiled code and with a complete one: medians. The difference is the time to compile.",
        (
            ("fit", field("case")),
            ("columns", field("m")),
            ("first process", duration("cold")),
            ("second process", duration("warm")),
        ),
    )
}


def measure(settings: Settings) -> Iterator[Row]:
    cases = list(CASES.items())
    for case, (m, estimator) in cases[-1:] if settings.quick else cases:
        cold, warm = [], []
        for _ in range(1 if settings.quick else 3):
            with tempfile.TemporaryDirectory() as folder:
                cold.append(_first_fit(m, estimator, folder))
                warm.append(_first_fit(m, estimator, folder))
        yield {"table": "compilation", "case": case, "m": m, "cold": spread(cold), "warm": spread(warm)}


def _first_fit(m: int, estimator: str, cache: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(m=m, estimator=estimator)],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)
