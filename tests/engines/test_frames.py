"""Answers on frames are those in memory: probabilities, and decisions by id."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas
import pytest

from bylaw import (
    Columns,
    Evidence,
    EvidenceError,
    OptionError,
    Problem,
    demographic_parity,
    error,
    rejected,
    scan,
    solve,
)
from helpers.partitioned_rows import CASES, CLASSES, COLUMNS, make_rows

N = 5000
PARTS = 3


@cache
def make_more() -> pandas.DataFrame:
    more = make_rows().sample(N, replace=True, random_state=1, ignore_index=True)
    return more.assign(id=[f"case {i}" for i in range(N)])


@cache
def make_policy(name):
    if name != "calibrated":
        return CASES[name].solve_in_memory()
    rows, labels = COLUMNS.evidence(make_rows()), make_rows()["label"]
    rules = [demographic_parity("sex", tol=0.05), rejected() <= 0.1]
    return solve(Problem(error(), rules), rows, labels=labels, calibrate="temperature")


@pytest.fixture
def source(kind):
    if kind.name == "files":
        pytest.skip("files are no frames")
    frame = make_more()
    ends = np.linspace(0, N, PARTS + 1).astype(int)
    return kind.load([frame.iloc[ends[i] : ends[i + 1]] for i in range(PARTS)])


@pytest.mark.parametrize("name", ["rejection", "sets", "calibrated"])
def test_decisions_are_those_in_memory(kind, source, name):
    policy = make_policy(name)
    found = kind.fetch(policy.decide(scan(source, COLUMNS), key="a key")).set_index("id")
    expected = policy.decide(COLUMNS.evidence(make_more()), ids=make_more()["id"], key="a key")
    columns = ["in_low", "in_mid", "in_high"] if name == "sets" else ["decision"]
    assert list(found.columns) == columns
    decided = found.loc[make_more()["id"]].to_numpy()
    assert (decided == expected.reshape(N, -1)).all()


def test_probabilities_are_those_in_memory(kind, source):
    policy = make_policy("calibrated")
    found = kind.fetch(policy.probabilities(source, columns=COLUMNS)).set_index("id").loc[make_more()["id"]]
    assert list(found.columns) == [*(f"p_{label}" for label in CLASSES), "p_reject"]
    expected = policy.probabilities(COLUMNS.evidence(make_more()))
    assert np.abs(found.to_numpy() - expected).max() < 1e-12


def test_a_frame_is_a_frame_of_the_same_kind_and_lazy(kind, source):
    policy = make_policy("rejection")
    found = policy.decide(source, columns=replace(COLUMNS, id=None), ids="id")
    assert type(found) is type(source)
    assert list(kind.fetch(found).columns) == ["id", "decision"]


def test_ids_are_named_and_nothing_else_is_random(kind, source):
    policy, nameless = make_policy("rejection"), replace(COLUMNS, id=None)
    for options, words in [
        ({"columns": nameless}, "pass ids="),
        ({"columns": nameless, "ids": [1, 2]}, "pass ids="),
        ({"columns": COLUMNS, "rng": 0}, "leave out rng="),
        ({"columns": COLUMNS, "method": "argmax"}, "leave out rng="),
    ]:
        with pytest.raises(OptionError, match=words):
            policy.decide(source, **options)
    with pytest.raises(EvidenceError, match="must have the column 'case'"):
        policy.decide(source, columns=COLUMNS, ids="case")
    with pytest.raises(OptionError, match="leave out columns="):
        policy.decide(scan(source, COLUMNS), columns=COLUMNS)


@pytest.mark.slow
def test_spark_decides_without_python(spark, tmp_path, capsys):
    make_more().to_parquet(tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    make_policy("sets").decide(frame, columns=COLUMNS).explain("extended")
    plan = capsys.readouterr().out
    assert "FileScan parquet" in plan
    assert not any(word in plan for word in ("Python", "MapInArrow", "MapInPandas", "UDF"))


def test_files_have_no_frame(tmp_path):
    make_more().to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(OptionError, match="cannot be returned as a lazy frame"):
        make_policy("rejection").decide(scan(tmp_path / "rows.parquet", COLUMNS))


def test_whole_numbers_beside_a_rejection_are_text():
    import polars

    rows = Evidence([[0.9, 0.1], [0.4, 0.6]])
    policy = solve(Problem(error(), [rejected() <= 0.2]), rows)
    frame = polars.LazyFrame({"no": [0.9, 0.4], "yes": [0.1, 0.6], "id": [1, 2]})
    decided = policy.decide(frame, columns=Columns(["no", "yes"], classes=[0, 1], id="id")).collect()
    assert decided["decision"].to_list()[0] == "0"
