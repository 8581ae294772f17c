"""Evidence is frozen: its columns change neither through it nor through the arrays it was made of."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest

from bylaw import Evidence, EvidenceError, Problem, error, rejected, solve
from bylaw.rows import observe

P = [[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]]
JOINT = np.array([[0.5, 0.5], [0.1, 0.9], [0.9, 0.1]])[:, :, None] * np.array(P)[:, None, :]


def full(**changed):
    columns = {
        "groups": {
            "s": ["F", "M", "F"],
            "r": {"x": np.array([0.5, 0.1, 0.9]), "z": np.array([0.5, 0.9, 0.1])},
        },
        "joint": {"r": JOINT.copy()},
        "references": {"old": np.array(P), "older": [0, 1, 1]},
        "costs": {"fee": np.ones((3, 2))},
        "weights": np.array([1.0, 2.0, 3.0]),
    }
    return Evidence(np.array(P), **{**columns, **changed})


def arrays(evidence):
    yield evidence.probabilities
    yield evidence.weights
    for part in (evidence.joint, evidence.references, evidence.costs):
        yield from part.values()
    yield evidence.groups["s"].codes
    yield evidence.groups["r"].probabilities


def test_a_change_of_the_callers_array_does_not_reach_the_decisions():
    """What aliased arrays did: a probability of 7 was decided on."""
    given = np.array(P)
    evidence = Evidence(given)
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    before = policy.probabilities(evidence)
    given[0] = [7, -6]
    assert (evidence.probabilities == P).all()
    assert (policy.probabilities(evidence) == before).all()


@pytest.mark.parametrize("name", ["joint", "references", "costs"])
def test_no_array_is_shared(name):
    given = {"joint": JOINT.copy(), "references": np.array(P), "costs": np.ones((3, 2))}[name]
    key = {"joint": "r", "references": "old", "costs": "fee"}[name]
    evidence = full(**{name: {key: given}})
    kept = getattr(evidence, name)[key].copy()
    given += 1
    assert (getattr(evidence, name)[key] == kept).all()


def test_weights_and_frames_are_not_shared():
    weights, frame = np.array([1.0, 2.0, 3.0]), pd.DataFrame(P, columns=["a", "b"])
    evidence = Evidence(frame, weights=weights)
    weights += 1
    frame.iloc[0, 0] = 0.1
    assert evidence.weights.tolist() == [1, 2, 3]
    assert evidence.probabilities[0, 0] == 0.7


def test_every_array_is_read_only():
    for array in arrays(full()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_callers_array_stays_writable():
    given = np.array(P)
    Evidence(given)
    given[0] = [0.5, 0.5]
    assert given[0, 0] == 0.5


def test_a_large_array_that_is_read_only_is_not_copied():
    given = np.array(P)
    given.flags.writeable = False
    assert np.shares_memory(Evidence(given).probabilities, given)
    assert np.shares_memory(Evidence(given[:2]).probabilities, given)


def test_a_read_only_view_of_a_writable_array_is_copied():
    given = np.array(P)
    view = given.view()
    view.flags.writeable = False
    assert not np.shares_memory(Evidence(view).probabilities, given)


def test_columns_cannot_be_exchanged():
    evidence = full()
    with pytest.raises(dataclasses.FrozenInstanceError):
        evidence.probabilities = np.eye(2)
    with pytest.raises(TypeError):
        evidence.groups["s"] = None


def test_copies_and_pickles_are_whole_and_frozen():
    evidence = full()
    for other in (pickle.loads(pickle.dumps(evidence)), copy.deepcopy(evidence), copy.copy(evidence)):
        assert (other.probabilities == evidence.probabilities).all()
        assert other.group_values == evidence.group_values
        with pytest.raises(TypeError):
            other.groups["s"] = None


def test_rows_as_observed_are_not_decided_on():
    evidence = Evidence(P)
    policy = solve(Problem(error(), [rejected() <= 0.5]), evidence)
    observed = observe(evidence.with_observed(labels=[1, 0, 1]))
    assert not isinstance(observed, Evidence)
    for act in (
        policy.probabilities,
        lambda rows: policy.decide(rows, rng=0),
        lambda rows: solve(policy.problem, rows),
    ):
        with pytest.raises(EvidenceError, match="passed as Evidence"):
            act(observed)
    assert policy.expected(error(), observed, probabilities=np.eye(3)[[0, 1, 1]]) == pytest.approx(2 / 3)


def test_the_scores_of_a_policy_are_read_only():
    policy = solve(Problem(error(), [rejected() <= 0.5]), Evidence(P))
    with pytest.raises(ValueError, match="read-only"):
        policy.score_matrix[0] = 0
