from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

import bylaw
from bylaw._base import _runtime as versions


def test_versions_of_all_that_a_report_of_a_problem_names(capsys):
    bylaw.show_versions()
    lines = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if len(line.split()) > 1
    )
    assert lines["python"] == platform.python_version()
    assert lines["numpy"] == np.__version__
    assert lines["bylaw"] == bylaw.__version__
    assert {"scipy", "narwhals", "threadpoolctl", "scikit-learn", "pyarrow", "polars"} <= set(lines)
    assert "pytest" not in lines  # of those who work on the library


@pytest.mark.parametrize("known", [True, False])
def test_what_is_not_installed_is_said(capsys, monkeypatch, known):
    def refuse(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", refuse)
    if not known:
        monkeypatch.setattr(versions, "requires", refuse)
    bylaw.show_versions()
    shown = capsys.readouterr().out
    assert re.search(r"^  bylaw +not installed$", shown, re.MULTILINE)
    assert ("polars" in shown) is known
