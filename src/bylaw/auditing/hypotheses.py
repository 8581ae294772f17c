"""A rule as a hypothesis about rows: samples of independent values whose means tell whether it holds.

With the random decisions averaged out, a row's share in a rate is Z = sum_a pi(a|x) c(x, y, a), with the
label and the groups as observed. A rate given an event is a mean over the rows of that event, whose number is
taken as given. A gap between two groups is a sum of two means over different rows. A gap between a group
and all rows also has the group among all rows, by the group's share q in the population, which is only
known to lie in an interval: the hypothesis must hold at both ends of it (Berger and Boos, 1994).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw._base.validation import check_positive
from bylaw.auditing.confidence_bounds import Sample, make_bound
from bylaw.data.evidence import RowData
from bylaw.data.outcomes import Limits, ObservedRows, name_cost
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.formulation.row_rates import bound_rate, compute_row_rates, count_effective
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import LABEL, Atom, Conditions, Rate, Rule, format_conditions

Mask = NDArray[np.bool_]
MOST_ROWS = 1e12  # beyond, "more rows" is no advice
SPENT = 0.02  # share of the error probability that is spent on the interval of a group's share


class Decomposition(NamedTuple):
    """Samples whose means add up to the rate less its constant, at one end of a group's share."""

    samples: tuple[Sample, ...]
    independent: bool
    nearness: float = 1.0  # of the observed share to this end; those of all ends add up to one


@dataclass(frozen=True)
class Hypothesis:
    """That a rate, a sum of means, is at most zero."""

    decompositions: tuple[Decomposition, ...]  # it is so if it is in each
    spent: float  # probability that none of them is right
    rows: float  # effective sample size; of several samples, that of the smallest
    constant: float

    @property
    def estimate(self) -> float:
        """Of the rate."""
        means = [d.nearness * sum(s.mean for s in d.samples if len(s.values)) for d in self.decompositions]
        return sum(means) + self.constant

    @property
    def negated(self) -> Hypothesis:
        """That the rate is at least zero."""
        decompositions = [
            d._replace(samples=tuple(s.negated for s in d.samples)) for d in self.decompositions
        ]
        return Hypothesis(tuple(decompositions), self.spent, self.rows, -self.constant)


class HypothesisTest:
    """The test of a hypothesis, sharpest at the error probability `delta`."""

    def __init__(self, hypothesis: Hypothesis, method: str, delta: float) -> None:
        self.hypothesis = hypothesis
        self.delta = delta - hypothesis.spent
        self.bounds = [
            make_bound(d.samples, method, self.delta, d.independent) for d in hypothesis.decompositions
        ]

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the rate is zero or more."""
        least = min(bound.log_e_value(-self.hypothesis.constant) for bound in self.bounds)
        return min(1.0, math.exp(-least) + self.hypothesis.spent)

    @property
    def upper(self) -> float:
        """A bound on the rate that is right with probability 1 - delta."""
        return (
            max(bound.upper_bound(-math.log(self.delta)) for bound in self.bounds) + self.hypothesis.constant
        )


class Untestable(NamedTuple):
    """Why a rule cannot be tested on these rows, and what would let it."""

    reason: str
    remedy: Remedy | None = None


@dataclass(frozen=True)
class HeldOutSample:
    """Held-out rows as observed, and the probabilities of their decisions.

    `unlabelled` are more rows, without labels: they sharpen rates that refer to labels (prediction-powered
    inference). Each labelled row is joined by k of them: Z - w f + w mean(f of its companions), where f is
    what the probabilities predict for Z. Its mean is that of Z whatever f is, and its variance small where f
    is good; w = k / (k + 1) is best where f is calibrated.
    """

    seen: RowData  # as observed; a rule is tested on the rows that show all that it refers to
    probabilities: Floats  # (n_rows, n_actions)
    space: ActionSpace
    labelled: bool
    unlabelled: HeldOutSample | None = None
    limits: Limits = field(default_factory=dict)  # of costs in custom()
    largest_weight: float | None = None  # that any row can have; by default the largest of these rows

    @property
    def random(self) -> bool:
        """Whether some decision is random."""
        return bool(((self.probabilities > 0) & (self.probabilities < 1)).any())

    def make_hypothesis(self, rule: Rule, spent: float) -> Hypothesis | Untestable:
        """That the rule's excess is at most zero; with a probability of `spent`, a group's share in the
        population is not in its interval."""
        excess = rule.excess
        if (restricted := self.restrict(excess)) is not self:
            return restricted.make_hypothesis(rule, spent)
        if (obstacle := self._find_obstacle(excess)) is not None:
            return obstacle
        events = list(dict.fromkeys(atom.conditions for atom, _ in excess.terms))
        for event in events:
            if self._is_impossible(event) or not self.among(event).any():
                return Untestable(f"there is no row with {format_conditions(event)}")
        parts = [Rate(tuple(t for t in excess.terms if t[0].conditions == event)) for event in events]
        decompositions, spent = self._divide(events, parts, spent)
        rows = min(self._effective_rows(self.among(event)) for event in events)
        return Hypothesis(decompositions, spent, rows, excess.constant)

    def restrict(self, rate: Rate) -> HeldOutSample:
        """The rows that show all that a rate refers to: no test goes by predictions."""
        if not isinstance(self.seen, ObservedRows):
            return self
        names = self.seen.find_partly_seen(self._list_names(rate))
        if names and names not in self._restricted:
            seen, places = self.seen.restrict_with_places(names)
            check_weight(self.largest_weight, seen)
            chances = self.probabilities[places]
            self._restricted[names] = replace(self, seen=seen, probabilities=chances)
        return self._restricted[names] if names else self

    @cached_property
    def _restricted(self) -> dict[frozenset[str], HeldOutSample]:
        return {}

    def _list_names(self, rate: Rate) -> set[str]:
        """The attributes that a rate refers to; "label" may be among them."""
        names = {name for atom, _ in rate.terms for name, _ in atom.conditions}
        names |= {name_cost(name) for atom, _ in rate.terms if (name := atom.reads("cost")) is not None}
        return names | {LABEL for atom, _ in rate.terms if atom.needs_label(self.space)}

    def _divide(
        self, events: list[Conditions], parts: list[Rate], spent: float
    ) -> tuple[tuple[Decomposition, ...], float]:
        """With weights, a group's share and its mean depend on the same weights, and are bounded apart."""
        if len(events) == 2 and not self._weighted:
            for inner, outer in ((0, 1), (1, 0)):
                if set(events[outer]) < set(events[inner]):
                    return self._divide_nested(
                        events[inner], parts[inner], events[outer], parts[outer], spent
                    )
        samples = [self._sample(part, event) for event, part in zip(events, parts, strict=True)]
        apart = all(_are_exclusive(one, other) for one, other in itertools.combinations(events, 2))
        return (Decomposition(tuple(samples), apart),), 0.0

    def _divide_nested(
        self, inner: Conditions, part: Rate, outer: Conditions, whole: Rate, spent: float
    ) -> tuple[tuple[Decomposition, ...], float]:
        """mean(outer) = q mean(inner) + (1 - q) mean(the rest): two samples for each end of q."""
        around = self.among(outer)
        chosen = Sample(self.among(inner)[around].astype(float), 0.0, 1.0)
        wanted = -math.log(spent / 2)
        high = make_bound([chosen], "betting", spent / 2, True).upper_bound(wanted)
        low = -make_bound([chosen.negated], "betting", spent / 2, True).upper_bound(wanted)
        place = (chosen.mean - low) / (high - low)
        decompositions = [
            Decomposition(
                (
                    self._sample(_drop_conditions(part) + q * _drop_conditions(whole), inner),
                    self._sample((1 - q) * _drop_conditions(whole), outer, without=inner),
                ),
                True,
                nearness,
            )
            for q, nearness in ((low, 1 - place), (high, place))
        ]
        return tuple(decompositions), spent

    def _sample(self, rate: Rate, event: Conditions, without: Conditions | None = None) -> Sample:
        """The rate without its conditions, on the rows of an event, or those of them outside another."""
        rate = _drop_conditions(rate)
        low, high = bound_rate(rate, self.space, dict(event).get(LABEL), self.limits)
        rows = self.among(event, without)
        values, weights = self.values(rate)[rows], self._relative_weights(rows)
        if self.unlabelled is not None and weights is None and self._is_sharpened(rate, event):
            companions = self.unlabelled.values(rate)[self.unlabelled.among(event, without)]
            if per_row := len(companions) // max(len(values), 1):
                share = per_row / (per_row + 1)
                predicted = self._predicted.values(rate)[rows]
                values = values + share * (_average_bundles(companions, len(values), per_row) - predicted)
                low, high = low - share * (high - low), high + share * (high - low)
        return Sample(np.clip(values, low, high), low, high, weights)

    def _is_sharpened(self, rate: Rate, event: Conditions) -> bool:
        """Whether unlabelled rows help: the rate needs labels, and the event is known without them."""
        assert self.unlabelled is not None
        known = all(name in self.unlabelled.seen.known_groups for name, _ in event)
        return known and any(a.needs_label(self.space) for a, _ in rate.terms)

    @cached_property
    def _predicted(self) -> HeldOutSample:
        """The same rows as they were known before."""
        assert isinstance(self.seen, ObservedRows)
        known = self.seen.predicted
        believed = self.seen.with_columns(probabilities=known.probabilities, costs=known.costs)
        return HeldOutSample(believed, self.probabilities, self.space, labelled=False)

    def values(self, rate: Rate) -> Floats:
        """(n_rows,): what each row has of a rate without conditions."""
        total = np.full(len(self.seen), rate.constant)
        for atom, coefficient in rate.terms:
            total += coefficient * self._column(atom)
        return total

    def _column(self, atom: Atom) -> Floats:
        if atom not in self._columns:
            self._columns[atom] = compute_row_rates(
                Rate(((atom, 1.0),)), self.seen, self.probabilities, self.space
            )
        return self._columns[atom]

    @cached_property
    def _columns(self) -> dict[Atom, Floats]:
        return {}

    def among(self, event: Conditions, without: Conditions | None = None) -> Mask:
        """(n_rows,): the rows of an event that count, or those of them not in another."""
        rows = np.asarray(self.seen.event_probability(event)) * np.ones(len(self.seen)) > 0.5
        if without is not None:
            rows &= ~self.among(without)
        return rows if self.seen.weights is None else rows & (self.seen.weights > 0)

    def _relative_weights(self, rows: Mask) -> Floats | None:
        """Weights relative to the largest; None if all are equal."""
        if self.seen.weights is None or not self._weighted or not rows.any():
            return None
        weights = self.seen.weights[rows]
        return weights / (self.largest_weight or weights.max())

    @cached_property
    def _weighted(self) -> bool:
        """Whether some rows count more than others."""
        weights = self.seen.weights
        return weights is not None and bool(np.ptp(weights[weights > 0]) > 0)

    def _effective_rows(self, rows: Mask) -> float:
        weights = self._relative_weights(rows)
        return float(rows.sum()) if weights is None else count_effective(weights)

    def _is_impossible(self, event: Conditions) -> bool:
        groups = ((self.seen.groups.get(name), value) for name, value in event)
        return any(group is not None and value not in group.values for group, value in groups)

    def _find_obstacle(self, rate: Rate) -> Untestable | None:
        """What would have to be known to test the rate."""
        if not len(self.seen):
            names = " and ".join(sorted(self._list_names(rate)))
            return Untestable(f"it refers to {names}, and no row shows all of it")
        if not self.labelled and any(a.needs_label(self.space) for a, _ in rate.terms):
            return Untestable("it refers to labels", Remedy("pass_labels"))
        for name in dict.fromkeys(name for a, _ in rate.terms for name, _ in a.conditions if name != LABEL):
            if name in self.seen.hidden_groups:
                return Untestable(
                    f"it refers to {name}, of which only probabilities are known",
                    Remedy("pass_true_groups", name),
                )
        for name in (a.reads("cost") for a, _ in rate.terms):
            if name is not None and name_cost(name) not in getattr(self.seen, "observed", {name_cost(name)}):
                return Untestable(
                    f"what {name!r} turned out to be is not known", Remedy("pass_outcomes", name)
                )
            if name is not None and name not in self.limits:
                return Untestable(f"the range of {name!r} is not known", Remedy("pass_limits", name))
        return None


def check_limits(limits: Any, evidence: RowData) -> Limits:
    """Limits of costs, {name: (least, most)}, within which those of these rows must be."""
    if not isinstance(limits, Mapping):
        raise OptionError(f"limits takes a dict {{cost: (least, most)}}, not {limits!r}")
    for name, pair in limits.items():
        try:
            low, high = map(float, pair)
        except (TypeError, ValueError):
            raise OptionError(f"limits[{name!r}] must be a pair (least, most), not {pair!r}") from None
        cost = evidence.costs.get(name)
        if cost is not None and not (low <= cost.min() and cost.max() <= high):
            what = "outcomes" if name_cost(name) in getattr(evidence, "observed", ()) else "costs"
            raise EvidenceError(
                f"{what}[{name!r}] go from {cost.min():g} to {cost.max():g}, beyond limits[{name!r}]={pair!r}"
            )
    return {name: (float(low), float(high)) for name, (low, high) in limits.items()}


def check_weight(largest: float | None, evidence: RowData) -> float | None:
    """The largest weight that any row can have, which those of these rows must not exceed."""
    if largest is not None:
        check_positive(largest, "largest_weight")
        if evidence.weights is not None and evidence.weights.max() > largest:
            raise EvidenceError(
                f"a row has the weight {evidence.weights.max():g}, above largest_weight={largest:g}"
            )
    return largest


def _average_bundles(values: Floats, n_rows: int, per_row: int) -> Floats:
    """(n_rows,): means of so many values each, in random order, as the order of rows may not be random."""
    order = np.random.default_rng(len(values)).permutation(len(values))[: n_rows * per_row]
    return values[order].reshape(n_rows, per_row).mean(axis=1)


def _drop_conditions(rate: Rate) -> Rate:
    """Without conditions."""
    terms = [Rate(((Atom(a.name, a.arguments, function=a.function), c),)) for a, c in rate.terms]
    return sum(terms, Rate((), rate.constant))


def _are_exclusive(one: Conditions, other: Conditions) -> bool:
    """No row is in both."""
    other_values = dict(other)
    return any(name in other_values and other_values[name] != value for name, value in one)
