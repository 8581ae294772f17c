"""The results that a report presents, before they are put into words and charts."""

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

_MOST_GROUPS, _MOST_PARTITIONS, _MOST_LABELS = (
    12,
    6,
    5,
)  # groups per partition, partitions, and labels in a set
LEANING = 0.75  # the least probability of a decision that is likely, but not settled


class Cell(NamedTuple):
    """A group of rows, with the weight of each row times its probability of being in the group."""

    name: str  # "Female", or "Female, black"
    event: Conditions
    weights: Floats  # (n_rows,)
    cases: float = math.nan  # the unweighted number of rows; its expectation if groups are predicted

    @property
    def size(self) -> str:
        """The number of cases as text, such as "66 cases"."""
        return pluralize(round(self.cases), "case")

    def average(self, values: Floats) -> Floats:
        """Return the weighted mean of values (n_rows, ...) over the group."""
        return self.weights @ values / self.weights.sum()


class Partition(NamedTuple):
    """The groups of one attribute, or the intersections of several attributes."""

    name: str
    cells: tuple[Cell, ...]
    left_out: int  # the number of groups that are not shown: too many, or too small
    is_predicted: bool  # whether the groups are known only as probabilities


@dataclass(frozen=True, eq=False)
class ReportRows:
    """Rows with the decisions of the user's model, of the policy without rules, and of the policy."""

    policy: Policy
    evidence: Evidence  # with the policy's calibration and features
    seen: ObservedRows  # the rows with observed labels and groups
    held_out: bool
    fitted: bool  # whether the policy was fitted on these rows
    model: Floats  # (n_rows, n_actions): 1 for the label that the user's model predicts
    without_rules: Floats | None  # (n_rows, n_actions): probabilities without rules, if they are known
    probabilities: Floats  # (n_rows, n_actions), of the policy; for sets, of inclusion
    min_cell: int = MIN_CELL  # the number of rows that a group must have to be shown
    _measured: dict[Atom, float] = field(default_factory=dict, init=False, repr=False)
    _compared: dict[Objective, Costs] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.evidence)

    @property
    def words(self) -> ActionWords:
        """The wording that depends on the policy's kind of decisions."""
        return get_words(self.policy.action_space)

    @property
    def labeled(self) -> bool:
        """Whether true labels were observed."""
        return LABEL in self.seen.observed

    @property
    def name(self) -> str:
        """The rows as text, such as "500 held-out cases"."""
        if self.held_out:
            return pluralize(len(self), "held-out case")
        origin = "on which the policy was chosen" if self.fitted else "given to this report"
        return f"the {pluralize(len(self), 'case')} {origin}"

    @cached_property
    def all_rows(self) -> Cell:
        """All rows as one group."""
        return Cell("all cases", (), self.evidence.row_weights, len(self))

    def measure(self, rate: Rate) -> float:
        """Return a rate of the policy on these rows; the rates of atoms are cached."""
        known, space = self._measured, self.policy.action_space
        for atom, _ in rate.terms:
            if atom not in known:
                known[atom] = measure_rate(Rate(((atom, 1.0),)), self.seen, self.probabilities, space)
        return rate.constant + sum(c * known[atom] for atom, c in rate.terms)

    def compare(self, rate: Objective) -> Costs:
        """Return the values of a rate with the user's model, without rules, and with the policy."""
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
        """Return a group's error rates with the user's model, without rules, and with the policy.

        Return None without labels, or if the group is predicted without a joint model of group and label.
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
        """The probability that the decision of each row differs from that of the user's model, (n_rows,).

        For sets, the probability that the set is not exactly the model's label.
        """
        return self.words.compute_changes(self.model, self.probabilities)

    def compute_changed_share(self, cell: Cell) -> float:
        """Return the share of cases in a group whose decision differs from the user's model."""
        return float(cell.average(self.change_probability))

    def compute_flow(self, cell: Cell) -> Floats:
        """Return shares of a group's cases by two decisions, (n_actions, n_actions).

        Rows are the decisions of the user's model, and columns the decisions of the policy.
        """
        return (self.model * cell.weights[:, None]).T @ self.probabilities / cell.weights.sum()

    @property
    def random_share(self) -> float:
        """The share of cases whose decision is random."""
        return compute_random_share(self.probabilities, self.policy.action_space, self.seen)

    def compute_randomness(self) -> dict[str, float]:
        """Return the shares of cases by the probability of their most likely decision.

        The names are "settled" (99 % or more), "leaning" (75 % to 99 %) and "open" (less).
        """
        likeliest = self.policy.action_space.decision_confidence(self.probabilities)
        settled, likely = (
            float(np.average(likeliest >= least, weights=self.evidence.row_weights))
            for least in (RANDOM, LEANING)
        )
        return {"settled": settled, "leaning": likely - settled, "open": 1.0 - likely}

    @cached_property
    def set_sizes(self) -> Floats:
        """The probability of each set size 0, 1, ..., (n_sizes,); the last entry includes larger sets."""
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
        """The partitions of the rows into groups; those that the rules refer to come first."""
        named = list_partitions(self.policy.problem, self.seen)
        return tuple(make_partition(self.seen, attributes, self.min_cell) for attributes in named)

    @cached_property
    def single_rules(self) -> list[ExpandedRule]:
        """The single rules of the problem, one for each group and label of a family."""
        options = self.policy.action_space.options
        return self.policy.problem.expand(self.seen.classes, self.seen.group_values, options)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The texts of single rules, and of groups in the objective, about groups too small to be shown."""
        seen, minimize = self.seen, self.policy.problem.minimize
        groups = minimize.list_groups(seen.classes, seen.group_values) if isinstance(minimize, Worst) else ()
        return list_hidden_rules([one.rule for one in self.single_rules], seen, self.min_cell, groups)


def list_partitions(problem: Problem, seen: ObservedRows) -> list[tuple[str, ...]]:
    """Return the attributes of each partition to show; those that the rules refer to come first."""
    named = [a for rule in problem.rules if isinstance(rule, Family) for a in rule.attributes]
    named += [(name,) for name in problem.attributes]
    named += [(name,) for name in seen.group_values]
    return [a for a in dict.fromkeys(named) if set(a) <= set(seen.group_values)][:_MOST_PARTITIONS]


def make_partition(seen: ObservedRows, attributes: tuple[str, ...], min_cell: int = MIN_CELL) -> Partition:
    """Return the largest groups of some attributes, without groups that are too small to be shown."""
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
    """Apply the policy to rows and return them with all decisions that a report compares."""
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
    """A rate that rules bound from above, from below or both, with its estimate and verdict."""

    place: int  # the index of its rule or family in the problem
    rate: Rate | Ratio  # without its constant
    rules: tuple[str, ...]
    judged: RuleAudit  # the worst verdict of these rules, with the estimate and the interval of the rate
    track: Track
    is_predicted: bool = False  # whether it contains costs that are predicted
    hidden: bool = False  # whether it refers to a group that is too small to be shown

    @property
    def unit(self) -> Unit:
        """The unit in which the rate is written."""
        return find_unit(self.rate)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on the rules that bound the rate."""
        return self.judged.verdict

    @property
    def slack(self) -> float:
        """The distance of the estimate to its nearest bound; negative if a bound is violated."""
        inside = min(self.track.high - self.track.estimate, self.track.estimate - self.track.low)
        return math.inf if math.isnan(inside) else inside


def bound_rates(rows: ReportRows, audit: Audit | None) -> tuple[BoundedRate, ...]:
    """Return the rates that rules bound, worst first, with estimates or the verdicts of an audit."""
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
    """Judge a rule by its estimated rate, without a statistical test.

    The effective sample size is the one of the smallest group that the rule refers to, among rows with the
    observations that the rule needs.
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
    """A policy, the rows on which it is judged, and all results that the report presents."""

    title: str
    created: str
    owner: str
    model_version: str
    held_out_source: str  # the name of the table of held-out rows
    file_digest: str  # the SHA-256 hash of the policy's file
    judged: ReportRows  # held-out rows, or else the same as `fitted`
    fitted: ReportRows  # the rows for prices and frontiers
    audit: Audit | None
    confidence: float
    bounded_rates: tuple[BoundedRate, ...]  # worst first
    traced: Curves
    comparison: Comparison | None = None  # with an earlier policy
    monitor: Monitor | None = None  # of the policy in use

    @property
    def policy(self) -> Policy:
        """The policy that the report is about."""
        return self.judged.policy

    @property
    def words(self) -> ActionWords:
        """The wording that depends on the policy's kind of decisions."""
        return self.judged.words

    @property
    def verdict(self) -> Verdict:
        """The verdict on all rules together."""
        if self.audit is not None:
            return self.audit.verdict
        return find_worst(bounded.verdict for bounded in self.bounded_rates)

    @property
    def badge(self) -> Html:
        """The verdict on all rules together as a badge with a sign."""
        return make_badge(str(self.verdict), VERDICT_TONES[self.verdict])

    @property
    def alarms(self) -> str:
        """The number of rules with an alarm of the monitor, as text."""
        count = sum(one.since is not None for one in self.monitor.status) if self.monitor else 0
        return f"{pluralize(count, 'rule')} raised an alarm" if count else "no rule raised an alarm"

    @property
    def measurement(self) -> str:
        """How errors were measured, as text such as "as observed"."""
        if not self.policy.action_space.classes:
            minimize = self.policy.problem.minimize
            return "as predicted" if find_predicted_costs(minimize, self.judged.seen) else "as observed"
        if not self.judged.labeled:
            return "as predicted by the model’s probabilities"
        return f"as observed{self._count_observed(LABEL)}"

    def _count_observed(self, name: str) -> str:
        """Return text such as " on 300 of 500 cases" if only these have the column; else an empty text."""
        rows = self.judged.seen.seen.get(name)
        if rows is None:
            return ""
        return f" on {format_count(int(rows.sum()))} of {pluralize(len(self.judged), 'case')}"

    @property
    def rate_measurement(self) -> str:
        """How the rates of the rules were measured, as text."""
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
            groups = f", but with {names} as predicted: the true {names} of these cases is not known"
        return f"{self.measurement}{groups}{predicted}"

    @property
    def cost_unit(self) -> Unit:
        """The unit in which values of the objective are written on charts."""
        return "share" if self.policy.problem.minimize.is_probability else "plain"

    def write_sentence(self, statement: Statement) -> str:
        """Describe a rule or family in a sentence."""
        return write_sentence(statement, self.policy.action_space.kind)

    def describe_rate(self, rate: Objective) -> str:
        """Describe a rate by a noun phrase."""
        return describe_rate(rate, self.policy.action_space.kind)
