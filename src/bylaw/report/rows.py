"""The rows that a report speaks of: as they were seen, as the model alone would decide them, and as the
policy does."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.auditing.audit import RANDOM
from bylaw.data.evidence import Evidence, RowData
from bylaw.data.outcomes import HeldOut, observe
from bylaw.errors import BylawError
from bylaw.formulation.row_rates import compute_row_rates, decide_baseline
from bylaw.language.expressions import Atom, Conditions, Rate, Rule
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.language.rates import error, miscoverage
from bylaw.policy.fingerprint import fingerprint_evidence, shares_rows
from bylaw.policy.policy import Policy

_MOST_CELLS = 12  # groups of one partition
_MOST_PARTITIONS = 6
_LARGEST_SET = 5  # set sizes are told apart up to here


class Cell(NamedTuple):
    """The rows of one group, each with its weight times its chance to belong there."""

    name: str  # "Female", or "Female, black"
    event: Conditions
    weights: Floats  # (n_rows,)

    @property
    def rows(self) -> float:
        """Expected, where groups are known only as probabilities."""
        return float(self.weights.sum())


class Partition(NamedTuple):
    """The groups of one attribute, or the combinations of several."""

    name: str
    cells: tuple[Cell, ...]
    left_out: int  # smaller groups that are not shown
    guessed: bool  # known only as probabilities


@dataclass(frozen=True, eq=False)
class Cases:
    """Rows with the model's own answers and the policy's probabilities."""

    policy: Policy
    evidence: Evidence  # as the policy sees them
    seen: RowData  # as they turned out, as far as that is known
    labelled: bool
    held_out: bool
    fitted: bool  # the policy was chosen on them
    own: Floats  # (n_rows, n_actions): the model's own answers, one label each
    probabilities: Floats  # (n_rows, n_actions); for sets, inclusion

    def __len__(self) -> int:
        return len(self.evidence)

    @property
    def sets(self) -> bool:
        return self.policy.action_space.kind == "sets"

    @cached_property
    def weights(self) -> Floats:
        weights = self.evidence.weights
        return np.ones(len(self)) if weights is None else weights

    @cached_property
    def everybody(self) -> Cell:
        return Cell("all cases", (), self.weights)

    def rate(self, rate: Rate, before: bool = False) -> float:
        """Of the policy, or of the model's own answers."""
        return rate.constant + sum(c * self._mean(atom, before) for atom, c in rate.terms)

    def excess(self, rule: Rule) -> float:
        return self.rate(rule.excess)

    def _mean(self, atom: Atom, before: bool) -> float:
        if (atom, before) not in self._means:
            probabilities = self.own if before else self.probabilities
            per_row = compute_row_rates(
                Rate(((atom, 1.0),)), self.seen, probabilities, self.policy.action_space
            )
            self._means[atom, before] = float(np.average(per_row, weights=self.seen.weights))
        return self._means[atom, before]

    @cached_property
    def _means(self) -> dict[tuple[Atom, bool], float]:
        return {}

    def shares(self, cell: Cell, before: bool = False) -> Floats:
        """(n_actions,): how often each action is taken in a group; for sets, is in the set."""
        return cell.weights @ (self.own if before else self.probabilities) / cell.weights.sum()

    def mistakes(self, cell: Cell, before: bool = False) -> float | None:
        """The share answered wrongly, or of sets that miss; None where a guessed group has no model of its
        labels."""
        rate = miscoverage() if self.sets else error()
        try:
            return self.rate(rate.given(**dict(cell.event)) if cell.event else rate, before)
        except BylawError:
            return None

    @cached_property
    def changed(self) -> Floats:
        """(n_rows,): the chance that a decision is not the model's own; for sets, not that label alone."""
        if not self.sets:
            return 1.0 - (self.own * self.probabilities).sum(axis=1)
        return 1.0 - np.where(self.own > 0, self.probabilities, 1.0 - self.probabilities).prod(axis=1)

    def changed_share(self, cell: Cell) -> float:
        return float(cell.weights @ self.changed / cell.weights.sum())

    def flow(self, cell: Cell) -> Floats:
        """(n_actions, n_actions): the share of cases with this own answer and this decision."""
        return (self.own * cell.weights[:, None]).T @ self.probabilities / cell.weights.sum()

    @cached_property
    def likeliest(self) -> Floats:
        """(n_rows,): how sure each decision is."""
        return self.policy.action_space.decision_confidence(self.probabilities)

    @property
    def random_share(self) -> float:
        return self.share_of(self.likeliest < RANDOM)

    def share_of(self, rows: NDArray[np.bool_]) -> float:
        return float(np.average(rows, weights=self.weights))

    @cached_property
    def set_sizes(self) -> Floats:
        """(sizes,): the chance of a set of 0, 1, ... labels; the last of so many or more."""
        chance = np.zeros((min(_LARGEST_SET, self.probabilities.shape[1]) + 1, len(self)))
        chance[0] = 1.0
        for inside in self.probabilities.T:
            grown = chance * inside
            chance = chance - grown
            chance[1:] += grown[:-1]
            chance[-1] += grown[-1]
        return chance @ self.weights / self.weights.sum()

    @property
    def guessed(self) -> set[str]:
        """Attributes of which these rows have only probabilities."""
        return set(self.seen.hidden_groups)

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Those of the rules first."""
        named = [a for rule in self.policy.problem.rules for a in _attributes_of(rule)]
        named += [(name,) for name in self.policy.problem.attributes]
        named += [(name,) for name in self.seen.group_values]
        known = [a for a in dict.fromkeys(named) if set(a) <= set(self.seen.group_values)]
        return tuple(self._partition(attributes) for attributes in known[:_MOST_PARTITIONS])

    def _partition(self, attributes: tuple[str, ...]) -> Partition:
        values = self.seen.group_values
        cells = []
        for cell in itertools.product(*(values[name] for name in attributes)):
            event: Conditions = tuple(sorted(zip(attributes, cell, strict=True)))
            weights = self.weights * self.seen.event_probability(event)
            if weights.sum() > 0:
                cells.append(Cell(", ".join(map(str, cell)), event, weights))
        kept = sorted(cells, key=lambda c: -c.rows)[:_MOST_CELLS]
        shown = tuple(cell for cell in cells if any(cell is one for one in kept))
        guessed = not self.guessed.isdisjoint(attributes)
        return Partition(" × ".join(attributes), shown, len(cells) - len(shown), guessed)


def _attributes_of(statement: Statement) -> tuple[tuple[str, ...], ...]:
    return statement.attributes if isinstance(statement, Family) else ()


def cases_of(policy: Policy, rows: HeldOut, held_out: bool) -> Cases:
    """Rows with all that a report measures on them."""
    evidence = policy.feature_map.admit(rows.evidence)
    prints = fingerprint_evidence(policy.feature_map, evidence)
    return Cases(
        policy=policy,
        evidence=evidence,
        seen=observe(evidence, rows.labels, rows.groups),
        labelled=rows.labels is not None,
        held_out=held_out,
        fitted=shares_rows(prints, policy.fingerprints),
        own=decide_baseline(policy.problem, evidence),
        probabilities=policy.probabilities(evidence),
    )
