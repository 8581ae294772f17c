"""HTML that is always escaped: text is escaped unless it is `Html`, and `tag` and `join` return `Html`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from bylaw._base import make_visible
from bylaw.view._colors import Tone
from bylaw.view._numbers import pluralize

_VOID = {"input", "meta", "br", "hr"}
MOST_ROWS = 100  # the maximum number of rows in a table or list of a page
SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✕", "open": "?"}


class Html(str):
    """Text that already is HTML markup and is not escaped again."""

    __slots__ = ()


Content = Html | str | None  # None is left out


def escape(text: Content) -> Html:
    """Convert plain text to HTML; return HTML unchanged."""
    if text is None:
        return Html("")
    return text if isinstance(text, Html) else Html(_escape_text(text))


def _escape_text(text: object) -> str:
    return html.escape(make_visible(str(text), keep="\n\t"), quote=True)


def join(parts: Iterable[Content], between: str = "") -> Html:
    """Join parts of a page, with an optional text between them."""
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, /, *content: Content, **attributes: object) -> Html:
    """Return one HTML element.

    Attributes that are None or False are left out, and those that are True have no value. In names, a
    trailing underscore is dropped (`class_`), and other underscores become hyphens (`aria_label`).
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        # Html in an attribute is escaped again: attributes contain no markup.
        written.append(f" {word}" if value is True else f' {word}="{_escape_text(value)}"')
    opening = f"<{name}{''.join(written)}>"
    return Html(opening if name in _VOID else f"{opening}{join(content)}</{name}>")


def fold(summary: Content, *content: Content) -> Html:
    """Return content that is hidden until the reader opens it by its summary line."""
    return tag("details", tag("summary", summary), *content)


def make_list(items: Iterable[Content], class_: str | None = None) -> Html:
    """Return a bulleted list."""
    return tag("ul", *(tag("li", item) for item in items), class_=class_)


def make_badge(words: str, tone: Tone) -> Html:
    """Return words with a sign, so that their meaning does not depend on color."""
    return tag("span", tag("span", SIGNS[tone], aria_hidden="true"), f" {words}", class_=f"badge {tone}")


def make_page_table(
    caption: Content,
    heads: Iterable[Content],
    rows: Sequence[Iterable[Content]],
    class_: str | None = None,
    rest: tuple[str, str] = ("row", ""),
) -> Html:
    """Return a table of a page; the first cell of each row is its head.

    Only the first 100 rows are shown, followed by a note with the number of the others.

    Parameters
    ----------
    caption : str or Html
        The caption.
    heads : iterable of str or Html
        The heads of the columns.
    rows : sequence of sequences of str or Html
        The cells of each row.
    class_ : str, optional
        The class of a table that contains a chart and always fits the page. Other tables scroll if they are
        too wide.
    rest : tuple
        The word for a row and an addition, for the note.
    """
    if (more := len(rows) - MOST_ROWS) > 0:
        note = tag("p", f"Not shown: {pluralize(more, rest[0])}{rest[1]}.", class_="note")
        return join([make_page_table(caption, heads, rows[:MOST_ROWS], class_), note])
    head = tag("tr", *(tag("th", cell, scope="col") for cell in heads))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest)) for first, *rest in rows
    ]
    content = tag("caption", caption), tag("thead", head), tag("tbody", *body)
    if class_:
        return tag("div", tag("table", *content, class_=class_), class_="drawn")
    region = {"class_": "scroll", "role": "region", "aria_label": caption, "tabindex": 0}
    return tag("div", tag("table", *content, class_="data"), **region)
