"""Answers to random problems of all kinds, recorded before the source was simplified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.fuzz.golden import KINDS, compare, list_cases, record

RECORD = Path(__file__).with_name("golden.json")
SHARE = 0.2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_recorded(kind):
    before = {(one["kind"], one["seed"]): one for one in json.loads(RECORD.read_text())}
    cases = [case for case in list_cases(SHARE) if case[0] == kind]
    assert cases
    apart = [line for case in cases for line in compare(before[case], record(case))]
    assert not apart, "\n".join(apart)
