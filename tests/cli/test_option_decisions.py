"""Decisions that are no labels, on the command line: experts beside a model, and models to call."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pyarrow.parquet as parquet
import pytest

from bylaw import Columns, Policy
from helpers.reported import parsed

ROUTING = """\
minimize = "custom('wrong')"
rules = ["custom('usd') <= 0.008", "demographic_parity('lang', tol=0.02)"]
decisions = ["small", "mid", "large"]
"""
EXPERTS = """\
minimize = "error() + 0.2 * selected('junior')"
rules = ["selected('senior') <= 0.05", "disagreement('old') <= 0.5"]
decisions = ["no", "yes", "junior", "senior"]
[columns]
label = "outcome"
"""
NAMES = ["small", "mid", "large"]


def make_routes(n, seed):
    rng = np.random.default_rng(seed)
    wrong = rng.uniform(size=(n, 3)) * [0.6, 0.4, 0.2]
    seen = (rng.random((n, 3)) < wrong).astype(float)
    costs = {f"wrong_{name}": wrong[:, k] for k, name in enumerate(NAMES)}
    costs |= {f"usd_{name}": np.full(n, usd) for name, usd in zip(NAMES, [0.001, 0.01, 0.03], strict=True)}
    costs |= {f"seen_{name}": seen[:, k] for k, name in enumerate(NAMES)}
    return pandas.DataFrame({"id": np.arange(n), "lang": rng.choice(["en", "fr"], n), **costs})


def read_page(path):
    """Its words, with plain spaces."""
    return " ".join(parsed(path.read_text(encoding="utf-8")).words().split())


@pytest.fixture
def routes(tmp_path, monkeypatch, bylaw):
    monkeypatch.chdir(tmp_path)
    make_routes(1000, 0).to_csv("calls.csv", index=False)
    make_routes(3000, 1).to_parquet("new.parquet")
    (tmp_path / "rules.toml").write_text(ROUTING)
    answer = bylaw("fit", "calls.csv", "--rules", "rules.toml", "-o", "policy.json", "--report", "page.html")
    assert answer.code == 0, answer.err
    return tmp_path


@pytest.mark.slow
def test_routes_from_a_table_of_costs(routes, bylaw):
    policy = Policy.load("policy.json")
    assert policy.actions == tuple(NAMES)
    answer = bylaw("decide", "policy.json", "new.parquet", "-o", "d.parquet")
    assert answer.code == 0, answer.err
    costs = {name: [f"{name}_{option}" for option in NAMES] for name in ("wrong", "usd")}
    columns = Columns(groups={"lang": "lang"}, costs=costs, options=NAMES)
    expected = policy.decide(columns.evidence(pandas.read_parquet("new.parquet")), ids=range(3000))
    assert parquet.read_table("d.parquet")["decision"].to_pylist() == expected.tolist()
    page = read_page(routes / "page.html")
    assert "gives one of 3 options (“small”, “mid” or “large”)." in page
    assert "The average “usd” is at most 0.008." in page
    assert "Sent to “large”" in page
    shown = json.loads(bylaw("show", "policy.json", "--json").out)
    assert (shown["kind"], shown["actions"]) == ("options", NAMES)


@pytest.mark.slow
def test_routes_are_audited_by_outcomes(routes, bylaw):
    limits = ["--limit", "usd=0:0.03", "--outcomes", "usd=known"]
    answer = bylaw("audit", "policy.json", "new.parquet", *limits, "--json")
    first = json.loads(answer.out)["rules"][0]
    assert first["rule"] == "custom('usd') <= 0.008"
    assert first["verdict"] in ("undecided", "certified")
    more = ["--rule", "custom('wrong') <= 0.5", "--limit", "wrong=0:1", "--outcomes", "wrong=seen_*"]
    answer = bylaw("audit", "policy.json", "new.parquet", *more, "--json")
    assert json.loads(answer.out)["rules"][0]["verdict"] == "certified", answer.err


@pytest.mark.slow
def test_routes_are_explained_and_exported(routes, bylaw):
    answer = bylaw("explain", "policy.json", "new.parquet", "--row", "0", "--json")
    assert answer.code == 0, answer.err
    assert [line["action"] for line in json.loads(answer.out)["actions"]] == NAMES
    for kind in (
        ["sql", "policy.json", "--dialect", "duckdb"],
        ["python", "policy.json"],
        ["onnx", "policy.json"],
    ):
        answer = bylaw("export", *kind, "-o", f"exported.{kind[0]}")
        assert answer.code == 0, answer.err
    assert bylaw("frontier", "calls.csv", "--rules", "rules.toml", "--levels", "0.004,0.008").code == 0
    assert bylaw("diagnose", "calls.csv", "--rules", "rules.toml").code == 0


@pytest.mark.slow
def test_scanned_tables_give_the_same_policy(routes, bylaw):
    answer = bylaw("fit", "calls.csv", "--rules", "rules.toml", "-o", "scanned.json", "--scan")
    assert answer.code == 0, answer.err
    one, other = Policy.load("policy.json"), Policy.load("scanned.json")
    assert other.solution.value == pytest.approx(one.solution.value, abs=1e-9)


@pytest.mark.slow
def test_experts_beside_a_model(tmp_path, monkeypatch, bylaw):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    yes = rng.uniform(size=2000)
    frame = pandas.DataFrame({"id": np.arange(2000), "p_no": 1 - yes, "p_yes": yes})
    frame["old"] = rng.choice(["no", "yes", "senior"], 2000)
    frame["outcome"] = np.where(rng.random(2000) < yes, "yes", "no")
    frame.to_csv("scores.csv", index=False)
    (tmp_path / "rules.toml").write_text(EXPERTS)
    answer = bylaw("fit", "scores.csv", "--rules", "rules.toml", "-o", "policy.json", "--report", "page.html")
    assert answer.code == 0, answer.err
    assert Policy.load("policy.json").actions == ("no", "yes", "junior", "senior")
    assert bylaw("decide", "policy.json", "scores.csv", "-o", "d.csv").code == 0
    decided = pandas.read_csv("d.csv")["decision"].value_counts(normalize=True)
    assert decided["senior"] == pytest.approx(0.05, abs=0.02)
    page = read_page(tmp_path / "page.html")
    assert "At most 5 % of all cases get the decision “senior”." in page
    assert "or sends it to one of 2 options (“junior” or “senior”)" in page
    assert "Sent to “junior”" in page


def test_a_list_without_probabilities_or_costs_is_refused(tmp_path, monkeypatch, bylaw):
    monkeypatch.chdir(tmp_path)
    pandas.DataFrame({"a": [1, 2], "b": [2, 3]}).to_csv("t.csv", index=False)
    (tmp_path / "rules.toml").write_text('minimize = "custom(\'wrong\')"\ndecisions = ["a", "b"]\n')
    answer = bylaw("fit", "t.csv", "--rules", "rules.toml", "-o", "p.json")
    assert answer.code == 2
    assert "custom('wrong'), but there are no columns wrong_*" in answer.err
    (tmp_path / "rules.toml").write_text('minimize = "error()"\ndecisions = ["a", "a"]\n')
    answer = bylaw("fit", "t.csv", "--rules", "rules.toml", "-o", "p.json")
    assert "occurs twice" in answer.err
