"""Policies whose rules hold with high probability: refits with smaller and smaller margins, each tested on
rows that were held out.

The sequence is fixed before the rows are looked at, and starts with the most cautious policy. A test that
passes opens the way to the next; the first that fails ends the walk. So one true failure has to be passed
by mistake for a wrong answer, and the last policy that passed is right with the stated confidence, however
many were tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bylaw.auditing.hypotheses import (
    MOST_ROWS,
    SPENT,
    HeldOutSample,
    HypothesisTest,
    Untestable,
    check_limits,
    check_weight,
)
from bylaw.data.outcomes import HeldOut, observe
from bylaw.errors import EvidenceError, UncertifiedError
from bylaw.fitting.bias_correction import CorrectedSolution, Correction
from bylaw.fitting.fitted_policy import make_corrected_policy, predict_actions
from bylaw.formulation.solution import Certificate
from bylaw.language.expressions import LABEL, Rule
from bylaw.policy.fingerprint import fingerprint_evidence, make_fingerprint, shares_rows
from bylaw.policy.policy import Policy
from bylaw.solvers.complementarity import Outline

_WIDEST = 6.0  # margin of the most cautious policy, in standard errors
_STEP = 0.25
_METHOD = "betting"


class _Failure(NamedTuple):
    rule: str
    p_value: float
    rows_needed: float


def certify(correction: Correction, begin: CorrectedSolution, held_out: HeldOut, confidence: float) -> Policy:
    """The least cautious policy that the held-out rows certify."""
    delta, accepted, failure = 1 - confidence, None, None
    feature_map = correction.dual.form.feature_map
    outcome = observe(
        feature_map.admit(held_out.evidence), held_out.labels, held_out.groups, held_out.seen_weights
    )
    prints = fingerprint_evidence(feature_map, held_out.evidence)
    fitted = make_fingerprint(block.features for block in correction.dual.blocks)
    if shares_rows(prints, (fitted,)):
        raise EvidenceError(
            "the held-out rows are rows on which the policy is chosen, and they cannot certify it; split the "
            "rows first"
        )
    expanded = correction.problem.expand(outcome.classes, outcome.group_values)
    rules = [found.rule for found in expanded]
    for tried, (margin, found) in enumerate(_candidates(correction, begin, len(outcome))):
        sample = HeldOutSample(
            outcome,
            predict_actions(found, held_out.evidence),
            feature_map.action_space,
            labelled=LABEL in outcome.observed,
            limits=check_limits(held_out.limits, outcome),
            largest_weight=check_weight(held_out.largest_weight, outcome),
        )
        p_value, failure = _test(rules, sample, delta)
        if failure is not None:
            break
        accepted = found, Certificate(confidence, len(outcome), margin, tried + 1, p_value)
    if accepted is not None:
        policy = make_corrected_policy(correction, accepted[0])
        return replace(policy, certificate=accepted[1], fingerprints=(*policy.fingerprints, prints))
    assert failure is not None
    raise UncertifiedError(failure.rule, failure.p_value, failure.rows_needed, len(outcome), confidence)


def _candidates(
    correction: Correction, plain: CorrectedSolution, n_held_out: int
) -> Iterator[tuple[float, CorrectedSolution]]:
    """From the widest margin down to none; where a rule cannot have a margin, the others still can."""
    ratio = len(correction.evidence) / n_held_out
    found = correction.fit(_WIDEST, held_out=ratio)
    most = found.target
    yield _WIDEST, found
    for margin in np.arange(_WIDEST - _STEP, _STEP / 2, -_STEP).tolist():
        begin = Outline(found.solution.multipliers, found.dual.beta)
        found = correction.fit(margin, held_out=ratio, begin=begin, most=most)
        yield margin, found
    yield 0.0, plain


def _test(rules: Sequence[Rule], rows: HeldOutSample, delta: float) -> tuple[float, _Failure | None]:
    """The largest p-value of all rules, or the first rule found that is not certain enough; those likeliest
    to fail come first."""
    hypotheses = []
    for rule in rules:
        hypothesis = rows.make_hypothesis(rule, SPENT * delta)
        if isinstance(hypothesis, Untestable):
            raise EvidenceError(
                f"the held-out rows cannot test {str(rule)!r}: {hypothesis.reason}", hypothesis.remedy
            )
        hypotheses.append((hypothesis.estimate * math.sqrt(hypothesis.rows), str(rule), hypothesis))
    largest = 0.0
    for _, name, hypothesis in sorted(hypotheses, key=lambda item: -item[0]):
        test = HypothesisTest(hypothesis, _METHOD, delta)
        largest = max(largest, test.p_value)
        if test.p_value > delta:
            width = test.upper - hypothesis.estimate
            needed = (
                len(rows.seen) * (width / hypothesis.estimate) ** 2 if hypothesis.estimate < 0 else math.inf
            )
            return largest, _Failure(name, test.p_value, needed if needed < MOST_ROWS else math.inf)
    return largest, None
