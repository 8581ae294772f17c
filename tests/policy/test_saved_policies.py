"""Policies and streams that earlier versions saved load, and decide as they did then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bylaw import ConvergenceWarning, Evidence, Policy, Stream

SAVED = Path(__file__).parent / "saved"
DECIDED = json.loads((SAVED / "decided.json").read_text())
ROWS = {name: np.array(column) for name, column in DECIDED["rows"].items()}


def evidence(n_actions):
    race = ROWS["race"]
    return Evidence(
        ROWS["probabilities"],
        classes=["a", "b", "c"],
        groups={"sex": ROWS["sex"], "race": {"x": race[:, 0], "z": race[:, 1]}},
        joint={"race": race[:, :, None] * ROWS["probabilities"][:, None, :]},
        references={"old": ROWS["old"]},
        costs={"visit": ROWS["visit"][:, :n_actions]},
        weights=np.r_[np.ones(200), 2 * np.ones(40)],
    )


def read_floats(rows):
    return np.array([[float.fromhex(value) for value in row] for row in rows])


@pytest.mark.parametrize("name", ["labels", "reject", "sets", "observed"])
def test_a_saved_policy_decides_as_it_did(name, tmp_path):
    policy = Policy.load(SAVED / f"{name}.json")
    rows = evidence(len(policy.actions))
    then = DECIDED["cases"][name]
    assert policy.decide(rows, ids=range(240)).tolist() == then["decisions"]
    np.testing.assert_allclose(policy.probabilities(rows), read_floats(then["probabilities"]), atol=1e-12)
    policy.save(tmp_path / "again.json")
    old, new = (json.loads(p.read_text()) for p in (SAVED / f"{name}.json", tmp_path / "again.json"))
    changed = {"version", "fingerprints", "checksum", "card"}
    changed |= {"frequencies", "multipliers", "guarantee", "solution", "fitted_rates"}  # they are rounded now
    assert {k: old[k] for k in old if k not in changed} == {k: new[k] for k in new if k not in changed}
    assert old["card"].items() <= new["card"].items()
    Policy.load(tmp_path / "again.json").save(tmp_path / "third.json")
    assert (tmp_path / "third.json").read_text() == (tmp_path / "again.json").read_text()


def test_hashes_of_rows_in_old_files_are_forgotten(tmp_path):
    """Version 1 kept hashes of single rows; what is saved again has their number."""
    policy = Policy.load(SAVED / "labels.json")
    policy.save(tmp_path / "again.json")
    (old,) = json.loads((SAVED / "labels.json").read_text())["fingerprints"]
    (new,) = json.loads((tmp_path / "again.json").read_text())["fingerprints"]
    assert set(old) == {"rows", "total", "sketch"}
    assert new == {"rows": 240, "digests": []}
    assert old["rows"] == 240


@pytest.mark.parametrize("name", ["labels", "reject", "sets", "observed"])
def test_a_saved_policy_without_newer_terms_has_those_that_can_be_recomputed(name):
    terms = Policy.load(SAVED / f"{name}.json").guarantee
    assert terms.rows == 240
    assert terms.sampling == pytest.approx(terms.sigma / np.sqrt(240))
    assert np.isnan(terms.most_slack) == (terms.multiplier_norm > 0)
    assert "on new rows, by the sampling of 240 rows" in str(terms)


def test_a_saved_stream_goes_on_as_it_did():
    stream = Stream.load(SAVED / "stream.json").partial_fit(evidence(4).rows(slice(120, 240)))
    with pytest.warns(ConvergenceWarning, match=r"'rejected\(\) <= 0.3' is violated most, by 0.329"):
        policy = stream.policy()
    np.testing.assert_allclose(policy.score_matrix, read_floats(DECIDED["stream"]), atol=1e-10)
