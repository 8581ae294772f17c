"""The terms of the paper's bounds: on the fitted rows, and what their sampling adds on new ones."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp
from scipy.stats import norm

from bylaw import (
    Evidence,
    Policy,
    Problem,
    Stream,
    audit,
    demographic_parity,
    diagnose,
    equalized_odds,
    error,
    frontier,
    rejected,
    selected,
    solve,
)
from bylaw.program import Dual, compile_problem, make_blocks
from helpers.generated_rows import Rows

N = 500


def make_rows(sex, normal, weights=None):
    chance = 1 / (1 + np.exp(-1.5 * normal - np.where(sex == "M", 0.7, -0.7)))
    return Evidence(np.column_stack([1 - chance, chance]), groups={"sex": sex}, weights=weights)


def draw(n, seed, weights=False):
    rng = np.random.default_rng(seed)
    given = np.where(rng.random(n) < 0.2, 8.0, 0.5) if weights else None
    return make_rows(rng.choice(["F", "M"], n), rng.normal(size=n), given)


def make_population(n):
    """Evenly spaced quantiles in both groups: the rates of the population, to about 1 / n."""
    quantiles = norm.ppf((np.arange(n) + 0.5) / n)
    return make_rows(np.repeat(["F", "M"], n), np.tile(quantiles, 2))


def measure_norm(policy, evidence):
    """The Euclidean norm of all violations, rule by rule with `expected`."""
    stated = policy.problem.expand(evidence.classes, evidence.group_values)
    misses = [policy.expected(found.rule.excess, evidence) for found in stated]
    return float(np.linalg.norm(np.maximum(misses, 0.0)))


POPULATION = make_population(10_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "weights"),
    [
        ([rejected() <= 0.3], False),
        ([rejected() <= 0.3], True),
        ([demographic_parity("sex", tol=0.02)], False),
        ([rejected() <= 0.2, demographic_parity("sex", tol=0.05)], False),
    ],
    ids=["rejections", "weighted rejections", "parity", "both"],
)
def test_new_rows_miss_the_rules_by_the_order_of_the_sampling_term(rules, weights):
    """Over 30 samples: at most the term on average, at least a tenth of it, and ten times fewer rows are
    sqrt(10) times worse."""
    problem, excess = Problem(error(), rules), {}
    for n in (N, 10 * N):
        found, terms = [], []
        for seed in range(30):
            fitted = draw(n, seed, weights)
            policy = solve(problem, fitted)
            found.append(measure_norm(policy, POPULATION) - measure_norm(policy, fitted))
            terms.append(policy.guarantee.sampling)
        excess[n], term = np.mean(found), np.mean(terms)
        assert term / 10 <= excess[n] <= term
    assert 1.8 <= excess[N] / excess[10 * N] <= 5.5


def test_the_term_is_sigma_over_the_root_of_the_rows():
    """A rejected row has 0.7 of the rule, another -0.3: sigma is 0.7."""
    terms = solve(Problem(error(), [rejected() <= 0.3]), draw(N, 0)).guarantee
    assert terms.sigma == pytest.approx(0.7)
    assert (terms.rows, terms.sampling) == (N, pytest.approx(0.7 / math.sqrt(N)))
    assert terms.violation_on_new_rows == pytest.approx(terms.violation + terms.sampling)
    reach = terms.multiplier_norm + terms.alpha * terms.mean_norm
    more = terms.excess_cost_on_new_rows - terms.excess_cost
    assert more == pytest.approx(reach * terms.sampling)


def test_weights_count_by_the_effective_sample_size():
    weighted = draw(N, 0, weights=True)
    w = weighted.weights
    terms = solve(Problem(error(), [rejected() <= 0.3]), weighted).guarantee
    assert terms.sampling == pytest.approx(0.7 / math.sqrt(w.sum() ** 2 / (w @ w)))
    silent = weighted.with_columns(weights=np.r_[np.ones(100), np.zeros(400)])
    terms = solve(Problem(error(), [rejected() <= 0.3]), silent).guarantee
    assert terms.sampling == pytest.approx(0.7 / 10)


def test_without_rules_there_is_nothing_to_miss():
    terms = solve(Problem(error()), draw(N, 0)).guarantee
    assert (terms.sampling, terms.most_slack) == (0.0, math.inf)


PROBLEMS = {
    "rejections": Problem(error(), [rejected() <= 0.1]),
    "parity": Problem(error(), [demographic_parity("sex", tol=0.01)]),
    "odds": Problem(error(), [equalized_odds("sex", tol=0.02), rejected() <= 0.1]),
    "a narrow band": Problem(error(), [selected(1) <= 0.31, selected(1) >= 0.3]),
    "hardly possible": Problem(error(), [error() <= 0.23, rejected() <= 0.05]),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_multipliers_bound_the_slack(name):
    """By a linear program of its own: min t, where every rule is at most t."""
    evidence = draw(300, 3)
    problem = PROBLEMS[name]
    found, policy = diagnose(problem, evidence), solve(problem, evidence)
    assert found.slack == pytest.approx(solve_slack(problem, evidence), abs=1e-5)
    assert 0 < found.slack <= policy.guarantee.most_slack + 1e-9
    assert "with a slack of" in str(found)


def solve_slack(problem, evidence):
    form = compile_problem(problem, evidence)
    (block,) = make_blocks(form, evidence)
    n, n_actions = len(evidence), form.base.shape[1]
    couplings = form.couplings.toarray().reshape(len(form.bounds), *form.base.shape)
    costs = np.einsum("mfa,fn->mna", couplings, block.features).reshape(len(form.bounds), -1) / n
    sums = np.kron(np.eye(n), np.ones(n_actions))
    answer = linprog(
        np.r_[np.zeros(n * n_actions), 1.0],
        A_ub=np.column_stack([costs, -np.ones(len(costs))]),
        b_ub=form.bounds,
        A_eq=np.column_stack([sums, np.zeros(n)]),
        b_eq=np.ones(n),
        bounds=[(0, 1)] * (n * n_actions) + [(None, None)],
    )
    return -answer.fun


def test_the_slack_is_by_hand():
    """One of two labels for all: at most 0.6 each is possible by 0.1; below 0.5 each is not."""
    evidence = Evidence(np.full((10, 2), 0.5) + np.linspace(-0.2, 0.2, 10)[:, None] * [1, -1])
    slack = diagnose(Problem(error(), [selected(0) <= 0.6, selected(1) <= 0.6]), evidence).slack
    assert slack == pytest.approx(0.1, abs=1e-6)
    assert diagnose(Problem(error(), [selected(0) <= 0.4, selected(1) <= 0.4]), evidence).slack == 0.0
    assert diagnose(Problem(error()), evidence).slack == math.inf


@pytest.mark.slow
def test_every_way_to_a_policy_has_the_terms(tmp_path):
    evidence, problem = draw(2000, 0), PROBLEMS["rejections"]
    labels = (np.random.default_rng(1).random(2000) < evidence.probabilities[:, 1]).astype(int)
    stream = Stream(problem, rows=2000).fit([evidence.rows(slice(0, 1500)), evidence.rows(slice(1500, 2000))])
    stream.save(tmp_path / "stream.json")
    made = {
        "labels": solve(problem, evidence, labels=labels),
        "linear program": solve(problem, evidence.rows(slice(0, 200)), solver="linear_program"),
        "frontier": frontier(problem, evidence, {"rejected() <= 0.1": [0.05, 0.1]}).policies[0],
        "stream": stream.policy(),
        "resumed stream": Stream.load(tmp_path / "stream.json").policy(),
    }
    for name, policy in made.items():
        rows = 200 if name == "linear program" else 2000
        terms = policy.guarantee
        assert (terms.rows, terms.sampling) == (rows, pytest.approx(terms.sigma / math.sqrt(rows))), name
        assert math.isnan(terms.most_slack) == ("stream" in name)
        policy.save(tmp_path / "p.json")
        again = Policy.load(tmp_path / "p.json").guarantee
        assert vars(again) == pytest.approx(vars(terms), rel=0.05, nan_ok=True)  # two digits in a file


def test_files_have_the_slack_and_the_rows_of_their_fingerprint(tmp_path):
    policy = solve(PROBLEMS["rejections"], draw(N, 0))
    policy.save(tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text())
    assert content["guarantee"]["most_slack"] == pytest.approx(policy.guarantee.most_slack, rel=0.05)
    assert "rows" not in content["guarantee"]


def test_the_text_tells_fitted_rows_from_new_ones():
    policy = solve(PROBLEMS["rejections"], draw(N, 0))
    text = str(policy.guarantee)
    fitted, new = text.split("on new rows")
    assert fitted.startswith("on the fitted rows\n  violation   <= ")
    assert f"{policy.guarantee.violation:.3g} + delta_constr" in fitted
    assert f"by the sampling of {N} rows, expect about\n  violation      " in new
    assert f"{policy.guarantee.violation_on_new_rows:.3g} + delta_constr" in new


def test_estimates_on_fitted_rows_do_not_take_the_sampling_term_for_room():
    """A rule that is missed by half of it is broken on these rows."""
    evidence = draw(N, 0)
    policy = solve(PROBLEMS["rejections"], evidence)
    tighter = rejected() <= 0.1 - policy.guarantee.sampling / 2
    assert (
        str(audit(policy, evidence, rules=tighter, fitted_rows="estimate").verdict)
        == "estimated to be broken"
    )


def test_large_rules_are_in_the_unit_of_the_solver():
    evidence = Rows(n=400, K=2, S=2).evidence()
    small, large = (
        solve(Problem(error(), [unit * rejected() <= unit * 0.1]), evidence).guarantee for unit in (1.0, 1e6)
    )
    assert large.sampling <= 2 * small.sampling
    dual = Dual(form := compile_problem(PROBLEMS["rejections"], evidence), make_blocks(form, evidence), 1.0)
    assert small.sampling == pytest.approx(math.sqrt(dual.sigma2 / 400))


def test_the_bound_on_the_slack_is_that_of_the_lagrangian():
    """F is a mean of log-sum-exp, row by row; the dearest decision is the wrong label."""
    evidence, level = draw(N, 0), 0.05
    policy = solve(Problem(error(), [rejected() <= level]), evidence)
    price, beta = policy.multipliers[f"rejected() <= {level}"], policy.beta
    chance = evidence.probabilities
    lagrangian = np.column_stack([1 - chance, np.zeros(N)]) + price * (np.array([0, 0, 1]) - level)
    least = -logsumexp(-beta * lagrangian, axis=1).mean() / beta
    dearest = (1 - chance.min(axis=1)).mean()
    assert policy.guarantee.most_slack == pytest.approx((dearest - least) / price, rel=1e-6)
