"""Collect tests quickly. A plugin, since hooks of a conftest do not apply to files outside of its folder."""

from __future__ import annotations

import atexit
import gc

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for examples only in sources that have some: importing all others takes seconds."""
    collectors = yield
    if "src" in file_path.parts and ">>> " in file_path.read_text(encoding="utf-8"):
        return collectors
    return [found for found in collectors if not isinstance(found, DoctestModule)]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without the garbage collector, which would look at thousands of new tests again and again.

    Modules and tests stay until the end, so that later collections need not look at them either.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # DuckDB's bindings would report what is frozen as leaked
        gc.enable()
