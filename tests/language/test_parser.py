from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

import bylaw
from bylaw import RuleError, RuleSyntaxError, parse
from bylaw.language import Rule

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)
positive = st.floats(min_value=0, max_value=1, exclude_max=True)
values = st.one_of(st.text(max_size=8), st.integers(-(10**6), 10**6), st.booleans(), finite)
names = st.text(min_size=1, max_size=8).filter(lambda name: name not in ("label", "decision"))

words = st.one_of(
    st.sampled_from([bylaw.error, bylaw.rejected, bylaw.accepted, bylaw.miscoverage, bylaw.size]).map(
        lambda word: word()
    ),
    values.map(bylaw.selected),
    names.map(bylaw.disagreement),
    names.map(bylaw.omits),
    names.map(bylaw.custom),
    st.lists(st.lists(finite, min_size=2, max_size=2), min_size=2, max_size=2).map(bylaw.cost),
)
quotients = st.one_of(values.map(bylaw.precision), values.map(bylaw.f1), values.map(bylaw.recall))
conditions = st.dictionaries(
    st.sampled_from(["label", "decision", "sex"]) | names, values, min_size=1, max_size=3
)
groups = st.dictionaries(names, values, min_size=1, max_size=3)
atoms = st.one_of(
    words,
    quotients,
    st.builds(lambda rate, given: rate.given(**given), words, conditions),
    st.builds(lambda rate, given: rate.given(**given), quotients, groups),
)
rates = st.lists(st.tuples(finite, atoms), min_size=1, max_size=4).map(
    lambda terms: sum((c * rate for c, rate in terms[1:]), terms[0][0] * terms[0][1])
)


@st.composite
def rules(draw):
    left, right = draw(rates), draw(st.one_of(finite, rates))
    kind = draw(st.sampled_from(["<=", ">=", "abs"]))
    try:
        return left <= right if kind == "<=" else left >= right if kind == ">=" else abs(left) <= right
    except RuleError:  # the terms cancelled out
        return bylaw.rejected() <= 0.5


@st.composite
def families(draw):
    family = draw(
        st.sampled_from(
            [
                bylaw.demographic_parity,
                bylaw.equalized_odds,
                bylaw.equal_opportunity,
                bylaw.predictive_parity,
            ]
        )
    )
    attribute = draw(
        st.one_of(
            names,
            st.lists(names, min_size=2, max_size=3, unique=True),
            st.lists(names, min_size=2, max_size=3, unique=True).map(tuple),
        )
    )
    tol = draw(positive if isinstance(attribute, list) else st.one_of(positive, levels))
    between = "overall" if isinstance(tol, dict) else draw(st.sampled_from(["overall", "groups"]))
    labels = draw(st.one_of(st.none(), st.lists(values, min_size=1, max_size=3)))
    return family(attribute, tol=tol, between=between, labels=labels)


levels = st.dictionaries(st.one_of(values, st.tuples(values, values)), positive, min_size=1, max_size=3)
impacts = st.builds(lambda attribute, ratio: bylaw.disparate_impact(attribute, ratio=ratio), names, positive)


@pytest.mark.slow
@given(st.one_of(rates, rules(), families(), impacts))
def test_str_and_parse_are_inverse(statement):
    if isinstance(statement, Rule):
        assume(statement.left.terms)  # 0 <= error() is written error() >= 0
    again = parse(str(statement))
    assert again == statement
    assert str(again) == str(statement)


words_and_signs = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "+",
    "-",
    "*",
    "/",
    ":",
    "<=",
    ">=",
    "==",
    "**",
    "=",
    "abs",
    "error",
    "rejected",
    "selected",
    "given",
    "cost",
    "sex",
    "tol",
    "label",
    "demographic_parity",
    "'a'",
    "'sex'",
    "1",
    "0.1",
    "1e999",
    "None",
    "True",
    "lambda",
]
tokens = st.lists(st.sampled_from(words_and_signs), max_size=25)


@given(st.one_of(st.text(max_size=60), tokens.map("".join), tokens.map(" ".join)))
def test_any_text_parses_or_is_refused_clearly(text):
    try:
        statement = parse(text)
    except RuleError:
        return
    assert parse(str(statement)) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("error( <= 1", "not a rule"),
        ("", "not a rule"),
        ("True", "must be a rate or a rule"),
        ("'error'", "must be a rate or a rule"),
        ("__import__('os').system('x') <= 1", "only rates, families"),
        ("eval('1') <= 1", "unknown word 'eval'"),
        ("rejectd() <= 1", "did you mean 'rejected'"),
        ("rejected <= 0.1", r"write rejected\(\)"),
        ("error.__class__ <= 1", "not part of the language"),
        ("(lambda: 1)() <= 1", "only rates, families"),
        ("[error() for _ in range(9)] <= 1", "not part of the language"),
        ("error() ** 2 <= 1", "rates \\+"),
        ("error() < 1", "must use <="),
        ("0.1 <= error() <= 0.2", "as two rules"),
        ("error() <= 1e999", "must be finite"),
        ("error() <= True", "must be a rate or a number"),
        ("error() <= 'a'", "must be a rate or a number"),
        ("rejected().given(sex=[1]) <= 1", "string, a bool or a finite number"),
        ("rejected().given('sex') <= 1", "only rates, families"),
        ("rejected().given(**{1: 2}) <= 1", "names as keys"),
        ("(rejected() <= 1).given(sex=1)", "must follow a rate"),
        ("abs(error(), 1) <= 1", "one rate"),
        ("abs(1) <= 1", "one rate"),
        ("selected(f'{1}') <= 1", "plain values"),
        ("selected(open) <= 1", "in quotes: write 'open'"),
        ("selected(1, 2) <= 1", r"selected\(label\): too many"),
        ("error().given(sex='F', sex='M') <= 1", "given twice"),
        ("error().given(sex='F', **{'sex': 'M'}) <= 1", "given twice"),
        ("demographic_parity('s', tol={**{'F': 0.1}})", "cannot be used in a dict"),
        ("demographic_parity('s', tol={[1]: 0.1})", "plain values or tuples"),
        ("demographic_parity('s', tol={'F': 0.1, 'F': 0.2})", "must differ from each other"),
        ("1" + "0" * 400, "must be finite|not a rule"),
        ("demographic_parity('sex')", r"demographic_parity\(attributes, tol, .*'tol'"),
        ("demographic_parity('sex', tol=-1)", "must not be negative"),
        ("rejected() <= 0.1\n+", "not a rule"),
        ("-" * 100_001, "at most 100000 characters"),
        ("(" * 5000 + "1" + ")" * 5000, "nested|not a rule"),
        ("-" * 50_000 + "error()", "nested|not a rule"),
        ("error() <= 1\x00", "not a rule"),
    ],
)
def test_only_the_language_is_admitted(text, message):
    with pytest.raises(RuleSyntaxError, match=message):
        parse(text)


def test_the_caret_shows_the_place():
    with pytest.raises(RuleSyntaxError) as caught:
        parse("rejected() <= 0.1 + rejectd()")
    assert str(caught.value).splitlines()[-2:] == ["  rejected() <= 0.1 + rejectd()", "  " + " " * 20 + "^"]


def test_the_caret_counts_characters():
    with pytest.raises(RuleSyntaxError) as caught:
        parse("selected('ééé') <= rejectd()")
    assert str(caught.value).splitlines()[-1] == "  " + " " * 19 + "^"


def test_parse_wants_text():
    with pytest.raises(RuleError, match="text must be a string"):
        parse(3)
