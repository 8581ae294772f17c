"""Policies whose rules hold with high probability: refits with smaller and smaller margins, each tested on
rows that were held out.

The sequence is fixed before the rows are looked at, and starts with the most cautious policy. A test that
passes opens the way to the next; the first that fails ends the walk. So one true failure has to be passed
by mistake for a wrong answer, and the last policy that passed is right with the stated confidence, however
many were tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from bylaw.auditing.hypotheses import MOST_ROWS, SPENT, Judge, Rows, Unjudged, check_limits, check_weight
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import observed
from bylaw.errors import EvidenceError, UncertifiedError
from bylaw.fitting.bias_correction import Corrected, affordable_share
from bylaw.fitting.refit import Fitting
from bylaw.formulation.row_rates import Limits
from bylaw.formulation.solution import Certificate
from bylaw.policy.fingerprint import fingerprint_of_evidence, recognised
from bylaw.policy.policy import Policy

_WIDEST = 6.0  # margin of the most cautious policy, in standard errors
_STEP = 0.25
_EDGE = 0.9  # of the widest margin that leaves a policy
_METHOD = "betting"


@dataclass(frozen=True)
class HeldOut:
    """Rows that have no part in the choice of a policy, and what was seen of them: the true labels, and true
    groups of attributes that the evidence knows only as probabilities."""

    evidence: Evidence
    labels: Any = None
    groups: Any = None
    limits: Limits = field(default_factory=dict)  # the least and the most of costs in `custom`, by name
    largest_weight: float | None = None  # that any row can have; of these rows, if it is not known


class _Failure(NamedTuple):
    rule: str
    p_value: float
    rows_needed: float


def certified(fitting: Fitting, begin: Corrected, held_out: HeldOut, confidence: float) -> Policy:
    """The least cautious policy that the held-out rows certify."""
    delta, accepted, failure = 1 - confidence, None, None
    recipe = fitting.dual.form.recipe
    outcome = observed(recipe.admit(held_out.evidence), held_out.labels, held_out.groups)
    prints = fingerprint_of_evidence(recipe, held_out.evidence)
    if recognised(prints, (fitting.fingerprint,)):
        raise EvidenceError(
            "the certificate rows are rows on which the policy is chosen, and they cannot certify it; split "
            "the rows first"
        )
    for tried, (margin, found) in enumerate(_candidates(fitting, begin, len(outcome))):
        policy = fitting.policy(found)
        law = policy.probabilities(held_out.evidence)
        rows = Rows(
            outcome,
            law,
            policy.decisions,
            labelled=held_out.labels is not None,
            limits=check_limits(held_out.limits, recipe.admit(held_out.evidence)),
            largest_weight=check_weight(held_out.largest_weight, outcome),
        )
        p_value, failure = _test(policy, rows, delta)
        if failure is not None:
            break
        certificate = Certificate(confidence, len(outcome), margin, tried + 1, p_value)
        accepted = replace(policy, certificate=certificate, fingerprints=(*policy.fingerprints, prints))
    if accepted is not None:
        return accepted
    assert failure is not None
    raise UncertifiedError(failure.rule, failure.p_value, failure.rows_needed, len(outcome), confidence)


def _candidates(fitting: Fitting, begin: Corrected, n_held_out: int) -> Iterator[tuple[float, Corrected]]:
    """From the widest margin that leaves a policy down to none. A rate differs between the fitted and the
    held-out rows by a standard error of both."""
    units = fitting.standard_errors(begin) * math.sqrt(1 + len(fitting.evidence) / n_held_out)
    share = affordable_share(begin, _WIDEST * units, fitting.resolve, most=1.0)
    widest = _WIDEST * (share if share == 1.0 else _EDGE * share)
    for margin in [*np.arange(widest, _STEP / 2, -_STEP).tolist(), 0.0]:
        begin = fitting.tightened(begin, margin * units)
        yield margin, begin


def _test(policy: Policy, rows: Rows, delta: float) -> tuple[float, _Failure | None]:
    """The largest p-value of all rules, or the first rule found that is not certain enough; those likeliest
    to fail come first."""
    claims = []
    for rule, _ in policy.problem.expand(rows.seen.classes, rows.seen.group_values):
        claim = rows.claim(rule, SPENT * delta)
        if isinstance(claim, Unjudged):
            raise EvidenceError(f"the certificate rows cannot judge {str(rule)!r}: {claim.reason}")
        claims.append((claim.estimate * math.sqrt(claim.rows), str(rule), claim))
    largest = 0.0
    for _, name, claim in sorted(claims, key=lambda item: -item[0]):
        judge = Judge(claim, _METHOD, delta)
        largest = max(largest, judge.p_value)
        if judge.p_value > delta:
            width = judge.upper - claim.estimate
            needed = len(rows.seen) * (width / claim.estimate) ** 2 if claim.estimate < 0 else math.inf
            return largest, _Failure(name, judge.p_value, needed if needed < MOST_ROWS else math.inf)
    return largest, None
