"""Why no policy was certified: which rule takes the room, and how many held-out rows would do.

The test that fails names the rule that was tested, which need not be the reason: rules are tightened
together, and one whose margin takes all the room leaves the others just met. So each rule is tightened by
itself, with the others as stated, and all are but one; the fitted rows tell how clear the tests of such
policies can be expected to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.fitting.bias_correction import CorrectedSolution, Correction

PROBED = (6.0, 4.0, 2.5, 1.5)  # margins in standard errors, from the widest on
CLEAR = 1.0  # a rule that clear is expected to pass
_MOST_ROWS = 4096.0  # times the held-out rows; more are no answer
_ROUNDS = 5  # of the search for their number, in steps of half

# (M,): how far inside its bound each rule is on the fitted rows, over the width of a bound on held-out rows.
Clearness = Callable[[CorrectedSolution, float], Floats]


class Culprit(NamedTuple):
    """The rule that takes the room."""

    rule: str  # as stated
    conflict: tuple[str, ...]  # with which others it leaves none, as stated; none where it is alone
    rows_needed: float  # held-out rows with which all rules are expected to pass; infinite if no number is


def find_culprit(
    correction: Correction, clearness: Clearness, noise: float, n_held_out: int
) -> Culprit | None:
    """The rule that leaves no room for the margins of a test; None if there is room for all of them, so that
    the held-out rows are the reason. `noise` is how many fitted rows there are for each held-out one."""
    search = _Search(correction, clearness)
    every = search.statements
    if search.measure(every, noise) >= CLEAR:
        return None
    names = {place: str(correction.problem.rules[place]) for place in every}
    needed = search.find_share(noise) * n_held_out
    alone = {place: search.measure({place}, noise) for place in every}
    worst = min(alone, key=alone.__getitem__)
    if alone[worst] < CLEAR:
        return Culprit(names[worst], (), needed)
    without = {place: search.measure(every - {place}, noise) for place in every}
    taker = max(without, key=without.__getitem__)
    involved = {place for place, clear in without.items() if clear >= CLEAR} or every
    return Culprit(names[taker], tuple(names[place] for place in sorted(involved - {taker})), needed)


class _Search:
    """Policies with margins of some statements, by their place in the problem, and the others as stated."""

    def __init__(self, correction: Correction, clearness: Clearness) -> None:
        self.correction, self.clearness = correction, clearness
        n_rules = correction.dual.n_rules - correction.spared
        self.places = correction.dual.form.places[:n_rules]
        self.statements = frozenset(self.places.tolist())

    def measure(self, statements: Collection[int], noise: float) -> float:
        """How clear the least clear rule of these statements can be expected to be in its test, at best."""
        tightened = np.isin(self.places, list(statements))
        if not tightened.any():
            return math.inf
        best = -math.inf
        for margin in PROBED:
            found = self._fit(margin, tightened, noise)
            best = max(best, float(self.clearness(found, noise)[: len(tightened)][tightened].min()))
        return best

    def _fit(self, margin: float, tightened: np.ndarray, noise: float) -> CorrectedSolution:
        correction = self.correction
        shares = np.zeros(correction.dual.n_rules)
        shares[: len(tightened)] = tightened
        most = correction.make_target(margin, noise).cut(shares)
        return correction.fit(margin, held_out=noise, most=most)

    def find_share(self, noise: float) -> float:
        """Times how many held-out rows all rules are expected to pass; infinite if no number would do."""
        low, high = 0.0, math.log2(_MOST_ROWS)
        if self.measure(self.statements, noise / _MOST_ROWS) < CLEAR:
            return math.inf
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            clear = self.measure(self.statements, noise / 2**middle) >= CLEAR
            low, high = (low, middle) if clear else (middle, high)
        return 2**high
