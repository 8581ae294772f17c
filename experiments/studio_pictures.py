"""The pictures of docs/studio.md: the demo's files in `bylaw studio`, driven in a real browser.

Needs Chromium, playwright and Pillow. Writes docs/images/studio*.png and studio.gif.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bylaw.cli.commands.demo import write_inputs

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDE = {"width": 1280, "height": 860}
COLOURS = 64  # of the moving picture
RUN = "from bylaw.cli import main; main()"


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address of a running studio."""
    command = ["studio", "scores.parquet", "--rules", "rules.toml", "--no-browser"]
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *command], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if "http://" in line)
        yield line[line.index("http://") :].strip()
    finally:
        process.terminate()
        process.wait()


def open_page(browser: Browser, url: str, **options: object) -> Page:
    page = browser.new_page(**options)  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_selector("#results[data-settled=true]")
    page.wait_for_selector("#frontier[data-state=drawn]")
    return page


def settle(page: Page) -> None:
    page.wait_for_selector("#results[data-settled=true]")


class Film:
    """Frames and how long each is seen, in milliseconds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times: list[int] = []

    def take(self, time: int) -> None:
        image = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        small = image.resize((960, round(960 * image.height / image.width)), Image.Resampling.LANCZOS)
        self.frames.append(small.quantize(COLOURS, dither=Image.Dither.NONE))
        self.times.append(time)

    def save(self, path: Path) -> None:
        first, *others = self.frames
        first.save(path, save_all=True, append_images=others, duration=self.times, loop=0, optimize=True)


def drag(page: Page, film: Film, index: int, end: float, frames: int) -> None:
    """A slider, frame by frame, to a share of its length."""
    slider = page.locator(f"#slider-{index}")
    box = slider.bounding_box()
    assert box is not None
    start = slider.evaluate("(e) => (e.value - e.min) / (e.max - e.min)")
    y, left, width = box["y"] + box["height"] / 2, box["x"] + 8, box["width"] - 16
    page.mouse.move(left + start * width, y)
    page.mouse.down()
    for i in range(1, frames + 1):
        page.mouse.move(left + (start + (end - start) * i / frames) * width, y)
        settle(page)
        film.take(120)
    page.mouse.up()
    settle(page)
    film.take(1200)


def add(page: Page, film: Film, text: str) -> None:
    page.click("#new-rule")
    for i in range(0, len(text), 4):
        page.keyboard.type(text[i : i + 4])
        film.take(110)
    page.wait_for_timeout(400)
    film.take(700)
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#new-rule').value === ''")
    settle(page)


def make_film(page: Page) -> None:
    film = Film(page)
    film.take(1500)
    drag(page, film, 0, 0.5, 10)
    drag(page, film, 1, 0.15, 8)
    add(page, film, "error() <= 0.05")
    page.evaluate("scrollTo(0, 0)")
    film.take(2200)
    page.screenshot(path=IMAGES / "studio_conflict.png")
    page.locator("#relaxations button").first.click()
    settle(page)
    page.wait_for_timeout(300)
    film.take(2500)
    film.save(IMAGES / "studio.gif")


def make_pictures() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as engine:
        write_inputs(Path(name))
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with serve(Path(name)) as url:
            page = open_page(browser, url, viewport={**WIDE, "height": 1010})
            page.screenshot(path=IMAGES / "studio.png")
            page = open_page(browser, url, viewport=WIDE, color_scheme="dark")
            page.screenshot(path=IMAGES / "studio_dark.png")
            page = open_page(browser, url, viewport={"width": 380, "height": 760}, device_scale_factor=2)
            page.screenshot(path=IMAGES / "studio_phone.png")
            make_film(open_page(browser, url, viewport=WIDE))
        browser.close()


if __name__ == "__main__":
    make_pictures()
