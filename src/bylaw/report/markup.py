"""Pieces of a page: paragraphs, lists, tables, sections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bylaw._base.markup import Content, Html, escape, join, tag

__all__ = [
    "Content",
    "Html",
    "escape",
    "fold",
    "join",
    "make_list",
    "make_paragraphs",
    "make_section",
    "make_table",
    "tag",
]


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
