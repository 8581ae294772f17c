"""Tables that would not fit in memory are refused before they are read, with what to do instead."""

from __future__ import annotations

import resource

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bylaw import Columns, Evidence, scan
from bylaw.cli import tables
from bylaw.engines import _scan as scanning
from bylaw.errors import EvidenceError

_FIT = ("fit", "scores.parquet", "--rules", "rules.toml", "-o", "policy.json")


def set_memory(monkeypatch, size):
    for module in (scanning, tables):
        monkeypatch.setattr(module, "find_memory", lambda: size)


@pytest.fixture
def fitted(folder, bylaw):
    assert bylaw(*_FIT).code == 0
    return folder


def test_an_audit_states_the_rows_and_the_memory_that_they_need(fitted, bylaw, monkeypatch):
    rows = parquet.read_metadata("scores.parquet").num_rows
    needed = rows * 4 * 8 * scanning.MEMORY_FACTOR  # two scores, a group and a label
    set_memory(monkeypatch, needed - 1)
    read = []
    monkeypatch.setattr("bylaw.rows._table_files.TableFile.read", lambda *_: read.append(1))
    refused = bylaw("audit", "policy.json", "scores.parquet", "--fitted-rows", "estimate")
    assert refused.code == 2
    assert f"has about {rows:,} rows, too many to read into memory" in refused.err
    assert "--sample" in refused.err
    assert f"they need about {needed / 1e9:,.1f} GB, and {(needed - 1) / 1e9:,.1f} GB" in refused.err
    assert not read


def test_an_audit_of_as_many_rows_as_fit(fitted, bylaw, monkeypatch):
    rows = parquet.read_metadata("scores.parquet").num_rows
    set_memory(monkeypatch, rows * 4 * 8 * scanning.MEMORY_FACTOR)
    answer = bylaw("audit", "policy.json", "scores.parquet", "--fitted-rows", "estimate")
    assert f"{rows:,} rows" in answer.out


def test_texts_longer_than_numbers_count_with_their_bytes(folder, bylaw, monkeypatch):
    rows = parquet.read_table("scores.parquet")
    long = pyarrow.array([f"{sex}{'x' * 2000}" for sex in rows["sex"].to_pylist()])
    parquet.write_table(rows.set_column(3, "sex", long), "long.parquet")
    set_memory(monkeypatch, len(rows) * 4 * 8 * scanning.MEMORY_FACTOR)
    refused = bylaw("fit", "long.parquet", "--rules", "rules.toml", "-o", "policy.json")
    assert refused.code == 2
    assert "whose columns are too large to read into memory" in refused.err
    assert "scan them: --scan" in refused.err


def test_a_lack_of_memory_is_no_fault_of_bylaw(fitted, bylaw, monkeypatch):
    def fail(*_, **__):
        raise np._core._exceptions._ArrayMemoryError((10**9, 10**9), np.dtype(float))

    monkeypatch.setattr("bylaw.audit", fail)
    refused = bylaw("audit", "policy.json", "scores.parquet", "--fitted-rows", "estimate")
    assert refused.code == 2
    assert "the memory is not enough for these rows" in refused.err
    assert "internal error of bylaw" not in refused.err


def test_scanned_rows_are_not_sampled_in_vain(fitted, monkeypatch):
    columns = Columns({"no": "p_no", "yes": "p_yes"})
    found = scan("scores.parquet", columns)
    set_memory(monkeypatch, 1000.0)
    with pytest.raises(EvidenceError, match="too many to be read into memory"):
        found.read()
    assert found.passes == 0


def test_the_limit_of_the_process_counts():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = scanning.find_memory()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (2**40, hard))
        assert scanning.find_memory() == min(before, 2**40)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("column", ["sex", "outcome"])
@pytest.mark.parametrize("how", ["--in-memory", "--scan"])
def test_endless_labels_and_groups_are_refused_in_files(folder, bylaw, monkeypatch, column, how):
    rows = parquet.read_table("scores.parquet")
    values = rows[column].to_pylist()
    values[7] = "é" * 5001  # 10,002 bytes
    place = rows.schema.get_field_index(column)
    parquet.write_table(rows.set_column(place, column, pyarrow.array(values)), "long.parquet")
    refused = bylaw("fit", "long.parquet", "--rules", "rules.toml", "-o", "policy.json", how)
    assert refused.code == 2
    assert f"long.parquet: the column {column!r} must hold texts of at most 10,000 characters" in refused.err
    assert len(refused.err) < 1000


def test_endless_groups_are_refused_in_memory():
    chance = np.linspace(0.1, 0.9, 4)
    groups = {"sex": np.array(["a", "b", "a", "c" * 10_001], dtype=object)}
    with pytest.raises(EvidenceError, match="at most 10,000 characters, got one of 10,001"):
        Evidence(np.column_stack([1 - chance, chance]), groups=groups)
