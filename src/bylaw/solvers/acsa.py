"""AC-SA, the accelerated stochastic approximation of the paper, alone or in stages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bylaw._base.files import Node
from bylaw._base.typing import Floats
from bylaw._base.validation import check_positive
from bylaw.errors import OptionError
from bylaw.solvers.oracle import Oracle, SampledRows, kernels


@dataclass(frozen=True)
class Plan:
    """Stages of AC-SA on F plus one more pull towards the last answer at each stage.

    Stage j runs `length` steps with strong convexity mus[j], and regularises F by
    mus[i]/2 |lambda - centre_i|^2 for every i <= j.
    """

    mus: tuple[float, ...]
    length: int
    smoothness: float

    @property
    def steps(self) -> int:
        return self.length * len(self.mus)


@dataclass
class AcceleratedState:
    """Where AC-SA is: everything it needs to go on, bit for bit."""

    plan: Plan
    point: Floats  # lambda_t
    average: Floats  # lambda_t^ag
    stage: int = 0
    taken: int = 0  # steps in this stage
    centres: list[Floats] = field(default_factory=list)

    @classmethod
    def begin(cls, plan: Plan, start: Floats) -> AcceleratedState:
        return cls(plan, start.copy(), start.copy(), centres=[start.copy()])

    @property
    def steps(self) -> int:
        return self.stage * self.plan.length + self.taken

    @property
    def answer(self) -> Floats:
        return self.average

    def advance(self, rows: SampledRows) -> None:
        """One step per row, in order; rows beyond the plan are left alone."""
        first = 0
        while first < len(rows.weights) and self.steps < self.plan.steps:
            count = min(len(rows.weights) - first, self.plan.length - self.taken)
            self._run(rows, slice(first, first + count))
            first += count

    def _run(self, rows: SampledRows, part: slice) -> None:
        mus = np.array(self.plan.mus[: self.stage + 1])
        anchor = mus @ np.array(self.centres)
        kernels().accelerate(
            rows.features[part], rows.weights[part], rows.problem, self.taken, self.plan.smoothness,
            mus[-1], mus.sum(), anchor, self.point, self.average,
        )  # fmt: skip
        self.taken += part.stop - part.start
        if self.taken == self.plan.length and self.stage + 1 < len(self.plan.mus):
            self.stage, self.taken = self.stage + 1, 0
            self.point = self.average.copy()
            self.centres.append(self.average.copy())

    def state(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "mus": list(self.plan.mus),
            "length": self.plan.length,
            "smoothness": self.plan.smoothness,
            "stage": self.stage,
            "taken": self.taken,
            "point": self.point.tolist(),
            "average": self.average.tolist(),
            "centres": [centre.tolist() for centre in self.centres],
        }

    @classmethod
    def from_state(cls, state: Node, n_rules: int) -> AcceleratedState:
        mus = tuple(node.positive() for node in state["mus"].list())
        walk = cls(
            plan=Plan(mus, state["length"].count(), state["smoothness"].positive()),
            point=state["point"].vector(n_rules),
            average=state["average"].vector(n_rules),
            stage=state["stage"].count(),
            taken=state["taken"].count(),
            centres=[node.vector(n_rules) for node in state["centres"].list()],
        )
        if walk.stage >= len(mus) or len(walk.centres) != walk.stage + 1 or walk.taken > walk.plan.length:
            state.fail("a plan and a place in it")
        if min(walk.point.min(initial=0), walk.average.min(initial=0)) < 0:
            state.fail("a walk over multipliers >= 0")
        return walk


@dataclass(frozen=True)
class StagedOptimizer(ABC):
    """An optimiser that is a plan of AC-SA stages. mu defaults to 2 sigma^2 / beta."""

    mu: float | None = None

    @abstractmethod
    def plan(self, sigma2: float, smoothness: float, steps: int) -> Plan:
        """The stages, for these constants and this many steps."""

    def begin(self, sigma2: float, smoothness: float, steps: int, start: Floats) -> AcceleratedState:
        return AcceleratedState.begin(self.plan(sigma2, smoothness, steps), start)

    def resume(self, state: Node, n_rules: int) -> AcceleratedState:
        return AcceleratedState.from_state(state, n_rules)

    def __call__(
        self, oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: Floats
    ) -> Floats:
        return oracle.run(self.begin(sigma2, smoothness, steps, start), steps)

    def _mu(self, sigma2: float, smoothness: float) -> float:
        """2 sigma^2 / beta, where L = 2 beta sigma^2."""
        if not smoothness > 0:
            raise OptionError("no rule depends on the decisions of these rows: sigma^2 is zero")
        return 4 * sigma2**2 / smoothness if self.mu is None else check_positive(self.mu, "mu")


@dataclass(frozen=True)
class ACSA(StagedOptimizer):
    """One run of AC-SA, with a pull of mu/2 squared distance to the start: the first stage of SGD3."""

    def plan(self, sigma2: float, smoothness: float, steps: int) -> Plan:
        mu = self._mu(sigma2, smoothness)
        return Plan((mu,), steps, 2 * (smoothness + mu))
