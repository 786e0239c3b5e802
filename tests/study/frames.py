"""Plans and results made by hand, for the tests of tables and figures."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedkmeans.study import Plan, parse_plan
from fedkmeans.study.results import COLUMNS, METRICS

SYNTHETIC = {
    "name": "synthetic",
    "title": "Synthetic",
    "k": 5,
    "paper": "synthetic",
    "distributions": ["iid", "non-iid"],
}


def make_plan(*data: dict, algorithms=("k-means", "dwf", "kfed"), **changes) -> Plan:
    """A plan for the paper's synthetic data, or other data, with 100 clients."""
    table = {
        "title": "A study",
        "seed": 7,
        "n_clients": 100,
        "clients_per_round": [5, 100],
        "data": list(data or [SYNTHETIC]),
        "algorithm": [one if isinstance(one, dict) else {"name": one} for one in algorithms],
    }
    return parse_plan(table | changes, "plan", Path())


def make_frame(*cells: tuple) -> pd.DataFrame:
    """Results of cells (data, distribution, algorithm, clients per round, scores, other columns).

    Of the other columns, lists have a value for each run.
    """
    rows = []
    for data, distribution, algorithm, clients, scores, *others in cells:
        columns = {key: value for other in others for key, value in other.items()}
        for run, score in enumerate(scores):
            row = dict.fromkeys(COLUMNS) | dict.fromkeys(METRICS, np.nan)
            row |= {"data": data, "distribution": distribution, "algorithm": algorithm}
            row |= {"clients_per_round": clients, "run": run, "score": score, "rounds": 1}
            rows.append(row | {k: v[run] if isinstance(v, list) else v for k, v in columns.items()})
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype({"clients_per_round": "Int64"} | dict.fromkeys(METRICS, float))
