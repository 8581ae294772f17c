"""States as files: read back to the last bit, small, whole or not at all, refused where they are damaged."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bylaw import (
    Monitor,
    Policy,
    PolicyFileError,
    custom,
    demographic_parity,
    disagreement,
    equal_opportunity,
    error,
    precision,
    rejected,
    selected,
)
from bylaw.policy import compute_digest
from bylaw.testing import _state_files as state_files
from helpers.monitored import describe, draw_rows, fit_binary, fit_rejecting

SEX = {"sex": ["F", "M"]}
POLICY = fit_rejecting()
RULES = [
    rejected() <= 0.3,
    error().given(sex="F") <= 0.3,
    disagreement("old") <= 0.5,
    precision("yes").given(sex="F") - precision("yes") <= 0.1,
    custom("loss") <= 3.0,
    demographic_parity("sex", tol={"F": 0.1, "M": 0.05}),
]
ROWS = draw_rows(900, 1, gap=0.3)
LOSS = np.random.default_rng(3).uniform(1, 4, (900, 3))


def begin(policy=POLICY):
    return Monitor(policy, rules=RULES, groups=SEX, limits={"loss": (1, 4)}, run_length=3000)


def feed(monitor, first, last):
    """Rows with labels on every second one and groups on every third; costs come with the next rows."""
    part = np.arange(first, last)
    labels = np.where(part % 2, ROWS.labels[part].astype(object), None)
    sex = np.where(part % 3 == 0, ROWS.sex[part].astype(object), None)
    monitor.update(ROWS.evidence.rows(part), labels=labels, groups={"sex": sex}, ids=part, batch=f"to {last}")
    before = np.arange(max(first - 100, 0), first)
    if len(before):
        monitor.update(ids=before, labels=ROWS.labels[before], outcomes={"loss": LOSS[before]})
    return monitor


def list_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_a_state_is_read_back_to_the_last_bit(tmp_path):
    """Saved and read between any two batches, all goes on as if it had never been."""
    path, straight = tmp_path / "state.json", begin()
    begin().save(path)
    for first in range(0, 900, 131):
        last = min(first + 131, 900)
        feed(straight, first, last)
        feed(loaded := Monitor.load(path, POLICY), first, last)
        loaded.save(path)
        assert describe(Monitor.load(path, POLICY)) == describe(loaded) == describe(straight)
    assert straight.waiting > 0
    loaded = Monitor.load(path, POLICY)
    assert [str(one) for one in loaded.status] == [str(one) for one in straight.status]
    assert (loaded.ever, loaded.run_length, loaded.limits) == (0.05, 3000, {"loss": (1.0, 4.0)})
    assert [entry.rows for entry in loaded.log] == [entry.rows for entry in straight.log]
    assert len(list_files(tmp_path)) == 2


def test_the_policys_own_rules_and_no_ids(tmp_path):
    monitor = Monitor(POLICY)
    monitor.save(tmp_path / "new.json")
    assert describe(Monitor.load(tmp_path / "new.json", POLICY)) == describe(monitor)
    monitor.update(ROWS.evidence)
    monitor.save(tmp_path / "new.json")
    loaded = Monitor.load(tmp_path / "new.json", POLICY)
    assert describe(loaded) == describe(monitor)
    assert loaded.problem is POLICY.problem
    assert list(list_files(tmp_path)) == ["new.json"]


def test_alarms_and_restarts_are_kept(tmp_path):
    monitor = Monitor(POLICY, rules="rejected() <= 0.01")
    monitor.update(ROWS.evidence)
    assert monitor.alarm
    monitor.save(tmp_path / "s.json")
    loaded = Monitor.load(tmp_path / "s.json", POLICY)
    assert loaded.status[0].since == monitor.status[0].since
    loaded.restart()
    loaded.save(tmp_path / "s.json")
    assert not Monitor.load(tmp_path / "s.json", POLICY).alarm


def test_a_rate_that_is_not_known_is_null(tmp_path):
    monitor = Monitor(POLICY, rules="selected('yes').given(sex='F') - selected('yes') <= 0.1", groups=SEX)
    monitor.update(ROWS.evidence, groups={"sex": np.full(900, "M")})
    monitor.save(tmp_path / "s.json")
    assert describe(Monitor.load(tmp_path / "s.json", POLICY)) == describe(monitor)


@pytest.mark.slow
def test_states_beside_each_other_keep_their_rows(tmp_path):
    names = ["s.json", "s.state", "s", "s[1].json", "s*.json"]
    for number, name in enumerate(names):
        for last in (100, 200):  # each replaces its own
            feed(begin(), 0, last + number).save(tmp_path / name)
    assert len(list_files(tmp_path)) == 2 * len(names)
    for number, name in enumerate(names):
        assert Monitor.load(tmp_path / name, POLICY).rows == 200 + number


@pytest.mark.slow
def test_the_state_stays_small(tmp_path):
    """Below 100 kB for 40 rules, at all times of 200,000 rows."""
    groups = {"sex": ["F", "M"], "race": list("abcde")}
    families = [demographic_parity("race", tol=0.05), demographic_parity(("sex", "race"), tol=0.1)]
    families.append(equal_opportunity("race", tol=0.1, labels=["yes"]))
    monitor = Monitor(fit_binary(), rules=families, groups=groups)
    assert len(monitor.watched) == 40
    rng = np.random.default_rng(0)
    for seed, n in enumerate([2500, 2500, 5000, 20_000, 40_000, 60_000, 70_000]):
        rows = draw_rows(n, seed)
        race = rng.choice(list("abcde"), n)
        monitor.update(rows.evidence, labels=rows.labels, groups={"sex": rows.sex, "race": race})
        monitor.save(tmp_path / "s.json")
        assert (tmp_path / "s.json").stat().st_size < 100_000
    assert monitor.rows == 200_000
    assert list(list_files(tmp_path)) == ["s.json"]


# Interruptions.


class KilledError(BaseException):
    pass


def interrupt(monkeypatch, step):
    """Die at one of the steps of a save: when a file gets its name, before or after it; while the text of the
    JSON is written; or before the old file of rows goes."""
    replace, unlink, write = Path.replace, Path.unlink, Path.write_text
    kind, number = step
    done = {"named": 0}

    def named(self, target):
        done["named"] += 1
        if done["named"] == number and kind == "before":
            raise KilledError
        found = replace(self, target)
        if done["named"] == number and kind == "after":
            raise KilledError
        return found

    def written(self, text, **options):
        if kind == "half":
            write(self, text[: len(text) // 2], **options)
            raise KilledError
        return write(self, text, **options)

    def gone(self, missing_ok=False):
        if kind == "old" and self.suffix == ".npz":
            raise KilledError
        return unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "replace", named)
    monkeypatch.setattr(Path, "write_text", written)
    monkeypatch.setattr(Path, "unlink", gone)


STEPS = {
    ("before", 1): "old",
    ("after", 1): "old",
    ("half", 0): "old",
    ("before", 2): "old",
    ("after", 2): "new",
    ("old", 0): "new",
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_after_an_interruption_the_old_state_or_the_new_one_is_found(step, tmp_path, monkeypatch):
    """And runs the batch again."""
    path = tmp_path / "state.json"
    monitor = feed(begin(), 0, 300)
    monitor.save(path)
    old = describe(monitor)
    feed(monitor, 300, 600)
    new = describe(monitor)
    with monkeypatch.context() as patch:
        interrupt(patch, step)
        with pytest.raises(KilledError):
            monitor.save(path)
    found = Monitor.load(path, POLICY)
    assert describe(found) == {"old": old, "new": new}[STEPS[step]]
    feed(found, 300, 600).save(path)
    assert describe(Monitor.load(path, POLICY)) == new
    assert len(list_files(tmp_path)) == 2  # nothing is left of the rest


SAVING = """
import sys
from bylaw import Monitor, Policy
from helpers.monitored import draw_rows
folder = sys.argv[1]
monitor = Monitor(Policy.load(folder + "/policy.json"), rules=["error() <= 0.3", "rejected() <= 0.3"])
for batch in range(10_000):
    monitor.update(draw_rows(40, batch).evidence, ids=range(40 * batch, 40 * batch + 40))
    monitor.save(folder + "/state.json")
    print(batch, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_is_killed(tmp_path):
    """While it saves again and again: what is there is the state after one of its batches."""
    POLICY.save(tmp_path / "policy.json")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SAVING, str(tmp_path)]
    with subprocess.Popen(command, env=here, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for last in range(20):
            assert process.stdout.readline() == f"{last}\n"
        process.kill()
    policy = Policy.load(tmp_path / "policy.json")
    found = Monitor.load(tmp_path / "state.json", policy)
    again = Monitor(policy, rules=["error() <= 0.3", "rejected() <= 0.3"])
    assert found.rows >= 800
    for batch in range(found.rows // 40):
        again.update(draw_rows(40, batch).evidence, ids=range(40 * batch, 40 * batch + 40))
    assert describe(found) == describe(again)


# Damage.


def write_changed(path, change):
    content = json.loads(path.read_text())
    del content["checksum"]
    change(content)
    path.write_text(json.dumps({**content, "checksum": compute_digest(content)}))


def set_rule(name, value):
    return lambda content: content["watched"][1].update({name: value})


DAMAGES = {
    "format": (lambda c: c.update(format="bylaw-policy"), "format must be one of"),
    "version": (
        lambda c: c.update(version=99),
        "schema version must be 3 for this version of bylaw, got 99; upgrade",
    ),
    "no ever": (lambda c: c.pop("ever"), "has no 'ever'"),
    "ever": (lambda c: c.update(ever=-1), "ever must be a positive number"),
    "ever above one": (lambda c: c.update(ever=3.0), "ever"),
    "run_length": (lambda c: c.update(run_length="x"), "run_length must be a number"),
    "rows": (lambda c: c.update(rows=-1), "rows must be a whole number"),
    "rules": (lambda c: c.update(rules=["nonsense("]), "not a rule"),
    "other rules": (lambda c: c["rules"].pop(0), "its states must be about the rules"),
    "no rules": (lambda c: c.update(rules=[]), "must have rules"),
    "groups": (lambda c: c.update(groups={}), "sex"),
    "limits": (lambda c: c.update(limits={"loss": [1]}), "2 numbers"),
    "turned limits": (lambda c: c.update(limits={"loss": [4, 1]}), "limits"),
    "batches": (lambda c: c.update(batches=[3]), "text"),
    "log": (lambda c: c.update(log=[[1]]), "log"),
    "log entry": (lambda c: c.update(log=[["2024", "x", 0]]), "log"),
    "a rule less": (lambda c: c["watched"].pop(), "its states must be about the rules"),
    "no watched": (lambda c: c.update(watched={}), "watched must be a list"),
    "waiting": (set_rule("waiting", [[1.0], [2.0], [3.0]]), "waiting must be a matrix"),
    "long waiting": (
        set_rule("waiting", [[1.0] * 9] * 2),
        "its numbers of rounds and of rows contradict each other",
    ),
    "rounds": (set_rule("rounds", 10_000), "its numbers of rounds and of rows contradict each other"),
    "product": (set_rule("product", [1.0]), "product must be 7 numbers"),
    "no product": (lambda c: c["watched"][1].pop("product"), "has no 'product'"),
    "no money": (set_rule("product", [0.0] * 7), "its wealth must not be negative"),
    "wealth": (set_rule("ever", ["a"] * 7), "must be a number"),
    "unit": (lambda c: c.update(unit="days"), "unit must be one of"),
    "rounds before": (
        set_rule("rounds_before", 10_000),
        "its numbers of rounds and of rows contradict each other",
    ),
    "sums": (set_rule("sums", [1, 2, 3]), "sums must be 5 numbers"),
    "log_ever": (set_rule("log_ever", None), "log_ever must be a number"),
    "log_change": (set_rule("log_change", "x"), "log_change must be a number"),
    "broken_at": (set_rule("broken_at", "soon"), "broken_at must be a whole number"),
    "every": (set_rule("every", 0), "every"),
    "history": (set_rule("history", [[1, 2]]), "must be a list of 6 values"),
    "history row": (set_rule("history", [[None, 0, 0, 0, 0, 0]]), "must be a whole number"),
    "row_file": (lambda c: c.update(row_file=7), "row_file must be text"),
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "state.json"
    feed(begin(), 0, 300).save(path)
    return path


@pytest.mark.parametrize("name", DAMAGES)
def test_whatever_is_changed_is_refused_though_the_checksum_is_right(name, saved):
    change, message = DAMAGES[name]
    write_changed(saved, change)
    with pytest.raises(PolicyFileError, match=message):
        Monitor.load(saved, POLICY)


def test_a_changed_number_does_not_match_the_checksum(saved):
    content = json.loads(saved.read_text())
    content["watched"][0]["log_ever"] += 1e-9
    saved.write_text(json.dumps(content))
    with pytest.raises(PolicyFileError, match="its content does not match its checksum"):
        Monitor.load(saved, POLICY)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": "bylaw-monitor"}', "nan", "null"])
def test_what_is_no_state_is_refused(saved, text):
    saved.write_text(text)
    with pytest.raises(PolicyFileError, match=r"state\.json is "):
        Monitor.load(saved, POLICY)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_half_a_file_is_refused(saved, share):
    text = saved.read_text()
    saved.write_text(text[: int(share * len(text))])
    with pytest.raises(PolicyFileError, match="valid JSON"):
        Monitor.load(saved, POLICY)


def test_damaged_rows_are_refused(saved):
    (rows,) = saved.parent.glob("*.npz")
    whole = rows.read_bytes()
    for damaged in (b"", whole[:100], whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
        rows.write_bytes(damaged)
        with pytest.raises(PolicyFileError, match="is damaged: its content does not match its checksum"):
            Monitor.load(saved, POLICY)
    rows.unlink()
    with pytest.raises(PolicyFileError, match="is missing: it must contain the ids of the rows"):
        Monitor.load(saved, POLICY)


def test_a_state_is_about_one_policy(saved):
    with pytest.raises(
        PolicyFileError,
        match=r"watches another policy: its policy must have the hash .* start a new monitor",
    ):
        Monitor.load(saved, fit_binary())


def test_rows_without_the_columns_that_wait_are_refused(saved):
    """A file of rows that belongs to other rules, though its checksum is right."""
    other = Monitor(POLICY, rules=error().given(age="old") <= 0.3, groups={"age": ["old", "young"]})
    other.update(ROWS.evidence, ids=np.arange(900))
    other.save(saved.with_name("other.json"))
    content = json.loads(saved.with_name("other.json").read_text())
    rows = state_files._name_rows(saved.with_name("other.json"), content["row_file"])
    rows.rename(state_files._name_rows(saved, content["row_file"]))
    write_changed(saved, lambda c: c.update(row_file=content["row_file"]))
    with pytest.raises(PolicyFileError, match="must have the columns"):
        Monitor.load(saved, POLICY)


def test_rules_as_text_and_as_objects_are_the_same(tmp_path):
    one = Monitor(POLICY, rules=[selected("yes").given(sex="F") - selected("yes") <= 0.1], groups=SEX)
    two = Monitor(POLICY, rules="selected('yes').given(sex='F') - selected('yes') <= 0.1", groups=SEX)
    assert describe(one) == describe(two)


def test_a_state_of_the_version_before_is_read():
    """Alarms, rows and batches are kept, and the e-process goes on from its value. Bets are others, so that
    the detector starts anew; and rates that count row by row do, too."""
    folder = Path(__file__).parent / "saved"
    policy = Policy.load(folder / "policy.json")
    saved = json.loads((folder / "version2.json").read_text())
    monitor = Monitor.load(folder / "version2.json", policy)
    assert (monitor.rows, monitor.batches, monitor.unit, monitor.alarm) == (1003, ("monday",), "rows", True)
    assert [one.since for one in monitor.status] == [80, None, None, None]
    assert (saved["watched"][0]["broken_at"], saved["watched"][0]["changed_at"]) == (80, 104)
    before = [one["log_ever"] for one in saved["watched"]]
    assert [math.log(one.e_value) for one in monitor.status] == pytest.approx(before)
    assert [one.detector for one in monitor.status] == [0.0] * 4
    assert [math.isnan(one.estimate) for one in monitor.status] == [True, True, False, False]
    rows = draw_rows(500, 2)
    monitor.update(rows.evidence, groups={"sex": rows.sex})
    assert monitor.states[1].log_ever == pytest.approx(before[1], abs=1.0)  # not back at zero
    share = float(policy.probabilities(rows.evidence)[:, 2].mean())
    assert monitor.status[1].estimate == pytest.approx(share)
    assert [one.rows for one in monitor.status] == [1503] * 4
