"""Large files are looked at in several processes: the same bits, and nothing is lost with a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from bylaw import (
    Columns,
    EvidenceError,
    Problem,
    cost,
    custom,
    demographic_parity,
    error,
    rejected,
    scan,
    solve,
)
from bylaw.engines import _files as files

COLUMNS = Columns(["p_a", "p_b"], classes=["a", "b"], groups={"sex": "sex"})
PROBLEM = Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1])


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(5)
    for part in range(4):
        chance = rng.beta(0.8, 0.8, 3000)
        sex = np.where(rng.random(3000) < 0.3 + 0.4 * chance, "F", "M")
        table = pa.table({"p_a": chance, "p_b": 1 - chance, "sex": sex})
        pa.parquet.write_table(table, tmp_path / f"part-{part}.parquet")
    return tmp_path


@pytest.fixture
def large(monkeypatch):
    """As if any file were large, and there were two cores."""
    monkeypatch.setattr(files, "_LARGE", 0)
    monkeypatch.setattr(files, "count_processes", lambda: 2)


def list_processes(folder, task=None):
    here = os.getpid()

    def look(partition, batches):
        rows = sum(len(batch) for batch in batches)
        return partition, rows, os.getpid() == here

    return list(scan(folder, COLUMNS).engine.run(task or look, ["p_a"]))


def test_several_processes_work_where_files_are_large(folder, large):
    assert list_processes(folder) == [(i, 3000, False) for i in range(4)]


def test_one_works_where_they_are_small(folder):
    assert list_processes(folder) == [(i, 3000, True) for i in range(4)]


def test_one_works_without_joblib(folder, monkeypatch):
    monkeypatch.setattr(files, "_LARGE", 0)
    monkeypatch.setitem(sys.modules, "joblib", None)
    assert list_processes(folder) == [(i, 3000, True) for i in range(4)]


def test_the_policy_is_the_same_to_the_last_bit(folder, request):
    here = solve(PROBLEM, scan(folder, COLUMNS))
    request.getfixturevalue("large")
    apart = solve(PROBLEM, scan(folder, COLUMNS))
    assert np.array_equal(here.multipliers, apart.multipliers)
    assert here.solution.passes == apart.solution.passes
    assert here.fingerprints == apart.fingerprints


def test_functions_of_a_script_travel(folder, large):
    costs = custom(lambda rows: 0.1 * rows.probabilities[:, [1, 0]], "doubt")
    problem = Problem(cost([[0, 1], [1, 0]]) + costs, [demographic_parity("sex", tol=0.02)])
    assert solve(problem, scan(folder, COLUMNS)).solution.status.name == "CONVERGED"


@pytest.mark.slow
@pytest.mark.parametrize("doomed", [0, 2, 3])
def test_a_killed_process_changes_nothing(folder, large, doomed):
    here = os.getpid()

    def look(partition, batches):
        if partition == doomed and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return partition, sum(len(batch) for batch in batches)

    assert list_processes(folder, look) == [(i, 3000) for i in range(4)]


@pytest.mark.slow
def test_the_file_of_a_bad_row_is_named(folder, large):
    table = pa.parquet.read_table(folder / "part-2.parquet")
    worse = table.set_column(0, "p_a", pa.array([7.0] * len(table)))
    pa.parquet.write_table(worse, folder / "part-2.parquet")
    with pytest.raises(EvidenceError, match=r"part-2\.parquet"):
        solve(PROBLEM, scan(folder, COLUMNS))


@pytest.mark.slow
def test_scripts_need_no_guard(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from bylaw import Columns, Problem, demographic_parity, error, scan, solve\n"
        "from bylaw.engines import _files as files\n"
        "print('started')\n"
        "files._LARGE = 0\n"
        f"rows = scan({str(folder)!r} + '/*.parquet', Columns(['p_a', 'p_b'], groups={{'sex': 'sex'}}))\n"
        "print(rows.engine.is_large, solve(Problem(error(), [demographic_parity('sex', tol=0.02)]), rows))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.count("started") == 1
    assert done.stderr == ""


def test_a_second_solve_counts_its_own_passes(folder):
    rows = scan(folder, COLUMNS)
    first, second = solve(PROBLEM, rows), solve(PROBLEM, rows)
    assert second.solution.passes == first.solution.passes - 1  # the survey is known
    assert rows.passes == first.solution.passes + second.solution.passes
