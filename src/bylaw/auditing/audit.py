"""Audits: what held-out rows say of each rule, with bounds, p-values and verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from bylaw._base.typing import Floats
from bylaw._base.validation import check_fraction
from bylaw.auditing.confidence_bounds import METHODS, NotBinaryError, holm
from bylaw.auditing.formatting import as_html, as_text
from bylaw.auditing.hypotheses import (
    MOST_ROWS,
    SPENT,
    HeldOutSample,
    Hypothesis,
    HypothesisTest,
    Untestable,
    check_limits,
    check_weight,
)
from bylaw.auditing.reliability import Reliability, reliability
from bylaw.data.arrays import make_frame
from bylaw.data.evidence import Evidence, RowData, as_evidence, encode_values
from bylaw.data.outcomes import Limits, ObservedRows, observe
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.formulation.row_rates import decide_baseline, has_rows
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import Rule
from bylaw.language.parser import Statement
from bylaw.language.problem import Problem
from bylaw.policy.fingerprint import fingerprint_evidence, shares_rows
from bylaw.policy.policy import Policy

RANDOM = 0.99  # a decision is random where its likeliest outcome is less likely
_ROUNDING = 1e-9
_ANY = 0.05  # an estimate does not depend on it


class Verdict(StrEnum):
    CERTIFIED = "certified"
    VIOLATED = "violated"
    UNDECIDED = "undecided"
    UNJUDGED = "not judged"
    HOLDS = "estimated to hold"
    BROKEN = "estimated to be broken"


@dataclass(frozen=True)
class RuleAudit:
    """One single rule. Its rate has all rates on the left, its target is the number on the right."""

    rule: str
    sense: Literal["<=", ">="]
    target: float
    estimate: float = math.nan  # the observed rate, with the draws integrated out
    lower: float = math.nan  # one-sided bounds, each right with the audit's confidence
    upper: float = math.nan
    p_value: float = math.nan  # of the hypothesis that the rule does not hold
    p_holm: float = math.nan  # adjusted for the number of rules
    p_violated: float = math.nan  # of the hypothesis that the rule holds
    rows: float = 0.0  # that count, weighted; of two groups, the smaller
    verdict: Verdict = Verdict.UNJUDGED
    rows_needed: float = math.nan  # about how many rows like all of these would decide it
    reason: str = ""  # why it could not be judged
    remedy: Remedy | None = None  # what would let it be judged

    @property
    def excess(self) -> float:
        """How far the estimate is from holding; above zero, it is broken."""
        return self.estimate - self.target if self.sense == "<=" else self.target - self.estimate


@dataclass(frozen=True, repr=False)
class Audit:
    """What rows say of a policy's rules."""

    rules: tuple[RuleAudit, ...]
    confidence: float
    method: str
    certificate: bool  # False: an estimate, on rows that chose the policy
    rows: int
    objective: str
    cost_before: float  # of the model's own answers: the best labels, without rules
    cost_after: float
    cost_observed: bool  # with true labels, not the model's probabilities
    rejected: float  # share of rows; nan where nothing can be rejected
    random: float  # share of rows whose likeliest decision has probability below .99
    reliability: tuple[Reliability, ...]

    @property
    def verdict(self) -> Verdict:
        """Of all rules together. "certified" needs no correction for their number: it is wrong only if a
        rule that does not hold passes its own test."""
        verdicts = [rule.verdict for rule in self.rules]
        if not verdicts:
            return Verdict.UNJUDGED
        if not self.certificate:
            worst = (Verdict.BROKEN, Verdict.UNJUDGED, Verdict.HOLDS)
            return next(verdict for verdict in worst if verdict in verdicts)
        if Verdict.VIOLATED in verdicts:
            return Verdict.VIOLATED
        p_values = [rule.p_value for rule in self.rules]
        passed = all(p <= 1 - self.confidence for p in p_values)  # nan is no pass
        return Verdict.CERTIFIED if passed else Verdict.UNDECIDED

    def to_frame(self, like: Any = None) -> Any:
        """One line per single rule; a frame of the library of `like`, or else of the first installed of
        pandas, polars, pyarrow."""
        names = ("rule", "target", "estimate", "lower", "upper", "p_value", "p_holm", "rows")
        columns: dict[str, Any] = {name: [getattr(rule, name) for rule in self.rules] for name in names}
        return make_frame({**columns, "verdict": [str(rule.verdict) for rule in self.rules]}, like)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not known is None."""
        fields = {name: value for name, value in vars(self).items() if name not in ("rules", "reliability")}
        rules = [
            {**vars(rule), "verdict": str(rule.verdict), "remedy": rule.remedy and asdict(rule.remedy)}
            for rule in self.rules
        ]
        lines = [line._asdict() for line in self.reliability]
        return _plain({"verdict": str(self.verdict), **fields, "rules": rules, "reliability": lines})

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def audit(
    policy: Policy,
    evidence: Evidence,
    *,
    labels: Any = None,
    groups: Any = None,
    rules: Sequence[Statement | str] | Statement | str | None = None,
    decisions: Any = None,
    unlabelled: Evidence | None = None,
    limits: Limits | None = None,
    largest_weight: float | None = None,
    confidence: float = 0.95,
    method: Literal["betting", "hoeffding_bentkus", "clopper_pearson"] = "betting",
    fitted_rows: Literal["refuse", "estimate"] = "refuse",
) -> Audit:
    """What these rows say of a policy's rules: a fair sample of those it will decide.

    Parameters
    ----------
    labels
        the true label of each row; rules that speak of labels are not judged without.
    groups
        the true groups, {name: one value per row} or a frame, of attributes that the evidence knows only
        as probabilities or not at all.
    rules
        other rules than the policy's own.
    decisions
        what was decided, one action per row (for sets, membership of each label): these are judged
        instead of the policy's probabilities.
    unlabelled
        more rows without labels, which sharpen the bounds of rules that speak of labels.
    limits
        {name: (least, most)} of costs in `custom(name)`: without, rules on them are not judged.
    largest_weight
        that any row can have. Without, it is taken to be the largest of these rows.
    confidence
        of each bound and each certificate; 0.95 is right in 95 of 100 audits.
    method
        "betting" is narrow where rates vary little between rows; "hoeffding_bentkus";
        "clopper_pearson" for decisions that are not random. Choose before you look.
    fitted_rows
        "refuse" rows on which the policy was chosen, or call what they say an "estimate".
    """
    if not isinstance(policy, Policy):
        raise OptionError(
            f"audit() takes a Policy and then Evidence, not {type(policy).__name__} first; a classifier is "
            "audited by its own method, classifier.audit(X, y)"
        )
    delta = 1 - check_fraction(confidence, "confidence")
    if method not in METHODS:
        raise OptionError(f"there is no method {method!r}; choose one of {list(METHODS)}")
    as_evidence(evidence)
    certificate = _held_out(policy, [evidence, unlabelled], fitted_rows)
    evidence = policy.feature_map.admit(evidence)
    probabilities = (
        policy.probabilities(evidence)
        if decisions is None
        else _encode_decisions(decisions, policy.action_space, evidence)
    )
    seen = observe(evidence, labels, groups)
    rows = HeldOutSample(
        seen,
        probabilities,
        policy.action_space,
        labelled=labels is not None,
        unlabelled=_more(policy, unlabelled, decisions),
        limits=check_limits({} if limits is None else limits, evidence),
        largest_weight=check_weight(largest_weight, evidence),
    )
    stated = _stated_rules(policy, seen, rules)
    found = [
        _judged(rule, rows, method, delta, SPENT * delta / len(stated))
        if certificate
        else _estimated(rule, rows, policy)
        for rule in stated
    ]
    before, after = _costs(policy, evidence, seen, probabilities)
    return Audit(
        rules=tuple(_with_verdicts(found, delta) if certificate else found),
        confidence=confidence,
        method=method,
        certificate=certificate,
        rows=len(evidence),
        objective=str(policy.problem.minimize),
        cost_before=before,
        cost_after=after,
        cost_observed=labels is not None,
        rejected=_rejected_share(probabilities, policy.action_space, seen),
        random=_random_share(probabilities, policy.action_space, seen),
        reliability=reliability(evidence, seen, labels is not None),
    )


def _costs(
    policy: Policy, evidence: Evidence, seen: ObservedRows, probabilities: Floats
) -> tuple[float, float]:
    """Of the baseline and of these decisions; nan where no row has what the objective refers to."""
    minimize = policy.problem.minimize
    if not (has_rows(minimize, evidence) and has_rows(minimize, seen)):
        return math.nan, math.nan
    own = decide_baseline(policy.problem, evidence)
    return policy.expected(minimize, seen, probabilities=own), policy.expected(
        minimize, seen, probabilities=probabilities
    )


def _held_out(policy: Policy, parts: Sequence[Evidence | None], fitted_rows: str) -> bool:
    """Whether these rows had no say in the policy."""
    if fitted_rows not in ("refuse", "estimate"):
        raise OptionError(f"fitted_rows must be 'refuse' or 'estimate', not {fitted_rows!r}")
    prints = [fingerprint_evidence(policy.feature_map, part) for part in parts if part is not None]
    if not any(shares_rows(part, policy.fingerprints) for part in prints):
        return True
    if fitted_rows == "refuse":
        raise EvidenceError(
            "these are rows on which the policy was chosen, and they cannot certify it",
            Remedy("estimate_fitted_rows"),
        )
    return False


def _encode_decisions(taken: Any, space: ActionSpace, evidence: Evidence) -> Floats:
    """Decisions that were taken, one-hot, (n_rows, n_actions)."""
    if not space.exclusive:
        membership = np.asarray(taken)
        if membership.shape != (len(evidence), len(space.actions)) or membership.dtype != bool:
            raise EvidenceError(
                f"decisions must be True or False for each row and label, of shape "
                f"({len(evidence)}, {len(space.actions)}), as from policy.decide"
            )
        return membership.astype(float)
    vector = evidence.vector(taken, "decisions")
    positions = {action: i for i, action in enumerate(space.actions)}
    return np.eye(len(space.actions))[encode_values(vector, positions, "decisions")]


def _more(policy: Policy, unlabelled: Evidence | None, decisions: Any) -> HeldOutSample | None:
    if unlabelled is None:
        return None
    if decisions is not None:
        raise OptionError("unlabelled rows are decided by the policy: leave out decisions= or unlabelled=")
    admitted = policy.feature_map.admit(as_evidence(unlabelled))
    if admitted.weights is not None:
        raise EvidenceError("unlabelled rows take no weights: draw them as the labelled ones were drawn")
    return HeldOutSample(admitted, policy.probabilities(admitted), policy.action_space, labelled=False)


def _stated_rules(policy: Policy, seen: ObservedRows, rules: Any) -> list[Rule]:
    """The policy's own single rules, or others."""
    problem = policy.problem
    if rules is not None:
        problem = Problem(problem.minimize, rules, None, policy.action_space.kind, policy.action_space.reject)
    return [found.rule for found in problem.expand(seen.classes, seen.group_values)]


def _judged(rule: Rule, rows: HeldOutSample, method: str, delta: float, spent: float) -> RuleAudit:
    """Without verdict, which depends on the other rules."""
    hypothesis = rows.make_hypothesis(rule, spent)
    if isinstance(hypothesis, Untestable):
        return _described(rule, hypothesis)
    described = _described(rule, hypothesis)
    try:
        kept, broken = (
            HypothesisTest(hypothesis, method, delta),
            HypothesisTest(hypothesis.negated, method, delta),
        )
    except NotBinaryError:
        if rows.random:
            raise
        return replace(
            described,
            reason="it has more than two values on a row",
            remedy=Remedy("choose_method", "betting"),
        )
    # A bound by betting depends on the order of rows and may leave the estimate out; none that is shown does.
    least, most = min(-broken.upper, hypothesis.estimate), max(kept.upper, hypothesis.estimate)
    bounds = (least, most) if rule.sense == "<=" else (-most, -least)
    return replace(
        described,
        lower=described.target + bounds[0],
        upper=described.target + bounds[1],
        p_value=kept.p_value,
        p_violated=broken.p_value,
        rows_needed=_rows_needed(hypothesis.estimate, least, most) * len(rows.seen),
    )


def _described(rule: Rule, hypothesis: Hypothesis | Untestable) -> RuleAudit:
    sign = 1.0 if rule.sense == "<=" else -1.0
    target = -sign * rule.excess.constant + 0.0
    if isinstance(hypothesis, Untestable):
        return RuleAudit(str(rule), rule.sense, target, reason=hypothesis.reason, remedy=hypothesis.remedy)
    return RuleAudit(
        str(rule), rule.sense, target, estimate=target + sign * hypothesis.estimate, rows=hypothesis.rows
    )


def _estimated(rule: Rule, rows: HeldOutSample, policy: Policy) -> RuleAudit:
    hypothesis = rows.make_hypothesis(rule, _ANY)
    described = _described(rule, hypothesis)
    if isinstance(hypothesis, Untestable):
        return described
    holds = hypothesis.estimate <= policy.guarantee.violation + _ROUNDING
    return replace(described, verdict=Verdict.HOLDS if holds else Verdict.BROKEN)


def _rows_needed(excess: float, least: float, most: float) -> float:
    """How many times as many rows would move the bound on the estimate's side to zero: widths shrink with
    the root of the number of rows."""
    width = most - excess if excess <= 0 else excess - least
    return math.inf if abs(excess) <= _ROUNDING else (width / excess) ** 2


def _with_verdicts(found: Sequence[RuleAudit], delta: float) -> list[RuleAudit]:
    """Which rules hold and which do not, each list right as a whole with probability 1 - delta."""
    kept, broken = holm([r.p_value for r in found]), holm([r.p_violated for r in found])
    judged = []
    # Bounds widen with the root of log(1 / delta), and Holm's correction divides delta.
    widening = math.log(max(sum(not r.reason for r in found), 1) / delta) / math.log(1 / delta)
    for rule, p_kept, p_broken in zip(found, kept, broken, strict=True):
        verdict = Verdict.UNJUDGED if rule.reason else Verdict.UNDECIDED
        if p_kept <= delta:
            verdict = Verdict.CERTIFIED
        elif p_broken <= delta:
            verdict = Verdict.VIOLATED
        needed = math.nan
        if verdict is Verdict.UNDECIDED:
            needed = math.ceil(n) if (n := widening * rule.rows_needed) < MOST_ROWS else math.inf
        judged.append(replace(rule, p_holm=p_kept, verdict=verdict, rows_needed=needed))
    return judged


def _rejected_share(probabilities: Floats, space: ActionSpace, seen: RowData) -> float:
    place = space.reject_position
    return math.nan if place is None else float(np.average(probabilities[:, place], weights=seen.weights))


def _random_share(probabilities: Floats, space: ActionSpace, seen: RowData) -> float:
    return float(np.average(space.decision_confidence(probabilities) < RANDOM, weights=seen.weights))
