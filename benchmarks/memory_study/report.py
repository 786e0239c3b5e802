"""From the runs to tables, figures and a page in plain words that puts them side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.memory_study import figures, tables
from benchmarks.memory_study.grid import ACCELERATED, ALL_RULES, BUDGETS, DEFAULT, DWF, RANDOM, grid
from fedkmeans.study.plots import save_figure

# Rules whose mean scores differ by no more percentage points are called level.
LEVEL = 0.05


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown; numbers with three digits that count, what is not known as a dash."""
    lines = [table.columns, ["---"] * len(table.columns), *table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(map(_text, line)) + " |" for line in lines)


def _text(value: object) -> str:
    if isinstance(value, float):
        if pd.isna(value):
            return "—"
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return str(value)


def with_spread(summary: pd.DataFrame) -> pd.DataFrame:
    """One row a cell and rule, "mean ± sd" in each budget's column."""
    table = summary[["data", "distribution", "n", "rule", "seeds"]].astype(object).copy()
    for budget in BUDGETS:
        table[f"{budget} rounds"] = [
            "—" if pd.isna(mean) else f"{mean:.2f}" + ("" if pd.isna(sd) else f" ± {sd:.2f}")
            for mean, sd in zip(summary[f"mean_{budget}"], summary[f"sd_{budget}"], strict=True)
        ]
    return table


def rule_table(summary: pd.DataFrame) -> pd.DataFrame:
    """How the rules compare over all cells with 5 or 10 clients a round: median and worst cell."""
    few = summary[summary["n"].isin([5, 10])]
    rows = []
    for rule in ALL_RULES:
        part = few[few["rule"] == rule]
        if len(part):
            row = {"rule": rule, "cells": len(part)}
            for budget in BUDGETS:
                means = part[f"mean_{budget}"]
                known = means.notna().any()
                row[f"{budget} rounds"] = f"{means.median():.2f} ({means.max():.2f})" if known else "—"
            rows.append(row)
    return pd.DataFrame(rows)


def write_report(out: Path) -> None:
    """Write all that follows from the runs in `out` into its folder."""
    folder = out.parent
    runs = tables.load(out)
    made = {
        "summary": tables.summary(runs),
        "acceleration": tables.acceleration(runs),
        "stopping": tables.stopping(runs),
        "bars": tables.bars(runs),
        "curves": tables.curves(runs),
    }
    for name, table in made.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.5g", lineterminator="\n")
    if len(made["curves"]):
        save_figure(figures.draw_curves(made["curves"]), folder / "curves.png", dpi=130)
    save_figure(figures.draw_budgets(made["summary"]), folder / "budgets.png", dpi=130)
    (folder / "README.md").write_text(page(runs, made), encoding="utf-8")


def page(runs: pd.DataFrame, made: dict[str, pd.DataFrame]) -> str:
    """The page README.md."""
    parts = [
        "# What memory is worth: the study behind the defaults",
        _how(runs),
        "## In short",
        _in_short(runs, made),
        "## The bars",
        "Set before the study; means over seeds. The rules without memory stand beside them.",
        markdown(made["bars"]),
        "## All rules, few clients a round",
        "Median over all cells (data set × distribution × 5 or 10 clients a round) of the mean over "
        "seeds, in percent above pooled; the worst cell in brackets. Not all rules were run in all cells.",
        markdown(rule_table(made["summary"])),
        "![Score against rounds on MNIST-10k](curves.png)" if len(made["curves"]) else "",
        "![Scores of four rules after 20, 50, 100 and 500 rounds on all data](budgets.png)",
        "## MNIST-10k",
        "Percent above pooled, mean ± standard deviation over seeds. All other cells are in summary.csv.",
        markdown(with_spread(_mnist(made["summary"]))),
        "## Acceleration",
        _acceleration(made["acceleration"]),
        "## When to stop",
        _stopping(made["stopping"]),
        "## What to keep in mind",
        _caveats(runs, made["curves"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _mnist(summary: pd.DataFrame) -> pd.DataFrame:
    return summary[summary["data"] == "mnist-10k"]


def _how(runs: pd.DataFrame) -> str:
    seeds = runs.groupby([*tables.CELL, "rule"], observed=True)["seed"].nunique()
    return (
        "Written by `python -m benchmarks.memory_study report` from runs.csv, which `python -m "
        "benchmarks.memory_study run` fills (`make study-memory` does both; MNIST and FEMNIST are found "
        f"through `FEDKMEANS_DATA`). It holds {len(runs)} runs, one row each, with seeds counted from 0: "
        f"{seeds.min()} to {seeds.max()} of them in a cell, as the column *seeds* says. A seed decides the "
        "partition, the start and who takes part.\n\n"
        "100 clients. All rules but FKM start from the same centroids, those of k-FED. *Pooled* is Lloyd on "
        "all rows from that very start until no label changes, so that 0 % is what a federation can hope "
        "for; a run may end below, since few clients at a time may lead to another optimum. A run ends "
        "after 500 rounds or when nobody moves any more (`tol=1e-8`), and then stays as it is. Scores are "
        "those of all rows, whoever took part.\n\n"
        "Rules: *paper DWF* and *paper EWF* are `FederatedKMeans.paper()`, with equal weights in the "
        "second; *one round* takes the weighted means of a round as they are (no memory, one local step, "
        "learning rate 1); *forgetting* keeps totals of which a round keeps the part γ; *last word* is "
        "`FederatedKMeans()`, but for what its name says. Clients take turns unless it says *random* (the "
        "paper's rules: always random)."
    )


def _value(summary: pd.DataFrame, distribution: str, n: int, rule: str, budget: int) -> str:
    found = summary[
        (summary["data"] == "mnist-10k")
        & (summary["distribution"] == distribution)
        & (summary["n"] == n)
        & (summary["rule"] == rule)
    ]
    return f"{found[f'mean_{budget}'].iloc[0]:.2f} %" if len(found) else "— %"


def _in_short(runs: pd.DataFrame, made: dict[str, pd.DataFrame]) -> str:
    summary, bars = made["summary"], made["bars"]
    judged = bars[bars["met"].isin([True, False])]
    missed = judged[judged["met"] == False]  # noqa: E712  the column also holds text
    verdict = tables.kept(made["acceleration"])
    good = [rule for rule, keep in verdict.items() if keep]
    lines = [
        "With 10 of 100 clients a round and non-IID MNIST, the last word of every client is "
        f"{_value(summary, 'non-iid', 10, DEFAULT, 100)} above pooled after 100 rounds when clients take "
        f"turns and {_value(summary, 'non-iid', 10, RANDOM, 100)} when they are drawn at random; forgetting "
        f"totals (γ = 0.98) {_value(summary, 'non-iid', 10, 'forgetting 0.98', 100)}, the paper's DWF "
        f"{_value(summary, 'non-iid', 10, DWF, 100)}.",
        f"{len(judged) - len(missed)} of {len(judged)} bars are met"
        + (": all of them." if not len(missed) else "; missed: " + _missed(missed) + "."),
        _default_line(summary),
        "Acceleration: "
        + (
            f"{', '.join(good)} saves at least a fifth of the rounds and never ends worse: kept."
            if good
            else "none of the four saves a fifth of the rounds without ever ending worse: dropped."
        ),
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def _missed(missed: pd.DataFrame) -> str:
    return "; ".join(
        f"{setting} ({rule}: {mean:.3g})"
        for setting, rule, mean in missed[["setting", "rule", "mean"]].itertuples(index=False)
    )


def _default_line(summary: pd.DataFrame) -> str:
    """Count the cells in which the default has the lowest mean of the rules without acceleration."""
    few = summary[summary["n"].isin([5, 10]) & ~summary["rule"].isin(ACCELERATED)]
    counts = []
    for budget in BUDGETS:
        table = few.pivot_table(index=tables.CELL, columns="rule", values=f"mean_{budget}", observed=True)
        table = table[table[DEFAULT].notna()] if DEFAULT in table else table.iloc[:0]
        best = table[DEFAULT] <= table.min(axis=1) + LEVEL if len(table) else pd.Series(dtype=bool)
        counts.append(f"{int(best.sum())} of {len(best)} after {budget} rounds")
    return (
        f"The default, last word with turns, is the best rule or within {LEVEL} percentage points of it in "
        f"this many cells with 5 or 10 clients a round: {', '.join(counts)}."
    )


def _acceleration(table: pd.DataFrame) -> str:
    shown = table[table["n"] == "all"].drop(columns="n")
    return (
        "Rounds an accelerated run needs for one of the plain rule (last word, turns) with the same data, "
        "clients a round and seed, until it is within 0.5 % or 0.1 % of pooled, or within 0.1 % of its own "
        "end (*own*): geometric mean over cells. A ratio of 0.8 saves a fifth. *ratio* takes pairs in which "
        "both arrive within 500 rounds; *censored* also those in which one does, with 500 for the other. "
        "The last columns compare the scores after 500 rounds, accelerated less plain, in percentage "
        "points; worse and better count runs that differ by more than "
        f"{tables.WORSE}.\n\n{markdown(shown)}\n\n"
        "The rule set beforehand: keep an acceleration if it saves 20 % of the rounds over the study (to "
        "0.1 % of pooled, censored runs counted) and never ends worse. "
        + " ".join(f"{rule}: {'kept' if keep else 'dropped'}." for rule, keep in tables.kept(table).items())
    )


def _stopping(table: pd.DataFrame) -> str:
    shown = table[table["data"] == "all"].drop(columns="data")
    return (
        "The server forecasts what the score will still change from its means over the last three windows "
        "(a window is as many rounds as it takes to hear everybody, at least five), and stops when that is "
        "at most `tol_score` of it. The table shows where this ends the default, against where the same run "
        "ends if it goes on until nobody moves (at most 1000 rounds): synthetic data, digits and MNIST-10k "
        "in all distributions. *left* is how much the score still changes, in percent; *beyond* counts the "
        "runs in which that is more than the tolerance, the last column says how many times the tolerance "
        f"it is at most. *by …* counts why runs ended.\n\n{markdown(shown)}\n\n{_honoured(table)} By data "
        "set: stopping.csv."
    )


def _honoured(table: pd.DataFrame) -> str:
    """Say plainly whether the tolerances keep their word."""
    whole = table[(table["data"] == "all") & (table["n"] == "all")]
    lines = [
        f"With {row['tol_score']:g}, {row['beyond']} of {row['runs']} runs changed by more than that, the "
        f"worst by {row['largest left']:.2g} %."
        for _, row in whole.iterrows()
    ]
    if (whole["beyond"] > 0.05 * whole["runs"]).any():
        lines.append(
            "So the tolerance holds for a forecast and is no bound: Lloyd rests on plateaus and moves on."
        )
    return " ".join(lines)


def _first_rounds(runs: pd.DataFrame, curves: pd.DataFrame) -> str:
    """Say how far the default strays before everybody was heard."""
    if not len(curves):
        return ""
    line = curves[(curves["distribution"] == "non-iid") & (curves["rule"] == DEFAULT)]
    start = runs[
        (runs["data"] == "mnist-10k")
        & (runs["distribution"] == "non-iid")
        & (runs["n"] == 10)
        & (runs["rule"] == DEFAULT)
    ]["start"].mean()
    if not len(line) or line["mean"].max() <= start:
        return ""
    worst = line.loc[line["mean"].idxmax()]
    return (
        "Until everybody was heard, a run can be worse than its start: on non-IID MNIST with 10 clients a "
        f"round the default goes from {start:.1f} % to {worst['mean']:.1f} % in round {worst['round']:.0f}. "
        "Do not stop it within the first turn."
    )


def _caveats(runs: pd.DataFrame, curves: pd.DataFrame) -> str:
    unsettled = runs[(runs["rule"] == DEFAULT) & (runs["reason"] == "max_rounds")]
    wanted = {tuple(map(str, (t.data, t.distribution, t.n, t.rule, t.seed))) for t in grid()}
    there = {tuple(map(str, row)) for row in runs[[*tables.CELL, "rule", "seed"]].itertuples(index=False)}
    lines = [
        f"{len(wanted & there)} of the {len(wanted)} runs of the full grid are here; `run` carries on "
        "with the others.",
        f"{len(unsettled)} run(s) of the default had not settled when they were cut.",
        "Distances to pooled are small, and which optimum a run ends in is partly luck: differences below "
        "0.1 percentage points between rules with memory mean little.",
        "The rounds at which runs come near pooled are read off every round up to 20, every second up to 50, "
        "and then in steps of 3 to 10 %.",
        _first_rounds(runs, curves),
        "On FEMNIST the paper's rules and FKM run for 200 rounds only.",
        "Means over different numbers of seeds do not compare: few seeds make most of a mean (on non-IID "
        "MNIST two of ten, 5 and 8), and they are missing where there are five or three. The table of "
        "accelerations compares run by run.",
        "FKM has a start of its own. k-FED's score is that of the start: all clients took part in it.",
    ]
    return "\n".join(f"- {line}" for line in lines if line)
