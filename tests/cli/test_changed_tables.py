"""bylaw watch counts a table as a whole or not at all, also where it changes meanwhile."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from bylaw.rows import TableFile
from helpers.command_line import table


@pytest.mark.parametrize("how", ["same rows", "replaced", "another file"])
def test_a_table_that_changes_while_it_is_read_is_not_counted(policy, bylaw, monkeypatch, how):
    Path("days").mkdir()
    parquet.write_table(table(300, 7), "days/1.parquet")
    read, done, rows = TableFile.read, [], 300 if how == "same rows" else 301
    ids = pyarrow.array(range(1000, 1000 + rows))

    def change(self, columns=None, *more):
        found = read(self, columns, *more)
        if not done:
            done.append(columns)
            name = "days/2.parquet" if how == "another file" else "days/1.parquet"
            parquet.write_table(table(rows, 8).set_column(0, "id", ids), name)
        return found

    monkeypatch.setattr(TableFile, "read", change)
    command = ("watch", "policy.json", "days", "--state", "watch.json", "--batch", "today")
    refused = bylaw(*command)
    assert done
    assert refused.code == 2
    assert "days was changed while it was read, so nothing was counted" in refused.err
    assert not Path("watch.json").exists()
    again = bylaw(*command)
    assert again.code in (0, 1)
    assert f"{rows + 300 * (how == 'another file'):,} rows" in again.out


def test_show_prints_each_fact_in_one_line(folder, bylaw):
    rows = parquet.read_table("scores.parquet")
    parquet.write_table(rows, "new\nhash         0000\tx\x1b[31m.parquet")
    fit = ("--rules", "rules.toml", "-o", "policy.json")
    assert bylaw("fit", "new\nhash         0000\tx\x1b[31m.parquet", *fit).code == 0
    lines = bylaw("show", "policy.json").out.splitlines()
    assert len([line for line in lines if line.startswith("hash ")]) == 1
    (fitted,) = [line for line in lines if line.startswith("fitted on")]
    assert "new\\x0ahash         0000\\x09x\\x1b[31m.parquet" in fitted
