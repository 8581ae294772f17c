"""Exported graphs, run by onnxruntime."""

from __future__ import annotations

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from bylaw import Evidence, OptionError, Problem, custom, disagreement, error, solve
from bylaw.export import onnx_model, to_onnx
from bylaw.rows import KnownGroup
from helpers.export_cases import AWKWARD_CASES, REAL_CASES, TOLERANCE

REFUSED = ("unknown_together", "calibrated_together", "numbered_experts", "truths_or_ask")
CASES = {name: build for name, build in {**AWKWARD_CASES, **REAL_CASES}.items() if name not in REFUSED}


def session(model):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def feeds(case, model):
    """The inputs that the graph asks for, out of the evidence."""
    evidence, frame = case.evidence, case.frame
    found = {"probabilities": evidence.probabilities}
    for name, group in evidence.groups.items():
        known = isinstance(group, KnownGroup)
        found[f"group_{name}"] = np.array(group.values)[group.codes] if known else group.probabilities
    found |= {f"joint_{name}": array for name, array in evidence.joint.items()}
    found |= {f"cost_{name}": array for name, array in evidence.costs.items()}
    for name, roles in case.columns.references.items():
        found[f"reference_{name}"] = frame[roles].to_numpy()
    arrays = {}
    for wanted in model.get_inputs():
        array = found[wanted.name]
        arrays[wanted.name] = array.astype(object) if wanted.type == "tensor(string)" else array
    return arrays


def run(case, **options):
    soft = [name for name, roles in case.columns.references.items() if not isinstance(roles, str)]
    options = {"references": dict.fromkeys(soft, "probabilities"), **options}
    model = session(onnx_model(case.policy, **options))
    return model.run(["decision_probabilities"], feeds(case, model))[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_law_is_the_policys(name):
    case = CASES[name]()
    distribution = run(case)
    assert distribution.dtype == np.float64
    assert distribution.shape == case.distribution.shape
    assert np.abs(distribution - case.distribution).max() <= TOLERANCE


def test_an_earlier_model_may_come_as_probabilities():
    rng = np.random.default_rng(0)
    P, old = rng.dirichlet(np.ones(3), 400), rng.dirichlet(np.ones(3), 400)
    evidence = Evidence(P, references={"old": old})
    policy = solve(Problem(error(), [disagreement("old") <= 0.5]), evidence)
    model = session(onnx_model(policy, references={"old": "probabilities"}))
    distribution = model.run(None, {"probabilities": P, "reference_old": old})[0]
    assert policy.prices["disagreement('old') <= 0.5"] > 0.01
    assert np.abs(distribution - policy.probabilities(evidence)).max() <= TOLERANCE


BROKEN = {
    "group_sex": "X",
    "group_dept": 7,
    "reference_old": 9,
    "probabilities": np.nan,
    "group_race": 0.999,
    "joint_race": 0.999,
    "cost_visit": np.inf,
}


@pytest.mark.parametrize("name", BROKEN)
def test_rows_that_the_policy_refuses_get_nan(name):
    case = CASES["everything"]()
    model = session(onnx_model(case.policy))
    arrays = feeds(case, model)
    arrays[name] = arrays[name].copy()
    arrays[name][(5,) + (0,) * (arrays[name].ndim - 1)] = BROKEN[name]
    distribution = model.run(None, arrays)[0]
    assert np.isnan(distribution[5]).all()
    others = np.arange(len(distribution)) != 5
    assert np.abs(distribution[others] - case.distribution[others]).max() <= TOLERANCE


def test_negative_and_missing_probabilities_get_nan():
    case = CASES["decided"]()
    model = session(onnx_model(case.policy))
    P = case.evidence.probabilities[:5].copy()
    P[1, :2] += [0.6, -0.6]
    P[2, 3] += 2e-4
    P[3] = np.inf
    distribution = model.run(None, {"probabilities": P})[0]
    assert np.isnan(distribution).all(axis=1).tolist() == [False, True, True, True, False]


def test_batches_of_any_size():
    case = CASES["everything"]()
    model = session(onnx_model(case.policy))
    arrays = feeds(case, model)
    for size in (0, 1, 7):
        distribution = model.run(None, {name: array[:size] for name, array in arrays.items()})[0]
        assert distribution.shape == (size, 4)
        assert np.abs(distribution - case.distribution[:size]).max(initial=0) <= TOLERANCE


def test_the_file_says_what_it_is(tmp_path):
    case = CASES["everything"]()
    to_onnx(case.policy, tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    assert opsets == {"": 13, "ai.onnx.ml": 2}
    metadata = {item.key: item.value for item in model.metadata_props}
    assert metadata["digest"] == case.policy.digest
    assert json.loads(metadata["actions"]) == [0, 1, 2, "reject"]
    assert json.loads(metadata["rules"])[0] == "rejected() <= 0.1"
    assert json.loads(metadata["groups"])["race"] == ["b", "w"]


def test_what_has_no_place_is_said(monkeypatch):
    with pytest.raises(OptionError, match="depends jointly on race and sex"):
        onnx_model(AWKWARD_CASES["unknown_together"]().policy)
    with pytest.raises(OptionError, match="labels of 'old' must be all text or all numbers"):
        onnx_model(AWKWARD_CASES["numbered_experts"]().policy, references={"soft": "probabilities"})
    case = CASES["everything"]()
    with pytest.raises(OptionError, match="'labels' or 'probabilities'"):
        onnx_model(case.policy, references={"old": "scores"})
    with pytest.raises(OptionError, match="no rule refers to an earlier model 'new'"):
        onnx_model(case.policy, references={"new": "labels"})
    policy = solve(
        Problem(error() + custom(lambda rows: rows.probabilities, name="f")), Evidence([[0.2, 0.8]])
    )
    with pytest.raises(OptionError, match="cannot be exported"):
        onnx_model(policy)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(OptionError, match=r"pip install '\.\[onnx\]'"):
        onnx_model(case.policy)


def test_labels_of_several_types_come_as_probabilities():
    evidence = Evidence([[0.2, 0.8]] * 4, classes=["a", 1], references={"old": ["a", "a", 1, 1]})
    policy = solve(Problem(error(), [disagreement("old") <= 0.4]), evidence)
    with pytest.raises(OptionError, match="all text or all numbers"):
        onnx_model(policy)
    onnx_model(policy, references={"old": "probabilities"})
