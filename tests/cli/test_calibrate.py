"""bylaw fit --calibrate, and every command that reads such a policy."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Evidence, Policy
from helpers.command_line import table


@pytest.fixture
def sharp(folder):
    """The folder's tables with log-odds times eight."""
    for name in ("scores.parquet", "held.parquet"):
        rows = parquet.read_table(name)
        odds = 8 * np.log(rows["p_yes"].to_numpy() / rows["p_no"].to_numpy())
        yes = 1 / (1 + np.exp(-odds))
        for column, values in (("p_no", 1 - yes), ("p_yes", yes)):
            rows = rows.set_column(rows.column_names.index(column), column, pyarrow.array(values))
        parquet.write_table(rows, f"sharp_{name}")
    return folder


@pytest.fixture
def calibrated(sharp, bylaw):
    answer = bylaw(
        "fit", "sharp_scores.parquet", "--rules", "rules.toml", "--calibrate", "auto", "-o", "c.json"
    )
    assert answer.code == 0
    assert "calibrated: labels: temperature" in answer.out
    return "c.json"


def evidence(path):
    rows = parquet.read_table(path)
    scores = np.column_stack([rows["p_no"], rows["p_yes"]])
    return Evidence(scores, classes=["no", "yes"], groups={"sex": rows["sex"].to_pylist()})


@pytest.mark.slow
def test_the_scores_are_read_as_they_were_before_they_were_sharpened(calibrated, bylaw):
    policy = Policy.load(calibrated)
    assert policy.calibration is not None
    read = policy.calibrate(evidence("sharp_held.parquet")).probabilities
    assert np.abs(read - evidence("held.parquet").probabilities).max() < 0.05


@pytest.mark.slow
def test_decisions_are_the_policys(calibrated, bylaw):
    assert bylaw("decide", calibrated, "sharp_held.parquet", "-o", "decided.parquet").code == 0
    decided = parquet.read_table("decided.parquet")
    rows = evidence("sharp_held.parquet")
    wanted = Policy.load(calibrated).decide(rows, ids=decided["id"].to_numpy())
    assert decided["decision"].to_pylist() == wanted.tolist()


@pytest.mark.slow
def test_audit_and_show_and_explain(calibrated, bylaw):
    found = json.loads(bylaw("audit", calibrated, "sharp_held.parquet", "--json").out)
    line = next(one for one in found["reliability"] if one["value"] == "yes" and not one["among"])
    assert line["raw_unevenness"] > 3 * line["unevenness"]
    again = bylaw("audit", calibrated, "sharp_scores.parquet")
    assert again.code == 4
    assert "rows on which the policy was chosen" in again.err
    assert "calibration  labels: temperature" in bylaw("show", calibrated).out
    shown = json.loads(bylaw("show", calibrated, "--json").out)
    assert shown["calibration"]["labels"]["method"] == "temperature"
    why = json.loads(bylaw("explain", calibrated, "sharp_held.parquet", "--row", "3", "--json").out)
    policy = Policy.load(calibrated)
    chances = policy.probabilities(evidence("sharp_held.parquet"))[3]
    assert [one["probability"] for one in why["actions"]] == pytest.approx(chances.tolist())


def test_an_exported_module_decides_alike(calibrated, bylaw):
    assert bylaw("export", "python", calibrated, "-o", "rule.py").code == 0
    module = runpy.run_path("rule.py")
    rows = parquet.read_table("sharp_held.parquet").slice(0, 50)
    chances = Policy.load(calibrated).probabilities(evidence("sharp_held.parquet"))
    for row, wanted in zip(rows.to_pylist(), chances, strict=False):
        assert module["probabilities"](row) == pytest.approx(wanted.tolist(), abs=1e-9)


@pytest.mark.slow
def test_a_report_shows_reliability_before_and_after(calibrated, bylaw):
    answer = bylaw("report", calibrated, "sharp_scores.parquet", "-o", "page.html")
    assert answer.code == 0, answer.err
    page = Path("page.html").read_text(encoding="utf-8")
    assert "Open circles: the same before the policy’s calibration." in page


@pytest.mark.slow
def test_a_rules_file_may_ask_for_it(sharp, bylaw):
    (sharp / "c.toml").write_text('rules = "rejected() <= 0.1"\n[solve]\ncalibrate = "temperature"\n')
    fit = ("fit", "sharp_scores.parquet", "--rules", "c.toml", "-o", "c.json", "--json")
    assert json.loads(bylaw(*fit).out)["calibration"] == "labels: temperature"
    assert json.loads(bylaw(*fit, "--calibrate", "none").out)["calibration"] is None
    cost = json.loads(bylaw(*fit).out)["cost_after"]
    curve = bylaw("frontier", "sharp_scores.parquet", "--rules", "c.toml", "--levels", "0.1", "--json")
    assert json.loads(curve.out)[0]["cost"] == pytest.approx(cost, abs=1e-4)
    (sharp / "bad.toml").write_text('rules = "rejected() <= 0.1"\n[solve]\ncalibrate = "platt"\n')
    answer = bylaw("fit", "sharp_scores.parquet", "--rules", "bad.toml", "-o", "c.json")
    assert answer.code == 2
    assert "calibrate must be one of" in answer.err


def test_what_cannot_be_calibrated_is_refused(folder, bylaw):
    bare = table(200, 0).drop_columns(["outcome"])
    parquet.write_table(bare, "bare.parquet")
    rule = ("--rule", "rejected() <= 0.1", "-o", "c.json")
    answer = bylaw("fit", "bare.parquet", *rule, "--calibrate", "auto")
    assert answer.code == 2
    assert "--label COLUMN" in answer.err
    answer = bylaw("fit", "scores.parquet", *rule, "--calibrate", "platt")
    assert answer.code == 2
    assert "calibrate must be one of" in answer.err
