"""Folders and patterns where a command takes a table, in memory, scanned or sampled."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest

from bylaw import Policy
from bylaw.engines import _scan as scan

FIT = ("--rules", "rules.toml", "-o", "many.json")


def cut(name, ending="parquet", folder=None):
    """The rows of a table as three files, one of them in a subfolder."""
    rows, folder = parquet.read_table(f"{name}.parquet"), folder or name
    third = len(rows) // 3
    for i, place in enumerate(("a", "b", "more/a")):
        part = rows.slice(i * third, third if i < 2 else None)
        path = f"{folder}/{place}.{ending}"
        (pyarrow.csv.write_csv if ending == "csv" else parquet.write_table)(part, path)


@pytest.fixture
def many(folder):
    for name in ("scores", "new", "held"):
        (folder / name / "more").mkdir(parents=True)
        cut(name)
    (folder / "scores" / "_SUCCESS").touch()
    return folder


def same(one, other):
    np.testing.assert_allclose(Policy.load(one).score_matrix, Policy.load(other).score_matrix, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["scores", "scores/**/*.parquet"])
@pytest.mark.parametrize("how", ["--in-memory", "--scan"])
def test_fit_on_many_files_is_that_on_one(source, how, many, policy, bylaw):
    answer = bylaw("fit", source, *FIT, how, "--json")
    alone = bylaw("fit", "scores.parquet", *FIT[:2], "-o", "one.json", "--json")
    assert answer.code == 0, answer.err
    same("many.json", "one.json")
    found, wanted = json.loads(answer.out), json.loads(alone.out)
    assert found["rows"] == 3000
    assert found["cost_observed"] is True
    assert found["seen_rows"] == {}
    for name in ("cost_before", "cost_after"):
        assert found[name] == pytest.approx(wanted[name], abs=1e-5)
    assert Policy.load("many.json").card.source == source.split("/")[-1]


@pytest.mark.slow
def test_fit_on_csv_with_groups_of_two_spellings(many, bylaw):
    """Numbers in one file and text in another are text in both, scanned or not."""
    rows = parquet.read_table("scores.parquet")
    sexes = ["1" if sex == "F" else "x" for sex in rows["sex"].to_pylist()]
    rows = rows.set_column(3, "sex", pyarrow.array(sexes)).sort_by("sex")
    (many / "text").mkdir()
    split = sexes.count("1")
    for name, part in (("a", rows.slice(0, split)), ("b", rows.slice(split))):
        pyarrow.csv.write_csv(part, f"text/{name}.csv")
    for how in ("--in-memory", "--scan"):
        assert bylaw("fit", "text", "--rules", "rules.toml", how, "-o", f"p{how}.json").code == 0
        assert Policy.load(f"p{how}.json").feature_map.attributes["sex"].values == ("1", "x")
    same("p--in-memory.json", "p--scan.json")


@pytest.mark.slow
def test_what_does_not_fit_is_scanned(many, bylaw, monkeypatch):
    monkeypatch.setattr(scan, "MOST_VALUES", 4 * 3000 - 1)
    answer = bylaw("fit", "scores", *FIT)
    assert answer.code == 0, answer.err
    assert "scores is too large for memory, so its rows are scanned" in answer.err
    assert "3,000 rows: error(), observed, is" in answer.out
    monkeypatch.setattr(scan, "MOST_VALUES", 4 * 3000)
    assert "scanned" not in bylaw("fit", "scores", *FIT).err


@pytest.mark.slow
def test_diagnosis_of_a_scan(many, bylaw):
    rules = ("--rule", "selected('no') <= 0.3", "--rule", "selected('yes') <= 0.6", "--minimize", "error()")
    command = ("diagnose", "scores", *rules[:4], "--json")
    scanned, read = bylaw(*command, "--scan"), bylaw(*command)
    assert scanned.code == read.code == 1
    one, other = json.loads(scanned.out), json.loads(read.out)
    assert one["conflict"] == other["conflict"]
    assert one["least_violation"] == pytest.approx(other["least_violation"], abs=1e-6)


@pytest.mark.slow
def test_reports_of_scans_go_by_a_sample(many, bylaw, monkeypatch):
    monkeypatch.setattr("bylaw.cli.commands.fit.SAMPLE_ROWS", 1000)
    answer = bylaw("fit", "scores", *FIT, "--scan", "--report", "r.html", "--held-out", "new")
    assert answer.code == 0, answer.err
    assert "the report uses a random sample of 1,000 rows" in answer.err
    assert "3,000 rows" in answer.out
    assert (many / "r.html").stat().st_size > 10_000


@pytest.mark.slow
def test_certificates_of_scans(many, bylaw, monkeypatch):
    answer = bylaw("fit", "scores", *FIT, "--scan", "--certify", "held")
    assert answer.code == 0, answer.err
    assert "tested on 40,000 held-out rows" in answer.out
    monkeypatch.setattr(scan, "MOST_VALUES", 100_000)
    refused = bylaw("fit", "scores", *FIT, "--certify", "held")
    assert refused.code == 2
    assert "held has about 40,000 rows, too many to read into memory" in refused.err
    assert bylaw("fit", "scores", *FIT, "--in-memory", "--certify", "held").code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--calibrate", "auto"], "a calibration needs rows in memory, but these rows are scanned"),
        (["--propensity-weights", "p_no"], "--propensity-weights needs rows in memory"),
    ],
)
def test_what_needs_rows_in_memory(options, message, many, bylaw):
    answer = bylaw("fit", "scores", *FIT, "--scan", *options)
    assert answer.code == 2
    assert message in answer.err
    assert not (many / "many.json").exists()


@pytest.mark.slow
def test_missing_labels_of_a_scan_are_refused(many, bylaw):
    rows = parquet.read_table("scores/b.parquet")
    labels = pyarrow.array([None, *rows["outcome"].to_pylist()[1:]])
    parquet.write_table(rows.set_column(4, "outcome", labels), "scores/b.parquet")
    answer = bylaw("fit", "scores", *FIT, "--scan")
    assert answer.code == 2
    assert "scores/b.parquet" in answer.err
    assert "'label' must be observed on all rows" in answer.err
    assert bylaw("fit", "scores", *FIT).code == 0


@pytest.mark.slow
def test_audits_of_samples(policy, many, bylaw, monkeypatch):
    """Decisions are sampled with their rows."""
    monkeypatch.setattr(scan, "MOST_VALUES", 100_000)
    assert bylaw("decide", "policy.json", "held", "--keep", "p_no", "-o", "log.parquet").code == 0
    log = parquet.read_table("held.parquet").append_column(
        "decision", parquet.read_table("log.parquet")["decision"]
    )
    (many / "log").mkdir()
    for i in range(2):
        parquet.write_table(log.slice(20_000 * i, 20_000), f"log/{i}.parquet", row_group_size=5000)
    command = ("audit", "policy.json", "log", "--decisions", "decision")
    refused = bylaw(*command)
    assert refused.code == 2
    assert "log has about 40,000 rows, too many to read into memory" in refused.err
    assert "--sample 1000000" in refused.err
    found = bylaw(*command, "--sample", "20000", "--json")
    assert "log: a random sample of 20,000 rows" in found.err
    content = json.loads(found.out)
    assert content["rows"] == 20_000
    # Of decisions of other rows, the error would be near one half.
    assert content["cost_after"] < 0.25
    again, other = (bylaw(*command, "--sample", "20000", "--seed", seed, "--json").out for seed in "01")
    assert json.loads(again)["cost_after"] == content["cost_after"] != json.loads(other)["cost_after"]


@pytest.mark.slow
def test_a_sample_of_one_batch_has_its_size(policy, folder, bylaw):
    answer = bylaw("audit", "policy.json", "held.parquet", "--sample", "5000", "--json")
    assert json.loads(answer.out)["rows"] == 5000
    assert "held.parquet: a random sample of 5,000 rows" in answer.err


@pytest.mark.slow
def test_samples_of_other_commands(policy, many, bylaw):
    levels = ("--rules", "rules.toml", "--levels", "0.1,0.2")
    assert bylaw("frontier", "scores", *levels, "--sample", "500").code == 0
    assert bylaw("report", "policy.json", "scores", "--sample", "500", "-o", "r.html").code == 0
    assert bylaw("explain", "policy.json", "new", "--row", "1500").code == 0
    assert (
        "--row must be below the number of rows of new, 2,000, got 2000"
        in bylaw("explain", "policy.json", "new", "--row", "2000").err
    )
    for options, message in (
        (("--seed", "1"), "--seed has no effect without --sample"),
        (("--sample", "0"), "--sample must be a number of rows, at least 1"),
        (("--sample", "9", "--seed", "-1"), "--seed must be a whole number of at least 0"),
    ):
        answer = bylaw("frontier", "scores", *levels, *options)
        assert answer.code == 2
        assert message in answer.err


@pytest.mark.parametrize("how", ["--in-memory", "--scan"])
@pytest.mark.parametrize(
    ("column", "place", "value", "message"),
    [(1, 9, 7.0, "such as row 9: [7.0,"), (4, 7, "maybe", "'maybe' in row 7 is not a class")],
)
def test_errors_name_the_file_and_the_row_in_it(how, column, place, value, message, many, bylaw):
    rows = parquet.read_table("scores/b.parquet")
    name = rows.column_names[column]
    cells = rows[name].to_pylist()
    cells[place] = value
    parquet.write_table(rows.set_column(column, name, pyarrow.array(cells)), "scores/b.parquet")
    answer = bylaw("fit", "scores", *FIT, how)
    assert answer.code == 2
    assert "scores/b.parquet" in answer.err
    assert message in answer.err


def test_outputs_are_no_inputs_of_the_next_run(policy, many, bylaw):
    for source, output in (("scores", "scores/p.json"), ("scores/*", "scores/p.json"), ("*/*", "new/p.json")):
        answer = bylaw("fit", source, "--rules", "rules.toml", "-o", output)
        assert answer.code == 2
        assert f"{output} is among the files of {source}, so the next run would read it" in answer.err
    assert bylaw("fit", "scores/*.parquet", "--rules", "rules.toml", "-o", "scores/p.json").code == 0


def test_bars_of_passes(monkeypatch):
    """On a terminal, each pass has a bar with its speed."""
    import io

    from rich.console import Console

    from bylaw.cli import console
    from bylaw.engines._engine import Progress

    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(console, "_aside", terminal)
    with console.show_progress("fitting") as watch:
        watch(Progress(1, 500, 1000, 0.5))
        watch(Progress(2, 1000, None, 0.5))
    assert "fitting, pass 2" in shown.getvalue()
    assert "1,000 rows, 2,000 rows/s" in shown.getvalue()
    monkeypatch.setattr(console, "_aside", Console(file=shown))
    with console.show_progress("fitting") as watch:
        assert watch is None
