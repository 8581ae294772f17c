"""What rules as observed cost beside rules as predicted: processor time, as ratios measured in one run.

    python benchmarks/observed.py [--quick] [--sizes 3000 100000] [--cases hard] [--out FILE]

Scores are a little too sure, so that observed and predicted rates differ. Beside the time stands by how much
the worst rule is missed on the fitted rows, and how much the observed error (the size of sets) differs from
that of the plug-in. Prints a table and writes it to benchmarks/results/observed.md.
"""

from __future__ import annotations

import argparse
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator

from bylaw import (
    ConstrainedClassifier,
    Evidence,
    InfeasibleRulesError,
    Policy,
    Problem,
    coverage_parity,
    demographic_parity,
    equalized_odds,
    error,
    miscoverage,
    size,
    solve,
)
from bylaw.rows import observe
from core import show, softmax

RESULTS = Path(__file__).parent / "results" / "observed.md"
SIZES = (3000, 100_000, 1_000_000)
ROUNDS = 3
ENOUGH = 4.0  # seconds after which a task is not repeated
LIMIT = 60  # seconds after which it is stopped
MOST_JUDGED = 2e8  # rows times rules: beyond, only the time is measured
SURE = 1.3  # times the true logits
Line = tuple[str, str, str]


class Rows(NamedTuple):
    joint: np.ndarray  # (n_rows, n_groups, n_classes): scores of group and label together
    labels: np.ndarray
    groups: np.ndarray

    def evidence(self, known: bool, with_joint: bool = False) -> Evidence:
        group: Any = self.groups if known else dict(enumerate(self.joint.sum(axis=2).T))
        joint = {"group": self.joint} if with_joint else None
        return Evidence(self.joint.sum(axis=1), groups={"group": group}, joint=joint)


def draw(
    n: int, n_classes: int, n_groups: int, label_logits: Any = 0.0, group_logits: Any = 0.0, seed: int = 0
) -> Rows:
    """Label and group depend on six features, and on each other only through them. Logits (n_classes,) and
    (n_groups,) make some of them rare."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6))
    labels = 0.8 * x @ rng.normal(size=(6, n_classes)) + label_logits
    groups = 0.7 * x @ rng.normal(size=(6, n_groups)) + group_logits
    seen = [(part + rng.gumbel(size=part.shape)).argmax(axis=1) for part in (labels, groups)]
    joint = softmax(SURE * groups)[:, :, None] * softmax(SURE * labels)[:, None, :]
    return Rows(joint, *seen)


class Run(NamedTuple):
    result: Any  # None if there is none
    seconds: float  # of the processor
    ended: str = ""  # how, if not with a result


def timed(task: Callable[[], Any]) -> Run:
    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    start = time.process_time()
    try:
        return Run(task(), time.process_time() - start)
    except TimeoutError:
        return Run(None, time.process_time() - start, "stopped after ")
    except InfeasibleRulesError:
        return Run(None, time.process_time() - start, "refused: ")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def race(*tasks: Callable[[], Any]) -> list[Run]:
    """The best of a few rounds of each; they take turns."""
    found: list[list[Run]] = [[] for _ in tasks]
    while len(found[0]) < ROUNDS and sum(run.seconds for runs in found for run in runs) < ENOUGH:
        for task, runs in zip(tasks, found, strict=True):
            runs.append(timed(task))
    return [min(runs, key=lambda run: run.seconds) for runs in found]


def compare(
    what: str, problem: Problem, rows: Rows, *, known: bool, joint: bool = False, limit: str = "<= 3"
) -> Line:
    """One line: as observed against as predicted."""
    evidence = rows.evidence(known, joint)
    groups = None if known else {"group": rows.groups}
    plug_in, corrected = race(
        partial(solve, problem, evidence),
        partial(solve, problem, evidence, labels=rows.labels, groups=groups),
    )
    return what, describe(problem, evidence, rows, plug_in, corrected), limit


def describe(problem: Problem, evidence: Evidence, rows: Rows, plug_in: Run, corrected: Run) -> str:
    text = f"{corrected.ended}{format_ratio(corrected, plug_in)}"
    if corrected.result is None:
        return text
    if len(corrected.result.rule_prices) * len(evidence) > MOST_JUDGED:
        return text
    seen = observe(evidence.with_observed(labels=rows.labels, true_groups={"group": rows.groups}))
    cost, missed = judge(problem, corrected.result, evidence, seen)
    text += f"; worst rule missed by {max(missed, 0.0):.1e}"
    if plug_in.result is None:
        return f"{text}; the plug-in is {plug_in.ended.rstrip(': ')}"
    before, missed_before = judge(problem, plug_in.result, evidence, seen)
    sets = problem.kind == "sets"
    points = f"{cost - before:+.3f} labels" if sets else f"{100 * (cost - before):+.2f} points of error"
    return f"{text} (plug-in {max(missed_before, 0.0):.1e}), {points}"


def format_ratio(slow: Run, fast: Run) -> str:
    return f"{slow.seconds / fast.seconds:.1f} times ({slow.seconds:.2f} s against {fast.seconds:.3f} s)"


def judge(problem: Problem, policy: Policy, evidence: Evidence, seen: Any) -> tuple[float, float]:
    """The cost and the worst rule's excess, as observed."""
    chances = policy.probabilities(evidence)
    rates = [found.rule.excess for found in problem.expand(seen.classes, seen.group_values)]
    cost, *excess = (
        policy.expected(rate, seen, probabilities=chances) for rate in (problem.minimize, *rates)
    )
    return cost, max(excess)


def by_size(n: int) -> Iterator[Line]:
    shown = f"{n // 1000:,}k rows" if n < 1_000_000 else f"{n // 1_000_000}M rows"
    parity = Problem(error(), [demographic_parity("group", tol=0.02)])
    sets = Problem(size(), [miscoverage() <= 0.1, coverage_parity("group", tol=0.02)])
    rows = draw(n, 5, 4)
    yield compare(f"parity, hidden groups, 5 x 4, {shown}", parity, rows, known=False)
    yield compare(f"parity, known groups, 5 x 4, {shown}", parity, rows, known=True)
    yield compare(f"sets, coverage of 4 known groups, 5 classes, {shown}", sets, rows, known=True)
    odds = Problem(error(), [equalized_odds("group", tol=0.02)])
    for n_classes, n_groups in ((2, 2), (4, 4), (10, 5))[: 3 if n >= SIZES[0] else 2]:
        what = f"odds, known groups, {n_classes} x {n_groups}, {shown}"
        yield compare(what, odds, draw(n, n_classes, n_groups), known=True)


def hard_cases(quick: bool) -> Iterator[Line]:
    odds = Problem(error(), [equalized_odds("group", tol=0.05)])
    parity = Problem(error(), [demographic_parity("group", tol=0.02)])
    if not quick:
        rows = draw(2500, 5, 8)
        what = "odds within .05, hidden groups, 5 x 8, 2,500 rows"
        yield compare(what, odds, rows, known=False, joint=True)
    law = draw(20_000, 2, 4, [0.0, 5.0], 2 * np.log([0.85, 0.07, 0.05, 0.03]), seed=1)
    passed, rare = law.labels.mean(), np.bincount(law.groups).min() / len(law.labels)
    what = f"parity, four hidden groups, the least {100 * rare:.1f} %, {100 * passed:.0f} % pass, 20k rows"
    yield compare(what, parity, law, known=False)
    few = keep_few(draw(6000, 2, 3, seed=2))
    what = f"parity, three hidden groups, one of 64 rows, {len(few.labels):,} rows"
    yield compare(what, parity, few, known=False)
    what = f"odds within .05, three known groups, one of 64 rows, {len(few.labels):,} rows"
    yield compare(what, odds, few, known=True)


def keep_few(rows: Rows, n: int = 64) -> Rows:
    """The last group has only so many rows."""
    kept = np.flatnonzero((rows.groups < 2) | (np.cumsum(rows.groups == 2) <= n))
    return Rows(*(part[kept] for part in rows))


class Given(ClassifierMixin, BaseEstimator):
    """Features are probabilities, from the column `first` on."""

    def __init__(self, first: int, n_classes: int) -> None:
        self.first, self.n_classes = first, n_classes
        self.classes_ = np.arange(n_classes)

    def fit(self, X: Any, y: Any) -> Given:
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return X[:, self.first : self.first + self.n_classes]


def classifiers(n: int) -> Iterator[Line]:
    """The default settings, observed with a margin, against the plug-in; no model is trained."""
    rows = draw(n, 5, 4)
    X = np.hstack([rows.joint.sum(axis=1), rows.joint.sum(axis=2)])
    for known in (True, False):
        hidden = None if known else FrozenEstimator(Given(5, 4))
        make = partial(
            ConstrainedClassifier,
            FrozenEstimator(Given(0, 5)),
            [demographic_parity("group", tol=0.02)],
            group_estimator=hidden,
            random_state=0,
        )

        def fit(make: Any = make, **options: Any) -> Any:
            return make(**options).fit(X, rows.labels, sensitive_features={"group": rows.groups})

        plug_in, default = race(partial(fit, correction=False), fit)
        groups = "known" if known else "hidden"
        measured = default.ended + format_ratio(default, plug_in)
        yield (
            f"classifier, default against correction=False, {groups} groups, {n // 1000}k rows",
            measured,
            "<= 5",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--cases", choices=["all", "sizes", "hard"], default="all")
    parser.add_argument("--quick", action="store_true", help="few rows: only whether it runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # the table states what is missed
    sizes = (2000,) if arguments.quick else arguments.sizes
    lines = []
    if arguments.cases != "hard":
        lines += [line for n in sizes for line in by_size(n)]
        lines += classifiers(min(100_000, max(sizes)))
    if arguments.cases != "sizes":
        lines += hard_cases(arguments.quick)
    show(lines, arguments.out)


if __name__ == "__main__":
    main()
