"""SGD3, the paper's algorithm: stages of AC-SA that make the gradient mapping small."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bylaw.errors import OptionError, Remedy
from bylaw.solvers.acsa import Plan, StagedOptimizer


@dataclass(frozen=True)
class SGD3(StagedOptimizer):
    """J = floor(log2(L / mu)) stages of AC-SA with T / J steps each; mu doubles, and every answer
    becomes one more centre of regularisation."""

    def plan(self, sigma2: float, smoothness: float, steps: int) -> Plan:
        mu = self._mu(sigma2, smoothness)
        stages = math.floor(math.log2(smoothness / mu) + 1e-9)  # powers of two round either way
        if stages < 1:
            raise OptionError(
                f"sgd3 needs L >= 2 mu, but L = {smoothness:.3g} and mu = {mu:.3g}: raise beta "
                "(the default grows with the number of rows) or lower mu",
                Remedy("choose_solver", "full_batch"),
            )
        needed = 4 * math.sqrt(smoothness / mu) * stages
        if steps <= needed:
            raise OptionError(
                f"sgd3 needs more than {math.floor(needed)} steps at beta = {smoothness / (2 * sigma2):.4g} "
                f"and has {steps}: give it {math.floor(needed / steps) + 1} times as many rows or passes, "
                "or a smaller beta"
            )
        return Plan(tuple(mu * 2.0**j for j in range(stages)), steps // stages, 2 * (smoothness + mu))
