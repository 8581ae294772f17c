"""Rates given a decision on held-out rows: the quotient itself, its interval, and what cannot be judged."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from bylaw import (
    Evidence,
    OptionError,
    Problem,
    Verdict,
    audit,
    balanced_error,
    cost,
    error,
    f1,
    precision,
    rejected,
    selected,
    solve,
)

YES = np.random.default_rng(0).random(3000)
FITTED = Evidence(np.column_stack([1 - YES, YES]), classes=["no", "yes"])
POLICY = solve(Problem(error(), [rejected() <= 0.2]), FITTED, beta=8.0)  # decisions are quite random


def draw_rows(n, seed):
    rng = np.random.default_rng(seed)
    yes = rng.random(n)
    labels = np.where(rng.random(n) < yes, "yes", "no")
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    return Evidence(np.column_stack([1 - yes, yes]), classes=["no", "yes"], groups={"sex": sex}), labels


def test_estimates_by_hand():
    held, labels = draw_rows(500, 1)
    law, women = POLICY.probabilities(held), np.asarray(held.groups["sex"].codes) == 0
    no, yes, out = law.T
    right = labels == "yes"
    table = {
        error().given(decision="yes") <= 0.3: (yes * ~right).sum() / yes.sum(),
        error().given(decision="no", sex="F") <= 0.3: (no * right * women).sum() / (no * women).sum(),
        precision("yes") >= 0.5: (yes * right).sum() / yes.sum(),
        f1("yes") >= 0.5: 2 * (yes * right).sum() / (yes.sum() + right.sum()),
        balanced_error() <= 0.5: ((no * right).sum() / right.sum() + (yes * ~right).sum() / (~right).sum())
        / 2,
        cost([[0, 1, 3], [1, 0, 7]]).given(decision="reject") <= 6: (
            (out * np.where(right, 7, 3)).sum() / out.sum()
        ),
        precision("yes").given(sex="F") - precision("yes") <= 0.2: (
            (yes * right * women).sum() / (yes * women).sum() - (yes * right).sum() / yes.sum()
        ),
    }
    found = audit(POLICY, held, labels=labels, rules=list(table))
    for judged, by_hand in zip(found.rules, table.values(), strict=True):
        assert judged.estimate == pytest.approx(by_hand)
        assert judged.lower <= by_hand <= judged.upper


@pytest.mark.slow
def test_bounds_cover_the_truth():
    """Of many samples, at most 5 % have a bound on the wrong side; here, of each rule and side."""
    many, labels = draw_rows(100_000, 2)
    law, right = POLICY.probabilities(many), labels == "yes"
    truths = {
        precision("yes") >= 0.5: (law[:, 1] * right).sum() / law[:, 1].sum(),
        f1("yes") >= 0.5: 2 * (law[:, 1] * right).sum() / (law[:, 1].sum() + right.sum()),
    }
    missed = np.zeros((2, 2))
    for seed in range(40):
        held, labels = draw_rows(300, 100 + seed)
        found = audit(POLICY, held, labels=labels, rules=list(truths), fitted_rows="estimate")
        for k, (judged, truth) in enumerate(zip(found.rules, truths.values(), strict=True)):
            missed[k] += judged.lower > truth, judged.upper < truth
    assert missed.max() <= 6  # P(more than 6 of 40 | 5 %) is 0.3 %


def test_decisions_that_were_taken_are_binomial():
    held, labels = draw_rows(800, 3)
    taken = POLICY.decide(held, rng=0)
    found = audit(
        POLICY,
        held,
        labels=labels,
        decisions=taken,
        rules=error().given(decision="yes") <= 0.4,
        method="clopper_pearson",
    )
    wrong, all_yes = int(((taken == "yes") & (labels == "no")).sum()), int((taken == "yes").sum())
    interval = binomtest(wrong, all_yes).proportion_ci(0.9, "exact")
    (judged,) = found.rules
    assert judged.rows == all_yes
    assert judged.estimate == pytest.approx(wrong / all_yes)
    assert (judged.lower, judged.upper) == pytest.approx((interval.low, interval.high), abs=1e-5)


def test_random_decisions_are_weights_which_other_methods_do_not_take():
    held, labels = draw_rows(300, 4)
    rule = precision("yes") >= 0.5
    with pytest.raises(OptionError, match="does not support weights"):
        audit(POLICY, held, labels=labels, rules=rule, method="hoeffding_bentkus")


def test_a_decision_that_is_never_taken_is_not_judged():
    held, labels = draw_rows(300, 5)
    never = np.full(300, "no")
    found = audit(POLICY, held, labels=labels, decisions=never, rules=precision("yes") >= 0.9)
    assert found.rules[0].verdict is Verdict.UNJUDGED
    assert (
        found.rules[0].reason
        == "the decision 'yes' is never taken, so that its ratio is 0/0 and counts as satisfied"
    )
    assert np.isnan(found.rules[0].estimate)


def test_predictions_sharpen_a_quotient():
    held, labels = draw_rows(1000, 6)
    more, _ = draw_rows(20_000, 7)
    rule = precision("yes") >= 0.5
    plain = audit(POLICY, held, labels=labels, rules=rule).rules[0]
    with pytest.warns(UserWarning, match="second|look|again"):
        sharper = audit(POLICY, held, labels=labels, rules=rule, unlabelled=more).rules[0]
    assert sharper.upper - sharper.lower < 1.3 * (plain.upper - plain.lower)  # its rows are not counted


def test_certified_and_violated():
    held, labels = draw_rows(20_000, 8)
    rules = [
        error().given(decision="yes") <= 0.5,
        error().given(decision="yes") <= 0.05,
        selected("yes") >= 0.2,
    ]
    found = audit(POLICY, held, labels=labels, rules=rules)
    verdicts = [rule.verdict for rule in found.rules]
    assert verdicts == [Verdict.CERTIFIED, Verdict.VIOLATED, Verdict.CERTIFIED]
