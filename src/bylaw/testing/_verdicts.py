"""Verdicts on rules: tested on held-out rows, or estimated on rows that were used to choose the policy.

Rules such as a >= 0.8 * b are about the ratio a / b. It is below a level r if a - r b is below zero, which is
a hypothesis like any other. The levels that are not refuted are a confidence interval of the ratio (Fieller,
1954), as valid as the tests at each level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from bylaw._base import Floats, choose_shown
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language import LABEL, ActionSpace, Conditions, Problem, Rate, Rule, format_conditions
from bylaw.policy import Policy
from bylaw.program import compile_problem, has_rows, measure_factor, measure_rate
from bylaw.rows import ObservedRows, RowData
from bylaw.testing._confidence_bounds import NOT_BINARY, adjust_holm
from bylaw.testing._hypotheses import (
    MOST_ROWS,
    NEVER,
    DecidedRows,
    HypothesisTest,
    Untestable,
    compute_bounds,
    compute_p_values,
    describe_vacuous,
)

# A rule is estimated to hold if its excess is at most the solver's own bound plus this, in the unit of the
# rule: one row in a million. `solve` stops at such a gradient mapping by default. It is far below the
# precision of reports, and far above the rounding errors of sums over rows.
TOLERANCE = 1e-6
_FAR = 1000  # more rows than this many times the present ones are not recommended
_MOST_VALUES = 2**22  # rows times rules that are tested at once, at most
_AT_LIMIT = 1e-9  # a smaller excess is a rounding error; no number of rows decides such a rule


class Verdict(StrEnum):
    """The result of testing a rule on rows.

    Held-out rows give `CERTIFIED`, `VIOLATED` or `UNDECIDED`. Rows that were used to fit or choose the policy
    prove nothing and give the estimates `HOLDS` or `BROKEN`. `UNJUDGED` is a rule that the rows cannot test.

    Examples
    --------
    >>> from bylaw import Verdict
    >>> Verdict("certified") is Verdict.CERTIFIED
    True
    >>> [str(verdict) for verdict in Verdict]  # worst first
    ['violated', 'estimated to be broken', 'undecided', 'not judged', 'certified', 'estimated to hold']
    """

    VIOLATED = "violated"
    BROKEN = "estimated to be broken"
    UNDECIDED = "undecided"
    UNJUDGED = "not judged"
    CERTIFIED = "certified"
    HOLDS = "estimated to hold"

    @property
    def severity(self) -> int:
        """Position among the verdicts, from 0 for the worst."""
        return list(type(self)).index(self)


def find_worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of these verdicts; `UNJUDGED` if the list is empty."""
    return min(verdicts, key=lambda verdict: verdict.severity, default=Verdict.UNJUDGED)


@dataclass(frozen=True)
class RuleAudit:
    """The audit of one single rule: the estimate of its rate, confidence bounds, p-values and a verdict.

    All rates are on the left of the rule, and the number on its right is the target. A rule with a multiple
    of a rate on its right, such as `error() <= 0.05 * accepted()` or the four-fifths rule, is about the ratio
    of both rates: the target is 0.05.

    Parameters
    ----------
    rule : str
        The text of the rule.
    sense : "<=" or ">="
        Whether the target is an upper or a lower bound of the rate.
    target : float
        The bound.
    estimate : float
        The observed rate, averaged over random decisions; the predicted one if `is_predicted`.
    lower, upper : float
        One-sided confidence bounds on the rate, each with the audit's confidence.
    p_value : float
        The p-value of the hypothesis that the rule is violated.
    p_holm : float
        `p_value` adjusted for the number of rules (Holm, 1979).
    p_violated : float
        The p-value of the hypothesis that the rule is satisfied.
    rows : float
        The effective sample size; if groups are compared, that of the smallest.
    verdict : Verdict
        The verdict of the test.
    rows_needed : float
        The approximate number of rows that would decide an undecided rule.
    reason : str
        Why the rule could not be judged, or empty.
    remedy : Remedy or None
        What to do so that the rule can be judged.
    judged_rows : int
        The number of rows without missing values among the labels, groups and costs in the rule.

    Examples
    --------
    >>> from bylaw import RuleAudit
    >>> judged = RuleAudit("rejected() <= 0.25", "<=", 0.25, estimate=0.5)
    >>> judged.excess
    0.25
    >>> str(judged.verdict)
    'not judged'
    """

    rule: str
    sense: Literal["<=", ">="]
    target: float
    estimate: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    p_value: float = math.nan
    p_holm: float = math.nan
    p_violated: float = math.nan
    rows: float = 0.0
    verdict: Verdict = Verdict.UNJUDGED
    rows_needed: float = math.nan
    reason: str = ""
    remedy: Remedy | None = None
    judged_rows: int = 0

    @property
    def is_predicted(self) -> bool:
        """True if the rule was not judged because its costs are predicted, not observed."""
        return self.remedy is not None and self.remedy.action == "pass_outcomes"

    @property
    def excess(self) -> float:
        """How far the estimate is beyond the target; at most zero if the estimate satisfies the rule."""
        return self.estimate - self.target if self.sense == "<=" else self.target - self.estimate


def describe_rule(
    rule: Rule, excess: float = math.nan, rows: float = 0.0, factor: float = math.nan
) -> RuleAudit:
    """Return a rule with its target and the estimate of its rate or ratio, without a verdict.

    `excess` is an estimate of `rule.excess`, which is at most zero if the rule is satisfied. `factor` is an
    estimate of `rule.factor`, the denominator of a ratio; nan without one. `rows` is the effective sample
    size.
    """
    distance = excess if rule.sense == "<=" else -excess
    if rule.factor is None:
        return RuleAudit(str(rule), rule.sense, rule.bound, rule.bound + distance, rows=rows)
    ratio = rule.level + distance / factor if factor else math.nan
    return RuleAudit(str(rule), rule.sense, rule.level, ratio, rows=rows)


def judge_estimate(
    rule: Rule, excess: float, effective_rows: float, policy: Policy, rows: RowData, probabilities: Floats
) -> RuleAudit:
    """Return a rule with an estimate of its rate and the verdict `HOLDS` or `BROKEN`, without a test.

    The rule counts as satisfied if its excess is at most the policy's `guarantee.violation` plus `TOLERANCE`,
    both in the unit of the rule on these rows. A solver multiplies ratios out, so that their excess may be
    larger by a factor of 1 / denominator, for decisions with these `probabilities` (n_rows, n_actions). If
    the denominator is zero, the ratio is 0/0, and the rule is not judged.
    """
    limit = (policy.guarantee.violation + TOLERANCE) * measure_unit(rule, rows, policy.action_space)
    wholes = {
        event: policy.expected(Rate(((event.whole, 1.0),)), rows, probabilities=probabilities)
        for event in rule.excess.by_event()
        if event.whole is not None
    }
    if wholes:
        rarest = min(wholes, key=lambda event: wholes[event])
        if wholes[rarest] * len(rows) <= NEVER:
            return replace(describe_rule(rule), reason=describe_vacuous(rarest))
        limit /= wholes[rarest]
    verdict = Verdict.HOLDS if excess <= limit else Verdict.BROKEN
    factor = measure_factor(rule, rows, probabilities, policy.action_space)
    return replace(describe_rule(rule, excess, effective_rows, factor), verdict=verdict)


def measure_unit(rule: Rule, rows: RowData, space: ActionSpace) -> float:
    """Return the unit in which solvers measure a rule.

    It is 1 for shares of rows; for rates that are far larger or smaller, such as costs in cents, it is their
    own size on these rows.
    """
    rate = rule.excess
    if rate.is_probability and max(abs(coefficient) for _, coefficient in rate.terms) == 1:
        return 1.0
    if len(rate.by_event()) > 1 and not rate.is_linear:
        return 1.0  # a difference of ratios, which no solver bounds directly
    rate = rate.multiply_out()
    alone = Problem(rate, [rule], decisions=space.decisions, reject=space.reject)
    return float(compile_problem(alone, rows).scales[0])


def list_hidden_rules(
    rules: Iterable[Rule], rows: ObservedRows, min_cell: int, others: Iterable[Conditions] = ()
) -> frozenset[str]:
    """Return the texts of the rules, and of the `others`, whose groups are too small to be shown.

    The groups of one attribute are counted separately for each true label that a rule is conditioned on.
    """
    conditions = {rule: {atom.conditions for atom in rule.atoms()} for rule in rules}
    others = list(others)
    named = {cell for cells in (*conditions.values(), others) for cell in cells} if min_cell > 1 else ()
    counts: dict[Conditions, float] = {}
    for cell in named:
        with suppress(EvidenceError):  # no row has such a value, or no column has it
            counts[cell] = float(np.minimum(rows.event_weights(cell), 1.0).sum())
    hidden = find_hidden_cells(counts, min_cell)
    texts = [str(rule) for rule, cells in conditions.items() if cells & hidden]
    return frozenset([*texts, *(format_conditions(cell) for cell in others if cell in hidden)])


def find_hidden_cells(counts: Mapping[Conditions, float], min_cell: int) -> set[Conditions]:
    """Return the groups that are too small to be shown, or that would reveal the numbers of such a group.

    `counts` is the number of rows of each group. Groups of the same attributes and true label are one
    partition.
    """
    partitions: dict[Hashable, list[Conditions]] = {}
    for cell in sorted(counts, key=str):
        named = dict(cell)
        label = named.pop(LABEL, None)
        if named:
            partitions.setdefault((label, *named), []).append(cell)
    hidden: set[Conditions] = set()
    for cells in partitions.values():
        shown = choose_shown([counts[cell] for cell in cells], min_cell)
        hidden |= {cell for cell, is_shown in zip(cells, shown, strict=True) if not is_shown}
    return hidden


def hide_numbers(judged: RuleAudit, min_cell: int) -> RuleAudit:
    """Return a rule about a small group with its verdict, and without numbers that reveal single rows."""
    unknown = dict.fromkeys(
        ("estimate", "lower", "upper", "p_value", "p_holm", "p_violated", "rows", "rows_needed"), math.nan
    )
    reason = (
        judged.reason or f"not shown: it is about a group of fewer than {min_cell} rows, or could reveal it"
    )
    return replace(judged, **unknown, judged_rows=0, reason=reason)


def is_out_of_reach(rows_needed: float, rows: float) -> bool:
    """Return whether the number of rows needed is so large that more rows are not recommended."""
    return rows_needed > _FAR * rows


def judge_rules(rules: Sequence[Rule], rows: DecidedRows, method: str, delta: float) -> list[RuleAudit]:
    """Test each rule, and return verdicts that are adjusted for the number of rules.

    Rules are tested in batches whose samples fit in memory.
    """

    def bound_excess(rule: Rule) -> tuple[float, float]:
        test = rows.test(rule, method)
        assert isinstance(test, HypothesisTest)
        return test.bounds(delta)

    several = max(_MOST_VALUES // max(len(rows.observed), 1), 1)
    tested = list[tuple[RuleAudit, float, float]]()
    for first in range(0, len(rules), several):
        posed = [_pose(rule, rows, method) for rule in rules[first : first + several]]
        tests = [test for _, test, _ in posed if test is not None]
        bounds, p_values = compute_bounds(tests, delta), compute_p_values(tests, [delta / len(rules), delta])
        found = zip(bounds, p_values, strict=True)
        for rule, (described, test, factor) in zip(rules[first : first + several], posed, strict=True):
            if test is None:
                tested.append((described, math.nan, math.nan))
                continue
            (least, most), ((p_kept, p_broken), (p_alone, _)) = next(found)
            # Widths shrink with the root of the number of rows: find how many times as many would move the
            # bound on the estimate's side to zero.
            estimate = test.estimate
            width = most - estimate if estimate <= 0 else estimate - least
            times = math.inf if abs(estimate) <= _AT_LIMIT else (width / estimate) ** 2
            # Bound the rate or the ratio on the left of the rule.
            if rule.factor is None or test.hypothesis.of_ratio:
                least, most = (least, most) if rule.sense == "<=" else (-most, -least)
                lower, upper = described.target + least, described.target + most
            else:
                lower, upper = bound_ratio(rule, described.estimate, factor, bound_excess)
                lower = max(lower, 0.0) if rule.left.lowest >= 0 else lower
            described = replace(
                described,
                lower=lower,
                upper=upper,
                p_value=p_alone,
                p_violated=p_broken,
                rows_needed=times * len(rows.observed),
            )
            tested.append((described, p_kept, p_broken))
    return _add_verdicts(tested, delta)


def _add_verdicts(tested: Sequence[tuple[RuleAudit, float, float]], delta: float) -> list[RuleAudit]:
    """Return the rules with verdicts that are all correct together with probability at least 1 - delta.

    `tested` has each rule with the p-values of "it is violated", most powerful at the level of one of several
    tests, and of "it is satisfied".
    """
    rules, kept, broken = zip(*tested, strict=True) if tested else ((), (), ())
    # Bounds widen with the root of log(1 / delta), and Holm's correction divides delta.
    widening = math.log(max(sum(not rule.reason for rule in rules), 1) / delta) / math.log(1 / delta)
    judged = []
    for rule, p_kept, p_broken in zip(rules, adjust_holm(kept), adjust_holm(broken), strict=True):
        verdict, needed = Verdict.UNJUDGED if rule.reason else Verdict.UNDECIDED, math.nan
        if p_kept <= delta:
            verdict = Verdict.CERTIFIED
        elif p_broken <= delta:
            verdict = Verdict.VIOLATED
        elif verdict is Verdict.UNDECIDED:
            needed = math.ceil(n) if (n := widening * rule.rows_needed) < MOST_ROWS else math.inf
        p_holm = max(p_kept, rule.p_value)  # nan stays nan
        judged.append(replace(rule, p_holm=p_holm, verdict=verdict, rows_needed=needed))
    return judged


def _pose(rule: Rule, rows: DecidedRows, method: str) -> tuple[RuleAudit, HypothesisTest | None, float]:
    """Return a rule without a verdict, its test or None, and the estimate of `rule.factor`."""
    shown = rows.restrict(rule.excess)
    try:
        test = rows.test(rule, method)
    except OptionError as problem:
        if rows.randomized or problem.remedy != NOT_BINARY:
            raise
        remedy, reason = (
            Remedy("choose_method", "betting"),
            "clopper_pearson cannot test it, since its rate has more than two values on a row",
        )
        described = replace(describe_rule(rule), reason=reason, remedy=remedy)
        return replace(described, judged_rows=len(shown.observed)), None, math.nan
    if isinstance(test, Untestable):
        return _leave_unjudged(rule, rows, test), None, math.nan
    factor = measure_factor(rule, shown.observed, shown.probabilities, shown.space)
    described = describe_rule(rule, test.estimate, test.rows, 1.0 if test.hypothesis.of_ratio else factor)
    return replace(described, judged_rows=len(shown.observed)), test, factor


def estimate_rule(rule: Rule, rows: DecidedRows, policy: Policy) -> RuleAudit:
    """Return a rule with its estimate and verdict on rows that were used to choose the policy."""
    test = rows.test(rule)
    if isinstance(test, Untestable):
        return _leave_unjudged(rule, rows, test)
    shown, excess = rows.restrict(rule.excess), test.estimate
    if shown is not rows:  # use the prediction-powered estimate over all rows, as the fit did
        excess = policy.expected(rule.excess, rows.observed, probabilities=rows.probabilities)
    judged = judge_estimate(rule, excess, test.rows, policy, rows.observed, rows.probabilities)
    return replace(judged, judged_rows=len(shown.observed))


def _leave_unjudged(rule: Rule, rows: DecidedRows, why: Untestable) -> RuleAudit:
    """Return a rule without a verdict, with its predicted rate if only its costs are unobserved."""
    described = replace(describe_rule(rule), reason=why.reason, remedy=why.remedy)
    rate, observed = rule.excess, rows.observed
    missing = [
        a for a, _ in rate.terms if a.function is None and a.reads("cost") not in (None, *observed.costs)
    ]
    if not described.is_predicted or missing or not has_rows(rate, observed):
        return described
    excess = measure_rate(rate, observed, rows.probabilities, rows.space)
    factor = measure_factor(rule, observed, rows.probabilities, rows.space)
    return replace(described, estimate=describe_rule(rule, excess, factor=factor).estimate)


def bound_ratio(
    rule: Rule, estimate: float, factor: float, bound_excess: Callable[[Rule], tuple[float, float]]
) -> tuple[float, float]:
    """Return a lower and an upper bound of the ratio in a rule; infinite if the rows do not bound it.

    The rule is a <= level * b or a >= level * b, where b is at least zero; `estimate` is that of a / b, and
    `factor` that of b. `bound_excess` returns a lower and an upper bound of the excess of the rule at another
    level, each right with the probability that the bounds of the ratio have.
    """
    if not math.isfinite(estimate):
        return -math.inf, math.inf

    @cache  # the search evaluates its ends twice
    def bound_difference(level: float) -> tuple[float, float]:
        """Return bounds of a - level * b."""
        least, most = bound_excess(rule.at(level))
        return (least, most) if rule.sense == "<=" else (-most, -least)

    lower = _search_level(lambda level: bound_difference(level)[0], estimate, -1 / factor)
    upper = _search_level(lambda level: -bound_difference(level)[1], estimate, 1 / factor)
    return lower, upper


def _search_level(overshoot: Callable[[float], float], start: float, unit: float) -> float:
    """Return the refuted level that is closest to `start` in the direction of `unit`.

    `overshoot` is above zero for refuted levels, and increases by about one in each unit.
    """
    # If the overshoot is linear, it is zero after this step without the added tenth.
    first = 1.1 * unit * max(-overshoot(start), 0.0)
    if not first:
        return start
    # Double the step until the level is refuted, or call the ratio unbounded.
    inside, step = start, first
    while overshoot(start + step) < 0:
        inside, step = start + step, 2 * step
        if abs(step) > 2.0**20 * abs(first):
            return math.copysign(math.inf, step)
    # Bisect, and add the precision of the bisection, so that the level is refuted.
    precision = 0.005 * abs(first)
    level = float(brentq(overshoot, inside, start + step, xtol=precision))  # type: ignore[arg-type]
    return level + math.copysign(precision, step)


def to_plain(value: Any) -> Any:
    """Convert to dicts, lists and values for JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist() if value.size else []
    return None if isinstance(value, float) and not math.isfinite(value) else value
