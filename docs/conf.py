"""Sphinx: pages in Markdown, the API from docstrings."""

project = "bylaw"
author = "The bylaw developers"
copyright = "2026, the bylaw developers"  # noqa: A001
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "bylaw"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_mock_imports = ["onnx"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
