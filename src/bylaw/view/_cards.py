"""Cards: descriptions of results that are printed as text on a terminal and as HTML in a notebook.

The HTML has only inline styles, since notebooks may remove style sheets. Text has the notebook's own color,
and backgrounds are transparent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bylaw._base import make_visible
from bylaw.view._charts import Scale, draw_bar
from bylaw.view._colors import FAINT, TONE_COLORS, Tone
from bylaw.view._html import SIGNS, Content, Html, fold, join, tag

_CELL = f"padding:.25em .8em .25em 0;border:0;border-bottom:1px solid {FAINT};vertical-align:middle;"
_TABLE = "border-collapse:collapse;border:0;margin:0;font-size:.95em;font-variant-numeric:tabular-nums"
_UNFOLDED = 8  # rows of a table in a notebook that are not folded


class Cell(NamedTuple):
    """A cell of a table, as HTML and as text."""

    html: Content
    text: str = ""


def code(text: str) -> Cell:
    """Return a cell that shows text, such as a rule, in a monospaced font."""
    look = "background:transparent;color:inherit;padding:0;white-space:pre-wrap"
    return Cell(tag("code", text, style=look), text)


def status(words: str, tone: Tone) -> Cell:
    """Return a cell with a sign before the words, so that their meaning does not depend on color."""
    look = f"color:{TONE_COLORS[tone]};font-weight:700;margin-right:.4em"
    return Cell(tag("span", tag("span", SIGNS[tone], style=look), words, style="white-space:nowrap"), words)


def bar(value: float, most: float, tone: Tone | None = None) -> Cell:
    """Return a cell with a bar of length `value` relative to the largest value `most`; its text is empty."""
    share = value / most if most > 0 else 0.0
    return Cell(draw_bar(f"{share:.0%} of the largest", share, width="120", tone=tone))


@dataclass(frozen=True)
class Table:
    """A table of a card.

    Parameters
    ----------
    heads : sequence of str
        The heads of the columns; columns of bars have empty heads.
    rows : sequence of sequences of str or Cell
        The cells of each row.
    numbers : collection of int
        The indices of the columns that are aligned to the right.
    summary : str
        If not empty, a notebook shows this line and unfolds the table on request, and a terminal shows no
        table.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell | str | None]]
    numbers: Collection[int] = ()
    summary: str = ""

    def to_html(self) -> Html:
        """Return the table as HTML; rows after the first eight are folded."""
        if self.summary:
            return fold(self.summary, self._write_rows(self.rows))
        first, rest = self.rows[:_UNFOLDED], self.rows[_UNFOLDED:]
        return join(
            [self._write_rows(first), fold(f"{len(rest)} more", self._write_rows(rest)) if rest else None]
        )

    def _write_rows(self, rows: Sequence[Sequence[Cell | str | None]]) -> Html:
        looks = [
            f"{_CELL}text-align:{'right;white-space:nowrap' if i in self.numbers else 'left'};"
            for i in range(len(self.heads))
        ]
        heads = [
            tag("th", head, style=f"{look}font-weight:500;opacity:.75")
            for head, look in zip(self.heads, looks, strict=True)
        ]
        lines = [
            tag(
                "tr",
                *(
                    tag("td", cell.html if isinstance(cell, Cell) else cell, style=look)
                    for cell, look in zip(row, looks, strict=True)
                ),
                style="background:transparent",
            )
            for row in rows
        ]
        table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *lines), style=_TABLE)
        return tag("div", table, style="overflow-x:auto")

    def to_lines(self, heads: bool = False) -> list[str]:
        """Return the table as lines of text, without its bars."""
        lines = [
            [cell.text if isinstance(cell, Cell) else cell or "" for cell in row]
            for row in ([self.heads] if heads else []) + list(self.rows)
        ]
        columns = [
            [text.rjust(width) if i in self.numbers else text.ljust(width) for text in column]
            for i, column in enumerate(zip(*lines, strict=True))
            if (width := max(map(len, column)))
        ]
        return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


@dataclass(frozen=True)
class Card:
    """The presentation of one result: a title, its content, and remarks.

    Parameters
    ----------
    title : str or Cell
        The first line.
    content : sequence of Table, Html or None
        Tables and charts.
    remarks : sequence of str
        Sentences after the content.
    subtitle : sequence of str
        Lines between the title and the content.
    """

    title: str | Cell
    content: Sequence[Table | Html | None] = ()
    remarks: Sequence[str] = ()
    subtitle: Sequence[str] = ()

    def to_html(self) -> Html:
        """Return the card as HTML for a notebook."""
        title = self.title.html if isinstance(self.title, Cell) else self.title
        lines = [tag("div", line) for line in (title, *self.subtitle)]
        content = [part.to_html() if isinstance(part, Table) else part for part in self.content]
        remarks = [
            tag("div", remark, style="font-size:.9em;opacity:.8;margin-top:.3em") for remark in self.remarks
        ]
        look = "color:inherit;background:transparent;max-width:64em;line-height:1.4"
        head = tag("div", *lines, style="font-weight:600;margin:.2em 0 .4em")
        return tag("div", head, *content, *remarks, class_="bylaw", style=look)

    def to_text(self) -> str:
        """Return the card as text for a terminal, without bars, charts and folded tables."""
        title = self.title.text if isinstance(self.title, Cell) else self.title
        tables = [part for part in self.content if isinstance(part, Table) and not part.summary]
        rows = [f"  {line}" for table in tables for line in table.to_lines()]
        lines = [title, "", *self.subtitle, *rows, "", *self.remarks]
        return "\n".join(map(make_visible, lines))


def list_remarks(more: int, remarks: Iterable[str]) -> list[str]:
    """Return the remarks on a table, preceded by the number of rules that it leaves out."""
    return [*([f"and {more} more rules, see to_frame()"] if more else []), *remarks]


def draw_grid(
    corner: str, rows: Sequence[float], columns: Sequence[float], values: Sequence[Sequence[float]]
) -> Table:
    """Return a table of values over the levels of two rules.

    Larger values have a darker background, and crosses mark levels at which the rules conflict.
    """
    finite = [value for line in values for value in line if math.isfinite(value)]
    scale = Scale(min(finite), max(finite))

    def shade(value: float) -> Cell:
        if not math.isfinite(value):
            look = f"color:{TONE_COLORS['bad']}"
            return Cell(tag("span", "×", style=look, title="the rules conflict"), "×")
        darkness = 0.05 + (0.4 * scale.share(value) if scale.high > scale.low else 0.0)
        look = f"background:rgba(59,130,246,{darkness:.2f});padding:.1em .5em;border-radius:3px"
        return Cell(tag("span", f"{value:.4g}", style=look), f"{value:.4g}")

    body = [[f"{level:g}", *map(shade, line)] for level, line in zip(rows, values, strict=True)]
    heads = [corner, *(f"{level:g}" for level in columns)]
    return Table(heads, body, numbers=range(1, len(heads)))
