"""The pictures of the report in README.md and docs/command_line.md: the demo's report in a real browser.

Needs Chromium, playwright and Pillow; run `python -m experiments.report_pictures`. Writes
docs/images/report.png and report_statement.png.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.studio_pictures import COLOURS, IMAGES, RUN
from PIL import Image
from playwright.sync_api import FloatRect, Page, ViewportSize, sync_playwright

from bylaw.cli.commands.demo import write_inputs

FIRST_PAGE = ViewportSize(width=942, height=1720)
MARGIN = 20  # pixels around the statement
FIT = ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "policy.json"]
REPORT = ["--report", "report.html", "--held-out", "new.parquet"]
NAMES = ["--title", "Mortgage approvals", "--owner", "Credit risk", "--model-version", "2026.3"]


def write_report(folder: Path) -> Path:
    """The report of the demo's files, with names, as the command line makes it."""
    write_inputs(folder)
    subprocess.run(
        [sys.executable, "-c", RUN, *FIT, *REPORT, *NAMES], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return folder / "report.html"


def save(picture: bytes, name: str) -> None:
    """With few colours, so that it is small."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def take_pictures(page: Page) -> None:
    save(page.screenshot(), "report.png")
    box = page.locator("#sign").bounding_box()
    assert box is not None
    top, height = box["y"] - MARGIN, box["height"] + 2 * MARGIN
    around = FloatRect(x=0, y=top, width=FIRST_PAGE["width"], height=height)
    save(page.screenshot(clip=around, full_page=True), "report_statement.png")


def make_pictures() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as engine:
        made = write_report(Path(name))
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=FIRST_PAGE)
        page.goto(made.resolve().as_uri())
        take_pictures(page)
        browser.close()


if __name__ == "__main__":
    make_pictures()
