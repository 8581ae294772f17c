"""The examples in docstrings of audits, frontiers and reports run as they are printed."""

from __future__ import annotations

import doctest
import importlib

import pytest

from bylaw import Audit, Frontier, RuleAudit, Verdict, audit, frontier
from bylaw.report import Report, report

MODULES = ["testing._audit", "testing._costs", "testing._reliability", "testing._verdicts"]
MODULES += ["fitting._frontier", "report._document"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    found = doctest.testmod(importlib.import_module(f"bylaw.{name}"))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("item", [Audit, Frontier, Report, RuleAudit, Verdict, audit, frontier, report])
def test_public_names_have_an_example(item):
    assert ">>> " in item.__doc__
    if item is not Verdict:
        assert "Parameters\n    ----------" in item.__doc__
