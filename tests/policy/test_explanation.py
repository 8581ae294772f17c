from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest

from bylaw import (
    Evidence,
    Policy,
    Problem,
    accepted,
    balanced_error,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    explain,
    f1,
    miscoverage,
    precision,
    predictive_parity,
    rejected,
    size,
    solve,
    worst,
)
from bylaw.errors import RuleError
from bylaw.program import decide_as_model
from helpers.reference import softmax

PROBLEMS = {
    "parity": Problem(error(), [demographic_parity("hidden", tol=0.02)]),
    "reject": Problem(error(), [rejected() <= 0.1, demographic_parity("known", tol=0.05)]),
    "odds": Problem(error(), [equalized_odds("hidden", tol=0.02), disagreement("old") <= 0.2]),
    "sets": Problem(miscoverage(), [size() <= 1.2]),
    "free": Problem(error()),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_pulls_add_up_to_the_law(rows, name):
    evidence = rows.evidence()
    policy = solve(PROBLEMS[name], evidence, beta=20.0)
    found = explain(policy, evidence)
    distribution = 1 / (1 + np.exp(-20 * found.scores)) if name == "sets" else softmax(20 * found.scores)
    assert distribution == pytest.approx(policy.probabilities(evidence), abs=1e-9)
    assert found.rules == tuple(rule for rule, price in policy.multipliers.items() if price)


def test_a_rejection_rule_pulls_by_its_price(rows):
    evidence = rows.evidence()
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    found = explain(policy, evidence)
    price = policy.multipliers["rejected() <= 0.1"]
    assert found.pulls[:, 0] == pytest.approx(np.tile([0, 0, -price], (len(evidence), 1)))
    assert found.baseline == pytest.approx(np.column_stack([rows.P - 1, np.zeros(len(evidence))]))


def test_a_part_of_the_rows_and_a_policy_from_a_file(rows, tmp_path):
    evidence = rows.evidence()
    policy = solve(PROBLEMS["reject"], evidence)
    policy.save(tmp_path / "p.json")
    here = np.flatnonzero(rows.group == 1)[:5]  # one group alone
    part = explain(Policy.load(tmp_path / "p.json"), evidence.rows(here))
    whole = explain(policy, evidence)
    ours, theirs = (np.diff(one, axis=1) for one in (whole.scores[here], part.scores))
    assert theirs == pytest.approx(ours, abs=1e-12)  # between actions
    assert part.pulls == pytest.approx(whole.pulls[here], abs=0.05 * abs(whole.pulls).max())  # rounded prices
    assert part.rules == whole.rules


def test_moved_rows_and_frames(rows):
    evidence = rows.evidence()
    found = explain(solve(PROBLEMS["parity"], evidence), evidence)
    moved = found.moved
    assert (moved == (found.before != found.after)).all()
    assert 0 < moved.sum() < len(evidence)
    assert (found.before == rows.P.argmax(axis=1)).all()
    assert f"{moved.sum()} of them moved" in repr(found)
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 2 * len(evidence)
    total = frame["baseline"] + sum(frame[rule] for rule in found.rules)
    assert total.to_numpy() == pytest.approx(frame["score"].to_numpy())
    assert isinstance(found.to_frame(polars.DataFrame()), polars.DataFrame)


def test_moved_sets(rows):
    evidence = rows.evidence()
    found = explain(solve(Problem(miscoverage(), [size() <= 1.2]), evidence), evidence)
    assert (found.before == np.eye(2, dtype=bool)[rows.P.argmax(axis=1)]).all()  # the model's label alone
    assert (found.after == (found.scores > 0)).all()
    assert (found.changed == (found.before != found.after).any(axis=1)).all()
    assert found.without_rules.all()  # nothing but the rule keeps a label out of a set
    assert (found.moved == ~found.after.all(axis=1)).all()


def test_rules_in_large_units(rows):
    cents = np.outer(np.random.default_rng(0).uniform(1e6, 2e6, rows.n), [0, 1])
    evidence = rows.evidence(costs={"cents": cents})
    policy = solve(Problem(error(), [custom("cents") <= 2e5]), evidence, beta=20.0)
    found = explain(policy, evidence)
    assert softmax(20 * found.scores) == pytest.approx(policy.probabilities(evidence), abs=1e-9)
    assert found.pulls[:, 0] == pytest.approx(-policy.multipliers["custom('cents') <= 200000"] * cents)


QUOTIENTS = {
    "bounded": Problem(error(), [precision(1) >= 0.78, precision(0) >= 0.7, rejected() <= 0.4]),
    "compared": Problem(error(), [predictive_parity("known", tol=0.01), rejected() <= 0.1]),
    "objective": Problem(1 - f1(1), [demographic_parity("known", tol=0.05)]),
    "ratio": Problem(error() / accepted(), [accepted() >= 0.8, rejected() <= 0.2]),
    "worst": Problem(worst(error(), by="known"), [rejected() <= 0.1]),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the policy chooses at random")
@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_have_exact_shares_too(rows, name):
    evidence = rows.evidence()
    policy = solve(QUOTIENTS[name], evidence, beta=50.0)
    found = explain(policy, evidence)
    assert softmax(50 * found.scores) == pytest.approx(policy.probabilities(evidence), abs=1e-7)
    assert (found.before == decide_as_model(policy.problem, evidence).argmax(axis=1)).all()
    assert set(found.before.tolist()) <= {0, 1}  # never a rejection


@pytest.mark.slow
def test_bounds_on_quotients_are_named_one_by_one_and_comparisons_together(rows):
    evidence = rows.evidence()
    bounded = explain(solve(QUOTIENTS["bounded"], evidence), evidence)
    assert set(bounded.rules) <= {"precision(1) >= 0.78", "precision(0) >= 0.7", "rejected() <= 0.4"}
    assert "precision(1) >= 0.78" in bounded.rules
    here = bounded.pulls[:, bounded.rules.index("precision(1) >= 0.78")]
    # P(right) - 0.78 of a "1": it pulls at no other decision, and changes its sign where the chance is 0.78.
    assert not here[:, [0, 2]].any()
    assert (np.sign(here[:, 1]) == np.sign(rows.P[:, 1] - 0.78)).all()
    compared = explain(solve(QUOTIENTS["compared"], evidence), evidence)
    assert "predictive_parity('known', tol=0.01)" in compared.rules


def test_a_quotient_to_minimise_beside_a_rule_on_one_is_refused_in_words(rows):
    evidence = rows.evidence()
    policy = solve(Problem(1 - f1(1), [precision(1) >= 0.9]), evidence)
    with pytest.raises(RuleError, match="cannot be separated"):
        explain(policy, evidence)


@pytest.mark.slow
def test_a_row_alone_has_the_baseline_that_it_has_among_others():
    """A rare class weighs more in a balanced error, which one row cannot tell."""
    rng = np.random.default_rng(0)
    rare = rng.beta(1, 9, 400)
    evidence = Evidence(np.column_stack([1 - rare, rare]))
    policy = solve(Problem(balanced_error(), [rejected() <= 0.1]), evidence)
    whole = explain(policy, evidence).before
    assert (whole == (rare > rare.mean())).all()  # at equal costs, p / P(1) = (1 - p) / P(0)
    alone = [int(explain(policy, evidence.rows(slice(i, i + 1))).before[0]) for i in range(400)]
    assert alone == whole.tolist()


def test_the_earlier_decision_is_the_models_where_a_rejection_costs_nothing():
    """Stated by hand: the model decides 'b', which the rules leave or refer."""
    scores = np.array([[0.2, 0.5, 0.3]] * 3 + [[0.9, 0.05, 0.05]] * 7)
    evidence = Evidence(scores, classes=["a", "b", "c"])
    found = explain(solve(Problem(error(), [rejected() <= 0.2]), evidence), evidence)
    assert [found.actions[i] for i in found.before] == ["b"] * 3 + ["a"] * 7
