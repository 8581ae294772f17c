"""The cost of one step of the paper's algorithm, and its ratio to the same step as NumPy calls.

Prints a table and writes it to benchmarks/results/stochastic.md.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from bylaw import Problem, demographic_parity, error
from bylaw._base import Floats
from bylaw.program import Dual, compile_problem, make_blocks
from bylaw.solvers import SGD3, SampledRows
from bylaw.solvers._stochastic import AcceleratedState, Plan
from core import evidence_of, scores, seconds, show

RESULTS = Path(__file__).parent / "results" / "stochastic.md"
STEPS, LOOP_STEPS = 200_000, 2_000


def numpy_loop(plan: Plan, dual: Dual, features: Floats) -> Floats:
    """AC-SA with a handful of NumPy calls a step, as one would write it by hand: one stage."""
    form, beta = dual.form, dual.beta
    couplings = form.couplings.toarray().reshape(dual.n_rules, *form.base.shape)
    mu, point = plan.mus[0], np.zeros(dual.n_rules)
    average = point
    for t, row in enumerate(features, start=1):
        alpha, gamma = 2 / (t + 1), 4 * plan.smoothness / (t * (t + 1))
        share = gamma + (1 - alpha**2) * mu
        middle = (1 - alpha) * (mu + gamma) / share * average
        middle = middle + alpha * ((1 - alpha) * mu + gamma) / share * point
        costs = np.einsum("f,jfa->ja", row, couplings) - form.bounds[:, None]
        distribution = -beta * (row @ form.base + middle @ costs)
        distribution = np.exp(distribution - distribution.max())
        slope = -costs @ (distribution / distribution.sum()) + mu * middle
        kept = ((1 - alpha) * mu + gamma) / (mu + gamma) * point + alpha * mu / (mu + gamma) * middle
        point = np.maximum(kept - alpha / (mu + gamma) * slope, 0)
        average = alpha * point + (1 - alpha) * average
    return average


def step_costs(n_classes: int, n_groups: int, target: float) -> list[tuple[str, str, str]]:
    evidence = evidence_of(*scores(STEPS, n_classes, n_groups))
    form = compile_problem(Problem(error(), [demographic_parity("group", tol=0.01)]), evidence)
    dual = Dual(form, make_blocks(form, evidence), 100.0)
    features = np.concatenate([block.features for block in dual.blocks], axis=1).T.copy()
    rows = SampledRows.from_dual(dual, features, np.ones(STEPS))
    few = rows._replace(features=features[:LOOP_STEPS], weights=rows.weights[:LOOP_STEPS])
    full, one_stage = SGD3().plan(dual.sigma2, dual.smoothness, STEPS), Plan((0.1,), LOOP_STEPS, 100.0)
    start = np.zeros(dual.n_rules)

    def compiled(plan: Plan, steps: SampledRows) -> Floats:
        walk = AcceleratedState.begin(plan, start)
        walk.advance(steps)
        return walk.answer

    agree = np.abs(compiled(one_stage, few) - numpy_loop(one_stage, dual, few.features)).max()
    assert agree < 1e-9, f"the two loops differ by {agree}"
    ours, loop = seconds(
        lambda: compiled(full, rows), lambda: numpy_loop(one_stage, dual, few.features), rounds=5
    )
    step, loop_step = ours / STEPS, loop / LOOP_STEPS
    name = f"{n_classes} classes x {n_groups} groups, {dual.n_rules} rules"
    return [
        (f"SGD3, one step, {name}", f"{1e6 * step:.2f} microseconds", f"<= {target:g}"),
        ("the same as a Python loop of NumPy calls", f"{loop_step / step:.0f} times slower", ">= 30"),
    ]


def start_up() -> list[tuple[str, str, str]]:
    """Seconds of a fresh process: without the optimizers, and with them from the cache."""
    plain = "import bylaw"
    warm = "import bylaw.solvers._stochastic as s; s.load_kernels()"
    times = []
    for script in (plain, warm):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", script], check=True)
        times.append(time.perf_counter() - start)
    loaded = f"import sys; {plain}; sys.exit('numba' in sys.modules)"
    silent = subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
    return [
        (
            "import bylaw, in a fresh process",
            f"{times[0]:.2f} s, numba {'not ' if silent else ''}imported",
            "",
        ),
        ("loading the compiled loops from their cache, likewise", f"{times[1]:.2f} s", ""),
    ]


if __name__ == "__main__":
    show(step_costs(2, 2, 2.0) + step_costs(5, 4, 4.0) + start_up(), RESULTS)
