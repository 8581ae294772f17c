"""The page in a real browser: Chromium, from a file, with the network cut."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from helpers.absent import skip_for_want_of
from helpers.browsers import CONTRAST, FAULTS, OVERLAPS, Pages, run_chromium
from helpers.reported import crowded, page_of

NAMES = ["referring", "audited", "guessing", "sets", "crowded", "watched", "refitted", "attacking"]


@pytest.fixture(scope="module")
def pages():
    with run_chromium() as running:
        yield Pages(running, offline=True)


@pytest.fixture
def opened(pages, tmp_path):
    """Open a page by name; afterwards nothing may have complained or called out."""
    complaints = []

    def visit(name, **options):
        path = tmp_path / f"{name}.html"
        path.write_text(page_of(name), encoding="utf-8")
        page = pages.open(**options)
        pages.listen(page, "console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        pages.listen(page, "pageerror", lambda problem: complaints.append(str(problem)))
        pages.listen(page, "dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        pages.listen(page, "request", lambda r: None if r.url == path.as_uri() else complaints.append(r.url))
        page.goto(path.as_uri())
        return page

    yield visit
    pages.take_back()
    assert complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_renders_without_complaint(opened, name):
    page = opened(name, viewport={"width": 1200, "height": 900})
    assert page.locator("section").count() == (13 if name in ("watched", "refitted") else 12)
    assert page.evaluate(FAULTS) == []
    dot = page.locator("circle.after").first
    assert dot.bounding_box()["width"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["audited", "sets", "watched"])
def test_letters_stand_out(opened, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps_or_overflows(opened, name):
    page = opened(name, viewport={"width": 1280, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    page.evaluate("document.querySelectorAll('div.curve').forEach((d) => (d.hidden = false))")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_the_slider_is_under_its_point(opened, width):
    """Wherever it is moved to: the middle of its thumb, 16 pixels wide, below the middle of the marker."""
    page = opened("referring", viewport={"width": width, "height": 844})
    slider, marker = page.locator("#level-0"), page.locator("circle.marker").first
    slider.focus()
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowRight", "PageUp", "End"):
        page.keyboard.press(key)
        page.wait_for_timeout(300)  # the marker slides
        track, point = slider.bounding_box(), marker.bounding_box()
        share = float(slider.input_value()) / float(slider.get_attribute("max"))
        thumb = track["x"] + 8 + share * (track["width"] - 16)
        assert thumb == pytest.approx(point["x"] + point["width"] / 2, abs=1.5)
        seen.append(thumb)
    assert seen == sorted(seen)
    assert len(set(seen)) >= 5


@pytest.mark.slow
def test_the_slider_is_moved_by_keys(opened):
    page = opened("referring")
    slider, said = page.locator("#level-0"), page.locator("#said-0")
    before, place = said.text_content(), page.locator("circle.marker").first.get_attribute("cx")
    assert "At the present level" in before
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert "than now" in said.text_content()
    assert page.locator("circle.marker").first.get_attribute("cx") != place
    assert said.text_content().startswith(slider.get_attribute("aria-valuetext"))
    page.keyboard.press("ArrowLeft")
    assert said.text_content() == before
    page.keyboard.press("Home")
    assert said.text_content().startswith("0")
    assert said.get_attribute("aria-live") == "polite"


@pytest.mark.slow
def test_the_pointer_moves_the_marker(opened):
    page = opened("referring")
    plot = page.locator("svg.plot").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.97 * box["width"], box["y"] + 100)
    points = page.locator("div.curve").first.locator("circle[data-level]")
    assert page.locator("#said-0").text_content() == points.last.locator("title").text_content()
    assert page.locator("#level-0").input_value() == points.last.get_attribute("data-place") == "1000"


@pytest.mark.slow
def test_the_rule_to_move_is_chosen(opened):
    page = opened("referring")
    panels = page.locator("div.curve")
    assert [panels.nth(i).is_visible() for i in (0, 1)] == [True, False]
    page.locator("#curve-choice").focus()
    page.keyboard.press("ArrowDown")
    assert [panels.nth(i).is_visible() for i in (0, 1)] == [False, True]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_switched(opened, scheme):
    page = opened("referring", color_scheme=scheme)
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = [page.evaluate(paper)]
    for _ in range(2):
        page.locator("#theme").focus()
        page.keyboard.press("Enter")
        seen.append(page.evaluate(paper))
    assert seen[0] == seen[2] != seen[1]


@pytest.mark.slow
def test_without_a_script_everything_is_there(opened):
    page = opened("referring", java_script_enabled=False)
    assert not page.locator("#theme").is_visible()
    assert not page.locator("input[type=range]").first.is_visible()
    assert all(page.locator("div.curve").nth(i).is_visible() for i in (0, 1))
    page.locator("div.curve summary").first.click()
    assert page.locator("div.curve table").first.is_visible()


@pytest.mark.slow
def test_keys_reach_the_skip_link_first(opened):
    page = opened("referring")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    assert page.locator(".skip").bounding_box()["x"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["audited", "sets"])
def test_it_prints(opened, name):
    page = opened(name, color_scheme="dark")
    paper = page.pdf(prefer_css_page_size=True)
    assert paper.startswith(b"%PDF")
    assert len(paper) > 20_000
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("div.curve").last.is_visible()
    assert not page.locator("input[type=range]").first.is_visible()
    assert page.locator("details table").first.is_visible()


@pytest.mark.slow
def test_every_printed_page_has_a_number_and_the_hash(opened, tmp_path):
    if shutil.which("pdftotext") is None:
        skip_for_want_of("pdftotext", "apt-get install poppler-utils")
    (tmp_path / "page.pdf").write_bytes(opened("crowded").pdf(prefer_css_page_size=True))
    command = ["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    *pages, end = text.split("\f")
    assert not end
    assert len(pages) > 4
    digest = crowded()[0].digest
    for number, page in enumerate(pages, start=1):
        assert re.search(rf"policy {digest}\s+page {number} of {len(pages)}\s*$", page), number
        assert page.lstrip().startswith("Placement")
    assert "Signature" in pages[-1]
    assert pages[0].count("Placement") == 1  # its heading is enough


@pytest.mark.slow
def test_what_a_stranger_adds_does_not_run(pages, tmp_path):
    """The page's own security policy, tried with an injected script."""
    own = page_of("referring")
    path = tmp_path / "page.html"
    path.write_text(
        own.replace("</main>", "<script>document.title = 'run'</script></main>"), encoding="utf-8"
    )
    complaints = []
    page = pages.open()
    pages.listen(page, "console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    assert page.title() != "run"
    assert ["Content Security Policy" in text for text in complaints] == [True]
    pages.take_back()
