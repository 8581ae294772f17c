"""bylaw audit --record: looks are noted in the policy's file, and only when asked."""

from __future__ import annotations

import json

import pyarrow.parquet as parquet
import pytest

from bylaw import Policy

RULE = ("--rule", "rejected() <= 0.15")


@pytest.mark.slow
def test_a_look_is_recorded_when_asked(policy, bylaw):
    before = policy.read_text()
    first = bylaw("audit", "policy.json", "held.parquet", *RULE)
    assert policy.read_text() == before
    assert "look 1 at this policy on held-out rows (--record notes it" in first.out
    assert bylaw("audit", "policy.json", "held.parquet", *RULE, "--record").code == 0
    (noted,) = Policy.load(policy).card.looks
    assert (noted.rows, noted.verdict) == (40_000, "certified")
    assert Policy.load(policy).digest == json.loads(before)["hash"]
    again = bylaw("audit", "policy.json", "held.parquet", *RULE, "--json")
    assert json.loads(again.out)["looks"] == 1
    assert not again.err


@pytest.mark.slow
def test_a_further_look_warns_in_the_words_of_the_shell(policy, bylaw):
    parquet.write_table(parquet.read_table("held.parquet").slice(0, 20_000), "half.parquet")
    assert bylaw("audit", "policy.json", "half.parquet", *RULE, "--record").code == 0
    second = bylaw("audit", "policy.json", "held.parquet", *RULE)
    assert second.code == 0
    assert "this is look 2 at this policy" in second.err
    assert "--confidence 0.975 for 2" in " ".join(second.err.split())
    assert "look 2 at this policy" in second.out
    shown = bylaw("show", "policy.json")
    assert "certified on 20,000 rows" in shown.out
    facts = json.loads(bylaw("show", "policy.json", "--json").out)
    assert [look["rows"] for look in facts["looks"]] == [20_000]


def test_an_estimate_is_not_recorded(policy, bylaw):
    answer = bylaw("audit", "policy.json", "scores.parquet", "--fitted-rows", "estimate", "--record")
    assert answer.code == 2
    assert "--record has no effect without held-out rows" in answer.err
    assert len(Policy.load(policy).card.looks) == 0
