"""The commands: what each is called, its help, its options and the function that does the work.

Imports nothing heavy. `typer_app` makes a program of this table; the module of a command is imported
when the command runs.
"""

import inspect
from collections.abc import Mapping
from textwrap import dedent, indent
from typing import NamedTuple

from fedkmeans.cli.options import BUILT_IN, SOURCE, TUNING, Option, shared


class Command(NamedTuple):
    """A row of the table.

    `run` is ``module:function`` within `fedkmeans.cli`; the function takes the options as keywords, and
    those of one group as one dict. `help` has paragraphs and indented examples. `options` has, in the order
    of the help, how each is typed with its help, or a row of the table of options.
    """

    run: str
    help: str
    options: Mapping[str, str | Option]


def help_text(text: str) -> str:
    """Join the lines of each paragraph; the mark keeps the lines of the examples as they are."""
    *paragraphs, examples = inspect.cleandoc(text).split("\n\n")
    about = (paragraph.replace("\n", " ") for paragraph in paragraphs)
    return "\n\n".join([*about, f"\b\n[bold]Examples[/bold]\n{indent(dedent(examples), '  ')}"])


_SOME_DATA = {"DATA...": "Files, one a client, or folders of files."}

START_HELP = """Federated k-means: cluster data that may not be pooled.

  fedkmeans demo                                  # see it work, in a minute
  fedkmeans inspect hospital.csv                  # what is in a file
  fedkmeans fit north.csv south.csv -k 3          # one file a client
  fedkmeans predict model new.csv --out new.labels.csv
  fedkmeans study run studies/quick.toml          # compare algorithms
  fedkmeans federation new DIR --host H --site A  # rows that stay elsewhere"""

COMMANDS = {
    "demo": Command(
        "study:show_demo",
        """Compare the algorithms on the synthetic data of the paper, with pictures; needs no data.

          fedkmeans demo
          fedkmeans demo --out pictures --seed 1
          fedkmeans demo --quick     # few rounds: sooner, not the paper's figures""",
        {
            "--out -o FOLDER = fedkmeans-demo": "Folder for the table and the pictures.",
            "--seed N = 0": "Same seed, same result.",
            "--n-jobs N = -1": "Processes; -1: one a core.",
            "--quick": "Stop all runs after 100 rounds.",
        },
    ),
    "fit": Command(
        "fit:run_fit",
        """Cluster the rows of several clients and save the model.

        Each client is a file; only centroids and their weights pass between clients and server. An option
        that does not belong to the chosen algorithm is refused.

        The default, last-word, aims at what k-means on the pooled rows finds, also when few clients are asked
        in a round. dwf, ewf and wf are the paper's, with its settings.

          fedkmeans fit north.csv south.csv -k 3 --label diagnosis
          fedkmeans fit all.csv -k 3 --client-column hospital --missing drop-rows
          fedkmeans fit clients/ -k 5 --clients-per-round 10    # ten take turns
          fedkmeans fit clients/ -k 5 --algorithm dwf           # as in the paper
          fedkmeans fit --dataset synthetic --distribution non-iid -k 5
          fedkmeans fit clients/ -k 5 --out clusters.safetensors    # one file""",
        {
            **shared("k"),
            "DATA... = none": "Files, one a client, or folders of such files: .csv .tsv .txt .data .parquet "
            ".feather .arrow .npy .npz, or LEAF .json.",
            **shared("algorithm"),
            "--out -o PATH = model": "Folder for the model, or one file: NAME.safetensors.",
            "--force -f": "Replace a model that is there.",
            **shared("seed", "quiet", *SOURCE, *BUILT_IN, *TUNING),
        },
    ),
    "predict": Command(
        "saved_model:run_predict",
        """Write beside each row the cluster that it belongs to.

        Columns are found by name, in any order. One data file gives one file; several, or a folder, give
        a new folder with a file for each. Rows left out with --missing drop-rows get no label.

          fedkmeans predict model new.csv --out labelled.csv
          fedkmeans predict model new.csv --out labelled.parquet --column group
          fedkmeans predict model clients/ --out labelled/ --missing drop-rows""",
        {
            **shared("model"),
            **_SOME_DATA,
            "--out -o PATH = required": "A file (.csv .tsv .parquet .feather .arrow, or .npy for labels "
            "only), or a new folder.",
            "--column NAME = cluster": "Name of the added column.",
            **shared("missing", "header"),
            "--force -f": "Replace a file that is there.",
        },
    ),
    "evaluate": Command(
        "saved_model:run_evaluate",
        """Say how well a model fits data: the score, by client and over all rows.

        The score is the mean squared distance of rows to their nearest centroid; less is better. Per
        sample: the mean over all rows. Per client: the mean of the clients' scores, a small client counting
        as much as a large one. With true labels also accuracy, v-measure, homogeneity, completeness and the
        adjusted Rand index.

          fedkmeans evaluate model north.csv south.csv
          fedkmeans evaluate model clients/ --label diagnosis
          fedkmeans evaluate model all.csv --client-column hospital --json""",
        {**shared("model"), **_SOME_DATA, **shared("label", "client_column", "missing", "header", "json")},
    ),
    "report": Command(
        "saved_model:write_page",
        """Write a page about a model: how its rounds went, who took part, the centroids.

        It is one file, loads nothing and runs no script.

          fedkmeans report model
          fedkmeans report model --out spring.html --title "Spring campaign"
        """,
        {
            **shared("model"),
            "--out -o FILE = report.html": "The page.",
            "--title TEXT": "Its heading. Default: the name of the model.",
            "--force -f": "Replace a file that is there.",
        },
    ),
    "partition": Command(
        "partition:run_partition",
        """Deal the rows of one data set out to clients, one file each, to try federated clustering.

        iid: at random. half-iid: half at random, half by cluster. clustered (or non-iid): a cluster each.
        label-mix: a share --p of one class each. dirichlet: uneven classes, --alpha. by-column: as a
        column says.

          fedkmeans partition --dataset digits --how dirichlet --alpha 0.3 \\
              --n-clients 20 --out clients
          fedkmeans partition all.csv --how clustered --n-clients 5 --out clients
          fedkmeans partition all.csv --how by-column --column hospital --out clients""",
        {
            "--how HOW = required": "One of the ways named above.",
            "--out -o FOLDER = required": "A new folder for the files.",
            "DATA = none": "One data file.",
            "--n-clients N": "Clients; needed but for by-column.",
            "--column NAME": "For by-column: the column that names the client.",
            **shared("p", "alpha"),
            "--seed N = 0": "Same seed, same clients.",
            "--format csv|parquet|npz = csv": "Of the files; npz keeps no column names.",
            **shared(*(name for name in SOURCE if name != "client_column"), "dataset"),
        },
    ),
    "inspect": Command(
        "inspect:run_inspect",
        """Show what is in a model, or in data files and what fit would say to them.

        The options say how fit will be told to read the data.

          fedkmeans inspect model
          fedkmeans inspect clusters.safetensors --json
          fedkmeans inspect hospital.csv --label diagnosis
          fedkmeans inspect clients/""",
        {"PATH": "A model, a data file or a folder.", **shared(*SOURCE, "json")},
    ),
}

_PLAN = {"PLAN": "The study's plan, a TOML file."}
_STORE = {"--store FOLDER": "Where its runs are kept. Default: fedkmeans-studies/NAME."}

STUDY_HELP = """Compare algorithms: many runs from one plan, stopped and resumed at will, as tables, figures,
a page.

  fedkmeans study run studies/quick.toml               # two minutes
  fedkmeans study table studies/quick.toml
  fedkmeans study report studies/quick.toml            # a page to open"""

STUDY_COMMANDS = {
    "run": Command(
        "study:run_plan",
        """Carry out the runs of a plan that are not done yet.

        Each finished run is kept at once. Stop at any time, with Ctrl-C or otherwise; the same command goes
        on where it was.

          fedkmeans study run studies/quick.toml
          fedkmeans study run studies/paper-mnist.toml --runs 20 --clients 100
          fedkmeans study run plan.toml --only algorithm=dwf,ewf --only data=mnist
          fedkmeans study run plan.toml --scheduler tcp://node1:8786      # Dask""",
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

          fedkmeans study status studies/quick.toml""",
        {**_PLAN, **_STORE},
    ),
    "export": Command(
        "study:export_runs",
        """Write all finished runs to a CSV file, one row a run, for other programs; .csv.gz to compress it.

          fedkmeans study export studies/quick.toml --out quick.csv""",
        {**_PLAN, "--out -o FILE = required": "The CSV file.", **_STORE},
    ),
    "table": Command(
        "study:show_table",
        """Lay out the results as in the paper's tables, with the paper's own values beside them.

        Mean, best and standard deviation of the runs. Where the paper has the same cell: its values, the
        difference in its standard deviations, and in those of the means' difference.

          fedkmeans study table studies/quick.toml
          fedkmeans study table studies/paper-mnist.toml --metric accuracy --best 0.5
          fedkmeans study table studies/paper-mnist.toml --format latex -o mnist.tex""",
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
          fedkmeans study figure studies/quick.toml --convergence --out rounds.png""",
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

          fedkmeans study report studies/quick.toml --out quick.html""",
        {**_PLAN, "--out -o FILE": "The page. Default: report.html among the runs.", **_STORE},
    ),
}
