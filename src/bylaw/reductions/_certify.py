"""Certification on held-out rows: policies from cautious to bold are tested until a test fails.

The order of the policies depends only on the fitted rows and starts with the most cautious policy. After a
passed test the next policy is tested; the first failed test ends the sequence. Certifying a policy that
violates a rule is therefore only possible if the first such policy in the sequence passes its test, and the
last policy that passed satisfies the rules with the stated confidence, however many policies were tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bylaw._base import Floats
from bylaw.errors import EvidenceError, UncertifiedError
from bylaw.language import LABEL, Rule
from bylaw.policy import Policy, hash_evidence, shares_rows
from bylaw.program import Certificate
from bylaw.reductions._observe import CorrectedSolution, Correction, Restate, as_stated
from bylaw.reductions._policies import fingerprint_rows, make_corrected_policy, predict_actions
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.reductions._warnings import warn_of_observed_rates
from bylaw.rows import Evidence, observe
from bylaw.testing import MOST_ROWS, DecidedRows, Untestable, check_limits, check_weight, warn_of_copies

PROBED = (6.0, 4.0, 2.5, 1.5, 1.0, 0.5)  # margins to try, in standard errors, from the widest
CLEAR = 1.0  # clearness at which a rule is expected to pass its test

# Turn a correction and its solution into the solution to be tested, in terms of the stated rules.
Finish = Callable[..., CorrectedSolution]


class _Candidate(NamedTuple):
    """A policy to be tested on held-out rows, and the margin with which it was fitted."""

    margin: float
    correction: Correction
    solved: CorrectedSolution
    restate: Restate = as_stated


def certify(correction: Correction, held_out: Evidence, confidence: float, finish: Finish) -> Policy:
    """Return the least cautious policy that passes the tests on held-out rows; raise if no policy passes.

    Parameters
    ----------
    correction : Correction
        The problem on the fitted rows.
    held_out : Evidence
        The rows for the tests.
    confidence : float
        The confidence of the certificate.
    finish : callable
        A function that turns a solution into the one that is tested, such as one with deterministic
        decisions.
    """
    delta, accepted, failure = 1 - confidence, None, None
    feature_map = correction.dual.form.feature_map
    outcome = observe(feature_map.admit(held_out))
    hashed = hash_evidence(feature_map, held_out)
    if shares_rows(hashed, (fingerprint_rows(correction.dual),)):
        raise EvidenceError(
            "held_out must contain no rows on which the policy is fitted, because these cannot certify it; "
            "split the rows before you fit"
        )
    warn_of_copies(hashed)
    options = feature_map.action_space.options
    expanded = correction.facts.problem.expand(outcome.classes, outcome.group_values, options)
    rules = [one.rule for one in expanded]
    for tried, candidate in enumerate(_list_candidates(correction, len(outcome), delta)):
        solved = finish(candidate.correction, candidate.solved, candidate.restate)
        sample = DecidedRows(
            outcome,
            predict_actions(solved.dual, solved.solution.multipliers, held_out),
            feature_map.action_space,
            labelled=LABEL in outcome.observed,
            limits=check_limits(held_out.limits, outcome),
            largest_weight=check_weight(held_out.largest_weight, outcome),
        )
        p_value, failure = _test(rules, sample, delta)
        if failure is not None:
            break
        certificate = Certificate(confidence, len(outcome), candidate.margin, tried + 1, p_value)
        accepted = candidate.correction, solved, certificate
    if accepted is not None:
        accepted_correction, solved, certificate = accepted
        policy = make_corrected_policy(accepted_correction, solved)
        warn_of_observed_rates(accepted_correction, solved, policy)
        return replace(policy, certificate=certificate, fingerprints=hashed.join(policy.fingerprints))
    assert failure is not None
    rule, p_value, needed = failure
    conflict: tuple[str, ...] = ()
    if correction.facts.ratios is None:
        rule, conflict, needed = _find_culprit(correction, len(outcome), delta) or (rule, conflict, needed)
    raise UncertifiedError(rule, p_value, needed, len(outcome), confidence, conflict)


def _list_candidates(correction: Correction, n_held_out: int, delta: float) -> Iterator[_Candidate]:
    """Yield the policies to test, from cautious to bold, in an order that depends only on the fitted rows."""
    noise, ratios = correction.dual.n_rows / n_held_out, correction.facts.ratios
    if ratios is None:
        yield from _list_margins(correction, noise, delta)
    else:
        # Any sequence is valid. First tighten the levels of predicted rates, which takes one convex problem
        # each. Only if no policy is expected to pass, tighten those of observed rates, which takes many.
        for as_predicted in (True, False):
            clearness, candidates = _tighten_levels(correction, ratios, noise, delta, as_predicted)
            if clearness >= CLEAR:
                break
        yield from candidates
    yield _Candidate(0.0, correction, correction.plain)


def _list_margins(correction: Correction, noise: float, delta: float) -> Iterator[_Candidate]:
    """Yield policies with smaller and smaller margins.

    The first margin is the widest one with which all rules are expected to pass their tests or, if no margin
    is wide enough, the one whose test is expected to be the clearest.
    """
    probes = []
    for margin in PROBED:
        solved = correction.fit(margin, held_out=noise)
        clearness = _predict_clearness(correction, solved, noise, delta)
        probes.append((clearness, margin, solved))
        if clearness >= CLEAR:
            break
    _, start, solved = max(probes, key=lambda probe: probe[:2])
    most = solved.target
    yield _Candidate(start, correction, solved)
    for margin in np.arange(start - 0.25, 0.1, -0.25).tolist():
        solved = correction.fit(margin, held_out=noise, begin=solved.solution.multipliers, most=most)
        yield _Candidate(margin, correction, solved)


def _tighten_levels(
    correction: Correction, ratios: RatioRules, noise: float, delta: float, as_predicted: bool
) -> tuple[float, list[_Candidate]]:
    """Return policies with tighter and tighter levels of ratio rules, and the clearness of the first policy.

    Other rules get margins of the same number of standard errors. Tightening a level may leave fewer rows on
    which its rule can be tested, so the first policy is the one whose test is expected to be the clearest.
    Clearness is defined in `_predict_clearness`.
    """
    _, denominators = ratios.measure(correction, correction.dual, correction.facts.begin)
    unit = np.where(correction.facts.exact, math.sqrt(1 + noise) * correction.facts.errors.observed, 0.0)
    usable = ratios.chosen & (denominators > 0)
    shares = np.divide(unit, denominators, out=np.zeros_like(unit), where=usable)
    others = np.where(ratios.chosen, 0.0, 1.0)
    begin, candidates, n_kept, best = correction.facts.begin, list[_Candidate](), 0, -math.inf
    for margin in (*np.arange(0.375, 9.0, 0.75).tolist(), *(9.0 * 1.32 ** np.arange(1, 7)).tolist()):
        tightening = np.minimum(margin * shares, 0.9)
        tightened = ratios.tighten(correction, tightening)
        target = correction.make_target(margin if others.any() else 0.0, noise).cut(others)
        if as_predicted:
            bounds = tightened.dual.form.bounds - target.margins
            solved = tightened.describe(tightened.facts.run(tightened.dual.with_bounds(bounds), begin))
        else:
            solved = tightened.hold(target, begin)
        restate = partial(ratios.restate, tightened, tightening)
        begin = solved.solution.multipliers
        clearness = _predict_clearness(tightened, restate(solved), noise, delta)
        candidates.append(_Candidate(margin, tightened, solved, restate))
        if clearness > best:
            best, n_kept = clearness, len(candidates)
        elif len(candidates) - n_kept >= 4:  # wider margins do not make the test clearer
            break
    return best, candidates[:n_kept][::-1]


def _predict_clearness(
    correction: Correction, solved: CorrectedSolution, noise: float, delta: float
) -> float:
    """Return the clearness of a policy: the distance of a rate from its bound over the width of its test.

    The width is that of a confidence bound on the held-out rows, and the smallest ratio over all rules is
    returned. Above one, the test is expected to pass. The worse one of the observed and the predicted rate is
    used, because the policy was fitted to the observed rates of these rows.
    """
    excess = np.maximum(solved.rates.observed, solved.rates.predicted)
    return float((-excess / _measure_widths(correction, solved, noise, delta)).min())


def _measure_widths(correction: Correction, solved: CorrectedSolution, noise: float, delta: float) -> Floats:
    """Return the expected widths of Bernstein confidence bounds on the held-out rows, (M,)."""
    errors = correction.uncertainty.standard_errors(solved.solution.multipliers, solved.dual.beta).observed
    effort = -math.log(delta)
    fewest = effort * noise / (correction.facts.counts * solved.dual.form.scales)
    return math.sqrt(2 * effort * noise) * errors + fewest


def _test(
    rules: Sequence[Rule], rows: DecidedRows, delta: float
) -> tuple[float, tuple[str, float, float] | None]:
    """Test all rules, and return the largest p-value and the first failure, or None if all pass.

    A failure has the name of the rule, its p-value and the number of rows with which it would pass. Rules
    that are the most likely to fail are tested first; after a failure, no further rule is tested.
    """
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
            return largest, (name, p_value, needed if needed < MOST_ROWS else math.inf)
    return largest, None


def _find_culprit(
    correction: Correction, n_held_out: int, delta: float
) -> tuple[str, tuple[str, ...], float] | None:
    """Find the rule that prevents certification, or return None if all rules can have their margins.

    The rule whose test fails is not always the cause, because all rules are tightened together and a wide
    margin of one rule can leave the others barely satisfied. So each rule is tightened alone, and then all
    rules but one. The clearness of the tests is predicted from the fitted rows.

    Returns
    -------
    The name of the rule, the names of the other rules whose margins conflict with it, and the number of held-
    out rows with which all rules are expected to pass, or infinity.
    """
    noise, scales = correction.dual.n_rows / n_held_out, correction.dual.form.scales
    places = correction.dual.form.places[: correction.dual.n_rules - correction.facts.spared]
    every = frozenset(places.tolist())

    def measure_clearness(statements: Collection[int], growth: float = 1.0) -> float:
        """Return the clearness of the tests if only these statements are tightened.

        `growth` multiplies the number of held-out rows. Margins are tried until one makes all tests clear.
        """
        tightened = np.zeros(correction.dual.n_rules, bool)
        tightened[: len(places)] = np.isin(places, list(statements))
        best = -math.inf if tightened.any() else math.inf
        for margin in PROBED:
            if best >= CLEAR:
                break
            most = correction.make_target(margin, noise / growth).cut(tightened.astype(float))
            solved = correction.fit(margin, held_out=noise / growth, most=most)
            clearness = -solved.rates.observed / _measure_widths(correction, solved, noise / growth, delta)
            best = max(best, float(clearness[tightened].min()))
        return best

    if measure_clearness(every) >= CLEAR:
        return None
    involved = {place for place in every if measure_clearness({place}) < CLEAR}
    if not involved:  # each has room alone: those without whose margin the others have room
        involved = {place for place in every if measure_clearness(every - {place}) >= CLEAR}
    # Begin with the statement that needs the widest margin, in its own unit.
    widths = (scales * _measure_widths(correction, correction.plain, noise, delta))[: len(places)]
    first, *others = sorted(involved or every, key=lambda place: -float(widths[places == place].max()))
    names = [str(correction.facts.problem.rules[place]) for place in (first, *others)]
    # Bisect the number of held-out rows, up to a hundred times as many.
    low, high = 0.0, math.log2(100.0)
    if measure_clearness(every, 2**high) < CLEAR:
        return names[0], tuple(names[1:]), math.inf
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (low, middle) if measure_clearness(every, 2**middle) >= CLEAR else (middle, high)
    return names[0], tuple(names[1:]), 2**high * n_held_out
