from __future__ import annotations

import os

import pytest
from hypothesis import settings

from helpers.generated_rows import Rows

pytest_plugins = ["helpers.command_line"]  # fixtures for tests of commands

# Machines are noisy, so no deadlines; continuous integration repeats the same examples.
settings.register_profile("bylaw", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("bylaw")


@pytest.fixture
def rows():
    return Rows()
