"""The commands: what each is called, its help, its options and the function that does the work.

Imports nothing heavy. `typer_app` makes a program of this table; the module of a command is imported
when the command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedkmeans.cli.options import BUILT_IN, OPTIONS, REQUIRED, SOURCE, TUNING, Option, argument, force, out


@dataclass(frozen=True)
class Command:
    """A row of the table.

    Attributes
    ----------
    name : str
        What to type.
    run : str
        ``module:function`` within `fedkmeans.cli`. The function takes the options as keywords; options
        of one group come as one dict.
    about : str
        The help; paragraphs are separated by empty lines.
    examples : str
        Lines to type.
    options : tuple of str or Option
        Names in the table of options, or options of this command alone.
    needs_flower : bool
        Whether the command needs the extra ``flower``.
    """

    name: str
    run: str
    about: str
    examples: str
    options: tuple[str | Option, ...] = ()
    needs_flower: bool = False

    def rows(self) -> list[Option]:
        """Return all options in the order of the help."""
        return [OPTIONS[option] if isinstance(option, str) else option for option in self.options]

    @property
    def help(self) -> str:
        """The help with the examples."""
        return help_text(self.about, self.examples)


def help_text(about: str, examples: str) -> str:
    """Join a help text; the mark keeps the lines of the examples as they are."""
    return f"{about}\n\n\b\n[bold]Examples[/bold]\n{examples.strip(chr(10))}"


_SOME_DATA = argument("data", list[Path], "DATA", "Files, one a client, or folders of files.", group="source")

START_HELP = help_text(
    "Federated k-means: cluster data that may not be pooled.",
    """
  fedkmeans demo                                  # see it work, in a minute
  fedkmeans inspect hospital.csv                  # what is in a file
  fedkmeans fit north.csv south.csv -k 3          # one file a client
  fedkmeans predict model new.csv --out new.labels.csv
  fedkmeans study run studies/quick.toml          # compare algorithms
  fedkmeans federation new DIR --host H --site A  # rows that stay elsewhere
""",
)

_DEMO = Command(
    "demo",
    "study:show_demo",
    "Compare the algorithms on the synthetic data of the paper, with pictures; needs no data.",
    """
  fedkmeans demo
  fedkmeans demo --out pictures --seed 1
  fedkmeans demo --quick     # few rounds: sooner, not the paper's figures
""",
    (
        out("FOLDER", "Folder for the table and the pictures.", Path("fedkmeans-demo")),
        Option("seed", int, "Same seed, same result.", "N", 0),
        Option("n_jobs", int, "Processes; -1: one a core.", "N", -1),
        Option("quick", bool, "Stop all runs after 100 rounds.", default=False),
    ),
)

_FIT = Command(
    "fit",
    "fit:run_fit",
    "Cluster the rows of several clients and save the model.\n\n"
    "Each client is a file; only centroids and their weights pass between clients and server. An option"
    " that does not belong to the chosen algorithm is refused.\n\n"
    "The default, last-word, aims at what k-means on the pooled rows finds, also when few clients are asked "
    "in a round. dwf, ewf and wf are the paper's, with its settings.",
    """
  fedkmeans fit north.csv south.csv -k 3 --label diagnosis
  fedkmeans fit all.csv -k 3 --client-column hospital --missing drop-rows
  fedkmeans fit clients/ -k 5 --clients-per-round 10    # ten take turns
  fedkmeans fit clients/ -k 5 --algorithm dwf           # as in the paper
  fedkmeans fit --dataset synthetic --distribution non-iid -k 5
  fedkmeans fit clients/ -k 5 --out clusters.safetensors    # one file
""",
    (
        "k",
        argument(
            "data",
            list[Path],
            "DATA",
            "Files, one a client, or folders of such files: .csv .tsv .txt .data .parquet .feather .arrow "
            ".npy .npz, or LEAF .json.",
            None,
            group="source",
        ),
        "algorithm",
        out("PATH", "Folder for the model, or one file: NAME.safetensors.", Path("model")),
        force("model"),
        "seed",
        "quiet",
        *SOURCE,
        *BUILT_IN,
        *TUNING,
    ),
)

_PREDICT = Command(
    "predict",
    "saved_model:run_predict",
    "Write beside each row the cluster that it belongs to.\n\n"
    "Columns are found by name, in any order. One data file gives one file; several, or a folder, give "
    "a new folder with a file for each. Rows left out with --missing drop-rows get no label.",
    """
  fedkmeans predict model new.csv --out labelled.csv
  fedkmeans predict model new.csv --out labelled.parquet --column group
  fedkmeans predict model clients/ --out labelled/ --missing drop-rows
""",
    (
        "model",
        _SOME_DATA,
        out("PATH", "A file (.csv .tsv .parquet .feather .arrow, or .npy for labels only), or a new folder."),
        Option("column", str, "Name of the added column.", "NAME", "cluster"),
        "missing",
        "header",
        force("file"),
    ),
)

_EVALUATE = Command(
    "evaluate",
    "saved_model:run_evaluate",
    "Say how well a model fits data: the score, by client and over all rows.\n\n"
    "The score is the mean squared distance of rows to their nearest centroid; less is better. Per "
    "sample: the mean over all rows. Per client: the mean of the clients' scores, a small client counting "
    "as much as a large one. With true labels also accuracy, v-measure, homogeneity, completeness and the "
    "adjusted Rand index.",
    """
  fedkmeans evaluate model north.csv south.csv
  fedkmeans evaluate model clients/ --label diagnosis
  fedkmeans evaluate model all.csv --client-column hospital --json
""",
    ("model", _SOME_DATA, "label", "client_column", "missing", "header", "json"),
)

_REPORT = Command(
    "report",
    "saved_model:write_page",
    "Write a page about a model: how its rounds went, who took part, the centroids.\n\n"
    "It is one file, loads nothing and runs no script.",
    """
  fedkmeans report model
  fedkmeans report model --out spring.html --title "Spring campaign"
""",
    (
        "model",
        out("FILE", "The page.", Path("report.html")),
        Option("title", str, "Its heading. Default: the name of the model.", "TEXT"),
        force("file"),
    ),
)

_PARTITION = Command(
    "partition",
    "partition:run_partition",
    "Deal the rows of one data set out to clients, one file each, to try federated clustering.\n\n"
    "iid: at random. half-iid: half at random, half by cluster. clustered (or non-iid): a cluster each."
    " label-mix: a share --p of one class each. dirichlet: uneven classes, --alpha. by-column: as a "
    "column says.",
    """
  fedkmeans partition --dataset digits --how dirichlet --alpha 0.3 \\
      --n-clients 20 --out clients
  fedkmeans partition all.csv --how clustered --n-clients 5 --out clients
  fedkmeans partition all.csv --how by-column --column hospital --out clients
""",
    (
        Option("how", str, "One of the ways named above.", "HOW", REQUIRED),
        out("FOLDER", "A new folder for the files."),
        argument("data", Path, "DATA", "One data file.", None, group="source"),
        Option("n_clients", int, "Clients; needed but for by-column.", "N"),
        Option("column", str, "For by-column: the column that names the client.", "NAME"),
        "p",
        "alpha",
        Option("seed", int, "Same seed, same clients.", "N", 0),
        Option("format", str, "Of the files; npz keeps no column names.", "csv|parquet|npz", "csv"),
        *(name for name in SOURCE if name != "client_column"),
        "dataset",
    ),
)

_INSPECT = Command(
    "inspect",
    "inspect:run_inspect",
    "Show what is in a model, or in data files and what fit would say to them.\n\n"
    "The options say how fit will be told to read the data.",
    """
  fedkmeans inspect model
  fedkmeans inspect clusters.safetensors --json
  fedkmeans inspect hospital.csv --label diagnosis
  fedkmeans inspect clients/
""",
    (argument("path", Path, "PATH", "A model, a data file or a folder."), *SOURCE, "json"),
)

COMMANDS = (_DEMO, _FIT, _PREDICT, _EVALUATE, _REPORT, _PARTITION, _INSPECT)
