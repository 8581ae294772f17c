"""A secret key from a file: the same decisions in memory, by the command line and by SQL; in no output."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pyarrow.parquet as parquet
import pytest

from bylaw import Evidence, Policy
from bylaw.rows import TableFile

SECRET = "5f0c3a1b97e24d6c8b5f0c3a1b97e24d"


@pytest.fixture
def key_file(folder):
    path = folder / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


@pytest.mark.slow
def test_one_secret_gives_one_answer_everywhere(policy, key_file, folder, bylaw):
    rows = parquet.read_table("new.parquet")
    scores = np.column_stack([rows["p_no"], rows["p_yes"]])
    evidence = Evidence(scores, classes=["no", "yes"], groups={"sex": rows["sex"].to_pylist()})
    loaded = Policy.load(policy)
    expected = loaded.decide(evidence, ids=rows["id"].to_numpy(), key=SECRET).tolist()
    assert expected != loaded.decide(evidence, ids=rows["id"].to_numpy()).tolist()

    answer = bylaw("decide", "policy.json", "new.parquet", "-o", "d.parquet", "--key-file", "key", "--json")
    assert answer.code == 0
    assert not answer.err
    assert TableFile(folder / "d.parquet").read()["decision"].to_pylist() == expected

    row = int(loaded.probabilities(evidence).max(axis=1).argmin())
    why = bylaw("explain", "policy.json", "new.parquet", "--row", row, "--key-file", "key", "--json")
    assert json.loads(why.out)["decision"] == expected[row]

    export = ["export", "sql", "policy.json", "--dialect", "duckdb", "--table", "new", "-o", "p.sql"]
    assert bylaw(*export, "--id-column", "id", "--key-parameter", "$key").code == 0
    statement = (folder / "p.sql").read_text()
    with duckdb.connect() as connection:
        connection.register("new", rows)
        found = connection.execute(statement, {"key": SECRET}).df().sort_values("id")
    assert found["decision"].tolist() == expected

    assert bylaw("export", "python", "policy.json", "-o", "p.py").code == 0
    module = {}
    exec((folder / "p.py").read_text(), module)
    first = rows.slice(row, 1).to_pylist()[0]
    assert module["decide"](first, first["id"], key=SECRET) == expected[row]
    written = [path for path in folder.iterdir() if path != key_file]
    assert not any(SECRET.encode() in path.read_bytes() for path in written)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got 0;"),
        (b"\n", "got 0;"),
        (b"short\r\n", "got 5;"),
        (b"\xff" * 32, "must be UTF-8 text"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(content, message, policy, key_file, bylaw):
    key_file.write_bytes(content)
    answer = bylaw("decide", "policy.json", "new.parquet", "-o", "d.csv", "--key-file", "key")
    assert answer.code == 2
    assert message in answer.err
    assert "openssl rand -hex 32" in answer.err
    assert not key_file.with_name("d.csv").exists()


@pytest.mark.slow
def test_keys_that_make_no_sense(policy, key_file, bylaw):
    decide = ["decide", "policy.json", "new.parquet", "-o", "d.csv"]
    assert "--key and --key-file cannot be combined" in bylaw(*decide, "--key", "a", "--key-file", "key").err
    assert "the file none does not exist" in bylaw(*decide, "--key-file", "none").err
    assert bylaw("decide", "policy.json", "new.parquet", "-o", "key", "--key-file", "key").code == 2
    assert key_file.read_text() == f"{SECRET}\n"
    key_file.chmod(0o644)
    assert "all users of this machine can read key" in bylaw(*decide, "--key-file", "key").err
