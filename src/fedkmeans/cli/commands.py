"""What can be typed: the commands with their options and help. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkmeans.cli import federation_commands, study_commands
from fedkmeans.cli import options as opt
from fedkmeans.cli.group import Command, Group, with_examples
from fedkmeans.cli.source import BuiltIn, source_of

app = typer.Typer(
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would show rows of somebody's data.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study_commands.app, name="study")
app.add_typer(federation_commands.federation, name="federation")
app.add_typer(federation_commands.site, name="site")


def _version(wanted: bool) -> None:
    if wanted:
        from fedkmeans import __version__

        typer.echo(f"fedkmeans {__version__}")
        raise typer.Exit


_START_HELP = with_examples(
    "Federated k-means: cluster data that may not be pooled.",
    examples="""
  fedkmeans demo                                  # see it work, in a minute
  fedkmeans inspect hospital.csv                  # what is in a file
  fedkmeans fit north.csv south.csv -k 3          # one file a client
  fedkmeans predict model new.csv --out new.labels.csv
  fedkmeans study run studies/quick.toml          # compare algorithms
  fedkmeans federation new DIR --host H --site A  # rows that stay elsewhere
""",
)


@app.callback(help=_START_HELP)
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", hidden=True)] = False,
) -> None:
    """Take the options that stand before the command."""


_DEMO_HELP = with_examples(
    "Compare the algorithms on the synthetic data of the paper, with pictures; needs no data.",
    examples="""
  fedkmeans demo
  fedkmeans demo --out pictures --seed 1
  fedkmeans demo --quick     # few rounds: sooner, not the paper's figures
""",
)


@app.command(cls=Command, help=_DEMO_HELP)
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the table and the pictures.")
    ] = Path("fedkmeans-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same result.")] = 0,
    n_jobs: Annotated[int, typer.Option(metavar="N", help="Processes; -1: one a core.")] = -1,
    quick: Annotated[bool, typer.Option("--quick", help="Stop all runs after 100 rounds.")] = False,
) -> None:
    """Collect the options and show."""
    from fedkmeans.cli.demo import show_demo

    show_demo(out, seed, n_jobs, quick)


_FIT_HELP = with_examples(
    "Cluster the rows of several clients and save the model.",
    "Each client is a file; only centroids and their weights pass between clients and server. An option"
    " that does not belong to the chosen algorithm is refused.",
    "The default, last-word, aims at what k-means on the pooled rows finds, also when few clients are asked "
    "in a round. dwf, ewf and wf are the paper's, with its settings.",
    examples="""
  fedkmeans fit north.csv south.csv -k 3 --label diagnosis
  fedkmeans fit all.csv -k 3 --client-column hospital --missing drop-rows
  fedkmeans fit clients/ -k 5 --clients-per-round 10    # ten take turns
  fedkmeans fit clients/ -k 5 --algorithm dwf           # as in the paper
  fedkmeans fit --dataset synthetic --distribution non-iid -k 5
  fedkmeans fit clients/ -k 5 --out clusters.safetensors    # one file
""",
)


@app.command(cls=Command, help=_FIT_HELP)
def fit(
    ctx: typer.Context,
    k: opt.K,
    data: opt.Data = None,
    algorithm: opt.AlgorithmName = "last-word",
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="PATH", help="Folder for the model, or one file: NAME.safetensors."
        ),
    ] = Path("model"),
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a model that is there.")] = False,
    seed: opt.Seed = None,
    quiet: opt.Quiet = False,
    label: opt.Label = None,
    client_column: opt.ClientColumn = None,
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    missing: opt.Missing = "error",
    header: opt.Header = None,
    dataset: opt.DatasetName = None,
    distribution: opt.Distribution = None,
    n_clients: opt.NClients = None,
    p: opt.P = None,
    alpha: opt.Alpha = None,
    init: opt.Init = None,
    n_init: opt.NInit = None,
    weighting: opt.Weighting = None,
    memory: opt.Memory = None,
    learning_rate: opt.LearningRate = None,
    momentum: opt.Momentum = None,
    empty_clusters: opt.EmptyClusters = None,
    n_local_clusters: opt.NLocalClusters = None,
    n_init_local: opt.NInitLocal = None,
    clients_per_round: opt.ClientsPerRound = None,
    participation: opt.Participation = None,
    max_local: opt.MaxLocal = None,
    tol: opt.Tol = None,
    tol_local: opt.TolLocal = None,
    tol_score: opt.TolScore = None,
    patience: opt.Patience = None,
    min_rounds: opt.MinRounds = None,
    max_rounds: opt.MaxRounds = None,
    max_iter: opt.MaxIter = None,
    score_every: opt.ScoreEvery = None,
    n_jobs: opt.NJobs = None,
    kernel: opt.Kernel = None,
) -> None:
    """Collect the options and fit."""
    from fedkmeans.cli.fit import FitRequest, run_fit

    source = source_of(data, label, client_column, columns, drop, missing, header)
    built_in = _built_in(dataset, distribution, n_clients, p, alpha)
    tuning = {name: ctx.params[name] for name in opt.TUNING if ctx.params[name] is not None}
    run_fit(FitRequest(source, built_in, algorithm, k, tuning, seed, out, force), quiet)


_PREDICT_HELP = with_examples(
    "Write beside each row the cluster that it belongs to.",
    "Columns are found by name, in any order. One data file gives one file; several, or a folder, give "
    "a new folder with a file for each. Rows left out with --missing drop-rows get no label.",
    examples="""
  fedkmeans predict model new.csv --out labelled.csv
  fedkmeans predict model new.csv --out labelled.parquet --column group
  fedkmeans predict model clients/ --out labelled/ --missing drop-rows
""",
)


@app.command(cls=Command, help=_PREDICT_HELP)
def predict(
    model: opt.ModelPath,
    data: opt.SomeData,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            show_default=False,
            help="A file (.csv .tsv .parquet .feather .arrow, or .npy for labels only), or a new folder.",
        ),
    ],
    column: Annotated[str, typer.Option(metavar="NAME", help="Name of the added column.")] = "cluster",
    missing: opt.Missing = "error",
    header: opt.Header = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there.")] = False,
) -> None:
    """Collect the options and predict."""
    from fedkmeans.cli.predict import run_predict

    run_predict(model, source_of(data, missing=missing, header=header), out, column, force)


_EVALUATE_HELP = with_examples(
    "Say how well a model fits data: the score, by client and over all rows.",
    "The score is the mean squared distance of rows to their nearest centroid; less is better. Per "
    "sample: the mean over all rows. Per client: the mean of the clients' scores, a small client counting "
    "as much as a large one. With true labels also accuracy, v-measure, homogeneity, completeness and the "
    "adjusted Rand index.",
    examples="""
  fedkmeans evaluate model north.csv south.csv
  fedkmeans evaluate model clients/ --label diagnosis
  fedkmeans evaluate model all.csv --client-column hospital --json
""",
)


@app.command(cls=Command, help=_EVALUATE_HELP)
def evaluate(
    model: opt.ModelPath,
    data: opt.SomeData,
    label: opt.Label = None,
    client_column: opt.ClientColumn = None,
    missing: opt.Missing = "error",
    header: opt.Header = None,
    json: opt.Json = False,
) -> None:
    """Collect the options and evaluate."""
    from fedkmeans.cli.evaluate import run_evaluate

    run_evaluate(model, source_of(data, label, client_column, missing=missing, header=header), json)


_REPORT_HELP = with_examples(
    "Write a page about a model: how its rounds went, who took part, the centroids.",
    "It is one file, loads nothing and runs no script.",
    examples="""
  fedkmeans report model
  fedkmeans report model --out spring.html --title "Spring campaign"
""",
)


@app.command(cls=Command, help=_REPORT_HELP)
def report(
    model: opt.ModelPath,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[
        str | None, opt.optional(metavar="TEXT", help="Its heading. Default: the name of the model.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there.")] = False,
) -> None:
    """Collect the options and write."""
    from fedkmeans.cli.report import write_page

    write_page(model, out, title, force)


_PARTITION_HELP = with_examples(
    "Deal the rows of one data set out to clients, one file each, to try federated clustering.",
    "iid: at random. half-iid: half at random, half by cluster. clustered (or non-iid): a cluster each."
    " label-mix: a share --p of one class each. dirichlet: uneven classes, --alpha. by-column: as a "
    "column says.",
    examples="""
  fedkmeans partition --dataset digits --how dirichlet --alpha 0.3 \\
      --n-clients 20 --out clients
  fedkmeans partition all.csv --how clustered --n-clients 5 --out clients
  fedkmeans partition all.csv --how by-column --column hospital --out clients
""",
)


@app.command(cls=Command, help=_PARTITION_HELP)
def partition(
    how: Annotated[str, typer.Option(metavar="HOW", show_default=False, help="One of the ways named above.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", show_default=False, help="A new folder for the files."),
    ],
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", show_default=False, help="One data file.")
    ] = None,
    n_clients: Annotated[
        int | None, opt.optional(metavar="N", help="Clients; needed but for by-column.")
    ] = None,
    column: Annotated[
        str | None, opt.optional(metavar="NAME", help="For by-column: the column that names the client.")
    ] = None,
    p: opt.P = None,
    alpha: opt.Alpha = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same clients.")] = 0,
    format_: Annotated[
        str,
        typer.Option("--format", metavar="csv|parquet|npz", help="Of the files; npz keeps no column names."),
    ] = "csv",
    label: opt.Label = None,
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    missing: opt.Missing = "error",
    header: opt.Header = None,
    dataset: opt.DatasetName = None,
) -> None:
    """Collect the options and deal out."""
    from fedkmeans.cli.partition import Deal, run_partition

    source = source_of([] if data is None else [data], label, column, columns, drop, missing, header)
    extra = _given(p=p, alpha=alpha)
    run_partition(source, dataset, Deal(how, n_clients, extra, seed, format_), out)


_INSPECT_HELP = with_examples(
    "Show what is in a model, or in data files and what fit would say to them.",
    "The options say how fit will be told to read the data.",
    examples="""
  fedkmeans inspect model
  fedkmeans inspect clusters.safetensors --json
  fedkmeans inspect hospital.csv --label diagnosis
  fedkmeans inspect clients/
""",
)


@app.command(cls=Command, help=_INSPECT_HELP)
def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", show_default=False, help="A model, a data file or a folder.")
    ],
    label: opt.Label = None,
    client_column: opt.ClientColumn = None,
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    missing: opt.Missing = "error",
    header: opt.Header = None,
    json: opt.Json = False,
) -> None:
    """Show what is there."""
    from fedkmeans.cli.inspect import run_inspect

    run_inspect(source_of([path], label, client_column, columns, drop, missing, header), json)


def _given(**values: float | None) -> tuple[tuple[str, float], ...]:
    return tuple((name, value) for name, value in values.items() if value is not None)


def _built_in(
    dataset: str | None, how: str | None, n_clients: int | None, p: float | None, alpha: float | None
) -> BuiltIn | None:
    extra = _given(p=p, alpha=alpha)
    if dataset is None:
        stray = ["distribution"] * (how is not None) + ["n-clients"] * (n_clients is not None)
        for option in stray + [name for name, _ in extra]:
            raise typer.BadParameter("only --dataset is dealt out to clients.", param_hint=f"--{option}")
        return None
    return BuiltIn(dataset, how, n_clients, extra)
