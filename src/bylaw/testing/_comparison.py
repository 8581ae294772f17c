"""Comparison of two policies on the same rows: rates, costs, and the decisions that change."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw._base.validation import MIN_CELL, choose_shown
from bylaw.errors import EvidenceError
from bylaw.language.expressions import CHANGED, Rule
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import has_rows, measure_factor, measure_rate
from bylaw.rows.evidence import Evidence, as_evidence
from bylaw.rows.outcomes import ObservedRows, observe
from bylaw.testing._costs import is_observed, measure_referred
from bylaw.testing._verdicts import RuleAudit, describe_rule, to_plain


class ComparedRule(NamedTuple):
    """A rule or family with its bound, and the rate of its worst single rule under each policy.

    Differences that have two bounds are signed so that less is better.
    """

    statement: str
    target: float
    before: float
    after: float


class GroupChange(NamedTuple):
    """The changed decisions in one group."""

    attribute: str
    value: Value
    rows: float  # weighted share of all
    changed: float  # share of them


@dataclass(frozen=True)
class Comparison:
    """The result of `compare_policies`."""

    evidence: Evidence  # with the decisions of the earlier policy marked
    objective: str
    measurement: str  # whether rates are as observed
    rules: tuple[ComparedRule, ...]
    cost_before: float
    cost_after: float
    referred_before: float  # share of decisions that are no labels; nan where there are only labels
    referred_after: float
    changed: float  # share of decisions
    by_group: tuple[GroupChange, ...]
    flows: Floats  # (n_actions, n_actions): shares of all rows, from the earlier decision to the later one
    actions: tuple[Value, ...]
    needs_previous: bool  # the later policy must be told what the earlier one decides

    @property
    def rows(self) -> int:
        return len(self.evidence)

    def list_shown_groups(self, min_cell: int = MIN_CELL) -> list[GroupChange]:
        """Return the groups that have enough rows to be shown."""
        shown: list[GroupChange] = []
        for attribute in dict.fromkeys(one.attribute for one in self.by_group):
            own = [one for one in self.by_group if one.attribute == attribute]
            shown += itertools.compress(own, choose_shown([one.rows * self.rows for one in own], min_cell))
        return shown

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
    """Compare two policies on these rows, with the random decisions averaged out.

    Parameters
    ----------
    before, after : Policy
        with the same actions. Rules are those of the later one.
    evidence : Evidence
    ids : array of shape (n_rows,), optional
        with which the earlier policy drew its decisions; by default, its likeliest ones are compared.
    labels, groups : optional
        what was observed, as in `audit`.

    Returns
    -------
    Comparison
    """
    if before.actions != after.actions:
        raise EvidenceError(
            f"policies with other actions cannot be compared: {list(before.actions)}, {list(after.actions)}"
        )
    evidence = as_evidence(evidence).with_observed(labels=labels, true_groups=groups)
    marked = before.mark_changes(evidence, ids=ids)
    seen = observe(after.feature_map.admit(after.calibrate(marked)))
    chances = before.probabilities(marked), after.probabilities(marked)
    taken = 1.0 - marked.costs[CHANGED]
    flows = (taken * marked.row_weights[:, None]).T @ chances[1] / marked.row_weights.sum()
    changed = (chances[1] * marked.costs[CHANGED]).sum(axis=1)
    costs = [after.expected(after.problem.minimize, seen, probabilities=one) for one in chances]
    return Comparison(
        evidence=marked,
        objective=str(after.problem.minimize),
        measurement="observed"
        if is_observed(after.problem.minimize, seen, after.action_space)
        else "as predicted",
        rules=_compare_rules(after, seen, chances),
        cost_before=costs[0],
        cost_after=costs[1],
        referred_before=measure_referred(chances[0], after.action_space, marked),
        referred_after=measure_referred(chances[1], after.action_space, marked),
        changed=float(np.average(changed, weights=marked.weights)),
        by_group=_compare_groups(seen, changed),
        flows=flows,
        actions=after.actions,
        needs_previous=CHANGED in after.feature_map.cost_names,
    )


def _compare_rules(
    policy: Policy, observed: ObservedRows, decisions: tuple[Floats, Floats]
) -> tuple[ComparedRule, ...]:
    """Compare each rule or family by its worst single rule under each policy."""
    space = policy.action_space

    def describe(rule: Rule, decided: Floats) -> RuleAudit:
        excess = measure_rate(rule.excess, observed, decided, space)
        return describe_rule(rule, excess, factor=measure_factor(rule, observed, decided, space))

    families = dict[str, list[tuple[float, list[RuleAudit]]]]()
    for found in policy.problem.expand(observed.classes, observed.group_values, space.options):
        if has_rows(found.rule.excess, observed):
            # The bound of a difference within limits counts as an upper one.
            sign = -1.0 if found.rule.sense == ">=" and found.statement.is_band else 1.0
            described = [describe(found.rule, decided) for decided in decisions]
            families.setdefault(str(found.statement), []).append((sign, described))

    def find_worst_rate(lines: list[tuple[float, list[RuleAudit]]], place: int) -> float:
        sign, worst = max(lines, key=lambda line: np.nan_to_num(line[1][place].excess, nan=-math.inf))
        return sign * worst[place].estimate

    compared = []
    for statement, lines in families.items():
        sign, described = lines[0]
        rates = find_worst_rate(lines, 0), find_worst_rate(lines, 1)
        compared.append(ComparedRule(statement, sign * described[0].target, *rates))
    return tuple(compared)


def _compare_groups(observed: ObservedRows, changed: Floats) -> tuple[GroupChange, ...]:
    """Return the share of changed decisions for each value of the groups that are known."""
    weights, changes = observed.row_weights, list[GroupChange]()
    for name, group in observed.known_groups.items():
        for place, value in enumerate(group.values):
            inside = weights * (group.codes == place)
            if (total := float(inside.sum())) > 0:
                share = float((inside * changed).sum()) / total
                changes.append(GroupChange(name, value, total / float(weights.sum()), share))
    return tuple(changes)
