"""Bad files get a clear message and exit code 2, killed commands leave nothing: no half-written output."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw.cli import decisions as decisions_module
from bylaw.cli.decisions import Decider
from bylaw.policy import compute_digest
from bylaw.rows import TableFile


def names_in(folder):
    return sorted(entry.name for entry in folder.iterdir())


def rows_with(**columns):
    rows = parquet.read_table("new.parquet")
    for name, column in columns.items():
        place = rows.column_names.index(name)
        rows = (
            rows.remove_column(place)
            if column is None
            else rows.set_column(place, name, pyarrow.array(column))
        )
    return rows


def nan_in_the_middle():
    scores = np.full(2000, 0.5)
    scores[1234] = np.nan
    return {"p_yes": scores, "p_no": np.full(2000, 0.5)}


BAD_TABLES = {
    "missing column": ({"p_no": None}, "no column 'p_no'"),
    "missing group": ({"sex": None}, "no column 'sex'"),
    "NaN": (nan_in_the_middle(), "not finite in row 1234"),
    "text for numbers": ({"p_yes": ["much"] * 2000}, "must be numbers"),
    "a null group": ({"sex": [None] + ["F"] * 1999}, "missing value"),
    "an unseen group": ({"sex": ["X"] * 2000}, "'X'"),
    "sums that are not one": ({"p_yes": np.full(2000, 0.9)}, "sum"),
    "ids that are fractions": ({"id": np.linspace(0, 1, 2000)}, "ids must be"),
    "ids that are missing": ({"id": [None, *range(1999)]}, "ids"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_TABLES)
def test_a_bad_table_is_refused_and_nothing_is_written(what, policy, folder, bylaw):
    columns, message = BAD_TABLES[what]
    parquet.write_table(rows_with(**columns), "bad.parquet")
    before = names_in(folder)
    answer = bylaw("decide", "policy.json", "bad.parquet", "--id-column", "id", "-o", "decisions.parquet")
    assert answer.code == 2
    assert message in answer.err
    assert "bad.parquet" in answer.err
    assert "Traceback" not in answer.err
    assert names_in(folder) == before


@pytest.mark.slow
def test_trouble_in_a_later_batch_is_found_in_its_place(policy, folder, bylaw, monkeypatch):
    monkeypatch.setattr("bylaw.rows._table_files.BATCH_ROWS", 500)
    parquet.write_table(rows_with(**nan_in_the_middle()), "bad.parquet")
    before = names_in(folder)
    answer = bylaw("decide", "policy.json", "bad.parquet", "-o", "decisions.parquet")
    assert answer.code == 2
    assert "rows from 1,000: probabilities has a value that is not finite in row 234" in answer.err
    assert names_in(folder) == before


def fail_on_call(function, count, trouble):
    calls = itertools.count(1)

    def call(*arguments, **options):
        if next(calls) == count:
            raise trouble
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("place", "trouble", "code"),
    [
        ("write", OSError(errno.ENOSPC, "No space left on device"), 2),
        ("read", OSError(errno.EIO, "Input/output error"), 2),
        ("decide", KeyboardInterrupt(), 130),
        ("write", KeyboardInterrupt(), 130),
    ],
)
def test_trouble_in_a_thread_leaves_no_output_and_no_thread(
    place, trouble, code, suffix, policy, folder, bylaw, monkeypatch
):
    monkeypatch.setattr("bylaw.rows._table_files.BATCH_ROWS", 100)
    if place == "write":
        opened = decisions_module.open_writer

        @contextlib.contextmanager
        def open_failing_writer(*arguments):
            with opened(*arguments) as write:
                yield fail_on_call(write, 5, trouble)

        monkeypatch.setattr(decisions_module, "open_writer", open_failing_writer)
    else:
        home, name = (TableFile, "parse_values") if place == "read" else (Decider, "decide")
        monkeypatch.setattr(home, name, fail_on_call(getattr(home, name), 5, trouble))
    before = names_in(folder)
    answer = bylaw("decide", "policy.json", "new.parquet", "-o", f"decisions.{suffix}")
    assert answer.code == code
    assert names_in(folder) == before
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("bylaw-")]


BAD_FILES = {
    "empty.parquet": b"",
    "empty.csv": b"",
    "truncated.parquet": None,
    "latin.csv": "id,p_no,p_yes,sex\n1,0.5,0.5,m\xe4nnlich\n".encode("latin-1"),
    "mixed.csv": b"id,p_no,p_yes,sex\n" + b"1,0.5,0.5,F\n" * 200_000 + b"1,a half,0.5,F\n",
    "header.csv": b"id,p_no,p_yes,sex\n",
    "lines.jsonl": b'{"id": 1, "p_no": 0.5,\n',
    "odd.xlsx": b"PK",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_and_nothing_is_written(name, policy, folder, bylaw):
    content = BAD_FILES[name]
    whole = (folder / "new.parquet").read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    before = names_in(folder)
    for command in (
        ["decide", "policy.json", name, "--id-column", "id", "-o", "out.parquet"],
        ["audit", "policy.json", name],
        ["fit", name, "--rule", "rejected() <= 0.1", "-o", "out.json", "--report", "out.html"],
    ):
        answer = bylaw(*command)
        assert answer.code == 2, answer
        assert name in answer.err
        assert "Traceback" not in answer.err
    assert names_in(folder) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {**c, "version": 99}, "upgrade bylaw"),
        (lambda c: {**c, "weights": [[0.0] * 3] * len(c["weights"])}, "changed after it was saved"),
        (lambda c: {k: v for k, v in c.items() if k != "card"}, "has no 'card'"),
        (lambda c: "a policy", "damaged"),
    ],
)
def test_a_bad_policy_is_refused(change, message, policy, bylaw):
    policy.write_text(json.dumps(change(json.loads(policy.read_text()))))
    for command in (["decide", "policy.json", "new.parquet", "-o", "d.csv"], ["show", "policy.json"]):
        answer = bylaw(*command)
        assert answer.code == 2
        assert message in answer.err
    assert not policy.with_name("d.csv").exists()


def test_rules_that_try_to_run_code_are_refused(folder, bylaw):
    (folder / "evil.toml").write_text("rules = [\"__import__('os').system('touch hacked')\"]")
    before = names_in(folder)
    answer = bylaw("fit", "scores.parquet", "--rules", "evil.toml", "-o", "policy.json")
    assert answer.code == 2
    assert "evil.toml, line 1" in answer.err
    assert names_in(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.parquet", "--rules", "rules.toml", "-o", "p.json"], "no such file: none.parquet"),
        (["fit", "scores.parquet", "-o", "p.json"], "at least one rule must be given"),
        (
            ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "no/p.json"],
            "the folder no does not exist",
        ),
        (
            ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--report", "no/r.html"],
            "the folder no does not exist",
        ),
        (["decide", "none.json", "new.parquet", "-o", "d.csv"], "none.json"),
        (["decide", "policy.json", "new.parquet", "-o", "d.xls"], "d.xls"),
        (["fit", "scores.parquet"], "Missing option"),
        (
            ["fit", "scores.parquet", "--group", "=x", "--rule", "rejected() <= 0.1", "-o", "p.json"],
            "NAME=COLUMN",
        ),
    ],
)
def test_what_cannot_be_done_is_said(arguments, message, policy, folder, bylaw):
    before = names_in(folder)
    answer = bylaw(*arguments)
    assert answer.code == 2
    assert message in answer.err
    assert names_in(folder) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["decide", "policy.json", "new.parquet", "-o", "new.parquet"],
        ["decide", "policy.json", "new.parquet", "-o", "../{}/new.parquet"],
        ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "rules.toml"],
        ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--report", "p.json"],
        ["export", "python", "policy.json", "-o", "policy.json"],
        ["report", "policy.json", "scores.parquet", "-o", "scores.parquet"],
    ],
)
def test_nothing_that_is_read_is_written_over(arguments, policy, folder, bylaw):
    before = {name: (folder / name).read_bytes() for name in names_in(folder)}
    answer = bylaw(*(part.format(folder.name) for part in arguments))
    assert answer.code == 2
    assert "choose another name" in answer.err
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == before


def test_a_fault_is_no_verdict(policy, bylaw, monkeypatch):
    monkeypatch.setattr("bylaw.audit", lambda *_, **__: 1 / 0)
    answer = bylaw("audit", "policy.json", "new.parquet")
    assert answer.code == 3
    assert "ZeroDivisionError" in answer.err


def test_what_files_say_does_not_steer_the_terminal(policy, folder, bylaw):
    content = json.loads(policy.read_text())
    content["card"]["source"] = "\x1b]0;owned\x07[bold]:smile:[/dim]"
    content["checksum"] = compute_digest({k: v for k, v in content.items() if k != "checksum"})
    policy.write_text(json.dumps(content))
    answer = bylaw("show", "policy.json")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "[bold]:smile:[/dim]" in answer.out
    fit = bylaw(
        "fit",
        "scores.parquet",
        "--minimize",
        "selected('[/dim]')",
        "--rule",
        "rejected() <= 1",
        "-o",
        "x.json",
    )
    assert fit.code == 2
    assert "[/dim]" in fit.err


def test_a_card_that_was_changed_is_noticed(policy, bylaw):
    content = json.loads(policy.read_text())
    content["card"]["columns"]["probabilities"].reverse()
    policy.write_text(json.dumps(content))
    assert "changed after it was saved" in bylaw("decide", "policy.json", "new.parquet", "-o", "d.csv").err


@pytest.mark.parametrize(
    "columns", [{}, {"classes": 5}, {"probabilities": 7}, {"true_groups": "abc"}, {"groups": {"sex": 5}}]
)
def test_a_card_of_nonsense_is_refused(columns, policy, bylaw):
    content = json.loads(policy.read_text())
    content["card"]["columns"] = {**(content["card"]["columns"] if columns else {"x": 1}), **columns}
    content["checksum"] = compute_digest({k: v for k, v in content.items() if k != "checksum"})
    policy.write_text(json.dumps(content))
    answer = bylaw("decide", "policy.json", "new.parquet", "-o", "d.csv")
    assert answer.code == 2
    assert "must name the columns" in answer.err


@pytest.mark.slow
def test_nobody_listening_leaves_the_exit_code(policy, folder):
    command = f"{sys.executable} -c 'from bylaw.cli import main; main()' audit policy.json held.parquet "
    script = f"set -o pipefail; {command} --rule 'rejected() <= 0.15' | true"
    ended = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_missing_column_of_the_fit_is_said(policy, folder, bylaw):
    rows = parquet.read_table("new.parquet").rename_columns(["id", "p_no", "p_yes", "sex", "y"])
    parquet.write_table(rows, "renamed.parquet")
    answer = bylaw("audit", "policy.json", "renamed.parquet")
    assert "column 'outcome', the label of the fitted table, is missing" in answer.err
    assert "label is the column y" in answer.err


def test_without_ids_they_are_asked_for(policy, folder, bylaw):
    parquet.write_table(parquet.read_table("new.parquet").drop(["id"]), "nameless.parquet")
    answer = bylaw("decide", "policy.json", "nameless.parquet", "-o", "d.csv")
    assert answer.code == 2
    assert "--id-column" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_command_leaves_nothing_and_a_second_run_succeeds(how, policy, folder, bylaw):
    """The command is stopped while it writes: its output is open and some batches are in it."""
    rows = pyarrow.concat_tables([parquet.read_table("new.parquet")] * 1000)
    parquet.write_table(rows, "many.parquet")
    before = names_in(folder)
    command = ["decide", "policy.json", "many.parquet", "--id-column", "id", "-o", "decisions.parquet"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from bylaw.cli import main; main()", *command], cwd=folder
    )
    deadline = time.monotonic() + 60
    while not writing(process.pid, folder) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    assert process.wait(30) != 0
    assert names_in(folder) == before
    assert bylaw("decide", "policy.json", "new.parquet", "-o", "decisions.parquet").code == 0
    assert parquet.read_table("decisions.parquet").num_rows == 2000


def test_a_termination_ends_a_command_as_control_c_does(bylaw):
    """So that what is half written is removed where files cannot be without a name."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert bylaw("rules", "--example").code == 0
        handler = signal.getsignal(signal.SIGTERM)
        assert callable(handler)
        with pytest.raises(KeyboardInterrupt):
            handler(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGTERM, before)


def writing(pid, folder):
    """Whether a file in the folder, with or without a name, is open and has something in it."""
    for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115
            size = os.stat(f"/proc/{pid}/fd/{descriptor}").st_size  # noqa: PTH116
        except OSError:
            continue
        if target.startswith(f"{folder}/") and not target.endswith("many.parquet") and size > 1000:
            return True
    return False
