"""Random problems: each must end in a policy that is optimal and obeys, or in a conflict that is one.

    python -m experiments.fuzz.run --problems 10000 --seed 0
    python -m experiments.fuzz.run --only 1234

Policies are judged by the KKT conditions and by the exact linear program on the same rows; of
conflicts, the linear program must confirm that the named rules alone cannot hold.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from bylaw import (
    ConvergenceWarning,
    Evidence,
    EvidenceError,
    GuaranteeWarning,
    InfeasibleRulesError,
    Policy,
    Problem,
    RuleError,
    accepted,
    coverage_parity,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equal_opportunity,
    equalized_odds,
    error,
    error_parity,
    f1,
    miscoverage,
    omits,
    precision,
    predictive_parity,
    recall,
    rejected,
    rejection_parity,
    selected,
    size,
    solve,
)
from bylaw.language import Rate
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.reductions._linearize import compares_quotients
from bylaw.reductions._objectives import expand_ratio
from bylaw.solvers._linear_program import exact_policy

TOL = 1e-6
LP_ROUNDING = 5e-10  # a linear program's own idea of feasible
FAILED = ("broken", "not optimal", "no conflict", "not converged", "crashed")


@dataclass(frozen=True)
class Outcome:
    seed: int
    kind: str  # "solved", "conflict", "refused", "unjudged" (HiGHS gave up), or one of FAILED
    seconds: float
    detail: str = ""
    violation: float = 0.0
    complementarity: float = 0.0


@dataclass(frozen=True)
class Rows:
    """What the rules may speak of."""

    evidence: Evidence
    kind: str
    unit: float  # of the custom cost


def random_rows(rng: np.random.Generator) -> Rows:
    n, K, S = int(rng.integers(5, 201)), int(rng.integers(2, 7)), int(rng.integers(2, 4))
    kind = str(rng.choice(["labels", "reject", "sets"]))
    joint = rng.dirichlet(np.full(S * K, rng.choice([0.3, 1.0, 5.0])), n).reshape(n, S, K)
    if rng.random() < 0.15:  # a model that is always sure
        joint = np.eye(S * K)[rng.integers(0, S * K, n)].reshape(n, S, K)
    if rng.random() < 0.2:  # the same few rows again and again
        joint = joint[rng.integers(0, max(n // 10, 1), n)]
    codes = rng.integers(0, S, n)
    codes[:S] = range(S)
    unit = float(rng.choice([1.0, 1.0, 1e-4, 1e6]))
    n_actions = K + (kind == "reject")
    probabilities = joint.sum(axis=1)
    evidence = Evidence(
        probabilities,
        groups={"known": codes, "hidden": dict(enumerate(joint.sum(axis=2).T))},
        joint={"hidden": joint},
        references={"old": rng.integers(0, K, n), "soft": rng.dirichlet(np.ones(K), n)},
        costs={"toll": unit * rng.normal(size=(n, n_actions))},
        weights=rng.exponential(size=n) if rng.random() < 0.3 else None,
    )
    return Rows(evidence, kind, unit)


def random_problem(rows: Rows, rng: np.random.Generator, more: Sequence[Maker] = ()) -> Problem:
    """One to four statements, of which some are tight; `more` are those that these rows admit beside the
    usual ones."""
    K = len(rows.evidence.classes)
    goals = [error(), 1000 * error(), custom("toll"), 1 - f1(int(rng.integers(K)))]
    if rows.kind == "reject":
        goals += [error() + 0.3 * rejected(), rejected() + 0.1 * error(), error() / accepted()]
    if rows.kind == "sets":
        goals = [miscoverage(), size(), size() + 3 * miscoverage(), custom("toll")]
    makers = (
        SET_RULES if rows.kind == "sets" else LABEL_RULES + (REJECT_RULES if rows.kind == "reject" else [])
    )
    makers = [*makers, *more]
    chosen = rng.choice(len(makers), int(rng.integers(1, 5)), replace=False)
    made = [makers[i](rng, K, rows.unit) for i in chosen]
    rules = [rule for one in made for rule in (one if isinstance(one, list) else [one])]
    return Problem(goals[rng.integers(len(goals))], rules, decisions=rows.kind)  # type: ignore[arg-type]


def _tol(rng: np.random.Generator) -> float:
    return float(rng.choice([0.0, 0.001, 0.02, 0.1, 0.3]))


def _group(rng: np.random.Generator) -> str:
    return str(rng.choice(["known", "hidden"]))


def _between(rng: np.random.Generator) -> str:
    return str(rng.choice(["overall", "groups"]))


Maker = Callable[[np.random.Generator, int, float], object]
COMMON: list[Maker] = [
    lambda rng, K, unit: selected(int(rng.integers(K))) <= float(rng.choice([0.0, 0.1, 0.5, 0.9])),
    lambda rng, K, unit: selected(int(rng.integers(K))) >= float(rng.choice([0.05, 0.3, 0.6, 1.0])),
    lambda rng, K, unit: selected(int(rng.integers(K))).given(known=0) <= float(rng.uniform(0, 1)),
    lambda rng, K, unit: abs(selected(0).given(hidden=0) - selected(0)) <= _tol(rng),
    lambda rng, K, unit: abs(selected(K - 1) - float(rng.choice([0.0, 0.2, 0.5]))) <= _tol(rng),
    lambda rng, K, unit: custom("toll") <= unit * float(rng.uniform(-1.5, 0.5)),
    lambda rng, K, unit: demographic_parity(_group(rng), tol=_tol(rng), between=_between(rng)),  # type: ignore[arg-type]
    lambda rng, K, unit: disparate_impact(_group(rng), labels=[0], ratio=float(rng.choice([0.8, 1.0]))),
    lambda rng, K, unit: equal_opportunity("hidden", tol=_tol(rng), labels=[0]),
    lambda rng, K, unit: precision(int(rng.integers(K))) >= float(rng.uniform(0.1, 0.9)),
    lambda rng, K, unit: precision(0).given(known=1) <= float(rng.uniform(0.2, 0.9)),
    lambda rng, K, unit: recall(int(rng.integers(K))) >= float(rng.uniform(0.1, 0.6)),
    lambda rng, K, unit: predictive_parity("known", tol=0.02 + _tol(rng), between=_between(rng), labels=[0]),  # type: ignore[arg-type]
]
LABEL_RULES: list[Maker] = [
    *COMMON,
    lambda rng, K, unit: error() <= float(rng.uniform(0.05, 0.9)),
    lambda rng, K, unit: 1e6 * error() <= 1e6 * float(rng.uniform(0.2, 0.9)),
    lambda rng, K, unit: error().given(label=0) <= float(rng.uniform(0.1, 0.9)),
    lambda rng, K, unit: error().given(decision=int(rng.integers(K))) <= float(rng.uniform(0.1, 0.8)),
    lambda rng, K, unit: error().given(decision=0, hidden=1) <= float(rng.uniform(0.1, 0.8)),
    lambda rng, K, unit: f1(int(rng.integers(K))) >= float(rng.uniform(0.1, 0.6)),
    lambda rng, K, unit: equalized_odds(_group(rng), tol=_tol(rng)),
    lambda rng, K, unit: error_parity(_group(rng), tol=_tol(rng)),
    lambda rng, K, unit: disagreement("old") <= float(rng.uniform(0, 0.9)),
    lambda rng, K, unit: disagreement("soft").given(known=1) <= float(rng.uniform(0.2, 0.9)),
]
REJECT_RULES: list[Maker] = [
    lambda rng, K, unit: rejected() <= float(rng.choice([0.0, 0.05, 0.3])),
    lambda rng, K, unit: rejected().given(hidden=1) >= float(rng.uniform(0, 0.5)) + 0.01,
    lambda rng, K, unit: error() <= float(rng.uniform(0.05, 0.7)) * accepted(),
    lambda rng, K, unit: rejection_parity(_group(rng), tol=_tol(rng)),
]
SET_RULES: list[Maker] = [
    *COMMON,
    lambda rng, K, unit: size() <= float(rng.uniform(0.2, K)),
    lambda rng, K, unit: size().given(known=0) >= float(rng.uniform(0.2, K)),
    lambda rng, K, unit: miscoverage() <= float(rng.choice([0.0, 0.05, 0.3, 0.6])),
    lambda rng, K, unit: miscoverage().given(hidden=0) <= float(rng.uniform(0.05, 0.6)),
    lambda rng, K, unit: omits("old") <= float(rng.uniform(0, 0.9)),
    lambda rng, K, unit: coverage_parity(_group(rng), tol=_tol(rng)),
]


def random_case(seed: int) -> tuple[Rows, Problem]:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    return rows, random_problem(rows, rng)


def judge(seed: int) -> Outcome:
    """One problem, from its seed to its outcome."""
    return judge_problem(seed, random_case)


def judge_problem(seed: int, make: Callable[[int], tuple[Rows, Problem]]) -> Outcome:
    """The problem that `make` makes of a seed; the time is that of the solve."""
    begin = time.perf_counter()
    try:
        rows, problem = make(seed)
        if problem.is_linear:
            compile_problem(problem, rows.evidence)
    except (RuleError, EvidenceError) as refusal:
        return Outcome(seed, "refused", time.perf_counter() - begin, str(refusal).splitlines()[0])
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "the policy chooses at random between", GuaranteeWarning)
            policy = solve(problem, rows.evidence, tol=TOL)
    except InfeasibleRulesError as conflict:
        seconds = time.perf_counter() - begin
        if any(map(compares_quotients, problem.rules)):
            return Outcome(seed, "unjudged", seconds, "a conflict at every level that was tried")
        return replace(_judge_conflict(seed, problem, rows, conflict), seconds=seconds)
    except (RuleError, EvidenceError) as refusal:  # what a ratio divides by can vanish
        return Outcome(seed, "refused", time.perf_counter() - begin, str(refusal).splitlines()[0])
    except Exception as crash:
        return Outcome(seed, "crashed", time.perf_counter() - begin, f"{type(crash).__name__}: {crash}")
    seconds = time.perf_counter() - begin
    return replace(_judge_policy(seed, problem, rows, policy), seconds=seconds)


def _judge_policy(seed: int, problem: Problem, rows: Rows, policy: Policy) -> Outcome:
    """The KKT conditions, and the cost beside the optimum of the linear program. A ratio is least where a
    policy is optimal for the ratio's expansion around itself (Dinkelbach)."""
    if any(map(compares_quotients, problem.rules)):
        return _judge_gaps(seed, problem, rows, policy)
    if (ratio := problem.minimize.split()) is not None:
        value, whole = (policy.expected(rate, rows.evidence) for rate in (ratio, ratio.denominator))
        problem = problem.with_objective(expand_ratio(ratio, value, whole))
    form, multipliers = compile_problem(problem, rows.evidence), policy.solution.multipliers
    if ratio is not None:  # the policy was found around another, whose ratio is the same but for rounding
        paid = (form.couplings.T @ multipliers).reshape(form.base.shape)
        form = replace(form, base=-policy.score_matrix - paid)
    dual = Dual(form, make_blocks(form, rows.evidence), policy.beta)
    total = dual.tally(multipliers)
    gradient = dual.first_order(total, multipliers)[1]
    violation = float(-gradient.min(initial=0.0))
    slackness = float(np.abs(np.minimum(multipliers / dual.loss_unit, gradient)).max(initial=0.0))
    outcome = Outcome(seed, "solved", 0.0, "", violation, slackness)
    status = policy.solution.status.name
    if violation > TOL or multipliers.min(initial=0.0) < 0:
        return replace(outcome, kind="broken", detail=f"{status}: a rule is missed by {violation:.3g}")
    if slackness > TOL:
        return replace(outcome, kind="not converged", detail=f"{status}: complementarity {slackness:.3g}")
    try:
        exact = exact_policy(dual)
    except ArithmeticError as gave_up:
        return replace(outcome, kind="unjudged", detail=str(gave_up))
    cost = float((form.base * total.moments).sum() / total.mass) + form.base_constant
    slack = TOL * (dual.loss_unit + float(multipliers.sum()))
    most = form.action_space.entropy / dual.beta + slack
    # What breaking the rules by the tolerance may save is what the exact optimum says it is worth.
    saved = 0.0 if exact is None else TOL * (dual.loss_unit + float(exact.multipliers.sum()))
    if exact is not None and not -max(slack, saved) <= cost - exact.cost <= most:
        return replace(
            outcome, kind="not optimal", detail=f"costs {cost - exact.cost:.3g} more than the best"
        )
    return outcome


def _judge_gaps(seed: int, problem: Problem, rows: Rows, policy: Policy) -> Outcome:
    """That every rule holds, differences of quotients as such."""
    expanded = problem.expand(rows.evidence.classes, rows.evidence.group_values)
    excesses = {str(found.rule): policy.expected(found.rule.excess, rows.evidence) for found in expanded}
    worst = max(excesses, key=lambda name: np.nan_to_num(excesses[name], nan=-math.inf))
    unit = rows.unit if "toll" in worst else 1e6 if "1000000" in worst else 1.0
    wholes = [Rate(((e.whole, 1.0),)) for one in expanded for e in one.rule.excess.by_event() if e.whole]
    rarest = min(policy.expected(whole, rows.evidence) for whole in wholes)
    broken = excesses[worst] > (2e-4 + TOL / max(rarest, TOL)) * unit
    return Outcome(seed, "broken" if broken else "solved", 0.0, f"{worst} by {excesses[worst]:.3g}")


def _judge_conflict(seed: int, problem: Problem, rows: Rows, conflict: InfeasibleRulesError) -> Outcome:
    """The linear program: the least violation of the worst of the named rules, and of all but one."""
    if not problem.minimize.is_linear:
        problem = problem.with_objective(error())  # the rules alone conflict
    form = compile_problem(problem, rows.evidence)
    dual = Dual(form, make_blocks(form, rows.evidence), 1.0)
    named = np.array([form.names.index(name) for name in conflict.conflict])
    outcome = Outcome(seed, "conflict", 0.0)
    if math.isnan(least_violation(dual, named)):
        return replace(outcome, kind="unjudged", detail="HiGHS gave up on the rules of the conflict")
    if (least := least_violation(dual, named)) <= LP_ROUNDING or conflict.least_violation <= 0:
        return replace(outcome, kind="no conflict", detail=f"{conflict.conflict} can hold, by {-least:.3g}")
    for j in named:
        others = named[named != j]
        if len(others) and least_violation(dual, others) > 10 * LP_ROUNDING:
            return replace(outcome, kind="no conflict", detail=f"{form.names[j]} is not needed for it")
    return outcome


def least_violation(dual: Dual, rules: np.ndarray) -> float:
    """min over policies of the largest violation of these rules, in the form's unit."""
    features = np.concatenate([block.features for block in dual.blocks], axis=1)
    mass = np.concatenate([block.row_weights for block in dual.blocks]) / dual.mass
    couplings = dual.form.couplings[rules]
    n_actions, n_rows = dual.form.base.shape[1], len(mass)
    costs = np.hstack([couplings[:, a::n_actions] @ (features * mass) for a in range(n_actions)])
    one_each = sparse.hstack([sparse.eye_array(n_rows)] * n_actions + [sparse.csr_array((n_rows, 1))])
    sets = dual.form.action_space.kind == "sets"
    answer = linprog(
        np.append(np.zeros(n_actions * n_rows), 1.0),
        A_ub=np.hstack([costs, -np.ones((len(rules), 1))]),
        b_ub=dual.form.bounds[rules],
        A_eq=None if sets else one_each,
        b_eq=None if sets else np.ones(n_rows),
        bounds=[(0, 1)] * (n_actions * n_rows) + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return math.nan if answer.fun is None else float(answer.fun)


def run(first: int, count: int, processes: int = 2, judge: Callable[[int], Outcome] = judge) -> list[Outcome]:
    seeds = range(first, first + count)
    if processes == 1:
        return [judge(seed) for seed in seeds]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        return pool.map(judge, seeds, chunksize=20)


def report(outcomes: list[Outcome]) -> str:
    counts = Counter(outcome.kind for outcome in outcomes)
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    solved = [outcome for outcome in outcomes if outcome.kind == "solved"]
    lines = [f"{len(outcomes)} problems"]
    lines += [
        f"  {kind:14}{counts[kind]:7}" for kind in ("solved", "unjudged", "conflict", "refused", *FAILED)
    ]
    lines.append(f"  slowest       {slowest.seconds:7.2f} s (seed {slowest.seed}, {slowest.kind})")
    lines.append(f"  worst violation of a rule  {max((o.violation for o in solved), default=0):.2e}")
    lines.append(f"  worst complementarity      {max((o.complementarity for o in solved), default=0):.2e}")
    lines += [f"{o.kind}: --only {o.seed}: {o.detail}" for o in outcomes if o.kind in FAILED]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem; the others follow")
    parser.add_argument("--only", type=int, help="one problem, by its seed")
    options = parser.parse_args()
    if options.only is not None:
        outcomes = [judge(options.only)]
    else:
        outcomes = run(options.seed * 1_000_000, options.problems)
    print(report(outcomes))
    return int(any(outcome.kind in FAILED for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
