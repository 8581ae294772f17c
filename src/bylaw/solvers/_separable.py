"""Prediction sets under separable rules: one root of one increasing function for each rule.

Where at most one rule touches the inclusion of each label, every label of every row is an item with its own
decision: its score is -(loss + lambda_j cost) with the multiplier of its rule. The dual is then a sum of
convex functions of one multiplier each, and brackets of all roots shrink together. An item whose score is
far from zero at both ends of a bracket is decided all along it, because scores are linear. Only the items
near the threshold are evaluated again: the root is a smoothed quantile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import NEGLIGIBLE, Floats
from bylaw.program import (
    Callback,
    Dual,
    LinearForm,
    ObservedRates,
    RateExcess,
    Solution,
    Status,
    Step,
    Target,
    gradient_mapping,
)

LARGEST = 1e7  # in units of the loss: a larger multiplier means that rules conflict
SMALLEST = 1e-7  # in units of the loss: the first guess of a root that is zero on the sample
PRICED = 1e-6  # in units of the loss: a smaller multiplier of an observed rule counts as zero
SAMPLE_ITEMS = 2**17  # items of the sample that brackets the roots before all rows are used
TILE_BYTES = 2**18  # losses that are computed at a time, so that they stay in the processor's cache
WIDER = 8.0  # factor by which a bracket without the root is widened
OFF = 1.2  # factor by which the root of the sample may be off


def find_separate_rules(form: LinearForm, *others: sparse.csr_array) -> NDArray[np.int64] | None:
    """Return the rule that touches the inclusion of each label, (A,), or M for labels without a rule.

    `others` are couplings of the same M rules on other kinds of features. Return None if decisions are not
    sets, or if a label has several rules.
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
    """Sums over all items at some multipliers, times the weights of their rows."""

    potential: float
    costs: Floats  # (M,): of included items, for each rule
    observed: Floats  # (M,): the same with observed features
    curvature: Floats  # (M,): second derivatives of the potential


@dataclass(frozen=True)
class NearItems:
    """The items that are not decided all along a range of multipliers, and sums over all others."""

    beta: float
    mass: float  # of all rows
    low: Floats  # (M,)
    high: Floats  # (M,)
    far: Floats  # (3, M + 1): losses, costs, observed costs of the far items that are included
    columns: Floats  # (3, n_near): the same of each near item
    weights: Floats | None  # (n_near,); None for ones
    rules: NDArray[np.int64]  # (n_near,)

    def covers(self, multipliers: Floats) -> bool:
        """Return whether multipliers (M,) are in the range."""
        return bool(((self.low <= multipliers) & (multipliers <= self.high)).all())

    def narrow(self, low: Floats, high: Floats) -> NearItems:
        """Return the items that are not decided all along a smaller range."""
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
        """Sum over all items at multipliers (M,) of the range."""
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
        """Return losses plus priced costs, (n_near,), of which the score is the negative."""
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
    """Return the items that are not decided alike at all multipliers from `low` to `high`, (M,) each.

    Parameters
    ----------
    dual : Dual
        over sets with separable rules.
    rules : array of shape (n_labels,)
        the rule of each label, as `find_separate_rules` returns them.
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
    """Return the coefficients (A, F) of couplings (M, F * A), added up over the rules."""
    features, actions = np.divmod(couplings.indices, shape[1])
    return sparse.csr_array((couplings.data, (actions, features)), shape=shape[::-1])


def solve_separable(
    dual: Dual, *, tol: float, max_steps: int = 1000, callback: Callback | None = None
) -> Solution | None:
    """Minimize a dual over sets with separable rules.

    Return None for any other dual, for out-of-memory rows, and if no roots were found, as for rules that
    conflict.
    """
    rules = find_separate_rules(dual.form)
    if rules is None or dual.ridge or not dual.n_rules or dual.source is not None:
        return None
    search = _RootSearch(dual, tol, max_steps, callback)
    sample, zeros = sample_evenly(dual, len(rules)), np.zeros(dual.n_rules)
    near = search.bracket(sample, rules, zeros, zeros + LARGEST * search.unit)
    if near is not None and sample is not dual:
        guess = search.find(near, 0.02)
        high = np.maximum(OFF * guess, SMALLEST * search.unit)
        near = search.bracket(dual, rules, guess / OFF, high)
    if near is None:
        return None
    multipliers = search.find(near, 4 * np.finfo(float).eps)
    *_, value, norm = search.trace[-1]
    if norm > tol:
        return None
    return Solution(multipliers, Status.CONVERGED, norm, value, len(search.trace), tuple(search.trace))


def sample_evenly(dual: Dual, n_labels: int) -> Dual:
    """Return a dual on rows spread evenly over all, or the dual itself if it has few rows."""
    step = dual.n_rows // max(SAMPLE_ITEMS // n_labels, 100)
    if step < 4:  # screening all rows at once is as fast
        return dual
    return dual.with_rows([block.rows(slice(i % step, None, step)) for i, block in enumerate(dual.blocks)])


class _RootSearch:
    """A search for the roots of the dual's derivatives, which records its steps."""

    def __init__(self, dual: Dual, tol: float, max_steps: int, callback: Callback | None) -> None:
        self.dual, self.tol, self.max_steps, self.callback = dual, tol, max_steps, callback
        self.unit = max(dual.loss_unit, 1 / dual.beta)
        self.trace: list[Step] = []

    def bracket(self, dual: Dual, rules: NDArray[np.int64], low: Floats, high: Floats) -> NearItems | None:
        """Return the items near the threshold in a range that has the roots, or None if there are none.

        The root of a derivative that is positive everywhere is zero.
        """
        most = LARGEST * self.unit
        for _ in range(4):
            near = screen_items(dual, rules, low, high)
            below, above = self._evaluate(near, low)[0] >= 0, self._evaluate(near, high)[0] < 0
            if not (below & (low > 0) | above).any():
                return near.narrow(low, np.where(below, low, high))
            if (above & (high >= most)).any():
                return None
            low = np.where(below, np.where(low > SMALLEST * self.unit, low / WIDER, 0.0), low)
            high = np.where(above, np.minimum(WIDER * high, most), high)
        return None

    def find(self, near: NearItems, precision: float) -> Floats:
        """Return the roots (M,) in the range of these items, to the tolerance or a relative precision."""
        low, high = near.low, near.high
        point, before = self._halve(low, high), np.full(len(low), np.inf)
        for _ in range(self.max_steps):
            gradient, curvature = self._evaluate(near, point)
            low, high = np.where(gradient < 0, point, low), np.where(gradient >= 0, point, high)
            # Steps on near items are cheap, so that derivatives are far below the tolerance in the end.
            done = (abs(gradient) <= 1e-5 * self.tol) | (high - low <= precision * high)
            if done.all():
                break
            near = near.narrow(low, high)
            # Take a Newton step inside the bracket if the last one halved the derivative, else halve.
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = point - gradient / curvature
            trusted = (newton > low) & (newton < high) & (abs(gradient) < before / 2)
            move = np.where(trusted, newton, self._halve(low, high))
            point, before = np.where(done, point, move), abs(gradient)
        return point

    def _halve(self, low: Floats, high: Floats) -> Floats:
        """Return the geometric mean, with a small number in place of zero."""
        floor = np.where(low > 0, low, np.minimum(SMALLEST * self.unit, high / 4))
        return np.sqrt(floor) * np.sqrt(high)

    def _evaluate(self, near: NearItems, point: Floats) -> tuple[Floats, Floats]:
        """Return first and second derivatives in each multiplier, (M,) each."""
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
    trial, expansion = np.maximum(begin, PRICED * unit), OFF
    for _ in range(60):
        holds = target(measure(trial, low, high)) <= tolerance
        low, high = np.where(holds, low, trial), np.where(holds, trial, high)
        settled = (high <= 1.003 * low) | (high <= PRICED * unit)  # a few rows lie in such a bracket
        if (settled | (low > LARGEST * unit)).all():
            break
        middle = np.where(low > 0, np.sqrt(low * high), high / expansion)
        trial = np.where(settled, high, np.where(np.isinf(high), low * expansion, middle))
        expansion = min(expansion**2, WIDER)
    return np.where(np.isinf(high), low, np.where(high <= PRICED * unit, 0.0, high))


def _measure_items(dual: Dual, rates: ObservedRates) -> Callable[[Floats, Floats, Floats], RateExcess]:
    """Return a function that measures rates at multipliers (M,) in shrinking brackets.

    Rows in memory are reduced to the labels near the threshold.
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
