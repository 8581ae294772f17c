"""The documentation as a site, which `make docs` builds without a warning: its search finds what people look
for, every public name has a place, and the cheat-sheet is one page."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

import bylaw
from helpers.absent import skip_for_want_of
from helpers.browsers import run_chromium
from helpers.snippets import read_snippets

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def is_current(built):
    """Whether `make docs` was run since anything on the pages changed."""
    sources = [
        ROOT / "src",
        ROOT / "examples",
        DOCS,
        *ROOT.glob("*.md"),
        *ROOT.glob("experiments/**/results"),
    ]
    files = (file for source in sources for file in (source.rglob("*") if source.is_dir() else [source]))
    made = (DOCS / "_build", DOCS / "auto_examples")
    own = [
        file for file in files if file.is_file() and not any(file.is_relative_to(folder) for folder in made)
    ]
    kept = [file for file in own if file.suffix in (".md", ".py", ".rst", ".css", ".png", ".csv", ".txt")]
    return built.exists() and max(file.stat().st_mtime for file in kept) < built.stat().st_mtime


@pytest.fixture(scope="module")
def site():
    """The pages as `make docs` made them."""
    if not is_current(DOCS / "_build" / "index.html"):
        pytest.skip("the pages are not built, or older than their sources: make docs")
    return DOCS / "_build"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Says nothing."""


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.site
def test_formulas_are_typeset_without_a_network(site):
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count("<math") > 50
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\\\(|\\\[|\$\\", re.sub(r"(?s)<pre.*?</pre>|<script.*?</script>", "", text)), (
            path
        )
        assert not re.search(r'<(script|link|img)[^>]*(src|href)="https?:', text), path


SEARCHES = {  # what people type, and pages of which one must be among the first three
    "abstention": {"howto", "glossary"},
    "conformal": {"howto", "glossary", "showcases/sets"},
    "conformal prediction": {"howto", "glossary", "showcases/sets"},
    "reject option": {"howto", "glossary"},
    "selective classification": {"howto", "glossary"},
    "churn": {"howto", "glossary", "showcases/upgrade"},
    "four-fifths rule": {"howto", "glossary"},
    "LLM routing": {"howto", "glossary", "showcases/routing"},
    "learning to defer": {"howto", "glossary", "showcases/experts"},
    "shadow price": {"howto", "glossary", "results", "frontier"},
    "threshold optimizer": {"glossary", "peers", "migration/fairlearn"},
    "e-process": {"glossary", "monitoring"},
}


@pytest.mark.site
def test_the_search_finds_what_people_look_for(address):
    with run_chromium() as browser:
        page = browser.new_page()
        for words, wanted in SEARCHES.items():
            page.goto(f"{address}/search.html?q={words.replace(' ', '+')}")
            page.wait_for_selector("#search-results ul.search li a")
            found = page.eval_on_selector_all(
                "#search-results ul.search > li > a", "links => links.map(a => a.getAttribute('href'))"
            )
            first = {link.partition(".html")[0] for link in found[:3]}
            assert first & wanted, f"{words}: {found[:3]}"


@pytest.mark.site
def test_no_page_is_wider_than_the_window(address, site):
    pages = [path.relative_to(site) for path in site.rglob("*.html") if path.name != "search.html"]
    with run_chromium() as browser:
        page = browser.new_page()
        for name in sorted(pages):
            page.set_viewport_size({"width": 390, "height": 800})
            page.goto(f"{address}/{name}", wait_until="domcontentloaded")
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 800})
                wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert wide <= 0, f"{name} is wider than {width} by {wide}"


@pytest.mark.site
def test_every_public_name_has_a_place(site):
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    table = (site / "api" / "index.html").read_text(encoding="utf-8")
    for name in bylaw.__all__:
        place = rf'id="bylaw\.(errors\.)?{name}"'
        assert re.search(place, pages), f"{name} has no entry"
        assert re.search(rf'href="\w+\.html#bylaw\.(errors\.)?{name}"', table), f"{name} is not in the table"


def read_wants():
    """Each wish of the page, and its code."""
    text = (DOCS / "howto.md").read_text(encoding="utf-8")
    parts = re.split(r"^### ", text, flags=re.M)[1:]
    return {
        part.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```", part, re.M | re.S) for part in parts
    }


def test_each_want_has_a_few_lines_of_code():
    wants = read_wants()
    assert len(wants) >= 25
    for want, code in wants.items():
        assert len(code) == 1, want
        assert 2 <= len([line for line in code[0].splitlines() if line]) <= 12, want
        assert "from bylaw" in code[0], f"{want}: stands for itself, so it imports what it uses"


def load_printer():
    spec = importlib.util.spec_from_file_location("print_cheatsheet", DOCS / "print_cheatsheet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count_pages(pdf):
    return len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes()))


def test_the_cheat_sheet_is_printed_from_its_source():
    printer = load_printer()
    assert printer.is_current(), "run make docs where there is a Chromium"
    assert count_pages(printer.PDF) == 1
    assert read_snippets(DOCS / "cheatsheet.md")


@pytest.mark.site
def test_the_cheat_sheet_prints_on_one_page_in_full(site, tmp_path):
    printer = load_printer()
    browser = printer.find_browser()
    if browser is None:
        skip_for_want_of("Chromium", "apt-get install chromium")
    printed = tmp_path / "cheatsheet.pdf"
    printer.print_page(site, browser, printed)
    assert count_pages(printed) == 1
    if shutil.which("pdftotext"):
        text = subprocess.run(
            ["pdftotext", str(printed), "-"], capture_output=True, text=True, check=True
        ).stdout
        source = (DOCS / "cheatsheet.md").read_text(encoding="utf-8")
        for heading in re.findall(r"^#+ (.+)$", source, flags=re.M):
            assert heading in text
        assert "Skip to content" not in text
