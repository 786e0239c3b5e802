"""The commands ``fedkmeans study``. Imports nothing heavy."""

from __future__ import annotations

from fedkmeans.cli.commands import Command
from fedkmeans.cli.options import shared

_PLAN = {"PLAN": "The study's plan, a TOML file."}
_STORE = {"--store FOLDER": "Where its runs are kept. Default: fedkmeans-studies/NAME."}

STUDY_HELP = """Compare algorithms: many runs from one plan, stopped and resumed at will, as tables, figures,
a page.

  fedkmeans study run studies/quick.toml               # two minutes
  fedkmeans study table studies/quick.toml
  fedkmeans study report studies/quick.toml            # a page to open
"""

STUDY_COMMANDS = {
    "run": Command(
        "study:run_plan",
        """Carry out the runs of a plan that are not done yet.

        Each finished run is kept at once. Stop at any time, with Ctrl-C or otherwise; the same command goes
        on where it was.

          fedkmeans study run studies/quick.toml
          fedkmeans study run studies/paper-mnist.toml --runs 20 --clients 100
          fedkmeans study run plan.toml --only algorithm=dwf,ewf --only data=mnist
          fedkmeans study run plan.toml --scheduler tcp://node1:8786      # Dask
        """,
        {
            **_PLAN,
            **_STORE,
            "--only KEY=NAMES...": "Only some: data=, distribution= or algorithm= with names, a,b. May be "
            "repeated.",
            "--runs N": "So many runs of each, rather than the plan's.",
            "--clients N,N": "Only these numbers of clients per round.",
            "--n-jobs N = -1": "Runs at a time; -1: one a core.",
            "--scheduler ADDRESS": "Run on the Dask cluster with this scheduler instead.",
            **shared("quiet"),
        },
    ),
    "status": Command(
        "study:show_status",
        """Say how many runs of a plan are done.

          fedkmeans study status studies/quick.toml
        """,
        {**_PLAN, **_STORE},
    ),
    "export": Command(
        "study:export_runs",
        """Write all finished runs to a CSV file, one row a run, for other programs; .csv.gz to compress it.

          fedkmeans study export studies/quick.toml --out quick.csv
        """,
        {**_PLAN, "--out -o FILE = required": "The CSV file.", **_STORE},
    ),
    "table": Command(
        "study:show_table",
        """Lay out the results as in the paper's tables, with the paper's own values beside them.

        Mean, best and standard deviation of the runs. Where the paper has the same cell: its values, the
        difference in its standard deviations, and in those of the means' difference.

          fedkmeans study table studies/quick.toml
          fedkmeans study table studies/paper-mnist.toml --metric accuracy --best 0.5
          fedkmeans study table studies/paper-mnist.toml --format latex -o mnist.tex
        """,
        {
            **_PLAN,
            **_STORE,
            "--metric NAME = score": "score, accuracy, v_measure, homogeneity, completeness, excess or "
            "rounds_to_within.",
            "--clients N": "Clients per round. Default: the most there are runs of.",
            "--best SHARE = 1": "Share of the runs that counts: those of lowest score.",
            "--format NAME = text": "text, markdown, latex or csv.",
            "--rounds N": "After so many rounds, rather than at the end.",
            "--out -o FILE": "Write it there; a file there is replaced.",
        },
    ),
    "figure": Command(
        "study:save_figure",
        """Draw a metric against the number of clients per round, as in the paper's figures.

        Mean and standard deviation over the best half of the runs, those with the lowest score. Or, with
        --convergence, the score against the rounds, for the first runs.

          fedkmeans study figure studies/quick.toml --out quick.png
          fedkmeans study figure studies/paper-mnist.toml --metric accuracy -o a.pdf
          fedkmeans study figure studies/quick.toml --best 1 --out all-runs.png
          fedkmeans study figure studies/quick.toml --convergence --out rounds.png
        """,
        {
            **_PLAN,
            "--out -o FILE = study.png": "Where to: .pdf, .png or .svg.",
            **_STORE,
            "--metric NAME...": "A row of panels each. Default: score, accuracy and v_measure.",
            "--best SHARE = 0.5": "Share of the runs to draw, 0 to 1.",
            "--convergence": "Draw score or excess against the rounds instead.",
            "--clients N": "Clients per round, for --convergence. Default: the most.",
        },
    ),
    "report": Command(
        "study:save_report",
        """Write one page with all of it: tables, figures to explore, convergence, centroid images.

        A single HTML file that needs no network, to keep or to send.

          fedkmeans study report studies/quick.toml --out quick.html
        """,
        {**_PLAN, "--out -o FILE": "The page. Default: report.html among the runs.", **_STORE},
    ),
}
