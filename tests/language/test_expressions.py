from __future__ import annotations

import enum
import pickle

import numpy as np
import pytest

from bylaw import RuleError, custom, demographic_parity, error, f1, parse, precision, rejected, selected
from bylaw._base import as_scalar
from bylaw.language import Band, Rule


def test_rates_add_scale_and_merge():
    rate = 2 * error() + rejected() / 4 - error() + 0.5
    assert rate == error() + 0.25 * rejected() + 0.5
    assert str(rate) == "error() + 0.25 * rejected() + 0.5"
    assert str(error() - error() - 1) == "-1"
    assert str(0.3 - rejected()) == "0.3 - rejected()"


def test_numpy_scalars_scale_from_either_side():
    assert np.float64(2) * error() == error() * np.float64(2) == 2 * error()
    assert np.float64(0.5) + error() == error() + 0.5


def test_a_rule_keeps_its_words():
    rule = selected(">50K").given(sex="Female") >= 0.8 * selected(">50K").given(sex="Male")
    assert str(rule) == "selected('>50K').given(sex='Female') >= 0.8 * selected('>50K').given(sex='Male')"
    assert isinstance(rule, Rule)
    assert rule.excess == 0.8 * selected(">50K").given(sex="Male") - selected(">50K").given(sex="Female")


def test_a_number_on_the_left_states_the_same_rule():
    assert (0.1 >= rejected()) == (rejected() <= 0.1)


def test_abs_states_two_rules():
    band = abs(selected(1).given(sex="F") - selected(1)) <= 0.02
    assert isinstance(band, Band)
    assert [str(rule) for rule in band.expand((), {})] == [
        "selected(1).given(sex='F') - selected(1) <= 0.02",
        "selected(1).given(sex='F') - selected(1) >= -0.02",
    ]


def test_conditions_have_one_order_and_any_name():
    assert error().given(b=1, a=2) == error().given(a=2).given(b=1)
    assert (
        str(error().given(**{"marital status": "single"})) == "error().given(**{'marital status': 'single'})"
    )


def test_conditions_apply_to_each_term_but_not_to_the_constant():
    rate = (selected(1) - rejected() + 0.5).given(sex="F")
    assert rate == selected(1).given(sex="F") - rejected().given(sex="F") + 0.5


def test_a_bound_on_a_quotient_multiplies_out():
    rate = (error().given(sex="F", decision="a") <= 0.1).excess
    (part, one), (whole, level) = rate.multiply_out().terms
    assert (part.share, one, whole.share, level) == ("part", 1.0, "whole", -0.1)
    assert part.conditions == whole.conditions == (("sex", "F"),)
    assert precision("a").terms[0][0].whole == error().given(decision="a").terms[0][0].whole
    assert not rate.is_linear
    assert rate.multiply_out().is_linear


def test_a_ratio_takes_numbers_and_becomes_a_rule():
    ratio = error() / (1 - rejected())
    assert 1 - 2 * ratio == (-2 * error() - rejected() + 1) / (1 - rejected())
    assert (ratio <= 0.05) == (error() <= 0.05 * (1 - rejected()))
    assert (ratio >= 0.05) == (error() >= 0.05 * (1 - rejected()))
    assert ratio.given(sex="F") == error().given(sex="F") / (1 - rejected().given(sex="F"))


def test_values_become_plain():
    assert selected(np.int64(3)) == selected(3)
    assert type(as_scalar(np.str_("a"), "x")) is str


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: error() * rejected(), "the product is not linear"),
        (lambda: error() / rejected() + error(), "combined or compared with a number"),
        (lambda: error() * (error() / rejected()), "the product is not linear"),
        (lambda: error() / rejected() <= error(), "combined or compared with a number"),
        (lambda: precision("a") / rejected(), "must not be ratios"),
        (lambda: error().given(decision=1).given(decision=0), "another 'decision' for"),
        (lambda: precision(1).given(decision=1), "got decision="),
        (lambda: f1(1).given(label=1), "got label="),
        (lambda: (precision(1) - precision(0) <= 0.1).excess.multiply_out(), "is not linear"),
        (lambda: (precision(1) <= error()).excess.multiply_out(), "is not linear"),
        (lambda: error() / 0, "must not be zero"),
        (lambda: error() <= float("nan"), "must be finite"),
        (lambda: rejected() <= float("inf"), "must be finite"),
        (lambda: 1e308 * (10 * error()), "must be finite"),
        (lambda: error() < 0.1, "<= or >="),
        (lambda: error() > 0.1, "<= or >="),
        (lambda: abs(error()) >= 0.1, "not convex"),
        (lambda: abs(error()) < 0.1, "must use <="),
        (lambda: abs(error()) > 0.1, "must use <="),
        (lambda: error() <= 10**400, "must be finite"),
        (lambda: error() <= "0.1", "must be a number"),
        (lambda: error() <= error(), "must depend"),
        (lambda: abs(error() - error()) <= 1, "must depend"),
        (lambda: 0.1 <= rejected() <= 0.2, "two rules"),
        (lambda: bool(abs(error()) <= 0.1), "no truth value"),
        (lambda: bool(demographic_parity("sex", tol=0.1)), "no truth value"),
        (lambda: error().given(), "must get a condition"),
        (lambda: error().given(sex="F").given(sex="M"), "another 'sex' for"),
        (lambda: error().given(sex=[1]), "string, a bool or a finite number"),
        (lambda: selected(float("nan")), "finite number"),
        (lambda: selected(None), "convert it"),
    ],
)
def test_what_cannot_be_stated_is_refused(build, message):
    with pytest.raises(RuleError, match=message):
        build()


def test_members_of_enumerations_become_plain():
    class Sex(enum.StrEnum):
        F = "Female"

    class Level(enum.IntEnum):
        LOW = 1

    assert str(selected(Level.LOW).given(sex=Sex.F)) == "selected(1).given(sex='Female')"


def test_any_name_of_a_column_can_be_a_condition():
    assert str(error().given(self=1)) == "error().given(self=1)"
    assert str(error().given(**{"\ufb01t": 1})) == "error().given(**{'\ufb01t': 1})"


def test_two_functions_of_one_name_are_two_rates():
    one, other = custom(len, name="f"), custom(repr, name="f")
    assert one != other
    assert len((one - other).terms) == 2


def test_rules_pickle_and_hash():
    rules = [abs(error()) <= 0.1, rejected() <= 0.1, demographic_parity("sex", tol={"F": 0.1, "M": 0.2})]
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert len(set(rules) | set(pickle.loads(pickle.dumps(rules)))) == 3


@pytest.mark.parametrize(
    ("rule", "level", "text"),
    [
        (rejected() <= 0.1, 0.1, "rejected() <= 0.25"),
        (selected(1) >= 0.3, 0.3, "selected(1) >= 0.25"),
        (error() - rejected() + 0.5 <= 1, 1.0, "error() - rejected() + 0.5 <= 0.25"),
        (error() <= 0.05 * selected(1), 0.05, "error() <= 0.25 * selected(1)"),
        (error() <= selected(1), 1.0, "error() <= 0.25 * selected(1)"),
        (abs(error() - rejected()) <= 0.02, 0.02, "abs(error() - rejected()) <= 0.25"),
        (abs(error()) <= 2 * rejected(), 2.0, "abs(error()) <= 0.25 * rejected()"),
    ],
)
def test_a_rule_at_another_level(rule, level, text):
    assert rule.level == level
    assert rule.at(level) == rule
    assert str(rule.at(0.25)) == text
    assert rule.at(0.25).level == 0.25
    with pytest.raises(RuleError, match=r"the level of .* must be a number"):
        rule.at("much")


@pytest.mark.parametrize(
    "rule", [error() <= 0.1 * rejected() + 0.2, abs(error()) <= selected(0) + selected(1)]
)
def test_a_rule_with_several_numbers_has_no_level(rule):
    with pytest.raises(RuleError, match="must contain a single number"):
        _ = rule.level
    with pytest.raises(RuleError, match="must contain a single number"):
        rule.at(0.1)


@pytest.mark.parametrize(
    ("text", "template", "loosening"),
    [
        ("rejected() <= 0.1", "rejected() <= level", 1),
        ("selected('a') >= 0.3", "selected('a') >= level", -1),
        ("error() <= 0.05 * accepted()", "error() <= level * accepted()", 1),
        ("abs(selected(1) - selected(0)) <= 0.02", "abs(selected(1) - selected(0)) <= level", 1),
        ("demographic_parity('sex', tol=0.02)", "demographic_parity('sex', tol=level)", 1),
        ("disparate_impact('sex')", "disparate_impact('sex', ratio=level)", -1),
    ],
)
def test_the_level_of_a_statement_its_place_and_its_direction(text, template, loosening):
    statement = parse(text)
    assert statement.template == template
    assert statement.loosening == loosening
    tighter, looser = (statement.at(statement.level - step * loosening * 0.01) for step in (1, -1))
    assert tighter != looser != statement
