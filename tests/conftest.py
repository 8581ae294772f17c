from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from bylaw import Evidence
from reference import softmax

pytest_plugins = ["command_line"]  # fixtures for tests of commands

# Machines are noisy, so no deadlines; continuous integration repeats the same examples.
settings.register_profile("bylaw", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("bylaw")

DATA = Path(__file__).parents[2] / "shared" / "data"


@dataclass
class Rows:
    """Generated rows: a model of (group, label), a known group, and an old model."""

    n: int = 300
    K: int = 2
    S: int = 2
    seed: int = 0

    @cached_property
    def _rng(self):
        return np.random.default_rng(self.seed)

    @cached_property
    def joint(self):
        x = self._rng.normal(size=(self.n, 4))
        scores = x @ self._rng.normal(size=(4, self.S * self.K)) * 0.8
        return softmax(scores).reshape(self.n, self.S, self.K)

    @cached_property
    def P(self):
        return self.joint.sum(axis=1)

    @cached_property
    def T(self):
        return self.joint.sum(axis=2)

    @cached_property
    def group(self):
        draws = self._rng.random(self.n)[:, None] > self.T.cumsum(axis=1)
        group = draws.sum(axis=1).clip(0, self.S - 1)
        group[: self.S] = range(self.S)
        return group

    @cached_property
    def old(self):
        return softmax(np.log(self.P) + self._rng.normal(size=self.P.shape)).argmax(axis=1)

    def evidence(self, **extra):
        return Evidence(
            self.P,
            groups={"known": self.group, "hidden": dict(enumerate(self.T.T))},
            joint={"hidden": self.joint},
            references={"old": self.old},
            **extra,
        )


@pytest.fixture
def rows():
    return Rows()


def shared(name: str) -> Path:
    """A real data set; tests skip where it is not at hand."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"needs the data set {name} beside the project")
    return path
