"""Policies over options: answers by hand, the exact linear program, certificates, streams and files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    InfeasibleRulesError,
    Policy,
    PolicyFileError,
    Problem,
    Stream,
    audit,
    custom,
    demographic_parity,
    diagnose,
    disagreement,
    error,
    explain,
    frontier,
    rejected,
    selected,
    solve,
)
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.solvers._linear_program import exact_policy
from bylaw.testing import Verdict

EXPERTS = ["approve", "deny", "junior", "senior"]
OPTIONS = ("small", "mid", "large")


def make_routes(n=400, seed=0, **more):
    rng = np.random.default_rng(seed)
    wrong = rng.uniform(size=(n, 3)) * [0.6, 0.4, 0.2]
    usd = np.tile([0.001, 0.01, 0.03], (n, 1)) * rng.uniform(0.5, 1.5, (n, 1))
    return Evidence(
        costs={"wrong": wrong, "usd": usd},
        options=OPTIONS,
        groups={"lang": rng.choice(["en", "fr"], n)},
        references={"old": rng.choice(OPTIONS, n)},
        **more,
    )


def test_experts_by_hand():
    """Errors of .05, .1, .4 and .5. The senior has time for half a case: the one that saves .45 - .1."""
    chance = np.array([0.95, 0.9, 0.6, 0.5])
    evidence = Evidence(np.column_stack([1 - chance, chance]), classes=["deny", "approve"])
    minimize = error() + 0.45 * selected("junior") + 0.1 * selected("senior")
    rule = selected("senior") <= 0.125
    policy = solve(Problem(minimize, [rule], decisions=EXPERTS), evidence, solver="linear_program")
    assert policy.actions == ("deny", "approve", "junior", "senior")
    assert policy.solution.exact.cost == pytest.approx((0.05 + 0.1 + 0.4 + 0.05 + 0.225) / 4, abs=1e-9)
    assert policy.prices[str(rule)] == pytest.approx(0.35, abs=1e-4)
    by_hand = [[0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0.5, 0.5]]
    assert policy.probabilities(evidence) == pytest.approx(np.array(by_hand), abs=1e-3)
    explained = explain(policy, evidence)
    assert explained.moved.tolist() == [False, False, True, False]  # without the rule, a case for the senior
    assert explained.changed.tolist() == [False, False, False, True]


def test_routes_by_hand():
    """The large model saves .4, .1 and .05 errors; the budget is one and a half calls for three questions."""
    wrong = [[0.5, 0.1], [0.3, 0.2], [0.1, 0.05]]
    evidence = Evidence(costs={"wrong": wrong, "usd": [[0, 1]] * 3}, options=["small", "large"])
    problem = Problem(custom("wrong"), [custom("usd") <= 0.5])
    policy = solve(problem, evidence)
    assert policy.actions == ("small", "large")
    assert policy.expected(custom("wrong"), evidence) == pytest.approx((0.1 + 0.25 + 0.1) / 3, abs=1e-4)
    assert policy.prices["custom('usd') <= 0.5"] == pytest.approx(0.1, abs=1e-3)
    assert policy.probabilities(evidence)[:, 1] == pytest.approx([1, 0.5, 0], abs=2e-3)
    assert set(policy.decide(evidence, ids=range(3))) <= {"small", "large"}
    found = frontier(problem, evidence, {custom("usd") <= 0.5: [0.0, 1 / 3, 1.0]})
    assert found.cost == pytest.approx(np.array([0.9, 0.5, 0.35]) / 3, abs=1e-4)


def random_problem(rng):
    """A problem on random rows, and the same as plain arrays: losses, rules and bounds."""
    n, K, M = int(rng.integers(5, 60)), int(rng.choice([0, 2, 3])), int(rng.integers(1, 4))
    K, M = (K, M) if K else (0, M + 1)
    options, groups = [f"option {i}" for i in range(M)], rng.integers(0, 2, n)
    groups[:2] = [0, 1]
    toll, old = rng.uniform(size=(n, K + M)), rng.integers(0, K + M, n)
    P = rng.dirichlet(np.ones(K), n) if K else np.empty((n, 0))
    actions = [*range(K), *options]
    evidence = Evidence(
        P if K else None,
        groups={"g": groups},
        references={"old": np.array(actions, dtype=object)[old]},
        costs={"toll": toll},
        options=options,
    )
    loss = toll * 0.3 + np.column_stack([1 - P, np.zeros((n, M))])
    minimize = 0.3 * custom("toll") + error() if K else 0.3 * custom("toll")
    last, most, churn = K + M - 1, float(rng.uniform(0, 0.4)), float(rng.uniform(0.3, 1))
    share = (groups == 0) / (groups == 0).mean()
    one = np.eye(K + M)[last]
    rows = [
        (selected(options[-1]) <= most, one * np.ones((n, 1)), most),
        (disagreement("old") <= churn, 1 - np.eye(K + M)[old], churn),
        (custom("toll") <= 0.45, toll, 0.45),
        (
            selected(options[-1]).given(g=0) - selected(options[-1]) <= 0.02,
            one * (share - 1)[:, None],
            0.02,
        ),
    ]
    chosen = [rows[i] for i in rng.choice(4, int(rng.integers(1, 4)), replace=False)]
    decisions = actions if rng.random() < 0.5 else "auto"
    return Problem(minimize, [rule for rule, *_ in chosen], decisions=decisions), evidence, loss, chosen


def solve_by_scipy(loss, rules):
    """The least mean cost; None where the rules conflict."""
    n, n_actions = loss.shape
    found = linprog(
        loss.ravel() / n,
        A_ub=[cost.ravel() / n for _, cost, _ in rules],
        b_ub=[bound for *_, bound in rules],
        A_eq=np.kron(np.eye(n), np.ones(n_actions)),
        b_eq=np.ones(n),
        method="highs",
    )
    return found.fun if found.status == 0 else None


@pytest.mark.parametrize("seed", range(40))
def test_random_problems_cost_what_the_linear_program_says(seed):
    problem, evidence, loss, rules = random_problem(np.random.default_rng(seed))
    least = solve_by_scipy(loss, rules)
    form = compile_problem(problem, evidence)
    exact = exact_policy(Dual(form, make_blocks(form, evidence), beta=1.0))
    if least is None:
        assert exact is None
        assert not diagnose(problem, evidence).feasible
        with pytest.raises(InfeasibleRulesError):
            solve(problem, evidence)
        return
    assert exact.cost == pytest.approx(least, abs=1e-8)
    policy = solve(problem, evidence)
    taken = policy.probabilities(evidence)
    assert all((cost * taken).sum(axis=1).mean() <= bound + 1e-5 for _, cost, bound in rules)
    assert (loss * taken).sum(axis=1).mean() == pytest.approx(least, abs=policy.entropy_cost + 1e-5)
    assert policy.expected(problem.minimize, evidence) == pytest.approx((loss * taken).sum(axis=1).mean())


def test_reject_as_an_option_is_reject():
    P = np.random.default_rng(1).dirichlet([1, 1, 1], 200)
    rules, evidence = [rejected() <= 0.1], Evidence(P)
    one, other = (
        solve(Problem(error(), rules, decisions=d), evidence) for d in ("reject", [2, "reject", 0, 1])
    )
    assert one.digest == other.digest
    assert one.actions == (0, 1, 2, "reject")


def test_the_last_release_may_have_used_options():
    evidence = make_routes()
    rules = [custom("usd") <= 0.008, disagreement("old") <= 0.4, demographic_parity("lang", tol=0.01)]
    policy = solve(Problem(custom("wrong"), rules), evidence)
    taken = policy.probabilities(evidence)
    agreeing = taken[np.arange(400), np.asarray(evidence.references["old"])].mean()
    assert 1 - agreeing == pytest.approx(0.4, abs=1e-5)
    english = np.asarray(evidence.groups["lang"].codes) == 0
    gaps = np.abs(taken[english].mean(axis=0) - taken.mean(axis=0))
    assert gaps.max() <= 0.01 + 1e-5
    assert (taken * evidence.costs["usd"]).sum(axis=1).mean() == pytest.approx(0.008, abs=1e-5)


def test_files_read_back_to_the_same_decisions(tmp_path):
    P = np.random.default_rng(2).dirichlet([1, 1], 100)
    minimize, rules = error() + 0.2 * selected("junior"), [selected("senior") <= 0.05]
    experts = Problem(minimize, rules, decisions=EXPERTS)
    people = Evidence(P, classes=["deny", "approve"])
    routes = make_routes(100)
    for problem, rows in [(experts, people), (Problem(custom("wrong"), [custom("usd") <= 0.01]), routes)]:
        policy = solve(problem, rows)
        policy.save(tmp_path / "p.json")
        loaded = Policy.load(tmp_path / "p.json")
        assert loaded.digest == policy.digest
        assert loaded.actions == policy.actions
        assert loaded.action_space == policy.action_space
        assert (loaded.probabilities(rows) == policy.probabilities(rows)).all()
        assert loaded.problem.action_space(rows.classes, rows.options) == policy.action_space
        loaded.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_text() == (tmp_path / "p.json").read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"options": ["small"]},
        {"options": ["small", "small", "large"]},
        {"options": None},
        {"classes": ["a"], "options": ["b", "c"]},
        {"kind": "labels"},
    ],
)
def test_files_with_bad_options_are_refused(tmp_path, change):
    path = tmp_path / "p.json"
    solve(Problem(custom("wrong"), [custom("usd") <= 0.01]), make_routes(50)).save(path)
    content = json.loads(path.read_text())
    content["decisions"].update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyFileError):
        Policy.load(path)


def test_audits_of_routes_go_by_outcomes():
    policy = solve(Problem(custom("wrong"), [custom("usd") <= 0.01, custom("wrong") <= 0.3]), make_routes())
    held = make_routes(5000, seed=1)
    turned_out = np.random.default_rng(2).random((5000, 3)) < held.costs["wrong"]
    limits = {"usd": (0.0, 0.045), "wrong": (0.0, 1.0)}
    found = audit(policy, held, outcomes={"wrong": turned_out, "usd": "known"}, limits=limits)
    spent, missed = found.rules
    taken = policy.probabilities(held)
    assert missed.estimate == pytest.approx((taken * turned_out).sum(axis=1).mean())
    assert missed.verdict is Verdict.CERTIFIED
    assert spent.estimate == pytest.approx((taken * held.costs["usd"]).sum(axis=1).mean())
    assert found.cost_observed
    decisions = policy.decide(held, ids=np.arange(5000))
    drawn = audit(
        policy, held, decisions=decisions, outcomes={"wrong": turned_out, "usd": "known"}, limits=limits
    )
    position = np.array([OPTIONS.index(decision) for decision in decisions])
    assert drawn.rules[1].estimate == pytest.approx(turned_out[np.arange(5000), position].mean())
    with pytest.raises(ValueError, match="labels must be left out if there are only options"):
        audit(policy, held, labels=np.zeros(5000))


def test_predicted_costs_are_not_audited_as_if_observed():
    policy = solve(Problem(custom("wrong"), [custom("usd") <= 0.01]), make_routes())
    (found,) = audit(policy, make_routes(500, seed=1)).rules
    assert found.verdict is Verdict.UNJUDGED
    assert "usd" in found.reason


def test_fitted_rows_are_recognised_without_probabilities():
    rows = make_routes()
    policy = solve(Problem(custom("wrong"), [custom("usd") <= 0.01]), rows)
    with pytest.raises(ValueError, match="rows on which the policy was chosen"):
        audit(policy, rows, outcomes={"usd": "known"}, limits={"usd": (0.0, 0.045)})


@pytest.mark.slow
def test_certified_experts():
    rng = np.random.default_rng(3)
    chance = rng.uniform(size=8000)
    labels = np.where(rng.random(8000) < chance, "approve", "deny")
    P = np.column_stack([1 - chance, chance])
    rows, held = (Evidence(part, classes=["deny", "approve"]) for part in (P[:4000], P[4000:]))
    rules = [selected("senior") <= 0.1, error() <= 0.2]
    policy = solve(
        Problem(error() + 0.2 * selected("junior"), rules, decisions=EXPERTS),
        rows,
        labels=labels[:4000],
        guarantee="high_probability",
        held_out=held.with_observed(labels=labels[4000:]),
    )
    assert policy.certificate is not None
    assert policy.expected(selected("senior"), rows) <= 0.1


@pytest.mark.slow
def test_streams_route_by_prices_of_which_one_is_zero(tmp_path):
    rng = np.random.default_rng(4)
    wrong, usd = rng.uniform(size=(4000, 3)), np.tile([0.0, 1.0, 3.0], (4000, 1))
    rows = Evidence(costs={"wrong": wrong, "usd": usd}, options=OPTIONS)
    stream = Stream(Problem(custom("wrong"), [custom("usd") <= 1]), 4000, warm_up=500)
    for first in range(0, 4000, 500):
        stream.partial_fit(rows.rows(slice(first, first + 500)))
        stream.save(tmp_path / "stream.json")
        stream = Stream.load(tmp_path / "stream.json")
    assert stream.policy().actions == OPTIONS
    assert stream.policy().expected(custom("usd"), rows) == pytest.approx(1, abs=0.05)
