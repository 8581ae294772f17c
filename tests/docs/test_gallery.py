"""Each example of the gallery stands by itself and leads somewhere; `make docs` runs them all."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import sys
import warnings
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.rglob("plot_*.py"))
SHOWCASES = {page.stem for page in (ROOT / "docs" / "showcases").glob("*.md")}


def list_imports(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


@functools.cache
def list_installed():
    """Return the names that anybody with the packages can import."""
    installed = set(packages_distributions()) | {"bylaw"} | set(sys.stdlib_module_names)
    return installed - {"tests", "experiments", "benchmarks", "helpers"}


def list_links(source):
    return re.findall(r"<([^<>\s]+\.html)(?:#[\w-]+)?>`_", source)


def find_page(example, link):
    """The source of a link's page: an example, or a page of the docs two folders above the gallery's."""
    target = Path(link).with_suffix("")
    if target.name.startswith("plot_"):
        return (example.parent / target).with_suffix(".py")
    return (ROOT / "docs" / target.relative_to("../..")).with_suffix(".md")


def test_there_are_enough_of_them_with_a_name_each():
    assert len(EXAMPLES) >= 16
    assert len({example.stem for example in EXAMPLES}) == len(EXAMPLES)
    for folder in {GALLERY, *(example.parent for example in EXAMPLES)}:
        assert (folder / "GALLERY_HEADER.rst").exists(), f"{folder.name} has no header"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_tells_a_story_with_a_figure(example):
    source = example.read_text(encoding="utf-8")
    title, underline, *_ = ast.get_docstring(ast.parse(source)).splitlines()
    assert underline == "=" * len(title)
    assert "plt.show()" in source
    assert "# What to try next\n# ----------------\n# - " in source
    assert len(source.splitlines()) <= 120


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_a_downloaded_example_needs_packages_only(example):
    for name in list_imports(example.read_text(encoding="utf-8")):
        assert name.partition(".")[0] in list_installed(), name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_links_of_an_example_lead_somewhere(example):
    for link in list_links(example.read_text(encoding="utf-8")):
        assert find_page(example, link).exists(), link


def test_all_showcases_can_be_reached():
    header = (GALLERY / "GALLERY_HEADER.rst").read_text(encoding="utf-8")
    assert set(re.findall(r"</showcases/(\w+)>", header)) == SHOWCASES
    linked = {link for example in EXAMPLES for link in list_links(example.read_text(encoding="utf-8"))}
    for name in ("upgrade", "routing", "experts", "referrals", "sets"):
        assert f"../../showcases/{name}.html" in linked


def test_a_warning_in_an_example_is_an_error_and_in_the_build_it_is_not():
    import matplotlib as mpl

    spec = importlib.util.spec_from_file_location("gallery_style", ROOT / "docs" / "gallery_style.py")
    style = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(style)
    before = list(warnings.filters)
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        style.reset({}, "plot_one.py", "before")
        with pytest.raises(UserWarning, match="dubious"):
            warnings.warn("dubious", stacklevel=1)
        style.reset({}, "plot_one.py", "after")
        warnings.warn("dubious", stacklevel=1)
    assert list(warnings.filters) == before
