"""Policies that calibrate: callers pass a model's own probabilities, everywhere."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from bylaw import (
    Evidence,
    EvidenceError,
    OptionError,
    Policy,
    PolicyFileError,
    Problem,
    audit,
    demographic_parity,
    equalized_odds,
    error,
    explain,
    rejected,
    selected,
    solve,
)
from bylaw.calibration import CalibratedEvidence, fit_calibration
from bylaw.policy import to_dict
from bylaw.rows import observe

PARITY = Problem(error(), [demographic_parity("sex", tol=0.05)])


def rows(n=4000, seed=0, factor=10.0, bias=1.0):
    """Scores that are far too sure, and differ by sex from what they are worth."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    truth = rng.normal(size=n) * 1.5 + np.where(sex == "F", -0.5, 0.5)
    label = (rng.random(n) < expit(truth)).astype(int)
    logit = factor * (truth + np.where(sex == "F", bias, -bias))
    evidence = Evidence(np.column_stack([expit(-logit), expit(logit)]), groups={"sex": sex})
    return evidence, label, truth


EVIDENCE, LABELS, TRUTH = rows()
NEW, NEW_LABELS, _ = rows(seed=1)
POLICY = solve(PARITY, EVIDENCE, labels=LABELS, calibrate="auto")
PLAIN = solve(PARITY, EVIDENCE, labels=LABELS, calibrate="none")


def observed_error(policy, evidence, labels):
    probabilities = policy.probabilities(evidence)
    return policy.expected(
        error(), observe(evidence.with_observed(labels=labels)), probabilities=probabilities
    )


def test_calibration_saves_errors_at_the_same_gap():
    assert POLICY.calibration is not None
    assert POLICY.calibration.by == "sex"
    assert observed_error(POLICY, NEW, NEW_LABELS) < observed_error(PLAIN, NEW, NEW_LABELS) - 0.02
    rates = [POLICY.expected(selected(1).given(sex=sex), NEW) for sex in "FM"]
    assert abs(rates[0] - rates[1]) < 0.12


def test_the_policy_is_that_of_calibrated_evidence():
    calibrated = POLICY.calibrate(EVIDENCE)
    assert isinstance(calibrated, CalibratedEvidence)
    by_hand = solve(PARITY, calibrated, labels=LABELS)
    assert by_hand.calibration is None
    assert by_hand.score_matrix == pytest.approx(POLICY.score_matrix)
    assert by_hand.probabilities(calibrated) == pytest.approx(POLICY.probabilities(EVIDENCE))
    assert (POLICY.probabilities(calibrated) == POLICY.probabilities(EVIDENCE)).all()


def test_rows_are_decided_alike_in_any_batch():
    whole = POLICY.probabilities(NEW)
    assert (POLICY.probabilities(NEW.rows(slice(1000, 1007))) == whole[1000:1007]).all()
    decided = POLICY.decide(NEW, ids=range(len(NEW)))
    part = POLICY.decide(NEW.rows(slice(10, 20)), ids=range(10, 20))
    assert (decided[10:20] == part).all()


def test_predicted_rates_are_those_of_calibrated_probabilities():
    believed = POLICY.expected(error(), NEW)
    assert believed == pytest.approx(observed_error(POLICY, NEW, NEW_LABELS), abs=0.02)
    assert abs(PLAIN.expected(error(), NEW) - observed_error(PLAIN, NEW, NEW_LABELS)) > 0.05


def test_an_explanation_adds_up_to_the_policys_scores():
    why = explain(POLICY, NEW)
    weights = np.exp(POLICY.beta * (why.scores - why.scores.max(axis=1, keepdims=True)))
    weights /= weights.sum(axis=1, keepdims=True)
    assert weights == pytest.approx(POLICY.probabilities(NEW), abs=1e-9)
    assert -why.baseline[:, 0] == pytest.approx(POLICY.calibrate(NEW).probabilities[:, 1])


def test_an_audit_of_the_fitted_rows_is_noticed():
    with pytest.raises(EvidenceError, match="rows on which the policy was chosen"):
        audit(POLICY, EVIDENCE, labels=LABELS)
    with pytest.raises(EvidenceError, match="rows on which the policy was chosen"):
        audit(POLICY, EVIDENCE.rows(slice(500, 3000)), labels=LABELS[500:3000])
    with pytest.raises(EvidenceError, match="rows on which the policy was chosen"):
        audit(POLICY, NEW, labels=NEW_LABELS, unlabelled=EVIDENCE)
    estimate = audit(POLICY, EVIDENCE, labels=LABELS, fitted_rows="estimate")
    assert str(estimate.verdict) == "estimated to hold"


@pytest.mark.slow
def test_an_audit_shows_probabilities_before_and_after():
    found = audit(POLICY, NEW, labels=NEW_LABELS)
    line = next(one for one in found.reliability if one.value == 1 and one.among == "sex='F'")
    before = NEW.probabilities[NEW.known_groups["sex"].codes == 0, 1].mean()
    assert line.raw_predicted == pytest.approx(before)
    assert abs(line.predicted - line.observed) < 0.04 < abs(line.raw_predicted - line.observed)
    assert line.unevenness < line.raw_unevenness
    assert found.to_dict()["reliability"][0]["raw_predicted"] is not None
    plain = audit(PLAIN, NEW, labels=NEW_LABELS)
    assert plain.to_dict()["reliability"][0]["raw_predicted"] is None
    assert "before calibration" not in repr(plain)


def test_observed_rates_of_an_audit_are_the_policys():
    found = audit(POLICY, NEW, labels=NEW_LABELS)
    assert found.cost_after == pytest.approx(observed_error(POLICY, NEW, NEW_LABELS))


@pytest.mark.slow
def test_held_out_rows_are_calibrated_by_the_same_map():
    held_out = NEW.with_observed(labels=NEW_LABELS)
    policy = solve(
        Problem(error(), [equalized_odds("sex", tol=0.15)]),
        EVIDENCE,
        labels=LABELS,
        calibrate="auto",
        guarantee="high_probability",
        held_out=held_out,
    )
    assert policy.calibration is not None
    assert policy.certificate is not None
    alone = fit_calibration(
        EVIDENCE.with_observed(labels=LABELS), attributes=["sex"]
    )  # by the fitted rows, and no others
    assert alone is not None
    assert policy.calibration.to_dict() == alone.to_dict()
    with pytest.raises(EvidenceError, match="rows on which the policy was chosen"):
        audit(policy, NEW, labels=NEW_LABELS)
    seen, probabilities = observe(NEW.with_observed(labels=NEW_LABELS)), policy.probabilities(NEW)
    for found in policy.problem.expand(seen.classes, seen.group_values):
        assert policy.expected(found.rule.excess, seen, probabilities=probabilities) <= 0


def test_saved_and_loaded_to_the_last_bit(tmp_path):
    POLICY.save(tmp_path / "policy.json")
    again = Policy.load(tmp_path / "policy.json")
    assert again.digest == POLICY.digest
    assert (again.probabilities(NEW) == POLICY.probabilities(NEW)).all()
    assert to_dict(again) == to_dict(POLICY)
    assert repr(again.calibration) == repr(POLICY.calibration)


def test_the_digest_includes_the_calibration():
    assert replace(POLICY, calibration=None).digest != POLICY.digest
    assert "calibration" not in to_dict(PLAIN)


def damage(content):
    content["calibration"]["labels"]["bias"][0] += 1e-9


def lose(content):
    del content["calibration"]


def confuse(content):
    content["calibration"]["by"] = "race"


@pytest.mark.parametrize("change", [damage, lose, confuse])
def test_a_changed_calibration_is_refused(change, tmp_path):
    content = to_dict(POLICY)
    change(content)
    (tmp_path / "policy.json").write_text(json.dumps(content))
    with pytest.raises(PolicyFileError):
        Policy.load(tmp_path / "policy.json")


def test_the_calibration_is_printed():
    assert repr(POLICY).endswith(f"\n{POLICY.calibration!r}")
    assert "by sex" in repr(POLICY)
    assert "Calibration(labels:" in POLICY._repr_html_()
    assert "alibrat" not in repr(PLAIN)


def test_the_attribute_of_the_maps_is_needed():
    with pytest.raises(EvidenceError, match="'sex'"):
        POLICY.probabilities(Evidence(NEW.probabilities))


def test_maps_do_not_depend_on_attributes_that_no_rule_names():
    policy = solve(Problem(error(), [rejected() <= 0.1]), EVIDENCE, labels=LABELS, calibrate="auto")
    assert policy.calibration is not None
    assert policy.calibration.by is None
    assert policy.probabilities(Evidence(NEW.probabilities)).shape == (4000, 3)


def test_labels_calibrate_unless_rows_are_calibrated_already():
    assert solve(PARITY, EVIDENCE, labels=LABELS).digest == POLICY.digest
    assert solve(PARITY, EVIDENCE).calibration is None
    assert solve(PARITY, POLICY.calibrate(EVIDENCE), labels=LABELS).calibration is None


def test_calibrating_needs_observations():
    with pytest.raises(
        OptionError, match=r"must have observed labels or groups for calibrate='auto'.*pass labels="
    ):
        solve(PARITY, EVIDENCE, calibrate="auto")
    with pytest.raises(OptionError, match="calibrate must be one of"):
        solve(PARITY, EVIDENCE, labels=LABELS, calibrate="sigmoid")  # type: ignore[arg-type]
    assert solve(PARITY, EVIDENCE, labels=LABELS, calibrate="none").digest == PLAIN.digest


def test_good_scores_stay_as_they_are():
    evidence, labels, _ = rows(factor=1.0, bias=0.0)
    policy = solve(PARITY, evidence, labels=labels, calibrate="auto")
    assert policy.calibration is None
    assert policy.digest == solve(PARITY, evidence, labels=labels).digest
