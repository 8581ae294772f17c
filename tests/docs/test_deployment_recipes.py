"""The recipes for deployment run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas
import pytest

from bylaw import Evidence, Problem, demographic_parity, error, rejected, solve

RECIPES = Path(__file__).parents[2] / "examples" / "deployment"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A policy, and rows to decide."""
    folder, rng = tmp_path_factory.mktemp("deployed"), np.random.default_rng(0)
    chance, race = rng.beta(4, 2, 600), rng.choice(["black", "others"], 600)
    chance[race == "black"] *= 0.9
    rows = Evidence(np.column_stack([chance, 1 - chance]), classes=["approve", "deny"], groups={"race": race})
    policy = solve(Problem(error(), [demographic_parity("race", tol=0.02), rejected() <= 0.1]), rows)
    policy.save(folder / "policy.json")
    table = pandas.DataFrame({"p_approve": chance, "p_deny": 1 - chance, "race": race})
    table.insert(0, "id", [f"case {i}" for i in range(len(table))])
    table.to_parquet(folder / "rows.parquet")
    return folder, policy, rows, table


@pytest.fixture
def client(made, monkeypatch):
    from fastapi.testclient import TestClient

    monkeypatch.setenv("POLICY", str(made[0] / "policy.json"))
    spec = importlib.util.spec_from_file_location("fastapi_app", RECIPES / "fastapi_app.py")
    assert spec is not None
    assert spec.loader is not None
    service = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fastapi_app", service)  # where annotations are looked up
    spec.loader.exec_module(service)
    return TestClient(service.app)


def ask(client, table, **changes):
    cases = [
        {"id": row.id, "scores": {"approve": row.p_approve, "deny": row.p_deny}, "groups": {"race": row.race}}
        | changes
        for row in table.itertuples()
    ]
    return client.post("/decide", json=cases)


@pytest.mark.slow
def test_the_service_decides_as_the_policy(client, made):
    _, policy, rows, table = made
    reply = ask(client, table)
    assert reply.status_code == 200
    answers = reply.json()
    expected = policy.decide(rows, ids=table["id"].to_numpy())
    assert [one["decision"] for one in answers] == [str(one) for one in expected]
    assert {one["policy"] for one in answers} == {policy.digest}
    assert answers[0]["chances"].keys() == {"approve", "deny", "reject"}
    alone = ask(client, table[7:8]).json()[0]
    assert alone == answers[7]  # whatever else is asked with it


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"scores": {"approve": 0.9, "deny": 0.9}}, "sum"),
        ({"scores": {"approve": 0.9}}, "deny"),
        ({"groups": {"race": "green"}}, "green"),
        ({"groups": {}}, "race"),
    ],
)
def test_the_service_refuses_what_the_policy_does(client, made, changes, word):
    reply = ask(client, made[3][:1], **changes)
    assert reply.status_code == 422
    assert word in reply.text


@pytest.mark.slow
def test_the_model_of_mlflow(made, tmp_path):
    folder, policy, rows, table = made
    script = [sys.executable, RECIPES / "mlflow_pyfunc.py", folder / "policy.json", folder / "rows.parquet"]
    found = subprocess.run(
        [*map(str, script), str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
    decided = pandas.read_csv(StringIO(found.stdout))
    assert decided["decision"].tolist() == policy.decide(rows, ids=table["id"].to_numpy()).tolist()
