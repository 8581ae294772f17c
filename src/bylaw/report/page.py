"""The page around the sections: one file that is complete, and is not allowed to load anything."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from bylaw._base.visible_text import make_visible
from bylaw.view.colors import write_color_variables
from bylaw.view.html import Html, join, tag
from bylaw.view.numbers import shorten


def make_page(title: str, subtitle: str, digest: str, sections: Sequence[tuple[str, str, Html]]) -> str:
    """Return the document, of (anchor, short name, section); printed pages have the policy's hash."""
    style = write_color_variables() + _read_file("page.css") + _write_margins(title, digest)
    script = _read_file("page.js")
    links = [tag("li", tag("a", name, href=f"#{anchor}")) for anchor, name, _ in sections]
    button = tag("button", "Dark", type="button", id="theme", hidden=True)
    header = tag(
        "header",
        tag("div", tag("h1", title), button, class_="top"),
        tag("p", subtitle, class_="note"),
        tag("nav", tag("ul", *links), aria_label="Contents"),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_write_security(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        Html(f"<style>{style}</style>"),
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#main", class_="skip"),
        header,
        tag("main", join(section for *_, section in sections), id="main"),
        tag(
            "footer",
            tag("p", "Made with bylaw. This file is self-contained: it loads nothing from elsewhere."),
        ),
        Html(f"<script>{script}</script>"),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _write_margins(title: str, digest: str) -> str:
    """Return the margins of printed pages: the title after the first page, the hash, and page numbers."""
    return (
        "@media print{@page{"
        f"@top-left{{content:{_write_text(shorten(title, 90))};}}"
        f"@bottom-left{{content:{_write_text(f'policy {digest}')};}}"
        "@bottom-right{content:'page ' counter(page) ' of ' counter(pages);}}"
        "@page:first{@top-left{content:none;}}}"
    )


def _write_text(text: str) -> str:
    """Return a string of a style sheet, in which every character but letters and digits is escaped."""
    visible = make_visible(text)
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in visible) + '"'


def frame_page(document: str) -> str:
    """Return the page in a frame of a notebook, separate from the notebook's own page."""
    return tag(
        "iframe",
        srcdoc=document,
        sandbox="allow-scripts",
        width="100%",
        height=720,
        title="Policy report",
        frameborder=0,
    )


def _write_security(style: str, script: str) -> str:
    """Return a security policy: nothing is loaded, and only the page's own script runs."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _read_file(name: str) -> str:
    return resources.files("bylaw.report").joinpath(name).read_text(encoding="utf-8")
