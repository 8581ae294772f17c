"""Observed rates computed by hand, from probabilities of decisions, labels and groups in plain NumPy.

Nothing of the library is used but the text of the rules: not the compiler, not its rates per row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

# (n_rows, n_actions) and (n_rows,): what each decision pays on each row, and what is paid in any case.
Payments = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Outcomes:
    """What turned out on each row, and what the rates may read."""

    labels: np.ndarray  # (n_rows,), positions of classes
    groups: Mapping[str, np.ndarray]  # (n_rows,) each, also of the groups that are hidden at decision time
    references: Mapping[str, np.ndarray]  # (n_rows, n_classes) each
    costs: Mapping[str, np.ndarray]  # (n_rows, n_actions) each
    weights: np.ndarray  # (n_rows,)
    n_classes: int
    n_actions: int

    def __len__(self) -> int:
        return len(self.labels)


def pay(outcomes: Outcomes, matrix: Any, constant: float = 0.0) -> Payments:
    """A rejection pays nothing, where the matrix has no column for it."""
    paid = np.zeros((len(outcomes), outcomes.n_actions))
    paid[:, : np.shape(matrix)[-1]] = matrix
    return paid, np.full(len(outcomes), constant)


def truth(outcomes: Outcomes) -> np.ndarray:
    return np.eye(outcomes.n_classes)[outcomes.labels]


RATES: Mapping[str, Callable[..., Payments]] = {
    "error": lambda seen: pay(seen, 1 - truth(seen)),
    "selected": lambda seen, label: pay(seen, np.eye(seen.n_classes)[label]),
    "accepted": lambda seen: pay(seen, np.ones(seen.n_classes)),
    "size": lambda seen: pay(seen, np.ones(seen.n_classes)),
    "rejected": lambda seen: pay(seen, np.eye(seen.n_actions)[-1]),
    "miscoverage": lambda seen: pay(seen, -truth(seen), 1.0),
    "disagreement": lambda seen, name: pay(seen, -seen.references[name], 1.0),
    "omits": lambda seen, name: pay(seen, -seen.references[name], 1.0),
    "custom": lambda seen, name: pay(seen, seen.costs[name]),
}


def share_rows(conditions: Any, outcomes: Outcomes) -> np.ndarray | None:
    """(n_rows,): the part of each row in a mean over the rows that meet the conditions; None if none does."""
    shares = outcomes.weights.astype(float)
    for name, value in conditions:
        shares = shares * ((outcomes.labels if name == "label" else outcomes.groups[name]) == value)
    return shares / shares.sum() if shares.sum() > 0 else None


def pay_where(outcomes: Outcomes, paid: Any, action: int) -> Payments:
    """What is paid, (n_rows, n_actions), but for one decision alone."""
    return pay(outcomes, paid * np.eye(outcomes.n_actions)[action])


def meet(seen: Outcomes, label: int) -> np.ndarray:
    """(n_rows, n_actions): one where a label is both decided and true."""
    return np.outer(seen.labels == label, np.eye(seen.n_actions)[label])


# Quotients: what they divide, and what they divide by.
QUOTIENTS: Mapping[str, tuple[Callable[..., Payments], Callable[..., Payments]]] = {
    "precision": (
        lambda seen, label: pay(seen, meet(seen, label)),
        lambda seen, label: pay(seen, np.eye(seen.n_actions)[label]),
    ),
    "f1": (
        lambda seen, label: pay(seen, 2 * meet(seen, label)),
        lambda seen, label: (pay(seen, np.eye(seen.n_actions)[label])[0], 1.0 * (seen.labels == label)),
    ),
}


class Excess(NamedTuple):
    """That of a rule: a linear function of the probabilities of decisions, divided by another one where the
    rule is on a quotient."""

    paid: np.ndarray  # (n_rows, n_actions)
    constant: float
    unit: float
    whole: tuple[np.ndarray, float] | None = None  # what it is divided by

    def measure(self, probabilities: np.ndarray) -> float:
        """For probabilities (n_rows, n_actions); 0/0 is none."""
        excess, whole = (
            float((self.paid * probabilities).sum()) + self.constant,
            self.divide_by(probabilities),
        )
        return excess / whole if whole > 1e-12 else 0.0

    def divide_by(self, probabilities: np.ndarray) -> float:
        """One, unless the rule is on a quotient."""
        if self.whole is None:
            return 1.0
        return float((self.whole[0] * probabilities).sum()) + self.whole[1]


def linearize(rule: Any, outcomes: Outcomes) -> Excess | None:
    """The excess of a rule. None where no row meets a condition, or for differences of quotients."""
    rate = rule.left - rule.right if rule.sense == "<=" else rule.right - rule.left
    paid, constant, unit = np.zeros((len(outcomes), outcomes.n_actions)), rate.constant, abs(rate.constant)
    for atom, factor in rate.terms:
        shares = share_rows(atom.conditions, outcomes)
        if shares is None:
            return None
        if atom.name in QUOTIENTS or atom.decided is not None:
            if len(rate.terms) > 1:
                return None
            part, whole = (sum_up(each, shares) for each in divide(atom, outcomes))
            excess = factor * part[0] + constant * whole[0], factor * part[1] + constant * whole[1]
            return Excess(*excess, unit=max(unit, abs(factor)), whole=whole)
        amount, in_any_case = RATES[atom.name](outcomes, *atom.arguments)
        paid += factor * shares[:, None] * amount
        constant += factor * float(shares @ in_any_case)
        unit = max(unit, abs(factor) * float(np.abs(amount).max(initial=0.0)))
    return Excess(paid, constant, unit)


def divide(atom: Any, outcomes: Outcomes) -> tuple[Payments, Payments]:
    """What a quotient divides, and what it divides by."""
    if atom.name in QUOTIENTS:
        part, whole = QUOTIENTS[atom.name]
        return part(outcomes, *atom.arguments), whole(outcomes, *atom.arguments)
    paid, _ = RATES[atom.name](outcomes, *atom.arguments)
    return pay_where(outcomes, paid, atom.decided), pay_where(outcomes, np.ones_like(paid), atom.decided)


def sum_up(payments: Payments, shares: np.ndarray) -> tuple[np.ndarray, float]:
    """Of rows with these shares."""
    return shares[:, None] * payments[0], float(shares @ payments[1])


def least_miss(rules: Sequence[Any], outcomes: Outcomes, features: np.ndarray, sets: bool) -> float:
    """The smallest possible miss of the worst rule, as a part of its unit, among all functions of the
    `features` (n_rows, n_features): the exact linear program. nan if it cannot be solved."""
    _, place = np.unique(features.round(12), axis=0, return_inverse=True)
    place = place.ravel()
    n_places, n_actions = place.max() + 1, outcomes.n_actions
    gather = sparse.csr_array((np.ones(len(place)), (place, np.arange(len(place)))))
    linear = [found for rule in rules if (found := linearize(rule, outcomes)) is not None]
    excess = np.array([(gather @ found.paid).ravel() / found.unit for found in linear])
    bounds = np.array([-found.constant / found.unit for found in linear])
    one_each = sparse.kron(sparse.eye_array(n_places), np.ones((1, n_actions)))
    answer = linprog(
        np.append(np.zeros(n_places * n_actions), 1.0),
        A_ub=np.hstack([excess, -np.ones((len(linear), 1))]),
        b_ub=bounds,
        A_eq=None if sets else sparse.hstack([one_each, sparse.csr_array((n_places, 1))]),
        b_eq=None if sets else np.ones(n_places),
        bounds=[(0, 1)] * (n_places * n_actions) + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return float("nan") if answer.fun is None else float(answer.fun)
