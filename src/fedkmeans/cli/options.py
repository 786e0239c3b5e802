"""The options that commands share or that would make their signatures long. Imports nothing heavy.

Options of the estimators have no default here: what is not given is left to the estimator, and what
does not belong to the chosen algorithm is refused by name.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedkmeans._utils.checks import PARAMETERS

# An option that may be left out; its help says what happens then, and "None" would say nothing.
optional = partial(typer.Option, show_default=False)

_DATA, _ALGORITHM, _ROUNDS = "Data", "Algorithm", "Rounds and local work"

# --- data --------------------------------------------------------------------------------------

Data = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="Files, one a client, or folders of such files: .csv .tsv .txt .data .parquet .feather .arrow "
        ".npy .npz, or LEAF .json.",
    ),
]
SomeData = Annotated[
    list[Path],
    typer.Argument(metavar="DATA", show_default=False, help="Files, one a client, or folders of files."),
]
ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", show_default=False, help="A model that fit has saved.")
]
Label = Annotated[
    str | None,
    optional(
        metavar="COLUMN", rich_help_panel=_DATA, help="Column with the true labels; it is not clustered."
    ),
]
ClientColumn = Annotated[
    str | None,
    optional(
        metavar="COLUMN", rich_help_panel=_DATA, help="Column that says whose row it is, in a file of many."
    ),
]
Columns = Annotated[
    list[str] | None,
    optional(
        metavar="NAMES",
        rich_help_panel=_DATA,
        help="Columns to cluster: a,b or repeated. Default: all that are left.",
    ),
]
Drop = Annotated[
    list[str] | None,
    optional(metavar="NAMES", rich_help_panel=_DATA, help="Columns to leave out: a,b or repeated."),
]
Missing = Annotated[
    str,
    typer.Option(
        metavar="error|drop-rows",
        rich_help_panel=_DATA,
        show_default=True,
        help="Refuse missing values, or leave out the rows that have one.",
    ),
]
Header = Annotated[
    str | None,
    optional(
        metavar="yes|no",
        rich_help_panel=_DATA,
        help="Whether the first line of a text file names the columns. Default: guessed.",
    ),
]
DatasetName = Annotated[
    str | None,
    optional(
        metavar="NAME",
        rich_help_panel=_DATA,
        help="A built-in data set in place of files: synthetic, digits, mnist-10k, mnist, femnist-…",
    ),
]
Distribution = Annotated[
    str | None,
    optional(
        metavar="HOW",
        rich_help_panel=_DATA,
        help="How --dataset is dealt out: iid, half-iid, non-iid, label-mix, dirichlet. Default: iid.",
    ),
]
NClients = Annotated[
    int | None,
    optional(metavar="N", rich_help_panel=_DATA, help="Clients that --dataset is dealt to. Default: 10."),
]
P = Annotated[
    float | None,
    optional("--p", metavar="P", rich_help_panel=_DATA, help="For label-mix: share of one class, 0 to 1."),
]
Alpha = Annotated[
    float | None,
    optional(metavar="A", rich_help_panel=_DATA, help="For dirichlet: above 0; 0.1 uneven, 100 even."),
]

# --- all commands ------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]

# --- the algorithm -----------------------------------------------------------------------------

K = Annotated[
    int,
    typer.Option(
        "-k", "--n-clusters", metavar="K", show_default=False, rich_help_panel=_ALGORITHM, help="Clusters."
    ),
]
AlgorithmName = Annotated[
    str,
    typer.Option(
        "--algorithm",
        "-a",
        metavar="NAME",
        rich_help_panel=_ALGORITHM,
        help="last-word, forgetting, dwf, ewf, wf (with --weighting), kfed, kfed-published, fkm, or k-means "
        "on pooled rows.",
    ),
]
Seed = Annotated[
    int | None,
    optional(
        metavar="N",
        rich_help_panel=_ALGORITHM,
        help="Same seed, same result. Default: a new one, told at the end.",
    ),
]
Init = Annotated[
    str | None,
    optional(
        metavar="NAME|FILE",
        rich_help_panel=_ALGORITHM,
        help="kfed, random, client_random, k-means++, or a file or model with centroids. Default: kfed.",
    ),
]
NInit = Annotated[
    int | None,
    optional(metavar="N", rich_help_panel=_ALGORITHM, help="Starts; the best is kept. Default: 1."),
]
Weighting = Annotated[
    str | None,
    optional(
        metavar="RULE",
        rich_help_panel=_ALGORITHM,
        help="dynamic or by_compactness; for wf also equal and by_size. Default: dynamic.",
    ),
]
Memory = Annotated[
    str | None,
    optional(
        metavar="NAME|X",
        rich_help_panel=_ALGORITHM,
        help="For last-word: server or client, where each client's last word is kept. For forgetting: the "
        "part of the totals that a round keeps, between 0 and 1. Default: server; for forgetting 0.98.",
    ),
]
LearningRate = Annotated[
    float | None,
    optional(
        metavar="X",
        rich_help_panel=_ALGORITHM,
        help="Server's step, in (0, 1]. Default: 1; for dwf, ewf and wf 0.01.",
    ),
]
Momentum = Annotated[
    float | None,
    optional(metavar="X", rich_help_panel=_ALGORITHM, help="In [0, 1). Default: 0; for dwf, ewf and wf 0.8."),
]
EmptyClusters = Annotated[
    str | None,
    optional(
        metavar="keep|relocate",
        rich_help_panel=_ALGORITHM,
        help="What a client does with a cluster that has none of its rows; relocate does not go with memory. "
        "Default: keep.",
    ),
]
NLocalClusters = Annotated[
    int | None,
    optional(
        metavar="K", rich_help_panel=_ALGORITHM, help="For k-FED: clusters a client makes. Default: as -k."
    ),
]
NInitLocal = Annotated[
    int | None,
    optional(metavar="N", rich_help_panel=_ALGORITHM, help="For k-FED: starts at clients. Default: 1."),
]

# --- rounds ------------------------------------------------------------------------------------

ClientsPerRound = Annotated[
    int | None,
    optional(metavar="N", rich_help_panel=_ROUNDS, help="Clients asked in a round. Default: all."),
]
Participation = Annotated[
    str | None,
    optional(
        metavar="turns|random",
        rich_help_panel=_ROUNDS,
        help="Whether clients take turns, or are drawn anew in each round. Default: turns; for dwf, ewf and "
        "wf random.",
    ),
]
MaxLocal = Annotated[
    int | None,
    optional(
        metavar="N",
        rich_help_panel=_ROUNDS,
        help="Lloyd steps of a client a round. Default: 1; for dwf, ewf, wf and fkm 5.",
    ),
]
Tol = Annotated[
    float | None,
    optional(metavar="X", rich_help_panel=_ROUNDS, help="Stop when centroids move less. Default: 1e-8."),
]
TolLocal = Annotated[
    float | None,
    optional(metavar="X", rich_help_panel=_ROUNDS, help="The same at a client. Default: 1e-8."),
]
TolScore = Annotated[
    float | None,
    optional(
        metavar="X",
        rich_help_panel=_ROUNDS,
        help="Stop when the score is expected to change by no more than this part of it, as far as the "
        "server can tell, which needs memory; 0: never. Default: 1e-3.",
    ),
]
Patience = Annotated[
    str | None,
    optional(
        metavar="N|none",
        rich_help_panel=_ROUNDS,
        help="Stop after so many rounds in which the movement has not shrunk. Default: none; for dwf, ewf, "
        "wf and fkm 300.",
    ),
]
MinRounds = Annotated[
    int | None,
    optional(
        metavar="N", rich_help_panel=_ROUNDS, help="Rounds at least. Default: 1; for dwf, ewf and wf 16."
    ),
]
MaxRounds = Annotated[
    int | None,
    optional(
        metavar="N",
        rich_help_panel=_ROUNDS,
        help="Rounds at most. Default: 1000; for dwf, ewf and wf 10000; for fkm 300.",
    ),
]
MaxIter = Annotated[
    int | None,
    optional(
        metavar="N", rich_help_panel=_ROUNDS, help="For k-FED and k-means: steps at most. Default: 10000."
    ),
]
ScoreEvery = Annotated[
    int | None,
    optional(
        metavar="N", rich_help_panel=_ROUNDS, help="Keep the score of every Nth round. Default: 0, none."
    ),
]
NJobs = Annotated[
    int | None,
    optional(
        metavar="N", rich_help_panel=_ROUNDS, help="Threads that work at once; -1: all cores. Default: 1."
    ),
]
Kernel = Annotated[
    str | None,
    optional(
        metavar="NAME",
        rich_help_panel=_ROUNDS,
        help="Who does the arithmetic: numba (fast), numpy (plain), or auto by the size of the data. "
        "Default: auto.",
    ),
]

# Names of the options above that are parameters of an estimator.
TUNING = (*PARAMETERS, "n_jobs", "kernel")
