"""Linear programs over mixtures of policies, by column generation, for any number of rows.

A policy enters only by its violations v = E[c] - b, (n_rules,). A small master program finds the best mixture
of the policies found so far; its dual variables lambda give a new policy, which minimizes lambda'v, in one
pass over the rows (Dantzig and Wolfe). The cost of the mixture bounds the optimum from above, and lambda'v
bounds it from below, so the bounds are valid whenever the search stops. Several programs share the policies.
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

ROUNDING = 1e-9  # violations up to this, in the units of the form, may be rounding errors
GAP = 1e-7  # largest relative difference between the bounds at which they count as equal
_MOST_PASSES = 200  # limit of steps for one program, after which the best bounds so far are returned
_MOST_ENTRIES = 6e6  # limit of the matrix entries in all master programs for one program, likewise
_MOST_FIRST = 32  # limit of the rules whose own best policy is computed at the beginning
_MOST_NEW = 64  # limit of the rules that are added to a master program at once
_LEAST_ROOM = 100  # policies that a master program may keep, in addition to two per rule


@dataclass(frozen=True)
class MixtureProgram:
    """The problem to minimize goal'v + price'slack over mixtures with v - loosening slack <= allowed."""

    rules: NDArray[np.int64]  # indices of the rules of this program among all rules
    goal: Floats  # (n_rules,): cost of one unit of each violation
    price: Floats  # (n_slacks,): cost of one unit of each slack
    loosening: sparse.csr_array  # (len(rules), n_slacks): effect of slacks on bounds, one per rule
    allowed: float = 0.0  # violation that is allowed without slack
    least_slack: float = 0.0  # lower bound of each slack

    def worth(self, violations: Floats, prices: Floats) -> float:
        """Return the Lagrangian of a policy with these violations, (n_rules,), at prices (len(rules),)."""
        return float(self.goal @ violations + prices @ (violations[self.rules] - self.allowed))

    def cost(self, violations: Floats) -> float:
        """Return the cost of a policy with violations (n_rules,), including the slack that it needs."""
        needed = self.loosening.copy()
        needed.data = violations[self.rules][self.loosening.nonzero()[0]] / needed.data
        slack = np.full(len(self.price), self.least_slack)
        np.maximum.at(slack, needed.indices, needed.data)
        return float(self.goal @ violations + self.price @ slack)

    def project_prices(self, multipliers: Floats) -> Floats:
        """Return multipliers, (len(rules),), reduced so that more slack does not lower the Lagrangian.

        That is loosening' lambda <= price, with equality if slack may be negative.
        """
        multipliers = np.maximum(multipliers, 0.0)
        total = self.loosening.T @ multipliers
        too_much = total > (0.0 if self.least_slack < 0 else self.price)
        factor = np.where(too_much, self.price / np.where(total > 0, total, 1.0), 1.0)
        return multipliers * np.where(np.diff(self.loosening.indptr), (self.loosening > 0) @ factor, 1.0)


@dataclass(frozen=True)
class MixtureBounds:
    """An upper and a lower bound on the optimum, with a mixture and multipliers that prove them."""

    upper: float  # the cost of a mixture of policies
    violations: Floats  # (n_rules,), of that mixture
    lower: float  # no policy costs less
    multipliers: Floats  # (n_rules,): multipliers that prove the lower bound

    def within(self, gap: float) -> bool:
        return self.upper - self.lower <= gap


Stop = Callable[[MixtureBounds], bool]


class MasterProgram:
    """The linear program over mixtures of the policies found so far, restricted to some rules."""

    def __init__(self, program: MixtureProgram, known: list[Floats]) -> None:
        self.program = program
        self.known = np.array(known)  # (n_policies, n_rules): violations
        first = self.known[:, program.rules].mean(axis=0)
        self.watched = np.zeros(len(program.rules), dtype=bool)  # (len(rules),): rules of the master program
        self._watch(first)

    def _watch(self, missed: Floats) -> None:
        """Add the rules with the largest violations, `missed` (len(rules),), to the master program."""
        worst = np.argsort(-missed)[:_MOST_NEW]
        self.watched[worst[missed[worst] > ROUNDING / 10]] = True
        if not len(self.program.price):
            self.watched[:] = True  # without slack, mixtures must satisfy every rule
        self.watched[worst[:1]] = True  # slack that may be negative is unbounded without any rule

    def mix(self) -> tuple[float, Floats, Floats] | None:
        """Return value and violations of the best mixture, and prices of the rules; None if it fails."""
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
        """Add a policy with these violations; if there are too many, drop the most expensive ones."""
        worth = self.known @ self.program.goal + self.known[:, self.program.rules] @ prices
        room = _LEAST_ROOM + 2 * int(self.watched.sum())
        self.known = np.vstack([self.known[np.argsort(worth, kind="stable")[:room]], violations])


class ColumnGeneration:
    """The solver of mixture programs. It keeps the violations of all policies found so far."""

    def __init__(self, dual: Dual, multipliers: Floats | None) -> None:
        """Begin with constant decisions, best policies of single rules, and the policy of `multipliers`."""
        self.dual = dual
        form, mean = dual.form, dual.total(sum_features)[0] / dual.mass
        rules, places = form.couplings.tocoo().coords
        features, actions = np.divmod(places, form.base.shape[1])
        costs = form.couplings.data * mean[features]  # terms of the cost of each rule and action
        by_action = sparse.csr_array((costs, (rules, actions)), (dual.n_rules, form.base.shape[1]))
        constant = form.action_space.constant_decisions()
        self.known = [by_action @ decision - form.bounds for decision in constant]  # (n_rules,) each
        first = np.unique(np.linspace(0, dual.n_rules - 1, _MOST_FIRST).astype(int))
        self.known += dual.best_responses([np.eye(1, dual.n_rules, j)[0] for j in first])
        if multipliers is not None:
            self.known.append(-dual.value_and_gradient(multipliers)[1])
        self.asked: list[Floats] = []  # multipliers whose best policies were added
        self.sample = None
        if dual.source is not None and dual.blocks:
            self.sample = ColumnGeneration(dual.with_rows(dual.blocks), multipliers)

    def add_best_response(self, multipliers: Floats) -> Floats:
        """Add the policy that minimizes lambda'v, and return its violations, (n_rules,)."""
        self.asked.append(multipliers)
        self.known += self.dual.best_responses([multipliers])
        return self.known[-1]

    def solve(self, program: MixtureProgram, stop: Stop, multipliers: Floats | None = None) -> MixtureBounds:
        """Add policies until `stop` accepts the bounds of the optimum, or no new policy improves them."""
        # Solve the program on a sample first, and add its policies in one pass over all rows.
        if self.sample is not None:
            answer = self.sample.solve(program, stop, multipliers)
            self.known += self.dual.best_responses(self.sample.asked)
            self.sample.asked.clear()
            multipliers = answer.multipliers if answer.multipliers.any() else multipliers
        answer = MixtureBounds(math.inf, self.known[0], -math.inf, np.zeros(self.dual.n_rules))
        if multipliers is not None:
            answer = self._price(program, program.project_prices(multipliers[program.rules]), answer)
        # Alternate between the best mixture of known policies and the best policy at its prices.
        master, entries = MasterProgram(program, self.known), 0.0
        for _ in range(_MOST_PASSES):
            mixed = master.mix()
            entries += len(master.known) * int(master.watched.sum())
            if mixed is None or entries > _MOST_ENTRIES:
                break
            value, violations, outer = mixed
            # Improve the upper bound by the mixture.
            if (cost := program.cost(violations)) < answer.upper:
                answer = replace(answer, upper=cost, violations=violations)
            inner = answer.multipliers[program.rules] if math.isfinite(answer.lower) else outer
            new = len(self.known)
            # Add the best policy at prices between those of the mixture and of the lower bound, which is more
            # stable. If it does not improve the mixture, add the best one at the prices of the mixture.
            if not stop(answer):
                answer = self._price(program, (inner + outer) / 2, answer)
            if not stop(answer) and program.worth(self.known[-1], outer) > value - GAP / 10:
                answer = self._price(program, outer, answer)
            if stop(answer):
                break
            # Add the new policies to the master program.
            for violations in self.known[new:]:
                master.add(violations, outer)
        return answer

    def _price(self, program: MixtureProgram, prices: Floats, answer: MixtureBounds) -> MixtureBounds:
        """Add the best policy at these prices, (len(rules),), and improve the lower bound with it."""
        multipliers = program.goal.copy()
        multipliers[program.rules] += prices
        lower = program.worth(self.add_best_response(multipliers), prices)
        return answer if lower <= answer.lower else replace(answer, lower=lower, multipliers=multipliers)
