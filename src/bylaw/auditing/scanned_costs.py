"""What rules cost on rows that live elsewhere, by one pass over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.auditing.costs import Costs, measure_referred
from bylaw.backends.scan import SurveyedRows
from bylaw.data.evidence import RowData
from bylaw.formulation.row_rates import decide_baseline
from bylaw.policy.policy import Policy


@dataclass(frozen=True)
class CostSums:
    """Of some rows; those of different rows add up."""

    n_rows: int
    mass: float  # of their weights
    costs: Floats  # (3,): of the baseline, of the policy, and its cases referred, times the weights

    def __add__(self, other: CostSums) -> CostSums:
        return CostSums(self.n_rows + other.n_rows, self.mass + other.mass, self.costs + other.costs)


class ScannedCosts(NamedTuple):
    """How many rows there are, what they cost, and the share of cases referred."""

    n_rows: int
    costs: Costs
    referred: float


def compare_scanned_costs(policy: Policy, rows: SurveyedRows) -> ScannedCosts:
    """The cost of the baseline and of the policy on all rows, as `compare_costs` gives it of rows in memory.

    Parameters
    ----------
    policy : Policy
    rows : SurveyedRows
        from `scan(...).survey(policy.problem)`: the costs are observed ones where there are labels.

    Returns
    -------
    ScannedCosts
    """
    parts = rows.scan.walk(_CostTask(policy, rows), rows.reader.names, lambda found: found.n_rows)
    total = reduce(add, parts)
    before, after, referred = (total.costs / total.mass).tolist()
    return ScannedCosts(total.n_rows, Costs(before, after), referred)


@dataclass(frozen=True)
class _CostTask:
    """The sums of a partition."""

    policy: Policy
    rows: SurveyedRows

    def __call__(self, partition: int, batches: Iterator[Any]) -> CostSums | None:
        found = [self._add_up(batch) for batch in batches if len(batch)]
        return reduce(add, found) if found else None

    def _add_up(self, batch: Any) -> CostSums:
        reader, policy = self.rows.reader, self.policy
        evidence = reader.read(batch).with_columns(margins=self.rows.margins)
        mass = float(evidence.row_weights.sum())
        if not mass:
            return CostSums(len(batch), 0.0, np.zeros(3))
        seen: RowData = evidence
        if reader.observes:
            seen = reader.observe(batch, evidence).with_columns(margins=self.rows.observed_margins)
        decisions = decide_baseline(policy.problem, evidence), policy.probabilities(evidence)
        means = [policy.expected(policy.problem.minimize, seen, probabilities=part) for part in decisions]
        means.append(measure_referred(decisions[1], policy.action_space, evidence))
        return CostSums(len(batch), mass, mass * np.array(means))
