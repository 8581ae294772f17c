"""Rows of a known distribution."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bylaw import Evidence
from helpers.reference import softmax


@dataclass
class Rows:
    """Generated rows: a model of (group, label), a known group, and an old model.

    The columns do not depend on the order in which tests look at them.
    """

    n: int = 300
    K: int = 2
    S: int = 2
    seed: int = 0

    @cached_property
    def _drawn(self):
        rng = np.random.default_rng(self.seed)
        scores = rng.normal(size=(self.n, 4)) @ rng.normal(size=(4, self.S * self.K)) * 0.8
        return scores, rng.random(self.n), rng.normal(size=(self.n, self.K))

    @cached_property
    def joint(self):
        return softmax(self._drawn[0]).reshape(self.n, self.S, self.K)

    @cached_property
    def P(self):
        return self.joint.sum(axis=1)

    @cached_property
    def T(self):
        return self.joint.sum(axis=2)

    @cached_property
    def group(self):
        draws = self._drawn[1][:, None] > self.T.cumsum(axis=1)
        group = draws.sum(axis=1).clip(0, self.S - 1)
        group[: self.S] = range(self.S)
        return group

    @cached_property
    def old(self):
        return softmax(np.log(self.P) + self._drawn[2]).argmax(axis=1)

    def evidence(self, **extra):
        return Evidence(
            self.P,
            groups={"known": self.group, "hidden": dict(enumerate(self.T.T))},
            joint={"hidden": self.joint},
            references={"old": self.old},
            **extra,
        )
