from __future__ import annotations

import numpy as np
import pandas
import polars
import pytest

from bylaw import (
    Policy,
    Problem,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    explain,
    miscoverage,
    rejected,
    size,
    solve,
)
from helpers.reference import softmax

PROBLEMS = {
    "parity": Problem(error(), [demographic_parity("hidden", tol=0.02)]),
    "reject": Problem(error(), [rejected() <= 0.1, demographic_parity("known", tol=0.05)]),
    "odds": Problem(error(), [equalized_odds("hidden", tol=0.02), disagreement("old") <= 0.2]),
    "sets": Problem(miscoverage(), [size() <= 1.2]),
    "free": Problem(error()),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_pulls_add_up_to_the_law(rows, name):
    evidence = rows.evidence()
    policy = solve(PROBLEMS[name], evidence, beta=20.0)
    found = explain(policy, evidence)
    distribution = 1 / (1 + np.exp(-20 * found.scores)) if name == "sets" else softmax(20 * found.scores)
    assert distribution == pytest.approx(policy.probabilities(evidence), abs=1e-9)
    assert found.rules == tuple(rule for rule, price in policy.multipliers.items() if price)


def test_a_rejection_rule_pulls_by_its_price(rows):
    evidence = rows.evidence()
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    found = explain(policy, evidence)
    price = policy.multipliers["rejected() <= 0.1"]
    assert found.pulls[:, 0] == pytest.approx(np.tile([0, 0, -price], (len(evidence), 1)))
    assert found.baseline == pytest.approx(np.column_stack([rows.P - 1, np.zeros(len(evidence))]))


def test_a_part_of_the_rows_and_a_policy_from_a_file(rows, tmp_path):
    evidence = rows.evidence()
    policy = solve(PROBLEMS["reject"], evidence)
    policy.save(tmp_path / "p.json")
    here = np.flatnonzero(rows.group == 1)[:5]  # one group alone
    part = explain(Policy.load(tmp_path / "p.json"), evidence.rows(here))
    whole = explain(policy, evidence)
    assert part.pulls == pytest.approx(whole.pulls[here], abs=1e-12)
    assert part.rules == whole.rules


def test_moved_rows_and_frames(rows):
    evidence = rows.evidence()
    found = explain(solve(PROBLEMS["parity"], evidence), evidence)
    moved = found.moved
    assert (moved == (found.before != found.after)).all()
    assert 0 < moved.sum() < len(evidence)
    assert (found.before == rows.P.argmax(axis=1)).all()
    assert f"{moved.sum()} of them moved" in repr(found)
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 2 * len(evidence)
    total = frame["baseline"] + sum(frame[rule] for rule in found.rules)
    assert total.to_numpy() == pytest.approx(frame["score"].to_numpy())
    assert isinstance(found.to_frame(polars.DataFrame()), polars.DataFrame)


def test_moved_sets(rows):
    evidence = rows.evidence()
    found = explain(solve(Problem(miscoverage(), [size() <= 1.2]), evidence), evidence)
    assert found.before.all()  # without a rule, every label is in
    assert (found.after == (found.scores > 0)).all()
    assert (found.moved == ~found.after.all(axis=1)).all()


def test_rules_in_large_units(rows):
    cents = np.outer(np.random.default_rng(0).uniform(1e6, 2e6, rows.n), [0, 1])
    evidence = rows.evidence(costs={"cents": cents})
    policy = solve(Problem(error(), [custom("cents") <= 2e5]), evidence, beta=20.0)
    found = explain(policy, evidence)
    assert softmax(20 * found.scores) == pytest.approx(policy.probabilities(evidence), abs=1e-9)
    assert found.pulls[:, 0] == pytest.approx(-policy.multipliers["custom('cents') <= 200000"] * cents)
