"""Comparison of two policies on the same rows: rates, costs, and the decisions that change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylaw._base import MIN_CELL, Floats, Value
from bylaw.errors import EvidenceError
from bylaw.language import CHANGED
from bylaw.policy import Policy
from bylaw.program import has_rows, measure_factor, measure_rate
from bylaw.rows import Evidence, ObservedRows, as_evidence, observe
from bylaw.testing._costs import is_observed, measure_referred
from bylaw.testing._verdicts import RuleAudit, describe_rule, find_hidden_cells, to_plain


class ComparedRule(NamedTuple):
    """A rule or family with its bound, and the rate of its worst single rule under each policy.

    For a difference with both an upper and a lower bound, the sign is such that lower is better.
    """

    statement: str
    target: float
    before: float
    after: float


class GroupChange(NamedTuple):
    """The share of decisions that differ between two policies in one group."""

    attribute: str
    value: Value
    rows: float  # weighted share of all rows
    changed: float  # share of changed decisions in the group


@dataclass(frozen=True)
class Comparison:
    """The result of `compare_policies`: rates, costs and changed decisions of two policies."""

    evidence: Evidence  # the rows, with the decisions of the earlier policy as a cost
    objective: str
    measurement: str  # "observed" or "as predicted"
    rules: tuple[ComparedRule, ...]
    cost_before: float
    cost_after: float
    referred_before: float  # share of decisions that are not labels; nan if all actions are labels
    referred_after: float
    changed: float  # share of decisions that differ
    by_group: tuple[GroupChange, ...]
    flows: Floats  # (n_actions, n_actions): share of rows by earlier (row) and later decision (column)
    actions: tuple[Value, ...]
    needs_previous: bool  # whether the later policy needs the decisions of the earlier one

    @property
    def rows(self) -> int:
        return len(self.evidence)

    def list_shown_groups(self, min_cell: int = MIN_CELL) -> list[GroupChange]:
        """Return the groups that have enough rows for their numbers to be shown."""
        counts = {((one.attribute, one.value),): one.rows * self.rows for one in self.by_group}
        hidden = find_hidden_cells(counts, min_cell)
        return [one for one in self.by_group if ((one.attribute, one.value),) not in hidden]

    def to_dict(self, min_cell: int = MIN_CELL) -> dict[str, Any]:
        """Return plain values for JSON, without groups of fewer than `min_cell` rows; nan becomes None."""
        names = ("rows", "objective", "measurement", "cost_before", "cost_after", "referred_before")
        fields = {name: getattr(self, name) for name in (*names, "referred_after", "changed")}
        by_group = [one._asdict() for one in self.list_shown_groups(min_cell)]
        return to_plain({**fields, "by_group": by_group, "rules": [one._asdict() for one in self.rules]})


def compare_policies(
    before: Policy,
    after: Policy,
    evidence: Evidence,
    *,
    ids: Any = None,
    labels: Any = None,
    groups: Any = None,
) -> Comparison:
    """Compare two policies on the same rows, averaged over their random decisions.

    Parameters
    ----------
    before, after : Policy
        The earlier and the later policy, with the same actions. The rules are those of the later one.
    evidence : Evidence
        The rows.
    ids : array of shape (n_rows,), optional
        The ids with which the earlier policy drew its random decisions; by default, its likeliest decisions
        are compared.
    labels, groups : optional
        The observed labels and groups, as in `audit`.

    Returns
    -------
    Comparison
    """
    if before.actions != after.actions:
        raise EvidenceError(
            f"the policies must have the same actions, got {list(before.actions)} and {list(after.actions)}"
        )
    evidence = as_evidence(evidence).with_observed(labels=labels, true_groups=groups)
    marked = before.mark_changes(evidence, ids=ids)
    seen = observe(after.feature_map.admit(after.calibrate(marked)))
    chances = before.probabilities(marked), after.probabilities(marked)
    taken = 1.0 - marked.costs[CHANGED]
    flows = (taken * marked.row_weights[:, None]).T @ chances[1] / marked.row_weights.sum()
    changed = (chances[1] * marked.costs[CHANGED]).sum(axis=1)
    # Find the share of changed decisions for each value of the groups that are known.
    weights, by_group = seen.row_weights, list[GroupChange]()
    for name, group in seen.known_groups.items():
        for place, value in enumerate(group.values):
            inside = weights * (group.codes == place)
            if (total := float(inside.sum())) > 0:
                share = float((inside * changed).sum()) / total
                by_group.append(GroupChange(name, value, total / float(weights.sum()), share))
    costs = [after.expected(after.problem.minimize, seen, probabilities=one) for one in chances]
    measured = is_observed(after.problem.minimize, seen, after.action_space)
    return Comparison(
        evidence=marked,
        objective=str(after.problem.minimize),
        measurement="observed" if measured else "as predicted",
        rules=_compare_rules(after, seen, chances),
        cost_before=costs[0],
        cost_after=costs[1],
        referred_before=measure_referred(chances[0], after.action_space, marked),
        referred_after=measure_referred(chances[1], after.action_space, marked),
        changed=float(np.average(changed, weights=marked.weights)),
        by_group=tuple(by_group),
        flows=flows,
        actions=after.actions,
        needs_previous=CHANGED in after.feature_map.cost_names,
    )


def _compare_rules(
    policy: Policy, observed: ObservedRows, decisions: tuple[Floats, Floats]
) -> tuple[ComparedRule, ...]:
    """Return, for each rule or family, the rate of its worst single rule under both policies."""
    space = policy.action_space
    families = dict[str, list[tuple[float, list[RuleAudit]]]]()  # sign of a rule, and its two rates
    for found in policy.problem.expand(observed.classes, observed.group_values, space.options):
        if has_rows(found.rule.excess, observed):
            # The bound of a difference within limits counts as an upper one.
            sign = -1.0 if found.rule.sense == ">=" and found.statement.is_band else 1.0
            described = [
                describe_rule(
                    found.rule,
                    measure_rate(found.rule.excess, observed, decided, space),
                    factor=measure_factor(found.rule, observed, decided, space),
                )
                for decided in decisions
            ]
            families.setdefault(str(found.statement), []).append((sign, described))

    compared = []
    for statement, lines in families.items():
        rates = []
        for place in range(2):
            excesses = [np.nan_to_num(described[place].excess, nan=-math.inf) for _, described in lines]
            sign, worst = lines[int(np.argmax(excesses))]
            rates.append(sign * worst[place].estimate)
        sign, described = lines[0]
        compared.append(ComparedRule(statement, sign * described[0].target, *rates))
    return tuple(compared)
