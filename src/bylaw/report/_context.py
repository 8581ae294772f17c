"""Everything that a report states, before it is put into words and charts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bylaw._base import MIN_CELL, Floats, choose_shown
from bylaw.errors import BylawError
from bylaw.language import (
    LABEL,
    Atom,
    Conditions,
    ExpandedRule,
    Family,
    Objective,
    Problem,
    Rate,
    Ratio,
    Rule,
    Statement,
    Worst,
)
from bylaw.policy import Policy, hash_evidence, shares_rows
from bylaw.program import compute_sizes, decide_as_model, measure_rate
from bylaw.report._action_words import ActionWords, get_words
from bylaw.rows import Evidence, ObservedRows, count_effective, name_cost, observe
from bylaw.testing import (
    RANDOM,
    VERDICT_TONES,
    Audit,
    Comparison,
    Costs,
    Monitor,
    RuleAudit,
    Verdict,
    compare_costs,
    compute_random_share,
    find_predicted_costs,
    find_worst,
    hide_numbers,
    judge_estimate,
    list_costs,
    list_hidden_rules,
)
from bylaw.view import (
    Html,
    Track,
    Unit,
    describe_rate,
    find_unit,
    format_count,
    join_words,
    make_badge,
    pluralize,
    write_sentence,
)

if TYPE_CHECKING:
    from bylaw.report._prices import Curves

_MOST_GROUPS, _MOST_PARTITIONS, _MOST_LABELS = 12, 6, 5  # in a partition, in a report, and of a set
LEANING = 0.75  # the probability from which the likeliest decision is more than a toss-up


class Cell(NamedTuple):
    """A group of rows, each with its weight times its probability of belonging to the group."""

    name: str  # "Female", or "Female, black"
    event: Conditions
    weights: Floats  # (n_rows,)
    cases: float = math.nan  # how many rows, without weights; expected, if groups are predicted

    @property
    def size(self) -> str:
        """The number of cases in words, such as "66 cases"."""
        return pluralize(round(self.cases), "case")

    def average(self, values: Floats) -> Floats:
        """Return the mean of values (n_rows, ...) over the group."""
        return self.weights @ values / self.weights.sum()


class Partition(NamedTuple):
    """The groups of one attribute, or the combinations of several."""

    name: str
    cells: tuple[Cell, ...]
    left_out: int  # groups that are not shown, because there are many or they have too few rows
    is_predicted: bool  # known only as probabilities


@dataclass(frozen=True, eq=False)
class ReportRows:
    """Rows with the decisions of your model, those without rules, and the probabilities of the policy."""

    policy: Policy
    evidence: Evidence  # as the policy reads them
    seen: ObservedRows  # with what was observed
    held_out: bool
    fitted: bool  # whether the policy was chosen on them
    model: Floats  # (n_rows, n_actions): the decisions of your model, one label each
    without_rules: Floats | None  # (n_rows, n_actions): probabilities without rules, if they are known
    probabilities: Floats  # (n_rows, n_actions); for sets, of inclusion
    min_cell: int = MIN_CELL  # rows that a group must have to be shown
    _measured: dict[Atom, float] = field(default_factory=dict, init=False, repr=False)
    _compared: dict[Objective, Costs] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.evidence)

    @property
    def words(self) -> ActionWords:
        """The words of the policy's action space."""
        return get_words(self.policy.action_space)

    @property
    def labeled(self) -> bool:
        """Whether true labels were observed."""
        return LABEL in self.seen.observed

    @property
    def name(self) -> str:
        """The rows in words."""
        if self.held_out:
            return pluralize(len(self), "held-out case")
        origin = "on which the policy was chosen" if self.fitted else "given to this report"
        return f"the {pluralize(len(self), 'case')} {origin}"

    @cached_property
    def all_rows(self) -> Cell:
        """All rows as one group."""
        return Cell("all cases", (), self.evidence.row_weights, len(self))

    def measure(self, rate: Rate) -> float:
        """Measure a rate of the policy; rates that many rules share are computed once."""
        known, space = self._measured, self.policy.action_space
        for atom, _ in rate.terms:
            if atom not in known:
                known[atom] = measure_rate(Rate(((atom, 1.0),)), self.seen, self.probabilities, space)
        return rate.constant + sum(c * known[atom] for atom, c in rate.terms)

    def compare(self, rate: Objective) -> Costs:
        """Measure a rate with your model, without rules and with rules."""
        if rate not in self._compared:
            self._compared[rate] = compare_costs(
                self.policy,
                self.seen,
                rate,
                probabilities=self.probabilities,
                model=self.model,
                without_rules=self.without_rules,
            )
        return self._compared[rate]

    def compare_mistakes(self, cell: Cell) -> Costs | None:
        """Compare the shares of wrong decisions in a group.

        Return None without labels, or without a joint model of a predicted group and its labels.
        """
        rate = self.words.mistake
        if rate is None:
            return None
        try:
            return self.compare(rate.given(**dict(cell.event)) if cell.event else rate)
        except BylawError:
            return None

    @cached_property
    def change_probability(self) -> Floats:
        """(n_rows,): the probability that the decision is not your model's; for sets, not its label alone."""
        return self.words.compute_changes(self.model, self.probabilities)

    def compute_changed_share(self, cell: Cell) -> float:
        """Return the share of changed decisions in a group."""
        return float(cell.average(self.change_probability))

    def compute_flow(self, cell: Cell) -> Floats:
        """Return shares of a group by your model's and the policy's decision, (n_actions, n_actions)."""
        return (self.model * cell.weights[:, None]).T @ self.probabilities / cell.weights.sum()

    @property
    def random_share(self) -> float:
        """The share of cases that are decided at random."""
        return compute_random_share(self.probabilities, self.policy.action_space, self.seen)

    def compute_randomness(self) -> dict[str, float]:
        """Return the shares of cases whose likeliest decision is all but certain, likely, or neither."""
        likeliest = self.policy.action_space.decision_confidence(self.probabilities)
        settled, likely = (
            float(np.average(likeliest >= least, weights=self.evidence.row_weights))
            for least in (RANDOM, LEANING)
        )
        return {"settled": settled, "leaning": likely - settled, "open": 1.0 - likely}

    @cached_property
    def set_sizes(self) -> Floats:
        """(n_sizes,): the probability of a set of 0, 1, ... labels; the last one is of so many or more."""
        chance = np.zeros((min(_MOST_LABELS, self.probabilities.shape[1]) + 1, len(self)))
        chance[0] = 1.0
        # Add the labels one at a time: a set grows by a label with the probability of its inclusion.
        for inclusion in self.probabilities.T:
            grown = chance * inclusion
            chance = chance - grown
            chance[1:] += grown[:-1]
            chance[-1] += grown[-1]
        return self.all_rows.average(chance.T)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions into groups, those of the rules first."""
        named = list_partitions(self.policy.problem, self.seen)
        return tuple(make_partition(self.seen, attributes, self.min_cell) for attributes in named)

    @cached_property
    def single_rules(self) -> list[ExpandedRule]:
        """The rules of the problem, one for each group and label."""
        options = self.policy.action_space.options
        return self.policy.problem.expand(self.seen.classes, self.seen.group_values, options)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The single rules, and the groups of an objective, that are about groups too small to be shown."""
        seen, minimize = self.seen, self.policy.problem.minimize
        groups = minimize.list_groups(seen.classes, seen.group_values) if isinstance(minimize, Worst) else ()
        return list_hidden_rules([one.rule for one in self.single_rules], seen, self.min_cell, groups)


def list_partitions(problem: Problem, seen: ObservedRows) -> list[tuple[str, ...]]:
    """Return the attributes of each partition that is shown, those of the rules first."""
    named = [a for rule in problem.rules if isinstance(rule, Family) for a in rule.attributes]
    named += [(name,) for name in problem.attributes]
    named += [(name,) for name in seen.group_values]
    return [a for a in dict.fromkeys(named) if set(a) <= set(seen.group_values)][:_MOST_PARTITIONS]


def make_partition(seen: ObservedRows, attributes: tuple[str, ...], min_cell: int = MIN_CELL) -> Partition:
    """Return the largest groups of some attributes, without those that are too small to be shown."""
    values = seen.group_values
    cells = []
    for cell in itertools.product(*(values[name] for name in attributes)):
        event: Conditions = tuple(sorted(zip(attributes, cell, strict=True)))
        inside = seen.event_weights(event)
        weights = seen.predicted.row_weights * inside
        if weights.sum() > 0:
            cells.append(Cell(", ".join(map(str, cell)), event, weights, float(inside.sum())))
    large = list(itertools.compress(cells, choose_shown([cell.cases for cell in cells], min_cell)))
    largest = sorted(range(len(large)), key=lambda i: -large[i].weights.sum())[:_MOST_GROUPS]
    shown = tuple(large[i] for i in sorted(largest))
    is_predicted = not (seen.unseen - {LABEL}).isdisjoint(attributes)
    return Partition(" × ".join(attributes), shown, len(cells) - len(shown), is_predicted)


def make_report_rows(
    policy: Policy,
    rows: Evidence,
    held_out: bool,
    min_cell: int = MIN_CELL,
    without_rules: Floats | None = None,
) -> ReportRows:
    """Return rows with all that a report measures on them, given the decisions without rules."""
    evidence = policy.feature_map.admit(policy.calibrate(rows))
    seen = observe(evidence)
    hashed = hash_evidence(policy.feature_map, evidence)
    return ReportRows(
        policy=policy,
        evidence=evidence,
        seen=seen,
        held_out=held_out,
        fitted=shares_rows(hashed, policy.fingerprints),
        model=decide_as_model(policy.problem, evidence, policy.frequencies),
        without_rules=without_rules,
        probabilities=policy.probabilities(evidence),
        min_cell=min_cell,
    )


@dataclass(frozen=True)
class BoundedRate:
    """A rate with the rules on it: an upper bound, a lower one, or both."""

    place: int  # of its statement among the problem's rules
    rate: Rate | Ratio  # without its constant
    rules: tuple[str, ...]
    judged: RuleAudit  # the worst verdict of these rules, with the estimate and the interval of the rate
    track: Track
    is_predicted: bool = False  # whether costs in it are predictions
    hidden: bool = False  # whether it is about a group that is too small to be shown

    @property
    def unit(self) -> Unit:
        """How the rate is read."""
        return find_unit(self.rate)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on its rules."""
        return self.judged.verdict

    @property
    def slack(self) -> float:
        """How far the estimate is inside its bounds; below zero if it is outside."""
        inside = min(self.track.high - self.track.estimate, self.track.estimate - self.track.low)
        return math.inf if math.isnan(inside) else inside


def bound_rates(rows: ReportRows, audit: Audit | None) -> tuple[BoundedRate, ...]:
    """Return the rates of all rules, worst first; without an audit, they are estimates on these rows."""
    audited = audit.rules if audit else [_estimate(one.rule, rows) for one in rows.single_rules]
    rates: dict[Hashable, BoundedRate] = {}
    for (rule, _, place, _), judged in zip(rows.single_rules, audited, strict=True):
        if hidden := judged.rule in rows.hidden:
            judged = replace(hide_numbers(judged, rows.min_cell), reason=judged.reason)
        low, high = (-math.inf, judged.target) if judged.sense == "<=" else (judged.target, math.inf)
        track = Track(low, high, judged.estimate, judged.lower, judged.upper)
        rate, predicted = rule.bounded, bool(find_predicted_costs(rule.excess, rows.seen))
        key: Hashable = rate if isinstance(rate, Ratio) else frozenset(rate.terms)
        mirrored = frozenset((atom, -c) for atom, c in rate.terms)
        if isinstance(rate, Rate) and mirrored in rates:  # a - b and b - a are the same rate
            key, rate = mirrored, -1.0 * rate
            track = Track(-high, -low, 0.0 - track.estimate, -track.upper, -track.lower)
        bounded = BoundedRate(place, rate, (judged.rule,), judged, track, predicted, hidden)
        if key in rates:  # an upper and a lower bound on the same rate, with the worse verdict of the two
            first = rates[key]
            needed = [n for n in (first.judged.rows_needed, judged.rows_needed) if not math.isnan(n)]
            verdict, reason = (
                find_worst((first.verdict, judged.verdict)),
                first.judged.reason or judged.reason,
            )
            judged = replace(
                first.judged, verdict=verdict, rows_needed=max(needed, default=math.nan), reason=reason
            )
            low, high = max(first.track.low, track.low), min(first.track.high, track.high)
            track = first.track._replace(low=low, high=high)
            bounded = replace(first, rules=first.rules + bounded.rules, judged=judged, track=track)
        rates[key] = bounded
    return tuple(sorted(rates.values(), key=lambda one: (one.verdict.severity, one.slack)))


def _estimate(rule: Rule, rows: ReportRows) -> RuleAudit:
    """Estimate whether a rule holds, without a test.

    The effective sample size is that of the rule's smallest event, among the rows that show it.
    """
    space = rows.policy.action_space
    events = rule.excess.resolve(space.classes).by_event()
    names = {name for event in events for name, _ in event.conditions}
    names |= {LABEL for atom, _ in rule.excess.terms if atom.needs_label(space)}
    names |= {name_cost(name) for name in list_costs(rule.excess)}
    shown, places = rows.seen.restrict_with_places(names)
    chances = rows.probabilities[places]
    effective = min(
        count_effective(shown.row_weights, compute_sizes(event, shown, chances, space)) for event in events
    )
    excess = rows.measure(rule.excess)
    return judge_estimate(rule, excess, effective, rows.policy, rows.seen, rows.probabilities)


@dataclass(frozen=True)
class ReportContext:
    """A policy, the rows it is judged on, and all results about it."""

    title: str
    created: str
    owner: str
    model_version: str
    held_out_source: str  # the name of their table
    file_digest: str  # of the complete file of the policy
    judged: ReportRows  # held-out rows, or else the same as `fitted`
    fitted: ReportRows  # the rows that prices and frontiers are about
    audit: Audit | None
    confidence: float
    bounded_rates: tuple[BoundedRate, ...]  # worst first
    traced: Curves
    comparison: Comparison | None = None  # with an earlier policy
    monitor: Monitor | None = None  # that watched it since

    @property
    def policy(self) -> Policy:
        """The policy that the report is about."""
        return self.judged.policy

    @property
    def words(self) -> ActionWords:
        """The words of the policy's action space."""
        return self.judged.words

    @property
    def verdict(self) -> Verdict:
        """The verdict on all rules together."""
        if self.audit is not None:
            return self.audit.verdict
        return find_worst(bounded.verdict for bounded in self.bounded_rates)

    @property
    def badge(self) -> Html:
        """The verdict on all rules together, with its sign."""
        return make_badge(str(self.verdict), VERDICT_TONES[self.verdict])

    @property
    def alarms(self) -> str:
        """How many rules raised an alarm while the policy was watched."""
        count = sum(one.since is not None for one in self.monitor.status) if self.monitor else 0
        return f"{pluralize(count, 'rule')} raised an alarm" if count else "no rule raised an alarm"

    @property
    def measurement(self) -> str:
        """How errors were measured."""
        if not self.policy.action_space.classes:
            minimize = self.policy.problem.minimize
            return "as predicted" if find_predicted_costs(minimize, self.judged.seen) else "as observed"
        if not self.judged.labeled:
            return "as predicted by the model’s probabilities"
        return f"as observed{self._count_observed(LABEL)}"

    def _count_observed(self, name: str) -> str:
        """Return on how many cases something was observed, if not on all."""
        rows = self.judged.seen.seen.get(name)
        if rows is None:
            return ""
        return f" on {format_count(int(rows.sum()))} of {pluralize(len(self.judged), 'case')}"

    @property
    def rate_measurement(self) -> str:
        """How the rates of the rules were measured."""
        seen, expanded = self.judged.seen, self.judged.single_rules
        costs = [name for one in expanded for name in find_predicted_costs(one.rule.excess, seen)]
        names = join_words([f"“{name}”" for name in dict.fromkeys(costs)])
        predicted = f", with {names} as predicted" if costs else ""
        # Groups that are observed on some cases only, or predicted.
        named = {name for one in expanded for atom in one.rule.atoms() for name, _ in atom.conditions}
        named -= {LABEL}
        groups = ""
        if partly := sorted(seen.find_partly_seen(named)):
            names = join_words([f"{name} as observed{self._count_observed(name)}" for name in partly])
            groups = f", with {names}"
        elif unseen := sorted(seen.unseen & named):
            names = join_words(unseen)
            groups = f", but with {names} as predicted: the true {names} of these cases is not known here"
        return f"{self.measurement}{groups}{predicted}"

    @property
    def cost_unit(self) -> Unit:
        """How values of the objective are read on charts."""
        return "share" if self.policy.problem.minimize.is_probability else "plain"

    def write_sentence(self, statement: Statement) -> str:
        """Return what a rule or family demands."""
        return write_sentence(statement, self.policy.action_space.kind)

    def describe_rate(self, rate: Objective) -> str:
        """Return a noun for a rate."""
        return describe_rate(rate, self.policy.action_space.kind)
