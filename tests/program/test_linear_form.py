from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    Problem,
    cost,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    rejected,
    selected,
    solve,
)
from bylaw.errors import Remedy
from bylaw.program import compile_problem
from helpers.generated_rows import Rows


def test_features_do_not_grow_with_the_rules():
    rows = Rows(K=3, S=4)
    form = compile_problem(Problem(error(), [equalized_odds("hidden", tol=0.1)]), rows.evidence())
    assert len(form.names) == 2 * 4 * 9
    assert len(form.feature_map.features) == 1 + 3 + 4 * 3  # 1, p_y, P(s, y | x)


def test_names_survive():
    form = compile_problem(Problem(error(), [demographic_parity("known", tol=0.02)]), Rows().evidence())
    assert form.names[0] == "selected(0).given(known=0) - selected(0) <= 0.02"
    assert {str(found.statement) for found in form.rules} == {"demographic_parity('known', tol=0.02)"}
    assert set(form.places) == {0}


def test_frequencies_are_frozen_or_given():
    rows = Rows()
    problem = Problem(error(), [selected(1).given(known=0) <= 0.1])
    own = compile_problem(problem, rows.evidence())
    assert own.frequencies == {(("known", 0),): np.mean(rows.group == 0)}
    given = compile_problem(problem, rows.evidence(), {(("known", 0),): 0.25})
    assert given.couplings.toarray().max() == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("rule", "message", "remedy"),
    [
        (selected(1).given(age=3) <= 0.1, "pass groups={'age': ...}", Remedy("pass_groups", "age")),
        (selected(1).given(known=9) <= 0.1, "known=9, but no row has it; the values are", None),
        (selected(1).given(label=9) <= 0.1, "label=9, which is not a class", None),
        (
            disagreement("new") <= 0.1,
            "pass references={'new': its labels}",
            Remedy("pass_reference", "new"),
        ),
        (custom("visit") <= 0.1, "pass costs={'visit': an array}", Remedy("pass_costs", "visit")),
    ],
)
def test_a_rule_on_what_is_not_there(rule, message, remedy):
    with pytest.raises(EvidenceError, match=message) as caught:
        solve(Problem(error(), [rule]), Rows().evidence())
    assert caught.value.remedy == remedy


def test_a_joint_is_asked_for_by_name():
    rows = Rows()
    evidence = Evidence(rows.P, groups={"race": {"a": rows.T[:, 0], "b": rows.T[:, 1]}})
    with pytest.raises(EvidenceError, match=r"P\(race, label \| x\).*pass joint={'race': ...}") as caught:
        solve(Problem(error(), [equalized_odds("race", tol=0.1)]), evidence)
    assert caught.value.remedy == Remedy("pass_joint", "race")


def test_two_hidden_attributes_are_never_multiplied():
    rows = Rows()
    hidden = {"a": rows.T[:, 0], "b": rows.T[:, 1]}
    evidence = Evidence(rows.P, groups={"race": hidden, "sex": hidden})
    with pytest.raises(EvidenceError, match="probabilities of their combinations") as caught:
        solve(Problem(error(), [demographic_parity(("race", "sex"), tol=0.1)]), evidence)
    assert caught.value.remedy == Remedy("pass_combinations", choices=("race", "sex"))
    assert "groups={('race', 'sex'): {...}}" in str(caught.value)


@pytest.mark.parametrize("hidden", [True, False])
def test_an_empty_group(hidden):
    if hidden:
        evidence = Evidence([[0.5, 0.5]] * 2, groups={"g": {"a": [1, 1], "b": [0, 0]}})
    else:
        evidence = Evidence([[0.5, 0.5]] * 2, groups={"g": ["a", "b"]}, weights=[1, 0])
    with pytest.raises(
        EvidenceError,
        match="g='b', but no row of the evidence with a positive weight satisfies that; remove the rule",
    ):
        solve(Problem(error(), [demographic_parity("g", tol=0.1)]), evidence)


def test_costs_need_a_column_per_action():
    rows = Rows()
    evidence = rows.evidence(costs={"visit": np.zeros((rows.n, 2))})
    with pytest.raises(EvidenceError, match=r"one column per action, \[0, 1, 'reject'\], got 2 columns"):
        solve(Problem(error(), [custom("visit") <= 1, rejected() <= 0.1]), evidence)


def test_rules_in_unusual_units_are_scaled_and_ordinary_ones_are_not():
    rows = Rows(n=50, K=2)
    millions = Problem(error(), [cost([[0, 2e6], [2e6, 0]]) <= 4e5, selected(1) <= 0.4])
    form = compile_problem(millions, rows.evidence())
    assert form.scales[1] == 1.0
    assert 1e5 < form.scales[0] < 1e7
    assert form.bounds[0] * form.scales[0] == pytest.approx(4e5)
    assert abs(form.couplings[[0]]).max() < 10
