"""``fedkmeans demo``."""

from __future__ import annotations

from pathlib import Path

from fedkmeans._utils.checks import check_integer
from fedkmeans.cli import console
from fedkmeans.cli.outputs import writing
from fedkmeans.errors import ParameterError
from fedkmeans.study.demo import explain, render_table, run_demo

_QUICK_ROUNDS = 100


def show_demo(out: Path, seed: int, n_jobs: int, quick: bool) -> None:
    """Run the demo, telling each step, and show its table and what to look at."""

    def report(line: str) -> None:
        console.err().print(line, style="dim", markup=False, soft_wrap=True)

    if n_jobs == 0:  # joblib would raise an error of its own
        raise ParameterError("--n-jobs must be at least 1, or -1 for one a core; got 0")
    limit = {"max_rounds": _QUICK_ROUNDS} if quick else {}
    seed = check_integer("--seed", seed, least=0)
    with writing(out):
        result = run_demo(out, seed=seed, n_jobs=n_jobs, report=report, **limit)
    console.out().print()
    console.out().print(render_table(result))
    for line in explain(result):
        console.out().print()
        console.out().print(line, markup=False)
    console.say(f"The table and {len(result.files) - 1} pictures are in {str(out)!r}.")
