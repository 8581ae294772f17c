from __future__ import annotations

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from bylaw import (
    Columns,
    Evidence,
    EvidenceError,
    Policy,
    Problem,
    demographic_parity,
    disagreement,
    error,
    solve,
)
from bylaw.errors import Remedy

P = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]])
T = {"F": [0.1, 0.5, 1.0], "M": [0.9, 0.5, 0.0]}
J = np.full((3, 2, 2), 0.25)  # the margins are even, which P and T are not


def swapped():
    good = np.column_stack([T["F"], T["M"]])[:, :, None] * P[:, None, :]
    return good[:, ::-1]


def objects(*values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def shuffled():
    return pandas.Series(["F", "M", "F"]).loc[[2, 0, 1]]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Evidence([[0.5, np.nan]]), "not finite in row 0"),
        (lambda: Evidence([[0.5, 0.5], [np.inf, 0]]), "not finite in row 1"),
        (lambda: Evidence([[0.5, 0.5], [-0.1, 1.1]]), r"outside \[0, 1\], such as row 1.*apply softmax"),
        (lambda: Evidence([[2.5, -1.0], [0.3, 4.0]]), "if these are logits, apply softmax"),
        (lambda: Evidence([[0.5, 0.5], [0.5, 0.4]]), r"row 1 sums to 0.9.*0.0001.*normalize=True"),
        (lambda: Evidence([[0.0, 0.0]], normalize=True), "all zeros"),
        (lambda: Evidence(np.empty((0, 2))), "is empty"),
        (lambda: Evidence([[1.0], [1.0]]), "two or more classes, got one"),
        (lambda: Evidence([0.5, 0.5]), r"shape \(rows, classes\)"),
        (lambda: Evidence([["a", "b"]]), "must be numbers"),
        (lambda: Evidence(P, classes=["a"]), "one column for each of 1 classes, got 2"),
        (lambda: Evidence(P, classes=["a", "a"]), "must be all different"),
        (lambda: Evidence(P, groups={"s": ["F", "M"]}), r"groups\['s'\] has 2 rows, but probabilities has 3"),
        (lambda: Evidence(P, groups={"s": ["F", None, "M"]}), "1 missing values, the first in row 1"),
        (lambda: Evidence(P, groups={"s": [1.0, np.nan, 2.0]}), "missing values, the first in row 1"),
        (lambda: Evidence(P, groups={"s": pandas.Series(["F", pandas.NA, "M"])}), "1 missing values"),
        (lambda: Evidence(P, groups={"s": polars.Series(["F", "M", None])}), "the first in row 2"),
        (lambda: Evidence(P, groups={"s": ["F", 1, 2]}), "must have one type"),
        (lambda: Evidence(P, groups={"s": ["F", pandas.NA, "M"]}), "1 missing values, the first in row 1"),
        (lambda: Evidence(P, groups={"s": objects([1], [2], [1])}), "must be text or numbers"),
        (lambda: Evidence(P, groups={"s": polars.DataFrame(T).lazy()}), "got a lazy frame; call .collect"),
        (lambda: Evidence(pandas.DataFrame(P, columns=["a", "a"])), "columns with different names"),
        (lambda: Evidence(P, groups={"label": [1, 2, 3]}), "must not be named 'label'"),
        (lambda: Evidence(P, groups={"s": np.full((3, 2), 0.5)}), "must have named columns"),
        (lambda: Evidence(P, groups={"s": {"F": [0.5] * 3, "M": [0.4] * 3}}), "sums to 0.9"),
        (lambda: Evidence(P, groups={"s": {"F": [0.5] * 3, "M": [0.5] * 2}}), "columns of the same length"),
        (lambda: Evidence(P, groups={"s": {"F": [0.5] * 2, "M": [0.5] * 2}}), "has 2 rows"),
        (lambda: Evidence(P, joint={"s": J}), "requires groups"),
        (
            lambda: Evidence(P, groups={"s": ["F", "M", "F"]}, joint={"s": J}),
            "if this group is known, leave joint out",
        ),
        (lambda: Evidence(P, groups={"s": T}, joint={"s": J[:, :1]}), r"must have shape \(3, 2, 2\)"),
        (lambda: Evidence(P, groups={"s": T}, joint={"s": 2 * J}), "sums to 2"),
        (lambda: Evidence(P, groups={"s": T}, joint={"s": swapped()}), "in the same order"),
        (lambda: Evidence(P, groups={"s": T}, joint={"s": J}), "must add up to the"),
        (lambda: Evidence(P, groups=["F", "M", "F"]), "must be a dict {name: column} or a frame, got list"),
        (lambda: Evidence(P, references=pandas.Series([0, 1, 0])), "references must be a dict"),
        (lambda: Evidence(P[:, 1]), r"column_stack\(\[1 - p, p\]\)"),
        (lambda: Evidence(pandas.DataFrame(P), groups={"s": shuffled()}), "in another order"),
        (lambda: Evidence(P, references={"old": [0, 1, 5]}), r"references\['old'\]: .*5.* in row 2"),
        (lambda: Evidence(P, references={"old": [0, 1]}), "has 2 rows"),
        (
            lambda: Evidence(P, references={"old": np.full((3, 3), 1 / 3)}),
            "one column for each of 2 classes, got 3",
        ),
        (lambda: Evidence(P, costs={"c": np.zeros((2, 2))}), "with 3 rows"),
        (lambda: Evidence(P, costs={"c": np.full((3, 2), np.nan)}), "must be finite"),
        (lambda: Evidence(P, weights=[1, -1, 1]), "not negative"),
        (lambda: Evidence(P, weights=[0, 0, 0]), "weights must be positive"),
        (lambda: Evidence(P, weights=[1, np.inf, 1]), "must be finite"),
        (lambda: Evidence(P, weights=[1, 1]), "weights has 2 rows"),
        (lambda: Evidence(P, weights=["a", "b", "c"]), "must be numbers"),
        (lambda: Evidence(P, weights=[[1], [1], [1]]), "one column"),
        (lambda: Evidence(polars.DataFrame(P, schema=["a", "b"]).lazy()), "got a lazy frame; call .collect"),
    ],
)
def test_bad_rows_are_refused_by_name(build, message):
    with pytest.raises(EvidenceError, match=message):
        build()


def test_sums_within_the_tolerance_pass_and_normalize_divides():
    nearly = P * (1 + 5e-5)
    assert (Evidence(nearly).probabilities == nearly).all()
    np.testing.assert_allclose(Evidence(P * 3, normalize=True).probabilities, P)


def test_normalize_serves_every_probability():
    evidence = Evidence(
        2 * P,
        groups={"s": {k: 3 * np.array(v) for k, v in T.items()}},
        joint={"s": 4 * np.column_stack([T["F"], T["M"]])[:, :, None] * P[:, None, :]},
        references={"old": 5 * P},
        normalize=True,
    )
    np.testing.assert_allclose(evidence.groups["s"].probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(evidence.joint["s"].sum(axis=(1, 2)), 1)
    np.testing.assert_allclose(evidence.references["old"], P)


def test_rounding_errors_below_zero_are_dust():
    assert Evidence([[1.0, -1e-17], [0.5, 0.5]]).probabilities.min() == 0


def test_an_earlier_rejection_agrees_with_nothing():
    evidence = Evidence(P, references={"old": ["reject", "reject", "reject"]}, classes=["a", "b"])
    policy = solve(Problem(error()), evidence)
    assert policy.expected(disagreement("old"), evidence) == 1.0


def test_float32_scores_pass():
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(100), size=50).astype(np.float32)
    assert Evidence(scores).probabilities.dtype == np.float64


def frames(columns):
    return [
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
        pyarrow.table(columns),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("library", [0, 1, 2], ids=["pandas", "polars", "pyarrow"])
def test_any_frame_serves_wherever_a_column_does(library):
    rng = np.random.default_rng(0)
    P, T = rng.dirichlet(np.ones(2), 60), rng.dirichlet(np.ones(3), 60)
    sex, old, w = np.where(P[:, 0] > 0.6, "F", "M"), P.argmax(axis=1), rng.random(60)
    problem = Problem(error(), [demographic_parity(["sex", "race"], tol=0.1), disagreement("old") <= 0.4])
    plain = Evidence(
        P,
        classes=["no", "yes"],
        groups={"sex": sex, "race": dict(zip("xyz", T.T, strict=True))},
        references={"old": np.array(["no", "yes"])[old]},
        weights=w,
    )
    series = frames({"sex": sex, "old": np.array(["no", "yes"])[old], "w": w})[library]
    framed = Evidence(
        frames(dict(zip(["no", "yes"], P.T, strict=True)))[library],
        groups={"sex": series["sex"], "race": frames(dict(zip("xyz", T.T, strict=True)))[library]},
        references={"old": series["old"]},
        weights=series["w"],
    )
    assert framed.classes == ("no", "yes")
    expected = solve(problem, plain).probabilities(plain)
    assert (solve(problem, framed).probabilities(framed) == expected).all()


def test_columns_named_after_the_classes_are_matched_by_name():
    swapped = pandas.DataFrame({"yes": P[:, 1], "no": P[:, 0]})
    assert (Evidence(swapped, classes=["no", "yes"]).probabilities == P).all()
    other = pandas.DataFrame({"p0": P[:, 0], "p1": P[:, 1]})
    assert (Evidence(other, classes=["no", "yes"]).probabilities == P).all()
    reference = pandas.DataFrame({"yes": P[:, 1], "no": P[:, 0]})
    assert (Evidence(P, classes=["no", "yes"], references={"r": reference}).references["r"] == P).all()


def test_categories_and_nullable_columns():
    sex = pandas.Series(["F", "M", "F"], dtype="category")
    assert Evidence(P, groups={"sex": sex}).group_values == {"sex": ("F", "M")}
    level = pandas.Series([1, 2, 1], dtype="Int64")
    assert Evidence(P, groups={"level": level}).group_values == {"level": (1, 2)}


def test_chances_of_events():
    even = {"F": [0.5] * 3, "M": [0.5] * 3}
    evidence = Evidence(J.sum(axis=1), groups={"even": even}, joint={"even": J})
    assert evidence.event_probability((("even", "F"), ("label", 1))).tolist() == [0.25] * 3
    evidence = Evidence(P, groups={"known": ["u", "v", "u"], "hidden": T})
    assert evidence.event_probability(()) == 1.0
    assert evidence.event_probability((("known", "u"),)).tolist() == [1, 0, 1]
    assert evidence.event_probability((("hidden", "F"),)).tolist() == T["F"]
    assert evidence.event_probability((("known", "u"), ("label", 1))).tolist() == [0.3, 0, 0.5]
    assert evidence.event_probability((("hidden", "M"), ("known", "v"))).tolist() == [0, 0.5, 0]


def test_a_frame_of_groups_and_of_references():
    frame = polars.DataFrame({"sex": ["F", "M", "F"], "age": [1, 2, 1]})
    assert Evidence(P, groups=frame).group_values == {"sex": ("F", "M"), "age": (1, 2)}
    assert Evidence(P, references=pandas.DataFrame({"old": [0, 1, 1]})).references["old"].tolist() == [
        0,
        1,
        1,
    ]


def test_repr_says_what_is_there():
    evidence = Evidence(P, groups={"sex": ["F", "M", "F"]}, references={"old": [0, 1, 1]})
    assert repr(evidence) == "Evidence(3 rows, 2 classes, sex: ['F', 'M'], reference 'old')"
    many = Evidence(np.full((100, 2), 0.5), groups={"age": np.arange(100)})
    assert repr(many) == (
        "Evidence(100 rows, 2 classes, age: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... 100 in all])"
    )


# Several unknown attributes together.

CELLS = {
    ("F", 0): [0.1, 0.2, 0.6],
    ("F", 1): [0.0, 0.3, 0.4],
    ("M", 0): [0.5, 0.1, 0.0],
    ("M", 1): [0.4, 0.4, 0.0],
}


def test_attributes_that_go_together():
    evidence = Evidence(P, groups={("s", "r"): CELLS})
    assert evidence.group_values == {"s": ("F", "M"), "r": (0, 1)}
    assert evidence.event_probability((("r", 1), ("s", "F"))).tolist() == [0.0, 0.3, 0.4]
    assert evidence.event_probability((("s", "F"),)) == pytest.approx([0.1, 0.5, 1.0])
    assert evidence.rows(slice(1, 2)).event_probability((("r", 0), ("s", "M"))).tolist() == [0.1]


def test_attributes_that_go_together_with_the_label():
    joint = np.stack(list(CELLS.values()), axis=1)[:, :, None] * P[:, None, :]
    evidence = Evidence(P, groups={("s", "r"): CELLS}, joint={("s", "r"): joint})
    assert evidence.event_probability((("label", 1), ("r", 1), ("s", "M"))) == pytest.approx(joint[:, 3, 1])


def test_a_policy_on_attributes_that_go_together_survives_its_file(tmp_path):
    evidence = Evidence(P, groups={("s", "r"): CELLS})
    policy = solve(Problem(error(), [demographic_parity(("r", "s"), tol=0.2)]), evidence)
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    assert np.array_equal(again.probabilities(evidence), policy.probabilities(evidence))
    with pytest.raises(
        EvidenceError, match=r"r and s together.*pass the probabilities of their combinations"
    ):
        again.probabilities(Evidence(P, groups={"s": T, "r": {0: [0.5] * 3, 1: [0.5] * 3}}))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({("s", "r"): [1, 2, 3]}, "must be a dict from tuples of values"),
        ({("s", "r"): {"F": [0.5] * 3, "M": [0.5] * 3}}, "must be a dict from tuples of values"),
        ({("s", "r"): {("F", 0): [0.5] * 2, ("M", 1): [0.5] * 2}}, "has 2 rows"),
        ({("s", "r"): {("F", 0): [0.5] * 3, ("M", 1): [0.4] * 3}}, "sums to 0.9"),
    ],
)
def test_bad_combinations(groups, message):
    with pytest.raises(EvidenceError, match=message):
        Evidence(P, groups=groups)


def test_probabilities_that_were_rounded_can_be_normalized():
    with pytest.raises(EvidenceError) as caught:
        Evidence([[0.5, 0.4]])
    assert caught.value.remedy == Remedy("normalize")
    assert str(caught.value).endswith("; correct it, or pass normalize=True to divide each row by its sum")


def test_categories_of_an_arrow_column_that_no_row_has_are_no_groups():
    groups = pyarrow.DictionaryArray.from_arrays([2, 0, 2], ["a", "b", "c"])
    table = pyarrow.table({"p_0": [0.4, 0.5, 0.2], "p_1": [0.6, 0.5, 0.8], "s": groups})
    evidence = Columns(["p_0", "p_1"], groups={"s": "s"}).evidence(table)
    assert evidence.group_values == {"s": ("a", "c")}
    np.testing.assert_array_equal(evidence.groups["s"].codes, [1, 0, 1])


@pytest.mark.parametrize("wrong", [[-0.2, 1.2], [1.3, 0.0], [-0.3, 0.9]])
def test_the_first_row_outside_of_probabilities_is_named(wrong):
    rows = np.array([[0.5, 0.5], [0.4, 0.6], wrong, [-0.1, 1.1]])
    with pytest.raises(EvidenceError, match="such as row 2"):
        Evidence(rows)
