"""Rules tested on held-out rows: estimates, bounds and p-values of each, and verdicts on all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bylaw.errors import Remedy
from bylaw.language.expressions import Rule
from bylaw.policy.policy import Policy
from bylaw.program.row_rates import has_rows, measure_factor, measure_rate
from bylaw.testing._confidence_bounds import NotBinaryError, adjust_holm
from bylaw.testing._hypotheses import (
    MOST_ROWS,
    HeldOutSample,
    Hypothesis,
    HypothesisTest,
    Untestable,
    compute_bounds,
    compute_p_values,
)
from bylaw.testing._ratio_bounds import bound_ratio
from bylaw.testing._verdicts import RuleAudit, Verdict, describe_rule, judge_estimate

_MOST_VALUES = 2**22  # rows times rules that are tested together
_AT_LIMIT = 1e-9  # an excess this small is zero but for rounding, and no number of rows decides it


def judge_rules(rules: Sequence[Rule], rows: HeldOutSample, method: str, delta: float) -> list[RuleAudit]:
    """Each rule, with a verdict that is adjusted for their number. Several are tested together, as long as
    their samples are not too large to be kept."""
    several = max(_MOST_VALUES // max(len(rows.seen), 1), 1)
    tested: list[_Tested] = []
    for first in range(0, len(rules), several):
        posed = [_pose(rule, rows, method) for rule in rules[first : first + several]]
        tested += _test_together(posed, rows, method, delta, len(rules))
    return _add_verdicts(tested, delta)


class _Posed(NamedTuple):
    rule: Rule
    described: RuleAudit  # what is known of it without a test
    test: HypothesisTest | None = None  # if it can be tested
    factor: float = math.nan  # the estimate of `rule.factor`
    of_ratio: bool = False  # the test is of the ratio itself

    def find_bounds(
        self, excess: tuple[float, float], rows: HeldOutSample, method: str, delta: float
    ) -> tuple[float, float]:
        """Of the rate, from those of the excess; of a ratio, by tests at other levels."""
        if self.rule.factor is None or self.of_ratio:
            least, most = excess if self.rule.sense == "<=" else (-excess[1], -excess[0])
            return self.described.target + least, self.described.target + most

        def bound_excess(rule: Rule) -> tuple[float, float]:
            hypothesis = rows.make_hypothesis(rule)
            assert isinstance(hypothesis, Hypothesis)
            return HypothesisTest(hypothesis, method).bounds(delta)

        lower, upper = bound_ratio(self.rule, self.described.estimate, self.factor, bound_excess)
        return (max(lower, 0.0) if self.rule.left.lowest >= 0 else lower), upper


class _Tested(NamedTuple):
    rule: RuleAudit  # with bounds and the p-value of this rule alone; its verdict depends on the others
    p_kept: float  # of the hypothesis that it does not hold, sharpest at the level of one of several tests
    p_broken: float  # of the hypothesis that it does, likewise


def _pose(rule: Rule, rows: HeldOutSample, method: str) -> _Posed:
    """A rule as a hypothesis about the rows."""
    hypothesis = rows.make_hypothesis(rule)
    if isinstance(hypothesis, Untestable):
        return _Posed(rule, _leave_unjudged(rule, rows, hypothesis))
    shown = rows.restrict(rule.excess)
    judged_rows = len(shown.seen)
    try:
        test = HypothesisTest(hypothesis, method)
    except NotBinaryError:
        if rows.random:
            raise
        described = replace(
            describe_rule(rule, rows=hypothesis.rows),
            judged_rows=judged_rows,
            reason="it has more than two values on a row",
            remedy=Remedy("choose_method", "betting"),
        )
        return _Posed(rule, described)
    factor = measure_factor(rule, shown.seen, shown.probabilities, shown.space)
    described = describe_rule(rule, test.estimate, hypothesis.rows, 1.0 if hypothesis.of_ratio else factor)
    described = replace(described, judged_rows=judged_rows)
    return _Posed(rule, described, test, factor, hypothesis.of_ratio)


def _test_together(
    posed: Sequence[_Posed], rows: HeldOutSample, method: str, delta: float, n_rules: int
) -> list[_Tested]:
    tests = [one.test for one in posed if one.test is not None]
    bounds = iter(compute_bounds(tests, delta))
    p_values = iter(compute_p_values(tests, [delta / n_rules, delta]))
    tested = []
    for one in posed:
        if one.test is None:
            tested.append(_Tested(one.described, math.nan, math.nan))
            continue
        excess, ((p_kept, p_broken), (p_alone, _)) = next(bounds), next(p_values)
        lower, upper = one.find_bounds(excess, rows, method, delta)
        described = replace(
            one.described,
            lower=lower,
            upper=upper,
            p_value=p_alone,
            p_violated=p_broken,
            rows_needed=_rows_needed(one.test.estimate, *excess) * len(rows.seen),
        )
        tested.append(_Tested(described, p_kept, p_broken))
    return tested


def estimate_rule(rule: Rule, rows: HeldOutSample, policy: Policy) -> RuleAudit:
    """A rule on rows on which the policy was chosen, which prove nothing."""
    hypothesis = rows.make_hypothesis(rule)
    if isinstance(hypothesis, Untestable):
        return _leave_unjudged(rule, rows, hypothesis)
    shown, excess = rows.restrict(rule.excess), HypothesisTest(hypothesis, "betting").estimate
    if shown is not rows:  # as the policy was chosen: prediction-powered, over all rows
        excess = policy.expected(rule.excess, rows.seen, probabilities=rows.probabilities)
    judged = judge_estimate(rule, excess, hypothesis.rows, policy, rows.seen, rows.probabilities)
    return replace(judged, judged_rows=len(shown.seen))


def _leave_unjudged(rule: Rule, rows: HeldOutSample, why: Untestable) -> RuleAudit:
    """Without a verdict. Where only costs are predicted, the estimate is the predicted rate."""
    described = replace(describe_rule(rule), reason=why.reason, remedy=why.remedy)
    rate, seen = rule.excess, rows.seen
    lacking = [a for a, _ in rate.terms if a.function is None and a.reads("cost") not in (None, *seen.costs)]
    if not described.is_predicted or lacking or not has_rows(rate, seen):
        return described
    excess = measure_rate(rate, seen, rows.probabilities, rows.space)
    predicted = describe_rule(rule, excess, factor=measure_factor(rule, seen, rows.probabilities, rows.space))
    return replace(described, estimate=predicted.estimate)


def _rows_needed(excess: float, least: float, most: float) -> float:
    """How many times as many rows would move the bound on the estimate's side to zero: widths shrink with
    the root of the number of rows."""
    width = most - excess if excess <= 0 else excess - least
    return math.inf if abs(excess) <= _AT_LIMIT else (width / excess) ** 2


def _add_verdicts(found: Sequence[_Tested], delta: float) -> list[RuleAudit]:
    """Which rules hold and which do not, each list right as a whole with probability 1 - delta."""
    kept, broken = adjust_holm([r.p_kept for r in found]), adjust_holm([r.p_broken for r in found])
    judged = []
    # Bounds widen with the root of log(1 / delta), and Holm's correction divides delta.
    widening = math.log(max(sum(not r.rule.reason for r in found), 1) / delta) / math.log(1 / delta)
    for (rule, _, _), p_kept, p_broken in zip(found, kept, broken, strict=True):
        verdict = Verdict.UNJUDGED if rule.reason else Verdict.UNDECIDED
        if p_kept <= delta:
            verdict = Verdict.CERTIFIED
        elif p_broken <= delta:
            verdict = Verdict.VIOLATED
        needed = math.nan
        if verdict is Verdict.UNDECIDED:
            needed = math.ceil(n) if (n := widening * rule.rows_needed) < MOST_ROWS else math.inf
        adjusted = max(p_kept, rule.p_value)  # nan stays nan
        judged.append(replace(rule, p_holm=adjusted, verdict=verdict, rows_needed=needed))
    return judged
