"""Sets of labels under rules that are apart: one root of one increasing function for each rule.

The derivative of the dual in a rule's multiplier depends on no other one and increases, so that brackets and
Newton steps find all roots together. A few rows tell where they about are; then one pass over all rows leaves
the few labels near the threshold, a quantile in all but name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bylaw._base.typing import Floats
from bylaw.program.dual import Dual
from bylaw.program.observed_rates import ObservedRates, RateExcess, Target
from bylaw.program.solution import Solution, Status, Step
from bylaw.solvers.base import Callback, gradient_mapping
from bylaw.solvers.label_items import LabelItems, NearItems, find_separate_rules

_SAMPLE_ITEMS = 2**17  # labels of rows that tell about where the roots are
_SAMPLE_ROWS = 100
_LARGEST = 1e7  # multipliers beyond this many units of the loss lead nowhere
_SMALLEST = 1e-7  # units of the loss: a first guess of a root that is zero on the sample
_FEWER = 4  # times fewer rows are a sample that pays
_OFF = 1.2  # times that a root may be off on the sample
_WIDER = 8.0  # times that a bracket grows which missed the root
_WIDENINGS = 4
_PRECISION = 1e-5  # of the tolerance: steps are cheap
_ROUGH = 0.02  # relative width of a bracket on the sample
_ROUNDING = 4 * np.finfo(float).eps
_MANY = 1000  # near items, from which on it pays to sort out more
_HALVINGS = 60  # of brackets of prices as observed; the first ones widen them
_PRICED = 1e-6  # multipliers below this share of the loss's unit are none
_NARROW = 3e-3  # relative width of a bracket of a price as observed: a few rows lie in it


def solve_separable(
    dual: Dual, *, tol: float, max_steps: int = 1000, callback: Callback | None = None
) -> Solution | None:
    """The minimum of a dual over sets whose rules are apart; None for any other dual, for rows that live
    elsewhere, and where roots are out of reach, as those of rules that conflict are."""
    rules = find_separate_rules(dual.form)
    if rules is None or dual.ridge or not dual.n_rules or dual.source is not None:
        return None
    search = _Search(dual, tol, max_steps, callback)
    sample, zeros = _sample(dual, len(rules)), np.zeros(dual.n_rules)
    near = search.bracket(LabelItems(sample, rules), zeros, zeros + _LARGEST * search.unit)
    if near is not None and sample is not dual:
        guess = search.find(near, _ROUGH)
        high = np.maximum(_OFF * guess, _SMALLEST * search.unit)
        near = search.bracket(LabelItems(dual, rules), guess / _OFF, high)
    return None if near is None else search.conclude(search.find(near, _ROUNDING))


def _sample(dual: Dual, n_labels: int) -> Dual:
    """Rows spread evenly over all, or the dual itself where it has not many more."""
    step = dual.n_rows // max(_SAMPLE_ITEMS // n_labels, _SAMPLE_ROWS)
    if step < _FEWER:
        return dual
    return dual.with_rows([block.rows(slice(i % step, None, step)) for i, block in enumerate(dual.blocks)])


class _Search:
    """Looks at the dual's derivatives on some items, and remembers the last look."""

    def __init__(self, dual: Dual, tol: float, max_steps: int, callback: Callback | None) -> None:
        self.dual, self.tol, self.max_steps, self.callback = dual, tol, max_steps, callback
        self.unit = max(dual.loss_unit, 1 / dual.beta)
        self.trace: list[Step] = []

    def bracket(self, items: LabelItems, low: Floats, high: Floats) -> NearItems | None:
        """The items near the threshold in a range that has the roots: this one, or a wider one; None where
        none is found. The root of a derivative that is positive everywhere is zero."""
        most = _LARGEST * self.unit
        for _ in range(_WIDENINGS):
            near = items.screen(low, high)
            below, above = self._look(near, low)[0] >= 0, self._look(near, high)[0] < 0
            if not (below & (low > 0) | above).any():
                return near.narrow(low, np.where(below, low, high))
            if (above & (high >= most)).any():
                return None
            low = np.where(below, np.where(low > _SMALLEST * self.unit, low / _WIDER, 0.0), low)
            high = np.where(above, np.minimum(_WIDER * high, most), high)
        return None

    def find(self, near: NearItems, precision: float) -> Floats:
        """(M,): the roots in the range of these items, to the tolerance or in brackets of this relative
        width, or as far as the steps suffice."""
        low, high = near.low, near.high
        point, before = self._halve(low, high), np.full(len(low), np.inf)
        for _ in range(self.max_steps):
            gradient, curvature = self._look(near, point)
            low, high = np.where(gradient < 0, point, low), np.where(gradient >= 0, point, high)
            done = (abs(gradient) <= _PRECISION * self.tol) | (high - low <= precision * high)
            if done.all():
                break
            if len(near.losses) > _MANY:
                near = near.narrow(low, high)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = point - gradient / curvature
            trusted = (newton > low) & (newton < high) & (abs(gradient) < before / 2)
            move = np.where(trusted, newton, self._halve(low, high))
            point, before = np.where(done, point, move), abs(gradient)
        return point

    def _halve(self, low: Floats, high: Floats) -> Floats:
        """The geometric mean, of which zero has none."""
        floor = np.where(low > 0, low, np.minimum(_SMALLEST * self.unit, high / 4))
        return np.sqrt(floor) * np.sqrt(high)

    def conclude(self, multipliers: Floats) -> Solution | None:
        """The answer of the last look, if it is good enough."""
        *_, value, norm = self.trace[-1]
        if norm > self.tol:
            return None
        return Solution(multipliers, Status.CONVERGED, norm, value, len(self.trace), tuple(self.trace))

    def _look(self, near: NearItems, point: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives in each multiplier, (M,)."""
        form, sums = self.dual.form, near.sum(point)
        gradient = form.bounds - sums.costs / near.mass
        value = sums.potential / near.mass + float(form.bounds @ point) - form.base_constant
        norm = float(np.linalg.norm(gradient_mapping(point, gradient, self.dual.loss_unit)))
        self.trace.append(Step(len(self.trace), near.mass, near.beta, value, norm))
        if self.callback is not None:
            self.callback(self.trace[-1])
        return gradient, sums.curvature / near.mass


def bisect_observed(
    dual: Dual, rates: ObservedRates, target: Target, tolerance: Floats, begin: Floats
) -> Floats:
    """Return multipliers at which each rule of a separable dual just satisfies its target as observed, (M,).

    No rule's rate depends on another rule's multiplier, so that brackets of all of them are halved together.
    The answer is the upper end of each bracket, at which the rule holds; the last multiplier that was tried
    if a rule holds at none.

    Parameters
    ----------
    dual : Dual
        the problem with the bounds as stated, on rows with observed features.
    rates : ObservedRates
        the same rules on the observed features.
    target : Target
        what must be <= 0, from predicted and observed excess.
    tolerance : array of shape (n_rules,)
        the excess that counts as none.
    begin : array of shape (n_rules,)
        multipliers near the answer.
    """
    unit, measure = dual.loss_unit, _measure_items(dual, rates)
    low, high = np.zeros(dual.n_rules), np.full(dual.n_rules, np.inf)
    trial, expansion = np.maximum(begin, _PRICED * unit), _OFF
    for _ in range(_HALVINGS):
        held = target(measure(trial, low, high)) <= tolerance
        low, high = np.where(held, low, trial), np.where(held, trial, high)
        settled = (high <= (1 + _NARROW) * low) | (high <= _PRICED * unit)
        if (settled | (low > _LARGEST * unit)).all():
            break
        middle = np.where(low > 0, np.sqrt(low * high), high / expansion)
        trial = np.where(settled, high, np.where(np.isinf(high), low * expansion, middle))
        expansion = min(expansion**2, _WIDER)
    return np.where(np.isinf(high), low, np.where(high <= _PRICED * unit, 0.0, high))


def _measure_items(dual: Dual, rates: ObservedRates) -> Callable[[Floats, Floats, Floats], RateExcess]:
    """Return a function that measures rates at multipliers (M,) in brackets that later calls do not leave,
    from the labels near the threshold where all rows are in memory."""
    rules = find_separate_rules(dual.form, rates.couplings) if dual.source is None else None
    if rules is None:
        return lambda multipliers, low, high: rates.measure(dual, dual.tally(multipliers))
    items, near = LabelItems(dual, rules, rates.couplings, keep=True), None

    def measure(multipliers: Floats, low: Floats, high: Floats) -> RateExcess:
        nonlocal near
        if near is None or not near.covers(multipliers):
            ahead = np.where(np.isinf(high), _WIDER**3 * multipliers, high)
            near = items.screen(np.minimum(low, multipliers), np.maximum(ahead, multipliers))
        elif np.isfinite(high).all():
            near = near.narrow(low, high)
        sums, bounds = near.sum(multipliers), dual.form.bounds
        predicted, observed = sums.costs / near.mass - bounds, sums.observed / near.mass - bounds
        return RateExcess(predicted, np.where(rates.visible, observed, predicted))

    return measure
