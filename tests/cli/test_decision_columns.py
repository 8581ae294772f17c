"""Decisions in columns: what is written is read back, as actions and as sets."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest

from bylaw.cli.decisions import DecisionColumn
from bylaw.errors import EvidenceError, OptionError
from bylaw.language import make_action_space


def column(kind, classes, as_text=False):
    space = make_action_space(kind, classes)
    policy = SimpleNamespace(action_space=space, actions=space.actions)
    return DecisionColumn(policy, as_text=as_text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "classes", "decisions", "arrow_type"),
    [
        ("labels", ("no", "yes"), ["yes", "no"], pyarrow.string()),
        ("labels", (0, 1), [1, 0], pyarrow.int64()),
        ("labels", (0.5, 1.0), [1.0, 0.5], pyarrow.float64()),
        ("labels", (True, False), [True, False], pyarrow.bool_()),
        ("reject", (0, 1), [1, "reject"], pyarrow.string()),
    ],
)
def test_actions_survive(kind, classes, decisions, arrow_type):
    found = column(kind, classes)
    written = found.write(np.array([found.actions.index(decision) for decision in decisions]))
    assert written.type == found.arrow_type == arrow_type
    assert found.read(written.to_pylist()).tolist() == decisions


@pytest.mark.parametrize(
    ("classes", "text", "action"),
    [((True, False), "true", True), ((1.0, 2.5), "1", 1.0), (("1", 1.0), "1", "1"), ((0, 1), "x", "x")],
)
def test_texts_of_actions(classes, text, action):
    """An action's own text goes first, and what is no action stays, for the audit to refuse."""
    (found,) = column("labels", classes).read([text])
    assert (found, type(found)) == (action, type(action))


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("classes", [("a", "b", "c"), (1, 2, 3)])
def test_sets_survive(classes, as_text):
    inside = np.array([[True, False, True], [False, False, False], [False, True, False]])
    found = column("sets", classes, as_text)
    written = found.write(inside)
    assert written.type == found.arrow_type
    assert isinstance(written.to_pylist()[0], str if as_text else list)
    np.testing.assert_array_equal(found.read(written.to_pylist()), inside)


def test_one_decision_is_a_plain_value():
    assert column("sets", ("a", "b")).name(np.array([False, True])) == ["b"]
    assert type(column("labels", (0, 1)).name(np.array([1])[0])) is int
    assert column("reject", (0, 1)).name(2) == "reject"


def test_what_is_refused():
    with pytest.raises(EvidenceError, match="every row must have a decision, got none in row 1"):
        column("labels", (0, 1)).read([0, None])
    with pytest.raises(EvidenceError, match="every row must have a decision, got none in row 0"):
        column("sets", (0, 1)).read([None])
    with pytest.raises(EvidenceError, match=r"must consist of labels of the policy, .* got 'c'"):
        column("sets", ("a", "b")).read(["a;c"])
    with pytest.raises(OptionError, match="must have no semicolon"):
        column("sets", ("a", "b;c"), as_text=True)
    assert column("sets", ("a", "b;c")).read([["b;c"]]).tolist() == [[False, True]]
