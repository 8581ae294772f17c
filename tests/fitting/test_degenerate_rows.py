"""A single row, rows that are all alike, and rows of no or extreme weight go through every door."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    Problem,
    audit,
    demographic_parity,
    diagnose,
    error,
    explain,
    frontier,
    miscoverage,
    rejected,
    size,
    solve,
)
from bylaw.calibration import fit_calibration
from bylaw.report import report

REFER = Problem(error(), [rejected() <= 0.1])
GUESSED = {"sex": {"F": [0.4], "M": [0.6]}}
ROWS = {
    "one row": (REFER, Evidence([[0.4, 0.6]]), [1]),
    "one row, sets": (Problem(size(), [miscoverage() <= 0.1]), Evidence([[0.4, 0.6]]), [1]),
    "one row, a guessed group": (
        Problem(error(), [demographic_parity("sex", tol=0.1)]),
        Evidence([[0.4, 0.6]], groups=GUESSED),
        [1],
    ),
    "all alike": (REFER, Evidence([[0.5, 0.5]] * 30), [0, 1] * 15),
    "all alike, one label": (REFER, Evidence([[0.5, 0.5]] * 30), [0] * 30),
    "certain": (REFER, Evidence([[1.0, 0.0]] * 30), [0] * 30),
    "certain and wrong": (REFER, Evidence([[1.0, 0.0]] * 30), [1] * 30),
    "heaviest": (REFER, Evidence([[0.4, 0.6], [0.2, 0.8]] * 15, weights=[1e50] * 30), [0, 1] * 15),
    "lightest": (REFER, Evidence([[0.4, 0.6], [0.2, 0.8]] * 15, weights=[1e-50] * 30), [0, 1] * 15),
    "both": (REFER, Evidence([[0.4, 0.6], [0.2, 0.8]] * 15, weights=[1e-50, 1e50] * 15), [0, 1] * 15),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ROWS)
@pytest.mark.filterwarnings("ignore::bylaw.errors.GuaranteeWarning")
@pytest.mark.filterwarnings("ignore::bylaw.errors.ConvergenceWarning")
def test_degenerate_rows_go_through_every_door(what, tmp_path):
    problem, evidence, labels = ROWS[what]
    policy = solve(problem, evidence)
    policy.save(tmp_path / "policy.json")
    rule = problem.rules[0]
    assert policy.guarantee.violation <= 1e-4
    assert len(policy.decide(evidence, ids=range(len(evidence)))) == len(evidence)
    assert str(audit(policy, evidence, labels=labels, fitted_rows="estimate"))
    assert len(frontier(problem, evidence, {rule: [0.1, 0.2]}).to_frame()) == 2
    assert diagnose(problem, evidence).feasible
    assert "</html>" in report(policy, evidence, labels=labels, levels=3).html
    fit_calibration(evidence.with_observed(labels=labels))
    solve(problem, evidence, labels=labels, calibrate="auto", margin=0.0)
    explain(policy, evidence)


@pytest.mark.parametrize("exponent", [50, -50])
def test_only_ratios_of_weights_count(exponent):
    scores = np.linspace(0.02, 0.98, 49)
    P = np.column_stack([1 - scores, scores])
    weights = np.linspace(0.1, 1, 49)
    plain = solve(REFER, Evidence(P, weights=weights))
    scaled = solve(REFER, Evidence(P, weights=weights * 10.0 ** (0.9 * exponent)))
    assert scaled.prices == pytest.approx(plain.prices, rel=1e-6)


@pytest.mark.parametrize("weights", [None, [0.0, 1.0]])
def test_no_rows_are_refused(weights):
    evidence = Evidence([[0.4, 0.6], [0.2, 0.8]], weights=weights).rows(slice(0, 0 if weights is None else 1))
    for verb in (solve, diagnose):
        with pytest.raises(EvidenceError, match="at least one row with a positive weight"):
            verb(REFER, evidence)
