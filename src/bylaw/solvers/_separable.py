"""Prediction sets with separable rules: the multiplier of each rule is the root of a function of its own.

Rules are separable if at most one rule depends on the inclusion of each label. Then every label of every row
is an item with its own decision: its score is -(loss + lambda_j cost) with the multiplier of its rule j. The
dual is a sum of convex functions of one multiplier each, so that the brackets of all roots shrink together.
An item whose score is far from zero at both ends of a bracket has the same decision everywhere in it, because
scores are linear in the multiplier. Only the other items, near the threshold, are evaluated again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import NEGLIGIBLE, Floats
from bylaw.program import (
    Callback,
    Dual,
    LinearForm,
    RateExcess,
    Solution,
    Status,
    Step,
    Target,
    gradient_mapping,
)

if TYPE_CHECKING:
    from bylaw.program import ObservedRates

LARGEST = 1e7  # largest multiplier in units of the loss: a larger one means that rules conflict
SMALLEST = 1e-7  # smallest positive multiplier tried, in units of the loss, if a root may be zero
PRICED = 1e-6  # least multiplier of an observed rule in units of the loss: a smaller one counts as zero
SAMPLE_ITEMS = 2**17  # approximate number of items in the sample that brackets the roots first
TILE_BYTES = 2**18  # most bytes of losses computed at a time, so that they stay in the processor's cache
WIDER = 8.0  # factor by which a bracket that does not contain the root is widened
OFF = 1.2  # largest factor by which the sample's root is expected to differ from that of all rows


def find_separate_rules(form: LinearForm, *others: sparse.csr_array) -> NDArray[np.int64] | None:
    """Return the index of the rule that depends on the inclusion of each label, (n_labels,).

    Labels without a rule have the number of rules as index. `others` are coefficients of the same rules for
    other features. Return None if decisions are not sets, or if several rules depend on one label.
    """
    if form.action_space.exclusive:
        return None
    n_rules, n_actions, couplings = len(form.bounds), form.base.shape[1], (form.couplings, *others)
    rules = np.concatenate([np.repeat(np.arange(n_rules), np.diff(part.indptr)) for part in couplings])
    labels = np.concatenate([part.indices % n_actions for part in couplings])
    rule_of_label = np.full(n_actions, n_rules)
    rule_of_label[labels] = rules
    return rule_of_label if (rule_of_label[labels] == rules).all() else None


class ItemSums(NamedTuple):
    """Weighted sums over all items at some multipliers."""

    potential: float
    costs: Floats  # (n_rules,): cost of the included items, for each rule
    observed: Floats  # (n_rules,): the same with observed features
    curvature: Floats  # (n_rules,): second derivatives of the potential


@dataclass(frozen=True)
class NearItems:
    """The items whose decision is uncertain within a range of multipliers, and sums over all others."""

    beta: float
    mass: float  # sum of the weights of all rows
    low: Floats  # (n_rules,): lower ends of the range
    high: Floats  # (n_rules,): upper ends of the range
    far: Floats  # (3, n_rules + 1): losses, costs, observed costs of included far items, by rule
    columns: Floats  # (3, n_near): loss, cost, observed cost of each near item
    weights: Floats | None  # (n_near,): weights of their rows; None if all are one
    rules: NDArray[np.int64]  # (n_near,): index of the rule of each near item

    def covers(self, multipliers: Floats) -> bool:
        """Return whether multipliers (n_rules,) are in the range."""
        return bool(((self.low <= multipliers) & (multipliers <= self.high)).all())

    def narrow(self, low: Floats, high: Floats) -> NearItems:
        """Return the items whose decision varies within the smaller range from `low` to `high`."""
        sure = -NEGLIGIBLE / self.beta  # a margin beyond which the decision is certain
        margins = [self._measure_margins(end) for end in (low, high)]
        least, most = np.minimum(*margins), np.maximum(*margins)
        included, near = most <= -sure, (most > -sure) & (least < sure)
        return replace(
            self,
            low=low,
            high=high,
            far=self.far + np.array([self._add_by_rule(row * included) for row in self.columns]),
            columns=self.columns[:, near],
            weights=None if self.weights is None else self.weights[near],
            rules=self.rules[near],
        )

    def sum(self, multipliers: Floats) -> ItemSums:
        """Return the sums over all items at multipliers (n_rules,) in the range."""
        scores = -self.beta * self._measure_margins(multipliers)
        tails = np.exp(-np.abs(scores))
        chances = np.where(scores > 0, 1.0, tails) / (1.0 + tails)
        soft = np.maximum(scores, 0.0) + np.log1p(tails)
        potential = float(soft.sum() if self.weights is None else self.weights @ soft) / self.beta
        potential -= float(self.far[0].sum() + np.append(multipliers, 0.0) @ self.far[1])
        costs, observed = (
            (far + self._add_by_rule(row * chances))[:-1]
            for far, row in zip(self.far[1:], self.columns[1:], strict=True)
        )
        bends = self.columns[1] ** 2 * tails / (1.0 + tails) ** 2
        return ItemSums(potential, costs, observed, self.beta * self._add_by_rule(bends)[:-1])

    def _measure_margins(self, multipliers: Floats) -> Floats:
        """Return losses plus priced costs, (n_near,); the scores are the negative of these."""
        return self.columns[0] + np.append(multipliers, 0.0)[self.rules] * self.columns[1]

    def _add_by_rule(self, values: Floats) -> Floats:
        weighted = values if self.weights is None else values * self.weights
        return np.bincount(self.rules, weighted, minlength=len(self.low) + 1).astype(np.float64)


def screen_items(
    dual: Dual,
    rules: NDArray[np.int64],
    low: Floats,
    high: Floats,
    observed: sparse.csr_array | None = None,
) -> NearItems:
    """Return the items whose decision varies within the range of multipliers from `low` to `high`.

    Parameters
    ----------
    dual : Dual
        a dual of sets with separable rules.
    rules : array of shape (n_labels,)
        the index of the rule of each label, from `find_separate_rules`.
    low, high : array of shape (n_rules,)
    observed : sparse array of shape (n_rules, n_observed_features * n_labels), optional
        the coefficients of the rules on observed features.
    """
    form, n_labels, parts = dual.form, len(rules), list[NearItems]()
    base, couplings = sparse.csr_array(form.base.T), _unfold(form.couplings, form.base.shape)
    nothing = np.zeros((3, len(low) + 1))
    width = max(TILE_BYTES // (8 * n_labels), 64)
    for block in dual.blocks:
        features, seen = block.features, None if observed is None else block.observed
        observed_costs = None
        if observed is not None and seen is not None:
            observed_costs = _unfold(observed, (len(seen), n_labels))
        for first in range(0, block.n_rows, width):
            tile = slice(first, first + width)
            part = np.ascontiguousarray(features[:, tile])
            costs = paid = couplings @ part
            if observed_costs is not None and seen is not None:
                paid = observed_costs @ np.ascontiguousarray(seen[:, tile])
            columns = np.array([values.ravel() for values in (base @ part, costs, paid)])
            weights = None if block.weights is None else np.tile(block.weights[tile], n_labels)
            places = np.repeat(rules, part.shape[1])
            items = NearItems(dual.beta, dual.mass, low, high, nothing, columns, weights, places)
            parts.append(items.narrow(low, high))
    weights = [near.weights for near in parts if near.weights is not None]
    return replace(
        parts[0],
        far=np.sum([near.far for near in parts], axis=0),
        columns=np.concatenate([near.columns for near in parts], axis=1),
        weights=np.concatenate(weights) if weights else None,
        rules=np.concatenate([near.rules for near in parts]),
    )


def _unfold(couplings: sparse.csr_array, shape: tuple[int, int]) -> sparse.csr_array:
    """Return coefficients (n_labels, n_features), added up over the rules, from those of all rules."""
    features, actions = np.divmod(couplings.indices, shape[1])
    return sparse.csr_array((couplings.data, (actions, features)), shape=shape[::-1])


def solve_separable(
    dual: Dual, *, tol: float, max_steps: int = 1000, callback: Callback | None = None
) -> Solution | None:
    """Minimize a dual of sets with separable rules.

    Return None for any other dual, for out-of-memory rows, and if the roots were not found, which happens if
    rules conflict.
    """
    rules = find_separate_rules(dual.form)
    if rules is None or dual.ridge or not dual.n_rules or dual.source is not None:
        return None
    # Bracket the roots on a sample, then on all rows.
    search = _RootSearch(dual, tol, max_steps, callback)
    sample, zeros = sample_evenly(dual, len(rules)), np.zeros(dual.n_rules)
    near = search.bracket(sample, rules, zeros, zeros + LARGEST * search.unit)
    if near is not None and sample is not dual:
        guess = search.find(near, 0.02)
        high = np.maximum(OFF * guess, SMALLEST * search.unit)
        near = search.bracket(dual, rules, guess / OFF, high)
    if near is None:
        return None
    # Find the roots up to rounding errors.
    multipliers = search.find(near, 4 * np.finfo(float).eps)
    *_, value, norm = search.trace[-1]
    if norm > tol:
        return None
    return Solution(multipliers, Status.CONVERGED, norm, value, len(search.trace), tuple(search.trace))


def sample_evenly(dual: Dual, n_labels: int) -> Dual:
    """Return a dual on a sample of rows spread evenly over all, or the dual itself if its rows are few."""
    step = dual.n_rows // max(SAMPLE_ITEMS // n_labels, 100)
    if step < 4:  # screening all rows at once is as fast
        return dual
    return dual.with_rows([block.rows(slice(i % step, None, step)) for i, block in enumerate(dual.blocks)])


class _RootSearch:
    """A search for the roots of the dual's derivatives in each multiplier, which records its steps."""

    def __init__(self, dual: Dual, tol: float, max_steps: int, callback: Callback | None) -> None:
        self.dual, self.tol, self.max_steps, self.callback = dual, tol, max_steps, callback
        self.unit = max(dual.loss_unit, 1 / dual.beta)
        self.trace: list[Step] = []

    def bracket(self, dual: Dual, rules: NDArray[np.int64], low: Floats, high: Floats) -> NearItems | None:
        """Return the items whose decision varies within a range that contains the roots.

        The result is None if no such range was found. If a derivative is positive everywhere, zero is its
        root.
        """
        most = LARGEST * self.unit
        for _ in range(4):
            near = screen_items(dual, rules, low, high)
            below, above = self._evaluate(near, low)[0] >= 0, self._evaluate(near, high)[0] < 0
            if not (below & (low > 0) | above).any():
                return near.narrow(low, np.where(below, low, high))
            if (above & (high >= most)).any():
                return None
            # Widen the brackets of the roots that are outside.
            low = np.where(below, np.where(low > SMALLEST * self.unit, low / WIDER, 0.0), low)
            high = np.where(above, np.minimum(WIDER * high, most), high)
        return None

    def find(self, near: NearItems, precision: float) -> Floats:
        """Return the roots, (n_rules,), within the range of these items, up to this relative precision."""
        low, high = near.low, near.high
        point, before = self._halve(low, high), np.full(len(low), np.inf)
        for _ in range(self.max_steps):
            # Replace one end of each bracket by the point.
            gradient, curvature = self._evaluate(near, point)
            low, high = np.where(gradient < 0, point, low), np.where(gradient >= 0, point, high)
            # Stop far below the tolerance, because steps on near items take little time.
            done = (abs(gradient) <= 1e-5 * self.tol) | (high - low <= precision * high)
            if done.all():
                break
            near = near.narrow(low, high)
            # Take a Newton step inside the bracket if the last one halved the derivative, else halve it.
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = point - gradient / curvature
            trusted = (newton > low) & (newton < high) & (abs(gradient) < before / 2)
            move = np.where(trusted, newton, self._halve(low, high))
            point, before = np.where(done, point, move), abs(gradient)
        return point

    def _halve(self, low: Floats, high: Floats) -> Floats:
        """Return the geometric mean of two bounds, with a small number in place of zero."""
        floor = np.where(low > 0, low, np.minimum(SMALLEST * self.unit, high / 4))
        return np.sqrt(floor) * np.sqrt(high)

    def _evaluate(self, near: NearItems, point: Floats) -> tuple[Floats, Floats]:
        """Return the first and second derivatives of the dual in each multiplier, (n_rules,) each."""
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
    """Return multipliers, (n_rules,), at which a separable dual just satisfies its rules on observed rates.

    The rate of a rule does not depend on the multipliers of other rules, so that the brackets of all rules
    are halved together. The result is the upper end of each bracket, at which the rule is satisfied, or the
    last multiplier that was tried if the rule was always violated.

    Parameters
    ----------
    dual : Dual
        the problem with the bounds as stated, on rows with observed features.
    rates : ObservedRates
        the same rules on the observed features.
    target : Target
        computes what must be <= 0 from predicted and observed excesses.
    tolerance : array of shape (n_rules,)
        the excess up to which a rule counts as satisfied.
    begin : array of shape (n_rules,)
        multipliers near the solution.
    """
    unit, measure = dual.loss_unit, _measure_items(dual, rates)
    low, high = np.zeros(dual.n_rules), np.full(dual.n_rules, np.inf)
    trial, expansion = np.maximum(begin, PRICED * unit), OFF
    for _ in range(60):
        # Replace one end of each bracket by the trial.
        holds = target(measure(trial, low, high)) <= tolerance
        low, high = np.where(holds, low, trial), np.where(holds, trial, high)
        settled = (high <= 1.003 * low) | (high <= PRICED * unit)  # only a few rows change in such a bracket
        if (settled | (low > LARGEST * unit)).all():
            break
        # Try the middle of each bracket, or a larger multiplier if the rule was always violated.
        middle = np.where(low > 0, np.sqrt(low * high), high / expansion)
        trial = np.where(settled, high, np.where(np.isinf(high), low * expansion, middle))
        expansion = min(expansion**2, WIDER)
    return np.where(np.isinf(high), low, np.where(high <= PRICED * unit, 0.0, high))


def _measure_items(dual: Dual, rates: ObservedRates) -> Callable[[Floats, Floats, Floats], RateExcess]:
    """Return a function that measures rates at multipliers (n_rules,), given brackets that become smaller.

    If rows are in memory, only items near the threshold are evaluated again.
    """
    rules = find_separate_rules(dual.form, rates.couplings) if dual.source is None else None
    if rules is None:
        return lambda multipliers, low, high: rates.measure(dual, dual.tally(multipliers))
    near: NearItems | None = None

    def measure(multipliers: Floats, low: Floats, high: Floats) -> RateExcess:
        nonlocal near
        if near is None or not near.covers(multipliers):
            ahead = np.where(np.isinf(high), WIDER**3 * multipliers, high)
            ends = np.minimum(low, multipliers), np.maximum(ahead, multipliers)
            near = screen_items(dual, rules, *ends, rates.couplings)
        elif np.isfinite(high).all():
            near = near.narrow(low, high)
        sums, bounds = near.sum(multipliers), dual.form.bounds
        predicted, observed = sums.costs / near.mass - bounds, sums.observed / near.mass - bounds
        return RateExcess(predicted, np.where(rates.visible, observed, predicted))

    return measure
