"""Costs of rows that live elsewhere are those of the same rows in memory."""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Columns, Problem, solve
from bylaw.auditing.costs import compare_costs
from bylaw.auditing.scanned_costs import compare_scanned_costs
from bylaw.backends.scan import scan
from bylaw.data.outcomes import observe
from helpers.command_line import table


@pytest.mark.parametrize("label", [None, "outcome"])
@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("minimize", ["error()", "error().given(sex='F') + 2 * error().given(sex='M')"])
def test_costs_are_those_of_rows_in_memory(label, weights, minimize, tmp_path):
    """Also where parts have no women, and their share differs from part to part."""
    rows = table(4000, 0).append_column("w", pyarrow.array(np.arange(4000) % 3.0))
    rows = rows.sort_by("sex")
    for i, (start, length) in enumerate([(0, 500), (500, 2500), (3000, 1000)]):
        parquet.write_table(rows.slice(start, length), tmp_path / f"{i}.parquet")
    columns = Columns(["p_no", "p_yes"], ["no", "yes"], {"sex": "sex"}, weights=weights, label=label)
    problem = Problem(minimize, ["demographic_parity('sex', tol=0.02)", "rejected() <= 0.1"])
    scanned = scan(tmp_path, columns)
    policy = solve(problem, scanned)
    walks = scanned.passes
    found = compare_scanned_costs(policy, scanned.survey(problem))
    assert scanned.passes == walks + 1  # the survey is kept
    seen = observe(columns.evidence(rows), None if label is None else rows[label])
    np.testing.assert_allclose(found.costs, compare_costs(policy, seen), rtol=1e-12)
    assert found.n_rows == 4000
