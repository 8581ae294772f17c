"""Markup that cannot forget to escape: text is escaped unless it is `Html`, and only `tag` makes `Html`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from bylaw._base.visible_text import make_visible

_VOID = {"input", "meta", "br", "hr"}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Content = Html | str | None  # nothing is left out


def escape(text: Content) -> Html:
    """Plain text as markup; markup as it is."""
    if text is None:
        return Html("")
    return text if isinstance(text, Html) else Html(_escape_text(text))


def _escape_text(text: object) -> str:
    return html.escape(make_visible(str(text), keep="\n\t"), quote=True)


def join(parts: Iterable[Content], between: str = "") -> Html:
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, /, *content: Content, **attributes: object) -> Html:
    """One element. Attributes that are None or False are left out, True stands alone; a trailing underscore
    is dropped (class_) and others become hyphens (aria_label)."""
    shown = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        # Html in an attribute is escaped again: markup has no place there.
        shown.append(f" {word}" if value is True else f' {word}="{_escape_text(value)}"')
    opening = f"<{name}{''.join(shown)}>"
    return Html(opening if name in _VOID else f"{opening}{join(content)}</{name}>")


def make_paragraphs(*texts: Content, class_: str | None = None) -> Html:
    return join(tag("p", text, class_=class_) for text in texts if text)


def make_list(items: Iterable[Content], class_: str | None = None) -> Html:
    return tag("ul", *(tag("li", item) for item in items), class_=class_)


def make_table(
    caption: Content,
    heads: Sequence[Content],
    rows: Iterable[Sequence[Content]],
    *,
    class_: str | None = None,
) -> Html:
    """The first cell of a row names it. A table of data scrolls by itself where it is too wide; one that is a
    chart always fits."""
    head = tag("tr", *(tag("th", cell, scope="col") for cell in heads))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in rest)) for first, *rest in rows
    ]
    whole = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_=class_ or "data"
    )
    if class_:
        return tag("div", whole, class_="drawn")
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex=0)


def fold(summary: Content, *content: Content) -> Html:
    """Closed at first; open on paper."""
    return tag("details", tag("summary", summary), *content)


def make_section(anchor: str, title: str, *content: Content) -> Html:
    heading = tag("h2", title, id=f"{anchor}-title")
    return tag("section", heading, *content, id=anchor, aria_labelledby=f"{anchor}-title")
