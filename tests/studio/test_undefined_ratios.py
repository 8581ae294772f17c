"""Rules on ratios that hold only because what they divide by is zero: warned of, and shown as 0/0."""

import math
import re
import warnings

import numpy as np
import pytest

from bylaw import (
    Evidence,
    GuaranteeWarning,
    Policy,
    Problem,
    Verdict,
    accepted,
    audit,
    error,
    precision,
    recall,
    rejected,
    selected,
    solve,
)
from bylaw.report import report
from bylaw.studio import Session
from bylaw.view import write_price

FLOOR = precision("fraud") >= 0.99


def draw_rows(n_rows=400):
    rng = np.random.default_rng(0)
    chance = rng.beta(1, 8, n_rows)
    labels = np.where(rng.random(n_rows) < chance, "fraud", "ok")
    labels[chance.argmax()] = "ok"  # so that no threshold has a precision of 0.99
    return Evidence(np.column_stack([chance, 1 - chance]), classes=["fraud", "ok"]), labels


def fit(evidence, labels=None, rule=FLOOR):
    with pytest.warns(GuaranteeWarning) as caught:
        policy = solve(Problem(1 - recall("fraud"), [rule]), evidence, labels=labels)
    return policy, next(str(one.message) for one in caught if "holds only because" in str(one.message))


def test_a_floor_that_no_row_reaches_is_warned_of_with_a_level_that_is_reached():
    evidence, _ = draw_rows()
    policy, said = fit(evidence)
    assert "precision('fraud') >= 0.99 holds only because 'fraud' is never decided on these 400 rows" in said
    without = re.search(r"1 - recall\('fraud'\) is 1 \((.*) without the rule\)", said)
    assert without is not None
    assert float(without[1]) < 0.01  # without the rule, "fraud" is decided on nearly all rows
    assert policy.vacuous == (str(FLOOR),)
    # As predicted, no set of rows has a larger precision than its likeliest row: the level named is just
    # below, and the policy of that level decides some rows.
    best = evidence.probabilities[:, 0].max()
    level = float(said.split("is about ")[1].split(":")[0])
    assert best - 0.02 < level <= best
    with warnings.catch_warnings():
        warnings.simplefilter("error", GuaranteeWarning)
        reached = solve(Problem(1 - recall("fraud"), [precision("fraud") >= level]), evidence)
    assert reached.probabilities(evidence)[:, 0].sum() > 0.5
    assert reached.vacuous == ()


def test_a_policy_that_rejects_all_rows_is_warned_of():
    rng = np.random.default_rng(1)
    chance = rng.uniform(0.2, 0.8, 200)
    evidence = Evidence(np.column_stack([chance, 1 - chance]))
    with pytest.warns(GuaranteeWarning, match=r"holds only because accepted\(\) is zero on these 200 rows"):
        policy = solve(Problem(rejected(), [error() <= 0.01 * accepted()]), evidence)
    assert policy.vacuous == ("error() <= 0.01 * accepted()",)


def test_rules_on_ratios_that_are_defined_are_not_warned_of():
    evidence, _ = draw_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error", GuaranteeWarning)
        policy = solve(Problem(1 - recall("fraud"), [precision("fraud") >= 0.3]), evidence)
    assert policy.vacuous == ()
    assert policy.prices["precision('fraud') >= 0.3"] > 0


def test_the_mark_is_saved_and_shown(tmp_path):
    evidence, labels = draw_rows()
    policy, _ = fit(evidence, labels)
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.vacuous == policy.vacuous
    assert "holds as 0/0" in repr(loaded)
    assert "0/0" in loaded._repr_html_()


def test_an_estimate_of_a_rule_that_is_undefined_is_not_judged():
    evidence, labels = draw_rows()
    policy, _ = fit(evidence, labels)
    (found,) = audit(policy, evidence, labels=labels, fitted_rows="estimate").rules
    assert found.verdict is Verdict.UNJUDGED
    assert math.isnan(found.estimate)
    assert "0/0" in found.reason


@pytest.mark.slow
def test_a_report_of_a_rule_that_is_undefined_states_what_it_costs():
    evidence, labels = draw_rows()
    policy, _ = fit(evidence, labels)
    page = report(policy, evidence, labels=labels, levels=2).html
    text = page.replace("\N{NO-BREAK SPACE}", " ")
    assert (
        "the decision &#x27;fraud&#x27; is never taken, so that its ratio is 0/0 and counts as satisfied"
        in text
    )
    assert "It is satisfied only because its rate is 0/0, so it has no shadow price." in text
    assert "Without it, 100 points of 1 - recall(&#x27;fraud&#x27;) would be saved." in text
    assert "costs nothing" not in text


def test_a_report_says_that_a_rule_costs_nothing_where_the_objective_without_it_is_the_same():
    evidence, _ = draw_rows()
    rules = [precision("fraud") >= 0.3, selected("fraud") <= 0.9]
    policy = solve(Problem(1 - recall("fraud"), rules), evidence)
    without = solve(Problem(1 - recall("fraud"), rules[:1]), evidence)
    minimize = policy.problem.minimize
    assert policy.expected(minimize, evidence) == pytest.approx(
        without.expected(minimize, evidence), abs=1e-4
    )
    page = report(policy, evidence, levels=2).html
    assert page.count("It costs nothing: removing it would save nothing.") == 1


def test_a_zero_price_alone_does_not_make_a_rule_free():
    said = write_price(0.0, FLOOR, 1 - recall("fraud"))
    assert said == "Loosening it by one point would save nothing."


def test_the_studio_shows_no_number_for_a_rule_that_is_undefined():
    evidence, labels = draw_rows()
    session = Session(Problem(1 - recall("fraud"), [FLOOR]), evidence.with_observed(labels=labels))
    asked = {"tab": "a", "number": 1, "view": "observed", "minimize": "1 - recall('fraud')"}
    reply = session.answer({**asked, "rules": [{"text": str(FLOOR), "on": True}]})
    (rule,) = reply["rules"]
    assert rule["undefined"]
    assert all(math.isnan(rule[name]) for name in ("rate", "lower", "upper"))
    assert "Without it, 100" in rule["price_words"]
    assert any("holds only because" in one for one in reply["warnings"])
