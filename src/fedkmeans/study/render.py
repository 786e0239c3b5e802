"""A study's table as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fedkmeans.study.cells import places_of
from fedkmeans.study.frame import METRICS, is_better
from fedkmeans.study.paper_values import PAPER_RUNS
from fedkmeans.study.plan import Plan

NONE = "–"
_DIGITS = 4  # as in the paper
_WIDTH = 100  # of the notes under a text
# Heads of columns.
_NAMES = ("distribution", "algorithm")
_OURS = ("runs", "mean", "best", "std")
_PAPERS = ("mean", "best", "std")
_DIFFERENCE = ("in std", "z")


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a table for one data title, in words.

    Attributes
    ----------
    caption : str
        What it is about.
    has_paper : bool
        Whether there are the paper's columns and those of the difference.
    groups : tuple of tuple of tuple of str
        For each distribution its rows; the distribution stands in the first of them only.
    notes : tuple of str
        Sentences that say what the columns mean.
    """

    caption: str
    has_paper: bool
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    notes: tuple[str, ...]

    @property
    def spans(self) -> list[tuple[str, tuple[str, ...]]]:
        """Heads of columns, by what stands above them."""
        ours = [("", _NAMES), ("this study", _OURS)]
        return [*ours, ("the paper", _PAPERS), ("difference", _DIFFERENCE)] if self.has_paper else ours

    @property
    def heads(self) -> list[str]:
        """Heads of columns."""
        return [head for _, heads in self.spans for head in heads]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """All rows."""
        return [row for group in self.groups for row in group]


def blocks_of(
    plan: Plan, summary: pd.DataFrame, metric: str, clients: int | None, best: float
) -> list[Block]:
    """Put the numbers of `summarize` into words, title by title.

    The paper's columns are left out of a block in which they would all be empty.
    """
    titles = {algorithm.name: one_line(algorithm.title) for algorithm in plan.algorithms}
    about = f"{METRICS[metric]} ({'less' if is_better(metric) == 'min' else 'more'} is better)"
    first = _about_runs(plan, summary, metric, clients, best)
    blocks = []
    for title, places in places_of(plan).items():
        part = summary[summary["data"] == title]
        has_paper = bool(part["paper_mean"].notna().any())
        groups = []
        for place in places:
            cells = part[part["distribution"] == place.dealt.name].to_dict("records")
            names = [one_line(place.title)] + [""] * (len(cells) - 1)
            groups.append(
                tuple(
                    (name, titles[cell["algorithm"]], *_numbers(cell, has_paper))
                    for name, cell in zip(names, cells, strict=True)
                )
            )
        notes = [*first, *(_about_paper(metric) if has_paper else ())]
        if any(NONE in row for group in groups for row in group):
            notes.append(f"{NONE}: no value.")
        blocks.append(Block(f"{one_line(title)}: {about}", has_paper, tuple(groups), tuple(notes)))
    return blocks


def _numbers(cell: Mapping[Any, Any], has_paper: bool) -> list[str]:
    words = [str(cell["runs"]), *(_fixed(cell[name]) for name in ("mean", "best", "std"))]
    if has_paper:
        words += [_fixed(cell[name]) for name in ("paper_mean", "paper_best", "paper_std")]
        words += [_signed(cell[name]) for name in ("off_by_std", "z")]
    return words


def _fixed(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.{_DIGITS}f}"


def _signed(value: float) -> str:
    if math.isnan(value):
        return NONE
    text = f"{value:+.2f}".replace("-", "−")
    return text if float(f"{value:.2f}") else "0.00"  # no sign: next to nothing is not to either side


def one_line(text: str) -> str:
    """Write line breaks and other gaps as one space: a title with two lines would tear a table."""
    return " ".join(text.split())


def _about_paper(metric: str) -> tuple[str, ...]:
    every = PAPER_RUNS["score"]
    some = f"what must be the {PAPER_RUNS[metric]} of {every} runs with the lowest score"
    runs = f"{every} runs" if PAPER_RUNS[metric] == every else some
    return (
        f"The paper: its values, over {runs}; all clients took part.",
        "Difference: mean − the paper's mean. In std: in the paper's standard deviations. z: less what the "
        "paper's rounding can explain, in standard deviations of the difference of two means over so many "
        "runs.",
    )


def _about_runs(
    plan: Plan, summary: pd.DataFrame, metric: str, clients: int | None, share: float
) -> list[str]:
    best = "least" if is_better(metric) == "min" else "largest"
    some = "" if share == 1 else f", those {share:.0%} of the runs with the lowest score"
    asked = "" if clients is None else f", {_asked(plan, clients)}"
    notes = [
        f"Mean, best ({best}) and standard deviation (with runs − 1) of the {METRICS[metric]} over "
        f"{_runs(summary)}{some}{asked}, seed {plan.seed}."
    ]
    pooled = [one_line(algorithm.title) for algorithm in plan.algorithms if algorithm.is_pooled]
    if pooled and clients is not None:
        notes.append(f"{', '.join(pooled)}: all rows in one place, whatever the distribution.")
    return notes


def _asked(plan: Plan, clients: int) -> str:
    # Data that comes divided has as many clients as it has, whatever the plan says.
    if any(dealt.rule is None for data in plan.data for dealt in data.distributions):
        return f"{clients} clients per round"
    return f"{clients} of {plan.n_clients} clients per round"


def _runs(summary: pd.DataFrame) -> str:
    counts = summary["runs"][summary["runs"] > 0]
    least, most = counts.min(), counts.max()
    if least != most:
        return f"{least} to {most} runs"
    return f"{most} runs" if most != 1 else "1 run"


# --- forms -------------------------------------------------------------------------------------


def as_text(blocks: Sequence[Block]) -> str:
    """For a terminal; all notes at the end."""
    notes = "\n".join(textwrap.fill(note, _WIDTH) for note in _all_notes(blocks))
    return "\n\n".join([*map(_text_block, blocks), notes]) + "\n"


def _all_notes(blocks: Sequence[Block]) -> list[str]:
    """Each note once, as blocks share most of them."""
    return list(dict.fromkeys(note for block in blocks for note in block.notes))


def _text_block(block: Block) -> str:
    widths = [max(map(len, column)) for column in zip(block.heads, *block.rows, strict=True)]
    above, first = [], 0
    for name, under in block.spans:
        width = sum(widths[first : first + len(under)]) + 2 * (len(under) - 1)
        above.append(f" {name} ".center(width, "─") if 0 < len(name) <= width - 4 else name.center(width))
        first += len(under)
    body = [line for group in block.groups for line in ("", *(_text_row(row, widths) for row in group))]
    return "\n".join(
        [block.caption, "", "  ".join(above).rstrip(), _text_row(block.heads, widths), *body[1:]]
    )


def _text_row(words: Sequence[str], widths: Sequence[int]) -> str:
    names = [word.ljust(width) for word, width in zip(words[:2], widths[:2], strict=True)]
    numbers = [word.rjust(width) for word, width in zip(words[2:], widths[2:], strict=True)]
    return "  ".join([*names, *numbers]).rstrip()


_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>|#~"})


def as_markdown(blocks: Sequence[Block]) -> str:
    """A pipe table for each block; all notes at the end."""
    notes = _for_markdown(" ".join(_all_notes(blocks)))
    return "\n\n".join([*map(_markdown_block, blocks), notes]) + "\n"


def _markdown_block(block: Block) -> str:
    heads = [
        f"paper {head}" if above == "the paper" else f"difference {head}" if head == "in std" else head
        for above, heads in block.spans
        for head in heads
    ]
    rows = [[_for_markdown(word) for word in row] for row in block.rows]
    rules = [":--", ":--"] + ["--:"] * (len(heads) - 2)
    lines = ["| " + " | ".join(row) + " |" for row in [heads, rules, *rows]]
    return "\n".join([f"**{_for_markdown(block.caption)}**", "", *lines])


def _for_markdown(text: str) -> str:
    return text.translate(_MARKDOWN)


# Braces keep a bracket or star at the start of a row from being taken for an option of the row before.
_LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {letter: f"{{{letter}}}" for letter in "[]*"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "−": "$-$",
        "–": "--",
    }
)


def as_latex(blocks: Sequence[Block]) -> str:
    r"""A table environment for each block, its notes in the caption; needs ``\usepackage{booktabs}``."""
    return "\n\n".join(["% needs \\usepackage{booktabs}", *map(_latex_block, blocks)]) + "\n"


def _latex_block(block: Block) -> str:
    spans, notes = block.spans, _for_latex(" ".join(block.notes))
    above = [f"\\multicolumn{{{len(under)}}}{{c}}{{{name}}}" for name, under in spans]
    ends = [sum(len(under) for _, under in spans[: i + 1]) for i in range(len(spans))]
    rules = [
        f"\\cmidrule(lr){{{end - len(under) + 1}-{end}}}"
        for end, (name, under) in zip(ends, spans, strict=True)
        if name
    ]
    groups = ["\n".join(_latex_row(map(_for_latex, row)) for row in group) for group in block.groups]
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{_for_latex(block.caption)}. {notes}}}",
            rf"\begin{{tabular}}{{ll{'r' * (len(block.heads) - 2)}}}",
            r"\toprule",
            _latex_row(above),
            "".join(rules),
            _latex_row(block.heads),
            r"\midrule",
            "\n\\midrule\n".join(groups),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _latex_row(words: Sequence[str] | map[str]) -> str:
    return " & ".join(words) + r" \\"


def _for_latex(text: str) -> str:
    return text.translate(_LATEX)


FORMS: dict[str, Callable[[Sequence[Block]], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
}


def as_csv(summary: pd.DataFrame, metric: str) -> str:
    """One row a cell, with all digits."""
    return summary.assign(metric=metric)[["metric", *summary.columns]].to_csv(index=False)
