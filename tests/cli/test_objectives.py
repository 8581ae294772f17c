"""What is minimised, and how, on the command line: the worst group, and decisions without chance."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet
import pytest

from bylaw import Evidence, Policy, Problem, rejected, solve, worst
from bylaw.language import error

WORST = """\
minimize = "worst(error(), by='sex')"
rules = ["rejected() <= 0.1"]
[columns]
groups = ["sex"]
"""


@pytest.mark.slow
def test_the_worst_group_from_a_rules_file(folder, bylaw):
    (folder / "worst.toml").write_text(WORST)
    answer = bylaw("fit", "scores.parquet", "--rules", "worst.toml", "-o", "p.json", "--report", "r.html")
    assert answer.code == 0, answer.err
    table = pyarrow.parquet.read_table("scores.parquet").to_pandas()
    evidence = Evidence(
        table[["p_no", "p_yes"]].to_numpy(), classes=["no", "yes"], groups={"sex": table["sex"]}
    )
    labels = table["outcome"].to_numpy()
    own = solve(Problem(worst(error(), by="sex"), [rejected() <= 0.1]), evidence, labels=labels)
    saved = Policy.load("p.json")
    assert np.allclose(saved.score_matrix, own.score_matrix)
    for one, other in zip(saved.group_rates, own.group_rates, strict=True):  # two digits in a file
        assert (one.group, one[1:]) == (other.group, pytest.approx(other[1:], rel=0.05))
    for one in own.group_rates:
        assert str(one) in answer.out
    page = (folder / "r.html").read_text()
    assert "in the worst group by sex as small as these rules allow" in page
    assert "The share of all cases that are answered wrongly, group by group" in page
    assert "of the worst group’s error" in page
    shown = bylaw("show", "p.json")
    assert "sex='F': " in shown.out
    facts = json.loads(bylaw("show", "p.json", "--json").out)
    assert [one["group"] for one in facts["group_rates"]] == [{"sex": "F"}, {"sex": "M"}]
    audited = bylaw("audit", "p.json", "new.parquet")
    assert "worst(error(), by='sex')" in audited.out
    swept = bylaw(
        "frontier", "scores.parquet", "--rules", "worst.toml",
        "--sweep", "rejected()<=0.1", "--levels", "0:0.2:3",
    )  # fmt: skip
    assert "worst(error(), by='sex')" in swept.out, swept.err


def test_a_scan_refuses_it_with_a_sentence(folder, bylaw):
    (folder / "worst.toml").write_text(WORST)
    answer = bylaw("fit", "scores.parquet", "--rules", "worst.toml", "-o", "p.json", "--scan")
    assert answer.code != 0
    told = " ".join(answer.err.split())
    assert "must be solved with all rows in memory" in told
    assert "pass --in-memory" in told
    assert "rows.sample" not in told
    answer = bylaw(
        "fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--scan", "--deterministic"
    )
    told = " ".join(answer.err.split())
    assert "deterministic must be False for scanned rows" in told
    assert "pass --in-memory" in told


@pytest.mark.slow
def test_decisions_without_chance(folder, bylaw):
    fit = ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--report", "r.html"]
    answer = bylaw(*fit, "--deterministic")
    assert answer.code == 0, answer.err
    assert "deterministic decisions: they cost" in answer.out
    saved = Policy.load("p.json")
    assert saved.deterministic
    assert "Decisions are deterministic" in (folder / "r.html").read_text()
    assert "deterministic decisions" in bylaw("show", "p.json").out
    for key in ("one key of sixteen characters", "another key of as many characters"):
        assert bylaw("decide", "p.json", "new.parquet", "-o", "d.csv", "--key", key).code == 0
        decided = (folder / "d.csv").read_text()
    assert bylaw("decide", "p.json", "new.parquet", "-o", "e.csv").code == 0
    assert (folder / "e.csv").read_text() == decided
    (folder / "hard.toml").write_text((folder / "rules.toml").read_text() + "[solve]\ndeterministic = true\n")
    bylaw("fit", "scores.parquet", "--rules", "hard.toml", "-o", "q.json")
    assert Policy.load("q.json").digest == saved.digest
    (folder / "bad.toml").write_text("[solve]\ndeterministic = 'never'\n")
    refused = bylaw("fit", "scores.parquet", "--rules", "bad.toml", "-o", "q.json")
    assert "deterministic must be true or false" in refused.err


def test_rules_lists_it(bylaw):
    text = bylaw("rules").out
    assert "worst(error(), by='race')" in text
    assert "deterministic = true" in text
