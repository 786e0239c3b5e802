"""A study's table as text, Markdown or LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

NONE = "–"
# Headings of columns, below a common heading. The last two are only where there are values of the paper.
SPANS = (
    ("", ("distribution", "algorithm")),
    ("this study", ("runs", "mean", "best", "std")),
    ("the paper", ("mean", "best", "std")),
    ("difference", ("in std", "z")),
)


class Block(NamedTuple):
    """The part of a table for one data title, as text."""

    caption: str
    spans: Sequence[tuple[str, Sequence[str]]]  # `SPANS`, or the first of them
    groups: list[list[Sequence[str]]]  # the rows of each distribution, which only the first of them names
    notes: list[str]  # sentences that explain the columns

    @property
    def heads(self) -> list[str]:
        """Headings of columns."""
        return [head for _, heads in self.spans for head in heads]

    @property
    def rows(self) -> list[Sequence[str]]:
        """All rows."""
        return [row for group in self.groups for row in group]


def as_text(blocks: Sequence[Block]) -> str:
    """Return the table for a terminal; all notes at the end."""
    notes = "\n".join(textwrap.fill(note, width=100) for note in _all_notes(blocks))
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
    body = "\n\n".join("\n".join(_text_row(row, widths) for row in group) for group in block.groups)
    return "\n".join([block.caption, "", "  ".join(above).rstrip(), _text_row(block.heads, widths), body])


def _text_row(words: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        word.ljust(width) if column < 2 else word.rjust(width)
        for column, (word, width) in enumerate(zip(words, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


_MARKDOWN = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>|#~"})


def as_markdown(blocks: Sequence[Block]) -> str:
    """Return a pipe table for each block; all notes at the end."""
    notes = " ".join(_all_notes(blocks)).translate(_MARKDOWN)
    return "\n\n".join([*map(_markdown_block, blocks), notes]) + "\n"


def _markdown_block(block: Block) -> str:
    heads = [
        f"paper {head}" if above == "the paper" else f"difference {head}" if head == "in std" else head
        for above, heads in block.spans
        for head in heads
    ]
    rows = [[word.translate(_MARKDOWN) for word in row] for row in block.rows]
    rules = [":--", ":--"] + ["--:"] * (len(heads) - 2)
    lines = ["| " + " | ".join(row) + " |" for row in [heads, rules, *rows]]
    return "\n".join([f"**{block.caption.translate(_MARKDOWN)}**", "", *lines])


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
    caption = f"{block.caption}. {' '.join(block.notes)}"
    above = [f"\\multicolumn{{{len(under)}}}{{c}}{{{name}}}" for name, under in block.spans]
    ends = accumulate(len(under) for _, under in block.spans)
    rules = [
        f"\\cmidrule(lr){{{end - len(under) + 1}-{end}}}"
        for end, (name, under) in zip(ends, block.spans, strict=True)
        if name
    ]
    groups = [
        "\n".join(_latex_row(word.translate(_LATEX) for word in row) for row in group)
        for group in block.groups
    ]
    return "\n".join(
        [
            r"\begin{table}[htbp]",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{caption.translate(_LATEX)}}}",
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


def _latex_row(words: Iterable[str]) -> str:
    return " & ".join(words) + r" \\"


FORMATS = {"text": as_text, "markdown": as_markdown, "latex": as_latex}
