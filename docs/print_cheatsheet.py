"""The cheat-sheet as a PDF of one page, printed by a headless Chromium from the built page.

`python docs/print_cheatsheet.py docs/_build` writes docs/_static/cheatsheet.pdf, and a copy into the build.
Nothing is done where the PDF is of this very page already, or where there is no Chromium.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
SOURCES = [DOCS / "cheatsheet.md", DOCS / "_static" / "cheatsheet.css"]
PDF = DOCS / "_static" / "cheatsheet.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def make_stamp() -> bytes:
    """A comment at the end of the PDF: which sources it was printed from."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()
    return f"% printed from sources with SHA-256 {digest}\n".encode()


def is_current() -> bool:
    return PDF.exists() and PDF.read_bytes().endswith(make_stamp())


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def print_page(build: Path, browser: str, pdf: Path) -> None:
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    page = (build / "cheatsheet.html").resolve().as_uri()
    subprocess.run([*command, f"--print-to-pdf={pdf}", page], check=True, capture_output=True)
    pdf.write_bytes(pdf.read_bytes() + make_stamp())


def main(build: Path) -> None:
    browser = find_browser()
    if not is_current() and browser:
        print_page(build, browser, PDF)
    shutil.copy(PDF, build / "_static" / PDF.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
