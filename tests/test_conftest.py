"""Options and lines that tests/conftest.py adds to a run of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import pytest_collection_modifyitems
from helpers.absent import summarize_skips

ROOT = Path(__file__).parents[1]


def test_modules_and_their_tests_are_shuffled_by_a_seed():
    def order(seed):
        items = [SimpleNamespace(path=f"module {i}", name=j) for i in range(6) for j in range(5)]
        pytest_collection_modifyitems(SimpleNamespace(getoption=lambda *_: seed), items)
        return [(item.path, item.name) for item in items]

    plain, once = order(None), order(3)
    assert once == order(3)
    assert len({tuple(order(seed)) for seed in (None, 1, 2, 3)}) == 4
    assert sorted(once) == plain
    modules = [path for path, _ in once]
    assert modules[::5] != [path for path, _ in plain[::5]]
    assert modules == [path for path in modules[::5] for _ in range(5)]  # each module stays together


def test_one_line_lists_what_is_absent():
    reasons = [
        *["Skipped: needs PostgreSQL: apt-get install postgresql"] * 12,
        *["Skipped: needs Chromium: apt-get install chromium"] * 2,
        "Skipped: needs the data set tweets.csv: put it into /data",
        "Skipped: files are no frames",
    ]
    assert summarize_skips(reasons) == (
        "skipped for want of: PostgreSQL (12 tests), Chromium (2 tests), the data set tweets.csv (1 test): "
        "apt-get install postgresql chromium; put it into /data"
    )
    assert summarize_skips(reasons[-1:]) == ""


@pytest.mark.slow
def test_a_run_without_a_browser_ends_with_that_line():
    """Also where workers run the tests."""
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "--shuffle", "1"]
    command += ["tests/report/test_browser.py", "-k", "printed"]
    here = {name: value for name, value in os.environ.items() if name != "CI"} | {"PATH": ""}
    out = subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, check=True).stdout
    assert "tests): apt-get install chromium\n" in out.replace("test):", "tests):")
    assert "skipped for want of: Chromium (" in out
