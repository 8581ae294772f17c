"""Groups that the fit never saw, and ids that are there twice."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest

from bylaw.cli import decisions
from bylaw.cli.decisions import IdOrder


@pytest.fixture
def strange(policy):
    """New rows, every fifth of a group that the fit never saw."""
    rows = parquet.read_table("new.parquet").slice(0, 100)
    sex = np.where(np.arange(100) % 5 == 0, "X", np.array(rows["sex"].to_pylist()))
    rows = rows.set_column(rows.column_names.index("sex"), "sex", pyarrow.array(sex.tolist()))
    parquet.write_table(rows, "strange.parquet")
    pyarrow.csv.write_csv(rows, "strange.csv")
    return policy


def test_they_are_refused_unless_they_are_referred(strange, bylaw):
    refused = bylaw("decide", "policy.json", "strange.parquet", "-o", "d.parquet")
    assert (refused.code, "['X']" in refused.err) == (2, True)
    assert bylaw("decide", "policy.json", "strange.parquet", "-o", "d.parquet", "--unseen", "fail").code == 2
    referred = bylaw("decide", "policy.json", "strange.parquet", "-o", "d.parquet", "--unseen", "refer")
    assert referred.code == 0, referred.err
    assert "20 rows have group values that the policy does not know, and are rejected" in referred.err
    assert bylaw("decide", "policy.json", "new.parquet", "-o", "plain.parquet").code == 0
    found = parquet.read_table("d.parquet")["decision"].to_pylist()
    plain = parquet.read_table("plain.parquet")["decision"].to_pylist()[:100]
    assert found == ["reject" if i % 5 == 0 else plain[i] for i in range(100)]


@pytest.mark.parametrize("table", ["strange.csv", "strange.parquet"])
def test_a_referred_row_is_rejected_for_certain(table, strange, bylaw):
    told = bylaw(
        "decide", "policy.json", table, "-o", "d.parquet", "--unseen", "refer", "--probabilities", "--json"
    )
    assert json.loads(told.out)["unseen"] == 20
    rows = parquet.read_table("d.parquet")
    chances = np.column_stack([rows[f"decision_p_{action}"] for action in ("no", "yes", "reject")])
    assert (chances[::5] == [0, 0, 1]).all()
    assert chances.sum(axis=1) == pytest.approx(1)


def test_groups_that_are_numbers(folder, bylaw):
    """In a CSV file, a strange value among numbers is still told from them."""
    for name in ("scores", "new"):
        rows = parquet.read_table(f"{name}.parquet").to_pandas()
        rows["sex"] = (rows["sex"] == "F").astype(int)
        if name == "new":
            rows["sex"] = rows["sex"].astype(object)
            rows.loc[3, "sex"] = "x"
            rows.loc[4, "sex"] = 7
        rows.to_csv(f"{name}.csv", index=False)
    assert bylaw("fit", "scores.csv", "--rules", "rules.toml", "-o", "p.json").code == 0
    told = bylaw("decide", "p.json", "new.csv", "-o", "d.csv", "--unseen", "refer", "--json")
    assert json.loads(told.out)["unseen"] == 2, told.err


def test_without_a_rejection_there_is_nothing_to_refer_with(folder, bylaw):
    rule = ("--rule", "demographic_parity('sex', tol=0.02)")
    assert bylaw("fit", "scores.parquet", *rule, "-o", "p.json").code == 0
    answer = bylaw("decide", "p.json", "new.parquet", "-o", "d.csv", "--unseen", "refer")
    assert (answer.code, "--unseen refer needs a policy that can reject rows" in answer.err) == (2, True)
    assert bylaw("fit", "scores.parquet", "--rule", "rejected() <= 0.1", "-o", "q.json").code == 0
    idle = bylaw("decide", "q.json", "new.parquet", "-o", "d.csv", "--unseen", "refer")
    assert (idle.code, "--unseen has no effect" in idle.err) == (2, True)
    wrong = bylaw("decide", "p.json", "new.parquet", "-o", "d.csv", "--unseen", "guess")
    assert (wrong.code, "--unseen" in wrong.err) == (2, True)


@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_an_id_in_several_rows_is_refused_or_allowed(kind, policy, folder, bylaw, monkeypatch):
    monkeypatch.setattr(decisions, "MAX_KEYS", 700)  # several passes
    rows = parquet.read_table("new.parquet").to_pandas()
    rows.loc[1500, "id"] = 3
    if kind == "text":
        rows["id"] = "case " + rows["id"].astype(str)
    parquet.write_table(pyarrow.Table.from_pandas(rows, preserve_index=False), "twice.parquet")
    answer = bylaw("decide", "policy.json", "twice.parquet", "-o", "d.csv")
    name = "3" if kind == "numbers" else "'case 3'"
    assert answer.code == 2
    assert f"ids must be unique, got {name} on 2 rows of the column 'id'" in answer.err
    assert not (folder / "d.csv").exists()
    assert bylaw("decide", "policy.json", "twice.parquet", "-o", "d.csv", "--repeated-ids").code == 0


def test_ids_need_not_rise(policy, bylaw):
    rows = parquet.read_table("new.parquet").take(np.random.default_rng(0).permutation(2000))
    parquet.write_table(rows, "mixed.parquet")
    assert bylaw("decide", "policy.json", "mixed.parquet", "-o", "d.csv").code == 0


def test_where_nothing_is_drawn_ids_may_repeat(folder, bylaw):
    rule = ("--rule", "rejected() <= 0.1", "--deterministic")
    assert bylaw("fit", "scores.parquet", *rule, "-o", "p.json").code == 0
    rows = parquet.read_table("new.parquet")
    rows = rows.set_column(0, "id", pyarrow.array([7] * len(rows)))
    parquet.write_table(rows, "same.parquet")
    assert bylaw("decide", "p.json", "same.parquet", "-o", "d.csv").code == 0


def test_a_refit_and_a_row_by_its_id_need_ids_that_tell_rows_apart(policy, bylaw):
    rows = parquet.read_table("new.parquet").to_pandas()
    rows.loc[1, "id"] = 0
    parquet.write_table(pyarrow.Table.from_pandas(rows, preserve_index=False), "twice.parquet")
    answer = bylaw("refit", "policy.json", "twice.parquet", "--churn", "0.1", "-o", "p.json")
    assert (answer.code, "ids must be unique, got 0 on" in answer.err) == (2, True)
    explained = bylaw("explain", "policy.json", "twice.parquet", "--id", "0")
    assert (explained.code, "several rows with the id '0'" in explained.err) == (2, True)


@pytest.mark.parametrize(
    ("parts", "rises"),
    [
        ([[1, 2], [3]], True),
        ([[1, 2], [2]], False),
        ([[2, 1]], False),
        ([["a"], ["b", "c"]], True),
        ([["b", None]], False),
        ([[None]], False),
        ([[1], ["2"]], False),
        ([[], [5]], True),
    ],
)
def test_order(parts, rises):
    order = IdOrder()
    for part in parts:
        order.add(pyarrow.array(part))
    assert (order.rises, order.rows) == (rises, sum(map(len, parts)))
