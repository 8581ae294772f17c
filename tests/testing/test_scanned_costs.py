"""Costs of rows that live elsewhere are those of the same rows in memory."""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Columns, Problem, solve
from bylaw.engines import scan
from bylaw.rows import observe
from bylaw.testing import compare_costs, compare_scanned_costs
from helpers.command_line import table

LABELS = [  # with rules that leave no denominator at zero
    "error()",
    "error().given(sex='F') + 2 * error().given(sex='M')",
    "error().given(label='yes')",
    "1 - precision('yes')",
    "error().given(decision='yes')",
    "error().given(decision='yes', sex='M')",
    "1 - f1('yes')",
    "1 - g_mean()",
    "balanced_error()",
    "(error() + 0.1 * rejected()) / accepted()",
    "worst(error(), by='sex')",
    "worst(error(), by='label')",
]
SETS = ["size()", "miscoverage() + 0.3 * size()", "size().given(label='yes')", "worst(size(), by='sex')"]


def write_parts(folder):
    """Write rows sorted by sex in three files, and return them; the share of women differs from file to file,
    and one has none."""
    rows = table(4000, 0).append_column("w", pyarrow.array(np.arange(4000) % 3.0))
    rows = rows.sort_by("sex")
    for i, (start, length) in enumerate([(0, 500), (500, 2500), (3000, 1000)]):
        parquet.write_table(rows.slice(start, length), folder / f"{i}.parquet")
    return rows


# Each objective with and without labels and weights; of their four pairs, two.
PAIRS = [[(None, None), ("outcome", "w")], [(None, "w"), ("outcome", None)]]


@pytest.mark.parametrize(
    ("minimize", "label", "weights"),
    [(one, *pair) for i, one in enumerate([*LABELS, *SETS]) for pair in PAIRS[i % 2]],
)
def test_every_objective_costs_the_same_in_memory_and_scanned(label, weights, minimize, tmp_path):
    rows = write_parts(tmp_path)
    columns = Columns(["p_no", "p_yes"], ["no", "yes"], {"sex": "sex"}, weights=weights, label=label)
    rules = ["miscoverage() <= 0.2"] if minimize in SETS else ["selected('yes').given(sex='M') >= 0.1"]
    problem = Problem(minimize, rules + ["rejected() <= 0.1"] * ("rejected" in minimize))
    evidence = columns.evidence(rows)
    policy = solve(problem, evidence)
    found = compare_scanned_costs(policy, scan(tmp_path, columns).survey(problem))
    seen = observe(evidence)
    np.testing.assert_allclose(found.costs, compare_costs(policy, seen), rtol=1e-9)


def test_quotients_are_those_of_a_hand_count(tmp_path):
    rows = write_parts(tmp_path)
    columns = Columns(["p_no", "p_yes"], ["no", "yes"], {"sex": "sex"}, label="outcome")
    problem = Problem("error().given(decision='yes')", ["selected('yes') >= 0.3"])
    policy = solve(problem, columns.evidence(rows), deterministic=True)
    found = compare_scanned_costs(policy, scan(tmp_path, columns).survey(problem))
    frame = rows.to_pandas()
    before = frame[frame.p_yes > 0.5]
    after = frame[policy.probabilities(columns.evidence(rows))[:, 1] == 1]
    expected = [(part.outcome != "yes").mean() for part in (before, after)]
    np.testing.assert_allclose([found.costs.model, found.costs.policy], expected, rtol=1e-12)


@pytest.mark.parametrize("label", [None, "outcome"])
@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("minimize", LABELS[:2])
def test_costs_are_those_of_rows_in_memory(label, weights, minimize, tmp_path):
    """Also where parts have no women, and their share differs from part to part."""
    rows = write_parts(tmp_path)
    columns = Columns(["p_no", "p_yes"], ["no", "yes"], {"sex": "sex"}, weights=weights, label=label)
    problem = Problem(minimize, ["demographic_parity('sex', tol=0.02)", "rejected() <= 0.1"])
    scanned = scan(tmp_path, columns)
    policy = solve(problem, scanned)
    walks = scanned.passes
    found = compare_scanned_costs(policy, scanned.survey(problem))
    assert scanned.passes == walks + 1  # the survey is kept
    seen = observe(columns.evidence(rows))
    np.testing.assert_allclose(found.costs, compare_costs(policy, seen), rtol=1e-12)
    assert found.n_rows == 4000


@pytest.mark.parametrize("weights", [None, "w"])
def test_the_share_referred_is_that_of_a_hand_count(weights, tmp_path):
    rows = write_parts(tmp_path)
    columns = Columns(["p_no", "p_yes"], ["no", "yes"], {"sex": "sex"}, weights=weights)
    problem = Problem("error()", ["rejected().given(sex='F') <= 0.05", "rejected().given(sex='M') <= 0.3"])
    policy = solve(problem, columns.evidence(rows))
    found = compare_scanned_costs(policy, scan(tmp_path, columns).survey(problem))
    referred = policy.probabilities(columns.evidence(rows))[:, policy.actions.index("reject")]
    expected = np.average(referred, weights=None if weights is None else rows[weights])
    assert found.referred == pytest.approx(expected, rel=1e-9)
