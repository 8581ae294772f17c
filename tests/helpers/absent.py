"""Programs and data that tests need and a machine may not have, and what a run says about them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NoReturn

import pytest

_REASON = re.compile(r"needs ([^:]+): (.+)")
_APT = "apt-get install "


def skip_for_want_of(what: str, remedy: str) -> NoReturn:
    """Skip a test that needs `what`, which `remedy` provides; continuous integration must have all of it."""
    reason = f"needs {what}: {remedy}"
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def summarize_skips(reasons: Iterable[str]) -> str:
    """Return one line that counts the tests skipped for want of something, with what installs it; "" if none.

    >>> summarize_skips(2 * ["Skipped: needs Chromium: apt-get install chromium"])
    'skipped for want of: Chromium (2 tests): apt-get install chromium'
    """
    counts: dict[str, int] = {}
    remedies: dict[str, None] = {}
    for found in filter(None, map(_REASON.search, reasons)):
        counts[found[1]] = counts.get(found[1], 0) + 1
        remedies[found[2]] = None
    if not counts:
        return ""
    absent = ", ".join(f"{what} ({n} test{'s' * (n > 1)})" for what, n in counts.items())
    packages = [remedy.removeprefix(_APT) for remedy in remedies if remedy.startswith(_APT)]
    commands = [_APT + " ".join(packages)] * bool(packages)
    commands += [remedy for remedy in remedies if not remedy.startswith(_APT)]
    return f"skipped for want of: {absent}: {'; '.join(commands)}"
