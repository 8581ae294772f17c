"""Use a stochastic optimizer from another library: Adam, from optax, on the paper's dual."""

from __future__ import annotations

import numpy as np
import optax

from bylaw import Evidence, Problem, demographic_parity, error, rejected, solve
from bylaw.solvers import Oracle, Stochastic


def adam(oracle: Oracle, *, sigma2: float, smoothness: float, steps: int, start: np.ndarray) -> np.ndarray:
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, steps // 100))
    point, state = start, optimizer.init(start)
    for _ in range(steps // 100):
        gradient = oracle.gradient(np.asarray(point, dtype=float), rows=100)
        update, state = optimizer.update(gradient, state)
        point = optax.projections.projection_non_negative(optax.apply_updates(point, update))
    return np.asarray(point, dtype=float)


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 2))
    approve, group = (1 / (1 + np.exp(-(x @ w))) for w in ([1.5, 0.5], [1.0, -1.0]))
    evidence = Evidence(
        np.column_stack([1 - approve, approve]), groups={"group": {"a": 1 - group, "b": group}}
    )
    problem = Problem(error(), [demographic_parity("group", tol=0.02), rejected() <= 0.1])
    for name, solver in {"adam": Stochastic(adam, passes=10), "full batch": "full_batch"}.items():
        policy = solve(problem, evidence, solver=solver, beta=50)
        print(f"{name}: expected error {policy.expected(error(), evidence):.4f}")
        print(policy.guarantee, end="\n\n")


if __name__ == "__main__":
    main()
