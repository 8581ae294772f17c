"""The rows that a report measures, with the decisions of your model, without rules, and of the policy."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw._base.validation import MIN_CELL, choose_shown
from bylaw.errors import BylawError
from bylaw.language.expressions import LABEL, Atom, Conditions, Objective, Rate, Worst
from bylaw.language.families import Family
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.policy.recognition import hash_evidence, shares_rows
from bylaw.program.row_rates import decide_as_model, measure_rate
from bylaw.report.action_words import ActionWords, get_words
from bylaw.rows.evidence import Evidence
from bylaw.rows.outcomes import ObservedRows, observe
from bylaw.testing import RANDOM, Costs, compare_costs, compute_random_share, list_hidden_rules
from bylaw.view.numbers import pluralize

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

        Return None if there is no label, or no model of a predicted group and its labels together.
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
    def hidden(self) -> frozenset[str]:
        """The single rules, and the groups of an objective, that are about groups too small to be shown."""
        policy, seen, minimize = self.policy, self.seen, self.policy.problem.minimize
        rules = policy.problem.expand(seen.classes, seen.group_values, policy.action_space.options)
        groups = minimize.list_groups(seen.classes, seen.group_values) if isinstance(minimize, Worst) else ()
        return list_hidden_rules([one.rule for one in rules], seen, self.min_cell, groups)


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
