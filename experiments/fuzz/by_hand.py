"""Observed rates computed by hand, from probabilities of decisions, labels and groups in plain NumPy.

Nothing of the library is used but the text of the rules: not the compiler, not its rates per row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def linearize(rule: Any, outcomes: Outcomes) -> tuple[np.ndarray, float, float] | None:
    """The excess of a rule as a linear function of the probabilities of decisions: coefficients
    (n_rows, n_actions) and a constant; then its unit. None where no row meets a condition."""
    rate = rule.left - rule.right if rule.sense == "<=" else rule.right - rule.left
    coefficients, constant, unit = (
        np.zeros((len(outcomes), outcomes.n_actions)),
        rate.constant,
        abs(rate.constant),
    )
    for atom, factor in rate.terms:
        paid, in_any_case = RATES[atom.name](outcomes, *atom.arguments)
        shares = share_rows(atom.conditions, outcomes)
        if shares is None:
            return None
        coefficients += factor * shares[:, None] * paid
        constant += factor * float(shares @ in_any_case)
        unit = max(unit, abs(factor) * float(np.abs(paid).max(initial=0.0)))
    return coefficients, constant, unit


def least_miss(rules: Sequence[Any], outcomes: Outcomes, features: np.ndarray, sets: bool) -> float:
    """The smallest possible miss of the worst rule, as a part of its unit, among all functions of the
    `features` (n_rows, n_features): the exact linear program. nan if it cannot be solved."""
    _, place = np.unique(features.round(12), axis=0, return_inverse=True)
    place = place.ravel()
    n_places, n_actions = place.max() + 1, outcomes.n_actions
    gather = sparse.csr_array((np.ones(len(place)), (place, np.arange(len(place)))))
    linear = [found for rule in rules if (found := linearize(rule, outcomes)) is not None]
    excess = np.array([(gather @ paid).ravel() / unit for paid, _, unit in linear])
    bounds = np.array([-constant / unit for _, constant, unit in linear])
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
