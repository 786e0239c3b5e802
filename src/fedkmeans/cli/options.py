"""The table of options. Imports nothing heavy.

A row is written as it is typed, with its help: ``--init NAME|FILE``, ``--out -o PATH = model`` (a default),
``--how HOW = required``, ``--quiet -q`` (a flag), ``--drop NAMES...`` (may be repeated), ``MODEL`` (an
argument, which is required unless ``= none``). A command lists the rows that it takes (see `commands`).

Options of the estimators have no default: the estimator decides, and an option that does not belong to the
chosen algorithm is refused by name.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import typer

# What stands for a value says what it is: a whole number, a number, a path, or else a text.
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("N", "K"), int),
    **dict.fromkeys(("X", "P", "A", "S", "SHARE"), float),
    **dict.fromkeys(("FILE", "FOLDER", "DIR", "PATH", "DATA", "MODEL", "PLAN", "JOINFILE"), Path),
}
# Arguments that are not called as in the help.
_ARGUMENTS = {"DIR": "folder", "JOINFILE": "join_file"}
_DEFAULTS = {"none": None, "required": inspect.Parameter.empty}


@dataclass(frozen=True)
class Option:
    """An option or, without `flags`, an argument.

    Options of a `group` are handed to the command's function together, as a dict of this name.
    """

    name: str
    flags: tuple[str, ...]
    metavar: str | None
    type: Any
    default: Any
    help: str
    panel: str | None
    group: str | None

    @classmethod
    def of(cls, usage: str, help_: str, panel: str | None = None, group: str | None = None) -> Self:
        """Read a row of the table."""
        typed, _, default = usage.partition(" = ")
        words = typed.split()
        flags = tuple(word for word in words if word.startswith("-"))
        metavar = words[-1].removesuffix("...")
        name = flags[0].lstrip("-").replace("-", "_") if flags else _ARGUMENTS.get(metavar, metavar.lower())
        if len(flags) == len(words):
            return cls(name, flags, None, bool, False, help_, panel, group)
        type_: Any = _TYPES.get(metavar, str)
        default = default or ("none" if flags else "required")
        value = _DEFAULTS[default] if default in _DEFAULTS else type_(default)
        if typed.endswith("..."):
            type_ = list[type_]
        return cls(name, flags, metavar, type_, value, help_, panel, group)

    def parameter(self) -> inspect.Parameter:
        """Return the option as a parameter of a function that Typer understands."""
        shown: dict[str, Any] = {"metavar": self.metavar, "help": self.help, "rich_help_panel": self.panel}
        # The help says what happens without the option; "None" would say nothing.
        shown["show_default"] = self.default not in _DEFAULTS.values()
        info = typer.Option(*self.flags, **shown) if self.flags else typer.Argument(**shown)
        type_ = self.type | None if self.default is None else self.type
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=self.default, annotation=Annotated[type_, info]
        )


_TABLE = {
    (None, None): {
        "MODEL": "A model that fit has saved.",
        "--json": "Write JSON, for programs.",
        "--quiet -q": "No progress and no summary.",
    },
    ("Data", "source"): {
        "--label COLUMN": "Column with the true labels; it is not clustered.",
        "--client-column COLUMN": "Column that says whose row it is, in a file of many.",
        "--columns NAMES...": "Columns to cluster: a,b or repeated. Default: all that are left.",
        "--drop NAMES...": "Columns to leave out: a,b or repeated.",
        "--missing error|drop-rows = error": "Refuse missing values, or leave out the rows that have one.",
        "--header yes|no": "Whether the first line of a text file names the columns. Default: guessed.",
    },
    ("Data", "built_in"): {
        "--dataset NAME": "A built-in data set in place of files: synthetic, digits, mnist-10k, mnist, "
        "femnist-…",
        "--distribution HOW": "How --dataset is dealt out: iid, half-iid, non-iid, label-mix, dirichlet. "
        "Default: iid.",
        "--n-clients N": "Clients that --dataset is dealt to. Default: 10.",
        "--p P": "For label-mix: share of one class, 0 to 1.",
        "--alpha A": "For dirichlet: above 0; 0.1 uneven, 100 even.",
    },
    ("Algorithm", None): {
        "-k --n-clusters K = required": "Clusters.",
        "--algorithm -a NAME = last-word": "last-word, forgetting, dwf, ewf, wf (with --weighting), kfed, "
        "kfed-published, fkm, or k-means on pooled rows.",
        "--seed N": "Same seed, same result. Default: a new one, told at the end.",
    },
    ("Algorithm", "tuning"): {
        "--init NAME|FILE": "kfed, random, client_random, k-means++, or a file or model with centroids. "
        "Default: kfed.",
        "--init-clients N|auto|all": "Clients that take part in the start, drawn at random; auto: the "
        "larger of 500 and 10 per cluster. Default: auto; for dwf, ewf and wf all.",
        "--init-rows N|auto|all": "Rows of a client that --init kfed clusters; a client with more takes a "
        "sample. auto: the larger of 10000 and 100 per cluster. Default: auto; for dwf, ewf and wf all.",
        "--n-init N": "Starts; the best is kept. Default: 1.",
        "--weighting RULE": "dynamic or by_compactness; for wf also equal and by_size. Default: dynamic.",
        "--memory NAME|X": "For last-word: server or client, where each client's last word is kept. For "
        "forgetting: the part of the totals that a round keeps, between 0 and 1. Default: server; for "
        "forgetting 0.98.",
        "--look-ahead X": "For last-word: the part of the age of statistics for which a round is corrected, "
        "from 0 to 1; no effect with --momentum. Default: 0.75; for dwf, ewf and wf 0.",
        "--learning-rate X": "Server's step, in (0, 1]. Default: 1; for dwf, ewf and wf 0.01.",
        "--momentum X": "In [0, 1). Default: 0; for dwf, ewf and wf 0.8.",
        "--empty-clusters keep|relocate": "What a client does with a cluster that has none of its rows; "
        "relocate does not go with memory. Default: keep.",
        "--n-local-clusters K": "For k-FED: clusters a client makes. Default: as -k.",
        "--n-init-local N": "For k-FED: starts at clients. Default: 1.",
        "--server-init HOW": "For fkm: where the server's k-means starts in a round: previous, at the global "
        "centroids, or k-means++, afresh. Default: previous.",
    },
    ("Rounds and local work", "tuning"): {
        "--clients-per-round N": "Clients asked in a round. Default: all.",
        "--participation turns|random": "Whether clients take turns, or are drawn anew in each round. "
        "Default: turns; for dwf, ewf and wf random.",
        "--max-local N": "Lloyd steps per client and round. Default: 1; for dwf, ewf, wf and fkm 5.",
        "--tol X": "Stop when centroids move less. Default: 1e-8.",
        "--tol-local X": "The same at a client. Default: 1e-8.",
        "--tol-score X": "Stop when the score is expected to change by no more than this part of it, as far "
        "as the server can tell, which needs memory; 0: never. Default: 1e-3.",
        "--patience N|none": "Stop after so many rounds in which the movement has not shrunk, not counting "
        "the first --min-rounds. Default: none; for dwf, ewf, wf and fkm 300.",
        "--min-rounds N": "Rounds at least. Default: 1; for dwf, ewf and wf 16.",
        "--max-rounds N": "Rounds at most. Default: 1000; for dwf, ewf and wf 10000; for fkm 300.",
        "--max-iter N": "For k-FED and k-means: steps at most. Default: 10000.",
        "--score-every N": "Keep the score of every Nth round. Default: 0, none.",
        "--n-jobs N": "Threads that work at once; -1: all cores. Default: -1.",
        "--kernel NAME": "Who does the arithmetic: numba (fast), numpy (plain), or auto by the size of the "
        "data. Default: auto.",
    },
}
_ROWS = [Option.of(usage, help_, *place) for place, rows in _TABLE.items() for usage, help_ in rows.items()]
OPTIONS: Mapping[str, Option] = {row.name: row for row in _ROWS}
SOURCE, BUILT_IN, TUNING = (
    tuple(row.name for row in _ROWS if row.group == group) for group in ("source", "built_in", "tuning")
)
# Options whose values are checked before the command starts.
CHOICES = {"missing": ("error", "drop-rows"), "header": ("yes", "no")}


def shared(*names: str) -> dict[str, Option]:
    """Return rows of the table, for a command that has some of its own."""
    return {name: OPTIONS[name] for name in names}
