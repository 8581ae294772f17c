"""Two policies on the same rows: their rates and costs, and the decisions that change."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bylaw._base.small_cells import choose_shown
from bylaw._base.typing import Floats, Value
from bylaw._base.validation import MIN_CELL
from bylaw.errors import EvidenceError
from bylaw.language.expressions import CHANGED
from bylaw.language.problem import ExpandedRule
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import has_rows, measure_factor, measure_rate
from bylaw.rows.evidence import Evidence, as_evidence
from bylaw.rows.outcomes import ObservedRows, observe
from bylaw.testing._costs import is_observed, measure_referred
from bylaw.testing._verdicts import RuleAudit, describe_rule


class ComparedRule(NamedTuple):
    """A rule or family, by its worst part under each policy: rate and bound. A difference that may go either
    way is counted so that less is better."""

    statement: str
    target: float
    before: float
    after: float


class GroupChange(NamedTuple):
    """Of the rows of one group."""

    attribute: str
    value: Value
    rows: float  # weighted share of all
    changed: float  # share of them


@dataclass(frozen=True)
class Comparison:
    """An earlier and a later policy on the same rows."""

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
        """Plain values for JSON, without groups of fewer than `min_cell` rows; unknown numbers are None."""
        rules = [{k: _to_plain(v) for k, v in one._asdict().items()} for one in self.rules]
        return {
            "rows": self.rows,
            "objective": self.objective,
            "measurement": self.measurement,
            "cost_before": _to_plain(self.cost_before),
            "cost_after": _to_plain(self.cost_after),
            "referred_before": _to_plain(self.referred_before),
            "referred_after": _to_plain(self.referred_after),
            "changed": self.changed,
            "by_group": [one._asdict() for one in self.list_shown_groups(min_cell)],
            "rules": rules,
        }


def compare_policies(
    before: Policy,
    after: Policy,
    evidence: Evidence,
    *,
    ids: Any = None,
    labels: Any = None,
    groups: Any = None,
) -> Comparison:
    """Both policies on these rows, with the random decisions averaged out.

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
        by_group=_group_changes(seen, changed),
        flows=flows,
        actions=after.actions,
        needs_previous=CHANGED in after.feature_map.cost_names,
    )


def _compare_rules(
    policy: Policy, seen: ObservedRows, chances: tuple[Floats, Floats]
) -> tuple[ComparedRule, ...]:
    space, members = policy.action_space, dict[str, list[ExpandedRule]]()
    for found in policy.problem.expand(seen.classes, seen.group_values, space.options):
        members.setdefault(str(found.statement), []).append(found)
    compared = []
    for statement, rules in members.items():
        lines = [
            _measure(found, seen, chances, policy) for found in rules if has_rows(found.rule.excess, seen)
        ]
        if lines:
            target = lines[0].target
            compared.append(ComparedRule(statement, target, _worst(lines, 0), _worst(lines, 1)))
    return tuple(compared)


class _Measured(NamedTuple):
    target: float
    rates: tuple[float, float]
    excesses: tuple[float, float]


def _measure(
    found: ExpandedRule, seen: ObservedRows, chances: tuple[Floats, Floats], policy: Policy
) -> _Measured:
    """The rate of a rule under both policies; of a difference within limits, so that its bound is an upper
    one."""
    rule, space = found.rule, policy.action_space

    def describe(decided: Floats) -> RuleAudit:
        excess = measure_rate(rule.excess, seen, decided, space)
        return describe_rule(rule, excess, factor=measure_factor(rule, seen, decided, space))

    before, after = map(describe, chances)
    sign = -1.0 if rule.sense == ">=" and found.statement.is_band else 1.0
    rates = sign * before.estimate, sign * after.estimate
    return _Measured(sign * before.target, rates, (before.excess, after.excess))


def _worst(lines: list[_Measured], place: int) -> float:
    """Of those that have a rate."""
    known = [line for line in lines if not math.isnan(line.excesses[place])]
    return max(known or lines, key=lambda line: line.excesses[place]).rates[place]


def _group_changes(seen: ObservedRows, changed: Floats) -> tuple[GroupChange, ...]:
    """Of each value of the groups that are known."""
    weights, found = seen.row_weights, list[GroupChange]()
    for name, group in seen.known_groups.items():
        for place, value in enumerate(group.values):
            inside = weights * (group.codes == place)
            if (total := float(inside.sum())) > 0:
                share = float((inside * changed).sum()) / total
                found.append(GroupChange(name, value, total / float(weights.sum()), share))
    return tuple(found)


def _to_plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
