from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from helpers.absent import summarize_skips
from helpers.generated_rows import Rows

pytest_plugins = ["helpers.collection", "helpers.command_line"]

# Machines are noisy, so no deadlines. A few examples are enough, since every run draws others: only those of
# continuous integration are the same each time.
settings.register_profile("bylaw", deadline=None, max_examples=20, derandomize="CI" in os.environ)
settings.load_profile("bylaw")


@pytest.fixture
def rows():
    return Rows()


def pytest_addoption(parser):
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run test modules, and their tests, in another order"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Shuffle modules and the tests of each; the seed is given, so that all workers have the same order."""
    seed = config.getoption("shuffle", None)
    if seed is None:
        return
    modules = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    order, rng = list(modules.values()), random.Random(seed)
    rng.shuffle(order)
    for tests in order:
        rng.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


class ModuleScheduling(LoadScopeScheduling):
    """Give whole modules to workers, and all tests on one engine to one worker, so that it starts once.

    The mark xdist_group would do that, but pytest-xdist 3.8 ignores it under pytest 9.2.
    """

    def _split_scope(self, nodeid):
        module, _, test = nodeid.partition("::")
        engine = next((name for name in ("spark", "dask") if name in test), None)
        return engine if engine and module.startswith("tests/engines/") else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return ModuleScheduling(config, log)


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    line = summarize_skips(
        str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)
    )
    if line:
        terminalreporter.write_line(line)
