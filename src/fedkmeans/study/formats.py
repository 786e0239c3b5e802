"""A study's table as text, Markdown, LaTeX or CSV."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

NONE = "–"
_WIDTH = 100  # of the notes below a text table
# Headings of columns.
_NAMES = ("distribution", "algorithm")
_OURS = ("runs", "mean", "best", "std")
_PAPERS = ("mean", "best", "std")
_DIFFERENCE = ("in std", "z")


@dataclass(frozen=True, slots=True)
class Block:
    """The part of a table for one data title, as text.

    Attributes
    ----------
    caption : str
    has_paper : bool
        Whether there are columns for the paper and for the difference.
    groups : tuple of tuple of tuple of str
        The rows of each distribution, which only the first of them names.
    notes : tuple of str
        Sentences that explain the columns.
    """

    caption: str
    has_paper: bool
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    notes: tuple[str, ...]

    @property
    def spans(self) -> list[tuple[str, tuple[str, ...]]]:
        """Headings of columns, by the heading above them."""
        ours = [("", _NAMES), ("this study", _OURS)]
        return [*ours, ("the paper", _PAPERS), ("difference", _DIFFERENCE)] if self.has_paper else ours

    @property
    def heads(self) -> list[str]:
        """Headings of columns."""
        return [head for _, heads in self.spans for head in heads]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """All rows."""
        return [row for group in self.groups for row in group]


def one_line(text: str) -> str:
    """Replace line breaks and other white space by single spaces, as a table needs it."""
    return " ".join(text.split())


def as_text(blocks: Sequence[Block]) -> str:
    """Return the table for a terminal; all notes at the end."""
    notes = "\n".join(textwrap.fill(note, _WIDTH) for note in _all_notes(blocks))
    return "\n\n".join([*map(_text_block, blocks), notes]) + "\n"


def _all_notes(blocks: Sequence[Block]) -> list[str]:
    """Return each note once, as blocks share most of them."""
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
    """Return a pipe table for each block; all notes at the end."""
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


# In braces, a bracket or star at the start of a row is not an option of the row before.
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
    r"""Return a table environment for each block, notes in the caption; needs ``\usepackage{booktabs}``."""
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


FORMATS: dict[str, Callable[[Sequence[Block]], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
}


def as_csv(summary: pd.DataFrame, metric: str) -> str:
    """Return one row per cell, with all digits."""
    return summary.assign(metric=metric)[["metric", *summary.columns]].to_csv(index=False)
