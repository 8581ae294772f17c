"""A few of the fuzzer's labelled problems; `python -m experiments.fuzz.labelled` tries two thousand."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.fuzz.by_hand import least_miss, linearize
from experiments.fuzz.labelled import FAILED, is_reported, judge, random_labelled, report
from experiments.fuzz.run import run

from bylaw import error
from bylaw.errors import EvidenceError, RuleError
from bylaw.program import measure_rate
from bylaw.rows import observe


def compile_random(seed):
    """None if the rules make no sense."""
    try:
        given = random_labelled(seed)
        given.observed_rules()
    except (RuleError, EvidenceError):
        return None
    return given


@pytest.mark.slow
@pytest.mark.parametrize("first", range(7_000_000, 7_000_060, 20))
def test_labelled_problems_hold_or_report_what_they_miss(first):
    outcomes = run(first, 20, processes=1, judge=judge)
    failures = [outcome for outcome in outcomes if outcome.kind in FAILED]
    assert not failures, report(outcomes)
    assert any(outcome.kind == "held" for outcome in outcomes)


def test_rates_by_hand_are_those_of_the_library():
    """Twice the same numbers from two pieces of code that share nothing."""
    compared = 0
    for seed in range(40):
        given = compile_random(seed)
        if given is None:
            continue
        outcomes, rows = given.outcomes, given.rows
        space = given.problem.action_space(rows.evidence.classes)
        seen = observe(
            rows.evidence.with_observed(
                labels=outcomes.labels, true_groups={"hidden": outcomes.groups["hidden"]}
            )
        )
        rng = np.random.default_rng(seed)
        probabilities = rng.dirichlet(np.ones(outcomes.n_actions), len(outcomes))
        for rule in given.observed_rules():
            if (linear := linearize(rule, outcomes)) is None:
                continue
            expected = measure_rate(rule.excess, seen, probabilities, space)
            assert linear.measure(probabilities) == pytest.approx(expected, abs=1e-9 * linear.unit)
            compared += 1
    assert compared > 100


def test_a_miss_is_reported_only_with_its_name_and_its_size():
    silent = SimpleNamespace()
    name = "error() <= 0.1"
    assert is_reported(name, 0.05, silent, [f"the rule {name!r} is missed by 0.0501"])
    assert not is_reported(name, 0.05, silent, [f"the rule {name!r} is missed by 0.02"])
    assert not is_reported(name, 0.05, silent, ["the rule 'error() <= 0.15' is missed by 0.05"])
    assert not is_reported(name, 0.05, silent, [])
    listing = SimpleNamespace(observed={name: 0.05})
    assert is_reported(name, 0.05, listing, ["3 more rules are missed"])
    assert not is_reported(name, 0.05, listing, [])


def test_the_linear_program_knows_what_can_hold():
    """Every row may be decided by itself, or all alike."""
    given = next(g for seed in range(100) if (g := compile_random(seed)) and g.rows.kind == "labels")
    outcomes, n = given.outcomes, len(given.outcomes)
    alike, apart = np.zeros((n, 1)), np.arange(n, dtype=float)[:, None]
    likeliest = np.bincount(outcomes.labels, outcomes.weights).max() / outcomes.weights.sum()
    assert least_miss([error() <= 0.0], outcomes, apart, sets=False) == pytest.approx(0, abs=1e-8)
    assert least_miss([error() <= 0.0], outcomes, alike, sets=False) == pytest.approx(1 - likeliest, abs=1e-8)
