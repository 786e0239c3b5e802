"""``python -m benchmarks.memory_study run`` measures, ``… report`` makes tables and figures of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.memory_study.grid import grid
from benchmarks.memory_study.runner import run

RUNS = Path("docs/results/memory/runs.csv")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="carry out the runs that are not done yet")
    report = commands.add_parser("report", help="write tables, figures and README.md beside the runs")
    for command in (runs, report):
        command.add_argument("--out", type=Path, default=RUNS, help="file with one row a run")
    runs.add_argument(
        "--cache", type=Path, default=Path(".benchmarks/memory_study"), help="folder for starts"
    )
    runs.add_argument("--workers", type=int, default=2, help="processes")
    runs.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after this time")
    runs.add_argument("--data", nargs="*", help="only these data sets")
    runs.add_argument("--rules", nargs="*", help="only these rules")
    runs.add_argument("--seeds", type=int, help="only seeds below this")
    chosen = parser.parse_args(arguments)
    if chosen.command == "report":
        from benchmarks.memory_study.report import write_report

        write_report(chosen.out)
        return
    tasks = [
        task
        for task in grid()
        if (chosen.data is None or task.data in chosen.data)
        and (chosen.rules is None or task.rule in chosen.rules)
        and (chosen.seeds is None or task.seed < chosen.seeds)
    ]
    run(tasks, chosen.out, chosen.cache, workers=chosen.workers, minutes=chosen.minutes)


if __name__ == "__main__":
    main()
