"""Rows of a known distribution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bylaw import Evidence
from helpers.reference import softmax


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
