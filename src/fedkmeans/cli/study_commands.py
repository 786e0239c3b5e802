"""What can be typed after ``fedkmeans study``. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedkmeans.cli import console
from fedkmeans.cli import options as opt
from fedkmeans.cli.group import Command, SubGroup, with_examples
from fedkmeans.cli.process import WRONG_INPUT
from fedkmeans.errors import StudyError


class StudyGroup(SubGroup):
    """The commands on studies; what their errors name stands in a plan, and is no option of a command."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; of an error nothing is turned into options."""
        try:
            return super().invoke(ctx)
        except StudyError as error:
            if ctx.find_root().params.get("debug"):
                raise
            console.error(str(error))
            raise typer.Exit(WRONG_INPUT) from None


app = typer.Typer(cls=StudyGroup, invoke_without_command=True, rich_markup_mode="rich")

PlanPath = Annotated[
    Path, typer.Argument(metavar="PLAN", show_default=False, help="The study's plan, a TOML file.")
]
StorePath = Annotated[
    Path | None,
    opt.optional(
        "--store", metavar="FOLDER", help="Where its runs are kept. Default: fedkmeans-studies/NAME."
    ),
]
Only = Annotated[
    list[str] | None,
    opt.optional(
        metavar="KEY=NAMES",
        help="Only some: data=, distribution= or algorithm= with names, a,b. May be repeated.",
    ),
]
Runs = Annotated[int | None, opt.optional(metavar="N", help="So many runs of each, rather than the plan's.")]
Clients = Annotated[str | None, opt.optional(metavar="N,N", help="Only these numbers of clients per round.")]
Metric = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="score, accuracy, v_measure, homogeneity, completeness, excess or rounds_to_within.",
    ),
]
Out = Annotated[
    Path | None, opt.optional("--out", "-o", metavar="FILE", help="Write it there; a file there is replaced.")
]

_HELP = with_examples(
    "Compare algorithms: many runs from one plan, stopped and resumed at will, as tables, figures, a page.",
    examples="""
  fedkmeans study run studies/quick.toml               # two minutes
  fedkmeans study table studies/quick.toml
  fedkmeans study report studies/quick.toml            # a page to open
""",
)


@app.callback(help=_HELP)
def start(ctx: typer.Context) -> None:
    """Take no options of its own; alone, it shows its help."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), nl=False)
        raise typer.Exit(WRONG_INPUT)


_RUN_HELP = with_examples(
    "Carry out the runs of a plan that are not done yet.",
    "Each finished run is kept at once. Stop at any time, with Ctrl-C or otherwise; the same command goes on "
    "where it was.",
    examples="""
  fedkmeans study run studies/quick.toml
  fedkmeans study run studies/paper-mnist.toml --runs 20 --clients 100
  fedkmeans study run plan.toml --only algorithm=dwf,ewf --only data=mnist
  fedkmeans study run plan.toml --scheduler tcp://node1:8786      # Dask
""",
)


@app.command(cls=Command, help=_RUN_HELP)
def run(
    plan: PlanPath,
    store: StorePath = None,
    only: Only = None,
    runs: Runs = None,
    clients: Clients = None,
    n_jobs: Annotated[int, typer.Option(metavar="N", help="Runs at a time; -1: one a core.")] = -1,
    scheduler: Annotated[
        str | None,
        opt.optional(metavar="ADDRESS", help="Run on the Dask cluster with this scheduler instead."),
    ] = None,
    quiet: opt.Quiet = False,
) -> None:
    """Collect the options and run."""
    from fedkmeans.cli.study import run_plan

    run_plan(plan, store, only or [], runs, clients, n_jobs, scheduler, quiet)


_STATUS_HELP = with_examples(
    "Say how many runs of a plan are done.", examples="\n  fedkmeans study status studies/quick.toml\n"
)


@app.command(cls=Command, help=_STATUS_HELP)
def status(plan: PlanPath, store: StorePath = None) -> None:
    """Count and show."""
    from fedkmeans.cli.study import show_status

    show_status(plan, store)


_EXPORT_HELP = with_examples(
    "Write all finished runs to a CSV file, one row a run, for other programs; .csv.gz to compress it.",
    examples="\n  fedkmeans study export studies/quick.toml --out quick.csv\n",
)


@app.command(cls=Command, help=_EXPORT_HELP)
def export(
    plan: PlanPath,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The CSV file.")],
    store: StorePath = None,
) -> None:
    """Write them."""
    from fedkmeans.cli.study import export_runs

    export_runs(plan, store, out)


_TABLE_HELP = with_examples(
    "Lay out the results as in the paper's tables, with the paper's own values beside them.",
    "Mean, best and standard deviation of the runs. Where the paper has the same cell: its values, the "
    "difference in its standard deviations, and in those of the means' difference.",
    examples="""
  fedkmeans study table studies/quick.toml
  fedkmeans study table studies/paper-mnist.toml --metric accuracy --best 0.5
  fedkmeans study table studies/paper-mnist.toml --format latex -o mnist.tex
""",
)


@app.command(cls=Command, help=_TABLE_HELP)
def table(
    plan: PlanPath,
    store: StorePath = None,
    metric: Metric = "score",
    clients: Annotated[
        int | None,
        opt.optional(metavar="N", help="Clients per round. Default: the most there are runs of."),
    ] = None,
    best: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the runs that counts: those of lowest score.")
    ] = 1.0,
    format: Annotated[  # noqa: A002 (the option's name)
        str, typer.Option(metavar="NAME", help="text, markdown, latex or csv.")
    ] = "text",
    rounds: Annotated[
        int | None, opt.optional(metavar="N", help="After so many rounds, rather than at the end.")
    ] = None,
    out: Out = None,
) -> None:
    """Lay it out."""
    from fedkmeans.cli.study import show_table

    show_table(plan, store, metric, clients, best, format, out, rounds)


_FIGURE_HELP = with_examples(
    "Draw a metric against the number of clients per round, as in the paper's figures.",
    "Mean and standard deviation over the best half of the runs, those with the lowest score. Or, with "
    "--convergence, the score against the rounds, for the first runs.",
    examples="""
  fedkmeans study figure studies/quick.toml --out quick.png
  fedkmeans study figure studies/paper-mnist.toml --metric accuracy -o a.pdf
  fedkmeans study figure studies/quick.toml --best 1 --out all-runs.png
  fedkmeans study figure studies/quick.toml --convergence --out rounds.png
""",
)


@app.command(cls=Command, help=_FIGURE_HELP)
def figure(
    plan: PlanPath,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where to: .pdf, .png or .svg.")
    ] = Path("study.png"),
    store: StorePath = None,
    metric: Annotated[
        list[str] | None,
        opt.optional(metavar="NAME", help="A row of panels each. Default: score, accuracy and v_measure."),
    ] = None,
    best: Annotated[float, typer.Option(metavar="SHARE", help="Share of the runs to draw, 0 to 1.")] = 0.5,
    convergence: Annotated[
        bool, typer.Option("--convergence", help="Draw score or excess against the rounds instead.")
    ] = False,
    clients: Annotated[
        int | None,
        opt.optional(metavar="N", help="Clients per round, for --convergence. Default: the most."),
    ] = None,
) -> None:
    """Draw it."""
    from fedkmeans.cli.study import save_convergence, save_figure

    if convergence:
        save_convergence(plan, store, metric or [], clients, out)
    else:
        save_figure(plan, store, metric or [], best, out)


_REPORT_HELP = with_examples(
    "Write one page with all of it: tables, figures to explore, convergence, centroid images.",
    "A single HTML file that needs no network, to keep or to send.",
    examples="\n  fedkmeans study report studies/quick.toml --out quick.html\n",
)


@app.command(cls=Command, help=_REPORT_HELP)
def report(
    plan: PlanPath,
    out: Annotated[
        Path | None,
        opt.optional("--out", "-o", metavar="FILE", help="The page. Default: report.html among the runs."),
    ] = None,
    store: StorePath = None,
) -> None:
    """Write the page."""
    from fedkmeans.cli.study import save_report

    save_report(plan, store, out)
