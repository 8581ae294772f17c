"""Decisions without chance: rules on hard decisions, beside every 0-1 assignment of few rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import LinearConstraint, milp
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    GuaranteeWarning,
    OptionError,
    Policy,
    Problem,
    audit,
    coverage_parity,
    custom,
    demographic_parity,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
    worst,
)
from bylaw.program import Dual, Status, compile_problem, make_blocks
from bylaw.reductions._deterministic import CONSTANT, TIE, Hardening, PriceSearch, predict_excess
from bylaw.rows import observe
from helpers.generated_rows import Rows
from helpers.reference import error_loss, one_hot, parity, rejection

PARITY = Problem(error(), [rejected() <= 0.1, demographic_parity("known", tol=0.03)])


def excesses(policy, rows, problem):
    """Of every rule on hard decisions, in its own unit."""
    chances = policy.probabilities(getattr(rows, "predicted", rows))
    assert np.isin(chances, (0.0, 1.0)).all()
    rules = problem.expand(rows.classes, rows.group_values)
    return np.array([policy.expected(one.rule.excess, rows, probabilities=chances) for one in rules])


def test_an_answer_by_hand():
    """Two of ten rows may be rejected: the two hardest are, and the others get their likelier label."""
    yes = np.array([0.05, 0.12, 0.22, 0.31, 0.41, 0.58, 0.66, 0.77, 0.88, 0.97])
    evidence = Evidence(np.column_stack([1 - yes, yes]))
    policy = solve(Problem(error(), [rejected() <= 0.2]), evidence, deterministic=True)
    assert policy.decide(evidence).tolist() == [0, 0, 0, 0, "reject", "reject", 1, 1, 1, 1]
    assert policy.deterministic
    assert policy.hard.cost == pytest.approx(np.minimum(yes, 1 - yes)[[0, 1, 2, 3, 6, 7, 8, 9]].sum() / 10)
    # With a budget of 0.25, half a row more is rejected by lot (0.34 or 0.31); without chance, no more.
    looser = solve(Problem(error(), [rejected() <= 0.25]), evidence, deterministic=True)
    assert looser.expected(rejected(), evidence) == pytest.approx(0.2)
    assert looser.hard.price == pytest.approx(0.34 * 0.05, abs=1e-3)
    assert 0.34 * 0.05 <= looser.guarantee.excess_cost <= 0.34 * 0.05 + 0.01  # beyond the best by lot
    assert "deterministic decisions" in repr(looser)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [300, 3000])
def test_rules_hold_on_hard_decisions(n, seed):
    evidence = Rows(n=n, K=3, S=3, seed=seed).evidence()
    policy = solve(PARITY, evidence, deterministic=True)
    assert excesses(policy, evidence, PARITY).max() <= 1e-6
    assert -1e-3 <= policy.hard.price <= 12 / n  # a few rows
    assert policy.expected(error(), evidence) == pytest.approx(policy.hard.cost, abs=1e-7)


@pytest.mark.slow
def test_rules_hold_as_observed_with_a_margin_and_for_sets():
    rows = Rows(n=3000, K=3, S=2, seed=0)
    labels = (rows.P.cumsum(axis=1) < np.random.default_rng(1).random((3000, 1))).sum(axis=1)
    evidence = rows.evidence()
    sets = Problem(size(), [miscoverage() <= 0.1, coverage_parity("known", tol=0.02)])
    for problem in (PARITY, sets):
        for options in ({"labels": labels}, {"labels": labels, "margin": 1.0}):
            policy = solve(problem, evidence, deterministic=True, **options)
            assert excesses(policy, observe(evidence.with_observed(labels=labels)), problem).max() <= 1e-6
            assert max(policy.observed.values()) <= 1e-6


@pytest.mark.slow
def test_a_certificate_is_about_hard_decisions():
    problem = Problem(error(), [rejected() <= 0.2])
    new = Evidence(np.random.default_rng(5).dirichlet([1, 1], 4000))
    policy = solve(
        problem,
        Evidence(np.random.default_rng(6).dirichlet([1, 1], 4000)),
        deterministic=True,
        guarantee="high_probability",
        held_out=new,
    )
    assert policy.certificate is not None
    assert policy.deterministic
    assert policy.expected(rejected(), new) <= 0.2
    found = audit(policy, Evidence(np.random.default_rng(7).dirichlet([1, 1], 4000)))
    assert found.random == 0.0


def test_rows_with_the_same_scores_are_named():
    """200 rows have the same score, and a band of two points: 40 % are selected, or none."""
    yes = np.concatenate([np.full(200, 0.4), np.linspace(0.01, 0.2, 300)])
    evidence = Evidence(np.column_stack([1 - yes, yes]))
    problem = Problem(error(), [selected(1) >= 0.1, selected(1) <= 0.12])
    with pytest.warns(GuaranteeWarning, match=r"selected\(1\) .* is violated by .*200 rows") as told:
        policy = solve(problem, evidence, deterministic=True)
    text = str(told[0].message)
    assert "[0.6, 0.4]" in text
    assert "finer score" in text
    assert "deterministic=False" in text
    share = policy.expected(selected(1), evidence)
    assert min(abs(share - level) for level in (0.0, 0.4)) < 1e-9
    solve(problem, evidence)  # by lot, it holds


def test_a_rule_that_is_missed_by_less_than_a_row_is_named():
    """Of twelve rows, none or a twelfth more: between 0.28 and 0.3 there is nothing."""
    evidence = Rows(n=12, K=2, S=2, seed=0).evidence()
    with pytest.warns(GuaranteeWarning, match=r"violated by 0.03\d*, which is less than one row .*\(0.083\)"):
        policy = solve(
            Problem(error(), [selected(1) <= 0.3, selected(1) >= 0.28]), evidence, deterministic=True
        )
    assert policy.solution.status is Status.MISSED


def test_odds_that_take_randomized_decisions_are_named():
    rng = np.random.default_rng(0)
    group, sharp = rng.integers(0, 2, 2000), rng.normal(size=2000)
    yes = 1 / (1 + np.exp(-sharp * np.where(group, 4.0, 0.5)))
    evidence = Evidence(np.column_stack([1 - yes, yes]), groups={"g": group})
    with pytest.warns(GuaranteeWarning, match=r"as deterministic decisions, .*given\(g=.*rows at random"):
        solve(Problem(error(), [equalized_odds("g", tol=0.01)]), evidence, deterministic=True)


@pytest.mark.parametrize("seed", range(12))
def test_no_assignment_of_few_rows_is_much_better(seed):
    """Of all 0-1 assignments that satisfy the rules, the best is at most a few rows cheaper."""
    rows, n = Rows(n=12, K=2, S=2, seed=seed), 12
    problem = Problem(error(), [rejected() <= 0.3, demographic_parity("known", tol=0.4)])
    evidence = rows.evidence()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        policy = solve(problem, evidence, deterministic=True)
    loss = error_loss(rows.P, 3)
    T = one_hot(rows.group, 2)
    rules = [(rejection(rows.P), 0.3), *parity(T, 2, 0.4, 3)]
    limits = [
        LinearConstraint(np.array([cost.ravel() / n for cost, _ in rules]), -np.inf, [b for _, b in rules]),
        LinearConstraint(sparse.csr_array(sparse.kron(sparse.eye(n), np.ones((1, 3)))), 1, 1),
    ]
    best = milp(loss.ravel() / n, constraints=limits, integrality=np.ones(3 * n), bounds=(0, 1))
    held = excesses(policy, evidence, problem)
    one_row = np.array([1 / 12, *[1 / rows_of for rows_of in T.sum(axis=0) for _ in range(2)] * 2])
    assert (held <= one_row + 1e-6).all()
    assert policy.expected(error(), evidence) <= best.fun + 3 / n
    if held.max() <= 1e-6:
        assert policy.expected(error(), evidence) >= best.fun - 1e-9


def test_a_price_is_raised_until_its_rule_holds_and_no_further():
    evidence = Rows(n=400, K=2, S=2, seed=4).evidence()
    form = compile_problem(Problem(error(), [selected(1) <= 0.2]), evidence, features=(CONSTANT,))
    hardening = Hardening(Dual(form, make_blocks(form, evidence), 1000.0), predict_excess, 1e-6)
    without = hardening.tally(hardening.hard, np.zeros(1))
    assert without.excess[0] > 0.1
    raised = hardening._raise_prices(without)
    assert -1 / 400 - 1e-9 <= raised.excess[0] <= 1e-6


def test_ties_between_actions_go_to_the_first():
    evidence = Evidence([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8], [0.9, 0.1]])
    policy = solve(Problem(error(), [selected(0) <= 0.9]), evidence, deterministic=True)
    assert policy.decide(evidence).tolist() == [0, 0, 1, 0]
    assert 1e12 * TIE > 100  # what breaks a tie is beyond what a softmax spreads


def round_scores(n, decimals, seed):
    """Two groups, as large as each other, with scores of so many decimals; and one row for each of these."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 2
    yes = np.round(1 / (1 + np.exp(-rng.normal(size=n) * 1.2 - np.where(group, -0.5, 0.5))), decimals)
    cells, counts = np.unique(np.column_stack([yes, group]), axis=0, return_counts=True)
    merged = Evidence(
        np.column_stack([1 - cells[:, 0], cells[:, 0]]), groups={"g": cells[:, 1]}, weights=counts
    )
    return Evidence(np.column_stack([1 - yes, yes]), groups={"g": group.astype(float)}), merged


def find_best_assignment(cells, tol, budget):
    """The least error of all that decide rows of the same scores alike, with parity and rejections."""
    share, (no, yes) = cells.row_weights / cells.row_weights.sum(), cells.probabilities.T
    group, n = cells.known_groups["g"].codes, len(cells)
    loss = np.stack([yes, no, np.zeros(n)], axis=1) * share[:, None]
    limits = [(np.outer(share, [0, 0, 1]).ravel(), -np.inf, budget + 1e-6)]
    for one in (0, 1):
        part = share * (group == one) / share[group == one].sum() - share
        limits += [(np.outer(part, np.eye(3)[a]).ravel(), -tol - 1e-6, tol + 1e-6) for a in (0, 1)]
    rules = LinearConstraint(*(np.array(column) for column in zip(*limits, strict=True)))
    once = LinearConstraint(sparse.csr_array(sparse.kron(sparse.eye(n), np.ones((1, 3)))), 1, 1)
    return milp(loss.ravel(), constraints=[rules, once], integrality=np.ones(3 * n), bounds=(0, 1)).fun


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_of_rows_with_the_same_scores_a_looser_rule_is_no_dearer(seed):
    evidence, cells = round_scores(600, 1, seed)
    cheapest, gaps = np.inf, []
    for tol in (0.04, 0.1, 0.13, 0.16, 0.2):
        problem = Problem(error(), [demographic_parity("g", tol=tol), rejected() <= 0.1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GuaranteeWarning)
            policy = solve(problem, evidence, deterministic=True)
        if excesses(policy, evidence, problem).max() <= 2e-6:
            assert policy.hard.cost <= cheapest + 1e-6
            cheapest = policy.hard.cost
            gaps.append(cheapest - find_best_assignment(cells, tol, 0.1))
    assert len(gaps) >= 3
    assert -1e-6 <= min(gaps)
    assert np.mean(gaps) <= 0.02  # some assignments have no prices


def test_scores_that_differ_need_no_further_search(monkeypatch):
    def refuse(*_):
        raise AssertionError("a search")

    monkeypatch.setattr(PriceSearch, "run", refuse)
    for seed in range(4):
        solve(PARITY, Rows(n=1000, K=3, S=3, seed=seed).evidence(), deterministic=True)
    problem, tied = (
        Problem(error(), [demographic_parity("g", tol=0.16), rejected() <= 0.1]),
        round_scores(600, 1, 1),
    )
    with pytest.raises(AssertionError, match="a search"):
        solve(problem, tied[0], deterministic=True)


def test_it_is_remembered_and_needs_no_ids(tmp_path):
    evidence = Rows(n=500, K=3, S=2, seed=3).evidence()
    policy = solve(PARITY, evidence, deterministic=True)
    policy.save(tmp_path / "hard.json")
    again = Policy.load(tmp_path / "hard.json")
    assert again.hard == pytest.approx(policy.hard, rel=0.05)  # two digits of it
    assert again.deterministic
    decided = policy.decide(evidence)
    assert (again.decide(evidence, ids=range(500)) == decided).all()
    assert (again.decide(evidence, rng=0) == decided).all()
    assert (again.decide(evidence, method="argmax") == decided).all()
    soft = solve(PARITY, evidence)
    soft.save(tmp_path / "soft.json")
    assert '"hard"' not in (tmp_path / "soft.json").read_text()


def test_the_worst_group_without_chance():
    evidence = Rows(n=2000, K=2, S=3, seed=1).evidence()
    problem = Problem(worst(error(), by="known"), [rejected() <= 0.1])
    hard, soft = (solve(problem, evidence, deterministic=deterministic) for deterministic in (True, False))
    assert excesses(hard, evidence, problem).max() <= 1e-6
    assert hard.expected(problem.minimize, evidence) <= soft.expected(problem.minimize, evidence) + 0.01


def test_what_is_no_choice_is_refused():
    evidence = Rows(n=50, K=2, S=2).evidence()
    with pytest.raises(OptionError, match="deterministic must be True or False"):
        solve(PARITY, evidence, deterministic="no")


def test_a_classifier_predicts_what_the_policy_decides():
    X, y = make_classification(600, random_state=0)
    clf = ConstrainedClassifier(
        LogisticRegression(), [rejected() <= 0.1], deterministic=True, margin=0, random_state=0
    )
    clf.fit(X, y)
    assert clf.policy_.deterministic
    assert (clf.predict(X) == clf.predict(X, ids=range(600))).all()
    chances = clf.predict_proba(X)
    assert np.isin(chances, (0.0, 1.0)).all()
    assert (clf.predict(X) == clf.actions_[chances.argmax(axis=1)]).all()
    with pytest.raises(OptionError, match="method"):
        ConstrainedClassifier(LogisticRegression(), deterministic=True, method="argmax").fit(X, y)


@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_the_unit_of_a_cost_does_not_matter(unit):
    """A budget in dollars or in cents: all but what one row costs is spent."""
    rng = np.random.default_rng(0)
    wrong, price = rng.uniform(size=(1000, 1)) * [0.9, 0.3], rng.uniform(1, 20, (1000, 1)) * [0.05, 1.0]
    rows = Evidence(costs={"wrong": wrong, "price": unit * price}, options=["small", "large"])
    policy = solve(Problem(custom("wrong"), [custom("price") <= 4 * unit]), rows, deterministic=True)
    spent = policy.expected(custom("price"), rows) / unit
    assert 4 - 3 * 20 / 1000 <= spent <= 4 + 1e-5
