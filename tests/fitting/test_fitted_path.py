"""Frontiers and sensitivities with labels and groups: each point is what `solve` returns there."""

import warnings

import numpy as np
import pytest

from bylaw import (
    ConvergenceWarning,
    Evidence,
    InfeasibleRulesError,
    OptionError,
    Problem,
    demographic_parity,
    disparate_impact,
    equal_opportunity,
    error,
    frontier,
    rejected,
    sensitivity,
    solve,
    worst,
)

ROWS = 4000


def make_rows(seed=0):
    """Scores that are too high in one group, with the labels."""
    rng = np.random.default_rng(seed)
    truth, group = rng.random(ROWS), rng.choice(["a", "b"], ROWS)
    labels = (rng.random(ROWS) < truth).astype(int)
    scores = np.clip(truth + 0.15 * (group == "a"), 0.001, 0.999)
    return Evidence(np.column_stack([1 - scores, scores]), groups={"g": group}), labels, group


def count_errors(policy, evidence, labels):
    """By hand: what is decided, and is not the label."""
    chances = policy.probabilities(evidence)
    return float(np.mean(chances[:, :2].sum(axis=1) - chances[np.arange(ROWS), labels]))


@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_each_point_is_the_policy_of_solve(margin):
    evidence, labels, _ = make_rows()
    rule, observed = equal_opportunity("g", tol=0.02), {"labels": labels, "calibrate": "none"}
    found = frontier(Problem(error(), [rule]), evidence, {rule: [0.01, 0.05, 0.3]}, margin=margin, **observed)
    for level, cost, price, policy in zip(
        found.levels[:, 0], found.cost, found.prices[:, 0], found.policies, strict=True
    ):
        stated = rule.at(level)
        direct = solve(Problem(error(), [stated]), evidence, margin=margin, tol=1e-5, **observed)
        assert cost == pytest.approx(count_errors(direct, evidence, labels), abs=1e-5)
        assert price == pytest.approx(direct.prices[str(stated)], abs=1e-4)
        assert policy is not None
        np.testing.assert_allclose(policy.probabilities(evidence), direct.probabilities(evidence), atol=1e-2)
        assert max(policy.observed.values()) <= 1e-5  # as observed, and not only as predicted
    assert found.prices[0, 0] > found.prices[2, 0] == 0


def test_labels_change_the_frontier_of_wrong_scores():
    evidence, labels, group = make_rows()
    rule = equal_opportunity("g", tol=0.02)
    problem, sweep = Problem(error(), [rule]), {rule: [0.02]}
    gaps = []
    for options in ({"labels": labels}, {}):
        policy = frontier(problem, evidence, sweep, **options).policies[0]
        assert policy is not None
        chances = policy.probabilities(evidence)[:, 1]
        rates = [chances[(labels == 1) & (group == value)].mean() for value in "ab"]
        gaps.append(abs(rates[0] - rates[1]))
    assert gaps[0] <= 0.04 + 1e-5  # each within 0.02 of all rows
    assert gaps[1] > 0.05  # held as predicted, missed as observed


def test_prices_are_of_the_level_where_it_is_a_coefficient():
    """With labels that no rule refers to, the policies are those without; prices come another way."""
    evidence, labels, _ = make_rows()
    rule = disparate_impact("g", ratio=0.8)
    sweep = {rule: [0.8, 0.9, 0.95]}
    seen = frontier(Problem(error(), [rule]), evidence, sweep, labels=labels, calibrate="none")
    predicted = frontier(Problem(error(), [rule]), evidence, sweep)
    np.testing.assert_allclose(seen.prices, predicted.prices, rtol=2e-2, atol=1e-4)
    assert (predicted.prices > 0.005).all()


def test_costs_of_two_rules_are_a_grid():
    evidence, labels, _ = make_rows()
    parity, budget = demographic_parity("g", tol=0.02), rejected() <= 0.1
    found = frontier(
        Problem(error(), [parity, budget]), evidence, {parity: [0.02, 0.2], budget: [0.0, 0.1]}, labels=labels
    )
    assert found.levels.tolist() == [[0.02, 0.0], [0.02, 0.1], [0.2, 0.0], [0.2, 0.1]]
    assert found.cost[0] > found.cost[1]
    assert found.cost[2] > found.cost[3]


@pytest.mark.slow
def test_conflicts_as_observed_have_no_policy():
    evidence, labels, _ = make_rows()
    rule = error() <= 0.5
    found = frontier(Problem(error(), [rule]), evidence, {rule: [0.05, 0.5]}, labels=labels)
    assert [status.name for status in found.status] == ["INFEASIBLE", "CONVERGED"]
    assert found.policies[0] is None
    assert np.isnan(found.cost[0])
    with pytest.raises(InfeasibleRulesError) as caught:
        frontier(Problem(error(), [rule]), evidence, {rule: [0.01, 0.02]}, labels=labels)
    assert caught.value.diagnosis.conflict == ("error() <= 0.02",)
    assert any("loosest levels" in note for note in caught.value.__notes__)


@pytest.mark.slow
def test_missed_levels_are_told_once():
    """Three of ten labels are not what scores say, whatever the threshold; scores differ, so that nothing is
    proved."""
    rng = np.random.default_rng(1)
    scores = rng.permutation(np.linspace(0.001, 0.999, ROWS))
    labels = (scores > 0.5) ^ (rng.random(ROWS) < 0.3)
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    rule = error() <= 0.5
    with pytest.warns(ConvergenceWarning, match="at 2 of 3 levels") as caught:
        found = frontier(
            Problem(error(), [rule]),
            evidence,
            {rule: [0.26, 0.27, 0.4]},
            labels=labels.astype(int),
            calibrate="none",
        )
    assert len(caught) == 1
    assert [status.name for status in found.status] == ["MISSED", "MISSED", "CONVERGED"]


def test_worst_group_as_observed():
    evidence, labels, group = make_rows()
    rule = rejected() <= 0.1
    found = frontier(Problem(worst(error(), by="g"), [rule]), evidence, {rule: [0.05]}, labels=labels)
    policy = found.policies[0]
    assert policy is not None
    chances = policy.probabilities(evidence)
    wrong = chances[:, :2].sum(axis=1) - chances[np.arange(ROWS), labels]
    assert found.cost[0] == pytest.approx(max(wrong[group == value].mean() for value in "ab"), abs=1e-6)


@pytest.mark.slow
def test_sensitivity_as_observed_tells_what_solve_does():
    evidence, labels, _ = make_rows()
    rule = equal_opportunity("g", tol=0.02)
    observed = {"labels": labels, "calibrate": "none"}
    found = sensitivity(Problem(error(), [rule]), evidence, **observed).statements[0]
    here, tighter = (
        solve(Problem(error(), [rule.at(level)]), evidence, **observed) for level in (0.02, 0.01)
    )
    change = count_errors(tighter, evidence, labels) - count_errors(here, evidence, labels)
    assert found.price == pytest.approx(here.prices[str(rule)], rel=1e-3)
    assert found.cost_of_step == pytest.approx(change, abs=1e-5)
    assert found.status == "binds"


def test_a_slack_rule_binds_where_the_policy_just_satisfies_it():
    evidence, labels, _ = make_rows()
    rule = error() <= 0.4
    found = sensitivity(Problem(error(), [rule]), evidence, labels=labels).statements[0]
    free = solve(Problem(error()), evidence, labels=labels)
    assert found.status == "slack"
    assert found.lower == pytest.approx(count_errors(free, evidence, labels), abs=1e-6)


def test_scanned_rows_bring_their_labels(tmp_path):
    import pandas

    from bylaw import Columns, scan

    evidence, labels, group = make_rows()
    scores = np.asarray(evidence.probabilities)
    frame = pandas.DataFrame({"no": scores[:, 0], "yes": scores[:, 1], "g": group})
    frame["y"] = np.where(labels == 1, "yes", "no")
    frame.to_parquet(tmp_path / "rows.parquet")
    rows = scan(tmp_path / "rows.parquet", Columns(["no", "yes"], groups={"g": "g"}, label="y"))
    rule = equal_opportunity("g", tol=0.02)
    found = frontier(Problem(error(), [rule]), rows, {rule: [0.02]})
    named = Evidence(scores, classes=["no", "yes"], groups={"g": group})
    direct = frontier(Problem(error(), [rule]), named, {rule: [0.02]}, labels=frame["y"].to_numpy())
    assert found.cost[0] == pytest.approx(direct.cost[0], abs=1e-4)
    with pytest.raises(OptionError, match="labels= must be left out for scanned rows"):
        frontier(Problem(error(), [rule]), rows, {rule: [0.02]}, labels=labels)


def test_options_are_validated():
    evidence, labels, _ = make_rows()
    rule = rejected() <= 0.1
    problem = Problem(error(), [rule])
    with pytest.raises(OptionError, match="propensity_weights"):
        frontier(problem, evidence, {rule: [0.1]}, propensity_weights=np.ones(ROWS))
    with pytest.raises(OptionError, match="calibrate"):
        sensitivity(problem, evidence, labels=labels, calibrate="magic")  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(frontier(problem, evidence, {rule: [0.1]}, labels=labels, calibrate="temperature")) == 1
