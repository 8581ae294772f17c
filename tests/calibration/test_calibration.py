"""Calibrations of evidence: labels, known groups, hidden groups, joint probabilities."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from scipy.special import expit, softmax

from bylaw import Evidence, EvidenceError, OptionError
from bylaw._base import BadValueError, Node
from bylaw.calibration import CHOICES, CalibratedEvidence, Calibration, CalibrationMap, fit_calibration
from bylaw.calibration._calibration import GroupMap
from bylaw.program import Attribute
from bylaw.rows import GroupProbabilities

N = 6000


def people(n=N, seed=0, factor=4.0):
    """Sharpened models of a label, of a hidden group, and of both; what was observed of them."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 6)) * 1.2
    truth = softmax(scores, axis=1)
    cells = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, 5)
    joint = softmax(factor * scores, axis=1).reshape(n, 2, 3)
    race, label = np.divmod(cells, 3)
    evidence = Evidence(
        joint.sum(axis=1),
        classes=["a", "b", "c"],
        groups={
            "race": {"black": joint.sum(axis=2)[:, 0], "white": joint.sum(axis=2)[:, 1]},
            "sex": np.where(rng.random(n) < 0.5, "F", "M"),
        },
        joint={"race": joint},
        weights=rng.uniform(0.5, 1.5, n),
    )
    groups = {"race": np.array(["black", "white"])[race]}
    return evidence, np.array(["a", "b", "c"])[label], groups, truth.reshape(n, 2, 3)


EVIDENCE, LABELS, GROUPS, TRUTH = people()
CALIBRATION = fit_calibration(EVIDENCE.with_observed(labels=LABELS, true_groups=GROUPS))


def a_map(K, seed=0):
    rng = np.random.default_rng(seed)
    return CalibrationMap("vector", 1e-6, rng.normal(size=K), np.diag(rng.uniform(0.3, 1, K)))


def test_everything_that_was_observed_is_calibrated():
    assert CALIBRATION is not None
    calibrated = CALIBRATION.apply(EVIDENCE)
    hidden = calibrated.hidden_groups["race"]
    assert hidden.values == ("black", "white")
    for truth, before, after in (
        (TRUTH.sum(axis=1), EVIDENCE.probabilities, calibrated.probabilities),
        (TRUTH.sum(axis=2), EVIDENCE.hidden_groups["race"].probabilities, hidden.probabilities),
        (TRUTH, EVIDENCE.joint["race"], calibrated.joint["race"]),
    ):
        assert np.abs(after - truth).mean() < 0.35 * np.abs(before - truth).mean()
    assert repr(CALIBRATION).startswith("Calibration(labels: ")
    assert "race and label: " in repr(CALIBRATION)


def test_joint_probabilities_add_up_to_the_labels():
    assert CALIBRATION is not None
    calibrated = CALIBRATION.apply(EVIDENCE)
    assert calibrated.joint["race"].sum(axis=1) == pytest.approx(calibrated.probabilities, abs=1e-12)
    group = calibrated.hidden_groups["race"].probabilities
    assert np.abs(calibrated.joint["race"].sum(axis=2) - group).mean() < 0.05
    again = Evidence(  # as evidence demands it
        calibrated.probabilities,
        classes=["a", "b", "c"],
        groups={"race": dict(zip(("black", "white"), group.T, strict=True))},
        joint={"race": calibrated.joint["race"]},
    )
    assert len(again) == N


@pytest.mark.slow
def test_labels_alone_move_the_joint_with_them():
    found = fit_calibration(EVIDENCE.with_observed(labels=LABELS))
    assert found is not None
    assert not found.groups
    assert not found.joint
    calibrated = found.apply(EVIDENCE)
    assert calibrated.joint["race"].sum(axis=1) == pytest.approx(calibrated.probabilities)
    given = EVIDENCE.joint["race"] / EVIDENCE.joint["race"].sum(axis=1, keepdims=True)
    assert calibrated.joint["race"] == pytest.approx(given * calibrated.probabilities[:, None, :])
    assert calibrated.groups["race"] is EVIDENCE.groups["race"]


def test_groups_alone_leave_the_labels():
    found = fit_calibration(EVIDENCE.with_observed(true_groups=GROUPS))
    assert found is not None
    assert found.labels is None
    calibrated = found.apply(EVIDENCE)
    assert calibrated.probabilities is EVIDENCE.probabilities
    assert calibrated.joint["race"] is EVIDENCE.joint["race"]
    assert (calibrated.groups["race"].probabilities != EVIDENCE.groups["race"].probabilities).any()


def test_the_order_of_values_does_not_matter():
    assert CALIBRATION is not None
    hidden = EVIDENCE.hidden_groups["race"].probabilities
    turned = EVIDENCE.with_columns(
        groups={**EVIDENCE.groups, "race": GroupProbabilities(("white", "black"), hidden[:, ::-1].copy())},
        joint={"race": EVIDENCE.joint["race"][:, ::-1]},
    )
    one, other = CALIBRATION.apply(EVIDENCE), CALIBRATION.apply(turned)
    assert (one.joint["race"] == other.joint["race"][:, ::-1]).all()
    assert (one.groups["race"].probabilities == other.groups["race"].probabilities[:, ::-1]).all()


def test_known_groups_choose_their_map():
    by = Calibration(("a", "b", "c"), a_map(3), "sex", {"F": a_map(3, 1)})
    calibrated = by.apply(EVIDENCE).probabilities
    women = EVIDENCE.known_groups["sex"].codes == EVIDENCE.groups["sex"].values.index("F")
    assert (calibrated[women] == a_map(3, 1).apply(EVIDENCE.probabilities[women])).all()
    assert (calibrated[~women] == a_map(3).apply(EVIDENCE.probabilities[~women])).all()
    with pytest.raises(EvidenceError, match="evidence must have the groups 'sex'"):
        by.apply(Evidence(EVIDENCE.probabilities, classes=["a", "b", "c"]))


def test_a_calibration_is_applied_once():
    assert CALIBRATION is not None
    once = CALIBRATION.apply(EVIDENCE)
    assert CALIBRATION.apply(once) is once
    other = Calibration(("a", "b", "c"), a_map(3))
    assert (other.apply(once).probabilities == other.apply(EVIDENCE).probabilities).all()
    part = once.rows(slice(10, 20))
    assert isinstance(part, CalibratedEvidence)
    assert (CALIBRATION.apply(part).probabilities == once.probabilities[10:20]).all()
    assert (part.raw.probabilities == EVIDENCE.probabilities[10:20]).all()
    fitted_again = fit_calibration(once.with_observed(labels=LABELS, true_groups=GROUPS))
    assert fitted_again is not None
    assert fitted_again.to_dict() == CALIBRATION.to_dict()


def test_calibrated_evidence_is_frozen_and_pickles():
    assert CALIBRATION is not None
    calibrated = CALIBRATION.apply(EVIDENCE)
    with pytest.raises(ValueError, match="read-only"):
        calibrated.probabilities[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        calibrated.joint["race"][0, 0, 0] = 1
    again = pickle.loads(pickle.dumps(calibrated))
    assert (again.probabilities == calibrated.probabilities).all()
    assert (again.raw.probabilities == EVIDENCE.probabilities).all()


def test_other_classes_are_refused():
    assert CALIBRATION is not None
    with pytest.raises(EvidenceError, match=r"in the same order, \['a', 'b', 'c'\]"):
        CALIBRATION.apply(Evidence(EVIDENCE.probabilities))


def test_attributes_that_are_known_together_stay_as_they_are():
    rng = np.random.default_rng(3)
    cells = rng.dirichlet(np.ones(4) / 4, 1000)
    values = [(sex, race) for sex in "FM" for race in "bw"]
    evidence = Evidence(
        np.column_stack([cells[:, 0], 1 - cells[:, 0]]),
        groups={("sex", "race"): dict(zip(values, cells.T, strict=True))},
    )
    seen = {"sex": rng.choice(["F", "M"], 1000), "race": rng.choice(["b", "w"], 1000)}
    found = fit_calibration(evidence.with_observed(labels=rng.integers(0, 2, 1000), true_groups=seen))
    assert found is not None
    assert not found.groups


@pytest.mark.parametrize("method", ["none", None])
def test_none_is_no_calibration(method):
    assert fit_calibration(EVIDENCE.with_observed(labels=LABELS, true_groups=GROUPS), method=method) is None
    assert fit_calibration(EVIDENCE, method=method) is None


@pytest.mark.parametrize("method", CHOICES[2:])
def test_a_method_by_name(method):
    found = fit_calibration(EVIDENCE.with_observed(labels=LABELS), method=method)
    assert found is not None
    assert found.labels is not None
    assert found.labels.method == method


@pytest.mark.parametrize("method", ["isotonic", "auto"])
def test_labels_and_groups_that_do_not_fit_are_refused(method):
    with pytest.raises(EvidenceError, match="is not a class"):
        fit_calibration(EVIDENCE.with_observed(labels=["z"] * N), method=method)
    with pytest.raises(EvidenceError, match="rows"):
        fit_calibration(EVIDENCE.with_observed(labels=LABELS[:10]), method=method)
    with pytest.raises(EvidenceError, match="without probabilities"):
        fit_calibration(EVIDENCE.with_observed(true_groups={"race": ["green"] * N}), method=method)


def test_bad_options_are_refused():
    with pytest.raises(OptionError, match="calibrate must be one of"):
        fit_calibration(EVIDENCE.with_observed(labels=LABELS), method="platt")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"must have observed labels or groups.*pass labels="):
        fit_calibration(EVIDENCE)
    with pytest.raises(EvidenceError, match="labels must have at least two different values"):
        fit_calibration(EVIDENCE.with_observed(labels=["a"] * N), method="vector")
    assert fit_calibration(EVIDENCE.with_observed(labels=["a"] * N)) is None


ATTRIBUTES = {"race": Attribute(("black", "white"), False), "sex": Attribute(("F", "M"), True)}
WHOLE = Calibration(
    ("a", "b", "c"),
    a_map(3),
    "sex",
    {"F": a_map(3, 1)},
    {"race": GroupMap(("black", "white"), a_map(2))},
    {"race": GroupMap(("black", "white"), a_map(6))},
)


def read(content):
    return Calibration.from_node(Node(json.loads(json.dumps(content)), "it"), ("a", "b", "c"), ATTRIBUTES)


def test_a_saved_calibration_reads_back_to_the_last_bit():
    again = read(WHOLE.to_dict())
    assert again.to_dict() == WHOLE.to_dict()
    one, other = WHOLE.apply(EVIDENCE), again.apply(EVIDENCE)
    assert (one.probabilities == other.probabilities).all()
    assert (one.joint["race"] == other.joint["race"]).all()
    nothing = Calibration(("a", "b", "c"))
    assert read(nothing.to_dict()).to_dict() == nothing.to_dict()


def changed(**keys):
    return {**WHOLE.to_dict(), **keys}


SAVED = WHOLE.to_dict()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed(by="race"), "one of"),
        (changed(by="age"), "one of"),
        (changed(by=None), "an attribute if by_value has maps, and null if labels is null"),
        (changed(labels=None), "an attribute if by_value has maps, and null if labels is null"),
        (changed(by_value=[{"value": "X", **a_map(3).to_dict()}]), "one of"),
        (
            changed(by_value=[{"value": "F", **a_map(3).to_dict(), "floor": 1e-9}]),
            "same floor as the map of all rows",
        ),
        (changed(groups={"sex": SAVED["groups"]["race"]}), "for which the policy has only probabilities"),
        (changed(groups={"age": SAVED["groups"]["race"]}), "for which the policy has only probabilities"),
        (
            changed(groups={"race": {**SAVED["groups"]["race"], "values": ["black", "black"]}}),
            "values of race",
        ),
        (changed(joint={"race": SAVED["groups"]["race"]}), "6 numbers"),
        (changed(joint=[]), "an object"),
        ({"labels": None}, "has no 'by'"),
        ([], "has no 'by'"),
    ],
)
def test_a_damaged_calibration_is_refused(content, said):
    with pytest.raises(BadValueError, match=said):
        read(content)


def test_rows_that_are_seen_more_often_count_less():
    """Where labels are seen depends on a feature that tells how far the scores are off."""
    rng = np.random.default_rng(8)
    n = 20_000
    odd, logit = rng.random(n) < 0.5, rng.normal(size=n)
    label = (rng.random(n) < expit(logit + 2.0 * odd)).astype(int)
    evidence = Evidence(np.column_stack([expit(-logit), expit(logit)]))
    chance = np.where(odd, 0.8, 0.1)
    partly = np.where(rng.random(n) < chance, label, None)

    def mean(labels, **options):
        found = fit_calibration(evidence.with_observed(labels=labels, **options), "vector")
        return found.apply(evidence).probabilities[:, 1].mean()

    assert mean(label) == pytest.approx(label.mean(), abs=0.005)
    assert mean(partly) > label.mean() + 0.08
    assert mean(partly, propensity_weights=1 / chance) == pytest.approx(label.mean(), abs=0.02)
