"""Observed columns of evidence: read once, carried along, and never read by a policy."""

import pickle

import numpy as np
import pandas as pd
import pytest

from bylaw import (
    Columns,
    Evidence,
    EvidenceError,
    OptionError,
    Problem,
    audit,
    error,
    rejected,
    selected,
    solve,
)
from bylaw.rows import concatenate


def make_rows(n=400, seed=0):
    """Rows, their labels, and the true values of a group that is known as probabilities."""
    rng = np.random.default_rng(seed)
    score, chance = rng.random(n), rng.random(n)
    labels = (rng.random(n) < score).astype(int)
    sex = np.where(rng.random(n) < chance, "F", "M")
    groups = {"sex": {"F": chance, "M": 1 - chance}}
    return Evidence(np.column_stack([1 - score, score]), groups=groups), labels, sex


def test_they_are_validated_and_missing_values_are_minus_one():
    rows = Evidence(
        [[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]],
        classes=["no", "yes"],
        groups={"sex": {"F": [0.5] * 3, "M": [0.5] * 3}},
        labels=["no", None, "yes"],
        true_groups={"sex": ["M", "F", None]},
        propensity_weights=[2.0, 3.0, 1.0],
        outcomes={"visit": [[1.0, np.nan]] * 3, "fee": "known"},
        limits={"visit": (0, 1)},
        largest_weight=2.0,
    )
    assert rows.labels.tolist() == [0, -1, 1]
    assert rows.true_groups["sex"].codes.tolist() == [1, 0, -1]
    assert rows.outcomes["fee"] == "known"
    with pytest.raises(EvidenceError, match=r"labels: 'maybe' in row 0 is not a class"):
        Evidence([[0.7, 0.3]], classes=["no", "yes"], labels=["maybe"])
    with pytest.raises(EvidenceError, match=r"true_groups\['sex'\] has values without probabilities"):
        Evidence([[0.7, 0.3]], groups={"sex": {"F": [0.5], "M": [0.5]}}, true_groups={"sex": ["X"]})
    with pytest.raises(EvidenceError, match="labels has 2 rows"):
        Evidence([[0.7, 0.3]], labels=[0, 1])
    with pytest.raises(OptionError, match="propensity_weights has no effect"):
        Evidence([[0.7, 0.3]], labels=[0], propensity_weights=[1.0])
    with pytest.raises(EvidenceError, match="propensity_weights must be finite and positive"):
        Evidence([[0.7, 0.3]] * 2, labels=[0, None], propensity_weights=[0.0, 1.0])


def test_they_go_with_their_rows():
    evidence, labels, sex = make_rows(6)
    labels = np.where(np.arange(6) == 1, None, labels)
    rows = evidence.with_observed(
        labels=labels,
        true_groups={"sex": sex},
        outcomes={"visit": np.arange(12.0).reshape(6, 2), "fee": "known"},
        propensity_weights=np.arange(1.0, 7.0),
        limits={"visit": (0, 20)},
        largest_weight=3.0,
    )
    parts = [rows.rows(slice(0, 2)), rows.rows(np.array([2, 3, 4, 5]))]
    for other in (concatenate(parts), pickle.loads(pickle.dumps(rows))):
        assert other.labels.tolist() == rows.labels.tolist()
        assert other.true_groups["sex"].codes.tolist() == rows.true_groups["sex"].codes.tolist()
        assert other.outcomes["visit"].tolist() == rows.outcomes["visit"].tolist()
        assert other.outcomes["fee"] == "known"
        assert other.propensity_weights.tolist() == rows.propensity_weights.tolist()
        assert (dict(other.limits), other.largest_weight) == ({"visit": (0, 20)}, 3.0)
    assert parts[0].labels.tolist() == rows.labels[:2].tolist()
    with pytest.raises(EvidenceError, match="same classes and columns"):
        concatenate([parts[0], parts[1].without_observed()])
    with pytest.raises(TypeError):
        rows.true_groups["sex"] = None
    with pytest.raises(ValueError, match="read-only"):
        rows.labels[0] = 1


def test_columns_and_arguments_say_the_same():
    evidence, labels, sex = make_rows()
    problem = Problem(error(), [error() <= 0.15, rejected() <= 0.4, selected(1).given(sex="F") <= 0.5])
    plain = solve(problem, evidence, labels=labels, groups={"sex": sex})
    rows = evidence.with_observed(labels=labels, true_groups={"sex": sex})
    assert solve(problem, rows).digest == plain.digest
    more, seen, true = make_rows(300, seed=1)
    judged = more.with_observed(labels=seen, true_groups={"sex": true})
    found, same = audit(plain, more, labels=seen, groups={"sex": true}), audit(plain, judged)
    assert [rule.estimate for rule in found.rules] == [rule.estimate for rule in same.rules]
    assert plain.expected(error(), judged) == plain.expected(error(), more, labels=seen)
    for again in (
        lambda: solve(problem, rows, labels=labels),
        lambda: audit(plain, judged, groups={"sex": true}),
        lambda: judged.with_observed(labels=seen),
    ):
        with pytest.raises(OptionError, match="must be given once"):
            again()


def test_a_policy_never_reads_them():
    evidence, labels, sex = make_rows()
    problem = Problem(error(), [error() <= 0.15, rejected() <= 0.4, selected(1).given(sex="F") <= 0.5])
    policy = solve(problem, evidence.with_observed(labels=labels, true_groups={"sex": sex}))
    new, seen, true = make_rows(200, seed=1)
    observed = new.with_observed(
        labels=seen, true_groups={"sex": true}, outcomes={"visit": np.ones((200, 3))}
    )
    wrong = new.with_observed(labels=1 - seen, true_groups={"sex": np.where(true == "F", "M", "F")})
    for rows in (observed, wrong):
        assert np.array_equal(policy.probabilities(rows), policy.probabilities(new))
        ids = np.arange(200)
        assert np.array_equal(policy.decide(rows, ids=ids), policy.decide(new, ids=ids))
    with pytest.raises(EvidenceError, match="sex"):
        policy.probabilities(Evidence(new.probabilities, labels=seen, true_groups={"sex": true}))


def test_tables_have_columns_for_them():
    frame = pd.DataFrame(
        {"no": [0.7, 0.2], "yes": [0.3, 0.8], "F": [0.5, 0.5], "M": [0.5, 0.5], "sex": ["M", None]}
    ).assign(outcome=["no", "yes"], weight=[2.0, 1.0])
    columns = Columns(
        ["no", "yes"],
        groups={"sex": {"F": "F", "M": "M"}},
        label="outcome",
        true_groups={"sex": "sex"},
        propensity_weights="weight",
    )
    rows = columns.evidence(frame)
    assert rows.labels.tolist() == [0, 1]
    assert rows.true_groups["sex"].codes.tolist() == [1, -1]
    assert rows.propensity_weights.tolist() == [2.0, 1.0]
    assert (
        columns.without_observed().evidence(frame.drop(columns=["outcome", "sex", "weight"])).labels is None
    )
    with pytest.raises(EvidenceError, match="no column 'outcome'"):
        columns.evidence(frame.drop(columns="outcome"))
