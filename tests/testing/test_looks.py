"""An audit is one look: it is noted, stated, kept in files, and a second one warns."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from bylaw import Evidence, GuaranteeWarning, Policy, PolicyFileError, Problem, audit, error, rejected, solve
from bylaw.errors import Remedy
from bylaw.policy import hash_evidence


def rows(seed, n=400):
    chance = np.random.default_rng(seed).random(n)
    return Evidence(np.column_stack([1 - chance, chance]))


PROBLEM = Problem(error(), [rejected() <= 0.2])
RULE = rejected() <= 0.4
HELD = rows(1)


@pytest.fixture
def policy():
    return solve(PROBLEM, rows(0))


@pytest.fixture(autouse=True)
def strict():
    """No warning goes unnoticed here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def look(policy, held, warned=True, **options):
    if not warned:
        return audit(policy, held, **{"rules": RULE, **options})
    with pytest.warns(GuaranteeWarning, match="this is look"):
        return audit(policy, held, **{"rules": RULE, **options})


def test_the_first_look_is_noted(policy):
    assert len(policy.card.looks) == 0
    found = look(policy, HELD, warned=False)
    (noted,) = policy.card.looks
    assert found.looks == 1
    assert (noted.rows, noted.verdict) == (400, "certified")
    assert noted.fingerprint.rows == 400
    assert noted.fingerprint == hash_evidence(policy.feature_map, HELD)
    assert found.to_dict()["looks"] == 1
    assert "look 1 at this policy on held-out rows" in repr(found)
    assert "look 1 at this policy" in found._repr_html_()


def test_the_same_rows_and_the_same_question_are_the_same_look(policy, tmp_path):
    one = look(policy, HELD, warned=False)
    again = look(policy, HELD.rows(np.arange(400)[::-1]), warned=False)
    policy.save(tmp_path / "p.json")
    loaded = look(Policy.load(tmp_path / "p.json"), HELD, warned=False)
    assert one.looks == again.looks == loaded.looks == 1
    assert len(policy.card.looks) == 1
    assert one.to_dict() == loaded.to_dict()


def test_the_same_look_is_recognised_in_another_process(policy, tmp_path):
    look(policy, HELD, warned=False)
    policy.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert look(loaded, HELD, warned=False).looks == 1
    assert look(loaded, rows(2)).looks == 2


@pytest.mark.parametrize(
    ("held", "options", "where"),
    [
        (rows(2), {}, ": the confidence of 95 % is valid"),
        (HELD.rows(np.arange(300)), {}, ", with some rows of an earlier look"),
        (HELD, {"confidence": 0.9}, ", with some rows of an earlier look"),
        (HELD, {"rules": "rejected() <= 0.5"}, ", with some rows of an earlier look"),
        (HELD, {"method": "hoeffding_bentkus"}, ", with some rows of an earlier look"),
    ],
    ids=["further", "part", "confidence", "rule", "method"],
)
def test_another_look_warns(policy, held, options, where):
    look(policy, HELD, warned=False)
    with pytest.warns(GuaranteeWarning, match=f"look 2 at this policy{where}") as caught:
        found = audit(policy, held, **{"rules": RULE, **options})
    assert found.looks == 2
    confidence = options.get("confidence", 0.95)
    assert caught[0].message.remedy == Remedy("plan_looks", f"{1 - (1 - confidence) / 2:.6g}", ("2",))
    assert caught[0].filename == __file__
    assert "look 2 at this policy on held-out rows: the confidence is that of a single" in repr(found)


def test_looks_change_no_decision_and_no_hash(policy, tmp_path):
    before, digest = policy.probabilities(HELD), policy.digest
    decided = policy.decide(HELD, ids=range(400))
    look(policy, HELD, warned=False)
    look(policy, rows(2))
    assert policy.digest == digest
    assert (policy.probabilities(HELD) == before).all()
    assert (policy.decide(HELD, ids=range(400)) == decided).all()
    policy.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert loaded.digest == digest
    assert [x.to_dict() for x in loaded.card.looks] == [x.to_dict() for x in policy.card.looks]
    assert loaded.card == policy.card
    assert look(loaded, rows(3)).looks == 3
    assert len(policy.card.looks) == 2


def test_an_estimate_is_no_look(policy):
    found = audit(policy, rows(0), fitted_rows="estimate")
    assert (found.looks, len(policy.card.looks)) == (0, 0)
    assert "look" not in repr(found)


def test_policies_have_looks_of_their_own(policy):
    look(policy, HELD, warned=False)
    assert look(solve(PROBLEM, rows(0)), HELD, warned=False).looks == 1


def test_looks_are_checked_when_they_are_read(policy, tmp_path):
    look(policy, HELD, warned=False)
    policy.save(tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text())
    content["card"]["looks"][0]["date"] = "yesterday"
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(PolicyFileError, match="date and time"):
        Policy.load(tmp_path / "p.json")


def test_copies_among_held_out_rows_warn(policy):
    """Each copy counts as an independent row; nothing else can be told of them."""
    copied = HELD.rows(np.tile(np.arange(300), 5))
    with pytest.warns(GuaranteeWarning, match="only 300 of the 1,500 held-out rows are different") as caught:
        audit(policy, copied, rules="rejected() <= 0.9")
    assert caught[0].message.remedy == Remedy("drop_copies")


def test_rows_are_compared_with_those_of_all_looks(policy):
    look(policy, HELD, warned=False)
    look(policy, rows(2))
    with pytest.warns(GuaranteeWarning, match="this is look 3 at this policy, with some rows of"):
        audit(policy, HELD, rules=rejected() <= 0.5)
