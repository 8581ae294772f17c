"""A real browser for tests, and what is looked for in any page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from helpers.absent import skip_for_want_of

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
  document.querySelectorAll("[aria-labelledby], [aria-describedby], [aria-controls]").forEach((e) =>
    ["aria-labelledby", "aria-describedby", "aria-controls"].forEach((name) =>
      (e.getAttribute(name) || "").split(" ").filter(Boolean).forEach((id) => {
        if (!document.getElementById(id)) faults.push("refers to nothing: " + id);
      })));
  document.querySelectorAll("input, select, button").forEach((e) => {
    const label = e.getAttribute("aria-label") || e.getAttribute("aria-labelledby");
    if (!e.labels?.length && !e.textContent.trim() && !label) faults.push("no label: " + e.outerHTML);
  });
  document.querySelectorAll("table").forEach((t) => {
    if (!t.caption?.textContent.trim()) faults.push("no caption");
    if (t.querySelector("th:not([scope])")) faults.push("no scope");
  });
  if (document.querySelectorAll("main").length !== 1) faults.push("landmarks");
  if (!document.documentElement.lang) faults.push("no language");
  return faults;
}"""


# Pairs of texts that cover each other, line by line, among those that can be seen.
OVERLAPS = """() => {
  const boxes = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const owner = node.parentElement;
    if (!node.textContent.trim() || owner.closest("script, title, desc, option, .unseen, .skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const drawn = owner.closest("text");
    const lines = drawn ? [drawn.getBoundingClientRect()] : range.getClientRects();
    const words = node.textContent.trim().slice(0, 40);
    for (const r of lines)
      if (r.width && r.height) boxes.push([r.left, r.right, r.top, r.bottom, words]);
  }
  boxes.sort((a, b) => a[2] - b[2]);
  const found = [];
  boxes.forEach((one, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j][2] < one[3]; j++) {
      const two = boxes[j];
      const wide = Math.min(one[1], two[1]) - Math.max(one[0], two[0]);
      const high = Math.min(one[3], two[3]) - two[2];
      if (wide > 1 && high > 4) found.push([one[4], two[4], Math.round(wide), Math.round(high)]);
    }
  });
  return found;
}"""


@contextmanager
def run_chromium() -> Iterator:
    """Chromium, or a test that is skipped."""
    if CHROMIUM is None:
        skip_for_want_of("Chromium", "apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_for_want_of("playwright", "pip install '.[test]'")
    with sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


class Pages:
    """A page that is lent to one test after the other, since Chromium starts a process for each new one.

    A test that wants a second page, or options that a page cannot change, gets contexts of its own.
    """

    def __init__(self, browser, **options) -> None:
        self.browser, self.options = browser, options
        self.page = browser.new_context(**options).new_page()
        self.lent = False
        self.contexts: list = []
        self.listeners: list = []

    def open(self, viewport=None, color_scheme=None, **options):
        if self.lent or options:
            chosen = {"viewport": viewport, "color_scheme": color_scheme}
            stated = {name: value for name, value in chosen.items() if value is not None}
            self.contexts.append(self.browser.new_context(**self.options, **stated, **options))
            return self.contexts[-1].new_page()
        self.lent = True
        self.page.set_viewport_size(viewport or {"width": 1280, "height": 720})
        self.page.emulate_media(media="null", color_scheme=color_scheme or "light")
        return self.page

    def listen(self, page, event, listener) -> None:
        """Listen until the page is taken back."""
        page.on(event, listener)
        self.listeners.append((page, event, listener))

    def take_back(self) -> None:
        """Leave a page as if it were new: nothing listens, and nothing is stored."""
        for page, event, listener in self.listeners:
            page.remove_listener(event, listener)
        for context in self.contexts:
            context.close()
        if self.lent:
            self.page.unroute_all()
            self.page.evaluate("() => location.protocol.startsWith('http') && sessionStorage.clear()")
            self.page.goto("about:blank")
        self.contexts, self.listeners, self.lent = [], [], False
