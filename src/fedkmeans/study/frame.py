"""What the finished runs of a study found, as one data frame."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from fedkmeans.errors import StudyError
from fedkmeans.study.grid import find_kept
from fedkmeans.study.plan import Plan
from fedkmeans.study.store import Store

# In each of these, but for the score, more is better.
METRICS = {
    "score": "score",
    "accuracy": "accuracy",
    "v_measure": "v-measure",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
}
COLUMNS = (
    "key", "data", "distribution", "algorithm", "clients_per_round", "run", "seed", *METRICS, "rounds",
    "stop_reason", "seconds", "finished", "versions", "rows", "curve", "movement",
)  # fmt: skip


def results(plan: Plan, store: Store) -> pd.DataFrame:
    """One row for each finished run of this plan, in the plan's order.

    Columns are `COLUMNS`. Pooled runs have no distribution and no clients per round. Metrics that need
    true labels are NaN where there are none; `curve` and `movement`, dicts from round to score and
    movement, are None but for the first runs. Records of other plans in the same store are left out,
    and so are those of this plan before something in it was changed.
    """
    kept = store.facts()
    rows = [
        # The plan's names, as they may have been others when the run was done.
        {"key": key, **kept[key], **asdict(task)}
        for task, key in find_kept(plan, kept).items()
    ]
    if not rows:
        raise StudyError(
            f"there are no finished runs of {plan.name!r} in {str(store.folder)!r}; run the study first"
        )
    frame = pd.DataFrame(rows).reindex(columns=list(COLUMNS)).astype({"clients_per_round": "Int64"})
    order = {
        "data": [entry.name for entry in plan.data],
        "distribution": list(dict.fromkeys(one.name for entry in plan.data for one in entry.distributions)),
        "algorithm": [entry.name for entry in plan.algorithms],
    }
    for name, values in order.items():
        frame[name] = pd.Categorical(frame[name], values, ordered=True)
    by = ["data", "distribution", "algorithm", "clients_per_round", "run"]
    return frame.sort_values(by, na_position="first", ignore_index=True)


def is_better(metric: str) -> str:
    """Which of two values of a metric is the better one: "min" or "max"."""
    return "min" if metric == "score" else "max"
