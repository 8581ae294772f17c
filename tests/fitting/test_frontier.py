from __future__ import annotations

import builtins

import numpy as np
import pandas
import polars
import pytest

from bylaw import (
    Evidence,
    InfeasibleRulesError,
    OptionError,
    Problem,
    RuleError,
    Status,
    accepted,
    cost,
    custom,
    demographic_parity,
    disparate_impact,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.fitting import find_lever, frontier
from bylaw.fitting._frontier import make_path
from bylaw.program import Dual, TallyPass, compile_problem, gradient_mapping, make_blocks
from bylaw.solvers import FullBatch
from bylaw.solvers._screening import Metric, ScreenPass
from helpers.generated_rows import Rows
from helpers.reference import Reference, error_loss, on, parity, rejection

PARITY = demographic_parity("hidden", tol=0.02)
BUDGET = rejected() <= 0.1
FOUR_FIFTHS = disparate_impact("known", labels=[0], ratio=0.8)
SELECTIVE = error() <= 0.05 * accepted()
GAP = abs(selected(0).given(known=1) - selected(0)) <= 0.02
FLOOR = selected(1) >= 0.5
SIZE = size() <= 1.2
SWEEPS = {
    "family": (Problem(error(), [PARITY, BUDGET]), PARITY, np.linspace(0, 0.15, 7)),
    "bound": (Problem(error(), [PARITY, BUDGET]), BUDGET, np.linspace(0.01, 0.4, 7)),
    "odds": (Problem(error(), [equalized_odds("known", tol=0.1)]), None, np.linspace(0.01, 0.2, 6)),
    "ratio": (Problem(error(), [FOUR_FIFTHS]), FOUR_FIFTHS, np.linspace(0.1, 1, 7)),
    "coefficient": (Problem(rejected(), [SELECTIVE]), SELECTIVE, np.linspace(0.02, 0.3, 7)),
    "band": (Problem(error(), [GAP]), GAP, [0.1, 0.0, 0.05, 0.02]),
    "floor": (Problem(error(), [FLOOR]), FLOOR, np.linspace(0.3, 0.9, 7)),
    "sets": (Problem(miscoverage(), [SIZE]), SIZE, np.linspace(0.2, 1.9, 7)),
    "money": (Problem(cost([[0, 1e5, 2e5], [3e5, 0, 1e5], [1e5, 1e5, 0]]), [PARITY]), PARITY, [0.1, 0.01]),
}


def swept(name, rows):
    problem, rule, levels = SWEEPS[name]
    rule = problem.rules[0] if rule is None else rule
    return problem, rule, np.asarray(levels), frontier(problem, rows.evidence(), {rule: levels}, tol=1e-7)


def at(problem, rule, level):
    return Problem(problem.minimize, [r.at(level) if r == rule else r for r in problem.rules])


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 10_000])
@pytest.mark.parametrize("name", SWEEPS)
def test_each_point_is_a_cold_solve(name, n):
    rows = Rows(n=n, K=3, S=3)
    problem, rule, levels, found = swept(name, rows)
    assert found.levels[:, 0] == pytest.approx(levels)
    assert set(found.status) == {Status.CONVERGED}
    unit = 1e5 if name == "money" else 1.0
    for i, level in enumerate(levels):
        evidence, policy = rows.evidence(), found.policies[i]
        alone = solve(at(problem, rule, level), evidence, tol=1e-7)
        assert policy.beta == pytest.approx(alone.beta)
        assert found.cost[i] == pytest.approx(alone.expected(problem.minimize, evidence), abs=2e-5 * unit)
        assert found.cost[i] == pytest.approx(policy.expected(problem.minimize, evidence), abs=1e-9 * unit)
        distribution = policy.probabilities(evidence)
        assert np.abs(distribution - alone.probabilities(evidence)).mean() < 1e-4
        assert list(policy.multipliers) == list(alone.multipliers)
        assert list(policy.prices) == list(alone.prices)
        assert policy.problem == alone.problem
        assert policy.guarantee.violation <= 1e-7
        assert policy.guarantee.sigma >= alone.guarantee.sigma * (1 - 1e-9)
        assert policy.guarantee.sigma <= 2 * alone.guarantee.sigma  # chords lie above


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SWEEPS if name not in ("ratio", "coefficient")])
def test_cost_is_convex_and_falls_with_slack(name):
    """Up to the entropy, which is neither."""
    _, _, levels, found = swept(name, Rows(n=3000, K=3, S=3))
    order = np.argsort(levels)
    slopes = np.diff(found.cost[order]) / np.diff(levels[order])
    unit = 1e5 if name == "money" else 1.0
    assert (np.sign(slopes) * (1 if name == "floor" else -1) >= 0).all() or np.abs(slopes).min() < 0.01 * unit
    assert (np.diff(slopes) > -0.02 * unit).all()
    assert (found.prices >= 0).all()


def references(rows):
    """The least cost as a function of the level, by an exact linear program."""
    P, n_actions = rows.P, rows.P.shape[1]
    share = rows.group == 1
    gap = on(0, share / share.mean() - 1, n_actions)
    own = [on(0, (rows.group == s) / (rows.group == s).mean(), n_actions) for s in range(2)]
    loss, reject = error_loss(P, n_actions + 1), rejection(P)
    return {
        PARITY: (
            error(),
            lambda t: Reference(error_loss(P, n_actions), parity(rows.T, n_actions, t, n_actions)),
        ),
        BUDGET: (error(), lambda t: Reference(loss, [(reject, t)])),
        GAP: (error(), lambda t: Reference(error_loss(P, n_actions), [(gap, t), (-gap, t)])),
        FLOOR: (
            error(),
            lambda t: Reference(error_loss(P, n_actions), [(-on(1, np.ones(rows.n), n_actions), -t)]),
        ),
        FOUR_FIFTHS: (
            error(),
            lambda t: Reference(
                error_loss(P, n_actions), [(t * own[1] - own[0], 0.0), (t * own[0] - own[1], 0.0)]
            ),
        ),
        SELECTIVE: (rejected(), lambda t: Reference(reject, [(loss - t * (1 - reject), 0.0)])),
    }


@pytest.mark.parametrize(
    ("rule", "level", "looser"),
    [
        (PARITY, 0.05, 1),
        (BUDGET, 0.1, 1),
        (GAP, 0.02, 1),
        (FLOOR, 0.7, -1),
        (FOUR_FIFTHS, 0.9, -1),
        (SELECTIVE, 0.1, 1),
    ],
    ids=str,
)
def test_prices_are_slopes_of_the_exact_optimum(rule, level, looser):
    rows, h = Rows(n=400, K=2, S=2, seed=1), 0.02
    minimize, problem_at = references(rows)[rule]
    exact = [problem_at(level + d).optimum() for d in (-h, 0.0, h)]
    found = frontier(Problem(minimize, [rule]), rows.evidence(), {rule: [level - h, level, level + h]})
    # Randomisation costs at most log|A|/beta, 0.1 % of the spread of the loss.
    np.testing.assert_allclose(found.cost, exact, atol=2e-3)
    slopes = -looser * np.diff(exact) / h
    assert min(slopes) - 0.05 <= found.prices[1, 0] <= max(slopes) + 0.05
    assert found.prices[1, 0] > 0.02


@pytest.mark.slow
def test_two_sweeps_give_the_grid():
    rows = Rows(n=5000, K=3, S=3)
    problem = Problem(error(), [PARITY, BUDGET])
    tolerances, budgets = [0.1, 0.01, 0.03], [0.02, 0.3, 0.1, 0.2]
    seen = []
    found = frontier(
        problem, rows.evidence(), {str(PARITY): tolerances, BUDGET: budgets}, tol=1e-7, callback=seen.append
    )
    assert found.levels.tolist() == [[t, b] for t in tolerances for b in budgets]
    assert [(step.number, step.total) for step in seen] == [(i + 1, 12) for i in range(12)]
    walked = np.array([step.levels for step in seen])
    assert walked[0].tolist() == [0.1, 0.3]  # loosest first
    assert ((np.diff(walked, axis=0) != 0).sum(axis=1) == 1).all()  # from neighbour to neighbour
    for i, (tolerance, budget) in enumerate(found.levels):
        alone = solve(Problem(error(), [PARITY.at(tolerance), BUDGET.at(budget)]), rows.evidence(), tol=1e-7)
        assert found.cost[i] == pytest.approx(alone.expected(error(), rows.evidence()), abs=2e-6)
        assert found.prices[i] == pytest.approx(list(alone.prices.values()), abs=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 20_000])
def test_levels_of_conflict_are_points_without_a_policy(n):
    rows = Rows(n=n, K=3, S=3)
    problem = Problem(error(), [FLOOR, selected(0) >= 0.4])
    levels = [0.9, 0.5, 0.7, 0.61, 0.59, 0.2]
    found = frontier(problem, rows.evidence(), {FLOOR: levels})
    conflict = np.array(levels) > 0.6
    assert [status is Status.INFEASIBLE for status in found.status] == conflict.tolist()
    assert np.isnan(found.cost).tolist() == np.isnan(found.prices[:, 0]).tolist() == conflict.tolist()
    assert [policy is None for policy in found.policies] == conflict.tolist()
    assert found.cost[4] > found.cost[1] > found.cost[5]
    with pytest.raises(InfeasibleRulesError, match=r"selected\(1\) >= 0.7"):
        frontier(problem, rows.evidence(), {FLOOR: [0.9, 0.7]})


@pytest.mark.slow
def test_weights_count_on_a_path():
    rows = Rows(n=20_000, K=3, S=3)
    weights = np.random.default_rng(0).integers(0, 3, rows.n)
    evidence = rows.evidence(weights=weights)
    problem = Problem(error(), [PARITY])
    found = frontier(problem, evidence, {PARITY: [0.1, 0.05, 0.02, 0.01]}, tol=1e-7)
    for i, level in enumerate(found.levels[:, 0]):
        alone = solve(Problem(error(), [PARITY.at(level)]), evidence, tol=1e-7)
        assert found.cost[i] == pytest.approx(alone.expected(error(), evidence), abs=2e-6)


SCREENED = {
    "labels": Problem(error(), [PARITY]),
    "reject": Problem(error(), [PARITY, BUDGET]),
    "sets": Problem(miscoverage(), [SIZE, size().given(known=1) <= 1.0]),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SCREENED)
def test_far_rows_are_decided_alike_wherever_a_screen_covers(name, weighted):
    """Then the sums over them, which the screen keeps, are those of a pass over all rows."""
    rng = np.random.default_rng(0)
    accepted = []
    for seed in range(6):
        rows = Rows(n=3000, K=3, S=2, seed=seed)
        evidence = rows.evidence(weights=rng.integers(1, 4, rows.n)) if weighted else rows.evidence()
        form = compile_problem(SCREENED[name], evidence)
        dual = Dual(form, make_blocks(form, evidence), beta=1000.0)
        here, there = rng.uniform(0, 0.3, (2, dual.n_rules))
        there = here + rng.choice([0.0, 0.01, 0.1]) * (there - here)
        metric, start = Metric.of(dual), form.score_matrix(here)
        allowance = metric.length(form.score_matrix(there) - start) + 0.003
        plan = ScreenPass(start, metric, allowance, 20 / dual.beta)
        (screen,) = dual.total(plan)
        assert 0 < sum(block.mass for block in screen.near) < dual.mass
        for size_of_noise in np.geomspace(1e-4, 0.3, 40):
            way = here + rng.uniform(-0.2, 1.2) * (there - here)
            weights = form.score_matrix(way + size_of_noise * rng.normal(size=dual.n_rules))
            accepted.append(plan.covers(weights))
            if accepted[-1]:
                whole, near = (
                    sum(TallyPass(weights, dual.beta, form.action_space)(block).moments for block in blocks)
                    for blocks in (dual.blocks, screen.near)
                )
                assert (
                    np.abs(whole - near - screen.far.moments).max() < 1e-3
                )  # one row more or less: about one
    assert 0.1 < np.mean(accepted) < 0.9


@pytest.mark.slow
def test_every_point_of_a_path_holds_on_all_rows():
    rows = Rows(n=20_000, K=3, S=3)
    problem = Problem(error(), [PARITY, BUDGET])
    evidence = rows.evidence()
    path = make_path(problem, evidence, [find_lever(problem, PARITY)], tol=1e-6)
    for level in np.linspace(0.1, 0.0, 30):
        policy = path.advance([level]).policy
        form = compile_problem(policy.problem, evidence)
        dual, found = Dual(form, make_blocks(form, evidence), policy.beta), policy.solution
        value, gradient = dual.value_and_gradient(found.multipliers)
        norm = np.linalg.norm(gradient_mapping(found.multipliers, gradient, dual.loss_unit))
        assert norm <= 1e-6
        assert norm == pytest.approx(found.gradient_mapping, abs=1e-8)
        assert value == pytest.approx(found.value, abs=1e-9)


@pytest.mark.parametrize("solver", ["linear_program", FullBatch(max_steps=500)])
def test_other_solvers(rows, solver):
    problem = Problem(error(), [BUDGET])
    found = frontier(problem, rows.evidence(), {BUDGET: [0.1, 0.2]}, solver=solver)
    assert found.cost == pytest.approx(
        frontier(problem, rows.evidence(), {BUDGET: [0.1, 0.2]}).cost, abs=1e-4
    )


def test_one_beta_for_the_path(rows):
    found = frontier(Problem(error(), [BUDGET]), rows.evidence(), {BUDGET: [0.1, 0.2]}, beta=30.0)
    assert [policy.beta for policy in found.policies] == [30.0, 30.0]


def test_frames_and_words(rows):
    found = frontier(Problem(error(), [PARITY, BUDGET]), rows.evidence(), {PARITY: np.linspace(0.2, 0, 12)})
    name = "demographic_parity('hidden', tol=level)"
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == [name, "cost", f"price of {name}", "status"]
    assert frame[name].tolist() == found.levels[:, 0].tolist()
    assert set(frame["status"]) == {"converged"}
    assert isinstance(found.to_frame(polars.DataFrame()), polars.DataFrame)
    assert repr(found).startswith(f"Frontier of error() over {name}, 12 points\n")
    assert len(repr(found).splitlines()) == 2 + 5 + 1 + 5
    assert len(found) == 12


def test_rules_in_large_units(rows):
    cents = np.outer(np.random.default_rng(0).uniform(1e6, 2e6, rows.n), [0, 1])
    evidence = rows.evidence(costs={"cents": cents})
    rule = custom("cents") <= 2e5
    found = frontier(Problem(error(), [rule]), evidence, {rule: [1e5, 2e5, 3e5]}, tol=1e-7)
    for level, price in zip(found.levels[:, 0], found.prices[:, 0], strict=True):
        alone = solve(Problem(error(), [rule.at(level)]), evidence, tol=1e-7)
        assert price == pytest.approx(next(iter(alone.prices.values())), rel=1e-2)


@pytest.mark.slow
def test_plots(rows, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    problem = Problem(error(), [PARITY, BUDGET, FLOOR])
    one = frontier(problem, rows.evidence(), {FLOOR: np.linspace(0.3, 1.2, 6)})
    axes = one.plot()
    assert axes.get_ylabel() == "error()"
    assert axes.figure.axes[1].get_xlabel() == "level in selected(1) >= level"
    mixed = frontier(problem, rows.evidence(), {FLOOR: [1.0, 0.3, 0.6]}).plot().figure.axes
    for ax, values in ((mixed[0], "cost"), (mixed[1], "prices")):
        levels, drawn = ax.lines[0].get_data()
        again = frontier(problem, rows.evidence(), {FLOOR: [0.3, 0.6, 1.0]})
        assert levels.tolist() == [0.3, 0.6, 1.0]
        np.testing.assert_allclose(drawn, np.ravel(getattr(again, values)), atol=1e-4)
    _, own = plt.subplots()
    assert one.plot(own) is own
    two = frontier(problem, rows.evidence(), {PARITY: [0.05, 0.1, 0.2], BUDGET: [0.1, 0.2]})
    assert two.plot().get_ylabel() == "level in rejected() <= level"
    line = frontier(problem, rows.evidence(), {PARITY: [0.05], BUDGET: [0.1, 0.2]})
    with pytest.raises(OptionError, match="at least two levels"):
        line.plot()
    plt.close("all")
    real = builtins.__import__

    def without(name, *args):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match=r"pip install '\.\[plot\]'"):
        one.plot()


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({}, "sweep must be a dict with one or two rules"),
        ([0.1], "sweep must be a dict with one or two rules"),
        ({error() <= 0.3: [0.1]}, r"no rule 'error\(\) <= 0.3'; its rules are"),
        ({BUDGET: []}, "one or more finite numbers"),
        ({BUDGET: [0.1, float("inf")]}, "one or more finite numbers"),
        ({BUDGET: ["much"]}, "must be numbers"),
        ({PARITY: [-0.1]}, "must not be negative"),
        ({BUDGET: [0.1], str(BUDGET): [0.2]}, "two different rules"),
        ({BUDGET: [0.1, 7.0]}, "can never be violated"),
        ({demographic_parity("known", tol={0: 0.1, 1: 0.1}): [0.1]}, "one tolerance per group"),
        ({rejected() <= 0.3 * accepted() + 0.1: [0.1]}, "must contain a single number"),
    ],
)
def test_what_cannot_be_swept_is_refused(rows, sweep, message):
    rules = [PARITY, BUDGET, FOUR_FIFTHS, demographic_parity("known", tol={0: 0.1, 1: 0.1})]
    problem = Problem(error(), [*rules, rejected() <= 0.3 * accepted() + 0.1])
    with pytest.raises((OptionError, RuleError, ValueError), match=message):
        frontier(problem, rows.evidence(), sweep)


def test_a_problem_comes_first(rows):
    with pytest.raises(OptionError, match="must be a Problem, got"):
        frontier(rows.evidence(), Problem(error(), [BUDGET]), {BUDGET: [0.1]})
    with pytest.raises(ValueError, match="got ndarray"):
        frontier(Problem(error(), [BUDGET]), rows.P, {BUDGET: [0.1]})
    assert isinstance(rows.evidence(), Evidence)
