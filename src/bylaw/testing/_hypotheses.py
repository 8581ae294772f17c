"""A rule as a hypothesis about rows: samples of independent rows whose means tell whether it holds.

With the random decisions averaged out, a row's share in a rate is Z = sum_a pi(a|x) c(x, y, a), with the
label and the groups as observed. A rate given an event is a mean over the rows of that event; a rule on
several events is about a sum of such means. Given a decision, rows count by its probability pi(a|x), as
weights: a quotient is a mean, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.numeric import hash_rows, order_by_content
from bylaw._base.typing import Floats, Mask
from bylaw._base.validation import check_positive
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import LABEL, Atom, Conditions, Event, Rate, Rule, format_conditions
from bylaw.program.row_rates import (
    bound_quotient,
    bound_rate,
    compute_event_amounts,
    compute_row_rates,
    compute_sizes,
)
from bylaw.rows.evidence import RowData, count_effective
from bylaw.rows.outcomes import Limits, ObservedRows, name_cost
from bylaw.testing._betting import BettingTest, find_bounds, find_p_values
from bylaw.testing._confidence_bounds import make_test
from bylaw.testing._samples import Differences, Sample

NEVER = 1e-6  # rows that count in an event: fewer are none
_KEPT = 16  # columns of values
MOST_ROWS = 1e12  # beyond, "more rows" is no advice


@dataclass(frozen=True)
class Hypothesis:
    """That a rate, a sum of means and a constant, is at most zero."""

    samples: tuple[Sample, ...]  # of the same rows, one for each event
    disjoint: bool  # no row is in two events
    rows: float  # effective sample size; of several samples, that of the smallest
    constant: float
    of_ratio: bool = False  # of a rule a <= level * b, the rate is a / b - level; otherwise a - level * b


class HypothesisTest:
    """The test of a hypothesis."""

    def __init__(self, hypothesis: Hypothesis, method: str) -> None:
        self.constant = hypothesis.constant
        self.test = make_test(hypothesis.samples, method, hypothesis.disjoint)

    @property
    def estimate(self) -> float:
        """Of the rate."""
        return self.test.estimate + self.constant

    def p_value(self, level: float) -> float:
        """Of the hypothesis that the rate is zero or more, sharpest at `level`. Where the estimate is beyond
        zero it is one: an early part of the rows never counts for more than all of them."""
        return 1.0 if self.estimate > 0 else self.test.p_value(-self.constant, level)

    def p_values(self, levels: Sequence[float]) -> list[tuple[float, float]]:
        """For each level the p-value of the hypothesis that the rate is zero or more, and of that of zero or
        less."""
        return compute_p_values([self], levels)[0]

    def bounds(self, level: float) -> tuple[float, float]:
        """A lower and an upper bound on the rate, each right with probability 1 - level, with the estimate
        between them."""
        return compute_bounds([self], level)[0]


def compute_bounds(tests: Sequence[HypothesisTest], level: float) -> list[tuple[float, float]]:
    """`bounds` of each test; many together take little longer than one."""
    games = [one.test for one in tests if isinstance(one.test, BettingTest)]
    together = iter(find_bounds(games, level))
    bounds = []
    for one in tests:
        pair = next(together) if isinstance(one.test, BettingTest) else one.test.bounds(level)
        low, high = (bound + one.constant for bound in pair)
        bounds.append((min(low, one.estimate), max(high, one.estimate)))
    return bounds


def compute_p_values(
    tests: Sequence[HypothesisTest], levels: Sequence[float]
) -> list[list[tuple[float, float]]]:
    """`p_values` of each test, likewise."""
    sides = [[sign for sign in (1, -1) if not sign * one.estimate > 0] for one in tests]
    asked = [[(level, sign) for level in levels for sign in signs] for signs in sides]
    pairs = list(zip(tests, asked, strict=True))
    together = iter(
        find_p_values([(one.test, -one.constant, q) for one, q in pairs if isinstance(one.test, BettingTest)])
    )
    answers = []
    for one, questions in pairs:
        if isinstance(one.test, BettingTest):
            found = next(together)
        else:
            found = [one.test.p_value(-one.constant, level, sign) for level, sign in questions]
        values = dict(zip(questions, found, strict=True))
        answers.append([(values.get((level, 1), 1.0), values.get((level, -1), 1.0)) for level in levels])
    return answers


class Untestable(NamedTuple):
    """Why a rule cannot be tested on these rows, and what would let it."""

    reason: str
    remedy: Remedy | None = None


@dataclass(frozen=True)
class HeldOutSample:
    """Held-out rows as observed, and the probabilities of their decisions.

    `unlabelled` are more rows, without labels: they sharpen rates that refer to labels or hidden groups
    (prediction-powered inference). Each labelled row is joined by as many of them as there are for each, its
    companions.
    """

    seen: RowData  # as observed; a rule is tested on the rows that show all that it refers to
    probabilities: Floats  # (n_rows, n_actions)
    space: ActionSpace
    labelled: bool
    unlabelled: HeldOutSample | None = None
    limits: Limits = field(default_factory=dict)  # of costs in custom()
    largest_weight: float | None = None  # that any row can have
    estimated: bool = False  # rates are estimated and not tested, for which no weight is too large
    arrived: bool = False  # rows are bet on in the order in which they came, not in one that they fix

    @property
    def random(self) -> bool:
        """Whether some decision is random."""
        return bool(((self.probabilities > 0) & (self.probabilities < 1)).any())

    def make_hypothesis(self, rule: Rule) -> Hypothesis | Untestable:
        """That the rule's excess is at most zero."""
        excess = rule.excess.resolve(self.space.classes)
        if (restricted := self.restrict(excess)) is not self:
            return restricted.make_hypothesis(rule)
        if (obstacle := self._find_obstacle(excess)) is not None:
            return obstacle
        if not self.estimated and (ratio := self._make_ratio_hypothesis(rule)) is not None:
            return ratio
        parts, sizes = excess.by_event(), list[Floats]()
        for event in parts:
            if self._is_impossible(event.conditions) or not self.among(event.conditions).any():
                return Untestable(f"there is no row with {format_conditions(event.conditions)}")
            sizes.append(self._measure_sizes(event))
            if sizes[-1].sum() <= NEVER:
                return Untestable(describe_vacuous(event))
        samples = [
            self._sample(part, event, size) for (event, part), size in zip(parts.items(), sizes, strict=True)
        ]
        rows = min(map(count_effective, sizes))
        return Hypothesis(_shuffle(samples), are_disjoint(tuple(parts)), rows, excess.constant)

    def _make_ratio_hypothesis(self, rule: Rule) -> Hypothesis | None:
        """Return a rule a <= level * b, such as error() <= 0.1 * accepted(), as one about the mean among the
        rows that count in b; None unless no row can have more of a than of b. Rows without b then do not
        count, and if each of the others has a or not, their counts are sufficient."""
        excess = rule.excess.resolve(self.space.classes)
        event, *others = excess.by_event() or [None]
        if rule.factor is None or rule.sense != "<=" or excess.constant or event is None:
            return None
        if others or event.whole:
            return None
        share, whole = (
            drop_conditions(rate.resolve(self.space.classes)) for rate in (rule.left, rule.factor)
        )
        label, space = dict(event.conditions).get(LABEL), self.space
        if not (share.is_probability and whole.is_probability and 0 < rule.level < 1):
            return None
        lacks = bound_rate(share - whole, space, label)[1] > 0 or bound_rate(share, space, label)[0] < 0
        if lacks or bound_rate(whole, space, label)[1] > 1:
            return None
        sizes = self.among(event.conditions) * self._relative_weights * np.clip(self.values(whole), 0.0, 1.0)
        if sizes.sum() <= NEVER:
            return None
        low, high = -rule.level, 1 - rule.level
        amounts = self.among(event.conditions) * self._relative_weights * self.values(drop_conditions(excess))
        order = self._order
        sample = Sample(sizes[order], np.clip(amounts, low * sizes, high * sizes)[order], low, high)
        return Hypothesis(_shuffle([sample]), True, count_effective(sizes), 0.0, of_ratio=True)

    def make_samples(self, rule: Rule) -> tuple[Sample, ...]:
        """Of the events of a rule, one each; some may have no rows."""
        excess = rule.excess.resolve(self.space.classes)
        return tuple(
            self._sample(part, event, self._measure_sizes(event)) for event, part in excess.by_event().items()
        )

    def restrict(self, rate: Rate) -> HeldOutSample:
        """The rows that show all that a rate refers to: no test goes by predictions."""
        if not isinstance(self.seen, ObservedRows):
            return self
        names = self.seen.find_partly_seen(list_names(rate, self.space))
        if names and names not in self._restricted:
            seen, places = self.seen.restrict_with_places(names)
            check_weight(self.largest_weight, seen)
            chances = self.probabilities[places]
            self._restricted[names] = replace(self, seen=seen, probabilities=chances)
        return self._restricted[names] if names else self

    @cached_property
    def _restricted(self) -> dict[frozenset[str], HeldOutSample]:
        return {}

    def _sample(self, rate: Rate, event: Event, sizes: Floats) -> Sample:
        """The rate without its conditions, on rows of an event of these sizes, in the order of betting."""
        bound = bound_rate if event.whole is None else bound_quotient
        label = dict(event.conditions).get(LABEL)
        low, high = bound(drop_conditions(rate), self.space, label, self.limits)
        sizes = sizes[self._order]
        if event.whole is None:
            amounts = sizes * self._order_values(drop_conditions(rate), low, high)
        else:
            unit = self.among(event.conditions) * self._relative_weights / self._find_largest(event.whole)
            shares = (unit * self.values(_take_parts(rate)))[self._order]
            amounts = np.clip(shares, low * sizes, high * sizes)
        differences = self._compare_companions(rate, event, (low, high))
        return Sample(sizes, amounts, low, high, differences)

    def _order_values(self, rate: Rate, low: float, high: float) -> Floats:
        """(n_rows,): what each row has of a rate without conditions, within its limits and in the order of
        betting. Rules on many groups ask for the same."""
        key = rate, low, high
        if key not in self._ordered_values:
            if len(self._ordered_values) >= _KEPT:
                self._ordered_values.pop(next(iter(self._ordered_values)))
            self._ordered_values[key] = np.clip(self.values(rate), low, high)[self._order]
        return self._ordered_values[key]

    @cached_property
    def _ordered_values(self) -> dict[tuple[Rate, float, float], Floats]:
        return {}

    def _measure_sizes(self, event: Event) -> Floats:
        """(n_rows,): how much each row counts in an event, at most one."""
        sizes = self.among(event.conditions) * self._relative_weights
        if event.whole is None:
            return sizes
        whole = replace(event.whole, conditions=())
        return sizes * np.clip(self._column(whole) / self._find_largest(whole), 0.0, 1.0)

    def _find_largest(self, whole: Atom) -> float:
        """The most that a row can count in a quotient."""
        return bound_rate(Rate(((whole, 1.0),)), self.space)[1]

    def _compare_companions(
        self, rate: Rate, event: Event, limits: tuple[float, float]
    ) -> Differences | None:
        """What was predicted for each row less what was for its companions; None if there are none, or if
        nothing predicts the event and the rate together."""
        more = self.unlabelled
        if more is None or (self._relative_weights != 1).any() or not len(more.seen) // len(self.seen):
            return None
        try:
            mine, others = (part._predict(rate, event, limits) for part in (self._predicted, more))
        except EvidenceError:
            return None
        n_rows, per_row = len(self.seen), len(more.seen) // len(self.seen)

        def differ(column: Floats, companions: Floats) -> Floats:
            chosen = companions[more._order[: n_rows * per_row]]
            return column[self._order] - chosen.reshape(n_rows, per_row).mean(axis=1)

        return Differences(*map(differ, mine, others))

    def _predict(self, rate: Rate, event: Event, limits: tuple[float, float]) -> tuple[Floats, Floats]:
        """P(event | x) and E[1{event} Z | x], each (n_rows,)."""
        unit = 1.0 if event.whole is None else self._find_largest(event.whole)
        chance = compute_sizes(event, self.seen, self.probabilities, self.space) / unit
        amounts = compute_event_amounts(rate, self.seen, self.probabilities, self.space) / unit
        return chance, np.clip(amounts, limits[0] * chance, limits[1] * chance)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """(n_rows,): an order of the rows that depends on their content and not on how they come."""
        if self.arrived:
            return np.arange(len(self.seen))
        before = self.seen.predicted if isinstance(self.seen, ObservedRows) else self.seen
        first = [*self.probabilities.T, *before.probabilities.T]
        return order_by_content(first, self.seen.list_columns())

    @cached_property
    def _predicted(self) -> HeldOutSample:
        """The same rows as they were known before."""
        assert isinstance(self.seen, ObservedRows)
        return HeldOutSample(self.seen.predicted, self.probabilities, self.space, labelled=False)

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

    def among(self, event: Conditions) -> Mask:
        """(n_rows,): the rows of an event that count."""
        rows = np.broadcast_to(np.asarray(self.seen.event_probability(event)) > 0.5, len(self.seen))
        return rows if self.seen.weights is None else rows & (self.seen.weights > 0)

    @cached_property
    def _relative_weights(self) -> Floats:
        """Weights as shares of the largest that any row can have, (n_rows,). That may be heavier than all
        rows of the sample, even if these have equal weights."""
        weights = self.seen.weights
        return (
            np.ones(len(self.seen)) if weights is None else weights / (self.largest_weight or weights.max())
        )

    def _is_impossible(self, event: Conditions) -> bool:
        groups = ((self.seen.groups.get(name), value) for name, value in event)
        return any(group is not None and value not in group.values for group, value in groups)

    def _find_obstacle(self, rate: Rate) -> Untestable | None:
        """What would have to be known to test the rate."""
        if not len(self.seen):
            names = " and ".join(sorted(list_names(rate, self.space)))
            return Untestable(f"it refers to {names}, and no row shows all of it")
        if not self.labelled and any(a.needs_label(self.space) for a, _ in rate.terms):
            return Untestable("it refers to labels", Remedy("pass_labels"))
        for name in dict.fromkeys(name for a, _ in rate.terms for name, _ in a.conditions if name != LABEL):
            if name in self.seen.hidden_groups:
                return Untestable(
                    f"it refers to {name}, of which only probabilities are known",
                    Remedy("pass_true_groups", name),
                )
        if self.seen.weights is not None and self.largest_weight is None and not self.estimated:
            return Untestable(
                "rows have weights, and the largest that a row can have is not known",
                Remedy("pass_largest_weight"),
            )
        for name in (a.reads("cost") for a, _ in rate.terms):
            if name is not None and name_cost(name) not in getattr(self.seen, "observed", {name_cost(name)}):
                return Untestable(
                    f"what {name!r} turned out to be is not known", Remedy("pass_outcomes", name)
                )
            if name is not None and name not in self.limits:
                return Untestable(f"the range of {name!r} is not known", Remedy("pass_limits", name))
        return None


def _shuffle(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Put the rows of the samples, which are ordered by content, in a random order that depends on what is
    tested: weights, values and differences.

    Rows are independent, so given which rows there are, each order of them is equally likely. An order that
    is drawn at random, once for each set of rows, leaves that so, whatever order the table had. The seed must
    tell sets of rows apart: if it covered scores alone, and these were constant, all samples of one size
    would be sorted by label and then shuffled alike. It goes by places within ranges, seen from both ends, so
    that a rule has the same order at all its levels, and so has the opposite rule.
    """
    sizes = [sample.sizes for sample in samples]
    places = [(one.amounts - one.lowest * one.sizes) / (one.range or 1.0) for one in samples]
    opposite = [size - place for size, place in zip(sizes, places, strict=True)]
    seeds = [
        int(hash_rows([*sizes, *(np.round(one, 6) + 0.0 for one in side)]).sum(dtype=np.uint64))
        for side in (places, opposite)
    ]
    order = np.random.default_rng(sorted(seeds)).permutation(len(sizes[0]))
    return tuple(sample.take(order) for sample in samples)


def list_names(rate: Rate, space: ActionSpace) -> set[str]:
    """The attributes that a rate refers to; "label" and costs may be among them."""
    names = {name for atom, _ in rate.terms for name, _ in atom.conditions}
    names |= {name_cost(name) for atom, _ in rate.terms if (name := atom.reads("cost")) is not None}
    return names | {LABEL for atom, _ in rate.terms if atom.needs_label(space)}


def check_limits(limits: Any, evidence: RowData) -> Limits:
    """Limits of costs, {name: (least, most)}, within which those of these rows must be."""
    if not isinstance(limits, Mapping):
        raise OptionError(f"limits takes a dict {{cost: (least, most)}}, not {limits!r}")
    for name, pair in limits.items():
        try:
            low, high = map(float, pair)
        except (TypeError, ValueError):
            raise OptionError(f"limits[{name!r}] must be a pair (least, most), not {pair!r}") from None
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise OptionError(
                f"limits[{name!r}] must be two finite numbers, the least and then the most, not {pair!r}"
            )
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


def drop_conditions(rate: Rate) -> Rate:
    """Without conditions on rows."""
    terms = [Rate(((replace(a, conditions=()), c),)) for a, c in rate.terms]
    return sum(terms, Rate((), rate.constant))


def _take_parts(rate: Rate) -> Rate:
    """The parts of quotients, without conditions on rows."""
    return drop_conditions(Rate(tuple((atom.part, c) for atom, c in rate.terms)))


def describe_vacuous(event: Event) -> str:
    """Why a quotient is 0/0."""
    assert event.whole is not None
    among = f" among rows with {format_conditions(event.conditions)}" if event.conditions else ""
    if event.whole.decided is None:
        return f"what it divides by is zero{among}"
    return f"the decision {event.whole.decided!r} is never taken{among}, so that it holds as 0/0"


def are_disjoint(events: Sequence[Event]) -> bool:
    """No row is in two of them."""

    def differ(one: Conditions, other: Conditions) -> bool:
        other_values = dict(other)
        return any(name in other_values and other_values[name] != value for name, value in one)

    return all(differ(one.conditions, other.conditions) for one, other in itertools.combinations(events, 2))
