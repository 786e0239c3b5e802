"""What can be typed after ``fedkmeans federation`` and ``fedkmeans site``. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedkmeans.cli import options as opt
from fedkmeans.cli.extra import need_flower
from fedkmeans.cli.group import Command, SubGroup, with_examples
from fedkmeans.cli.process import WRONG_INPUT
from fedkmeans.cli.source import source_of

federation = typer.Typer(cls=SubGroup, invoke_without_command=True, rich_markup_mode="rich")
site = typer.Typer(cls=SubGroup, invoke_without_command=True, rich_markup_mode="rich")

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", show_default=False, help="The federation's folder on the server.")
]

Sites = Annotated[
    list[str], typer.Option("--site", metavar="NAME", show_default=False, help="A site; may be repeated.")
]
PublicKeys = Annotated[
    list[str] | None,
    opt.optional(metavar="SITE=FILE", help="Public key of a site that keeps its private one."),
]

_FEDERATION_HELP = with_examples(
    "Cluster rows that stay at several organisations: the server's side.",
    "It runs on Flower and needs the extra: pip install 'fedkmeans\\[flower]'.",
    examples="""
  fedkmeans federation new hospitals --host fed.example.org \\
      --site north --site south --site west
  fedkmeans federation serve hospitals       # leave it running
  fedkmeans federation status hospitals      # who is connected
  fedkmeans federation run hospitals -k 4    # the model is in hospitals/runs
""",
)
_SITE_HELP = with_examples(
    "Cluster rows that stay at several organisations: a site's side.",
    examples="""
  fedkmeans site join north.toml --data patients.csv    # leave it running
""",
)


def _show_help(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), nl=False)
        raise typer.Exit(WRONG_INPUT)


@federation.callback(help=_FEDERATION_HELP)
def start_federation(ctx: typer.Context) -> None:
    """Take no options of its own; alone, it shows its help."""
    _show_help(ctx)


@site.callback(help=_SITE_HELP)
def start_site(ctx: typer.Context) -> None:
    """Take no options of its own; alone, it shows its help."""
    _show_help(ctx)


_NEW_HELP = with_examples(
    "Make a federation: certificates, settings, and a join file for each site.",
    "A join file holds the site's private key: hand it over safely, then delete it here. A site that wants "
    "its key to be known to nobody else makes one itself (ssh-keygen -t ecdsa -b 384) and sends the public "
    "half for --public-key.",
    examples="""
  fedkmeans federation new hospitals --host fed.example.org \\
      --site north --site south
  fedkmeans federation new hospitals --host fed.example.org --site north \\
      --columns age,bmi,glucose      # what every site must have
  fedkmeans federation new banks --host 10.0.0.7 --port 443 \\
      --site a --site b --public-key b=b.pub
""",
)


@federation.command(cls=Command, help=_NEW_HELP)
def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="A new folder.")],
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST", show_default=False, help="Name or address by which sites reach the server."
        ),
    ],
    sites: Sites,
    name: Annotated[
        str | None, opt.optional(metavar="NAME", help="Of the federation. Default: that of the folder.")
    ] = None,
    columns: Annotated[
        list[str] | None, opt.optional(metavar="NAMES", help="Columns that sites must have, in this order.")
    ] = None,
    port: Annotated[int, typer.Option(metavar="N", help="Where sites connect.")] = 9443,
    internal_port: Annotated[int, typer.Option(metavar="N", help="For this machine only.")] = 9444,
    public_key: PublicKeys = None,
) -> None:
    """Collect the options and make it."""
    need_flower()
    from fedkmeans.cli.federation import make_federation

    make_federation(folder, name, host, sites, columns or [], port, internal_port, public_key or [])


_SERVE_HELP = with_examples(
    "Run the server: Flower's SuperLink and executor, and the gate that sites connect to.",
    "Only --port need be open to sites; they can join and answer, and nothing else. Started again, "
    "it goes on "
    "where it was.",
    examples="""
  fedkmeans federation serve hospitals
  fedkmeans federation serve hospitals --listen 127.0.0.1   # only here
""",
)


@federation.command(cls=Command, help=_SERVE_HELP)
def serve(
    folder: Folder,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address that sites may come to.")
    ] = "0.0.0.0",
) -> None:
    """Collect the options and serve."""
    need_flower()
    from fedkmeans.cli.federation import serve_federation

    serve_federation(folder, listen)


_RUN_HELP = with_examples(
    "Cluster the rows of all sites; the model goes to DIR/runs/NAME/model.",
    "Each round is written down before the next one, so a run that was cut off goes on with --resume. Ctrl-C "
    "ends a run after its round, and the best centroids so far are the model.",
    examples="""
  fedkmeans federation run hospitals -k 4
  fedkmeans federation run hospitals -k 4 --name spring --max-rounds 30
  fedkmeans federation run hospitals -k 4 --name spring --resume
  fedkmeans federation run hospitals -k 4 --min-answers 3 --timeout 120
""",
)


@federation.command(cls=Command, help=_RUN_HELP)
def run(
    ctx: typer.Context,
    folder: Folder,
    k: opt.K,
    algorithm: opt.AlgorithmName = "last-word",
    seed: opt.Seed = None,
    name: Annotated[
        str | None, opt.optional(metavar="NAME", help="Of the run. Default: the date and time.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that --name.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds to wait for answers in a round.")
    ] = 600.0,
    min_answers: Annotated[int, typer.Option(metavar="N", help="Answers that a round must have.")] = 1,
    wait: Annotated[
        float, typer.Option(metavar="S", help="Seconds after which too few answers end the run.")
    ] = 3600.0,
    cool_down: Annotated[
        float, typer.Option(metavar="S", help="Seconds not to ask a site that did not answer in time.")
    ] = 60.0,
    quiet: opt.Quiet = False,
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
) -> None:
    """Collect the options and run."""
    need_flower()
    from fedkmeans.cli.federation_run import RunRequest, run_on_federation

    tuning = {key: ctx.params[key] for key in opt.TUNING if key in ctx.params and ctx.params[key] is not None}
    waiting = {"timeout": timeout, "min_answers": min_answers, "wait": wait, "cool_down": cool_down}
    run_on_federation(RunRequest(folder, name, resume, k, algorithm, seed, tuning, waiting), quiet)


_STATUS_HELP = with_examples(
    "Say which sites are connected, and how the runs stand.",
    examples="""
  fedkmeans federation status hospitals
  fedkmeans federation status hospitals --json
""",
)


@federation.command(cls=Command, help=_STATUS_HELP)
def status(folder: Folder, json: opt.Json = False) -> None:
    """Collect the options and tell."""
    need_flower()
    from fedkmeans.cli.federation import tell_status

    tell_status(folder, json)


_ADD_HELP = with_examples(
    "Add sites to a federation: a join file for each. Runs that are under way go on without them.",
    examples="""
  fedkmeans federation add hospitals --site east
  fedkmeans federation add hospitals --site east --public-key east=east.pub
""",
)


@federation.command(cls=Command, help=_ADD_HELP)
def add(folder: Folder, sites: Sites, public_key: PublicKeys = None) -> None:
    """Collect the options and add."""
    need_flower()
    from fedkmeans.cli.federation import add_to_federation

    add_to_federation(folder, sites, public_key or [])


_REMOVE_HELP = with_examples(
    "Remove a site: its key is taken back, and it is cut off at once. Needs the server to be running.",
    examples="\n  fedkmeans federation remove hospitals --site east\n",
)


@federation.command(cls=Command, help=_REMOVE_HELP)
def remove(
    folder: Folder,
    site: Annotated[str, typer.Option(metavar="NAME", show_default=False, help="The site.")],
) -> None:
    """Collect the options and remove."""
    need_flower()
    from fedkmeans.cli.federation import remove_from_federation

    remove_from_federation(folder, site)


_RENEW_HELP = with_examples(
    "Make a new certificate for the server; sites need not do anything. Start the server again afterwards.",
    examples="\n  fedkmeans federation renew hospitals\n",
)


@federation.command(cls=Command, help=_RENEW_HELP)
def renew(
    folder: Folder,
    days: Annotated[float, typer.Option(metavar="N", help="For how long it is good.")] = 365,
) -> None:
    """Collect the options and renew."""
    need_flower()
    from fedkmeans.cli.federation import renew_certificate

    renew_certificate(folder, days)


_JOIN_HELP = with_examples(
    "Let a site take part: check its rows, connect, and answer questions about them.",
    "The rows stay here. The server learns how many there are, the columns' names, and what each "
    "question asks "
    "for: local centroids with their weights, and scores.",
    examples="""
  fedkmeans site join north.toml --data patients.csv
  fedkmeans site join north.toml --data patients.csv --label diagnosis --check
  fedkmeans site join north.toml --data patients.parquet --key north-key
""",
)


@site.command(cls=Command, help=_JOIN_HELP)
def join(
    join_file: Annotated[
        Path, typer.Argument(metavar="JOINFILE", show_default=False, help="From who runs the federation.")
    ],
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", show_default=False, help="The site's rows.")
    ],
    folder: Annotated[
        Path | None,
        opt.optional(
            metavar="DIR", help="What is kept between questions. Default: JOINFILE without its suffix."
        ),
    ] = None,
    key: Annotated[
        Path | None, opt.optional(metavar="FILE", help="The site's own private key, if it made one.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only look whether all is well.")] = False,
    min_cluster_size: Annotated[
        int, typer.Option(metavar="N", help="Rows that stand behind each point sent for a start.")
    ] = 2,
    port: Annotated[int, typer.Option(metavar="N", help="For this machine only.")] = 9445,
    label: opt.Label = None,
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    missing: opt.Missing = "error",
    header: opt.Header = None,
) -> None:
    """Collect the options and join."""
    need_flower()
    from fedkmeans.cli.site import Joining, join_federation

    source = source_of([data], label, None, columns, drop, missing, header)
    join_federation(Joining(join_file, source, folder, key, check, min_cluster_size, port))
