from __future__ import annotations

import os

import pytest
from hypothesis import settings

from bylaw.policy import fingerprint
from helpers.generated_rows import Rows

fingerprint._SECRET = bytes(32)  # the same noise in every run
pytest_plugins = ["helpers.command_line"]  # fixtures for tests of commands

# Machines are noisy, so no deadlines; continuous integration repeats the same examples.
settings.register_profile("bylaw", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("bylaw")


@pytest.fixture
def rows():
    return Rows()
