"""A solver that begins where it last ended: rules whose levels move by a little have multipliers that do."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bylaw._base.typing import Floats
from bylaw.errors import RuleError
from bylaw.language.expressions import Rule
from bylaw.program.dual import Dual
from bylaw.program.solution import Solution, Status
from bylaw.solvers.base import Callback
from bylaw.solvers.full_batch import FullBatch


@dataclass(frozen=True)
class WarmFullBatch(FullBatch):
    """The full batch solver, which remembers the price of each rule whatever its level.

    Parameters
    ----------
    max_steps : int
        in each stage.
    prices : dict
        the last price of each single rule, by its text with `level` in place of the number.
    last : list
        the last problem and its solution, until `take_excesses` was called.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> rows = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> solver = WarmFullBatch()
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), rows, solver=solver)
    >>> list(solver.prices)
    ['rejected() <= level']
    """

    prices: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    last: list[tuple[Dual, Solution]] = field(default_factory=list, compare=False, repr=False)

    def __call__(
        self,
        dual: Dual,
        *,
        tol: float = 1e-6,
        start: Floats | None = None,
        rng: np.random.Generator | None = None,
        callback: Callback | None = None,
    ) -> Solution:
        names = [name_rule(found.rule) for found in dual.form.rules] if dual.simplex is None else []
        if start is None and any(name in self.prices for name in names):
            start = np.array([self.prices.get(name, 0.0) for name in names]) * dual.form.scales
        solution = super().__call__(dual, tol=tol, start=start, rng=rng, callback=callback)
        if names and solution.status is Status.CONVERGED:
            prices = dual.form.prices(solution.multipliers)
            self.prices.update(zip(names, prices.tolist(), strict=True))
        self.last[:] = [(dual, solution)]
        return solution

    def take_excesses(self, multipliers: Floats) -> dict[str, float]:
        """By how much each single rule is exceeded, as predicted, in its own unit; all rules at once are
        cheaper than one by one. Empty if the last solution is another, or a rule is a quotient. The rows of
        the last problem are let go."""
        last = self.last.pop() if self.last else None
        if last is None or last[1].multipliers is not multipliers or last[0].form.has_quotients:
            return {}
        dual, form = last[0], last[0].form
        excesses = -dual.value_and_gradient(multipliers)[1] * form.scales
        return dict(zip(form.names, excesses.tolist(), strict=True))


def name_rule(rule: Rule) -> str:
    """What a rule is, whatever its level."""
    try:
        return rule.template
    except RuleError:  # several numbers
        return str(rule)
