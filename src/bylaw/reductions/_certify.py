"""Policies whose rules hold with high probability: refits with smaller and smaller margins, each tested on
rows that were held out.

The sequence is fixed before the rows are looked at, and starts with the most cautious policy. A test that
passes opens the way to the next; the first that fails ends the walk. So one true failure has to be passed
by mistake for a wrong answer, and the last policy that passed is right with the stated confidence, however
many were tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError, UncertifiedError
from bylaw.language.expressions import LABEL, Rule
from bylaw.policy.policy import Policy
from bylaw.policy.recognition import hash_evidence, shares_rows
from bylaw.program.solution import Certificate
from bylaw.reductions._culprits import CLEAR, PROBED, find_culprit
from bylaw.reductions._observe import CorrectedSolution, Correction, Restate, as_stated
from bylaw.reductions._policies import fingerprint_rows, make_corrected_policy, predict_actions
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.rows.outcomes import HeldOut, observe
from bylaw.testing import (
    MOST_ROWS,
    DecidedRows,
    Untestable,
    check_limits,
    check_weight,
    warn_of_copies,
)

_MARGINS = np.arange(6.0, 0.1, -0.25).tolist()  # in standard errors, from the most cautious policy on
# Margins of ratio rules, which cannot be too wide: in steps of 3/4, beyond 9 of 32 %. Each takes a fit.
_RATIO_MARGINS = (*np.arange(0.375, 9.0, 0.75).tolist(), *(9.0 * 1.32 ** np.arange(1, 7)).tolist())
_PATIENCE = 4  # wider margins in turn that promise no clearer test
_TIGHTEST = 0.9  # of its level is taken from a ratio rule at most


# From a correction, its solution and, where it tightens rules, `Restate`, to what is tested.
Finish = Callable[..., CorrectedSolution]


class _Candidate(NamedTuple):
    margin: float
    correction: Correction  # whose policies `found` is one of
    found: CorrectedSolution
    restate: Restate = as_stated


class _Failure(NamedTuple):
    rule: str
    p_value: float
    rows_needed: float


def certify(correction: Correction, held_out: HeldOut, confidence: float, finish: Finish) -> Policy:
    """Return the least cautious policy that the held-out rows certify. `finish` makes what is tested of what
    was found, such as deterministic decisions."""
    delta, accepted, failure = 1 - confidence, None, None
    feature_map = correction.dual.form.feature_map
    admitted, weights = feature_map.admit(held_out.evidence), held_out.propensity_weights
    outcome = observe(admitted, held_out.labels, held_out.groups, weights, held_out.outcomes)
    hashed = hash_evidence(feature_map, held_out.evidence)
    if shares_rows(hashed, (fingerprint_rows(correction.dual),)):
        raise EvidenceError(
            "the held-out rows are rows on which the policy is chosen, and they cannot certify it; split the "
            "rows first"
        )
    warn_of_copies(hashed)
    options = feature_map.action_space.options
    expanded = correction.problem.expand(outcome.classes, outcome.group_values, options)
    rules = [found.rule for found in expanded]
    for tried, candidate in enumerate(_list_candidates(correction, len(outcome), delta)):
        found = finish(candidate.correction, candidate.found, candidate.restate)
        candidate = candidate._replace(found=found)
        sample = DecidedRows(
            outcome,
            predict_actions(found.dual, found.solution.multipliers, held_out.evidence),
            feature_map.action_space,
            labelled=LABEL in outcome.observed,
            limits=check_limits(held_out.limits, outcome),
            largest_weight=check_weight(held_out.largest_weight, outcome),
        )
        p_value, failure = _test(rules, sample, delta)
        if failure is not None:
            break
        certificate = Certificate(confidence, len(outcome), candidate.margin, tried + 1, p_value)
        accepted = candidate, certificate
    if accepted is not None:
        candidate, certificate = accepted
        policy = make_corrected_policy(candidate.correction, candidate.found)
        return replace(policy, certificate=certificate, fingerprints=hashed.join(policy.fingerprints))
    assert failure is not None
    raise _explain(correction, failure, len(outcome), confidence)


def _explain(
    correction: Correction, failure: _Failure, n_held_out: int, confidence: float
) -> UncertifiedError:
    """With the rule that takes the room, which need not be the one that was tested first."""
    rule, p_value, needed = failure
    conflict: tuple[str, ...] = ()
    if correction.ratios is None:
        noise = correction.dual.n_rows / n_held_out
        widths = partial(_measure_widths, correction, delta=1 - confidence)
        if (culprit := find_culprit(correction, widths, noise, n_held_out)) is not None:
            rule, conflict, needed = culprit
    return UncertifiedError(rule, p_value, needed, n_held_out, confidence, conflict)


def _list_candidates(correction: Correction, n_held_out: int, delta: float) -> Iterator[_Candidate]:
    """List policies from cautious to bold, in an order that depends on the fitted rows alone."""
    noise = correction.dual.n_rows / n_held_out
    ratios = correction.ratios
    if ratios is None:
        yield from _list_margins(correction, noise, delta)
    else:
        yield from _list_levels(correction, ratios, noise, delta)
    yield _Candidate(0.0, correction, correction.plain)


def _list_margins(correction: Correction, noise: float, delta: float) -> Iterator[_Candidate]:
    """From the widest margin down; where a rule cannot have a margin, the others still can. Where margins as
    wide leave too little of each other, from the one whose test the fitted rows lead to expect the clearest.
    """
    start, found = _find_start(correction, noise, delta)
    most = found.target
    yield _Candidate(start, correction, found)
    for margin in [margin for margin in _MARGINS if margin < start]:
        found = correction.fit(margin, held_out=noise, begin=found.solution.multipliers, most=most)
        yield _Candidate(margin, correction, found)


def _find_start(correction: Correction, noise: float, delta: float) -> tuple[float, CorrectedSolution]:
    """The most cautious policy, and its margin."""
    tried = []
    for margin in PROBED:
        found = correction.fit(margin, held_out=noise)
        clearness = _predict_clearness(correction, found, noise, delta)
        tried.append((clearness, margin, found))
        if clearness >= CLEAR:
            break
    _, margin, found = max(tried, key=lambda one: one[:2])
    return margin, found


def _list_levels(correction: Correction, ratios: RatioRules, noise: float, delta: float) -> list[_Candidate]:
    """With the levels of ratio rules tightened by so many standard errors of the ratio, and margins of the
    other rules. The tighter a level, the fewer rows may be left to show that the rule holds: the first is the
    candidate that the fitted rows lead to expect the clearest test of.

    Any sequence will do, if only it gets clear enough. So levels are tightened as predicted first, one convex
    problem each; as observed, which takes many, only where none of these is expected to pass."""
    for as_predicted in (True, False):
        clearness, listed = _tighten_levels(correction, ratios, noise, delta, as_predicted)
        if clearness >= CLEAR:
            break
    return listed


def _tighten_levels(
    correction: Correction,
    ratios: RatioRules,
    noise: float,
    delta: float,
    as_predicted: bool,
) -> tuple[float, list[_Candidate]]:
    """Return the clearness of the first candidate, and all candidates from the first on."""
    _, whole = ratios.measure(correction, correction.dual, correction.begin)
    unit = np.where(correction.exact, math.sqrt(1 + noise) * correction.errors.observed, 0.0)
    shares = np.divide(unit, whole, out=np.zeros_like(unit), where=ratios.chosen & (whole > 0))
    others = np.where(ratios.chosen, 0.0, 1.0)
    begin, listed, kept, best = correction.begin, [], 0, -math.inf
    for margin in _RATIO_MARGINS:
        tightening = np.minimum(margin * shares, _TIGHTEST)
        tightened = ratios.tighten(correction, tightening)
        target = correction.make_target(margin if others.any() else 0.0, noise).cut(others)
        if as_predicted:
            bounds = tightened.dual.form.bounds - target.margins
            found = tightened.describe(tightened.run(tightened.dual.with_bounds(bounds), begin))
        else:
            found = tightened.hold(target, begin)
        restate = partial(ratios.restate, tightened, tightening)
        begin = found.solution.multipliers
        clearness = _predict_clearness(tightened, restate(found), noise, delta)
        listed.append(_Candidate(margin, tightened, found, restate))
        if clearness > best:
            best, kept = clearness, len(listed)
        elif len(listed) - kept >= _PATIENCE:
            break
    return best, listed[:kept][::-1]


def _predict_clearness(correction: Correction, found: CorrectedSolution, noise: float, delta: float) -> float:
    """Compute how far inside its bound the least clear rule is expected to be, over the width of a bound on
    the held-out rows: above one, the test is expected to pass. Of the observed and the predicted rate the
    less favorable one counts, since the policy was chosen for the observed rates of these rows."""
    excess = np.maximum(found.rates.observed, found.rates.predicted)
    return float((-excess / _measure_widths(correction, found, noise, delta)).min())


def _measure_widths(correction: Correction, found: CorrectedSolution, noise: float, delta: float) -> Floats:
    """(M,): of a Bernstein bound on the held-out rows."""
    errors = correction.uncertainty.standard_errors(found.solution.multipliers, found.dual.beta).observed
    effort = -math.log(delta)
    fewest = effort * noise / (correction.counts * found.dual.form.scales)
    return math.sqrt(2 * effort * noise) * errors + fewest


def _test(rules: Sequence[Rule], rows: DecidedRows, delta: float) -> tuple[float, _Failure | None]:
    """The largest p-value of all rules, or the first rule found that is not certain enough; those likeliest
    to fail come first."""
    tests = []
    for rule in rules:
        test = rows.test(rule)
        if isinstance(test, Untestable):
            raise EvidenceError(f"the held-out rows cannot test {str(rule)!r}: {test.reason}", test.remedy)
        tests.append((test.estimate * math.sqrt(test.rows), str(rule), test))
    largest = 0.0
    for _, name, test in sorted(tests, key=lambda item: -item[0]):
        p_value, estimate = test.p_value(delta), test.estimate
        largest = max(largest, p_value)
        if p_value > delta:
            _, upper = test.bounds(delta)
            needed = len(rows.observed) * ((upper - estimate) / estimate) ** 2 if estimate < 0 else math.inf
            return largest, _Failure(name, p_value, needed if needed < MOST_ROWS else math.inf)
    return largest, None
