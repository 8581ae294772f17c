"""One grid judges all solvers: every solver on every kind of problem, by the KKT conditions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from bylaw import (
    Evidence,
    EvidenceError,
    InfeasibleRulesError,
    Problem,
    Status,
    accepted,
    coverage_parity,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equalized_odds,
    error,
    error_parity,
    miscoverage,
    omits,
    rejected,
    rejection_parity,
    selected,
    size,
    solve,
)
from bylaw.program import Dual, Hessian, compile_problem, gradient_mapping, make_blocks
from bylaw.solvers import (
    FullBatch,
    LinearProgram,
    _full_batch as full_batch,
    _linear_program as linear_program,
)
from bylaw.solvers._full_batch import _factor_lifted, _list_stages, minimize_quadratic
from bylaw.solvers._linear_program import exact_policy
from helpers.generated_rows import Rows

SOLVERS = [FullBatch(), LinearProgram()]
ROWS = Rows(n=250, K=3, S=3)


def grid_case(rng):
    """A random problem on random rows, feasible or not."""
    rows = Rows(
        n=int(rng.integers(5, 200)),
        K=int(rng.integers(2, 5)),
        S=int(rng.integers(2, 4)),
        seed=rng.integers(10**9),
    )
    tol = lambda: float(rng.choice([0, 0.01, 0.05, 0.2]))  # noqa: E731
    labels = [
        rejected() <= rng.uniform(0, 0.5),
        error() <= rng.uniform(0.1, 0.8),
        demographic_parity("known", tol=tol()),
        demographic_parity("hidden", tol=tol(), between="groups"),
        equalized_odds("known", tol=tol()),
        equalized_odds("hidden", tol=tol()),
        disparate_impact("known"),
        error_parity("hidden", tol=tol()),
        rejection_parity("known", tol=tol()),
        disagreement("old") <= rng.uniform(0.1, 1),
        selected(0) <= rng.uniform(0.1, 1),
        error() <= rng.uniform(0.1, 0.9) * accepted(),
    ]
    sets = [
        size() <= rng.uniform(0.5, rows.K),
        miscoverage() <= rng.uniform(0.05, 0.6),
        omits("old") <= rng.uniform(0.1, 0.9),
        coverage_parity("known", tol=tol()),
        demographic_parity("hidden", tol=tol()),
        miscoverage().given(known=0) <= rng.uniform(0.1, 0.9),
    ]
    goals = [error(), rejected() + 0.1 * error(), 1000 * error(), error() + 0.3 * rejected()]
    kind, pool, goals = (
        ("sets", sets, [miscoverage(), size(), size() + 3 * miscoverage()])
        if rng.random() < 0.3
        else ("reject", labels, goals)
    )
    chosen = rng.choice(len(pool), int(rng.integers(1, 4)), replace=False)
    problem = Problem(goals[rng.integers(len(goals))], [pool[i] for i in chosen], decisions=kind)
    form = compile_problem(problem, rows.evidence())
    dual = Dual(form, make_blocks(form, rows.evidence()), 1.0)
    return Dual(form, dual.blocks, float(rng.choice([30, 300, 3000])) / dual.loss_unit)


def cost_of(dual, multipliers):
    total = dual.tally(multipliers)
    return float((dual.form.base * total.moments).sum() / total.mass) + dual.form.base_constant


@pytest.mark.parametrize("seed", range(60))
def test_kkt_or_a_conflict_that_the_linear_program_confirms(seed):
    dual = grid_case(np.random.default_rng(seed))
    exact = exact_policy(dual)
    for solver in SOLVERS:
        solution = solver(dual, tol=1e-6)
        multipliers = solution.multipliers
        if exact is None:
            assert solution.status is Status.INFEASIBLE
            continue
        assert solution.status is Status.CONVERGED
        gradient = dual.value_and_gradient(multipliers)[1]
        assert (multipliers >= 0).all()
        assert gradient.min() >= -1e-6  # every rule holds
        slackness = np.minimum(multipliers / dual.loss_unit, gradient)
        assert solution.gradient_mapping == pytest.approx(np.linalg.norm(slackness))
        assert solution.gradient_mapping <= 1e-6
        gap = cost_of(dual, multipliers) - exact.cost
        slack = 1e-6 * (dual.loss_unit + multipliers.sum())
        assert -slack <= gap <= dual.form.action_space.entropy / dual.beta + slack


def dual_of(rules, beta=100.0, rows=ROWS):
    form = compile_problem(Problem(error(), rules), rows.evidence())
    return Dual(form, make_blocks(form, rows.evidence()), beta)


def test_the_linear_program_is_optimal_and_obeys():
    dual = dual_of([demographic_parity("hidden", tol=0.02), rejected() <= 0.1])
    exact = exact_policy(dual)
    assert exact.probabilities.shape == (4, 250)
    np.testing.assert_allclose(exact.probabilities.sum(axis=0), 1)
    (block,) = dual.blocks
    moments = (block.features @ exact.probabilities.T).ravel() / 250
    assert (dual.form.couplings @ moments - dual.form.bounds).max() <= 1e-7
    assert dual.form.base.ravel() @ moments + dual.form.base_constant == pytest.approx(exact.cost)
    # Strong duality: the hard dual at the linear program's multipliers gives its cost.
    sharp = Dual(dual.form, dual.blocks, 1e7)
    assert -sharp.value_and_gradient(exact.multipliers)[0] == pytest.approx(exact.cost, abs=1e-6)


@pytest.mark.slow
def test_the_exact_optimum_is_reported_and_is_where_the_polishing_starts():
    """Cold, the full batch solver looks at few rows first; from the exact multipliers, at all of them."""
    rows = Rows(n=3000, K=2, S=2)
    dual = dual_of([demographic_parity("hidden", tol=0.02), rejected() <= 0.1], beta=2000.0, rows=rows)
    solution = LinearProgram()(dual, tol=1e-6)
    reference = exact_policy(dual)
    assert solution.exact.cost == reference.cost
    assert (solution.exact.multipliers == reference.multipliers).all()
    sharp = Dual(dual.form, dual.blocks, 1e7)  # strong duality
    assert -sharp.value_and_gradient(solution.exact.multipliers)[0] == pytest.approx(
        solution.exact.cost, abs=1e-5
    )
    assert {step.rows for step in solution.trace} == {dual.mass}
    cold = FullBatch()(dual, tol=1e-6)
    assert cold.exact is None
    assert min(step.rows for step in cold.trace) < dual.mass


def test_a_start_serves_where_the_linear_program_has_no_optimum(monkeypatch):
    dual = dual_of([demographic_parity("hidden", tol=0.02), rejected() <= 0.1])
    near = FullBatch()(dual, tol=1e-8).multipliers

    def give_up(_):
        raise ArithmeticError("HiGHS gave up")

    monkeypatch.setattr(linear_program, "exact_policy", give_up)
    warm = LinearProgram()(dual, tol=1e-6, start=near)
    assert warm.steps == 0
    assert warm.exact is None
    assert LinearProgram()(dual, tol=1e-6).steps > 0


def test_no_rules_need_no_steps():
    solution = FullBatch()(dual_of([]), tol=1e-6)
    assert solution.status is Status.CONVERGED
    assert solution.steps == 0


def test_a_warm_start_skips_the_stages():
    dual = dual_of([demographic_parity("hidden", tol=0.02)])
    cold = FullBatch()(dual, tol=1e-8)
    warm = FullBatch()(dual, tol=1e-6, start=cold.multipliers)
    assert cold.steps > 0
    assert warm.steps == 0
    assert (warm.multipliers == cold.multipliers).all()


@pytest.mark.parametrize("seed", range(40))
def test_a_start_from_anywhere_leads_to_the_same_answer(seed):
    """Also from where every row is decided, and curvature is nothing but rounding errors."""
    rng = np.random.default_rng(seed)
    dual = grid_case(rng)
    cold = FullBatch()(dual, tol=1e-6)
    start = rng.exponential(size=dual.n_rules) * 10.0 ** rng.uniform(-3, 3) * dual.loss_unit
    warm = FullBatch()(dual, tol=1e-6, start=start * (rng.random(dual.n_rules) < 0.6))
    assert warm.status is cold.status
    if cold.status is Status.CONVERGED:
        slack = 1e-6 * (dual.loss_unit + cold.multipliers.sum() + warm.multipliers.sum())
        assert warm.value == pytest.approx(cold.value, abs=slack)


def test_a_matrix_that_rounding_made_indefinite_has_a_factor_lifted():
    """As happens with many rules that say almost the same, on few rows."""
    flat = np.outer(np.arange(1.0, 5), np.arange(1.0, 5)) - 1e-13 * np.eye(4)
    root = _factor_lifted(flat)
    np.testing.assert_allclose(root.T @ root, flat, atol=1e-11)


@pytest.mark.parametrize("entry", [0.0, -1e-17, -1.0, 1e300])
def test_any_finite_matrix_has_a_root_of_its_size(entry):
    """Curvature is zero where every row is decided, and may be below zero by rounding errors."""
    matrix = np.full((3, 3), entry)
    root = _factor_lifted(matrix)
    assert np.isfinite(root).all()
    np.testing.assert_allclose(root.T @ root, matrix, atol=40 * abs(entry) + 1e-280)


@pytest.mark.parametrize("place", ["curvature", "target"])
def test_a_quadratic_that_is_not_a_number_ends(place):
    curvature, target = np.zeros((2, 2)), np.ones(2)
    (curvature if place == "curvature" else target)[0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        minimize_quadratic(Hessian(np.eye(2), curvature, 0.1), target, np.ones(2, bool))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, which overflows
@pytest.mark.parametrize("magnitude", [1e200, 1e300])
def test_costs_whose_squares_overflow_are_refused(magnitude):
    rng = np.random.default_rng(0)
    costs = {"visit": magnitude * rng.random((50, 2))}
    evidence = Evidence(rng.dirichlet([1, 1], 50), costs=costs)
    with pytest.raises(EvidenceError, match="must be finite"):
        solve(Problem(error(), [custom("visit") <= 0.3 * magnitude]), evidence)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_of_the_loss_does_not_blur_the_linear_program(unit):
    form = compile_problem(Problem(unit * error(), [rejected() <= 0.1]), ROWS.evidence())
    dual = Dual(form, make_blocks(form, ROWS.evidence()), 100.0 / unit)
    plain = exact_policy(dual_of([rejected() <= 0.1]))
    exact = exact_policy(dual)
    assert exact.cost == pytest.approx(unit * plain.cost, rel=1e-9)
    np.testing.assert_allclose(exact.multipliers, unit * plain.multipliers, rtol=1e-6)


def test_stages_grow_in_rows_and_sharpness():
    rows = Rows(n=40_000, K=2, S=2)
    dual = dual_of([demographic_parity("hidden", tol=0.02)], beta=1000, rows=rows)
    stages = [stage for stage, _ in _list_stages(dual, None)]
    sizes = [stage.mass for stage in stages]
    assert sizes == sorted(sizes)
    assert sizes[0] < 4000
    betas = [stage.beta for stage in stages]
    assert betas == sorted(betas)
    assert betas[0] < 20
    assert 100 < betas[-1] <= 1000


@pytest.mark.parametrize("seed", range(5))
def test_the_quadratic_step_is_optimal(seed):
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(12, 8))
    model, target = half @ half.T + 1e-3 * np.eye(12), rng.normal(size=12)
    hessian = Hessian(sparse.csr_array(half), np.eye(8), 1e-3)
    np.testing.assert_allclose(hessian.restrict(slice(None)), model)
    np.testing.assert_allclose(hessian @ target, model @ target)
    assert hessian.trace == pytest.approx(np.trace(model))
    for guess in (np.zeros(12, bool), np.ones(12, bool), rng.random(12) < 0.5):
        point = minimize_quadratic(hessian, target, guess | (target > 0))
        slope = model @ point - target
        assert (point >= 0).all()
        assert slope.min() > -1e-7
        assert abs(point @ slope) < 1e-7


@pytest.mark.parametrize("step", [0.1, 1.0, 10.0])
def test_gradient_mapping_by_its_definition(step):
    rng = np.random.default_rng(0)
    multipliers, gradient = rng.exponential(size=50) * rng.integers(0, 2, 50), rng.normal(size=50)
    expected = (multipliers - np.maximum(multipliers - step * gradient, 0)) / step
    np.testing.assert_allclose(gradient_mapping(multipliers, gradient, step), expected)


def make_many_rules(*rules):
    rng = np.random.default_rng(0)
    evidence = Evidence(rng.dirichlet(np.ones(6), 3000), groups={"group": rng.integers(0, 8, 3000)})
    return Problem(error(), [equalized_odds("group", tol=0.05), *rules]), evidence


@pytest.mark.slow
def test_many_rules_are_solved_as_few_are(monkeypatch):
    problem, evidence = make_many_rules(selected(0) <= 0.1)
    outlined = solve(problem, evidence, tol=1e-8)
    assert len(outlined.multipliers) > full_batch.MANY_RULES
    monkeypatch.setattr(full_batch, "MANY_RULES", 1000)
    plain = solve(problem, evidence, tol=1e-8)
    assert {outlined.solution.status, plain.solution.status} == {Status.CONVERGED}
    assert outlined.solution.steps > plain.solution.steps  # so it did begin otherwise
    assert outlined.solution.value == pytest.approx(plain.solution.value, abs=1e-9)
    np.testing.assert_allclose(outlined.probabilities(evidence), plain.probabilities(evidence), atol=1e-4)


@pytest.mark.slow
def test_many_rules_that_conflict_are_known_to():
    problem, evidence = make_many_rules(selected(0) <= 0.1, selected(0).given(group=1) >= 0.2)
    with pytest.raises(InfeasibleRulesError):
        solve(problem, evidence)
