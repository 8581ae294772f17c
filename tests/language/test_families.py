from __future__ import annotations

import pytest

from bylaw import (
    RuleError,
    coverage_parity,
    demographic_parity,
    disparate_impact,
    equal_opportunity,
    equalized_odds,
    error_parity,
    rejection_parity,
)

GROUPS = {"sex": ("F", "M"), "race": ("A", "B", "C"), "one": ("x",)}


def texts(family, classes=(0, 1)):
    return [str(rule) for rule in family.expand(classes, GROUPS)]


def test_demographic_parity_has_two_rules_per_group_and_label():
    rules = texts(demographic_parity("sex", tol=0.02))
    assert len(rules) == 2 * 2 * 2
    assert rules[:2] == [
        "selected(0).given(sex='F') - selected(0) <= 0.02",
        "selected(0).given(sex='F') - selected(0) >= -0.02",
    ]


@pytest.mark.parametrize(
    ("family", "count"),
    [
        (demographic_parity(["sex", "race"], tol=0.1), 2 * 2 * (2 + 3)),
        (demographic_parity(("sex", "race"), tol=0.1), 2 * 2 * 6),
        (demographic_parity("race", tol=0.1, between="groups"), 2 * 6),
        (demographic_parity("race", tol=0.1, labels=[1]), 2 * 3),
        (equalized_odds("race", tol=0.1), 2 * 3 * 4),
        (equalized_odds("race", tol=0.1, labels=[1]), 2 * 3 * 2),
        (equal_opportunity("race", tol=0.1), 2 * 3 * 2),
        (equal_opportunity("race", tol=0.1, labels=[1]), 2 * 3),
        (disparate_impact("race", labels=[1]), 6),
        (disparate_impact("race", labels=[1], between="overall"), 3),
        (error_parity("race", tol=0.1), 6),
        (rejection_parity("race", tol=0.1), 6),
        (coverage_parity("race", tol=0.1), 6),
    ],
)
def test_number_of_rules(family, count):
    assert len(texts(family)) == len(set(texts(family))) == count


def test_what_the_families_say():
    assert texts(equalized_odds("sex", tol=0.1))[4] == (
        "selected(1).given(label=0, sex='F') - selected(1).given(label=0) <= 0.1"
    )
    assert texts(disparate_impact("sex", labels=[1])) == [
        "selected(1).given(sex='F') >= 0.8 * selected(1).given(sex='M')",
        "selected(1).given(sex='M') >= 0.8 * selected(1).given(sex='F')",
    ]
    assert texts(demographic_parity(("sex", "race"), tol=0.1))[0] == (
        "selected(0).given(race='A', sex='F') - selected(0) <= 0.1"
    )


def test_tolerances_per_group_and_label():
    by_group = texts(demographic_parity("sex", tol={"F": 0.1, "M": 0.2}))
    assert [rule.split()[-1] for rule in by_group[:4]] == ["0.1", "-0.1", "0.2", "-0.2"]
    finer = {("F", 0): 0.1, ("F", 1): 0.2, "M": 0.3}
    by_label = texts(equalized_odds("sex", tol=finer))
    assert {rule.split()[-1] for rule in by_label if "sex='F'" in rule and "label=0" in rule} == {
        "0.1",
        "-0.1",
    }
    assert {rule.split()[-1] for rule in by_label if "sex='F'" in rule and "label=1" in rule} == {
        "0.2",
        "-0.2",
    }
    both = texts(equalized_odds("sex", tol={**finer, "F": 0.9}))
    assert not any("0.9" in rule for rule in both)  # the finer one counts
    cells = {(s, r): 0.1 for s in "FM" for r in "ABC"}
    assert len(texts(demographic_parity(("sex", "race"), tol=cells))) == 24


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: demographic_parity("sex", tol=-0.1), "must not be negative"),
        (lambda: demographic_parity("sex", tol=float("inf")), "must be finite"),
        (lambda: demographic_parity("sex", tol={}), "an entry for each group"),
        (lambda: demographic_parity("sex", tol=0.1, between="all"), "'overall' or 'groups'"),
        (lambda: demographic_parity(3, tol=0.1), "must be a name such as"),
        (lambda: demographic_parity("label", tol=0.1), "must be a name such as"),
        (lambda: demographic_parity([], tol=0.1), "at least one attribute"),
        (lambda: demographic_parity(("sex", "sex"), tol=0.1), "must differ from each other"),
        (lambda: demographic_parity("sex", tol=0.1, labels="yes"), "list of classes"),
        (lambda: demographic_parity(["sex", "race"], tol={"F": 0.1}), "one family per attribute"),
        (lambda: demographic_parity("sex", tol={"F": 0.1}, between="groups"), "got one per group"),
        (lambda: texts(demographic_parity("sex", tol={"F": 0.1})), "add one for {'M'}"),
        (
            lambda: texts(demographic_parity("sex", tol={"F": 0.1, "M": 0.1, "X": 0.1})),
            "must be for the groups",
        ),
        (lambda: texts(demographic_parity("age", tol=0.1)), "no group column 'age'"),
        (
            lambda: texts(demographic_parity("sex", tol={("F", 0): 0.1, ("F", 1): 0.1, "M": 0.1})),
            "must be for the groups",
        ),
        (
            lambda: texts(equalized_odds("sex", tol={("F", 0): 0.1, "M": 0.1})),
            "add one for {'F'}",
        ),
        (lambda: texts(demographic_parity("one", tol=0.1)), "has the single value"),
        (lambda: texts(demographic_parity("sex", tol=0.1, labels=[7])), "must be among the classes"),
    ],
)
def test_bad_families_are_refused(build, message):
    with pytest.raises(RuleError, match=message):
        build()


def test_a_family_at_another_level():
    assert demographic_parity("sex", tol=0.1).at(0.2) == demographic_parity("sex", tol=0.2)
    assert disparate_impact("sex", labels=[1]).at(0.9) == disparate_impact("sex", ratio=0.9, labels=[1])
    assert equalized_odds(["sex", "race"], tol=0.1, between="groups").at(0).level == 0
    with pytest.raises(RuleError, match="disparate_impact: ratio must not be negative"):
        disparate_impact("sex").at(-1)
    with pytest.raises(RuleError, match="one tolerance per group, which a single level cannot replace"):
        demographic_parity("sex", tol={"F": 0.1, "M": 0.2}).at(0.1)


@pytest.mark.parametrize("tol", [1, 2, {"F": 0.01, "M": 5}])
def test_tolerances_are_fractions(tol):
    with pytest.raises(RuleError, match=r"write 0\.01 for one point"):
        demographic_parity("sex", tol=tol)


def test_ratios_are_fractions_too():
    assert disparate_impact("sex", ratio=1).level == 1
    with pytest.raises(RuleError, match=r"write 0\.8 for four fifths"):
        disparate_impact("sex", ratio=80)


def test_pairs_of_groups_are_compared_both_ways():
    rules = demographic_parity("sex", tol=0.1, between="groups", labels=[1]).expand(
        [0, 1], {"sex": ("F", "M")}
    )
    assert [str(rule) for rule in rules] == [
        "selected(1).given(sex='F') - selected(1).given(sex='M') <= 0.1",
        "selected(1).given(sex='M') - selected(1).given(sex='F') <= 0.1",
    ]
