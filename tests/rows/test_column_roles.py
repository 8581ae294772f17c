"""Which column is what: stated, or obvious."""

from __future__ import annotations

import numpy as np
import pandas
import pyarrow
import pytest

from bylaw import Columns, Problem
from bylaw.errors import EvidenceError, Remedy
from bylaw.rows import find_columns

NAMES = ["id", "p_no", "p_yes", "sex", "race_black", "race_white", "old", "w", "y"]


def roles(rules, stated=None, names=NAMES, minimize="error()"):
    return find_columns(stated or {}, names, Problem(minimize, rules))[0]


def guesses(rules, stated=None, names=NAMES):
    return find_columns(stated or {}, names, Problem("error()", rules))[1]


def refuse(*arguments, **options):
    """What is refused, in the words of Python, and its remedy."""
    with pytest.raises(EvidenceError) as caught:
        roles(*arguments, **options)
    return str(caught.value), caught.value.remedy


def test_what_is_obvious_is_guessed_and_reported():
    rules = [
        "demographic_parity('sex', tol=.1)",
        "demographic_parity('race', tol=.1)",
        "disagreement('old') <= .1",
    ]
    found = roles(rules)
    assert found.probabilities == ["p_no", "p_yes"]
    assert found.classes == ["no", "yes"]
    assert found.groups == {"sex": "sex", "race": {"black": "race_black", "white": "race_white"}}
    assert found.references == {"old": "old"}
    assert (found.label, found.id, found.weights) == ("y", "id", None)
    assert len(guesses(rules)) == 6
    assert set(found.needed) == {*NAMES} - {"id", "w", "y"}
    assert set(found.numbers) == {"p_no", "p_yes", "race_black", "race_white"}
    assert found.list_values({"sex": ("F", "M")}) == {
        "sex": ("F", "M"),
        "old": ["no", "yes"],
        "y": ["no", "yes"],
    }


def test_what_could_be_two_things_is_asked_for():
    """A group and columns that begin with its name, two labels, two weights: nothing is chosen in silence."""
    with pytest.raises(EvidenceError, match="race must be either a column or probabilities"):
        roles(["demographic_parity('race', tol=.1)"], names=[*NAMES, "race"])
    stated = {"group_probabilities": {"race": "race_*"}}
    assert roles(["demographic_parity('race', tol=.1)"], stated, [*NAMES, "race"]).true_groups == {
        "race": "race"
    }
    with pytest.raises(EvidenceError, match="the column of the label must be chosen from y and outcome"):
        roles([], names=[*NAMES, "outcome"])
    with pytest.raises(EvidenceError, match="the column of the weight must be chosen"):
        roles([], names=[*NAMES, "weight", "sample_weight"])
    assert find_columns({}, [*NAMES, "outcome"], Problem("error()"), without=("label",))[0].label is None
    with pytest.raises(EvidenceError, match="race must be either in groups"):
        roles(["demographic_parity('race', tol=.1)"], {**stated, "groups": ["race"]}, [*NAMES, "race"])


def test_what_is_stated_goes_first():
    stated = {
        "probabilities": ["p_yes", "p_no"],
        "classes": ["si", "non"],
        "groups": {"sex": "old"},
        "label": "old",
        "weight": "w",
        "id": "y",
    }
    found = roles(["demographic_parity('sex', tol=.1)"], stated)
    assert (found.probabilities, found.classes) == (["p_yes", "p_no"], ["si", "non"])
    assert found.groups == {"sex": "old"}
    assert (found.label, found.id, found.weights) == ("old", "y", "w")
    assert guesses(["demographic_parity('sex', tol=.1)"], stated) == []


def test_classes_and_a_pattern_go_by_name():
    stated = {"probabilities": "p_*", "classes": ["yes", "no"]}
    assert roles([], stated).probabilities == ["p_yes", "p_no"]
    with pytest.raises(EvidenceError, match="give the columns as a list"):
        roles([], {"probabilities": "p_*", "classes": ["si", "non"]})


def test_what_no_rule_refers_to_is_refused():
    for stated in ({"references": {"old": "old"}}, {"costs": {"visit": "v_*"}}):
        with pytest.raises(EvidenceError, match="must be a name that rules refer to"):
            roles([], stated)
    with pytest.raises(EvidenceError, match="requires group_probabilities"):
        roles(["demographic_parity('sex', tol=.1)"], {"true_groups": ["sex"]})


def test_classes_are_numbers_where_all_are():
    assert roles([], names=["p_0", "p_1"]).classes == [0, 1]
    assert roles([], names=["p_0", "p_01"]).classes == ["0", "01"]
    assert roles([], names=["p_True", "p_False"]).classes == [True, False]


def test_references_and_costs_follow_the_order_of_the_classes():
    names = ["p_no", "p_yes", "old_yes", "old_no", "visit_reject", "visit_yes", "visit_no"]
    rules = ["disagreement('old') <= .1", "custom('visit') <= 1", "rejected() <= .1"]
    found = roles(rules, names=names)
    assert found.references == {"old": ["old_no", "old_yes"]}
    assert found.costs == {"visit": ["visit_no", "visit_yes", "visit_reject"]}
    with pytest.raises(EvidenceError, match=r"costs\.visit must have a column for 'reject'"):
        roles(rules, names=[name for name in names if name != "visit_reject"])


def test_a_table_of_columns_goes_by_its_keys_and_a_list_by_its_order():
    names = ["p_no", "p_yes", "no", "yes"]
    rules = ["disagreement('old') <= .1"]
    keyed = roles(rules, {"references": {"old": {"yes": "yes", "no": "no"}}}, names)
    assert keyed.references == {"old": ["no", "yes"]}
    listed = roles(rules, {"references": {"old": ["yes", "no"]}}, names)
    assert listed.references == {"old": ["yes", "no"]}
    with pytest.raises(EvidenceError, match=r"must have 2 columns, in the order \['no', 'yes'\]"):
        roles(rules, {"references": {"old": ["yes", "no", "yes"]}}, names)


def test_columns_of_numbers_and_a_rejection():
    """The stars are then text, the classes numbers; a table in TOML has text for keys, too."""
    names = ["p_1", "p_0", "visit_0", "visit_1", "visit_reject", "o0", "o1"]
    rules = ["custom('visit') <= 1", "rejected() <= .1", "disagreement('old') <= .1"]
    found = roles(rules, {"references": {"old": {"0": "o0", "1": "o1"}}}, names)
    assert found.classes == [1, 0]
    assert found.costs == {"visit": ["visit_1", "visit_0", "visit_reject"]}
    assert found.references == {"old": ["o1", "o0"]}


def test_odd_names_are_no_trouble():
    assert roles([], names=["p_--1", "p_2"]).classes == ["--1", "2"]
    found = roles(["demographic_parity('a*b', tol=.1)"], names=["p_0", "p_1", "a*b"])
    assert found.groups == {"a*b": "a*b"}
    with pytest.raises(EvidenceError, match="two or more columns"):
        roles([], {"probabilities": []})
    stated = {"group_probabilities": {"race": "race_*"}, "joint": {"race": [["p_no", "p_yes"], ["p_no"]]}}
    with pytest.raises(EvidenceError, match="must have 2 lists"):
        roles(["equalized_odds('race', tol=.1)"], stated)


def test_joint_probabilities_are_named_by_two_stars():
    cells = [f"j_{value}_{label}" for value in ("black", "white") for label in ("no", "yes")]
    stated = {"group_probabilities": {"race": "race_*"}, "joint": {"race": "j_*_*"}}
    found = roles(["equalized_odds('race', tol=.1)"], stated, NAMES + cells)
    assert found.joint == {"race": [cells[:2], cells[2:]]}
    with pytest.raises(EvidenceError, match="no column 'j_white_yes'"):
        roles(["equalized_odds('race', tol=.1)"], stated, NAMES + cells[:3])
    with pytest.raises(EvidenceError, match="two stars"):
        roles([], {**stated, "joint": {"race": "j_*"}})
    with pytest.raises(EvidenceError, match="requires group_probabilities"):
        roles([], {"joint": {"race": "j_*_*"}})


@pytest.mark.parametrize(
    ("rules", "stated", "message"),
    [
        (
            ["demographic_parity('age', tol=.1)"],
            {},
            "rule refers to 'age', but the table has neither a column 'age'",
        ),
        (["disagreement('new') <= .1"], {}, r"the earlier model 'new'"),
        ([], {"label": "truth"}, "label: the table has no column 'truth'"),
        ([], {"probabilities": "q_*"}, r"'q_\*' must be a pattern"),
        ([], {"probabilities": "p_*", "classes": ["a"]}, "one column for each of 1 classes, got 2"),
    ],
)
def test_what_no_column_has_is_named(rules, stated, message):
    with pytest.raises(EvidenceError, match=message):
        roles(rules, stated)


def test_probabilities_that_are_not_obvious_are_asked_for():
    with pytest.raises(EvidenceError, match="columns of the model's probabilities must be given"):
        roles([], names=["p_a", "p_b", "prob_a", "prob_b"])


def test_roles_survive_as_plain_values():
    cells = [f"j_{value}_{label}" for value in ("black", "white") for label in ("no", "yes")]
    stated = {"group_probabilities": {"race": "race_*"}, "joint": {"race": "j_*_*"}, "weight": "w"}
    found = roles(
        ["equalized_odds('race', tol=.1)", "demographic_parity('sex', tol=.1)"], stated, NAMES + cells
    )
    again = Columns.from_dict(found.to_dict())
    assert again.to_dict() == found.to_dict()
    assert again == found
    with pytest.raises(EvidenceError, match="must name the columns"):
        Columns.from_dict({"probabilities": 3})


def test_group_values_that_are_numbers_survive():
    found = roles(["demographic_parity('age', tol=.1)"], names=["p_a", "p_b", "age_1", "age_2"])
    again = Columns.from_dict(found.to_dict())
    table = pyarrow.table({"p_a": [0.5], "p_b": [0.5], "age_1": [0.4], "age_2": [0.6]})
    assert again.evidence(table).group_values == {"age": (1, 2)}


@pytest.mark.parametrize(
    ("rules", "stated", "names", "remedy", "advice"),
    [
        (
            ["demographic_parity('age', tol=.1)"],
            {},
            NAMES,
            Remedy("pass_groups", "age"),
            "pass groups={'age': ...}",
        ),
        (
            ["disagreement('new') <= .1"],
            {},
            NAMES,
            Remedy("pass_reference", "new"),
            "pass references={'new': its labels}",
        ),
        (
            ["custom('visit') <= .1"],
            {},
            NAMES,
            Remedy("pass_costs", "visit"),
            "pass costs={'visit': an array}",
        ),
        (
            ["demographic_parity('race', tol=.1)"],
            {},
            [*NAMES, "race"],
            Remedy("choose_group", "race"),
            "; pass groups=['race'] or group_probabilities={'race': 'race_*'}",
        ),
        (
            [],
            {},
            [*NAMES, "outcome"],
            Remedy("choose_column", "label", ("y", "outcome")),
            "; pass label='y', for instance",
        ),
        (
            [],
            {},
            ["a", "b"],
            Remedy("choose_probabilities"),
            "; pass probabilities='p_*', or a list of columns, one for each class",
        ),
        (
            [],
            {"probabilities": "p_*", "classes": ["si", "non"]},
            NAMES,
            Remedy("list_columns"),
            "; give the columns as a list, in the order of the classes",
        ),
    ],
)
def test_what_to_state_is_a_remedy(rules, stated, names, remedy, advice):
    message, found = refuse(rules, stated, names)
    assert found == remedy
    assert message.endswith(advice)


def test_a_card_without_columns_asks_for_another_fit():
    with pytest.raises(EvidenceError, match="; fit it again") as caught:
        Columns.from_dict({})
    assert caught.value.remedy == Remedy("refit")


def test_no_message_names_a_flag_of_the_command_line():
    for rules, names in (
        (["demographic_parity('race', tol=.1)"], [*NAMES, "race"]),
        (["demographic_parity('age', tol=.1)"], NAMES),
        ([], [*NAMES, "outcome"]),
        ([], ["a"]),
    ):
        assert "--" not in refuse(rules, names=names)[0]


@pytest.mark.parametrize(("positive", "first"), [(None, [0.8, 0.3]), ("yes", [0.8, 0.3]), ("no", [0.2, 0.7])])
def test_one_column_is_the_probability_of_the_positive_class(positive, first):
    """Of the last class, unless it is stated."""
    columns = Columns(["p"], classes=["no", "yes"], positive=positive)
    rows = columns.evidence(pandas.DataFrame({"p": [0.2, 0.7]}))
    np.testing.assert_allclose(rows.probabilities, np.column_stack([first, 1 - np.array(first)]))
