"""Groups with few rows that rules refer to: one warning names them all."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    GuaranteeWarning,
    Problem,
    demographic_parity,
    equal_opportunity,
    error,
    rejected,
    solve,
)


def draw_rows(counts, seed=0):
    races = np.repeat(list(counts), list(counts.values()))
    scores = np.random.default_rng(seed).random(len(races))
    return Evidence(np.column_stack([1 - scores, scores]), groups={"race": races})


@pytest.mark.parametrize("rule", [demographic_parity("race", tol=0.2), equal_opportunity("race", tol=0.3)])
def test_one_warning_names_all_small_groups_and_their_rows(rule):
    with pytest.warns(GuaranteeWarning) as caught:
        solve(Problem(error(), [rule]), draw_rows({"a": 3, "b": 9, "c": 10, "d": 200}))
    (message,) = [str(one.message) for one in caught]
    assert "race='a' has 3 rows; race='b' has 9 rows" in message
    assert "race='c'" not in message
    assert "Merge them" in message


@pytest.mark.parametrize(
    ("rules", "counts"),
    [
        ([demographic_parity("race", tol=0.2)], {"a": 10, "b": 200}),
        ([rejected() <= 0.1], {"a": 1, "b": 200}),  # no rule refers to them
        ([demographic_parity("race", tol=0.2)], {"a": 2, "b": 3}),  # every group of a small table is small
    ],
)
def test_there_is_no_warning_otherwise(rules, counts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(Problem(error(), rules), draw_rows(counts))


def test_a_label_that_a_group_never_has_is_named_and_the_other_cells_hold():
    rng = np.random.default_rng(0)
    race = rng.choice(["a", "b", "c"], 2000, p=[0.5, 0.4, 0.1])
    chance = np.clip(rng.random(2000) + 0.1 * (race == "a"), 0, 1)
    labels = (rng.random(2000) < chance).astype(int)
    labels[race == "c"] = 0
    evidence = Evidence(np.column_stack([1 - chance, chance]), groups={"race": race})
    problem = Problem(error(), [equal_opportunity("race", tol=0.05)])
    with pytest.warns(
        GuaranteeWarning, match="no row was observed with label=1, race='c': rules about such rows"
    ) as caught:
        policy = solve(problem, evidence, labels=labels)
    assert not any("too few rows" in str(one.message) for one in caught)
    chosen = policy.probabilities(evidence)[:, 1]
    rates = [chosen[(race == value) & (labels == 1)].mean() for value in ("a", "b")]
    assert max(abs(rate - chosen[labels == 1].mean()) for rate in rates) <= 0.05 + 1e-6
    with pytest.raises(EvidenceError, match="label=1, race='c', but no row of the evidence"):
        solve(
            Problem(error(), [error().given(race="c", label=1) <= 0.5]), evidence, labels=labels
        )  # stated by name
