"""The snippets of a page: its blocks of Python, and what they print.

A block of text that follows a block of Python, with nothing but empty lines between them, is the output of
that block. `python tests/helpers/snippets.py docs/index.md` writes such outputs anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

SNIPPET = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", flags=re.M | re.S)


class Snippet(NamedTuple):
    code: str
    output: str | None  # as the page has it


def read_snippets(page: Path) -> list[Snippet]:
    return [Snippet(*found.groups()) for found in SNIPPET.finditer(page.read_text(encoding="utf-8"))]


def run_snippets(page: Path) -> list[str]:
    """What each block prints. They run one after the other in the current folder, and share their names."""
    namespace: dict[str, Any] = {}
    printed = []
    for number, snippet in enumerate(read_snippets(page), 1):
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            exec(compile(snippet.code, f"{page.name}, snippet {number}", "exec"), namespace)
        printed.append(shown.getvalue())
    return printed


def clean(text: str) -> str:
    """Without blanks at ends of lines, and empty lines at the end."""
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def write_outputs(page: Path) -> None:
    printed = iter(run_snippets(page))

    def replace(found: re.Match[str]) -> str:
        now = clean(next(printed))
        if found[2] is None:
            return found[0]
        start, end = (place - found.start() for place in found.span(2))
        return f"{found[0][:start]}{now}{found[0][end:]}"

    text = page.read_text(encoding="utf-8")
    page.write_text(SNIPPET.sub(replace, text), encoding="utf-8")


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            write_outputs(page)
