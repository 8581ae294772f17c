"""One grid judges all engines: on rows elsewhere, in any partitions, the answer is the one in memory."""

from __future__ import annotations

import pytest

from bylaw import InfeasibleRulesError, scan, solve
from bylaw.engines import _scan as scanning
from helpers.partitioned_rows import CASES, COLUMNS, CONFLICT, N, cut, expect_value, make_rows

# Every case on two engines; on the others, which compute the same sums elsewhere, three of them.
FEW = ["rejection", "observed", "costs"]
ON_ENGINES = [
    *((engine, name) for engine in ("files", "polars") for name in CASES),
    *((engine, name) for engine in ("dask threads", "dask cluster") for name in FEW),
    *(pytest.param("spark", name, marks=pytest.mark.slow) for name in FEW),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), ON_ENGINES, indirect=["kind"])
def test_the_answer_is_that_in_memory(kind, name, monkeypatch):
    case = CASES[name]
    if name in ("observed", "margin"):  # their standard errors are those of the sample
        monkeypatch.setattr(scanning, "SAMPLE_ROWS", N)
    rows = scan(kind.load(cut(make_rows(), 7)), case.columns)
    assert case.solve(rows).solution.value == pytest.approx(expect_value(name), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 2])
def test_partitions_do_not_matter_and_the_same_ones_give_the_same_bits(kind, partitions):
    source = kind.load(cut(make_rows(), partitions))
    policies = [CASES["rejection"].solve(scan(source, COLUMNS)) for _ in range(2)]
    assert policies[0].solution.value == pytest.approx(expect_value("rejection"), abs=1e-9)
    assert policies[0].digest == policies[1].digest


@pytest.mark.slow
def test_rules_that_conflict_are_found(kind):
    with pytest.raises(InfeasibleRulesError) as found:
        solve(CONFLICT, scan(kind.load(cut(make_rows(), 7)), COLUMNS))
    assert len(found.value.conflict) == 2
