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
from bylaw.reductions._observe import CorrectedSolution, Correction

PROBED = (6.0, 4.0, 2.5, 1.5, 1.0, 0.5)  # margins in standard errors, from the widest on
CLEAR = 1.0  # a rule that clear is expected to pass
_MOST_ROWS = 100.0  # times the held-out rows; more are no answer
_ROUNDS = 5  # of the search for their number, in steps of half

# (M,): how far inside its bound a rule must be on the fitted rows, to be expected to pass on held-out ones.
Widths = Callable[[CorrectedSolution, float], Floats]


class Culprit(NamedTuple):
    """The rule that takes the room."""

    rule: str  # as stated
    conflict: tuple[str, ...]  # with which others it leaves none, as stated; none where it is alone
    rows_needed: float  # held-out rows with which all rules are expected to pass; infinite if no number is


def find_culprit(correction: Correction, widths: Widths, noise: float, n_held_out: int) -> Culprit | None:
    """The rule that leaves no room for the margins of a test; None if there is room for all of them, so that
    the held-out rows are the reason. `noise` is how many fitted rows there are for each held-out one."""
    search = _Search(correction, widths)
    every = search.statements
    if search.measure(every, noise) >= CLEAR:
        return None
    involved = {place for place in every if search.measure({place}, noise) < CLEAR}
    if not involved:  # each has room alone: those without whose margin the others have it
        involved = {place for place in every if search.measure(every - {place}, noise) >= CLEAR} or every
    needs = search.find_needs(noise)
    first, *others = sorted(involved, key=lambda place: -needs[place])
    names = [str(correction.problem.rules[place]) for place in (first, *others)]
    return Culprit(names[0], tuple(names[1:]), search.find_share(noise) * n_held_out)


class _Search:
    """Policies with margins of some statements, by their place in the problem, and the others as stated."""

    def __init__(self, correction: Correction, widths: Widths) -> None:
        self.correction, self.widths = correction, widths
        n_rules = correction.dual.n_rules - correction.spared
        self.places = correction.dual.form.places[:n_rules]
        self.statements = frozenset(self.places.tolist())

    def measure(self, statements: Collection[int], noise: float) -> float:
        """How clear the least clear rule of these statements can be expected to be in its test, at best; no
        better than clear is looked for."""
        tightened = np.isin(self.places, list(statements))
        best = -math.inf if tightened.any() else math.inf
        for margin in PROBED:
            if best >= CLEAR:
                break
            found = self._fit(margin, tightened, noise)
            clearness = (-found.rates.observed / self.widths(found, noise))[: len(tightened)]
            best = max(best, float(clearness[tightened].min()))
        return best

    def find_needs(self, noise: float) -> dict[int, float]:
        """How far inside its bound, in its own unit, each statement must be."""
        found, form = self.correction.plain, self.correction.dual.form
        widths = (self.widths(found, noise) * form.scales)[: len(self.places)]
        return {place: float(widths[self.places == place].max()) for place in self.statements}

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
