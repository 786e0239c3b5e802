"""How time and memory grow with rows, clusters, columns, clients and rounds, one at a time.

Every point is measured in its own process, because memory that an earlier point has freed would hide what
a later one needs. Run as a module with a point in JSON, this file is that process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.problems import blobs
from benchmarks.report import Row, Table, field
from benchmarks.timing import Settings, limited, seconds
from fedkmeans import FederatedKMeans, InProcess


@dataclass(frozen=True)
class Point:
    """A federation of blobs; the rows of each client are contiguous, so that they are not copied."""

    n: int = 100_000
    k: int = 16
    m: int = 16
    clients: int = 100
    rounds: int = 20
    repeats: int = 3


BASE = Point()
LARGE = Point(n=1_000_000, k=64, m=8, clients=1, rounds=3, repeats=1)
SWEEPS = {
    "rows": (BASE, "n", (25_000, 50_000, 100_000, 200_000, 400_000, 800_000)),
    "rows, one client": (LARGE, "n", (500_000, 1_000_000, 2_000_000, 4_000_000)),
    "rows, one client, k = 16": (replace(LARGE, k=16), "n", (500_000, 1_000_000, 2_000_000, 4_000_000)),
    "clusters": (BASE, "k", (4, 8, 16, 32, 64, 128)),
    "columns": (BASE, "m", (4, 8, 16, 32, 64, 128, 256)),
    "clients": (BASE, "clients", (10, 30, 100, 300, 1000, 3000)),
    "rounds": (BASE, "rounds", (10, 20, 40, 80, 160)),
}
# Bytes per row that one more cluster may take; a distance in single precision would take four.
PER_ROW_AND_CLUSTER = 0.5

_POINT_COLUMNS = (
    ("sweep", field("sweep")),
    ("rows", field("n", "{:,}")),
    ("k", field("k")),
    ("columns", field("m")),
    ("clients", field("clients", "{:,}")),
    ("rounds", field("rounds")),
    ("per round", field("seconds_per_round", "{:.4f} s")),
    ("data", field("data_mb", "{:.1f} MB")),
    ("extra memory", field("extra_mb", "{:.1f} MB")),
)
TABLES = {
    "points": Table(
        "Growth, point by point",
        "Rounds of DWF k-means (the paper's settings) on Gaussian blobs in double precision, one thread, "
        "each point in a new process. Extra memory: the peak of RAM above the use after data and code were "
        "loaded.",
        _POINT_COLUMNS,
    ),
    "exponents": Table(
        "Growth, exponents",
        "Slopes of lines fitted to the logarithms: 1 is proportional, 0 is constant. `largest`: between the "
        "two largest points, where constant parts matter least.",
        (
            ("with", field("sweep")),
            ("from", field("first", "{:,}")),
            ("to", field("last", "{:,}")),
            ("time", field("time", "{:.2f}")),
            ("time, largest", field("time_largest", "{:.2f}")),
            ("extra memory", field("memory", "{:.2f}")),
            ("memory, largest", field("memory_largest", "{:.2f}")),
        ),
    ),
    "distances": Table(
        "Does one client's memory grow with n·k?",
        "From the two largest points with one client: extra bytes for each further row, and how much they "
        "increase for each further cluster. To store all distances at once would take 8.",
        (
            ("from", field("first", "{:,} rows")),
            ("to", field("last", "{:,} rows")),
            ("k = 16", field("few", "{:.1f} bytes per row")),
            ("k = 64", field("many", "{:.1f} bytes per row")),
            ("per row and cluster", field("per_row_and_cluster", "{:.2f} bytes")),
            ("grows with n·k", lambda row: "no" if row["agreed"] else "**yes**"),
        ),
    ),
}


def measure(settings: Settings) -> Iterator[Row]:
    sweeps: dict[str, list[Row]] = {}
    for sweep, (base, name, values) in SWEEPS.items():
        if settings.quick:
            base = replace(base, n=base.n // 20, rounds=min(base.rounds, 5), repeats=1)
            values = [value // 20 if name == "n" else value for value in values[:2]]
        sweeps[sweep] = []
        for value in values:
            point = replace(base, **{name: value})
            row = {"table": "points", "sweep": sweep, **asdict(point), **_in_a_child(point, settings)}
            sweeps[sweep].append(row)
            yield row
    for sweep, rows in sweeps.items():
        yield {"table": "exponents", "sweep": sweep, **_exponents(rows, SWEEPS[sweep][1])}
    yield {"table": "distances", **_distances(sweeps)}


def _exponents(rows: list[Row], name: str) -> Row:
    # Seconds of whole runs, so that they can grow with the number of rounds.
    time = [row["seconds_per_round"] * row["rounds"] for row in rows]
    memory = [row["extra_mb"] for row in rows]
    values = [row[name] for row in rows]
    return {
        "first": values[0],
        "last": values[-1],
        "time": slope(values, time),
        "time_largest": slope(values[-2:], time[-2:]),
        "memory": slope(values, memory),
        "memory_largest": slope(values[-2:], memory[-2:]),
    }


def slope(x: list[float], y: list[float]) -> float | None:
    """The exponent b of y = a·xᵇ; None if a value is not measurable."""
    if min(y) <= 0:
        return None
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _distances(sweeps: dict[str, list[Row]]) -> Row:
    many, few = sweeps["rows, one client"], sweeps["rows, one client, k = 16"]
    per_row = {rows[-1]["k"]: _bytes_per_row(*rows[-2:]) for rows in (many, few)}
    per_cluster = (per_row[many[-1]["k"]] - per_row[few[-1]["k"]]) / (many[-1]["k"] - few[-1]["k"])
    return {
        "first": many[-2]["n"],
        "last": many[-1]["n"],
        "few": per_row[few[-1]["k"]],
        "many": per_row[many[-1]["k"]],
        "per_row_and_cluster": per_cluster,
        "difference": per_cluster,
        "agreed": bool(per_cluster <= PER_ROW_AND_CLUSTER),
    }


def _bytes_per_row(small: Row, large: Row) -> float:
    """Extra memory of each further row; buffers of a fixed size do not count."""
    return (large["extra_mb"] - small["extra_mb"]) * 1e6 / (large["n"] - small["n"])


def _in_a_child(point: Point, settings: Settings) -> Row:
    task = json.dumps({"point": asdict(point), "kernel": settings.kernel})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", task], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def peak_bytes() -> int:
    """The peak memory of this process.

    On Linux the `ru_maxrss` of a child starts at that of its parent, so the kernel's count is preferred.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        # Bytes on macOS, kilobytes elsewhere.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Return freed memory and reset the peak to the current use, where the system supports this."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def run_point(point: Point, kernel: str) -> Row:
    """Measure one point in this process, which has not measured anything before."""
    X = blobs(point.n, point.m, point.k)
    clients = None if point.clients == 1 else np.arange(point.n) * point.clients // point.n
    start = X[np.random.default_rng(1).choice(point.n, size=point.k, replace=False)]
    taken, extra = [], []
    with limited(1):
        # The same point, because another one may not compile or load all the code that is needed.
        _fit(InProcess.from_arrays(X, clients, n_jobs=1, kernel=kernel), start, 2)
        for _ in range(point.repeats):
            # A new one, because sites may have state; not measured, because splitting the rows takes memory.
            federation = InProcess.from_arrays(X, clients, n_jobs=1, kernel=kernel)
            gc.collect()
            forget_peak()
            before = peak_bytes()
            taken.append(seconds(partial(_fit, federation, start, point.rounds))[0])
            extra.append(peak_bytes() - before)
    return {
        "seconds_per_round": float(np.median(taken)) / point.rounds,
        "data_mb": X.nbytes / 1e6,
        "extra_mb": max(extra) / 1e6,
    }


def _fit(federation: InProcess, start: np.ndarray, n_rounds: int) -> None:
    FederatedKMeans.paper(
        len(start), init=start, min_rounds=n_rounds, max_rounds=n_rounds, tol=0, patience=None, random_state=0
    ).fit_federation(federation)


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    print(json.dumps(run_point(Point(**task["point"]), task["kernel"])))
