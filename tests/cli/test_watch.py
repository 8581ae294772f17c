"""bylaw watch and bylaw refit: rules in production from the shell, and the policy after an alarm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw import Monitor, Policy
from helpers.command_line import table

LOOSE = ("--rule", "demographic_parity('sex', tol=0.06)", "--rule", "error() <= 0.4")


def day(seed, *, first=0, rows=500, drift=0.0):
    """A day's table; with drift, men are scored higher."""
    plain = table(rows, seed).to_pydict()
    odds = np.log(np.array(plain["p_yes"]) / np.array(plain["p_no"])) + drift * (
        np.array(plain["sex"]) == "M"
    )
    plain["p_yes"] = (1 / (1 + np.exp(-odds))).tolist()
    plain["p_no"] = [1 - yes for yes in plain["p_yes"]]
    plain["id"] = list(range(first, first + rows))
    return pyarrow.table(plain)


def write_day(number, **options):
    whole = day(100 + number, first=10_000 * number, **options)
    parquet.write_table(whole.drop_columns(["outcome"]), f"day{number}.parquet")
    parquet.write_table(whole.select(["id", "outcome"]), f"late{number}.parquet")


@pytest.mark.slow
def test_quiet_then_an_alarm_with_exit_codes(policy, bylaw):
    for number in range(1, 4):
        write_day(number)
        found = bylaw(
            "watch",
            "policy.json",
            f"day{number}.parquet",
            "--state",
            "watch.json",
            *(LOOSE if number == 1 else ()),
        )
        assert found.code == 0, found.err
        assert f"quiet after {500 * number:,} rows" in found.out
        assert "error() <= 0.4: no row with label has been observed yet" in found.out
    for number in range(4, 12):
        write_day(number, drift=2.0)
        found = bylaw("watch", "policy.json", f"day{number}.parquet", "--state", "watch.json", "--json")
        told = json.loads(found.out)
        if found.code:
            break
    assert (found.code, told["alarm"]) == (1, True)
    alarmed = [one for one in told["rules"] if one["since"] is not None]
    assert {one["statement"] for one in alarmed} == {"demographic_parity('sex', tol=0.06)"}
    assert all(1500 < one["since"] <= told["rows"] for one in alarmed)
    again = bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json")
    assert again.code == 1  # an alarm stays
    assert "was counted before" in again.err
    assert "alarm at row" in again.out
    write_day(20)
    after = bylaw("watch", "policy.json", "day20.parquet", "--state", "watch.json", "--restart")
    assert after.code == 0


@pytest.mark.slow
def test_late_labels_are_counted_by_id(policy, bylaw):
    write_day(1)
    bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json", *LOOSE)
    found = bylaw("watch", "policy.json", "late1.parquet", "--state", "watch.json", "--late", "--json")
    (one,) = [rule for rule in json.loads(found.out)["rules"] if rule["rule"] == "error() <= 0.4"]
    assert (found.code, one["rows"], json.loads(found.out)["waiting"]) == (0, 500, 0)
    chosen = Policy.load(policy)
    whole = day(101, first=10_000)
    at_once = Monitor(chosen, rules=[*LOOSE[1::2]])

    from bylaw.cli.tables import PolicyTables

    parquet.write_table(whole, "whole.parquet")
    at_once.update(PolicyTables(chosen).read(Path("whole.parquet"))[0])
    (same,) = [rule for rule in at_once.status if rule.rule == "error() <= 0.4"]
    assert one["estimate"] == pytest.approx(same.estimate, abs=1e-12)
    unknown = parquet.read_table("late1.parquet").set_column(0, "id", pyarrow.array(range(500)))
    parquet.write_table(unknown, "unknown.parquet")
    before = (policy.parent / "watch.json").read_text()
    found = bylaw("watch", "policy.json", "unknown.parquet", "--state", "watch.json", "--late")
    assert found.code == 2
    assert "ids must be of earlier rows" in found.err
    assert (policy.parent / "watch.json").read_text() == before


@pytest.mark.slow
def test_trouble_is_named_and_changes_nothing(policy, bylaw):
    write_day(1)
    state = policy.parent / "watch.json"
    for arguments, said in (
        (("late1.parquet", "--late"), "does not exist; count the rows first"),
        (("day1.parquet", "--restart"), "--restart has no effect"),
        (("day1.parquet", "--rule", "rejected() <= "), "rejected() <="),
        (("day1.parquet", "--ever", "2"), "ever"),
        (("absent.parquet",), "absent.parquet"),
    ):
        found = bylaw("watch", "policy.json", *arguments, "--state", "watch.json")
        assert found.code == 2
        assert said in found.err
        assert not state.exists()
    assert bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json").code == 0
    before = state.read_text()
    for arguments, said in (
        (("day1.parquet", "--ever", "0.1"), "--ever differs from the first run"),
        (("day1.parquet", "--rule", "rejected() <= 0.3"), "--rule differs from the first run"),
        (("late1.parquet", "--late", "--decisions", "x"), "--decisions is for new rows"),
        (("scores.parquet", "--late", "--id-column", "who"), "--id-column"),
    ):
        found = bylaw("watch", "policy.json", *arguments, "--state", "watch.json")
        assert found.code == 2
        assert said in found.err
        assert state.read_text() == before
    state.write_text(before.replace('"rows":500', '"rows":501', 1))
    found = bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json", "--batch", "two")
    assert found.code == 2
    assert "checksum" in found.err
    other = bylaw("fit", "new.parquet", "--rule", "rejected() <= 0.1", "-o", "other.json")
    assert other.code == 0
    state.write_text(before)
    found = bylaw("watch", "other.json", "day1.parquet", "--state", "watch.json")
    assert found.code == 2
    assert "watches another policy" in found.err


def test_a_group_that_the_policy_does_not_know(folder, bylaw):
    fitted = bylaw(
        "fit", "scores.parquet", "--rule", "rejected() <= 0.1", "--id-column", "id", "-o", "plain.json"
    )
    assert fitted.code == 0, fitted.err
    found = bylaw(
        "watch", "plain.json", "new.parquet", "--state", "watch.json", "--group", "sex",
        "--rule", "demographic_parity('sex', tol=0.5)", "--json",
    )  # fmt: skip
    assert found.code == 0, found.err
    assert {rule["rows"] for rule in json.loads(found.out)["rules"]} == {2000}


@pytest.mark.slow
def test_the_report_shows_what_was_watched(policy, bylaw):
    write_day(1, rows=2000)
    bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json", "--plot", "watch.png")
    assert (policy.parent / "watch.png").stat().st_size > 10_000
    made = bylaw("report", "policy.json", "scores.parquet", "--watch", "watch.json", "-o", "report.html")
    assert made.code == 0, made.err
    page = (policy.parent / "report.html").read_text()
    assert 'id="watch"' in page
    assert "2,000\N{NO-BREAK SPACE}cases that were watched since" in page


@pytest.mark.slow
def test_a_refit_with_few_changes(policy, bylaw):
    parquet.write_table(day(50, rows=4000, drift=0.3), "drifted.parquet")
    found = bylaw(
        "refit",
        "policy.json",
        "drifted.parquet",
        "--churn",
        "0.3",
        "-o",
        "later.json",
        "--report",
        "refit.html",
    )
    assert found.code == 0, found.err
    assert "of decisions change" in found.out
    assert 'id="earlier"' in (policy.parent / "refit.html").read_text()
    told = json.loads(bylaw("refit", "policy.json", "drifted.parquet", "-o", "any.json", "--json").out)
    fewer = round(told["changed"] - 0.004, 4)
    assert not told["needs_previous"]
    little = bylaw(
        "refit",
        "policy.json",
        "drifted.parquet",
        "--churn",
        f"{fewer:g}",
        "-o",
        "little.json",
        "--json",
    )
    assert little.code == 0, little.err
    counted = json.loads(little.out)
    assert counted["needs_previous"]
    assert counted["changed"] <= fewer + 1e-4
    refused = bylaw("decide", "little.json", "new.parquet", "-o", "decisions.csv")
    assert refused.code == 2
    assert "--previous" in refused.err
    previous = ("--previous", "policy.json")
    assert bylaw("decide", "little.json", "new.parquet", "-o", "decisions.csv", *previous).code == 0
    judged = bylaw("audit", "little.json", "held.parquet", *previous, "--json")
    rules = {rule["rule"]: rule for rule in json.loads(judged.out)["rules"]}
    assert not np.isnan(rules[f"custom('changed') <= {fewer:g}"]["estimate"])
    # Rows without the drift may change more often than the refit allows, of which an alarm (1) is right.
    assert bylaw("watch", "little.json", "new.parquet", "--state", "w.json", *previous).code in (0, 1)
    assert bylaw("report", "little.json", "drifted.parquet", "-o", "r.html", *previous).code == 0
    assert bylaw("explain", "little.json", "new.parquet", "--row", "3", *previous).code == 0
    other = bylaw("decide", "little.json", "new.parquet", "-o", "decisions.csv", "--previous", "any.json")
    assert other.code == 2
    assert "--previous must be the policy with which decisions were compared" in other.err
    same = bylaw("watch", "little.json", "drifted.parquet", "--state", "same.json", *previous, "--json")
    watched = {rule["rule"]: rule["estimate"] for rule in json.loads(same.out)["rules"]}
    assert watched[f"custom('changed') <= {fewer:g}"] == pytest.approx(counted["changed"], abs=1e-9)
    assert watched["rejected() <= 0.1"] <= 0.1 + 1e-5  # on the rows that it was fitted on
    idle = bylaw("decide", "any.json", "new.parquet", "-o", "decisions.csv", *previous)
    assert idle.code == 2
    assert "--previous has no effect" in idle.err


@pytest.mark.slow
def test_a_refit_that_is_certified(policy, bylaw):
    parquet.write_table(day(51, rows=4000, drift=0.2), "drifted.parquet")
    parquet.write_table(day(52, rows=12_000, first=50_000, drift=0.2), "proof.parquet")
    arguments = ("--churn", "0.3", "--certify", "proof.parquet", "-o", "later.json")
    found = bylaw("refit", "policy.json", "drifted.parquet", *arguments)
    assert found.code == 0, found.err
    assert "certified: all rules hold with 95 % confidence" in found.out


@pytest.mark.slow
def test_runs_at_the_same_time_wait_for_each_other(policy, bylaw):
    """Four processes on one state: each batch is counted once, and nothing is lost."""
    for number in range(4):
        write_day(number, rows=200)
    command = [sys.executable, "-c", "from bylaw.cli import main; main()", "watch", "policy.json"]
    runs = [
        subprocess.Popen(
            [*command, f"day{number}.parquet", "--state", "watch.json"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for run in runs:
        _, said = run.communicate()
        assert run.returncode == 0, said
    monitor = Monitor.load("watch.json", Policy.load(policy))
    assert (monitor.rows, len(monitor.batches)) == (800, 4)
    assert len(list(policy.parent.glob("watch.json-rows-*.npz"))) == 1


def test_a_rules_file_and_a_margin_go_with_a_refit(policy, bylaw):
    parquet.write_table(day(53, rows=3000, drift=0.1), "drifted.parquet")
    found = bylaw(
        "refit",
        "policy.json",
        "drifted.parquet",
        "--rules",
        "rules.toml",
        "--margin",
        "1",
        "-o",
        "later.json",
    )
    assert found.code == 0, found.err
    tightened = Policy.load("later.json").tightened
    assert max(tightened.values()) > 0


def test_rows_count_by_decisions_always_or_never(policy, bylaw):
    write_day(1)
    write_day(2)
    assert bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json").code == 0
    kept = ("--keep", "p_no", "--keep", "p_yes", "--keep", "sex")
    drawn = bylaw("decide", "policy.json", "day2.parquet", "-o", "drawn.parquet", *kept)
    assert drawn.code == 0, drawn.err
    mixed = bylaw("watch", "policy.json", "drawn.parquet", "--state", "watch.json", "--decisions", "decision")
    assert mixed.code == 2
    assert "earlier rows were counted by probabilities" in mixed.err


@pytest.fixture
def little(policy, bylaw):
    """A policy that counts changes since another."""
    parquet.write_table(day(50, rows=4000, drift=0.3), "drifted.parquet")
    told = json.loads(bylaw("refit", "policy.json", "drifted.parquet", "-o", "any.json", "--json").out)
    churn = ("--churn", f"{told['changed'] - 0.004:.4f}")
    found = bylaw("refit", "policy.json", "drifted.parquet", *churn, "-o", "little.json", "--json")
    assert json.loads(found.out)["needs_previous"]
    return "little.json"


@pytest.mark.slow
def test_what_was_decided_is_watched_without_the_earlier_policy(little, bylaw):
    previous = ("--previous", "policy.json")
    assert bylaw("decide", little, "new.parquet", "-o", "d.parquet", *previous).code == 0
    log = parquet.read_table("new.parquet")
    parquet.write_table(
        log.append_column("decision", parquet.read_table("d.parquet")["decision"]), "log.parquet"
    )
    watch = ("watch", little, "log.parquet", "--decisions", "decision", "--json", "--state")
    found = bylaw(*watch, "blind.json")
    assert found.code == 0, found.err
    assert "changed decisions are not watched" in found.err
    blind = {rule["rule"]: rule["estimate"] for rule in json.loads(found.out)["rules"]}
    told = json.loads(bylaw(*watch, "seeing.json", *previous).out)
    seeing = {rule["rule"]: rule["estimate"] for rule in told["rules"]}
    (changed,) = set(seeing) - set(blind)
    assert changed.startswith("custom('changed')")
    assert blind == pytest.approx({rule: seeing[rule] for rule in blind})
    parquet.write_table(parquet.read_table("log.parquet").slice(0, 900), "part.parquet")
    refused = bylaw("watch", little, "part.parquet", "--decisions", "decision", "--state", "seeing.json")
    assert (refused.code, "watches changed decisions" in refused.err) == (2, True)


@pytest.mark.slow
def test_exports_of_a_policy_that_counts_changes_speak_of_commands(little, bylaw):
    for kind in (
        ["sql", little, "--dialect", "duckdb"],
        ["python", little],
        ["onnx", little, "-o", "p.onnx"],
    ):
        answer = bylaw("export", *kind)
        assert answer.code == 2
        assert "`bylaw decide POLICY TABLE --previous EARLIER`" in answer.err
        assert "Columns(" not in answer.err


@pytest.mark.slow
def test_a_daily_run_is_not_told_of_labels_that_come_late(policy, bylaw):
    write_day(1)
    found = bylaw("watch", "policy.json", "day1.parquet", "--state", "watch.json")
    assert "the label of the fitted table" not in found.err
    audited = bylaw("audit", "policy.json", "day1.parquet")
    assert "the label of the fitted table" in audited.err  # where it is news


@pytest.mark.slow
def test_a_batch_that_was_counted_before_is_told_to_machines(policy, bylaw):
    write_day(1)
    watch = ("watch", "policy.json", "day1.parquet", "--state", "watch.json", "--json", "--batch")
    first, again, renamed = (json.loads(bylaw(*watch, name).out) for name in ("monday", "monday", "tuesday"))
    assert [run["counted"] for run in (first, again, renamed)] == [True, False, False]
    assert [run["rows"] for run in (first, again, renamed)] == [500, 500, 500]
    assert (first["batch"], first["exit_code"]) == ("monday", 0)


def test_standard_input_is_watched(policy, bylaw, monkeypatch):
    write_day(1)
    with open("day1.parquet", "rb") as file:  # noqa: PTH123
        content = file.read()
    for counted in (True, False):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        call = ("watch", "policy.json", "-", "--format", "parquet", "--state", "watch.json", "--json")
        assert json.loads(bylaw(*call).out)["counted"] is counted
