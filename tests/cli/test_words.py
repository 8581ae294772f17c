"""What commands tell people: prices in points, referrals beside costs, one meaning of each option."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Policy
from bylaw.cli.commands.fit import _name_churn

RULES = ("--rule", "demographic_parity('sex', tol=0.02)", "--rule", "rejected() <= 0.1")


def test_prices_are_told_in_points(folder, bylaw):
    text = bylaw("fit", "scores.parquet", *RULES, "-o", "p.json").out
    assert "one more point saves" in text
    price = Policy.load("p.json").prices["rejected() <= 0.1"]
    (line,) = [line for line in text.splitlines() if line.startswith("rejected() <= 0.1")]
    saved = float(re.search(r"([\d.]+)\s+points of error", line)[1])
    assert saved == pytest.approx(price, abs=0.006)  # in points of error per point of rejections
    assert "one more point saves" in bylaw("show", "p.json").out
    curve = bylaw("frontier", "scores.parquet", *RULES[2:], "--levels", "0.05,0.1").out
    assert "one more point of level in rejected() <= level saves 0.1 points of error()" in curve
    for said in (text, curve, bylaw("fit", "--help").out):
        assert "unit of slack" not in said


def test_a_cost_that_is_no_share_is_told_in_units(folder, bylaw):
    rules = ("--minimize", "cost([[0, 50], [20, 0]])", "--rule", "rejected() <= 0.1")
    text = bylaw("fit", "scores.parquet", *rules, "-o", "p.json").out
    (line,) = [line for line in text.splitlines() if line.startswith("rejected() <= 0.1")]
    assert "points" not in line


@pytest.mark.slow
def test_an_error_that_falls_with_referrals_says_so_in_its_line(folder, bylaw):
    fit = bylaw("fit", "scores.parquet", *RULES, "-o", "p.json")
    (line,) = [line for line in fit.out.splitlines() if "without rules" in line]
    assert line.endswith("with rules, with 10 % of cases referred.")
    told = json.loads(bylaw("fit", "scores.parquet", *RULES, "-o", "p.json", "--json").out)
    assert told["referred"] == pytest.approx(0.1, abs=1e-4)
    audit = bylaw("audit", "p.json", "held.parquet").out
    (line,) = [line for line in audit.splitlines() if "without rules" in line]
    assert re.search(r"with rules, with \d+\.?\d* % of cases referred$", line)
    refit = bylaw("refit", "p.json", "new.parquet", "-o", "q.json").out
    assert re.search(r"new one, with [\d.]+ % and 10 % of cases referred; [\d.]+% of decisions change", refit)
    plain = bylaw("fit", "scores.parquet", *RULES[:2], "-o", "p.json")
    assert "referred" not in plain.out
    scanned = bylaw("fit", "scores.parquet", *RULES, "--scan", "-o", "p.json")
    assert "with 10 % of cases referred." in scanned.out


@pytest.mark.parametrize("command", [["fit", "-o", "p.json"], ["frontier"], ["diagnose"], ["studio"]])
def test_probabilities_are_what_decide_writes_and_no_columns(command, folder, bylaw):
    name, *others = command
    answer = bylaw(name, "scores.parquet", *others, *RULES, "--probabilities", "p_*")
    assert (answer.code, "use --scores, as in --scores 'p_*'" in answer.err) == (2, True)
    assert "--probabilities" not in bylaw(name, "--help").out


def test_probabilities_of_decisions_share_no_name_with_scores(policy, bylaw):
    assert bylaw("decide", "policy.json", "new.parquet", "-o", "d.parquet", "--probabilities").code == 0
    written = set(parquet.read_table("d.parquet").column_names)
    assert written & set(parquet.read_table("new.parquet").column_names) == {"id"}
    # Joined to the scores, they are not taken for classes.
    joined = parquet.read_table("new.parquet").to_pandas().merge(parquet.read_table("d.parquet").to_pandas())
    joined.to_parquet("joined.parquet")
    assert bylaw("fit", "joined.parquet", *RULES, "-o", "p.json").code == 0
    assert Policy.load("p.json").actions == ("no", "yes", "reject")


@pytest.mark.slow
def test_the_margin_of_the_classifier_can_be_asked_for(folder, bylaw):
    assert bylaw("fit", "scores.parquet", *RULES, "-o", "auto.json", "--margin", "auto").code == 0
    (folder / "auto.toml").write_text(
        'rules = ["demographic_parity(\'sex\', tol=0.02)", "rejected() <= 0.1"]\n[solve]\nmargin = "auto"\n'
    )
    assert bylaw("fit", "scores.parquet", "--rules", "auto.toml", "-o", "file.json").code == 0
    assert bylaw("fit", "scores.parquet", *RULES, "-o", "none.json").code == 0
    auto, file, none = (Policy.load(f"{name}.json") for name in ("auto", "file", "none"))
    np.testing.assert_array_equal(auto.score_matrix, file.score_matrix)
    assert max(auto.tightened.values()) > max(none.tightened.values())
    for wrong in ("wide", "-1", "nan"):
        assert bylaw("fit", "scores.parquet", *RULES, "-o", "p.json", "--margin", wrong).code == 2
    assert "ConstrainedClassifier" in bylaw("fit", "--help").out


@pytest.mark.slow
def test_a_frontier_goes_by_labels_as_a_fit_does(folder, bylaw):
    fitted = json.loads(bylaw("fit", "scores.parquet", *RULES, "-o", "p.json", "--json").out)
    sweep = ("--sweep", "rejected() <= 0.1", "--levels", "0.1")
    (point,) = json.loads(bylaw("frontier", "scores.parquet", *RULES, *sweep, "--json").out)
    assert point["cost"] == pytest.approx(fitted["cost_after"], abs=2e-4)
    assert point["price of rejected() <= level"] == pytest.approx(
        fitted["prices"]["rejected() <= 0.1"], rel=0.02
    )


@pytest.mark.slow
def test_the_table_of_an_explanation_fits_80_columns(folder, bylaw, monkeypatch):
    """Six classes of long names, five groups."""
    rng = np.random.default_rng(0)
    names = ["honors", "advanced", "regular", "remedial", "vocational", "withdrawn early"]
    scores = np.exp(rng.normal(size=(1000, 6)))
    rows = {f"p_{n}": c for n, c in zip(names, (scores / scores.sum(axis=1, keepdims=True)).T, strict=True)}
    table = {**rows, "race": rng.choice(list("abcde"), 1000).tolist(), "id": np.arange(1000)}
    parquet.write_table(pyarrow.table(table), "many.parquet")
    rules = ("--rule", "demographic_parity('race', tol=0.01)", "--rule", "rejected() <= 0.2")
    assert bylaw("fit", "many.parquet", *rules, "-o", "p.json").code == 0
    monkeypatch.setattr("bylaw.cli.console._out._width", 80)
    for row in range(20):
        text = bylaw("explain", "p.json", "many.parquet", "--row", row).out
        assert max(map(len, text.splitlines())) <= 80, text
        assert "demographic_parity('race', tol=0.01)" in text
        told = json.loads(bylaw("explain", "p.json", "many.parquet", "--row", row, "--json").out)
        assert told["before"] != "reject"
        assert told["before"] == names[int(np.argmax([rows[f"p_{n}"][row] for n in names]))]
        lines = text.splitlines()
        for action in (told["before"], told["after"]):
            assert any(line.startswith(f"{action} ") for line in lines)


def test_churn_has_the_name_of_its_flag():
    column = "  custom('changed') <= 0.05   can reach 0.2\n  rejected() <= 0.1           can reach 0.3"
    told = _name_churn(column)
    assert told.splitlines()[0].index("can") == told.splitlines()[1].index("can")
    assert told.startswith("  --churn 0.05 ")
    assert _name_churn("the rule \"custom('changed') <= 0.05\" cannot") == 'the rule "--churn 0.05" cannot'


@pytest.mark.slow
def test_a_conflict_with_churn_names_it(policy, bylaw):
    """A tenth is rejected so far, and may not be any more."""
    rule = ("--rule", "rejected() <= 0.02")
    answer = bylaw("refit", "policy.json", "new.parquet", *rule, "--churn", "0.001", "-o", "q.json")
    assert answer.code == 1
    assert "--churn 0.001" in answer.err
    assert "custom('changed')" not in answer.err


def test_lines_end_between_words_on_a_terminal_and_nowhere_else(monkeypatch, capsys):
    from rich.console import Console

    from bylaw.cli import console

    text = "error() is 0.1 without rules, 0.07 with them, with 10 % of cases referred, as was asked for above"
    monkeypatch.setattr(console, "_out", Console(width=80, force_terminal=True, soft_wrap=True))
    console.tell(text)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert " ".join(line.strip() for line in lines) == text
    monkeypatch.setattr(console, "_out", Console(width=80, soft_wrap=True))
    console.tell(text)
    assert capsys.readouterr().out == f"{text}\n"
