"""Tables of which some cells of labels or true groups are empty."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Policy
from bylaw.rows import write_table
from bylaw.studio import StudioServer

RULE = ["--rule", "error() <= 0.25", "--minimize", "rejected()"]


def hide(rows, name, share=0.4, seed=0):
    """The table with a random part of a column's cells empty."""
    shown = np.random.default_rng(seed).random(len(rows)) < share
    values = [v if k else None for v, k in zip(rows[name].to_pylist(), shown, strict=True)]
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, name, pyarrow.array(values, rows.schema.field(name).type)), shown


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_labels_of_some_rows(folder, bylaw, ending):
    rows, shown = hide(parquet.read_table("scores.parquet"), "outcome")
    write_table(folder / f"some.{ending}", rows)
    fit = ["fit", f"some.{ending}", *RULE, "--label", "outcome", "--group", "sex", "-o", "p.json"]
    found = json.loads(bylaw(*fit, "--json").out)
    assert found["seen_rows"] == {"outcome": int(shown.sum())}
    assert found["cost_observed"]
    new, seen = hide(parquet.read_table("new.parquet"), "outcome", seed=1)
    write_table(folder / f"held.{ending}", new)
    judged = json.loads(bylaw("audit", "p.json", f"held.{ending}", "--label", "outcome", "--json").out)
    assert judged["seen_rows"] == {"label": int(seen.sum())}
    assert judged["rules"][0]["judged_rows"] == int(seen.sum())
    text = bylaw("audit", "p.json", f"held.{ending}", "--label", "outcome").out
    assert f"label is observed on {seen.sum():,} of 2,000 rows" in text
    page = ["report", "p.json", f"some.{ending}", "--held-out", f"held.{ending}", "-o", "r.html"]
    assert bylaw(*page).code == 0
    assert "as observed on" in (folder / "r.html").read_text()


@pytest.mark.slow
def test_weights_of_being_seen_in_a_column(folder, bylaw):
    rows, shown = hide(parquet.read_table("scores.parquet"), "outcome")
    weights = [1.0 + i % 3 if k else None for i, k in enumerate(shown)]
    parquet.write_table(rows.append_column("odds", pyarrow.array(weights)), "some.parquet")
    fit = ["fit", "some.parquet", *RULE, "--label", "outcome"]
    assert bylaw(*fit, "-o", "plain.json").code == 0
    assert bylaw(*fit, "--propensity-weights", "odds", "-o", "p.json").code == 0
    assert Policy.load("p.json").digest != Policy.load("plain.json").digest
    assert Policy.load("p.json").card.columns["propensity_weights"] == "odds"
    assert "propensity_weights" not in Policy.load("plain.json").card.columns
    (folder / "rules.toml").write_text(
        "rules = ['error() <= 0.25']\nminimize = 'rejected()'\n[columns]\nlabel = 'outcome'\n"
        "propensity_weights = 'odds'\n"
    )
    assert bylaw("fit", "some.parquet", "--rules", "rules.toml", "-o", "file.json").code == 0
    assert Policy.load("file.json").multipliers == Policy.load("p.json").multipliers
    audit = [
        "audit",
        "p.json",
        "some.parquet",
        "--fitted-rows",
        "estimate",
        "--json",
    ]  # the column is remembered
    assert not json.loads(bylaw(*audit).out)["seen_at_random"]
    assert bylaw("decide", "p.json", "new.parquet", "-o", "d.csv").code == 0
    assert bylaw("audit", "p.json", "new.parquet", "--label", "outcome").code in (0, 1, 2)
    idle = bylaw(
        "fit", "scores.parquet", *RULE, "--label", "outcome", "--propensity-weights", "p_no", "-o", "x.json"
    )
    assert idle.code == 2
    assert "--propensity-weights has no effect, because no label or group is missing" in idle.err
    nowhere = bylaw(*fit, "--propensity-weights", "nowhere", "-o", "x.json")
    assert "no column 'nowhere'" in nowhere.err


def test_true_groups_of_some_rows(folder, bylaw):
    rows, shown = hide(parquet.read_table("scores.parquet"), "sex")
    female = np.clip(np.array(rows["p_yes"]), 0.1, 0.9)
    for name, column in {"sex_F": female, "sex_M": 1 - female}.items():
        rows = rows.append_column(name, pyarrow.array(column))
    parquet.write_table(rows, "hidden.parquet")
    fit = ["fit", "hidden.parquet", "--rule", "demographic_parity('sex', tol=0.02)", "-o", "p.json"]
    columns = ["--group-probabilities", "sex=sex_*", "--true-group", "sex=sex", "--label", "outcome"]
    answer = bylaw(*fit, *columns)
    assert answer.code == 0
    assert f"sex is observed on {shown.sum():,} of them" in answer.out
    known = bylaw(*fit, "--group", "sex=sex", "--label", "outcome")
    assert known.code == 2
    assert "missing values" in known.err


def test_a_column_of_labels_without_any(folder, bylaw):
    rows, _ = hide(parquet.read_table("scores.parquet"), "outcome", share=0.0)
    parquet.write_table(rows, "none.parquet")
    answer = bylaw("fit", "none.parquet", "--rule", "rejected() <= 0.1", "--label", "outcome", "-o", "p.json")
    assert answer.code == 0
    assert "the column 'outcome' has no values and is ignored" in answer.err
    assert "predicted" in answer.out


def test_the_studio_refuses_weights_that_have_no_effect(folder, bylaw, monkeypatch):
    monkeypatch.setattr(StudioServer, "serve_here", lambda server: server.socket.close())
    begin = ["studio", "scores.parquet", *RULE, "--label", "outcome", "--no-browser"]
    assert bylaw(*begin).code == 0
    idle = bylaw(*begin, "--propensity-weights", "p_no")
    assert idle.code != 0
    assert "--propensity-weights has no effect, because no label or group is missing" in idle.err
