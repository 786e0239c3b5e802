"""The commands ``fedkmeans study``. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from fedkmeans.cli.commands import Command, help_text
from fedkmeans.cli.options import Option, argument, out

_PLAN = argument("plan", Path, "PLAN", "The study's plan, a TOML file.")
_STORE = Option("store", Path, "Where its runs are kept. Default: fedkmeans-studies/NAME.", "FOLDER")

STUDY_HELP = help_text(
    "Compare algorithms: many runs from one plan, stopped and resumed at will, as tables, figures, a page.",
    """
  fedkmeans study run studies/quick.toml               # two minutes
  fedkmeans study table studies/quick.toml
  fedkmeans study report studies/quick.toml            # a page to open
""",
)

_RUN = Command(
    "run",
    "study:run_plan",
    "Carry out the runs of a plan that are not done yet.\n\n"
    "Each finished run is kept at once. Stop at any time, with Ctrl-C or otherwise; the same command goes on "
    "where it was.",
    """
  fedkmeans study run studies/quick.toml
  fedkmeans study run studies/paper-mnist.toml --runs 20 --clients 100
  fedkmeans study run plan.toml --only algorithm=dwf,ewf --only data=mnist
  fedkmeans study run plan.toml --scheduler tcp://node1:8786      # Dask
""",
    (
        _PLAN,
        _STORE,
        Option(
            "only",
            list[str],
            "Only some: data=, distribution= or algorithm= with names, a,b. May be repeated.",
            "KEY=NAMES",
        ),
        Option("runs", int, "So many runs of each, rather than the plan's.", "N"),
        Option("clients", str, "Only these numbers of clients per round.", "N,N"),
        Option("n_jobs", int, "Runs at a time; -1: one a core.", "N", -1),
        Option("scheduler", str, "Run on the Dask cluster with this scheduler instead.", "ADDRESS"),
        "quiet",
    ),
)

_STATUS = Command(
    "status",
    "study:show_status",
    "Say how many runs of a plan are done.",
    "  fedkmeans study status studies/quick.toml",
    (_PLAN, _STORE),
)

_EXPORT = Command(
    "export",
    "study:export_runs",
    "Write all finished runs to a CSV file, one row a run, for other programs; .csv.gz to compress it.",
    "  fedkmeans study export studies/quick.toml --out quick.csv",
    (_PLAN, out("FILE", "The CSV file."), _STORE),
)

_TABLE = Command(
    "table",
    "study:show_table",
    "Lay out the results as in the paper's tables, with the paper's own values beside them.\n\n"
    "Mean, best and standard deviation of the runs. Where the paper has the same cell: its values, the "
    "difference in its standard deviations, and in those of the means' difference.",
    """
  fedkmeans study table studies/quick.toml
  fedkmeans study table studies/paper-mnist.toml --metric accuracy --best 0.5
  fedkmeans study table studies/paper-mnist.toml --format latex -o mnist.tex
""",
    (
        _PLAN,
        _STORE,
        Option(
            "metric",
            str,
            "score, accuracy, v_measure, homogeneity, completeness, excess or rounds_to_within.",
            "NAME",
            "score",
        ),
        Option("clients", int, "Clients per round. Default: the most there are runs of.", "N"),
        Option("best", float, "Share of the runs that counts: those of lowest score.", "SHARE", 1.0),
        Option("format", str, "text, markdown, latex or csv.", "NAME", "text"),
        Option("rounds", int, "After so many rounds, rather than at the end.", "N"),
        out("FILE", "Write it there; a file there is replaced.", None),
    ),
)

_FIGURE = Command(
    "figure",
    "study:save_figure",
    "Draw a metric against the number of clients per round, as in the paper's figures.\n\n"
    "Mean and standard deviation over the best half of the runs, those with the lowest score. Or, with "
    "--convergence, the score against the rounds, for the first runs.",
    """
  fedkmeans study figure studies/quick.toml --out quick.png
  fedkmeans study figure studies/paper-mnist.toml --metric accuracy -o a.pdf
  fedkmeans study figure studies/quick.toml --best 1 --out all-runs.png
  fedkmeans study figure studies/quick.toml --convergence --out rounds.png
""",
    (
        _PLAN,
        out("FILE", "Where to: .pdf, .png or .svg.", Path("study.png")),
        _STORE,
        Option("metric", list[str], "A row of panels each. Default: score, accuracy and v_measure.", "NAME"),
        Option("best", float, "Share of the runs to draw, 0 to 1.", "SHARE", 0.5),
        Option("convergence", bool, "Draw score or excess against the rounds instead.", default=False),
        Option("clients", int, "Clients per round, for --convergence. Default: the most.", "N"),
    ),
)

_REPORT = Command(
    "report",
    "study:save_report",
    "Write one page with all of it: tables, figures to explore, convergence, centroid images.\n\n"
    "A single HTML file that needs no network, to keep or to send.",
    "  fedkmeans study report studies/quick.toml --out quick.html",
    (_PLAN, out("FILE", "The page. Default: report.html among the runs.", None), _STORE),
)

STUDY_COMMANDS = (_RUN, _STATUS, _EXPORT, _TABLE, _FIGURE, _REPORT)
