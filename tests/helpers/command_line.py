"""A folder with scores, new rows and rules, and a way to call the command line in this process."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import typer.main

from bylaw.cli import main

# Typer reads the options of all commands for each call, which takes as long as many a command.
typer.main.get_command = functools.cache(typer.main.get_command)

RULES = """\
rules = [
  "demographic_parity('sex', tol=0.02)",
  "rejected() <= 0.1",
]
[columns]
label = "outcome"
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def bylaw(monkeypatch, capsys):
    """Exit code, standard output and standard error of a command."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["bylaw", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Answer(int(ended.value.code or 0), captured.out, captured.err)

    monkeypatch.setenv("COLUMNS", "200")
    return call


def table(rows, seed):
    """Calibrated scores that depend on sex; the outcome is drawn from them."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], rows)
    yes = 1 / (1 + np.exp(-(rng.normal(size=rows) * 1.5 + 0.6 * (sex == "M"))))
    outcome = np.where(rng.random(rows) < yes, "yes", "no")
    return pyarrow.table(
        {
            "id": np.arange(rows),
            "p_no": 1 - yes,
            "p_yes": yes,
            "sex": sex.tolist(),
            "outcome": outcome.tolist(),
        }
    )


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Tables, rules and a fitted policy, made once: tests work on copies."""
    made = tmp_path_factory.mktemp("originals")
    for name, rows, seed in (("scores", 3000, 0), ("new", 2000, 1), ("held", 40_000, 2)):
        pyarrow.parquet.write_table(table(rows, seed), made / f"{name}.parquet")
    (made / "rules.toml").write_text(RULES)
    fit = ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "policy.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setattr(sys, "argv", ["bylaw", *fit])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return made


@pytest.fixture
def folder(originals, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("scores.parquet", "new.parquet", "held.parquet", "rules.toml"):
        shutil.copy(originals / name, tmp_path)
    return tmp_path


@pytest.fixture
def policy(originals, folder):
    return Path(shutil.copy(originals / "policy.json", folder))
