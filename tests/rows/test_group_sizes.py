"""Columns with more values than can be compared as groups are refused before anything is computed."""

from __future__ import annotations

import re

import numpy as np
import pandas
import pytest
from sklearn.linear_model import LogisticRegression

from bylaw import (
    Columns,
    ConstrainedClassifier,
    Evidence,
    EvidenceError,
    Problem,
    audit,
    demographic_parity,
    diagnose,
    error,
    frontier,
    scan,
    selected,
    sensitivity,
    solve,
    worst,
)
from bylaw.rows import check_group_sizes

N = 3715
INCOME = np.random.default_rng(0).lognormal(size=N)
CHANCE = np.random.default_rng(1).uniform(0.1, 0.9, N)
SCORES = np.column_stack([1 - CHANCE, CHANCE])
PARITY = demographic_parity("income", tol=0.1)
PROBLEM = Problem(error(), [PARITY])
REFUSED = r"\['income'\] has 3,715 different values on 3,715 rows, each on 1 row; .* too many \(20 rows each"


class Untrainable(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        raise AssertionError("groups are checked before any model is trained")


def make_evidence(column, n=N):
    return Evidence(SCORES[:n], groups={"income": column})


@pytest.mark.parametrize(
    "door",
    [
        lambda rows: solve(PROBLEM, rows),
        lambda rows: solve(PROBLEM, rows, labels=CHANCE > 0.5, calibrate="auto"),
        lambda rows: solve(Problem(worst(error(), by="income")), rows),
        lambda rows: frontier(PROBLEM, rows, {PARITY: [0.1, 0.2]}),
        lambda rows: sensitivity(PROBLEM, rows),
        lambda rows: diagnose(PROBLEM, rows),
    ],
    ids=["solve", "with labels", "worst", "frontier", "sensitivity", "diagnose"],
)
def test_every_door_refuses_a_number_as_a_group(door):
    with pytest.raises(EvidenceError, match=REFUSED):
        door(make_evidence(INCOME))


@pytest.mark.parametrize("hidden", [None, Untrainable()], ids=["known", "predicted"])
def test_the_classifier_refuses_it_before_any_training(hidden):
    model = ConstrainedClassifier(Untrainable(), [PARITY], group_estimator=hidden)
    with pytest.raises(EvidenceError, match="sensitive_features" + REFUSED):
        model.fit(SCORES, CHANCE > 0.5, sensitive_features=pandas.Series(INCOME, name="income"))


def test_rows_of_a_file_are_counted_too(tmp_path):
    table = pandas.DataFrame({"a": SCORES[:, 0], "b": SCORES[:, 1], "income": INCOME, "w": 2.0})
    table.to_parquet(tmp_path / "scores.parquet")
    rows = scan(tmp_path / "*.parquet", Columns(["a", "b"], groups={"income": "income"}, weights="w"))
    with pytest.raises(EvidenceError, match=REFUSED):
        solve(PROBLEM, rows)


def test_the_line_of_code_that_is_offered_works():
    with pytest.raises(EvidenceError) as caught:
        solve(PROBLEM, make_evidence(INCOME))
    line = re.search(r"np\.digitize\(.*\)", str(caught.value))[0]
    bins = eval(line, {"np": np, "column": INCOME})
    assert np.unique(bins, return_counts=True)[1].tolist() == [743] * 5
    policy = solve(PROBLEM, make_evidence(bins))
    assert len(policy.multipliers) == 5 * 2 * 2


def test_the_line_that_is_offered_for_text_works():
    names = pandas.Series([f"shop {i // 400}" if i < 2000 else f"stall {i}" for i in range(N)])
    with pytest.raises(
        EvidenceError, match="1,720 different values on 3,715 rows, half of them on 1 row"
    ) as caught:
        solve(PROBLEM, make_evidence(names))
    line = re.search(r"column\.where\(.*\)", str(caught.value))[0]
    merged = eval(line, {"column": names})
    assert sorted(set(merged)) == ["other", *(f"shop {i}" for i in range(5))]
    solve(PROBLEM, make_evidence(merged))


@pytest.mark.parametrize(
    ("counts", "refused"),
    [
        ([1] * 20, False),  # a small table
        ([1] * 21, True),
        ([5] * 21, False),
        ([4] * 400, True),
        ([5] * 500, False),
        ([19] * 501, True),
        ([20] * 501, False),
        ([10**6] * 5000, False),
        ([10**6] * 5001, True),
        ([90_000] + [1] * 100, True),  # mostly zero, like a capital gain
        ([90_000] * 60 + [1] * 40, False),  # a few rare values among many
    ],
    ids=str,
)
def test_how_many_rows_the_values_need(counts, refused):
    values = [f"g{i}" for i in range(len(counts))]
    if not refused:
        check_group_sizes(values, np.array(counts), "g")
        return
    with pytest.raises(EvidenceError, match="different values"):
        check_group_sizes(values, np.array(counts), "g")


@pytest.mark.slow
def test_a_rule_on_one_value_is_no_comparison():
    ids = np.arange(N)
    ids[:100] = 0
    policy = solve(Problem(error(), [selected(1).given(income=0) <= 0.3]), make_evidence(ids))
    assert policy.expected(selected(1).given(income=0), make_evidence(ids)) <= 0.3 + 1e-6


def test_few_new_rows_of_many_groups_are_decided_and_audited():
    shops = np.repeat(np.arange(60), 60)
    policy = solve(PROBLEM, make_evidence(shops, 3600))
    new = Evidence(SCORES[3600:3660], groups={"income": np.arange(60)})
    assert policy.probabilities(new).shape == (60, 2)
    assert policy.decide(new, rng=0).shape == (60,)


def test_few_new_rows_of_many_groups_have_a_baseline():
    """The worst of many groups is minimised, and hardly any row of each is audited."""
    policy = solve(Problem(worst(error(), by="income")), make_evidence(np.repeat(np.arange(40), 30), 1200))
    new = Evidence(SCORES[3600:3640], groups={"income": np.arange(40)})
    found = audit(policy, new, labels=(CHANCE[3600:3640] > 0.5).astype(int))
    assert 0 <= found.cost_before <= 1
