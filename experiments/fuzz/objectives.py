"""Random problems of two more kinds: the worst group's rate is minimised, or nothing is left to chance.

    python -m experiments.fuzz.objectives worst --problems 2000
    python -m experiments.fuzz.objectives hard --only 1234

The worst group is judged by the epigraph form of the exact linear program. Decisions without chance must be
zero or one and miss a rule by one row at most, or by a warning that names it; on few rows, the best 0-1
assignment (a mixed-integer program) is no dearer than the price of a few rows, if no rule is missed.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from experiments.fuzz.run import TOL, Outcome, Rows, random_problem, random_rows, report, run
from scipy import sparse
from scipy.optimize import LinearConstraint, linprog, milp

from bylaw import (
    ConvergenceWarning,
    Evidence,
    EvidenceError,
    GuaranteeWarning,
    InfeasibleRulesError,
    Policy,
    Problem,
    RuleError,
    solve,
    worst,
)
from bylaw.language import Rate, Worst
from bylaw.language._expressions import OVERALL
from bylaw.program import compute_row_rates

GROUPS = ("known", "hidden", "label", ("known", "label"), ("hidden", "label"))
FEW_ROWS = 12


def pay(rate: Rate, rows: Evidence, policy_space) -> tuple[np.ndarray, float]:
    """What each action on each row adds to a rate, (n, A), and its constant: by decisions all alike."""
    n, n_actions = len(rows), len(policy_space.actions)
    nothing = compute_row_rates(rate, rows, np.zeros((n, n_actions)), policy_space)
    shares = rows.row_weights / rows.row_weights.sum()
    paid = [
        compute_row_rates(rate, rows, np.tile(np.eye(n_actions)[a], (n, 1)), policy_space) - nothing
        for a in range(n_actions)
    ]
    return np.array(paid).T * shares[:, None], float(shares @ nothing)


def constrain(problem: Problem, rows: Evidence, space) -> tuple[np.ndarray, np.ndarray]:
    """The rules, multiplied out, as A x <= b over the probabilities of all actions, (M, n * A)."""
    paid = [pay(found.excess, rows, space) for found in problem.expand(rows.classes, rows.group_values)]
    return np.array([cost.ravel() for cost, _ in paid]), np.array([-constant for _, constant in paid])


def sum_to_one(n: int, n_actions: int) -> sparse.csr_array:
    return sparse.csr_array(sparse.kron(sparse.eye(n), np.ones((1, n_actions))))


def judge_worst(seed: int) -> Outcome:
    """The worst group's rate beside that of the linear program."""
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    begin = time.perf_counter()
    try:
        plain = random_problem(rows, rng)
        by = GROUPS[int(rng.integers(len(GROUPS)))]
        problem = Problem(worst(plain.minimize, by=by), plain.rules, decisions=plain.kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "the policy chooses at random between", GuaranteeWarning)
            policy = solve(problem, rows.evidence, tol=TOL)
    except (RuleError, EvidenceError) as refusal:
        return Outcome(seed, "refused", time.perf_counter() - begin, str(refusal).splitlines()[0])
    except InfeasibleRulesError:
        return _judge_refusal(seed, plain, rows, time.perf_counter() - begin)
    except Exception as crash:
        return Outcome(seed, "crashed", time.perf_counter() - begin, f"{type(crash).__name__}: {crash}")
    return _judge_minimax(seed, problem, rows, policy, time.perf_counter() - begin)


def _judge_refusal(seed: int, plain: Problem, rows: Rows, seconds: float) -> Outcome:
    """A conflict, if the same rules conflict for another objective."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "the policy chooses at random between", GuaranteeWarning)
            solve(plain, rows.evidence, tol=TOL)
    except InfeasibleRulesError:
        return Outcome(seed, "conflict", seconds)
    return Outcome(seed, "no conflict", seconds, "the rules can hold")


def _judge_minimax(seed: int, problem: Problem, rows: Rows, policy: Policy, seconds: float) -> Outcome:
    evidence, space, objective = rows.evidence, policy.action_space, problem.minimize
    assert isinstance(objective, Worst)
    groups = objective.list_groups(evidence.classes, evidence.group_values)
    rates = [pay(objective.given(group), evidence, space) for group in groups]
    matrix, bounds = constrain(problem, evidence, space)
    n, n_actions = len(evidence), len(space.actions)
    answer = linprog(
        np.append(np.zeros(n * n_actions), 1.0),
        A_ub=np.vstack(
            [
                *(np.append(cost.ravel(), -1.0) for cost, _ in rates),
                np.hstack([matrix, np.zeros((len(matrix), 1))]),
            ]
        ),
        b_ub=np.append([-constant for _, constant in rates], bounds),
        A_eq=sparse.hstack([sum_to_one(n, n_actions), np.zeros((n, 1))]) if space.exclusive else None,
        b_eq=np.ones(n) if space.exclusive else None,
        bounds=[*[(0, 1)] * (n * n_actions), (None, None)],
    )
    if answer.x is None:
        return Outcome(seed, "unjudged", seconds, answer.message)
    found = max(one.rate for one in policy.group_rates)
    spreads = [_spread(cost, space.exclusive) for cost, _ in rates]
    prices = TOL * 10 * (max(spreads) + float(np.abs(policy.solution.multipliers).sum()))
    most = policy.entropy_cost + OVERALL * max(spreads) + prices + 1e-7 * max(spreads)
    chances = policy.probabilities(evidence).ravel()
    violation = float((matrix @ chances - bounds).max(initial=0.0))
    outcome = Outcome(seed, "solved", seconds, "", violation)
    if policy.solution.status.name != "CONVERGED":
        return Outcome(seed, "not converged", seconds, policy.solution.status.name)
    if not -most <= found - answer.x[-1] <= most:
        detail = f"{problem.minimize}: {found:.6g}, and {answer.x[-1]:.6g} is possible (+- {most:.2g})"
        return Outcome(seed, "not optimal", seconds, detail)
    return outcome


def _spread(cost: np.ndarray, exclusive: bool) -> float:
    if exclusive:
        return float((cost.max(axis=1) - cost.min(axis=1)).sum())
    return float(np.abs(cost).sum())


def judge_hard(seed: int) -> Outcome:
    """Decisions without chance, and the rules that they miss."""
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    if rng.random() < 0.3:
        rows = Rows(rows.evidence.rows(slice(0, FEW_ROWS)), rows.kind, rows.unit)
    begin = time.perf_counter()
    try:
        problem = random_problem(rows, rng)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            policy = solve(problem, rows.evidence, tol=TOL, deterministic=True)
    except (RuleError, EvidenceError) as refusal:
        return Outcome(seed, "refused", time.perf_counter() - begin, str(refusal).splitlines()[0])
    except InfeasibleRulesError:
        return Outcome(seed, "conflict", time.perf_counter() - begin)
    except Exception as crash:
        return Outcome(seed, "crashed", time.perf_counter() - begin, f"{type(crash).__name__}: {crash}")
    seconds = time.perf_counter() - begin
    told = [str(one.message) for one in caught if one.category is GuaranteeWarning]
    return _judge_hard_policy(seed, problem, rows, policy, told, seconds)


def _judge_hard_policy(
    seed: int, problem: Problem, rows: Rows, policy: Policy, told: list[str], seconds: float
) -> Outcome:
    evidence, space = rows.evidence, policy.action_space
    chances = policy.probabilities(evidence)
    if not np.isin(chances, (0.0, 1.0)).all():
        return Outcome(seed, "broken", seconds, "a decision is random")
    if not problem.is_linear:
        return Outcome(seed, "unjudged", seconds, "not a linear program")
    matrix, bounds = constrain(problem, evidence, space)
    excess = matrix @ chances.ravel() - bounds
    cost, constant = pay(problem.minimize, evidence, space)
    found = float(cost.ravel() @ chances.ravel()) + constant
    unit = _spread(cost, space.exclusive)
    if abs(found - policy.hard.cost) > 1e-6 * (unit + abs(found)):
        return Outcome(seed, "broken", seconds, f"it costs {found:.6g}, not {policy.hard.cost:.6g}")
    one_row = np.abs(matrix).max(axis=1, initial=0.0) * 2
    names = [str(one.rule) for one in problem.expand(evidence.classes, evidence.group_values)]
    missed = [name for name, e, one in zip(names, excess, one_row, strict=True) if e > one + 1e-5]
    if missed and not any(name in text for name in missed for text in told):
        return Outcome(seed, "broken", seconds, f"{missed[0]} is missed, and nothing says so")
    kind = "solved" if (excess <= 1e-5 * (1 + np.abs(bounds))).all() else "missed"
    outcome = Outcome(seed, kind, seconds, "", float(excess.max(initial=0.0)))
    if len(evidence) > FEW_ROWS or not policy.rule_prices or kind != "solved":
        return outcome
    best = _solve_exactly(cost, matrix, bounds, space.exclusive) + constant
    prices = float(np.abs(policy.solution.multipliers).sum())
    few = 4 * (prices * one_row.max(initial=0.0) + unit / len(evidence) * len(evidence.classes))
    if found > best + few + policy.entropy_cost + 1e-6 * unit:
        return Outcome(seed, "not optimal", seconds, f"it costs {found:.4g}; {best:.4g} is possible")
    return outcome


def _solve_exactly(cost: np.ndarray, matrix: np.ndarray, bounds: np.ndarray, exclusive: bool) -> float:
    """The least cost of any 0-1 assignment that satisfies the rules."""
    n, n_actions = cost.shape
    limits = [LinearConstraint(matrix, -np.inf, bounds + 1e-9)]
    if exclusive:
        limits.append(LinearConstraint(sum_to_one(n, n_actions), 1, 1))
    answer = milp(cost.ravel(), constraints=limits, integrality=np.ones(cost.size), bounds=(0, 1))
    return float(answer.fun) if answer.x is not None else np.inf


JUDGES = {"worst": judge_worst, "hard": judge_hard}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=JUDGES)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem; the others follow")
    parser.add_argument("--only", type=int, help="one problem, by its seed")
    options = parser.parse_args()
    judge = JUDGES[options.kind]
    if options.only is not None:
        outcomes = [judge(options.only)]
    else:
        outcomes = run(options.seed * 1_000_000, options.problems, processes=1, judge=judge)
    print(report(outcomes))
    missed = sum(outcome.kind == "missed" for outcome in outcomes)
    print(f"  missed without chance, and said so: {missed}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
