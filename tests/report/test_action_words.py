"""What depends on the action space is in one table; nothing else in the report asks for a kind or a name."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import bylaw.report
from bylaw import (
    Evidence,
    Problem,
    accepted,
    cost,
    demographic_parity,
    error,
    rejected,
    rejection_parity,
    solve,
)
from bylaw.language import ACTION_SPACES, LabelSpace, OptionSpace, RejectSpace, SetSpace
from bylaw.language._families import FAMILIES
from bylaw.report import _action_words as action_words, report
from bylaw.report._action_words import WORDS, get_words, name_action, title_action
from helpers.reported import page_of, parsed
from helpers.scored import people

SOURCES = sorted(Path(bylaw.report.__file__).parent.rglob("*.py"))
NAMES = {*FAMILIES, "reject", "sets", "omits", "miscoverage", "disagreement", "rejected", "accepted"}
UNCOMPARED = "no rule here compares referrals by group"


def test_every_action_space_has_its_words():
    assert set(WORDS) == set(ACTION_SPACES.values())
    for space in ACTION_SPACES.values():
        assert get_words(space(("a", "b"))) is WORDS[space]


def test_actions_are_named():
    reject = RejectSpace(("a", "b"), "later")
    assert [title_action(reject, i) for i in range(3)] == [
        "Decided “a”",
        "Decided “b”",
        "Referred (“later”)",
    ]
    assert [name_action(reject, i) for i in range(3)] == ["“a”", "“b”", "referred"]
    assert title_action(SetSpace(("{name}", "b")), 0) == "In the set: “{name}”"
    assert title_action(LabelSpace(("a", "b")), 1) == "Decided “b”"


def test_a_new_action_space_is_added_in_one_place(monkeypatch):
    """A kind with words of its own, in the table and nowhere else."""

    @dataclass(frozen=True)
    class Triage(LabelSpace):
        """Labels by another name."""

    evidence, labels, _ = people(300, 1)
    policy = solve(Problem(error(), [demographic_parity("sex", tol=0.05)]), evidence)
    space = Triage(policy.action_space.classes)
    policy = replace(policy, feature_map=replace(policy.feature_map, action_space=space))
    words = replace(
        WORDS[LabelSpace], title="Sent to {name}", frequency="queue is chosen", glossary="Triage! "
    )
    monkeypatch.setattr(action_words, "WORDS", {**WORDS, Triage: words})
    text = parsed(report(policy, evidence, labels=labels, levels=0).html).words()
    for expected in ("Sent to 1", "How often each queue is chosen", "Triage!"):
        assert expected in text


def test_changes_by_hand():
    baseline, taken = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.9, 0.2], [0.5, 0.3]])
    sets = WORDS[SetSpace].compute_changes(baseline, taken)
    assert sets == pytest.approx([1 - 0.9 * 0.8, 1 - 0.5 * 0.3])
    answers = WORDS[LabelSpace].compute_changes(baseline, np.array([[0.9, 0.1], [0.6, 0.4]]))
    assert answers == pytest.approx([0.1, 0.6])


@pytest.mark.parametrize(
    ("rules", "compared"),
    [
        ([rejected() <= 0.1], False),
        ([rejected() <= 0.1, demographic_parity("sex", tol=0.2)], False),
        ([rejected() <= 0.1, error().given(sex="F") <= 0.4], False),
        ([rejected().given(label=1) <= 0.2], False),
        ([rejection_parity("sex", tol=0.1)], True),
        ([rejected().given(sex="F") <= 0.2], True),
        ([accepted().given(sex="F") >= 0.8], True),
        ([cost([[0, 0, 2], [0, 0, 2]]).given(sex="F") <= 0.4], False),  # it depends on labels, formally
    ],
    ids=str,
)
def test_whether_referrals_are_compared(rules, compared):
    evidence, _, _ = people(400, 2)
    policy = solve(Problem(error(), rules, decisions="reject"), evidence)
    text = parsed(report(policy, evidence, levels=0).html).words()
    assert (UNCOMPARED in text) == (not compared)


def test_referrals_are_no_topic_where_there_are_none():
    assert UNCOMPARED not in page_of("sets")
    evidence = Evidence(np.full((40, 2), 0.5))
    html = report(solve(Problem(error()), evidence), evidence, levels=0).html
    assert "referred" not in html.lower()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_asks_for_a_kind_or_a_name(path):
    """Rates, families and action spaces know themselves."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert not texts & NAMES
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asked = [side.attr for side in sides if isinstance(side, ast.Attribute)]
            constant = any(isinstance(side, ast.Constant | ast.Tuple | ast.Set) for side in sides)
            assert not (constant and {"kind", "name"} & set(asked)), ast.unparse(node)


def test_options_have_titles_of_their_own():
    beside = OptionSpace(("a", "b"), options=("junior", "reject"))
    titles = [title_action(beside, place) for place in range(4)]
    assert titles == ["Decided “a”", "Decided “b”", "Sent to “junior”", "Referred (“reject”)"]
    assert title_action(OptionSpace((), options=("small", "large")), 0) == "Sent to “small”"
