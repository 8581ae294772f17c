"""Sphinx: pages in Markdown with formulas, the API from docstrings and annotations, a gallery that is run."""

import inspect
import sys
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy.typing

Scalar = TypeVar("Scalar")


class NDArray(Generic[Scalar]):
    """Signatures show NDArray[float64], not ndarray[tuple[Any, ...], dtype[float64]]."""


numpy.typing.NDArray = NDArray  # before bylaw is imported
sys.path.insert(0, str(Path(__file__).parent))  # gallery_style, mathml

project = "bylaw"
author = "The bylaw developers"
copyright = "2026, the bylaw developers"  # noqa: A001
extensions = [
    *("myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"),
    "mathml",
]
html_math_renderer = "mathml"
exclude_patterns = ["_build", "**/sg_execution_times.rst", "sg_execution_times.rst"]
html_theme = "furo"
html_title = "bylaw"
html_static_path = ["_static"]
html_css_files = ["wide.css", "gallery.css", "side_by_side.css"]
default_role = "py:obj"  # in docstrings, `name` is code, and a link where it can be
smartquotes_action = "D"  # dashes; quotes in docstrings are those of Python
autodoc_member_order = "bysource"
autodoc_mock_imports = ["onnx"]
autodoc_preserve_defaults = True
autodoc_typehints = "both"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
python_maximum_signature_line_length = 120
python_trailing_comma_in_multi_line_signatures = False
toc_object_entries_show_parents = "hide"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "auto_examples",
    "subsection_order": [
        f"../examples/gallery/{name}"
        for name in ("fairness", "abstention", "sets", "releases", "costs", "trust", "tables")
    ],
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib", "gallery_style.reset"),
    "reset_modules_order": "both",
    "reference_url": {"bylaw": None},
    "doc_module": ("bylaw",),
    "image_srcset": ["2x"],
    "thumbnail_size": (400, 230),
    "show_signature": False,
    "first_notebook_cell": "# Needs the extra demo of bylaw; some need duckdb or polars.\n%matplotlib inline",
}

# Classes of results. Users do not construct them, so their signatures are hidden.
RESULTS = {
    *("Audit", "Certificate", "Diagnosis", "Explanation", "Frontier", "Guarantee", "Policy", "Report"),
    *("RuleAudit", "RuleWatch", "Sensitivity", "Solution", "Status", "Step", "Verdict", "Watch"),
}


def hide_signature(_app: Any, what: str, name: str, *_: Any) -> tuple[str, None] | None:
    return ("", None) if what == "class" and name.rpartition(".")[2] in RESULTS else None


def restore_property(_app: Any, what: str, _name: str, found: Any, _options: Any, lines: list[str]) -> None:
    """Napoleon takes a sentence with a colon for "type: description"."""
    if what == "property":
        getter = getattr(found, "fget", None) or getattr(found, "func", None)
        lines[:] = [*(inspect.getdoc(getter) or "").splitlines(), ""]


def setup(app: Any) -> None:
    app.setup_extension("sphinx.ext.autosummary")  # the tables on top of API pages
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("autodoc-process-docstring", restore_property, priority=900)
