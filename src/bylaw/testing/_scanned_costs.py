"""What rules cost on rows that live elsewhere, by one pass over all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.engines.scan import SurveyedRows
from bylaw.language.expressions import Rate, Worst
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import combine_means, compute_row_rates, decide_as_model, list_group_rates
from bylaw.rows.evidence import RowData
from bylaw.testing._costs import Costs, find_without_rules, measure_referred


@dataclass(frozen=True)
class CostSums:
    """Of some rows; those of different rows add up."""

    n_rows: int
    mass: float  # of their weights
    rates: (
        Floats  # (3, n_rates): linear rates with your model, without rules and with rules, times the weights
    )
    referred: float  # cases that the policy refers, times the weights

    def __add__(self, other: CostSums) -> CostSums:
        return CostSums(
            self.n_rows + other.n_rows,
            self.mass + other.mass,
            self.rates + other.rates,
            self.referred + other.referred,
        )


class ScannedCosts(NamedTuple):
    """How many rows there are, what they cost, and the share of cases referred."""

    n_rows: int
    costs: Costs
    referred: float


def compare_scanned_costs(policy: Policy, rows: SurveyedRows) -> ScannedCosts:
    """Compute the costs on all rows, as `compare_costs` does of rows in memory.

    Parameters
    ----------
    policy : Policy
    rows : SurveyedRows
        from `scan(...).survey(policy.problem)`: the costs are observed ones where there are labels.

    Returns
    -------
    ScannedCosts
    """
    classes, objective = policy.action_space.classes, policy.problem.minimize
    seen: RowData = rows.evidence if rows.observed is None else rows.observed
    measured = (
        list(list_group_rates(objective, seen).values()) if isinstance(objective, Worst) else [objective]
    )
    # Note the linear rates that are asked for: their sums over batches add up.
    places: dict[Rate, int] = {}

    def note(linear: Rate) -> float:
        places.setdefault(linear, len(places))
        return 1.0

    for rate in measured:
        combine_means(rate, classes, note)
    task = _CostTask(policy, rows, tuple(places))
    total = reduce(add, rows.scan.walk(task, rows.reader.names, lambda found: found.n_rows))

    def measure(means: Floats) -> float:
        return max(combine_means(rate, classes, lambda linear: means[places[linear]]) for rate in measured)

    costs = Costs(*map(measure, total.rates / total.mass))
    return ScannedCosts(total.n_rows, costs, total.referred / total.mass)


@dataclass(frozen=True)
class _CostTask:
    """The sums of a partition."""

    policy: Policy
    rows: SurveyedRows
    rates: Sequence[Rate]

    def __call__(self, partition: int, batches: Iterator[Any]) -> CostSums | None:
        found = [self._add_up(batch) for batch in batches if len(batch)]
        return reduce(add, found) if found else None

    def _add_up(self, batch: Any) -> CostSums:
        reader, policy = self.rows.reader, self.policy
        evidence = reader.read(batch).with_columns(margins=self.rows.margins)
        mass = float(evidence.row_weights.sum())
        if not mass:
            return CostSums(len(batch), 0.0, np.zeros((3, len(self.rates))), 0.0)
        seen: RowData = evidence
        if reader.observes:
            seen = reader.observe(batch, evidence).with_columns(margins=self.rows.observed_margins)
        without = find_without_rules(policy, policy.calibrate(evidence))
        model = decide_as_model(policy.problem, evidence, policy.frequencies)
        decisions = model, without, policy.probabilities(evidence)
        sums = [
            [
                math.nan
                if part is None
                else evidence.row_weights @ compute_row_rates(rate, seen, part, policy.action_space)
                for rate in self.rates
            ]
            for part in decisions
        ]
        referred = mass * measure_referred(decisions[-1], policy.action_space, evidence)
        return CostSums(len(batch), mass, np.array(sums), referred)
