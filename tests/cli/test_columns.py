"""Which columns commands read: remembered by a policy, said later, or found by name."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Columns, Evidence, Policy, Problem, solve
from bylaw.rows import TableFile
from bylaw.rows._table_files import open_writer


@pytest.mark.slow
def test_ids_in_csv_keep_their_text(policy, folder, bylaw):
    rows = parquet.read_table("new.parquet")
    ids = [f"{i:06d}" for i in range(2000)]
    rows = rows.set_column(0, "id", pyarrow.array(ids))
    for ending in ("parquet", "csv", "jsonl"):
        with open_writer(folder / f"t.{ending}", rows.schema) as write:
            for batch in rows.to_batches():
                write(batch)
        assert bylaw("decide", "policy.json", f"t.{ending}", "-o", f"d.{ending}").code == 0
    expected = parquet.read_table("d.parquet").to_pydict()
    assert expected["id"] == ids
    for ending in ("csv", "jsonl"):
        assert TableFile(folder / f"d.{ending}", text=("id",)).read().to_pydict() == expected


def test_a_policy_of_python_meets_its_own_columns(folder, bylaw):
    """Classes in another order than the table's columns, and no columns remembered."""
    rows, new = parquet.read_table("scores.parquet"), parquet.read_table("new.parquet")
    columns = Columns(["p_yes", "p_no"], ["yes", "no"], groups={"sex": "sex"})
    problem = Problem("error()", ["demographic_parity('sex', tol=0.02)", "rejected() <= 0.1"])
    mine = solve(problem, columns.evidence(rows))
    mine.save("api.json")
    parquet.write_table(
        new.append_column("sex_x", new["p_no"]).append_column("sex_y", new["p_yes"]), "odd.parquet"
    )
    assert bylaw("decide", "api.json", "odd.parquet", "-o", "d.parquet").code == 0
    expected = mine.decide(columns.evidence(new), ids=range(2000))
    assert parquet.read_table("d.parquet")["decision"].to_pylist() == expected.tolist()
    assert bylaw("export", "sql", "api.json", "--dialect", "duckdb", "-o", "p.sql").code == 0
    renamed = new.rename_columns(["id", "p_a", "p_b", "sex", "outcome"])
    parquet.write_table(renamed, "renamed.parquet")
    answer = bylaw("decide", "api.json", "renamed.parquet", "-o", "x.parquet")
    assert answer.code == 2
    assert "in the order of the classes" in answer.err


@pytest.mark.slow
def test_a_column_may_have_another_name_later(policy, bylaw):
    rows = parquet.read_table("new.parquet")
    parquet.write_table(rows.rename_columns(["id", "p_no", "p_yes", "gender", "truth"]), "renamed.parquet")
    bylaw("decide", "policy.json", "new.parquet", "-o", "one.csv")
    missing = bylaw("decide", "policy.json", "renamed.parquet", "-o", "two.csv")
    assert missing.code == 2
    assert "no column 'sex'" in missing.err
    assert (
        bylaw("decide", "policy.json", "renamed.parquet", "--group", "sex=gender", "-o", "two.csv").code == 0
    )
    assert policy.with_name("one.csv").read_text() == policy.with_name("two.csv").read_text()
    answer = bylaw(
        "audit", "policy.json", "renamed.parquet", "--group", "sex=gender", "--label", "truth", "--json"
    )
    assert json.loads(answer.out)["cost_observed"]


def test_unknown_groups_with_a_joint_survive_a_policy(folder, bylaw):
    """Group probabilities, joint probabilities, an earlier model and costs, from a fit to other rows."""
    rows = parquet.read_table("scores.parquet").drop(["outcome"])
    yes, female = np.array(rows["p_yes"]), np.where(np.array(rows["sex"]) == "F", 0.8, 0.3)
    columns = {"sex_F": female, "sex_M": 1 - female, "old": np.where(yes > 0.4, "yes", "no").tolist()}
    for value, share in (("F", female), ("M", 1 - female)):
        columns |= {f"j_{value}_no": share * (1 - yes), f"j_{value}_yes": share * yes}
    for name, column in columns.items():
        rows = rows.append_column(name, pyarrow.array(column))
    parquet.write_table(rows.drop(["sex"]), "hidden.parquet")
    (folder / "hidden.toml").write_text(
        "rules = [\"equalized_odds('sex', tol=0.05)\", \"disagreement('old') <= 0.1\"]\n"
        "[columns]\njoint = { sex = 'j_*_*' }\ngroup_probabilities = { sex = 'sex_*' }\n"
    )
    assert bylaw("fit", "hidden.parquet", "--rules", "hidden.toml", "-o", "p.json").code == 0
    assert bylaw("decide", "p.json", "hidden.parquet", "-o", "d.parquet", "--probabilities").code == 0
    distribution = Policy.load("p.json").probabilities(
        Evidence(
            np.column_stack([1 - yes, yes]),
            classes=["no", "yes"],
            groups={"sex": {"F": female, "M": 1 - female}},
            joint={
                "sex": np.stack(
                    [np.column_stack([s * (1 - yes), s * yes]) for s in (female, 1 - female)], axis=1
                )
            },
            references={"old": columns["old"]},
        )
    )
    np.testing.assert_array_equal(parquet.read_table("d.parquet")["decision_p_yes"], distribution[:, 1])
    table = parquet.read_table("hidden.parquet")
    parquet.write_table(table.select(table.column_names[::-1]), "turned.parquet")
    said = ["--group-probabilities", "sex=sex_*"]
    assert bylaw("decide", "p.json", "turned.parquet", *said, "-o", "e.parquet", "--probabilities").code == 0
    assert parquet.read_table("e.parquet").equals(parquet.read_table("d.parquet"))


def test_flags_and_the_rules_file_add_up(folder, bylaw):
    rows = parquet.read_table("scores.parquet").rename_columns(["id", "p_no", "p_yes", "gender", "outcome"])
    rows = rows.append_column("origin", pyarrow.array(["a", "b", "c"] * 1000))
    parquet.write_table(rows, "two.parquet")
    (folder / "two.toml").write_text(
        "rules = [\"demographic_parity(['sex', 'race'], tol=0.05)\"]\n"
        "[columns]\ngroups = { race = 'origin' }\n"
    )
    assert (
        bylaw("fit", "two.parquet", "--rules", "two.toml", "--group", "sex=gender", "-o", "p.json").code == 0
    )
    assert Policy.load("p.json").card.columns["groups"] == {"race": "origin", "sex": "gender"}


@pytest.mark.slow
def test_weights_count_only_where_the_fit_had_them(policy, folder, bylaw):
    rows = parquet.read_table("held.parquet")
    heavy = pyarrow.array(np.where(np.array(rows["sex"]) == "F", 9.0, 1.0))
    parquet.write_table(rows.append_column("weight", heavy), "weighted.parquet")
    plain, weighted = (
        json.loads(bylaw("audit", "policy.json", f"{name}.parquet", "--json", *more).out)["cost_after"]
        for name, more in (("weighted", []), ("weighted", ["--weight", "weight"]))
    )
    assert plain == json.loads(bylaw("audit", "policy.json", "held.parquet", "--json").out)["cost_after"]
    assert weighted != plain


@pytest.mark.slow
def test_rows_that_certify_need_no_labels_where_no_rule_speaks_of_them(folder, bylaw):
    parquet.write_table(parquet.read_table("held.parquet").drop(["outcome"]), "bare.parquet")
    fit = ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--certify"]
    assert bylaw(*fit, "bare.parquet").code == 0
    assert Policy.load("p.json").certificate.rows == 40_000
    parquet.write_table(parquet.read_table("bare.parquet").drop(["sex"]), "barer.parquet")
    answer = bylaw(*fit, "barer.parquet")
    assert answer.code == 2
    assert "barer.parquet has no column 'sex'" in answer.err
