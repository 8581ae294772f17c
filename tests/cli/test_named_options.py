"""What helps is named: exit codes, options of commands, and parameters of the classifier."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    OptionError,
    Problem,
    audit,
    cost,
    error,
    rejected,
    solve,
    worst,
)
from bylaw.errors import EvidenceError, RuleError
from bylaw.estimators._constrained_classifier import _name_calibrator
from bylaw.view import describe_rate, write_sentence


def write_rows(path):
    rng = np.random.default_rng(2)
    chance = rng.uniform(size=60)
    lines = [f"{one},{1 - one},{'yes' if rng.random() < one else 'no'}" for one in chance]
    path.write_text("\n".join(["p_yes,p_no,label", *lines]))


def test_an_audit_of_fitted_rows_ends_undecided(bylaw, tmp_path):
    table, policy = tmp_path / "rows.csv", tmp_path / "policy.json"
    write_rows(table)
    assert bylaw("fit", table, "--rule", "rejected() <= 0.2", "-o", policy).code == 0
    refused = bylaw("audit", policy, table)
    assert refused.code == 4
    assert "they cannot certify it" in refused.err
    estimated = bylaw("audit", policy, table, "--fitted-rows", "estimate")
    assert estimated.code == 4


def test_a_level_that_the_first_rule_cannot_have_names_sweep(bylaw, tmp_path):
    table, rules = tmp_path / "rows.csv", tmp_path / "rules.toml"
    write_rows(table)
    rules.write_text('rules = ["error() + rejected() <= 2 * rejected() + 3"]\n')
    refused = bylaw("frontier", table, "--rules", rules, "--rule", "rejected() <= 0.1", "--levels", "0.1,0.2")
    assert refused.code == 2
    assert "choose another with --sweep" in refused.err
    named = bylaw(
        "frontier", table, "--rules", rules, "--rule", "rejected() <= 0.1", "--sweep", "rejected() <= 0.1"
    )
    assert "--sweep" not in named.err


def draw_rows(n_rows=300, power=1.0):
    rng = np.random.default_rng(3)
    chance = rng.uniform(size=n_rows)
    labels = (rng.random(n_rows) < chance**power).astype(int)
    return chance, labels


def test_expected_takes_the_text_of_a_rate():
    chance, labels = draw_rows()
    evidence = Evidence(np.column_stack([1 - chance, chance]))
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    for text in ("error()", "recall(1)", "error() / accepted()"):
        taken = policy.expected(text, evidence, labels=labels)
        probabilities = policy.probabilities(evidence)
        wrong = np.where(labels == 1, probabilities[:, 0], probabilities[:, 1])
        hand = {
            "error()": wrong.mean(),
            "recall(1)": probabilities[labels == 1, 1].mean(),
            "error() / accepted()": wrong.sum() / probabilities[:, :2].sum(),
        }
        assert taken == pytest.approx(hand[text])
    with pytest.raises(RuleError, match="rate must be a rate such as error"):
        policy.expected("error() <= 0.1", evidence)
    assert worst("error()", by="sex") == worst(error(), by="sex")


def test_the_words_of_a_cost_end_without_a_comma():
    rate = cost([[0, 1], [5, 0]])
    assert describe_rate(rate) == "the average cost by the given table of costs"
    assert write_sentence(rate <= 0.2) == "The average cost by the given table of costs is at most 0.2."
    assert not describe_rate(worst(rate, by="sex")).endswith(",")


def test_an_audit_advises_calibration_only_where_the_fit_did_not_try_it():
    chance, labels = draw_rows(2000, power=4.0)
    evidence = Evidence(np.column_stack([1 - chance, chance]))
    rows = [evidence.rows(part) for part in (slice(0, 1000), slice(1000, 2000))]
    problem = Problem(error(), [rejected() <= 0.5])
    advised = {}
    for calibrate in ("none", "temperature"):
        policy = solve(problem, rows[0], labels=labels[:1000], calibrate=calibrate)
        advised[calibrate] = repr(audit(policy, rows[1], labels=labels[1000:]))
    assert "calibrate='auto' of solve(), or calibrator='auto' of a ConstrainedClassifier" in advised["none"]
    assert "the fit has tried to calibrate them" in advised["temperature"]
    assert "='auto'" not in advised["temperature"]


def test_the_classifier_takes_none_as_text_and_names_its_own_parameter():
    chance, labels = draw_rows(120)
    X = np.column_stack([chance, chance**2])
    rules = [rejected() <= 0.2]
    plain, text = (
        ConstrainedClassifier(LogisticRegression(), rules, calibrator=one, random_state=0).fit(X, labels)
        for one in (None, "none")
    )
    assert text.policy_.calibration is None
    assert text.policy_.digest == plain.policy_.digest
    ConstrainedClassifier(
        LogisticRegression(), rules, calibrator="none", correction=False, random_state=0
    ).fit(X, labels)
    with pytest.raises(OptionError, match="calibrator must be one of"):
        ConstrainedClassifier(LogisticRegression(), rules, calibrator="platt").fit(X, labels)
    with (
        pytest.raises(EvidenceError, match=r"calibrator='vector' .* leave out calibrator, or"),
        _name_calibrator(),
    ):
        raise EvidenceError(
            "calibrate='vector' learns from two kinds of rows: leave out calibrate, or add rows"
        )
