"""The page in a real browser: Chromium, from a file, with the network cut."""

from __future__ import annotations

import os
import shutil

import pytest

from helpers.reported import page_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ["referring", "audited", "guessing", "sets", "watched", "refitted", "attacking"]

# Each letter's colour against the nearest painted background, as WCAG counts it.
CONTRAST = """() => {
  const number = (colour) => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    return parts.length < 4 || parts[3] > 0 ? parts : null;
  };
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => ((c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = number(getComputedStyle(e).backgroundColor);
      if (colour) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  document.querySelectorAll("body *").forEach((element) => {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const unseen = !element.getClientRects().length;
    if (!own || unseen || ["SCRIPT", "STYLE", "title", "desc"].includes(element.tagName)) return;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(number(ink)), light(behind(element))].sort();
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([element.textContent.trim().slice(0, 40), ratio]);
  });
  return poor;
}"""

# Things without a name, headings that skip a level, ids that come twice, controls without a label.
FAULTS = """() => {
  const faults = [];
  document.querySelectorAll("svg, img").forEach((e) => {
    const hidden = e.closest("[aria-hidden=true]");
    if (!hidden && (e.getAttribute("role") !== "img" || !e.querySelector("title")?.textContent.trim()))
      faults.push("no name: " + e.outerHTML.slice(0, 80));
  });
  let level = 0;
  document.querySelectorAll("h1, h2, h3, h4").forEach((h) => {
    const here = Number(h.tagName[1]);
    if (here > level + 1) faults.push("skipped level: " + h.textContent);
    level = here;
  });
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach((id) => faults.push("twice: " + id));
  document.querySelectorAll("input, select, button").forEach((e) => {
    if (!e.labels?.length && !e.textContent.trim() && !e.getAttribute("aria-label")) faults.push("no label");
  });
  document.querySelectorAll("table").forEach((t) => {
    if (!t.caption?.textContent.trim()) faults.push("no caption");
    if (t.querySelector("th:not([scope])")) faults.push("no scope");
  });
  if (document.querySelectorAll("main").length !== 1) faults.push("landmarks");
  if (!document.documentElement.lang) faults.push("no language");
  return faults;
}"""


def unavailable(reason):
    """Continuous integration must not skip."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        unavailable("needs Chromium: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        unavailable("needs playwright: pip install 'bylaw[test]'")
    with sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page by name; afterwards nothing may have complained or called out."""
    contexts, complaints = [], []

    def visit(name, **options):
        path = tmp_path / f"{name}.html"
        path.write_text(page_of(name), encoding="utf-8")
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda r: None if r.url == path.as_uri() else complaints.append(r.url))
        page.goto(path.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_renders_without_complaint(opened, name):
    page = opened(name, viewport={"width": 1200, "height": 900})
    assert page.locator("section").count() == (12 if name in ("watched", "refitted") else 11)
    assert page.evaluate(FAULTS) == []
    dot = page.locator("circle.after").first
    assert dot.bounding_box()["width"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["audited", "sets"])
def test_letters_stand_out(opened, name, scheme):
    page = opened(name, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_a_narrow_screen(opened, name):
    page = opened(name, viewport={"width": 400, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.slow
def test_the_slider_is_moved_by_keys(opened):
    page = opened("referring")
    slider, said = page.locator("#level-0"), page.locator("#said-0")
    before, place = said.text_content(), page.locator("circle.marker").first.get_attribute("cx")
    assert "As the rule stands" in before
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
    points = page.locator("div.curve").first.locator("circle[data-say]")
    assert page.locator("#said-0").text_content() == points.last.get_attribute("data-say")
    assert page.locator("#level-0").input_value() == str(points.count() - 1)


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
def test_what_a_stranger_adds_does_not_run(browser, tmp_path):
    """The page's own security policy, tried with an injected script."""
    own = page_of("referring")
    path = tmp_path / "page.html"
    path.write_text(
        own.replace("</main>", "<script>document.title = 'run'</script></main>"), encoding="utf-8"
    )
    page = browser.new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    assert page.title() != "run"
    assert ["Content Security Policy" in text for text in complaints] == [True]
    page.close()
