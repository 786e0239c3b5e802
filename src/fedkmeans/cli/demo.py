"""``fedkmeans demo``."""

from __future__ import annotations

from pathlib import Path

from fedkmeans._utils.checks import check_integer
from fedkmeans.cli import console
from fedkmeans.cli.outputs import writing
from fedkmeans.cli.study import watch_runs
from fedkmeans.errors import ParameterError
from fedkmeans.study.demo import explain, render_table, run_demo

_QUICK_ROUNDS = 100


def show_demo(out: Path, seed: int, n_jobs: int, quick: bool) -> None:
    """Run the demo with a progress display, and show its table and what to look at."""
    if n_jobs == 0:  # joblib would raise an error of its own
        raise ParameterError("--n-jobs must be at least 1, or -1 for one a core; got 0")
    limit = _QUICK_ROUNDS if quick else None
    seed = check_integer("--seed", seed, least=0)
    with writing(out), watch_runs("demo") as report:
        result = run_demo(out, seed=seed, n_jobs=n_jobs, report=report, max_rounds=limit)
    console.out().print()
    console.out().print(render_table(result))
    for line in explain(result):
        console.out().print()
        console.out().print(line, markup=False)
    console.say(f"The table and {len(result.files) - 1} pictures are in {str(out)!r}.")
