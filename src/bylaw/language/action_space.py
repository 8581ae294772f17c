"""What a decision is: a label, a label or a rejection, or a set of labels; and its soft law."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw.errors import RuleError
from bylaw.language.expressions import KIND_IN_WORDS, REJECT, Kind, Reject

# exp(-40) is below the rounding error of a probability: such actions get probability zero.
NEGLIGIBLE = -40.0
_FACTORS = 1000  # numbers up to 2 whose product is a finite float


@dataclass(frozen=True)
class Decisions:
    """The decision space: its kind, the classes, and the label of a rejection."""

    kind: Kind
    classes: tuple[Value, ...]
    reject: Value = "reject"

    def __post_init__(self) -> None:
        if self.kind not in KIND_IN_WORDS:
            raise RuleError(f"decisions must be 'labels', 'reject' or 'sets', not {self.kind!r}")
        if self.kind == "reject" and str(self.reject) in map(str, self.classes):
            raise RuleError(
                f"the label of a rejection, {self.reject!r}, is also a class; choose another with reject="
            )

    @property
    def actions(self) -> tuple[Value, ...]:
        """The labels, then the label of a rejection if there is one."""
        return (*self.classes, self.reject) if self.kind == "reject" else self.classes

    def position(self, action: Value | Reject) -> int:
        return len(self.classes) if action is REJECT else self.classes.index(action)  # type: ignore[arg-type]

    @property
    def entropy(self) -> float:
        """The largest entropy of one decision: log|A|, or K log 2 for sets."""
        count = len(self.actions)
        return count * math.log(2) if self.kind == "sets" else math.log(count)

    def soften(self, scores: Floats) -> Floats:
        """Turn scores (n_actions, n_rows), times beta, into probabilities in place.

        Returns the potential of each row, (n_rows,): log-sum-exp, or the sum of softplus.
        """
        return _sigmoid(scores) if self.kind == "sets" else _softmax(scores)

    def sureness(self, law: Floats) -> Floats:
        """(n_rows,): the chance of the likeliest action, for a law (n_rows, n_actions); of a set, of what its
        least settled label is likeliest to be."""
        return np.maximum(law, 1 - law).min(axis=1) if self.kind == "sets" else law.max(axis=1)

    def least(self, losses: Floats) -> Floats:
        """(n_rows,): the loss of the best decision on each row."""
        return np.minimum(losses, 0.0).sum(axis=0) if self.kind == "sets" else losses.min(axis=0)


def _softmax(scores: Floats) -> Floats:
    peak = scores.max(axis=0)
    scores -= peak
    _exp_or_zero(scores)
    total = scores.sum(axis=0)
    scores /= total
    return np.log(total, out=total) + peak


def _exp_or_zero(scores: Floats) -> None:
    """exp in place, zero where negligible. At a large beta almost every row is decided, and
    only few entries need exp; both ways give the same bits."""
    near = scores > NEGLIGIBLE
    if np.count_nonzero(near) > near.size // 3:
        np.exp(scores, out=scores)
        scores *= near
        return
    flat = scores.reshape(-1)
    places = np.flatnonzero(near)
    terms = np.exp(flat[places])
    flat.fill(0.0)
    flat[places] = terms


def _sigmoid(scores: Floats) -> Floats:
    included = scores > 0
    potential = np.where(included, scores, 0.0).sum(axis=0)
    np.negative(np.abs(scores, out=scores), out=scores)
    _exp_or_zero(scores)
    above_one = 1.0 + scores
    for start in range(0, len(scores), _FACTORS):  # one log of a product instead of many logs
        potential += np.log(above_one[start : start + _FACTORS].prod(axis=0))
    np.copyto(scores, 1.0, where=included)
    scores /= above_one
    return potential
