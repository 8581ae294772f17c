from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas
import pytest

from bylaw import (
    BylawError,
    ConvergenceWarning,
    Evidence,
    EvidenceError,
    InfeasibleRulesError,
    OptionError,
    Problem,
    RuleError,
    Status,
    cost,
    custom,
    demographic_parity,
    equalized_odds,
    error,
    error_parity,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.errors import Remedy
from bylaw.program import Solution, _observed_rates as observed_rates, _row_rates as row_rates
from bylaw.reductions import _fitter as fitter
from bylaw.solvers import SGD3, FullBatch, Stochastic
from helpers.generated_rows import Rows

PARITY = Problem(error(), [demographic_parity("hidden", tol=0.02), rejected() <= 0.1])


def test_conflicting_rules_are_named_with_their_distance(rows):
    parity = demographic_parity("hidden", tol=0.3)  # has nothing to do with it
    problem = Problem(error(), [selected(0) <= 0.3, parity, selected(1) <= 0.5, error() <= 0.9])
    with pytest.raises(InfeasibleRulesError, match="the rules conflict") as caught:
        solve(problem, rows.evidence())
    conflict = caught.value
    assert set(conflict.violations) == {"selected(0) <= 0.3", "selected(1) <= 0.5"}
    # The two rates sum to one: where one holds, the other is off by 0.2; at best, both by 0.1.
    assert list(conflict.violations.values()) == pytest.approx([0.2, 0.2], abs=1e-6)
    assert conflict.least == pytest.approx({"selected(0) <= 0.3": 0.5, "selected(1) <= 0.5": 0.7}, abs=1e-6)
    assert conflict.least_violation == pytest.approx(0.1, abs=1e-6)
    assert sum(conflict.relaxation.values()) == pytest.approx(0.2, abs=1e-5)
    assert conflict.conflict == conflict.diagnosis.conflict == tuple(conflict.violations)
    assert "can reach 0.5 while the other listed rules are satisfied" in str(conflict)


def test_a_conflict_can_be_copied_and_sent(rows):
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(Problem(error(), [error() <= 0.01]), rows.evidence())
    caught.value.add_note("as observed")
    for twin in (copy.copy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert str(twin) == str(caught.value)
        assert twin.diagnosis == caught.value.diagnosis
        assert twin.__notes__ == ["as observed"]


@pytest.mark.parametrize("seed", range(5))
def test_bystanders_are_not_named(seed):
    """Tight parity gets multipliers on the way, but has no part in the conflict."""
    rules = [demographic_parity("hidden", tol=0), selected(0) >= 0.6, selected(1) >= 0.6]
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(Problem(error(), rules), Rows(K=3, S=3, seed=seed).evidence())
    assert set(caught.value.violations) == {"selected(0) >= 0.6", "selected(1) >= 0.6"}


@pytest.mark.parametrize("solver", ["full_batch", "linear_program"])
def test_a_single_impossible_rule(rows, solver):
    with pytest.raises(InfeasibleRulesError, match=r"error\(\) <= 0.01"):
        solve(Problem(error(), [error() <= 0.01]), rows.evidence(), solver=solver)


def test_a_rule_that_forces_almost_the_highest_cost_is_no_conflict(rows):
    policy = solve(Problem(selected(0), [selected(0) >= 0.999]), rows.evidence())
    assert policy.expected(selected(0), rows.evidence()) == pytest.approx(0.999, abs=2e-3)


def test_sets_that_cannot_cover(rows):
    problem = Problem(size(), [miscoverage() <= 0.05, size() <= 0.5])
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(problem, rows.evidence())
    assert len(caught.value.violations) == 2


@pytest.mark.parametrize("rules", [PARITY.rules, (equalized_odds("known", tol=0.05),)])
def test_solvers_agree(rules):
    rows = Rows(K=3, S=3)
    problem = Problem(error(), list(rules))
    distributions = [
        solve(problem, rows.evidence(), solver=solver, beta=100).probabilities(rows.evidence())
        for solver in ("full_batch", "linear_program", FullBatch(max_steps=500))
    ]
    np.testing.assert_allclose(distributions[0], distributions[1], atol=1e-3)
    np.testing.assert_allclose(distributions[0], distributions[2], atol=1e-12)


def test_multipliers_are_prices():
    """The derivative of the least (regularised) cost in the bound of each rule."""
    rows = Rows(K=3, S=2)
    h = 1e-4

    def least(budget, tol):
        rules = [rejected() <= budget, demographic_parity("hidden", tol=tol)]
        return solve(Problem(error(), rules), rows.evidence(), beta=50, tol=1e-9)

    prices = list(least(0.1, 0.02).prices.values())
    slopes = [
        (least(0.1 + h, 0.02).solution.value - least(0.1 - h, 0.02).solution.value) / (2 * h),
        (least(0.1, 0.02 + h).solution.value - least(0.1, 0.02 - h).solution.value) / (2 * h),
    ]
    assert min(prices) > 0.05
    np.testing.assert_allclose(prices, slopes, rtol=1e-3)


def test_auto_beta_costs_a_thousandth_of_the_spread(rows):
    evidence = rows.evidence()
    plain = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    assert plain.entropy_cost <= 1e-3
    dollars = solve(Problem(cost([[0, 1e5], [5e5, 0]])), evidence)
    assert 10 < dollars.entropy_cost < 1e3
    assert dollars.beta < plain.beta / 1e4


def test_units_of_the_cost_do_not_matter(rows):
    evidence = rows.evidence()
    rules = [demographic_parity("hidden", tol=0.02), rejected() <= 0.1]
    distribution = solve(Problem(error(), rules), evidence).probabilities(evidence)
    for unit in (1e-6, 1e6):
        scaled = solve(Problem(unit * error(), rules), evidence)
        np.testing.assert_allclose(scaled.probabilities(evidence), distribution, atol=1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3, 1e7])
def test_units_of_a_rule_do_not_matter(rows, unit):
    evidence = rows.evidence(costs={"toll": unit * np.tile([1.0, 3.0], (rows.n, 1))})
    policy = solve(Problem(error(), [unit * selected(1) <= unit * 0.1, custom("toll") <= unit * 2]), evidence)
    plain = solve(Problem(error(), [selected(1) <= 0.1]), evidence)
    np.testing.assert_allclose(policy.probabilities(evidence), plain.probabilities(evidence), atol=1e-3)
    prices = list(policy.multipliers.values())
    assert prices[0] * unit == pytest.approx(plain.multipliers["selected(1) <= 0.1"], rel=1e-3)
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(
            Problem(error(), [unit * selected(1) >= unit * 0.7, unit * selected(0) >= unit * 0.7]), evidence
        )
    assert list(caught.value.violations.values()) == pytest.approx([unit * 0.4] * 2, rel=1e-6)
    assert caught.value.least_violation == pytest.approx(unit * 0.2, rel=1e-6)


def test_a_tiny_loss_at_a_small_beta_is_no_conflict(rows):
    policy = solve(Problem(1e-8 * error(), [rejected() <= 0.1]), rows.evidence(), beta=1.0)
    assert policy.expected(rejected(), rows.evidence()) == pytest.approx(0.1, abs=1e-5)


def test_rows_of_weight_zero_do_not_count():
    P = np.random.default_rng(0).dirichlet(np.ones(3), 8000)
    mask = np.arange(8000) % 4 == 1
    problem = Problem(error(), [rejected() <= 0.1])
    masked = solve(problem, Evidence(P, weights=mask))
    alone = solve(problem, Evidence(P[mask]))
    np.testing.assert_allclose(masked.score_matrix, alone.score_matrix, atol=1e-5)


@pytest.mark.parametrize("solver", ["full_batch", "linear_program"])
@pytest.mark.parametrize("seed", range(10))
def test_certain_models_and_exact_parity(solver, seed):
    """Probabilities of zero and one and tolerances of zero: singular, but no crash."""
    rng = np.random.default_rng(seed)
    P = np.eye(3)[rng.integers(0, 3, 60)]
    evidence = Evidence(P, groups={"g": rng.integers(0, 3, 60)})
    problem = Problem(error(), [error_parity("g", tol=0), rejected() <= 0.1])
    assert solve(problem, evidence, solver=solver).expected(rejected(), evidence) <= 0.1 + 1e-6


@pytest.mark.slow
def test_many_groups_compared_in_pairs():
    rng = np.random.default_rng(0)
    evidence = Evidence(rng.dirichlet(np.ones(2), 2000), groups={"g": rng.integers(0, 30, 2000)})
    policy = solve(Problem(error(), [demographic_parity("g", tol=0.1, between="groups")]), evidence)
    assert len(policy.multipliers) == 2 * 30 * 29
    assert policy.solution.status is Status.CONVERGED


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_handful_of_rows(n):
    rows = Rows(n=n)
    policy = solve(Problem(error(), [rejected() <= 0.25]), Evidence(rows.P))
    assert policy.expected(rejected(), Evidence(rows.P)) <= 0.25 + 1e-6


@pytest.mark.filterwarnings("ignore::bylaw.ConvergenceWarning")
def test_a_huge_beta_stays_finite(rows):
    evidence = rows.evidence()
    policy = solve(PARITY, evidence, beta=1e8)
    distribution = policy.probabilities(evidence)
    assert np.isfinite(distribution).all()
    np.testing.assert_allclose(distribution.sum(axis=1), 1)
    assert np.isfinite(list(policy.multipliers.values())).all()
    assert policy.solution.status is Status.CONVERGED or policy.solution.gradient_mapping < 0.01


def test_short_of_steps_says_so_and_names_the_rule(rows):
    with pytest.warns(
        ConvergenceWarning, match=r"above tol=1e-06: the steps ran out.*violated.*; raise max_steps"
    ) as caught:
        policy = solve(PARITY, rows.evidence(), solver=FullBatch(max_steps=1))
    assert caught[0].message.remedy == Remedy("add_steps")
    assert policy.solution.status is Status.MAX_STEPS


def test_an_unreachable_tolerance_is_admitted(rows):
    with pytest.warns(ConvergenceWarning, match="raise tol") as caught:
        solve(PARITY, rows.evidence(), tol=1e-300)
    assert caught[0].message.remedy == Remedy("loosen_tolerance")


def test_rows_in_any_order_give_the_same_policy():
    """Sorted rows must not mislead the first stages, which see a sample."""
    rows = Rows(n=20_000, K=3, S=2)
    order = np.argsort(rows.P[:, 0])
    distribution, sorted_law = (
        solve(
            Problem(error(), [demographic_parity("g", tol=0.01)]),
            Evidence(rows.P[index], groups={"g": dict(enumerate(rows.T[index].T))}),
        ).probabilities(Evidence(rows.P, groups={"g": dict(enumerate(rows.T.T))}))
        for index in (np.arange(20_000), order)
    )
    np.testing.assert_allclose(distribution, sorted_law, atol=1e-3)


@pytest.mark.slow
def test_rng_shuffles_blocks_and_the_answer_stays():
    rows = Rows(n=20_000, K=2, S=2)
    evidence = rows.evidence()
    runs = [solve(PARITY, evidence, rng=seed) for seed in (1, 1, 2)]
    assert (runs[0].score_matrix == runs[1].score_matrix).all()
    assert [step.value for step in runs[0].solution.trace] != [step.value for step in runs[2].solution.trace]
    np.testing.assert_allclose(runs[0].probabilities(evidence), runs[2].probabilities(evidence), atol=1e-3)


def test_the_callback_sees_every_step(rows):
    steps = []
    policy = solve(PARITY, rows.evidence(), callback=steps.append)
    assert tuple(steps) == policy.solution.trace
    assert len(steps) == policy.solution.steps > 0
    assert steps[-1].gradient_mapping == policy.solution.gradient_mapping <= 1e-6


def test_weights_count_as_repeated_rows():
    rows = Rows(n=100, K=3)
    w = np.random.default_rng(0).integers(0, 4, 100)
    repeated = np.repeat(np.arange(100), w)
    rule = [demographic_parity("g", tol=0.02), rejected() <= 0.1]
    weighted = solve(
        Problem(error(), rule), Evidence(rows.P, groups={"g": dict(enumerate(rows.T.T))}, weights=w), beta=100
    )
    copied = solve(
        Problem(error(), rule),
        Evidence(rows.P[repeated], groups={"g": dict(enumerate(rows.T[repeated].T))}),
        beta=100,
    )
    np.testing.assert_allclose(weighted.score_matrix, copied.score_matrix, atol=1e-4)


def test_rows_come_as_evidence(rows):
    with pytest.raises(EvidenceError, match=r"Evidence\(probabilities, ...\), got ndarray"):
        solve(PARITY, rows.P)
    with pytest.raises(BylawError, match="problem must be a Problem, got Evidence"):
        solve(rows.evidence(), PARITY)
    policy = solve(PARITY, rows.evidence())
    with pytest.raises(EvidenceError, match="got ndarray"):
        policy.decide(rows.P, rng=0)
    with pytest.raises(RuleError, match=r"must be a rate such as error\(\), got rejected\(\) <= 0.1"):
        policy.expected(rejected() <= 0.1, rows.evidence())


@pytest.mark.parametrize("K", [30, 150])
def test_many_classes_cost_little(K):
    """The curvature is only wanted where rules are: not (features x actions) squared."""
    P = np.random.default_rng(0).dirichlet(np.full(K, 0.1), 500)
    policy = solve(Problem(error(), [rejected() <= 0.1]), Evidence(P))
    assert policy.expected(rejected(), Evidence(P)) == pytest.approx(0.1, abs=1e-6)
    assert policy.solution.status is Status.CONVERGED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beta": 0}, "beta must be a positive number"),
        ({"beta": -3}, "beta must be a positive number"),
        ({"beta": "hot"}, "a positive number, 'auto' or 'paper'"),
        ({"beta": float("inf")}, "beta must be a positive number"),
        ({"beta": None}, "beta must be a positive number"),
        ({"tol": 0}, "tol must be a positive number"),
        ({"tol": float("nan")}, "tol must be a positive number"),
        ({"solver": "magic"}, r"solver must be one of \['auto', 'full_batch'.*got 'magic'"),
    ],
)
def test_bad_settings_are_refused(rows, arguments, message):
    with pytest.raises((BylawError, RuleError), match=message):
        solve(PARITY, rows.evidence(), **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 7}, "confidence must be a number between 0 and 1"),
        ({"confidence": "high"}, "confidence must be a number between 0 and 1"),
        ({"margin": -1}, "margin must be a number of standard errors"),
        ({"tol": 0}, "tol must be a positive number"),
        ({"guarantee": "sure"}, "guarantee must be None or 'high_probability'"),
        ({"beta": "large"}, "beta must be a positive number, 'auto' or 'paper'"),
    ],
)
def test_options_are_checked_whether_or_not_they_are_used(options, message):
    with pytest.raises(OptionError, match=message):
        solve(Problem(error(), [rejected() <= 0.1]), Rows().evidence(), **options)


@pytest.mark.parametrize("options", [{}, {"margin": 1.0}, {"labels": True, "margin": 1.0}])
def test_few_problems_are_compiled(options, monkeypatch):
    """What is compiled once serves all refits."""
    rows = Rows(n=2000, K=2, S=2)
    compiled = []
    for module in (fitter, observed_rates, row_rates):
        monkeypatch.setattr(module, "compile_problem", count_calls(module.compile_problem, compiled))
    if "labels" in options:
        options = {**options, "labels": rows.P.argmax(axis=1)}
    solve(
        Problem(error(), [demographic_parity("known", tol=0.02), rejected() <= 0.1]),
        rows.evidence(),
        **options,
    )
    assert len(compiled) <= 2  # as predicted and as observed


def count_calls(function, calls):
    def counted(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    return counted


def test_labels_and_groups_of_rows_in_another_order_are_noticed():
    rng = np.random.default_rng(0)
    scores = rng.uniform(size=400)
    index = rng.permutation(400)
    frame = pandas.DataFrame({0: 1 - scores, 1: scores}, index=index)
    labels = pandas.Series((rng.uniform(size=400) < scores).astype(int), index=index)
    problem = Problem(error(), [rejected() <= 0.1])
    solve(problem, Evidence(frame), labels=labels)
    for other in (labels.sort_index(), labels.reset_index(drop=True), labels.set_axis(index + 1)):
        for stated in (problem, Problem(error())):
            with pytest.raises(EvidenceError, match="labels and probabilities have different indexes"):
                solve(stated, Evidence(frame), labels=other)
        with pytest.raises(EvidenceError, match=r"groups\['sex'\] and probabilities have different"):
            solve(problem, Evidence(frame), groups={"sex": other})
        with pytest.raises(EvidenceError, match="propensity_weights and labels have different"):
            solve(problem, Evidence(frame.to_numpy()), labels=labels, propensity_weights=other)
        with pytest.raises(EvidenceError, match="labels and probabilities have different indexes"):
            Evidence(frame, labels=other)


LETTERS = Evidence(np.random.default_rng(3).dirichlet(np.full(26, 0.1), size=4000))
SETS = Problem(miscoverage(), [size() <= 1.5])


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["sgd3", "acsa", Stochastic(SGD3(), passes=0.5)])
def test_a_stochastic_solver_that_misses_a_rule_states_by_how_much(solver):
    with pytest.warns(ConvergenceWarning, match=r"'size\(\) <= 1.5' is violated most, by") as caught:
        policy = solve(SETS, LETTERS, solver=solver)
    missed = policy.expected(size(), LETTERS) - 1.5
    assert missed > 0.2
    assert f"by {missed:.3g} (standard error" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert caught[0].message.remedy == Remedy("choose_solver", "full_batch")


def test_anyones_optimiser_or_solver_is_checked_too():
    """Also one that claims to have converged; in the rule's own unit, here millions."""

    class Claims:
        def auto_beta(self, dual):
            return 100.0

        def __call__(self, dual, *, tol, start=None, rng=None, callback=None):
            return Solution(np.zeros(dual.n_rules), Status.CONVERGED, 0.0, 0.0, 1)

    rows = Rows(n=1000, K=2)
    costs = 1e6 * np.array([[1.0, 3.0]]) * np.ones((1000, 1))
    evidence = Evidence(rows.P, costs={"toll": costs})
    problem = Problem(error(), [custom("toll") <= 1.5e6])
    for solver in (Claims(), lambda oracle, **_: np.zeros(1)):
        with pytest.warns(ConvergenceWarning, match="is violated most, by") as caught:
            policy = solve(problem, evidence, solver=solver, beta=100.0)
        missed = policy.expected(custom("toll"), evidence) - 1.5e6
        assert missed > 1e5
        assert f"by {missed:.3g}" in str(caught[0].message)
    with pytest.warns(ConvergenceWarning, match="according to the solver"):
        solve(problem, evidence, solver=Claims())


def test_what_sampling_leaves_open_is_no_miss():
    rows = Rows(n=4000, K=2)
    evidence = Evidence(rows.P)
    problem = Problem(error(), [rejected() <= 0.1])
    at = solve(problem, evidence, beta=100.0).multipliers["rejected() <= 0.1"]
    deviation = np.sqrt(0.1 * 0.9 / 4000)

    def miss_by(errors):
        """An optimizer whose rejections exceed their budget by this many standard errors."""
        looser = Problem(error(), [rejected() <= 0.1 + errors * deviation])
        return solve(looser, evidence, beta=100.0).solution.multipliers

    assert miss_by(2) < at
    solve(problem, evidence, solver=lambda oracle, **_: miss_by(2), beta=100.0)
    with pytest.warns(ConvergenceWarning, match=r"by 0\.0\d+ \(standard error 0\.0044\)"):
        solve(problem, evidence, solver=lambda oracle, **_: miss_by(4), beta=100.0)


def test_several_missed_rules_are_counted():
    evidence = Rows(n=3000, K=3).evidence()
    rules = [rejected() <= 0.05, selected(0) <= 0.05, selected(2) <= 0.05]
    with pytest.warns(
        ConvergenceWarning, match=r"'selected\(0\) <= 0.05' is violated most.*; 2 rules are violated"
    ):
        solve(
            Problem(error(), rules),
            evidence,
            solver=lambda oracle, **_: np.array([1.0, 0.0, 0.0]),
            beta=50,
        )


def test_a_confidence_without_a_guarantee_is_refused():
    with pytest.raises(OptionError, match=r"confidence=0.9 has no effect without a guarantee; pass"):
        solve(Problem(error(), [rejected() <= 0.1]), Evidence([[0.7, 0.3], [0.2, 0.8]]), confidence=0.9)
