"""The table of options: name, type, help, default and panel of each. Imports nothing heavy.

A command lists the names of the options that it takes (see `commands`); its signature is made from
the rows here. Options of the estimators have no default: the estimator decides, and an option that
does not belong to the chosen algorithm is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

REQUIRED = inspect.Parameter.empty

_DATA, _ALGORITHM, _ROUNDS = "Data", "Algorithm", "Rounds and local work"


@dataclass(frozen=True)
class Option:
    """An option or an argument of a command.

    Attributes
    ----------
    name : str
        Of the Python parameter; the option is ``--name-with-dashes``, unless `flags` says otherwise.
    type : type
        bool makes a flag, list[...] an option that may be repeated.
    help : str
    metavar : str
        What stands for the value in the help.
    default : object
        REQUIRED if the option must be given, None if the help or the estimator says what happens.
    flags : tuple of str
    panel : str or None
        Heading in the help.
    group : str or None
        Options of a group are handed to the command's function together, as a dict of this name.
    choices : tuple of str
        The only values allowed.
    is_argument : bool
    """

    name: str
    type: Any
    help: str
    metavar: str | None = None
    default: Any = None
    flags: tuple[str, ...] = field(default=(), kw_only=True)
    panel: str | None = field(default=None, kw_only=True)
    group: str | None = field(default=None, kw_only=True)
    choices: tuple[str, ...] = field(default=(), kw_only=True)
    is_argument: bool = field(default=False, kw_only=True)

    def parameter(self) -> inspect.Parameter:
        """Return the option as a parameter of a function that Typer understands."""
        shown: dict[str, Any] = {"metavar": self.metavar, "help": self.help, "rich_help_panel": self.panel}
        # The help says what happens without the option; "None" would say nothing.
        shown["show_default"] = self.default is not None and self.default is not REQUIRED
        info = typer.Argument(**shown) if self.is_argument else typer.Option(*self.spellings(), **shown)
        type_ = self.type | None if self.default is None else self.type
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=self.default, annotation=Annotated[type_, info]
        )

    def spellings(self) -> tuple[str, ...]:
        """Return all ways to type the option."""
        return self.flags or (f"--{self.name.replace('_', '-')}",)

    def check(self, value: Any) -> None:
        """Refuse a value that is none of the choices."""
        if self.choices and value is not None and value not in self.choices:
            choices = " or ".join(self.choices)
            raise typer.BadParameter(f"must be {choices}, got {value!r}.", param_hint=self.spellings()[0])


def argument(name: str, type_: Any, metavar: str, help_: str, default: Any = REQUIRED, **more: Any) -> Option:
    """Return an argument, which is given without a name."""
    return Option(name, type_, help_, metavar, default, is_argument=True, **more)


def out(metavar: str, help_: str, default: Any = REQUIRED) -> Option:
    """Return the option that says where a command writes."""
    return Option("out", Path, help_, metavar, default, flags=("--out", "-o"))


def force(thing: str) -> Option:
    """Return the flag that lets a command replace something."""
    return Option("force", bool, f"Replace a {thing} that is there.", default=False, flags=("--force", "-f"))


def _rows(panel: str | None, group: str | None, rows: Iterable[Option]) -> dict[str, Option]:
    """Put options into one panel and group."""
    return {row.name: replace(row, panel=panel, group=group) for row in rows}


_SOURCE = _rows(
    _DATA,
    "source",
    [
        Option("label", str, "Column with the true labels; it is not clustered.", "COLUMN"),
        Option("client_column", str, "Column that says whose row it is, in a file of many.", "COLUMN"),
        Option(
            "columns", list[str], "Columns to cluster: a,b or repeated. Default: all that are left.", "NAMES"
        ),
        Option("drop", list[str], "Columns to leave out: a,b or repeated.", "NAMES"),
        Option(
            "missing",
            str,
            "Refuse missing values, or leave out the rows that have one.",
            "error|drop-rows",
            "error",
            choices=("error", "drop-rows"),
        ),
        Option(
            "header",
            str,
            "Whether the first line of a text file names the columns. Default: guessed.",
            "yes|no",
            choices=("yes", "no"),
        ),
    ],
)

_BUILT_IN = _rows(
    _DATA,
    "built_in",
    [
        Option(
            "dataset",
            str,
            "A built-in data set in place of files: synthetic, digits, mnist-10k, mnist, femnist-…",
            "NAME",
        ),
        Option(
            "distribution",
            str,
            "How --dataset is dealt out: iid, half-iid, non-iid, label-mix, dirichlet. Default: iid.",
            "HOW",
        ),
        Option("n_clients", int, "Clients that --dataset is dealt to. Default: 10.", "N"),
        Option("p", float, "For label-mix: share of one class, 0 to 1.", "P"),
        Option("alpha", float, "For dirichlet: above 0; 0.1 uneven, 100 even.", "A"),
    ],
)

_ESTIMATOR = _rows(
    _ALGORITHM,
    None,
    [
        Option("k", int, "Clusters.", "K", REQUIRED, flags=("-k", "--n-clusters")),
        Option(
            "algorithm",
            str,
            "last-word, forgetting, dwf, ewf, wf (with --weighting), kfed, kfed-published, fkm, or k-means "
            "on pooled rows.",
            "NAME",
            "last-word",
            flags=("--algorithm", "-a"),
        ),
        Option("seed", int, "Same seed, same result. Default: a new one, told at the end.", "N"),
    ],
)

_TUNING = _rows(
    _ALGORITHM,
    "tuning",
    [
        Option(
            "init",
            str,
            "kfed, random, client_random, k-means++, or a file or model with centroids. Default: kfed.",
            "NAME|FILE",
        ),
        Option("n_init", int, "Starts; the best is kept. Default: 1.", "N"),
        Option(
            "weighting",
            str,
            "dynamic or by_compactness; for wf also equal and by_size. Default: dynamic.",
            "RULE",
        ),
        Option(
            "memory",
            str,
            "For last-word: server or client, where each client's last word is kept. For forgetting: the "
            "part of the totals that a round keeps, between 0 and 1. Default: server; for forgetting 0.98.",
            "NAME|X",
        ),
        Option(
            "learning_rate", float, "Server's step, in (0, 1]. Default: 1; for dwf, ewf and wf 0.01.", "X"
        ),
        Option("momentum", float, "In [0, 1). Default: 0; for dwf, ewf and wf 0.8.", "X"),
        Option(
            "empty_clusters",
            str,
            "What a client does with a cluster that has none of its rows; relocate does not go with memory. "
            "Default: keep.",
            "keep|relocate",
        ),
        Option("n_local_clusters", int, "For k-FED: clusters a client makes. Default: as -k.", "K"),
        Option("n_init_local", int, "For k-FED: starts at clients. Default: 1.", "N"),
    ],
)

_TUNING |= _rows(
    _ROUNDS,
    "tuning",
    [
        Option("clients_per_round", int, "Clients asked in a round. Default: all.", "N"),
        Option(
            "participation",
            str,
            "Whether clients take turns, or are drawn anew in each round. Default: turns; for dwf, ewf and "
            "wf random.",
            "turns|random",
        ),
        Option(
            "max_local", int, "Lloyd steps per client and round. Default: 1; for dwf, ewf, wf and fkm 5.", "N"
        ),
        Option("tol", float, "Stop when centroids move less. Default: 1e-8.", "X"),
        Option("tol_local", float, "The same at a client. Default: 1e-8.", "X"),
        Option(
            "tol_score",
            float,
            "Stop when the score is expected to change by no more than this part of it, as far as the "
            "server can tell, which needs memory; 0: never. Default: 1e-3.",
            "X",
        ),
        Option(
            "patience",
            str,
            "Stop after so many rounds in which the movement has not shrunk. Default: none; for dwf, ewf, "
            "wf and fkm 300.",
            "N|none",
        ),
        Option("min_rounds", int, "Rounds at least. Default: 1; for dwf, ewf and wf 16.", "N"),
        Option(
            "max_rounds", int, "Rounds at most. Default: 1000; for dwf, ewf and wf 10000; for fkm 300.", "N"
        ),
        Option("max_iter", int, "For k-FED and k-means: steps at most. Default: 10000.", "N"),
        Option("score_every", int, "Keep the score of every Nth round. Default: 0, none.", "N"),
        Option("n_jobs", int, "Threads that work at once; -1: all cores. Default: 1.", "N"),
        Option(
            "kernel",
            str,
            "Who does the arithmetic: numba (fast), numpy (plain), or auto by the size of the data. "
            "Default: auto.",
            "NAME",
        ),
    ],
)

_GENERAL = _rows(
    None,
    None,
    [
        argument("model", Path, "MODEL", "A model that fit has saved."),
        Option("json", bool, "Write JSON, for programs.", default=False),
        Option("quiet", bool, "No progress and no summary.", default=False, flags=("--quiet", "-q")),
    ],
)

OPTIONS: Mapping[str, Option] = {**_GENERAL, **_SOURCE, **_BUILT_IN, **_ESTIMATOR, **_TUNING}
SOURCE, BUILT_IN, TUNING = tuple(_SOURCE), tuple(_BUILT_IN), tuple(_TUNING)
