"""Evidence of options: beside classes, and without any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from bylaw import Columns, Evidence, EvidenceError
from bylaw.language import Problem
from bylaw.rows import concatenate, find_columns, observe

P = [[0.7, 0.3], [0.2, 0.8]]
W = [[0.5, 0.1], [0.3, 0.2]]


def test_rows_without_classes():
    rows = Evidence(costs={"w": pandas.DataFrame(W, columns=["large", "small"])}, options=["small", "large"])
    assert (len(rows), rows.classes, rows.options) == (2, (), ("small", "large"))
    assert rows.costs["w"].tolist() == [[0.1, 0.5], [0.2, 0.3]]  # matched by name, as probabilities are
    assert repr(rows) == "Evidence(2 rows, options ['small', 'large'])"
    assert len(rows.rows(slice(1))) == 1
    assert len(concatenate([rows, rows])) == 4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Evidence(), "pass probabilities, one column per class, or options="),
        (lambda: Evidence(costs={"w": W}), "probabilities or options must be given"),
        (lambda: Evidence(options=["a", "b"]), "costs must be given .* pass costs="),
        (
            lambda: Evidence(costs={"w": W}, options=["a"]),
            r"options must have two or more names .*, got \['a'\]",
        ),
        (lambda: Evidence(costs={"w": W}, options=[]), r"options must have two or more names .*, got \[\]"),
        (
            lambda: Evidence(costs={"w": W}, options="ab"),
            "options must be a list of names, got the text 'ab'",
        ),
        (lambda: Evidence(costs={"w": W}, options=["a", "a"]), "'a' occurs twice"),
        (lambda: Evidence(costs={"w": W}, options=["a", None]), "an option"),
        (lambda: Evidence(P, options=["1"]), "'1' is also a class"),
        (lambda: Evidence(P, classes=["a", "b"], options=["b"]), "'b' is also a class"),
        (
            lambda: Evidence(costs={"w": W}, options=["a", "b"], classes=["x", "y"]),
            "probabilities must be given for the classes",
        ),
        (
            lambda: Evidence(costs={"w": W}, options=["a", "b", "c"]),
            r"costs\['w'\] must have one column for each of \['a', 'b', 'c'\], got 2",
        ),
        (lambda: Evidence(P, costs={"w": W}, options=["x"]), r"one column for each of \[0, 1, 'x'\]"),
        (lambda: Evidence(costs={"w": W, "u": W[:1]}, options=["a", "b"]), "with 2 rows"),
        (lambda: Evidence(costs={"w": [0.5, 0.1]}, options=["a", "b"]), "must have shape"),
        (
            lambda: Evidence(costs={"w": W}, options=["a", "b"], groups={"g": [1, 2, 3]}),
            r"groups\['g'\] has 3 rows, but costs has 2",
        ),
        (
            lambda: Evidence(costs={"w": W}, options=["a", "b"], references={"old": ["a", "c"]}),
            "'c' in row 1 is not a class",
        ),
        (
            lambda: Evidence(P, references={"old": [0, "senior"]}),
            r"If it is another decision, pass options=\[...\]",
        ),
        (
            lambda: observe(Evidence(costs={"w": W}, options=["a", "b"], labels=["a", "b"])),
            "must be left out if there are only options",
        ),
        (
            lambda: observe(Evidence(costs={"w": W}, options=["a", "b"], true_groups={"g": [1]})),
            "has 1 rows, but costs has 2",
        ),
    ],
)
def test_bad_rows_are_refused(build, message):
    with pytest.raises(EvidenceError, match=message):
        build()


def test_groups_that_some_rows_show():
    rows = Evidence(costs={"w": np.ones((4, 2))}, options=["a", "b"])
    seen = observe(rows.with_observed(true_groups={"g": ["u", "v", None, "u"]}))
    chance = seen.event_probability((("g", "u"),))
    assert chance.mean() == pytest.approx(2 / 3)
    assert chance[2] == pytest.approx(2 / 3)  # of the row that does not show it: the share among the others


NAMES = ["id", "wrong_small", "wrong_large", "usd_small", "usd_large", "old", "label"]
ROUTING = Problem(
    "custom('wrong')", ["custom('usd') <= 1", "disagreement('old') <= 0.5"], decisions=["small", "large"]
)


def test_roles_of_a_table_of_costs():
    found, _ = find_columns({}, NAMES, ROUTING)
    assert found.probabilities == []
    assert found.options == ("small", "large")
    assert found.costs["usd"] == ["usd_small", "usd_large"]
    assert found.label is None  # there is nothing that it could be the label of
    assert Columns.from_dict(found.to_dict()) == replace(found, options=["small", "large"])
    again, _ = find_columns(found.restate(NAMES), NAMES, ROUTING)
    assert again == found


def test_roles_of_options_beside_classes():
    problem = Problem("error() + custom('w')", decisions=["a", "b", "x"])
    names = ["p_a", "p_b", "w_a", "w_b", "w_x"]
    found, _ = find_columns({}, names, problem)
    assert (found.classes, found.options) == (["a", "b"], ("x",))
    assert found.costs == {"w": ["w_a", "w_b", "w_x"]}
    with pytest.raises(EvidenceError, match="columns of the model's probabilities must be given"):
        find_columns({}, names[2:], Problem("error() + custom('w')"))


def test_tables():
    frame = pandas.DataFrame({"a": [0.1, 0.2], "b": [0.3, 0.4], "old": ["y", "x"]})
    rows = Columns(costs={"w": ["a", "b"]}, options=["x", "y"], references={"old": "old"}).evidence(frame)
    assert rows.options == ("x", "y")
    assert rows.references["old"].tolist() == [1, 0]
