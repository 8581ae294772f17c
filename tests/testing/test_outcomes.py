"""Custom costs: what they turned out to be is judged, predictions never."""

from __future__ import annotations

import math

import numpy as np
import pandas
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    OptionError,
    Problem,
    audit,
    custom,
    error,
    rejected,
    solve,
)
from bylaw.errors import Remedy
from bylaw.report import report
from bylaw.rows import observe
from bylaw.testing import compare_costs, is_observed

LIMITS = {"wrong": (0.0, 1.0)}
PRICES = np.array([0.0, 1.0])


def route(n, seed, optimism=0.0):
    """Rows for a router, which predicts how likely each of two models is wrong, less so much."""
    rng = np.random.default_rng(seed)
    chance = np.column_stack([rng.uniform(0.0, 0.6, n), rng.uniform(0.0, 0.2, n)])
    wrong = (rng.random((n, 2)) < np.minimum(chance + optimism, 1.0)).astype(float)
    costs = {"wrong": chance, "usd": np.tile(PRICES, (n, 1))}
    return Evidence(rng.dirichlet([1, 1], n), costs=costs), wrong


PROBLEM = Problem(custom("usd"), [custom("wrong") <= 0.2])
POLICY = solve(PROBLEM, route(4000, 0)[0])
HELD, WRONG = route(4000, 1, optimism=0.2)  # the predictions miss 0.2 of the truth
LAW = POLICY.probabilities(HELD)
LOOSE = {"rules": custom("wrong") <= 0.3}


def judge(**options):
    return audit(POLICY, HELD, **{"limits": LIMITS, **options})


def test_predictions_are_shown_and_not_judged():
    found = judge(**LOOSE)
    rule = found.rules[0]
    assert str(rule.verdict) == "not judged"
    assert rule.remedy == Remedy("pass_outcomes", "wrong")
    assert rule.is_predicted
    assert rule.estimate == pytest.approx((HELD.costs["wrong"] * LAW).sum(axis=1).mean())
    assert all(map(math.isnan, (rule.lower, rule.upper, rule.p_value)))
    assert str(found.verdict) == "undecided"
    assert f"{rule.estimate:.4g} as predicted; the outcomes of 'wrong' are not known; pass outcomes=" in str(
        found
    )


def test_outcomes_are_judged_instead_of_predictions():
    """The same rule: 0.2 by prediction, 0.4 in truth."""
    true = (WRONG * LAW).sum(axis=1).mean()
    found = judge(**LOOSE, outcomes={"wrong": WRONG}).rules[0]
    assert found.estimate == pytest.approx(true)
    assert true == pytest.approx(0.4, abs=0.03)
    assert str(found.verdict) == "violated"
    assert not found.is_predicted
    honest = judge(rules=custom("wrong") <= 0.45, outcomes={"wrong": WRONG}).rules[0]
    assert str(honest.verdict) == "certified"


def test_an_oracle_is_not_certified_on_its_own_predictions():
    """A router that claims to be hardly ever wrong: its own word is no proof, and the outcomes are."""

    def boast(rows):
        return rows.with_columns(costs={**rows.costs, "wrong": 0.01 * rows.costs["wrong"]})

    policy = solve(PROBLEM, boast(route(4000, 0)[0]))
    assert str(audit(policy, boast(HELD), limits=LIMITS).rules[0].verdict) == "not judged"
    seen = audit(policy, boast(HELD), limits=LIMITS, outcomes={"wrong": WRONG})
    assert str(seen.rules[0].verdict) == "violated"


def test_costs_that_are_known_beforehand():
    price = custom("usd") <= 0.9
    stated = judge(rules=price, limits={"usd": (0, 1)}, outcomes={"usd": "known"}).rules[0]
    passed = judge(rules=price, limits={"usd": (0, 1)}, outcomes={"usd": HELD.costs["usd"]}).rules[0]
    assert stated == passed
    assert str(stated.verdict) == "certified"
    unbounded = judge(rules=price, limits={}, outcomes={"usd": "known"}).rules[0]
    assert unbounded.remedy == Remedy("pass_limits", "usd")


def test_the_objective_is_called_observed_where_it_is():
    assert not judge().cost_observed
    assert "as predicted" in str(judge())
    known = judge(outcomes={"usd": "known"})
    assert known.cost_observed
    assert known.cost_after == pytest.approx(LAW[:, 1].mean())
    other = solve(Problem(custom("wrong"), [custom("usd") <= 0.4]), route(4000, 0)[0])
    found = audit(other, HELD, outcomes={"wrong": WRONG})
    assert found.cost_after == pytest.approx((WRONG * other.probabilities(HELD)).sum(axis=1).mean())
    assert found.cost_observed
    mixed = Problem(error() + custom("wrong")).minimize
    seen = observe(HELD.with_observed(outcomes={"wrong": WRONG}))
    assert not is_observed(mixed, seen, POLICY.action_space)
    assert is_observed(
        mixed,
        observe(HELD.with_observed(labels=np.zeros(4000, int), outcomes={"wrong": WRONG})),
        POLICY.action_space,
    )


def test_rows_without_outcomes_are_left_out():
    rng = np.random.default_rng(3)
    shown = rng.random(4000) < 0.6
    partly = np.where(shown[:, None], WRONG, np.nan)
    partly[np.flatnonzero(~shown)[:50], 0] = 1.0  # a row with one value has no outcome
    found = judge(**LOOSE, outcomes={"wrong": partly})
    rule = found.rules[0]
    assert rule.judged_rows == shown.sum()
    assert rule.estimate == pytest.approx((WRONG * LAW).sum(axis=1)[shown].mean())
    assert found.seen_rows == {"custom('wrong')": shown.sum()}
    masked = np.ma.MaskedArray(WRONG, mask=np.tile(~shown[:, None], (1, 2)))
    assert judge(**LOOSE, outcomes={"wrong": masked}).rules == found.rules
    none = judge(**LOOSE, outcomes={"wrong": np.full((4000, 2), np.nan)}).rules[0]
    assert none.is_predicted


def test_partly_seen_costs_are_prediction_powered_on_average():
    """The mean of predictions plus the mean error on the rows that were seen, by hand."""
    shown = np.arange(4000) % 4 == 0
    seen = observe(HELD.with_observed(outcomes={"wrong": np.where(shown[:, None], WRONG, np.nan)}))
    predicted, true = (HELD.costs["wrong"] * LAW).sum(axis=1), (WRONG * LAW).sum(axis=1)
    powered = predicted.mean() + (true - predicted)[shown].mean()
    assert POLICY.expected(custom("wrong"), seen, probabilities=LAW) == pytest.approx(powered)
    costs = compare_costs(POLICY, seen, custom("wrong"), probabilities=LAW)
    assert costs.policy == pytest.approx(powered)
    part = seen.rows(np.arange(1000, 3000))
    rows = np.arange(1000, 3000)
    expected = predicted[rows].mean() + 4 * ((true - predicted) * shown)[rows].mean()
    assert POLICY.expected(custom("wrong"), part, probabilities=LAW[rows]) == pytest.approx(expected)


def test_outcomes_given_a_label_and_a_group_that_some_rows_lack():
    rng = np.random.default_rng(5)
    labels, sex = rng.integers(0, 2, 4000).astype(object), rng.choice(["F", "M"], 4000)
    labels[rng.random(4000) < 0.5] = None
    shown = rng.random(4000) < 0.7
    partly = np.where(shown[:, None], WRONG, np.nan)
    rule = custom("wrong").given(label=1, sex="F") <= 0.9
    found = judge(rules=rule, labels=labels, groups={"sex": sex}, outcomes={"wrong": partly}).rules[0]
    here = shown & np.array([label == 1 for label in labels]) & (sex == "F")
    assert found.estimate == pytest.approx((WRONG * LAW).sum(axis=1)[here].mean())
    assert found.rows == here.sum()
    assert found.judged_rows == (shown & np.array([label is not None for label in labels])).sum()


def test_a_function_is_a_prediction_too():
    def doubt(evidence):
        return 0.5 * evidence.costs["wrong"]

    rule = custom(doubt) <= 0.5
    limits = {"doubt": (0, 1)}
    blind = judge(rules=rule, limits=limits).rules[0]
    assert blind.is_predicted
    assert blind.estimate == pytest.approx((0.5 * HELD.costs["wrong"] * LAW).sum(axis=1).mean())
    seen = judge(rules=rule, limits=limits, outcomes={"doubt": WRONG}).rules[0]
    assert seen.estimate == pytest.approx((WRONG * LAW).sum(axis=1).mean())
    known = judge(rules=rule, limits=limits, outcomes={"doubt": "known"}).rules[0]
    assert known.estimate == pytest.approx(blind.estimate)
    assert str(known.verdict) == "certified"


def test_outcomes_of_a_cost_that_was_never_predicted():
    found = judge(rules=custom("spent") <= 0.6, limits={"spent": (0, 1)}, outcomes={"spent": WRONG}).rules[0]
    assert found.estimate == pytest.approx((WRONG * LAW).sum(axis=1).mean())
    assert judge(rules=custom("spent") <= 0.6).rules[0].remedy == Remedy("pass_outcomes", "spent")


def test_unlabelled_rows_sharpen_with_predictions_on_both_sides():
    """A rate of labels and costs: what the predictions add on labelled rows, they must subtract on others."""
    more = route(16000, 9)[0]
    rule = error() + custom("wrong") <= 0.99
    labels = np.random.default_rng(2).integers(0, 2, 4000)
    found = judge(rules=rule, labels=labels, outcomes={"wrong": WRONG}, unlabelled=more).rules[0]
    plain = judge(rules=rule, labels=labels, outcomes={"wrong": WRONG}).rules[0]
    assert found.estimate == pytest.approx(plain.estimate, abs=0.02)


def test_fitted_rows_estimate_as_observed_only_with_outcomes():
    fitted, wrong = route(4000, 0, optimism=0.2)
    estimate = {"limits": LIMITS, "fitted_rows": "estimate"}
    blind = audit(POLICY, fitted, **estimate).rules[0]
    assert (str(blind.verdict), blind.is_predicted) == ("not judged", True)
    assert blind.estimate == pytest.approx(0.2, abs=1e-4)
    assert (
        str(audit(POLICY, fitted, **estimate, outcomes={"wrong": wrong}).verdict) == "estimated to be broken"
    )


@pytest.mark.parametrize(
    ("outcomes", "problem", "message"),
    [
        (
            {"wrong": WRONG[:9]},
            EvidenceError,
            r"outcomes\['wrong'\] must have shape .* 4000 rows, got \(9, 2\)",
        ),
        ({"wrong": WRONG[:, 0]}, EvidenceError, "must have shape"),
        ({"wrong": WRONG[:, :1]}, EvidenceError, "one column per action"),
        ({"wrong": np.full((4000, 2), np.inf)}, EvidenceError, "must be finite, or NaN"),
        ({"wrong": 2 * WRONG}, EvidenceError, r"outcomes\['wrong'\] must be within limits.*got 0 to 2"),
        ({"wrong": "certain"}, OptionError, "'known' if the cost does not depend"),
        ({"wrnog": WRONG}, OptionError, r"of costs that a rule uses, \['usd', 'wrong'\], got 'wrnog'"),
        ([WRONG], EvidenceError, "outcomes must be a dict"),
        (
            {"wrong": pandas.DataFrame(WRONG, index=range(1, 4001)), "usd": pandas.DataFrame(WRONG)},
            EvidenceError,
            "different indexes",
        ),
    ],
)
def test_bad_outcomes(outcomes, problem, message):
    with pytest.raises(problem, match=message):
        judge(outcomes=outcomes)


def test_certificates_need_outcomes():
    fit, held = route(3000, 0, optimism=0.01), route(3000, 1, optimism=0.01)
    options = {"guarantee": "high_probability"}
    with pytest.raises(EvidenceError, match="the outcomes of 'wrong' are not known") as caught:
        solve(PROBLEM, fit[0], **options, held_out=held[0].with_observed(limits=LIMITS))
    assert caught.value.remedy == Remedy("pass_outcomes", "wrong")
    policy = solve(
        PROBLEM, fit[0], **options, held_out=held[0].with_observed(limits=LIMITS, outcomes={"wrong": held[1]})
    )
    fresh = route(40000, 2, optimism=0.01)
    true = (fresh[1] * policy.probabilities(fresh[0])).sum(axis=1).mean()
    assert true <= 0.2  # held as it turned out, though predictions are too low by 0.01
    assert policy.expected(custom("wrong"), fresh[0]) < 0.195


def test_reports_call_predictions_predicted():
    page = report(POLICY, HELD, levels=0).html
    assert "with “wrong” as predicted" in page
    held, wrong = route(3000, 2)
    blind = report(POLICY, HELD, held_out=held.with_observed(limits=LIMITS), levels=0).html
    assert "Not judged: the outcomes of &#x27;wrong&#x27; are not known." in blind
    assert "as predicted" in blind
    seen = report(
        POLICY, HELD, held_out=held.with_observed(limits=LIMITS, outcomes={"wrong": wrong}), levels=0
    ).html
    assert "Not judged" not in seen


def test_of_decisions_that_were_taken_no_other_outcome_is_needed():
    """A log knows what came of the model that was called, and nothing of the other."""
    taken = POLICY.decide(HELD, rng=0)
    called = np.eye(2)[taken]
    log = np.where(called > 0, WRONG, np.nan)
    full, partly = (judge(**LOOSE, decisions=taken, outcomes={"wrong": o}) for o in (WRONG, log))
    assert partly.rules == full.rules
    assert partly.rules[0].estimate == pytest.approx(WRONG[np.arange(4000), taken].mean())
    assert partly.seen_rows == {}
    gone = np.arange(4000) % 5 == 0
    fewer = judge(**LOOSE, decisions=taken, outcomes={"wrong": np.where(gone[:, None], np.nan, log)})
    assert fewer.rules[0].judged_rows == (~gone).sum()
    assert fewer.rules[0].estimate == pytest.approx(WRONG[np.arange(4000), taken][~gone].mean())
    assert judge(**LOOSE, outcomes={"wrong": log}).rules[0].is_predicted  # no row has both
    other = solve(Problem(custom("wrong"), [custom("usd") <= 0.4]), route(4000, 0)[0], beta=3.0)
    found = audit(
        other, HELD, decisions=taken, outcomes={"wrong": log, "usd": "known"}, limits={"usd": (0, 1)}
    )
    assert math.isnan(found.cost_before)
    assert found.cost_after == pytest.approx(WRONG[np.arange(4000), taken].mean())
    assert "custom('wrong'): not known with your model" in str(found)


def test_rules_without_costs_are_as_they_were():
    policy = solve(Problem(error(), [rejected() <= 0.2]), HELD)
    fresh = route(2000, 4)[0]
    assert audit(policy, fresh).rules == audit(policy, fresh, outcomes={"wrong": "known"}).rules
