"""The paper's algorithm, pinned: by hand, by finite differences, and by known answers."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from bylaw import (
    BylawError,
    Evidence,
    InfeasibleRulesError,
    OptionError,
    Problem,
    Status,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    omits,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.errors import Remedy
from bylaw.program import Block, Dual, compile_problem, make_blocks
from bylaw.solvers import ACSA, SGD, SGD3, Oracle, SampledRows as Steps, Stochastic, StochasticNewton
from bylaw.solvers._stochastic import AcceleratedState, Plan, load_kernels
from helpers.generated_rows import Rows

STOCHASTIC = {"stochastic": StochasticNewton(), "sgd3": SGD3(), "acsa": ACSA(), "sgd": SGD()}
# Where the steps are judged, not how near they come.
MAY_MISS = pytest.mark.filterwarnings("ignore::bylaw.errors.ConvergenceWarning")


def steps_of(problem, evidence, beta=10.0):
    """A dual and all its rows, in order, for the compiled loops."""
    form = compile_problem(problem, evidence)
    dual = Dual(form, make_blocks(form, evidence), beta)
    (block,) = dual.blocks
    weights = block.row_weights * (len(block.row_weights) / dual.mass)
    return dual, Steps.from_dual(dual, block.features.T.copy(), weights)


def constant_slope(n):
    """One rule that every action breaks by 1: the gradient is -1 everywhere."""
    evidence = Evidence(np.full((n, 2), 0.5), costs={"toll": np.full((n, 2), 3.0)})
    return steps_of(Problem(error(), [custom("toll") <= 2]), evidence)


def test_three_steps_of_acsa_by_hand():
    """mu = 1, smoothness 3, one centre at 0, gradient -1 + lambda^md.

    t=1: alpha 1, gamma 6: lambda^md 0, lambda 1/7, average 1/7.
    t=2: alpha 2/3, gamma 2: lambda^md 9/23 1/7 + 14/23 1/7 = 1/7, lambda 1/7 + 4/21 = 1/3, average 17/63.
    t=3: alpha 1/2, gamma 1: lambda^md 4/7 17/63 + 3/7 1/3 = 131/441, lambda 1/2, average 97/252.
    """
    _, rows = constant_slope(3)
    walk = AcceleratedState.begin(Plan((1.0,), 3, 3.0), np.zeros(1))
    expected = [(1 / 7, 1 / 7), (1 / 3, 17 / 63), (1 / 2, 97 / 252)]
    for t, (point, average) in enumerate(expected):
        walk.advance(rows._replace(features=rows.features[[t]], weights=rows.weights[[t]]))
        assert walk.point[0] == pytest.approx(point, rel=1e-14)
        assert walk.average[0] == pytest.approx(average, rel=1e-14)


def test_three_steps_of_sgd_by_hand():
    """Steps 2/sqrt(t) against a slope of -1: 2, 2 + sqrt 2, 2 + sqrt 2 + 2/sqrt 3, and their mean."""
    _, rows = constant_slope(3)
    descent = SGD(size=2.0).begin(1.0, 1.0, 3, np.zeros(1))
    descent.advance(rows)
    points = np.cumsum([2, 2 / math.sqrt(2), 2 / math.sqrt(3)])
    assert descent.point[0] == pytest.approx(points[-1])
    assert descent.answer[0] == pytest.approx(points.mean())


def test_multipliers_never_turn_negative():
    evidence = Evidence(np.full((5, 2), 0.5), costs={"toll": np.zeros((5, 2))})
    _, rows = steps_of(Problem(error(), [custom("toll") <= 2]), evidence)
    for optimizer in (ACSA(mu=1.0), SGD(size=1.0)):
        walk = optimizer.begin(1.0, 1.0, 5, np.zeros(1))
        walk.advance(rows)
        assert walk.point.tolist() == walk.answer.tolist() == [0.0]


def test_stages_of_sgd3():
    plan = SGD3().plan(sigma2=1.0, smoothness=16.0, steps=1003)
    # beta = L / (2 sigma^2) = 8, mu = 2 sigma^2 / beta = 1/4, L / mu = 64: six stages
    assert plan.mus == (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    assert plan.length == 1003 // 6
    assert plan.smoothness == 2 * (16 + 0.25)


def test_sgd3_is_acsa_again_and_again_with_every_centre():
    """Against AC-SA run by hand on the regularised functions, one stage at a time."""
    rows_ = Rows(n=90, K=3)
    problem = Problem(error(), [demographic_parity("hidden", tol=0.01), rejected() <= 0.1])
    dual, rows = steps_of(problem, rows_.evidence())
    plan = Plan((0.5, 1.0, 2.0), 30, 7.0)
    walk = AcceleratedState.begin(plan, np.zeros(dual.n_rules))
    walk.advance(rows)
    centre, centres = np.zeros(dual.n_rules), []
    for j, mu in enumerate(plan.mus):
        centres.append((mu, centre))
        point, average = centre, centre
        for t in range(1, 31):
            row = Block(rows.features[j * 30 + t - 1][:, None], None)
            alpha, gamma = 2 / (t + 1), 4 * 7.0 / (t * (t + 1))
            share = gamma + (1 - alpha**2) * mu
            middle = (1 - alpha) * (mu + gamma) / share * average
            middle = middle + alpha * ((1 - alpha) * mu + gamma) / share * point
            slope = dual.stochastic_gradient(middle, row) + sum(m * (middle - c) for m, c in centres)
            kept = ((1 - alpha) * mu + gamma) / (mu + gamma) * point + alpha * mu / (mu + gamma) * middle
            point = np.maximum(kept - alpha / (mu + gamma) * slope, 0)
            average = alpha * point + (1 - alpha) * average
        centre = average
    np.testing.assert_allclose(walk.answer, centre, atol=1e-12)
    np.testing.assert_allclose(walk.centers, [c for _, c in centres], atol=1e-12)
    assert len({tuple(c) for c in walk.centers}) == 3  # no centre was changed in place


KINDS = {
    "reject": Problem(error(), [rejected() <= 0.1]),
    "churn": Problem(error(), [disagreement("old") <= 0.1]),
    "parity": Problem(error(), [demographic_parity("known", tol=0.02)]),
    "odds": Problem(error(), [equalized_odds("hidden", tol=0.02)]),
    "sets": Problem(miscoverage(), [size() <= 1.2, omits("old") <= 0.3]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [0.7, 13.0])
def test_the_compiled_gradient_is_the_derivative_on_its_row(kind, beta):
    """Rejection keeps its beta, churn its own column of the softmax: by finite differences of F."""
    rows_ = Rows(n=6, K=3)
    dual, rows = steps_of(KINDS[kind], rows_.evidence(), beta)
    point = np.random.default_rng(0).exponential(0.3, dual.n_rules)
    for i in range(6):
        out = np.empty(dual.n_rules)
        distribution, scores = np.empty(dual.form.base.shape[1]), np.empty(dual.form.base.size)
        load_kernels().row_gradient(point, rows.features[i], 1.0, rows.problem, distribution, scores, out)
        (block,) = dual.blocks
        alone = Dual(dual.form, [Block(block.features[:, [i]], None)], beta)
        for j in range(dual.n_rules):
            h = np.eye(dual.n_rules)[j] * 1e-6
            value = [alone.value_and_gradient(point + s * h)[0] for s in (1, -1)]
            assert out[j] == pytest.approx((value[0] - value[1]) / 2e-6, abs=1e-6)


def test_groups_keep_their_own_frequencies():
    """The rare group first: frequencies are looked up by group, not by size."""
    group = np.array(["rare"] * 10 + ["usual"] * 90)
    P = np.random.default_rng(0).dirichlet([1, 1], 100)
    problem = Problem(error(), [demographic_parity("g", tol=0.0)])
    _, rows = steps_of(problem, Evidence(P, groups={"g": group}))
    data = np.abs(rows.problem[3])
    assert sorted(set(np.round(data, 9))) == pytest.approx([1.0, 100 / 90, 10.0])


@MAY_MISS
@pytest.mark.parametrize("optimizer", [SGD3(mu=1e-3), ACSA(mu=1e-3), SGD(), StochasticNewton()])
def test_one_repeated_row_reaches_the_known_answer(optimizer):
    """Deterministic gradients: with p = (0.7, 0.3) on every row and P(reject) <= 0.2, the
    multiplier solves softmax(beta (-0.3, -0.7, -lambda))_reject = 0.2."""
    beta = 10.0
    a, b = math.exp(-0.3 * beta), math.exp(-0.7 * beta)
    known = -math.log(0.2 / 0.8 * (a + b)) / beta
    evidence = Evidence(np.tile([0.7, 0.3], (100, 1)))
    policy = solve(
        Problem(error(), [rejected() <= 0.2]), evidence, solver=Stochastic(optimizer, passes=2000), beta=beta
    )
    assert policy.multipliers["rejected() <= 0.2"] == pytest.approx(known, abs=2e-3)


@MAY_MISS
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", STOCHASTIC)
def test_optimisers_agree_within_their_guarantees(optimizer):
    rows = Rows(n=20_000, K=2)
    evidence = rows.evidence()
    problem = Problem(error(), [demographic_parity("hidden", tol=0.02), rejected() <= 0.1])
    exact = solve(problem, evidence, beta=50)
    sampled = solve(problem, evidence, beta=50, solver=Stochastic(STOCHASTIC[optimizer], passes=10))
    assert sampled.solution.status is Status.SAMPLED
    excess = sampled.expected(error(), evidence) - exact.expected(error(), evidence)
    assert excess <= sampled.guarantee.excess_cost
    violations = [
        max(sampled.expected(found.rule.excess, evidence), 0)
        for found in problem.expand(evidence.classes, evidence.group_values)
    ]
    assert np.linalg.norm(violations) <= sampled.guarantee.violation + 1e-9
    assert sampled.guarantee.violation < 0.05


def test_more_passes_come_closer():
    evidence = Rows(n=2000, K=2).evidence()
    problem = Problem(error(), [demographic_parity("hidden", tol=0.02)])
    norms = [
        solve(problem, evidence, beta=10, solver=Stochastic(SGD3(mu=0.01), passes=passes)).guarantee.violation
        for passes in (2, 200)
    ]
    assert norms[1] < norms[0] / 3


@MAY_MISS
@pytest.mark.parametrize("solver", STOCHASTIC)
def test_the_seed_decides_and_nothing_else(solver):
    evidence = Rows(n=2000).evidence()
    problem = Problem(error(), [demographic_parity("hidden", tol=0.02)])
    runs = [solve(problem, evidence, solver=solver, rng=seed) for seed in (1, 1, 2, None, 0)]
    assert (runs[0].score_matrix == runs[1].score_matrix).all()
    assert (runs[0].score_matrix != runs[2].score_matrix).any()
    assert (runs[3].score_matrix == runs[4].score_matrix).all()


def test_weights_count():
    """Rows of weight zero leave no trace, and weights act as frequencies of sampling."""
    rows = Rows(n=4000, K=2)
    w = np.where(rows.P.max(axis=1) > 0.8, 5.0, 0.2)
    problem = Problem(error(), [rejected() <= 0.2])
    evidence = Evidence(rows.P, weights=w)
    weighted = solve(problem, evidence, solver=Stochastic(SGD3(mu=1e-3), passes=50), beta=30)
    exact = solve(problem, evidence, beta=30)
    unweighted = solve(problem, Evidence(rows.P), beta=30)
    name = "rejected() <= 0.2"
    distance = abs(weighted.multipliers[name] - exact.multipliers[name])
    assert distance < abs(unweighted.multipliers[name] - exact.multipliers[name]) / 4


@MAY_MISS
def test_defaults_of_the_paper():
    evidence = Rows(n=1000).evidence()
    problem = Problem(error(), [rejected() <= 0.1])
    policy = solve(problem, evidence, solver="sgd3")
    assert policy.beta == pytest.approx(1000 / (8 * math.log2(1000)))
    assert policy.guarantee.smoothness == pytest.approx(2 * policy.beta * policy.guarantee.sigma**2)
    papers = solve(problem, evidence, solver=Stochastic(passes=4), beta="paper")
    assert papers.beta == pytest.approx(0.5 * math.sqrt(1000) * math.log(math.sqrt(1000)))


def test_too_few_steps_say_what_to_do():
    evidence = Rows(n=1000).evidence()
    problem = Problem(error(), [rejected() <= 0.1])
    with pytest.raises(
        BylawError, match=r"must be more than \d+ for sgd3 at beta = 54.6.*3 times as many rows"
    ):
        solve(problem, evidence, solver="sgd3", beta="paper")
    with pytest.raises(BylawError, match="raise beta") as low_beta:
        solve(problem, evidence, solver="sgd3", beta=0.5)
    with pytest.raises(BylawError, match="2 rows, got 1; otherwise use solver='full_batch'") as short:
        solve(problem, Evidence([[0.3, 0.7]]), solver="sgd3")
    assert low_beta.value.remedy == short.value.remedy == Remedy("choose_solver", "full_batch")
    with pytest.raises(BylawError, match="must allow at least one step"):
        solve(problem, evidence, solver=Stochastic(passes=1e-9))


def test_anyones_optimiser_plugs_in():
    def plain(oracle, *, sigma2, smoothness, steps, start):
        point = start
        for t in range(1, 301):
            point = np.maximum(point - oracle.gradient(point, rows=50) / (10 * math.sqrt(t)), 0)
        return point

    evidence = Rows(n=3000).evidence()
    problem = Problem(error(), [rejected() <= 0.1])
    policy = solve(problem, evidence, solver=Stochastic(plain, passes=5), beta=30)
    assert policy.expected(rejected(), evidence) == pytest.approx(0.1, abs=0.02)
    assert policy.solution.steps == 300 * 50
    with pytest.raises(OptionError, match="at most 3000 rows, got a request for more; give more passes"):
        solve(problem, evidence, solver=plain, beta=30)


@MAY_MISS
def test_an_optimiser_alone_makes_one_pass():
    evidence = Rows(n=2000).evidence()
    problem = Problem(error(), [rejected() <= 0.1])
    alone = solve(problem, evidence, solver=SGD3(), rng=3)
    assert (alone.score_matrix == solve(problem, evidence, solver="sgd3", rng=3).score_matrix).all()
    assert (
        alone.solution.steps == SGD3().plan(alone.guarantee.sigma**2, alone.guarantee.smoothness, 2000).steps
    )


def test_a_conflict_is_found_by_sampling_too():
    rules = [selected(0) <= 0.2, selected(1) <= 0.2]
    with pytest.raises(InfeasibleRulesError, match="selected"):
        solve(Problem(error(), rules), Rows(n=20_000).evidence(), solver="sgd")


@pytest.mark.parametrize(
    "solver", [SGD3(mu=-1), ACSA(mu=0), SGD(size=-1), Stochastic(passes=math.nan), Stochastic(passes=-1)]
)
def test_settings_are_positive(solver):
    with pytest.raises(OptionError, match="must be a positive number"):
        solve(Problem(error(), [rejected() <= 0.1]), Rows(n=1000).evidence(), solver=solver)


@pytest.mark.parametrize("answer", [np.array([-1.0]), np.array([np.nan]), np.zeros(3), 0.5])
def test_an_optimiser_that_returns_nonsense_is_named(answer):
    evidence = Rows(n=100).evidence()
    with pytest.raises(BylawError, match="must return 1 finite multipliers"):
        solve(
            Problem(error(), [rejected() <= 0.1]),
            evidence,
            solver=Stochastic(lambda oracle, **_: answer),
        )


def test_the_oracle_is_unbiased_and_visits_every_row_once_a_pass():
    rows = Rows(n=50, K=3)
    w = np.random.default_rng(1).random(50)
    dual, _ = steps_of(Problem(error(), [rejected() <= 0.1]), rows.evidence(weights=w))
    oracle = Oracle(dual, np.random.default_rng(0), 100)
    point = np.array([0.3])
    mean = np.mean([oracle.gradient(point) for _ in range(50)], axis=0)
    np.testing.assert_allclose(mean, dual.value_and_gradient(point)[1], atol=1e-12)
    np.testing.assert_allclose(oracle.gradient(point, rows=50), mean, atol=1e-12)


def test_no_rules_and_no_numba_needed(monkeypatch):
    evidence = Rows(n=100).evidence()
    assert solve(Problem(error()), evidence, solver="sgd3").solution.status is Status.CONVERGED
    monkeypatch.setitem(sys.modules, "bylaw.solvers._kernels", None)
    with pytest.raises(BylawError, match=r"pip install '\.\[stochastic\]'") as caught:
        solve(Problem(error(), [rejected() <= 0.1]), evidence, solver="sgd")
    assert caught.value.remedy == Remedy("choose_solver", "full_batch")


@MAY_MISS
def test_the_callback_sees_progress():
    seen = []
    evidence = Rows(n=200).evidence()
    policy = solve(
        Problem(error(), [rejected() <= 0.1]), evidence, solver=Stochastic(passes=1000), callback=seen.append
    )
    assert [step.number for step in seen][:3] == [65_536, 131_072, 196_608]
    assert seen[-1].number == policy.solution.steps > 196_608
    assert seen[-1].gradient_mapping == pytest.approx(policy.solution.gradient_mapping)
