"""What the runs say, as tables: pure functions of the frame with one row a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.memory_study.cases import OWN
from benchmarks.memory_study.grid import (
    ACCELERATED,
    ALL_RULES,
    BUDGETS,
    DEFAULT,
    DISTRIBUTIONS,
    DWF,
    EWF,
    FKM,
    MAX_ROUNDS,
    RANDOM,
    TOLERANCES,
)
from benchmarks.memory_study.runner import SCORED, SCORED_SELDOM

CELL = ["data", "distribution", "n"]
RUN = [*CELL, "seed"]
ORDER = {
    "data": ("synthetic", "digits", "mnist-10k", "femnist-half-iid", "femnist-iid"),
    "distribution": (*DISTRIBUTIONS, OWN),
    "rule": ALL_RULES,
}
SPEEDS = ("within_0.5", "within_0.1", "own_0.1")
# A run is called worse when it ends more than this many percentage points above the plain one.
WORSE = 0.1
LEAST_SAVED = 0.2
# How far centroids may be from those of pooled Lloyd to be called the same: rounding, not data.
SAME = 1e-9


def load(out: Path) -> pd.DataFrame:
    """Read the runs, sorted as tables show them."""
    runs = pd.read_csv(out)
    for name, values in ORDER.items():
        runs[name] = pd.Categorical(runs[name], values, ordered=True)
    return runs.sort_values([*CELL, "rule", "seed"], ignore_index=True)


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Percent above pooled for each cell and rule: mean and standard deviation over seeds."""
    groups = runs.groupby([*CELL, "rule"], observed=True)
    columns = {"seeds": groups["seed"].nunique(), "start": groups["start"].mean()}
    for budget in BUDGETS:
        columns[f"mean_{budget}"] = groups[f"at_{budget}"].mean()
        columns[f"sd_{budget}"] = groups[f"at_{budget}"].std()
    columns["rounds"] = groups["rounds"].mean()
    columns["settled"] = groups["reason"].agg(lambda reasons: (reasons == "tol").mean())
    return pd.DataFrame(columns).reset_index()


def geometric_mean(values: pd.Series) -> float:
    """exp of the mean logarithm; NaN for none."""
    return float(np.exp(np.log(values).mean())) if len(values) else float("nan")


def pairs(runs: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Runs of a rule beside those of the default with the same data, clients a round and seed."""
    columns = [*RUN, *SPEEDS, f"at_{MAX_ROUNDS}"]
    plain, fast = (runs.loc[runs["rule"] == name, columns] for name in (DEFAULT, rule))
    return plain.merge(fast, on=RUN, suffixes=("", "_fast"))


def rounds_ratio(both: pd.DataFrame, speed: str) -> dict[str, float]:
    """How many rounds an accelerated rule needs for one that the plain rule needs.

    Runs that never come that near are censored at the last round. Where neither does, there is
    nothing to compare; where one does, the ratio with the last round in place of the unknown one
    flatters the rule that failed, so that pairs with and without them are counted apart. Cells count
    alike, however many seeds they have.
    """
    plain, fast = both[speed], both[f"{speed}_fast"]
    either = both[plain.notna() | fast.notna()]
    known = both[plain.notna() & fast.notna()]

    def over_cells(rows: pd.DataFrame) -> float:
        ratio = rows[f"{speed}_fast"].fillna(MAX_ROUNDS) / rows[speed].fillna(MAX_ROUNDS)
        return geometric_mean(ratio.groupby([rows[name] for name in CELL], observed=True).agg(geometric_mean))

    return {
        "pairs": len(both),
        "both reach": len(known),
        "only plain": int((plain.notna() & fast.isna()).sum()),
        "only accelerated": int((plain.isna() & fast.notna()).sum()),
        "ratio": over_cells(known),
        "ratio, censored": over_cells(either),
    }


def acceleration(runs: pd.DataFrame) -> pd.DataFrame:
    """Rounds needed with acceleration for one without, over the study and by clients a round."""
    rows = []
    for rule in ACCELERATED:
        everything = pairs(runs, rule)
        parts = {"all": everything} | {str(n): part for n, part in everything.groupby("n")}
        for n, both in parts.items():
            worse = both[f"at_{MAX_ROUNDS}_fast"] - both[f"at_{MAX_ROUNDS}"]
            ends = {
                "mean end": worse.mean(),
                "worst end": worse.max(),
                "ends worse": int((worse > WORSE).sum()),
                "ends better": int((worse < -WORSE).sum()),
            }
            rows += [
                {"rule": rule, "n": n, "reach": speed, **rounds_ratio(both, speed), **ends}
                for speed in SPEEDS
            ]
    return pd.DataFrame(rows)


def kept(table: pd.DataFrame) -> dict[str, bool]:
    """Which accelerations save enough rounds to 0.1 %, censored runs counted, and never end worse."""
    chosen = table[(table["n"] == "all") & (table["reach"] == "within_0.1")]
    enough = (chosen["ratio, censored"] <= 1 - LEAST_SAVED) & (chosen["ends worse"] == 0)
    return dict(zip(chosen["rule"], enough.map(bool), strict=True))


def stopping(runs: pd.DataFrame) -> pd.DataFrame:
    """Where each tolerance would have ended the runs of the default, against where they ended."""
    default = runs[(runs["rule"] == DEFAULT) & (runs["distribution"] != OWN)]
    parts: list[tuple[object, object, pd.DataFrame]] = [("all", "all", default)]
    parts += [("all", n, part) for n, part in default.groupby("n")]
    parts += [(data, n, part) for (data, n), part in default.groupby(["data", "n"], observed=True)]
    return pd.DataFrame([_calibration(data, n, tol, part) for data, n, part in parts for tol in TOLERANCES])


def _calibration(data: object, n: object, tol: float, part: pd.DataFrame) -> dict[str, object]:
    name = f"stop_{tol:g}"
    left, reason = part[f"{name}_above_end"].abs(), part[f"{name}_reason"]
    beyond = left > 100 * tol
    return {
        "data": data,
        "n": n,
        "tol_score": tol,
        "runs": len(part),
        "rounds": part[f"{name}_rounds"].mean(),
        "rounds to the end": part["rounds"].mean(),
        **{f"by {why}": int((reason == why).sum()) for why in ("tol_score", "tol", "max_rounds")},
        "mean left": left.mean(),
        "largest left": left.max(),
        "beyond": int(beyond.sum()),
        "times the tolerance": left.max() / (100 * tol),
    }


def bars(runs: pd.DataFrame) -> pd.DataFrame:
    """The bars set beforehand, and what was measured, with clients in turns and at random."""
    return pd.DataFrame(
        [
            *_mnist_bar(runs, "non-iid", 10, 100, 0.2),
            *_mnist_bar(runs, "non-iid", 5, 200, 0.3),
            *_mnist_bar(runs, "half-iid", 10, 100, 0.2),
            *_mnist_bar(runs, "iid", 10, 100, 0.2),
            *_exact_bars(runs),
            *_femnist_bars(runs),
        ]
    )


def _mnist_bar(
    runs: pd.DataFrame, distribution: str, n: int, budget: int, limit: float
) -> list[dict[str, object]]:
    cell = runs[(runs["data"] == "mnist-10k") & (runs["distribution"] == distribution) & (runs["n"] == n)]
    name = f"MNIST-10k {distribution}, {n} clients a round, {budget} rounds: % above pooled"
    return _measured(
        cell, name, budget, lambda value: value <= limit, f"at most {limit}", (DEFAULT, RANDOM, DWF)
    )


def _measured(
    cell: pd.DataFrame,
    name: str,
    budget: int,
    met: Callable[[float], bool],
    bar: str,
    rules: tuple[str, ...],
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for rule in rules:
        values = cell.loc[cell["rule"] == rule, f"at_{budget}"]
        if not len(values):
            continue
        row = {"setting": name, "bar": bar, "rule": rule, "seeds": len(values), "mean": values.mean()}
        row |= {"sd": values.std(), "least": values.min(), "most": values.max()}
        # Bars are set for the new rules; the paper's stand beside them.
        row["met"] = met(values.mean()) if rule in (DEFAULT, RANDOM) else ""
        rows.append(row)
    return rows


def _exact_bars(runs: pd.DataFrame) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    everybody = runs[(runs["n"] == 100) & (runs["rule"] == DEFAULT)]
    for data, part in everybody.groupby("data", observed=True):
        same = (part["off_pooled"] <= SAME) & (part["rounds"] == part["pooled_steps"])
        rows.append(
            {
                "setting": f"{data}, all clients, every distribution: largest difference of a coordinate",
                "bar": "pooled Lloyd, in as many rounds",
                "rule": "last word, all clients",
                "seeds": len(part),
                "mean": part["off_pooled"].mean(),
                "sd": part["off_pooled"].std(),
                "least": part["off_pooled"].min(),
                "most": part["off_pooled"].max(),
                "met": bool(same.all()),
            }
        )
    return rows


def _femnist_bars(runs: pd.DataFrame) -> list[dict[str, object]]:
    cell = runs[(runs["data"] == "femnist-half-iid") & (runs["n"] == 10)]
    if not len(cell):
        return []
    name = "FEMNIST half-IID, k = 64, 10 clients a round, 200 rounds: % above pooled"
    start = cell.drop_duplicates("seed")["start"]
    others = [cell.loc[cell["rule"] == rule, "at_200"].mean() for rule in (DWF, EWF, FKM)] + [start.mean()]
    lowest = np.nanmin(others)
    rows = _measured(
        cell,
        name,
        200,
        lambda value: bool(value <= 0.5 and value < lowest),
        "at most 0.5, and below DWF, EWF, k-FED and FKM",
        (DEFAULT, RANDOM, DWF, EWF, FKM),
    )
    kfed = {"setting": name, "rule": "k-FED (the start)", "seeds": len(start), "mean": start.mean()}
    kfed |= {"sd": start.std(), "least": start.min(), "most": start.max(), "bar": "", "met": ""}
    return [*rows, kfed]


def curve(text: str) -> pd.Series:
    """Percent above pooled by round, from the text in which a run keeps it."""
    points = [point.split(":") for point in text.split()]
    return pd.Series({int(rounds): float(value) for rounds, value in points})


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation over seeds by round, for the runs that keep a curve.

    A settled run stays as it is.
    """
    rows = []
    for (distribution, rule), part in runs[runs["curve"].notna()].groupby(
        ["distribution", "rule"], observed=True
    ):
        table = pd.concat([curve(text) for text in part["curve"]], axis=1).sort_index()
        table = table.reindex(sorted({*table.index, MAX_ROUNDS})).ffill()
        table = table.loc[table.index.isin(SCORED | SCORED_SELDOM)]
        rows.append(
            pd.DataFrame(
                {
                    "distribution": distribution,
                    "rule": rule,
                    "round": table.index,
                    "seeds": len(part),
                    "mean": table.mean(axis=1),
                    "sd": table.std(axis=1),
                }
            )
        )
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
