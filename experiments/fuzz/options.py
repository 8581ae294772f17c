"""Random problems with options, beside labels or without any, judged as those of `run.py` are.

python -m experiments.fuzz.options --problems 2000 --seed 0
python -m experiments.fuzz.options --only 1234
"""

from __future__ import annotations

import argparse

import numpy as np
from experiments.fuzz.run import COMMON, FAILED, LABEL_RULES, Maker, Outcome, Rows, judge_problem, report, run

from bylaw import Evidence, Problem, accepted, custom, demographic_parity, disagreement, error, selected

NAMES = ["junior", "senior", "reject", "large"]
OPTION_RULES: list[Maker] = [
    lambda rng, K, unit: selected("junior") <= float(rng.choice([0.0, 0.05, 0.3])),
    lambda rng, K, unit: selected("junior").given(hidden=1) >= float(rng.uniform(0.01, 0.5)),
    lambda rng, K, unit: custom("toll") <= unit * float(rng.uniform(-1.5, 0.5)),
    lambda rng, K, unit: disagreement("old") <= float(rng.uniform(0, 0.9)),
    lambda rng, K, unit: disagreement("soft").given(known=1) <= float(rng.uniform(0.2, 0.9)),
    lambda rng, K, unit: demographic_parity("known", tol=float(rng.choice([0.0, 0.1])), labels=["junior"]),
    lambda rng, K, unit: (
        abs(selected("junior").given(hidden=0) - selected("junior")) <= float(rng.choice([0.0, 0.02, 0.3]))
    ),
]
BESIDE: list[Maker] = [
    lambda rng, K, unit: error() <= float(rng.uniform(0.05, 0.7)) * accepted(),
    lambda rng, K, unit: accepted() >= float(rng.uniform(0.1, 1)),
]
ALONE: list[Maker] = [
    lambda rng, K, unit: demographic_parity("hidden", tol=float(rng.choice([0.0, 0.02, 0.3]))),
]


def random_options(seed: int) -> tuple[Rows, Problem]:
    """Rows whose decisions have one to four options, and one to four statements about them."""
    rng = np.random.default_rng(seed)
    n, K, S = int(rng.integers(5, 201)), int(rng.choice([0, 2, 3, 5])), int(rng.integers(2, 4))
    options = NAMES[: int(rng.integers(1 if K else 2, 5))]
    actions, unit = [*range(K), *options], float(rng.choice([1.0, 1.0, 1e-4, 1e6]))
    joint = rng.dirichlet(np.full(S * max(K, 1), rng.choice([0.3, 1.0, 5.0])), n).reshape(n, S, max(K, 1))
    codes = rng.integers(0, S, n)
    codes[:S] = range(S)
    evidence = Evidence(
        joint.sum(axis=1) if K else None,
        groups={"known": codes, "hidden": dict(enumerate(joint.sum(axis=2).T))},
        joint={"hidden": joint} if K else None,
        references={
            "old": np.array(actions, dtype=object)[rng.integers(0, len(actions), n)],
            "soft": rng.dirichlet(np.ones(len(actions)), n),
        },
        costs={"toll": unit * rng.normal(size=(n, len(actions)))},
        weights=rng.exponential(size=n) if rng.random() < 0.3 else None,
        options=options,
    )
    beside = [*(LABEL_RULES if rng.random() < 0.5 else COMMON), *BESIDE]
    makers = [*OPTION_RULES, *(beside if K else ALONE)]
    chosen = rng.choice(len(makers), int(rng.integers(1, 5)), replace=False)
    goals = [
        custom("toll"),
        sum((rng.uniform(0.05, 0.5) * selected(a) for a in options if a != "reject"), custom("toll")),
    ]
    if K:
        goals += [error() + 0.2 * selected("junior"), error() + (0.1 / unit) * custom("toll")]
    rules = [makers[i](rng, K, unit) for i in chosen]
    decisions = actions if rng.random() < 0.5 else "auto"
    return Rows(evidence, "options", unit), Problem(
        goals[rng.integers(len(goals))], rules, decisions=decisions
    )


def judge(seed: int) -> Outcome:
    """One problem, from its seed to its outcome."""
    return judge_problem(seed, random_options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem; the others follow")
    parser.add_argument("--only", type=int, help="one problem, by its seed")
    parser.add_argument("--processes", type=int, default=2)
    stated = parser.parse_args()
    if stated.only is not None:
        outcomes = [judge(stated.only)]
    else:
        outcomes = run(stated.seed * 1_000_000, stated.problems, stated.processes, judge)
    print(report(outcomes))
    return int(any(outcome.kind in FAILED for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
