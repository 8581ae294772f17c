"""Linear programs over mixtures of policies, on any number of rows.

Of a policy only the violations v = E[c] - b matter, (M,). A small master program mixes the policies known so
far; its duals lambda price a new one, argmin over policies of lambda'v, in one pass over the rows (Dantzig
and Wolfe). Mixtures bound the answer from above and lambda'v from below, so both ends are certain, however
early one stops. All questions share their policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from bylaw._base import Floats
from bylaw.program import Dual, sum_features

ROUNDING = 1e-9  # violations up to this, in the unit of the form, may be rounding errors
GAP = 1e-7  # between the bounds of an answer, relative
_MOST_PASSES = 200  # for one program; its bounds are kept if they have not met by then
_MOST_ENTRIES = 6e6  # of all the master programs for one program, likewise
_MOST_FIRST = 32  # rules whose own best policy is tried first
_MOST_NEW = 64  # rules that a master program takes up at once
_LEAST_ROOM = 100  # policies that it may hold


@dataclass(frozen=True)
class MixtureProgram:
    """Minimise goal'v + price'slack over policies, where v - loosening slack <= allowed, for some rules."""

    rules: NDArray[np.int64]  # (R,): which of the M
    goal: Floats  # (M,)
    price: Floats  # (S,)
    loosening: sparse.csr_array  # (R, S): at most one slack for a rule
    allowed: float = 0.0
    least_slack: float = 0.0

    def worth(self, violations: Floats, prices: Floats) -> float:
        """Return the value of a policy with these violations, (M,), at these prices of the rules, (R,)."""
        return float(self.goal @ violations + prices @ (violations[self.rules] - self.allowed))

    def cost(self, violations: Floats) -> float:
        """Return the cost of policies with these violations, (M,), and of the slack that they need."""
        needed = self.loosening.copy()
        needed.data = violations[self.rules][self.loosening.nonzero()[0]] / needed.data
        slack = np.full(len(self.price), self.least_slack)
        np.maximum.at(slack, needed.indices, needed.data)
        return float(self.goal @ violations + self.price @ slack)

    def project_prices(self, multipliers: Floats) -> Floats:
        """Return the nearest multipliers, (R,), under which no slack pays.

        That is loosening' lambda <= price, with equality if slack may be negative.
        """
        multipliers = np.maximum(multipliers, 0.0)
        total = self.loosening.T @ multipliers
        too_much = total > (0.0 if self.least_slack < 0 else self.price)
        factor = np.where(too_much, self.price / np.where(total > 0, total, 1.0), 1.0)
        return multipliers * np.where(np.diff(self.loosening.indptr), (self.loosening > 0) @ factor, 1.0)


@dataclass(frozen=True)
class MixtureBounds:
    upper: float  # what a mixture of policies achieves
    violations: Floats  # (M,), of that mixture
    lower: float  # no policy is better
    multipliers: Floats  # (M,): why not

    def within(self, gap: float) -> bool:
        return self.upper - self.lower <= gap


Stop = Callable[[MixtureBounds], bool]


class MasterProgram:
    """The small program of one program: mixtures of the policies met, under the rules that matter."""

    def __init__(self, program: MixtureProgram, known: list[Floats]) -> None:
        self.program = program
        self.known = np.array(known)  # (P, M)
        first = self.known[:, program.rules].mean(axis=0)
        self.watched = np.zeros(len(program.rules), dtype=bool)  # (R,): the others hold by themselves
        self._watch(first)

    def _watch(self, missed: Floats) -> None:
        """Add the most violated rules, (R,), to those of the master program."""
        worst = np.argsort(-missed)[:_MOST_NEW]
        self.watched[worst[missed[worst] > ROUNDING / 10]] = True
        if not len(self.program.price):
            self.watched[:] = True  # without slack, every rule must hold in every mixture
        self.watched[worst[:1]] = True  # and slack that may be negative needs one to hold it

    def mix(self) -> tuple[float, Floats, Floats] | None:
        """Return the value of the best mixture, its violations (M,), and the prices of the rules, (R,)."""
        program, known = self.program, self.known
        rules, n_slacks = program.rules[self.watched], len(program.price)
        best = linprog(
            np.concatenate([known @ program.goal, program.price]),
            A_ub=sparse.hstack([sparse.csr_array(known[:, rules].T), -program.loosening[self.watched]]),
            b_ub=np.full(len(rules), program.allowed),
            A_eq=np.concatenate([np.ones(len(known)), np.zeros(n_slacks)])[None],
            b_eq=[1.0],
            bounds=[(0, None)] * len(known) + [(program.least_slack, None)] * n_slacks,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if best.status != 0:
            return None
        shares = np.maximum(best.x[: len(known)], 0.0)
        violations = shares @ known / shares.sum()
        prices = np.zeros(len(program.rules))
        prices[self.watched] = -best.ineqlin.marginals
        self._watch(violations[program.rules] - program.loosening @ best.x[len(known) :])
        return best.fun, violations, program.project_prices(prices)

    def add(self, violations: Floats, prices: Floats) -> None:
        """Add a policy, and drop those that are the most expensive at these prices, (R,)."""
        worth = self.known @ self.program.goal + self.known[:, self.program.rules] @ prices
        room = _LEAST_ROOM + 2 * int(self.watched.sum())
        self.known = np.vstack([self.known[np.argsort(worth, kind="stable")[:room]], violations])


class ColumnGeneration:
    """The violations of the policies met so far, which every program adds to."""

    def __init__(self, dual: Dual, multipliers: Floats | None) -> None:
        """Begin with constant decisions, the best policies of single rules, and that of a solver."""
        self.dual = dual
        form, mean = dual.form, dual.total(sum_features)[0] / dual.mass
        rules, places = form.couplings.tocoo().coords
        features, actions = np.divmod(places, form.base.shape[1])
        costs = form.couplings.data * mean[features]  # of each rule, by action; (M, A) when they are added up
        by_action = sparse.csr_array((costs, (rules, actions)), (dual.n_rules, form.base.shape[1]))
        constant = form.action_space.constant_decisions()
        self.known = [by_action @ decision - form.bounds for decision in constant]  # (M,) each
        first = np.unique(np.linspace(0, dual.n_rules - 1, _MOST_FIRST).astype(int))
        self.known += dual.best_responses([np.eye(1, dual.n_rules, j)[0] for j in first])
        if multipliers is not None:
            self.known.append(-dual.value_and_gradient(multipliers)[1])
        self.asked: list[Floats] = []  # multipliers whose best policies were met
        self.sample = None
        if dual.source is not None and dual.blocks:
            self.sample = ColumnGeneration(dual.with_rows(dual.blocks), multipliers)

    def add_best_response(self, multipliers: Floats) -> Floats:
        """Return the violations, (M,), of the policy of least lambda'v, and add it."""
        self.asked.append(multipliers)
        self.known += self.dual.best_responses([multipliers])
        return self.known[-1]

    def solve(self, program: MixtureProgram, stop: Stop, multipliers: Floats | None = None) -> MixtureBounds:
        """Meet policies until the bounds of the answer are good enough, or no policy helps."""
        if self.sample is not None:  # all that a sample asks for, in one walk over all rows
            answer = self.sample.solve(program, stop, multipliers)
            self.known += self.dual.best_responses(self.sample.asked)
            self.sample.asked.clear()
            multipliers = answer.multipliers if answer.multipliers.any() else multipliers
        answer = MixtureBounds(math.inf, self.known[0], -math.inf, np.zeros(self.dual.n_rules))
        if multipliers is not None:
            answer = self._price(program, program.project_prices(multipliers[program.rules]), answer)
        master, entries = MasterProgram(program, self.known), 0.0
        for _ in range(_MOST_PASSES):
            mixed = master.mix()
            entries += len(master.known) * int(master.watched.sum())
            if mixed is None or entries > _MOST_ENTRIES:
                break
            value, violations, outer = mixed
            if (cost := program.cost(violations)) < answer.upper:
                answer = replace(answer, upper=cost, violations=violations)
            inner = answer.multipliers[program.rules] if math.isfinite(answer.lower) else outer
            new = len(self.known)
            if not stop(answer):  # halfway to the best prices known: without, they swing between extremes
                answer = self._price(program, (inner + outer) / 2, answer)
            if not stop(answer) and program.worth(self.known[-1], outer) > value - GAP / 10:
                answer = self._price(program, outer, answer)  # so far inward, nothing new was met
            if stop(answer):
                break
            for violations in self.known[new:]:
                master.add(violations, outer)
        return answer

    def _price(self, program: MixtureProgram, prices: Floats, answer: MixtureBounds) -> MixtureBounds:
        """Meet the best policy at these prices, (R,); they bound the answer from below."""
        multipliers = program.goal.copy()
        multipliers[program.rules] += prices
        lower = program.worth(self.add_best_response(multipliers), prices)
        return answer if lower <= answer.lower else replace(answer, lower=lower, multipliers=multipliers)
