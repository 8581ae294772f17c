"""The rows that a report measures: as observed, and as they are decided by your model, without rules and with
rules."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.small_cells import choose_shown
from bylaw._base.typing import Floats
from bylaw._base.validation import MIN_CELL
from bylaw.errors import BylawError
from bylaw.language.expressions import LABEL, Atom, Conditions, Objective, Rate, Worst
from bylaw.language.families import Family
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.policy.recognition import hash_evidence, shares_rows
from bylaw.program.row_rates import decide_as_model, measure_rate
from bylaw.report.action_words import ActionWords, get_words
from bylaw.report.number_format import pluralize
from bylaw.rows.evidence import Evidence
from bylaw.rows.outcomes import ObservedRows, observe
from bylaw.testing import Costs, compare_costs, compute_random_share, list_hidden_rules

_MOST_CELLS = 12  # groups of one partition
_MOST_PARTITIONS = 6
_LARGEST_SET = 5  # set sizes are told apart up to here


class Cell(NamedTuple):
    """The rows of one group, each with its weight times its probability of belonging there."""

    name: str  # "Female", or "Female, black"
    event: Conditions
    weights: Floats  # (n_rows,)
    cases: float = math.nan  # how many there are, whatever they weigh; expected, where groups are predicted

    @property
    def rows(self) -> float:
        """By weight."""
        return float(self.weights.sum())


def name_cases(cell: Cell) -> str:
    """How many cases a group has, such as "66 cases"."""
    return pluralize(round(cell.cases), "case")


class Partition(NamedTuple):
    """The groups of one attribute, or the combinations of several."""

    name: str
    cells: tuple[Cell, ...]
    left_out: int  # smaller groups that are not shown, by their number or since they have too few rows
    is_predicted: bool  # known only as probabilities


@dataclass(frozen=True, eq=False)
class ReportRows:
    """Rows with the decisions of your model, those without rules, and the probabilities of the policy."""

    policy: Policy
    evidence: Evidence  # as the policy sees them
    seen: ObservedRows  # as observed, as far as that is known
    labelled: bool
    held_out: bool
    fitted: bool  # the policy was chosen on them
    model: Floats  # (n_rows, n_actions): the decisions of your model, one label each
    without_rules: Floats | None  # (n_rows, n_actions): probabilities without rules, where they are known
    probabilities: Floats  # (n_rows, n_actions); for sets, of inclusion
    min_cell: int = MIN_CELL  # rows that a group must have to be shown

    def __len__(self) -> int:
        return len(self.evidence)

    @property
    def words(self) -> ActionWords:
        return get_words(self.policy.action_space)

    @cached_property
    def weights(self) -> Floats:
        return self.evidence.row_weights

    @cached_property
    def all_rows(self) -> Cell:
        return Cell("all cases", (), self.weights, len(self))

    def measure(self, rate: Rate) -> float:
        """A rate of the policy. Rates that many rules share are computed once."""
        return rate.constant + sum(c * self._measure_atom(atom) for atom, c in rate.terms)

    def _measure_atom(self, atom: Atom) -> float:
        if atom not in self._measured:
            rate, space = Rate(((atom, 1.0),)), self.policy.action_space
            self._measured[atom] = measure_rate(rate, self.seen, self.probabilities, space)
        return self._measured[atom]

    @cached_property
    def _measured(self) -> dict[Atom, float]:
        return {}

    def compare(self, rate: Objective) -> Costs:
        """A rate with your model, without rules and with rules."""
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

    @cached_property
    def _compared(self) -> dict[Objective, Costs]:
        return {}

    def compare_mistakes(self, cell: Cell) -> Costs | None:
        """The share of wrong decisions in a group; None where there is no model of a predicted group and its
        labels together, or no label at all."""
        rate = self.words.mistake
        if rate is None:
            return None
        try:
            return self.compare(rate.given(**dict(cell.event)) if cell.event else rate)
        except BylawError:
            return None

    def compute_shares(self, cell: Cell) -> tuple[Floats, Floats]:
        """(n_actions,) each: how often your model and the policy take each action in a group; for sets,
        include it."""
        before, after = (cell.weights @ taken for taken in (self.model, self.probabilities))
        return before / cell.weights.sum(), after / cell.weights.sum()

    @cached_property
    def change_probability(self) -> Floats:
        """(n_rows,): that a decision is not the one of your model; for sets, not that label alone."""
        return self.words.compute_changes(self.model, self.probabilities)

    def compute_changed_share(self, cell: Cell) -> float:
        return float(cell.weights @ self.change_probability / cell.weights.sum())

    def compute_flow(self, cell: Cell) -> Floats:
        """(n_actions, n_actions): the share of cases with this decision of your model and this one of the
        policy."""
        return (self.model * cell.weights[:, None]).T @ self.probabilities / cell.weights.sum()

    @cached_property
    def decision_confidence(self) -> Floats:
        """(n_rows,): the probability of the likeliest decision."""
        return self.policy.action_space.decision_confidence(self.probabilities)

    @property
    def random_share(self) -> float:
        return compute_random_share(self.probabilities, self.policy.action_space, self.seen)

    def compute_share(self, rows: NDArray[np.bool_]) -> float:
        """The weighted share of some of the rows."""
        return float(np.average(rows, weights=self.weights))

    @cached_property
    def set_sizes(self) -> Floats:
        """(sizes,): the probability of a set of 0, 1, ... labels; the last of so many or more."""
        chance = np.zeros((min(_LARGEST_SET, self.probabilities.shape[1]) + 1, len(self)))
        chance[0] = 1.0
        for inside in self.probabilities.T:
            grown = chance * inside
            chance = chance - grown
            chance[1:] += grown[:-1]
            chance[-1] += grown[-1]
        return chance @ self.weights / self.weights.sum()

    @property
    def predicted_groups(self) -> set[str]:
        """Attributes of which these rows have only probabilities."""
        return self.seen.unseen - {LABEL}

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Those of the rules first."""
        named = list_partitions(self.policy.problem, self.seen)
        return tuple(make_partition(self.seen, attributes, self.min_cell) for attributes in named)

    @cached_property
    def hidden(self) -> frozenset[str]:
        """The single rules, and the groups of an objective, that are about groups too small to be shown."""
        policy, seen, minimize = self.policy, self.seen, self.policy.problem.minimize
        stated = policy.problem.expand(seen.classes, seen.group_values, policy.action_space.options)
        groups = minimize.list_groups(seen.classes, seen.group_values) if isinstance(minimize, Worst) else ()
        return list_hidden_rules([found.rule for found in stated], seen, self.min_cell, groups)


def list_partitions(problem: Problem, seen: ObservedRows) -> list[tuple[str, ...]]:
    """The attributes of each partition that is shown, those of the rules first."""
    named = [a for rule in problem.rules if isinstance(rule, Family) for a in rule.attributes]
    named += [(name,) for name in problem.attributes]
    named += [(name,) for name in seen.group_values]
    return [a for a in dict.fromkeys(named) if set(a) <= set(seen.group_values)][:_MOST_PARTITIONS]


def make_partition(seen: ObservedRows, attributes: tuple[str, ...], min_cell: int = MIN_CELL) -> Partition:
    """The groups of some attributes; of many, the largest, and none that is too small to be shown."""
    values = seen.group_values
    cells = []
    for cell in itertools.product(*(values[name] for name in attributes)):
        event: Conditions = tuple(sorted(zip(attributes, cell, strict=True)))
        inside = seen.event_weights(event)
        weights = seen.predicted.row_weights * inside
        if weights.sum() > 0:
            cells.append(Cell(", ".join(map(str, cell)), event, weights, float(inside.sum())))
    large = list(itertools.compress(cells, choose_shown([cell.cases for cell in cells], min_cell)))
    kept = sorted(large, key=lambda c: -c.rows)[:_MOST_CELLS]
    shown = tuple(cell for cell in cells if any(cell is one for one in kept))
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
        labelled=LABEL in seen.observed,
        held_out=held_out,
        fitted=shares_rows(hashed, policy.fingerprints),
        model=decide_as_model(policy.problem, evidence, policy.frequencies),
        without_rules=without_rules,
        probabilities=policy.probabilities(evidence),
        min_cell=min_cell,
    )
