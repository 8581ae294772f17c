"""What looking again does to certificates: how often a rule that only just fails to hold is certified.

The true rate of the rule is at its target, and a certificate that it is below is false. One look certifies
it in at most 5 of 100 samples. Looks as rows arrive, the best of many orders of the same rows, and several
policies on the same rows certify it more often: the confidence of an audit is that of one look.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.certificates.validity import population
from experiments.data import save

from bylaw import Evidence, GuaranteeWarning, Policy, Problem, audit, error, rejected, solve
from bylaw.policy._provenance import Card
from bylaw.rows import observe

HERE = Path(__file__).parent
LOOKS, ORDERS = 10, 20
MODELS = 5  # each with a policy of its own


class Candidate(NamedTuple):
    policy: Policy
    evidence: Evidence  # the population, as its model sees it
    truth: float  # its error


class World(NamedTuple):
    labels: np.ndarray
    candidates: tuple[Candidate, ...]


def make_evidence(evidence: Evidence, number: int) -> Evidence:
    """The scores of one of several models: those of the truth, with errors of its own."""
    rng = np.random.default_rng([number, len(evidence)])
    scores = np.log(evidence.probabilities) + rng.normal(size=evidence.probabilities.shape)
    return Evidence(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True))


@cache
def world(n: int) -> World:
    """A population, and policies that were chosen on other rows."""
    (everybody, labels), (others, _) = population(n), population(5000, seed=1)
    candidates = []
    for number in range(MODELS):
        evidence = make_evidence(everybody, number)
        policy = solve(Problem(error(), [rejected() <= 0.15]), make_evidence(others, number))
        chances = policy.probabilities(evidence)
        truth = policy.expected(
            error(), observe(evidence.with_observed(labels=labels)), probabilities=chances
        )
        candidates.append(Candidate(policy, evidence, truth))
    return World(labels, tuple(candidates))


def certifies(there: World, rows: np.ndarray, number: int = 0, confidence: float = 0.95) -> bool:
    """Whether an audit of these rows, in this order, certifies that a policy errs no more than it does."""
    policy, evidence, truth = there.candidates[number]
    policy = replace(policy, card=Card.today())  # looks are counted here
    options = {"labels": there.labels[rows], "rules": error() <= truth, "confidence": confidence}
    return audit(policy, evidence.rows(rows), **options).verdict == "certified"


def look_once(there: World, rows: np.ndarray, _: np.random.Generator) -> bool:
    return certifies(there, rows)


def look_as_rows_arrive(there: World, rows: np.ndarray, _: np.random.Generator) -> bool:
    ends = np.linspace(0, len(rows), LOOKS + 1).astype(int)[1:]
    return any(certifies(there, rows[:end]) for end in ends)


def look_corrected(there: World, rows: np.ndarray, _: np.random.Generator) -> bool:
    """Ten planned looks, each with a tenth of the error."""
    ends = np.linspace(0, len(rows), LOOKS + 1).astype(int)[1:]
    return any(certifies(there, rows[:end], confidence=1 - 0.05 / LOOKS) for end in ends)


def look_in_orders(there: World, rows: np.ndarray, rng: np.random.Generator) -> bool:
    return any(certifies(there, rng.permutation(rows)) for _ in range(ORDERS))


def look_at_policies(there: World, rows: np.ndarray, _: np.random.Generator) -> bool:
    return any(certifies(there, rows, number) for number in range(MODELS))


Way = Callable[[World, np.ndarray, np.random.Generator], bool]
WAYS: dict[str, Way] = {
    "one look": look_once,
    f"{LOOKS} looks as rows arrive": look_as_rows_arrive,
    f"the best of {ORDERS} orders of the rows": look_in_orders,
    f"{MODELS} policies on the same rows, at least one": look_at_policies,
    f"{LOOKS} looks as rows arrive, each with a tenth of the error": look_corrected,
}


class Case(NamedTuple):
    way: str
    rows: int
    population: int
    seed: int


def measure(case: Case) -> dict[str, Any]:
    """Whether this way of looking at one sample ends in a false certificate."""
    there, rng = world(case.population), np.random.default_rng(case.seed)
    rows = rng.integers(case.population, size=case.rows)  # the same rows for every way
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)  # it is what this is about
        return {**case._asdict(), "certified": WAYS[case.way](there, rows, rng)}


def table_of(found: Iterable[dict[str, Any]]) -> str:
    found = list(found)
    samples = len({row["seed"] for row in found})
    error_of = 100 * np.sqrt(0.05 * 0.95 / samples)
    lines = [
        f"False certificates in % of {samples:,} samples of {found[0]['rows']:,} rows, for a rule whose true "
        f"rate is at its target (95 % confidence; the standard error of 5 % is {error_of:.1f}).\n",
        "| looks | false certificates |",
        "|---|---|",
    ]
    for way in WAYS:
        rate = np.mean([row["certified"] for row in found if row["way"] == way])
        lines.append(f"| {way} | {100 * rate:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="few samples, few rows")
    arguments = parser.parse_args()
    rows, samples, total = (200, 6, 20_000) if arguments.quick else (1000, 300, 200_000)
    cases = [Case(way, rows, total, seed) for way in WAYS for seed in range(samples)]
    with Pool() as pool:
        found = pool.map(measure, cases, chunksize=max(samples // 20, 1))
    save(found, table_of(found), arguments.out, "looks")


if __name__ == "__main__":
    main()
