"""Finished studies, made up: as from a plan and a store, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedkmeans.study import Plan, Record, Store, key_of, parse_plan, tasks_of
from fedkmeans.study.results import load_results

K = 4
_REASONS = {"k-means": "tol", "kfed": "one shot"}


def make_study(
    folder: Path,
    *,
    title: str = "Digits, 4 clients",
    runs: int = 3,
    clients: tuple[int, ...] = (2, 4),
    algorithms: tuple[dict[str, Any], ...] = ({"name": "k-means"}, {"name": "dwf"}, {"name": "kfed"}),
    data: tuple[dict[str, Any], ...] = ({},),
    columns: int = 64,
    labels: bool = True,
) -> tuple[Plan, pd.DataFrame, dict[str, np.ndarray]]:
    """A plan, the frame of its finished runs, and the centroids of the first.

    Each entry of `data` says what differs from the usual one; None takes something out of it.
    """
    one = {"name": "digits", "title": "Digits", "k": K, "distributions": ["iid", "non-iid"], "paper": "mnist"}
    table = {
        "title": title,
        "seed": 5,
        "runs": runs,
        "n_clients": 4,
        "clients_per_round": list(clients),
        "data": [{key: value for key, value in (one | other).items() if value is not None} for other in data],
        "algorithm": list(algorithms),
    }
    plan, store = parse_plan(table, "digits-study", folder), Store(folder / "store")
    for number, task in enumerate(tasks_of(plan)):
        rng = np.random.default_rng(number)
        kind = plan.find_algorithm(task.algorithm).algorithm
        facts = {
            "data": task.data,
            "distribution": task.distribution,
            "algorithm": task.algorithm,
            "clients_per_round": task.clients_per_round,
            "run": task.run,
            "seed": 1000 + task.run,
            "score": 34.7 + number / 100 + (9 if kind == "kfed" else 0),
            "rounds": 1 if kind == "kfed" else 40,
            "stop_reason": _REASONS.get(kind, "patience"),
            "seconds": 0.25 * (number + 1),
            "rows": f"1797x{columns}-0a1b2c3d",
            "versions": {"python": "3.11.7", "fedkmeans": "0.1.0", "numpy": "2.0.0"},
            "finished": f"2026-11-15T20:58:{number % 60:02d}+00:00",
        }
        if labels:
            facts |= dict.fromkeys(("accuracy", "v_measure", "homogeneity"), 0.6 + number / 1000)
            facts["completeness"] = 0.5
        if kind == "dwf":
            facts["curve"] = {"0": 36.0, "10": 34.9, "2": 35.5, "1": 35.8}
            facts["movement"] = {"10": 0.0, "2": 0.1, "1": float("nan")}
        if kind == "kfed":
            facts["curve"], facts["movement"] = {"0": 44.0, "1": 44.0}, {"1": float("nan")}
        store.add(Record(key_of(plan, task), facts, rng.random((K, columns)) if task.run == 0 else None))
    return plan, load_results(plan, store), store.centroids()
