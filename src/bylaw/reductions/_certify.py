"""Rules that hold with high probability: policies from cautious to bold, each tested on held-out rows.

The sequence depends on the fitted rows alone, and starts with the most cautious policy. A test that passes
opens the way to the next; the first that fails ends the sequence. So a wrong answer requires that one policy
that violates a rule passes its test, and the last policy that passed is right with the stated confidence,
however many were tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError, UncertifiedError
from bylaw.language.expressions import LABEL, Rule
from bylaw.policy.policy import Policy
from bylaw.policy.provenance import hash_evidence, shares_rows
from bylaw.program.solution import Certificate
from bylaw.reductions._observe import CorrectedSolution, Correction, Restate, as_stated
from bylaw.reductions._policies import fingerprint_rows, make_corrected_policy, predict_actions
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.rows.evidence import Evidence
from bylaw.rows.outcomes import observe
from bylaw.testing import (
    MOST_ROWS,
    DecidedRows,
    Untestable,
    check_limits,
    check_weight,
    warn_of_copies,
)

PROBED = (6.0, 4.0, 2.5, 1.5, 1.0, 0.5)  # margins in standard errors that are tried, from the widest
CLEAR = 1.0  # clearness at which a rule is expected to pass its test

# Return what is tested of a correction and its solution, restated if the rules were tightened.
Finish = Callable[..., CorrectedSolution]


class _Candidate(NamedTuple):
    """A policy to be tested."""

    margin: float
    correction: Correction
    solved: CorrectedSolution
    restate: Restate = as_stated


def certify(correction: Correction, held_out: Evidence, confidence: float, finish: Finish) -> Policy:
    """Return the least cautious policy that the held-out rows certify.

    Parameters
    ----------
    correction : Correction
    held_out : Evidence
    confidence : float
    finish : callable
        turns a solution into what is tested, such as deterministic decisions.
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
        return replace(policy, certificate=certificate, fingerprints=hashed.join(policy.fingerprints))
    assert failure is not None
    rule, p_value, needed = failure
    conflict: tuple[str, ...] = ()
    if correction.facts.ratios is None:
        rule, conflict, needed = _find_culprit(correction, len(outcome), delta) or (rule, conflict, needed)
    raise UncertifiedError(rule, p_value, needed, len(outcome), confidence, conflict)


def _list_candidates(correction: Correction, n_held_out: int, delta: float) -> Iterator[_Candidate]:
    """Yield policies from cautious to bold, in an order that depends on the fitted rows alone."""
    noise, ratios = correction.dual.n_rows / n_held_out, correction.facts.ratios
    if ratios is None:
        yield from _list_margins(correction, noise, delta)
    else:
        # Any sequence is valid. Tighten levels as predicted first, with one convex problem each; as observed,
        # which needs many, only if no policy is expected to pass.
        for as_predicted in (True, False):
            clearness, candidates = _tighten_levels(correction, ratios, noise, delta, as_predicted)
            if clearness >= CLEAR:
                break
        yield from candidates
    yield _Candidate(0.0, correction, correction.plain)


def _list_margins(correction: Correction, noise: float, delta: float) -> Iterator[_Candidate]:
    """Yield policies with smaller and smaller margins.

    If the widest margins leave too little room to each other, begin with the one whose test is expected to be
    the clearest.
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
    """Return policies with tighter and tighter levels of ratio rules, and the clearness of the first.

    The margins of other rules are as wide. The tighter a level, the fewer rows may be left to show that the
    rule holds: the first policy is the one whose test is expected to be the clearest.
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
    """Return how far inside its bound the least clear rule is, over the width of a bound on held-out rows.

    Above one, the test is expected to pass. The less favorable of the observed and the predicted rate counts,
    because the policy was chosen for the observed rates of these rows.
    """
    excess = np.maximum(solved.rates.observed, solved.rates.predicted)
    return float((-excess / _measure_widths(correction, solved, noise, delta)).min())


def _measure_widths(correction: Correction, solved: CorrectedSolution, noise: float, delta: float) -> Floats:
    """Return the widths of Bernstein bounds on the held-out rows, (M,)."""
    errors = correction.uncertainty.standard_errors(solved.solution.multipliers, solved.dual.beta).observed
    effort = -math.log(delta)
    fewest = effort * noise / (correction.facts.counts * solved.dual.form.scales)
    return math.sqrt(2 * effort * noise) * errors + fewest


def _test(
    rules: Sequence[Rule], rows: DecidedRows, delta: float
) -> tuple[float, tuple[str, float, float] | None]:
    """Return the largest p-value of all rules, and the first failure if there is one.

    A failure has the name of the rule, its p-value and the number of rows with which it would pass. Rules
    that are the likeliest to fail are tested first, and none after a failure.
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
    """Find the rule that leaves no room for the margins of a test, or return None if there is room for all.

    The test that fails names the rule that was tested, which need not be the reason: rules are tightened
    together, and one whose margin takes all the room leaves the others just satisfied. So each rule is
    tightened alone, and all rules but one. The fitted rows predict how clear the tests of such policies are.

    Returns
    -------
    The rule as stated, the other rules with which it leaves no room, and the number of held-out rows with
    which all rules are expected to pass, or infinity.
    """
    noise, scales = correction.dual.n_rows / n_held_out, correction.dual.form.scales
    places = correction.dual.form.places[: correction.dual.n_rules - correction.facts.spared]
    every = frozenset(places.tolist())

    def measure_clearness(statements: Collection[int], growth: float = 1.0) -> float:
        """Return how clear the least clear rule of these statements is on `growth` times the held-out rows.

        Margins are tried until the first with which it is clear.
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
