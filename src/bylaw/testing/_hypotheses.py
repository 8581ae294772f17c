"""Rules as hypotheses about means over rows, the same for audits, certificates and monitors.

With the random decisions averaged out, the contribution of a row to a rate is Z = sum_a pi(a|x) c(x, y, a),
with the observed label and groups. A rate given an event is a mean over the rows of that event, and a rule on
several events bounds a sum of such means. If a rate is conditioned on a decision, each row has the weight
pi(a|x), so that a ratio is a weighted mean.
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

from bylaw._base import Floats, Mask, check_positive, hash_rows, order_by_content
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language import LABEL, ActionSpace, Atom, Conditions, Event, Rate, Rule, format_conditions
from bylaw.program import bound_quotient, bound_rate, compute_event_amounts, compute_row_rates, compute_sizes
from bylaw.rows import Limits, ObservedRows, RowData, count_effective, name_cost
from bylaw.testing._betting import BettingTest, Sample, find_bounds, find_p_values
from bylaw.testing._confidence_bounds import make_test

NEVER = 1e-6  # an event whose rows have a smaller sum of sizes counts as empty
MOST_ROWS = 1e12  # more rows than this are never recommended


class Mean(NamedTuple):
    """A conditional mean E[size * value] / E[size] over the rows of an event."""

    event: Event
    rate: Rate  # the rate with its conditions
    amount: Rate  # what a row contributes, without conditions
    size: Rate | None  # the weight of a row, without conditions; None if all weights are 1
    unit: float  # the largest size that a row can have
    lowest: float  # least possible value
    highest: float  # largest possible value


@dataclass(frozen=True)
class Hypothesis:
    """The statement of a rule as: a sum of conditional means plus a constant is at most zero."""

    rule: Rule
    means: tuple[Mean, ...]  # one for each event
    constant: float  # is added to the sum of means
    needs: frozenset[str]  # groups, costs and "label" that must be observed on a row
    of_ratio: bool = False  # whether a rule a <= level * b is tested as a / b - level <= 0

    @classmethod
    def of(cls, rule: Rule, space: ActionSpace, limits: Limits) -> Hypothesis:
        """Return the hypothesis of a rule; `limits` are the ranges of its `custom` costs."""
        excess, means = rule.excess.resolve(space.classes), list[Mean]()
        for event, rate in excess.by_event().items():
            label, alone = dict(event.conditions).get(LABEL), drop_conditions(rate)
            if event.whole is None:
                means.append(Mean(event, rate, alone, None, 1.0, *bound_rate(alone, space, label, limits)))
                continue
            size = Rate(((replace(event.whole, conditions=()), 1.0),))
            numerators = drop_conditions(Rate(tuple((atom.part, c) for atom, c in rate.terms)))
            ends = bound_quotient(alone, space, label, limits)
            means.append(Mean(event, rate, numerators, size, bound_rate(size, space)[1], *ends))
        return cls(rule, tuple(means), excess.constant, frozenset(list_names(excess, space)))

    @classmethod
    def of_quotient(cls, rule: Rule, space: ActionSpace) -> Hypothesis | None:
        """Return a rule such as error() <= 0.1 * accepted() as a hypothesis about one mean, or None.

        For a rule a <= level * b, the mean is over the rows that count in b. No row may contribute more to a
        than to b, so that the other rows can be left out. If each of the rows contributes to a fully or not
        at all, counts are sufficient statistics, and the test is exact.
        """
        excess = rule.excess.resolve(space.classes)
        event, *others = excess.by_event() or [None]
        if rule.factor is None or rule.sense != "<=" or excess.constant or event is None:
            return None
        if others or event.whole:
            return None
        share, size = (drop_conditions(rate.resolve(space.classes)) for rate in (rule.left, rule.factor))
        label = dict(event.conditions).get(LABEL)
        if not (share.is_probability and size.is_probability and 0 < rule.level < 1):
            return None
        if bound_rate(share - size, space, label)[1] > 0 or bound_rate(share, space, label)[0] < 0:
            return None
        if bound_rate(size, space, label)[1] > 1:
            return None
        ends = -rule.level, 1 - rule.level
        mean = Mean(event, excess, drop_conditions(excess), size, 1.0, *ends)
        return cls(rule, (mean,), 0.0, frozenset(list_names(excess, space)), of_ratio=True)

    @property
    def disjoint(self) -> bool:
        """True if no row can be in two of the events."""
        pairs = itertools.combinations([dict(mean.event.conditions) for mean in self.means], 2)
        return all(
            any(other.get(name, value) != value for name, value in one.items()) for one, other in pairs
        )

    @property
    def cancels(self) -> bool:
        """True if one of two events contains the other, and values of rows in both add up to zero."""
        if len(self.means) != 2 or any(mean.size is not None for mean in self.means):
            return False
        one, other = (dict(mean.event.conditions).items() for mean in self.means)
        total = self.means[0].amount + self.means[1].amount
        return (one <= other or other <= one) and not total.terms and total.constant == 0


class HypothesisTest:
    """A test of a hypothesis on samples of independent rows, by one of `METHODS`.

    There is one sample for each mean, with the same rows in the same random order.
    """

    def __init__(self, hypothesis: Hypothesis, samples: Sequence[Sample], method: str = "betting") -> None:
        self.hypothesis, self.constant = hypothesis, hypothesis.constant
        self.rows = min(
            count_effective(sample.sizes) for sample in samples
        )  # effective sample size of the rarest event
        self.test = make_test(samples, method, hypothesis.disjoint)

    @property
    def estimate(self) -> float:
        """Estimate of the sum of means plus the constant; at most zero if the rule seems to be satisfied."""
        return self.test.estimate + self.constant

    def p_value(self, level: float) -> float:
        """Return the p-value of "the excess is zero or more", most powerful at significance `level`.

        It is one if the estimate is above zero: the first rows must not certify what all rows contradict.
        """
        return 1.0 if self.estimate > 0 else self.test.p_value(-self.constant, level)

    def bounds(self, level: float) -> tuple[float, float]:
        """Return a lower and an upper bound on the excess, each right with probability 1 - level."""
        return compute_bounds([self], level)[0]


def compute_bounds(tests: Sequence[HypothesisTest], level: float) -> list[tuple[float, float]]:
    """Return a lower and an upper bound for each test, computed for all tests at once to save time."""
    together = iter(find_bounds([one.test for one in tests if isinstance(one.test, BettingTest)], level))
    bounds = []
    for one in tests:
        pair = next(together) if isinstance(one.test, BettingTest) else one.test.bounds(level)
        low, high = (bound + one.constant for bound in pair)
        bounds.append((min(low, one.estimate), max(high, one.estimate)))
    return bounds


def compute_p_values(
    tests: Sequence[HypothesisTest], levels: Sequence[float]
) -> list[list[tuple[float, float]]]:
    """Return, for each test and level, the p-values of two hypotheses about the excess of the rule.

    The first hypothesis is that the excess is zero or more (violated), the second that it is zero or less.
    """
    questions = [(level, sign) for level in levels for sign in (1, -1)]
    asked = [[(level, sign) for level, sign in questions if not sign * one.estimate > 0] for one in tests]
    together = iter(
        find_p_values(
            [
                (one.test, -one.constant, own)
                for one, own in zip(tests, asked, strict=True)
                if isinstance(one.test, BettingTest)
            ]
        )
    )
    answers = []
    for one, own in zip(tests, asked, strict=True):
        if isinstance(one.test, BettingTest):
            p_values = next(together)
        else:
            p_values = [one.test.p_value(-one.constant, level, sign) for level, sign in own]
        values = dict(zip(own, p_values, strict=True))
        answers.append([(values.get((level, 1), 1.0), values.get((level, -1), 1.0)) for level in levels])
    return answers


class Untestable(NamedTuple):
    """The reason why a rule cannot be tested on some rows, and a remedy."""

    reason: str
    remedy: Remedy | None = None


@dataclass(frozen=True)
class DecidedRows:
    """Observed rows with the probabilities of their decisions.

    A rule is tested on the rows that have all labels, groups and costs that it refers to. Rows without labels
    make rates that refer to labels or unobserved groups more precise (prediction-powered inference): each
    labeled row gets an equal number of them, its companions.
    """

    observed: RowData
    probabilities: Floats  # (n_rows, n_actions)
    space: ActionSpace
    labelled: bool  # whether labels are observed
    unlabelled: DecidedRows | None = None  # more rows, without labels
    limits: Limits = field(default_factory=dict)  # {name: (least, most)} of costs in `custom`
    largest_weight: float | None = None  # largest weight of any row of the population
    estimated: bool = False  # rates are only estimated, not tested: largest_weight is not needed

    @property
    def randomized(self) -> bool:
        """True if some decision is random."""
        return bool(((self.probabilities > 0) & (self.probabilities < 1)).any())

    def test(self, rule: Rule, method: str = "betting") -> HypothesisTest | Untestable:
        """Return the test of whether the rule is satisfied, or the reason why it cannot be tested."""
        excess = rule.excess.resolve(self.space.classes)
        if (restricted := self.restrict(excess)) is not self:
            return restricted.test(rule, method)
        if (obstacle := self._find_obstacle(excess)) is not None:
            return obstacle
        quotient = None if self.estimated else Hypothesis.of_quotient(rule, self.space)
        if quotient is not None:
            samples = self.sample(quotient)
            if samples[0].sizes.sum() > NEVER:
                return HypothesisTest(quotient, self._shuffle(samples), method)
        hypothesis, samples = Hypothesis.of(rule, self.space, self.limits), list[Sample]()
        for mean in hypothesis.means:
            event = mean.event.conditions
            groups = ((self.observed.groups.get(name), value) for name, value in event)
            impossible = any(group is not None and value not in group.values for group, value in groups)
            if impossible or not self._find_members(event).any():
                return Untestable(f"no row with {format_conditions(event)} was observed")
            sample = self._sample(mean)
            if sample.sizes.sum() <= NEVER:
                return Untestable(describe_vacuous(mean.event))
            samples.append(replace(sample, differences=self._compare_companions(mean)))
        return HypothesisTest(hypothesis, self._shuffle(samples), method)

    def _shuffle(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """Return samples with the rows in a random order that depends only on their values in this test.

        Rows are independent, so that each order is equally likely, also one that is drawn once for each set
        of rows. The seed covers weights, values and differences: if it covered scores alone and these were
        constant, all samples of one size would be sorted by label and then shuffled alike. It uses the
        relative positions of values within their range, from both ends, so that a rule has the same order at
        all its levels, and so has the opposite rule.
        """
        samples = [sample.take(self._places) for sample in samples]
        sizes = [sample.sizes for sample in samples]
        places = [(one.amounts - one.lowest * one.sizes) / (one.range or 1.0) for one in samples]
        opposite = [size - place for size, place in zip(sizes, places, strict=True)]
        seeds = [
            int(hash_rows([*sizes, *(np.round(one, 6) + 0.0 for one in side)]).sum(dtype=np.uint64))
            for side in (places, opposite)
        ]
        order = np.random.default_rng(sorted(seeds)).permutation(len(sizes[0]))
        return tuple(sample.take(order) for sample in samples)

    def sample(self, hypothesis: Hypothesis) -> tuple[Sample, ...]:
        """Return the sample of each mean, with the rows in their original order."""
        return tuple(self._sample(mean) for mean in hypothesis.means)

    def restrict(self, rate: Rate) -> DecidedRows:
        """Return the rows on which all labels, groups and costs that a rate refers to are observed."""
        if not isinstance(self.observed, ObservedRows):
            return self
        names = self.observed.find_partly_seen(list_names(rate, self.space))
        if names and names not in self._restricted:
            shown, places = self.observed.restrict_with_places(names)
            check_weight(self.largest_weight, shown)
            chances = self.probabilities[places]
            self._restricted[names] = replace(self, observed=shown, probabilities=chances)
        return self._restricted[names] if names else self

    @cached_property
    def _restricted(self) -> dict[frozenset[str], DecidedRows]:
        return {}

    def _sample(self, mean: Mean) -> Sample:
        low, high = mean.lowest, mean.highest
        sizes = self._find_members(mean.event.conditions) * self._relative_weights
        if mean.size is None:
            return Sample(sizes, sizes * np.clip(self.values(mean.amount), low, high), low, high)
        amounts = sizes / mean.unit * self.values(mean.amount)
        sizes = sizes * np.clip(self.values(mean.size) / mean.unit, 0.0, 1.0)
        return Sample(sizes, np.clip(amounts, low * sizes, high * sizes), low, high)

    def _compare_companions(self, mean: Mean) -> tuple[Floats, Floats] | None:
        """Return predicted sizes and amounts of each row minus the means of those of its companions.

        Return None without companions, or if the event and the rate cannot be predicted together.
        """
        more = self.unlabelled
        if more is None or (self._relative_weights != 1).any():
            return None
        n_rows, per_row = len(self.observed), len(more.observed) // len(self.observed)
        if not per_row:
            return None
        before = self.observed.predicted if isinstance(self.observed, ObservedRows) else self.observed
        predictions = []
        for rows in (
            (before, self.probabilities, self.space),
            (more.observed, more.probabilities, more.space),
        ):
            try:  # P(event | x) and E[1{event} Z | x], each (n_rows,)
                sizes = compute_sizes(mean.event, *rows) / mean.unit
                amounts = compute_event_amounts(mean.rate, *rows) / mean.unit
            except EvidenceError:
                return None
            predictions.append((sizes, np.clip(amounts, mean.lowest * sizes, mean.highest * sizes)))

        def differ(column: Floats, companions: Floats) -> Floats:
            paired = companions[more._places[: n_rows * per_row]]
            column = column.copy()
            column[self._places] -= paired.reshape(n_rows, per_row).mean(axis=1)
            return column

        (sizes, amounts), (other_sizes, other_amounts) = predictions
        return differ(sizes, other_sizes), differ(amounts, other_amounts)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """Order of the rows that depends on their content and not on their order in the table."""
        before = self.observed.predicted if isinstance(self.observed, ObservedRows) else self.observed
        first = [*self.probabilities.T, *before.probabilities.T]
        return order_by_content(first, self.observed.list_columns())

    def values(self, rate: Rate) -> Floats:
        """Compute the contribution of each row to a rate without conditions, (n_rows,)."""
        total = np.full(len(self.observed), rate.constant)
        for atom, coefficient in rate.terms:
            if atom not in self._columns:
                one = Rate(((atom, 1.0),))
                self._columns[atom] = compute_row_rates(one, self.observed, self.probabilities, self.space)
            total += coefficient * self._columns[atom]
        return total

    @cached_property
    def _columns(self) -> dict[Atom, Floats]:
        return {}

    def _find_members(self, event: Conditions) -> Mask:
        """Return a mask of the rows with positive weight in an event, (n_rows,)."""
        rows = np.broadcast_to(np.asarray(self.observed.event_probability(event)) > 0.5, len(self.observed))
        return rows if self.observed.weights is None else rows & (self.observed.weights > 0)

    @cached_property
    def _relative_weights(self) -> Floats:
        """Weights divided by the largest weight that any row can have, (n_rows,).

        That weight may exceed all weights in the sample, even if these are equal.
        """
        weights = self.observed.weights
        if weights is None:
            return np.ones(len(self.observed))
        return weights / (self.largest_weight or weights.max())

    def _find_obstacle(self, rate: Rate) -> Untestable | None:
        """Return why a rate cannot be tested on these rows, such as missing labels; None if it can."""
        if not len(self.observed):
            names = " and ".join(sorted(list_names(rate, self.space)))
            return Untestable(f"it refers to {names}, which were not observed together on any row")
        if not self.labelled and any(a.needs_label(self.space) for a, _ in rate.terms):
            return Untestable("it refers to labels", Remedy("pass_labels"))
        for name in dict.fromkeys(name for a, _ in rate.terms for name, _ in a.conditions if name != LABEL):
            if name in self.observed.hidden_groups:
                return Untestable(
                    f"it refers to {name}, for which only probabilities are given",
                    Remedy("pass_true_groups", name),
                )
        if self.observed.weights is not None and self.largest_weight is None and not self.estimated:
            return Untestable(
                "rows have weights, and the largest possible weight is not known",
                Remedy("pass_largest_weight"),
            )
        for name in (a.reads("cost") for a, _ in rate.terms):
            known = getattr(self.observed, "observed", None)
            if name is not None and known is not None and name_cost(name) not in known:
                return Untestable(f"the outcomes of {name!r} are not known", Remedy("pass_outcomes", name))
            if name is not None and name not in self.limits:
                return Untestable(f"the range of {name!r} is not known", Remedy("pass_limits", name))
        return None


def list_names(rate: Rate, space: ActionSpace) -> set[str]:
    """Return the names of the groups and costs that a rate refers to, and "label" if it needs labels."""
    names = {name for atom, _ in rate.terms for name, _ in atom.conditions}
    names |= {name_cost(name) for atom, _ in rate.terms if (name := atom.reads("cost")) is not None}
    return names | {LABEL for atom, _ in rate.terms if atom.needs_label(space)}


def check_limits(limits: Any, evidence: RowData) -> Limits:
    """Check limits of costs, {name: (least, most)}, against the costs of these rows, and return them."""
    if not isinstance(limits, Mapping):
        raise OptionError(f"limits must be a dict {{cost: (least, most)}}, got {limits!r}")
    for name, pair in limits.items():
        try:
            low, high = map(float, pair)
        except (TypeError, ValueError):
            raise OptionError(f"limits[{name!r}] must be a pair (least, most), got {pair!r}") from None
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise OptionError(
                f"limits[{name!r}] must be two finite numbers, the least and then the most, got {pair!r}"
            )
        cost = evidence.costs.get(name)
        if cost is not None and not (low <= cost.min() and cost.max() <= high):
            what = "outcomes" if name_cost(name) in getattr(evidence, "observed", ()) else "costs"
            raise EvidenceError(
                f"{what}[{name!r}] must be within limits[{name!r}]={pair!r}, got {cost.min():g} to "
                f"{cost.max():g}"
            )
    return {name: (float(low), float(high)) for name, (low, high) in limits.items()}


def check_weight(largest: float | None, evidence: RowData) -> float | None:
    """Return the largest weight that any row can have; raise if one of these rows has a larger weight."""
    if largest is not None:
        check_positive(largest, "largest_weight")
        if evidence.weights is not None and evidence.weights.max() > largest:
            raise EvidenceError(
                f"weights must be at most largest_weight={largest:g}, got {evidence.weights.max():g}"
            )
    return largest


def drop_conditions(rate: Rate) -> Rate:
    """Return a rate without its conditions on rows."""
    terms = [Rate(((replace(a, conditions=()), c),)) for a, c in rate.terms]
    return sum(terms, Rate((), rate.constant))


def describe_vacuous(event: Event) -> str:
    """Return a text that states why a ratio is 0/0."""
    assert event.whole is not None
    among = f" among rows with {format_conditions(event.conditions)}" if event.conditions else ""
    if event.whole.decided is None:
        return f"the denominator of its ratio is zero{among}"
    return (
        f"the decision {event.whole.decided!r} is never taken{among}, so that its ratio is 0/0 and counts as "
        "satisfied"
    )
