"""Markup that cannot forget to escape: text is escaped unless it is `Html`, and only `tag` makes `Html`."""

from __future__ import annotations

import html
from collections.abc import Iterable

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
