"""Audits: observed rates written out, verdicts by simulation, and everything that is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas
import polars
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    OptionError,
    Problem,
    accepted,
    audit,
    cost,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.errors import Remedy
from bylaw.language import parse
from bylaw.rows import observe
from bylaw.testing import DecidedRows, HypothesisTest
from bylaw.testing._betting import Sample
from bylaw.testing._hypotheses import Hypothesis, compute_p_values
from helpers.scored import people

FIT = people(4000, 0)[0]
HELD, Y, SEX = people(6000, 1)
RULES = [
    rejected() <= 0.15,
    demographic_parity("sex", tol=0.06),
    error() <= 0.32 * accepted(),
    equalized_odds("sex", tol=0.2),
    disparate_impact("sex", ratio=0.7),
    disagreement("old") <= 0.5,
]
POLICY = solve(Problem(error(), RULES), FIT)
LAW = POLICY.probabilities(HELD)
OTHER_SEX = np.where(SEX == "F", "M", "F")
ALONE = solve(Problem(error()), Evidence([[0.7, 0.3], [0.2, 0.8]]))


def written_out(distribution, labels, sex):
    """Some of the rates, straight from their words."""
    wrong = distribution[:, 1] * (labels == 0) + distribution[:, 0] * (labels == 1)
    women = sex == "F"
    positive = labels == 1
    return {
        "rejected() <= 0.15": distribution[:, 2].mean(),
        "selected(1).given(sex='F') - selected(1) <= 0.06": distribution[women, 1].mean()
        - distribution[:, 1].mean(),
        "selected(1).given(sex='F') - selected(1) >= -0.06": distribution[women, 1].mean()
        - distribution[:, 1].mean(),
        "error() <= 0.32 * accepted()": wrong.sum() / (1 - distribution[:, 2]).sum(),
        "selected(1).given(label=1, sex='F') - selected(1).given(label=1) <= 0.2": distribution[
            women & positive, 1
        ].mean()
        - distribution[positive, 1].mean(),
        "selected(0).given(sex='F') >= 0.7 * selected(0).given(sex='M')": distribution[women, 0].mean()
        / distribution[~women, 0].mean(),
    }


@pytest.fixture(scope="module")
def found():
    return audit(POLICY, HELD, labels=Y)


@pytest.mark.slow
def test_estimates_are_the_rates_written_out(found):
    estimates = {rule.rule: rule.estimate for rule in found.rules}
    for name, rate in written_out(LAW, Y, SEX).items():
        assert estimates[name] == pytest.approx(rate, abs=1e-9), name


@pytest.mark.slow
def test_every_rule_has_all_its_figures(found):
    assert [rule.rule for rule in found.rules] == list(POLICY.multipliers)
    for rule in found.rules:
        assert rule.lower < rule.estimate < rule.upper
        assert 0 <= rule.p_value <= rule.p_holm <= 1
    by_name = {rule.rule: rule for rule in found.rules}
    assert by_name["rejected() <= 0.15"].target == 0.15
    assert by_name["rejected() <= 0.15"].rows == 6000
    assert by_name["selected(1).given(sex='F') - selected(1) >= -0.06"].target == -0.06
    assert by_name["selected(1).given(sex='F') - selected(1) <= 0.06"].rows == (SEX == "F").sum()


@pytest.mark.slow
def test_costs_and_randomness(found):
    own = HELD.probabilities.argmax(axis=1)
    assert found.cost_before == pytest.approx((own != Y).mean())
    wrong = LAW[:, 1] * (Y == 0) + LAW[:, 0] * (Y == 1)
    assert found.cost_after == pytest.approx(wrong.mean())
    assert found.random == pytest.approx((LAW.max(axis=1) < 0.99).mean())


@pytest.mark.slow
def test_verdicts_follow_the_bounds(found):
    for rule in found.rules:
        if rule.verdict == "certified":
            assert rule.p_holm <= 0.05
        if rule.verdict == "undecided":
            assert rule.p_holm > 0.05
            assert rule.rows_needed > 0
    assert {"certified", "undecided"} <= {str(rule.verdict) for rule in found.rules}
    assert found.verdict == "undecided"


def test_broken_rules_are_violated_and_loose_ones_certified():
    judged = audit(POLICY, HELD, labels=Y, rules=["rejected() <= 0.05", error() <= 0.9])
    assert [str(rule.verdict) for rule in judged.rules] == ["violated", "certified"]
    assert judged.verdict == "violated"
    assert judged.rules[0].p_violated < 1e-6
    assert audit(POLICY, HELD, labels=Y, rules=error() <= 0.9).verdict == "certified"


@pytest.mark.slow
def test_all_together_needs_no_correction_but_each_alone_does():
    """Two rules with p between delta/2 and delta: together they hold, and nobody can say which one does."""
    rate = float(LAW[:, 2].mean())
    targets = np.linspace(rate + 0.005, rate + 0.02, 60)
    several = (audit(POLICY, HELD, rules=[rejected() <= t, accepted() >= 1 - t]) for t in targets)
    both = next(one for one in several if all(0.026 < rule.p_value < 0.049 for rule in one.rules))
    assert both.verdict == "certified"
    assert {str(rule.verdict) for rule in both.rules} == {"undecided"}


def population(rate):
    evidence, labels, _ = people(200_000, 4)
    return POLICY.expected(
        rate, observe(evidence.with_observed(labels=labels)), probabilities=POLICY.probabilities(evidence)
    )


def judged(rule, n, seed, **options):
    evidence, labels, _ = people(n, seed)
    return audit(POLICY, evidence, labels=labels, rules=rule, **options).rules[0]


@pytest.mark.slow
def test_rows_needed_are_about_enough():
    """With as many rows as are said to be needed at the true margin, about every other audit decides."""
    truth = population(error())
    rule = error() <= truth + 0.03
    needed = np.nanmedian([r.rows_needed for r in (judged(rule, 600, s) for s in range(20))])
    decided = [str(judged(rule, int(needed), 100 + s).verdict) == "certified" for s in range(40)]
    assert 0.2 < np.mean(decided) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    "rate",
    [
        rejected(),
        error().given(sex="F"),
        selected(1).given(sex="M") - selected(1).given(sex="F"),
        selected(1).given(sex="M") - selected(1),
        selected(1).given(sex="F", label=1) - 0.5 * selected(1).given(label=1),
        0.8 * selected(0).given(sex="F") - selected(0).given(sex="M"),
        error() - 0.3 * accepted(),
        error().given(sex="F") + error().given(label=1),
        custom("visit"),
    ],
    ids=str,
)
def test_what_is_at_its_limit_is_rarely_certified(rate):
    truth = population(rate)
    wrong = 0
    for seed in range(40):
        evidence, labels, _ = people(700, 1000 + seed)
        distribution = POLICY.probabilities(evidence)
        limits = {"visit": (0.0, 1.0)}
        seen = observe(evidence.with_observed(labels=labels, outcomes={"visit": "known"}))
        rows = DecidedRows(seen, distribution, POLICY.action_space, True, limits=limits)
        wrong += rows.test(rate <= truth).p_value(0.05) <= 0.05
    assert wrong / 40 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 40)


@pytest.mark.slow
def test_bounds_cover_the_truth_on_both_sides():
    rate = selected(1).given(sex="M") - selected(1)
    truth = population(rate)
    audits = [judged(rate <= 0.1, 700, 2000 + s) for s in range(60)]
    assert np.mean([a.lower > truth for a in audits]) <= 0.13
    assert np.mean([a.upper < truth for a in audits]) <= 0.13


@pytest.mark.parametrize("sense", ["<=", ">="])
def test_a_rule_and_its_mirror_image_agree(sense):
    rate = selected(1).given(sex="F") - selected(1)
    one, other = (rate <= 0.05, -rate >= -0.05) if sense == "<=" else (rate >= -0.05, -rate <= 0.05)
    (a,), (b,) = audit(POLICY, HELD, rules=one).rules, audit(POLICY, HELD, rules=other).rules
    assert (a.p_value, a.estimate) == pytest.approx((b.p_value, -b.estimate))
    assert (a.lower, a.upper) == pytest.approx((-b.upper, -b.lower))


# Hidden groups, labels that are missing, decisions that were taken, more rows.


@pytest.mark.slow
def test_without_labels_some_rules_are_not_judged():
    blind = audit(POLICY, HELD)
    verdicts = {rule.rule: rule for rule in blind.rules}
    assert verdicts["error() <= 0.32 * accepted()"].verdict == "not judged"
    assert "labels" in verdicts["error() <= 0.32 * accepted()"].reason
    assert verdicts["error() <= 0.32 * accepted()"].remedy == Remedy("pass_labels")
    assert "it refers to labels; pass labels=" in str(blind)
    assert {"action": "pass_labels", "subject": "", "choices": []} in [
        rule["remedy"] for rule in blind.to_dict()["rules"]
    ]
    assert math.isnan(verdicts["error() <= 0.32 * accepted()"].p_value)
    assert not math.isnan(verdicts["rejected() <= 0.15"].p_value)
    assert blind.verdict == "undecided"
    assert not blind.cost_observed
    assert not blind.reliability


@pytest.mark.slow
def test_hidden_groups_are_judged_by_their_true_values():
    policy = solve(Problem(error(), demographic_parity("sex", tol=0.05)), people(4000, 0, known=False)[0])
    held, labels, sex = people(6000, 1, known=False)
    unseen = audit(policy, held, labels=labels)
    assert {rule.verdict for rule in unseen.rules} == {"not judged"}
    assert "only probabilities" in unseen.rules[0].reason
    assert unseen.rules[0].remedy == Remedy("pass_true_groups", "sex")
    assert "pass the observed values, groups={'sex': ...}" in str(unseen)
    seen = audit(policy, held, labels=labels, groups={"sex": sex})
    distribution = policy.probabilities(held)
    gap = {rule.rule: rule.estimate for rule in seen.rules}[
        "selected(1).given(sex='F') - selected(1) <= 0.05"
    ]
    assert gap == pytest.approx(distribution[sex == "F", 1].mean() - distribution[:, 1].mean())
    assert {line.of for line in seen.reliability} == {"label", "sex"}


@pytest.mark.slow
def test_rules_on_groups_that_the_policy_never_heard_of():
    policy = solve(Problem(error(), rejected() <= 0.1), FIT)
    town = np.random.default_rng(0).choice(["a", "b"], len(HELD))
    found = audit(policy, HELD, groups={"town": town}, rules=demographic_parity("town", tol=0.1))
    assert found.verdict == "certified"


@pytest.mark.slow
def test_a_group_without_rows_is_not_judged():
    men = HELD.rows(np.flatnonzero(SEX == "M"))
    found = audit(POLICY, men, labels=Y[SEX == "M"])
    missing = [rule for rule in found.rules if "sex='F'" in rule.rule]
    assert missing
    assert all("no row with" in rule.reason for rule in missing)


@pytest.mark.slow
def test_decisions_that_were_taken_are_judged_by_themselves():
    taken = POLICY.decide(HELD, rng=0)
    found = audit(POLICY, HELD, labels=Y, decisions=taken, method="clopper_pearson")
    by_name = {rule.rule: rule for rule in found.rules}
    assert by_name["rejected() <= 0.15"].estimate == pytest.approx((taken == "reject").mean())
    assert found.random == 0
    assert by_name["error() <= 0.32 * accepted()"].rows == (taken != "reject").sum()
    mixed = audit(
        POLICY,
        HELD,
        labels=Y,
        decisions=taken,
        method="clopper_pearson",
        rules="error() + 0.5 * rejected() <= 0.9",
    )
    assert "more than two values" in mixed.rules[0].reason
    assert mixed.rules[0].remedy == Remedy("choose_method", "betting")
    assert by_name["selected(1).given(sex='F') - selected(1) <= 0.06"].verdict != "not judged"
    with pytest.raises(OptionError, match="not random"):
        audit(POLICY, HELD, labels=Y, method="clopper_pearson")


def test_decisions_of_another_policy_are_refused():
    """Also of one without chance, for sets, and where a single row is another's. What the policy takes,
    however it is drawn, is judged, of scores written with five digits, too."""
    loose = rejected() <= 0.9
    hard = solve(Problem(error(), [rejected() <= 0.15]), FIT, deterministic=True)
    sets = solve(Problem(miscoverage(), [size() <= 1.2], decisions="sets"), FIT)
    rules = [loose, loose, "size() <= 1.9"]
    written = HELD.with_columns(probabilities=np.round(HELD.probabilities, 5))
    for policy, rule in zip((POLICY, hard, sets), rules, strict=True):
        own = policy.decide(HELD, rng=0)
        for rows in (HELD, written):
            assert audit(policy, rows, decisions=own, rules=rule).rules[0].verdict == "certified"
        clear = int(abs(HELD.probabilities[:, 0] - 0.5).argmax())  # decided without doubt
        other = own.copy()
        other[clear] = ~own[clear] if policy is sets else 1 - own[clear]
        with pytest.raises(
            EvidenceError, match=f"got 1 of 6,000 .* the first of them in row {clear}. .*audit"
        ):
            audit(policy, HELD, decisions=other, rules=rule)
    foreign = solve(Problem(error(), [rejected() <= 0.4]), FIT).decide(HELD, rng=0)
    with pytest.raises(EvidenceError, match="taken by another policy"):
        audit(POLICY, HELD, decisions=foreign, rules=loose)


@pytest.mark.parametrize("method", ["betting", "hoeffding_bentkus"])
def test_methods_agree_on_what_is_clear(method):
    found = audit(POLICY, HELD, labels=Y, rules=[rejected() <= 0.2, rejected() <= 0.05], method=method)
    assert [str(rule.verdict) for rule in found.rules] == ["certified", "violated"]


def test_sets():
    problem = Problem(miscoverage(), [size() <= 1.2], decisions="sets")
    policy = solve(problem, people(4000, 0)[0])
    distribution = policy.probabilities(HELD)
    found = audit(policy, HELD, labels=Y, rules=["size() <= 1.3", "miscoverage() <= 0.3"])
    outside = 1 - distribution[np.arange(len(Y)), Y]
    assert [r.estimate for r in found.rules] == pytest.approx(
        [distribution.sum(axis=1).mean(), outside.mean()]
    )
    assert found.verdict == "certified"
    inside = policy.decide(HELD, rng=0)
    taken = audit(policy, HELD, labels=Y, decisions=inside, rules="size() <= 1.3")
    assert taken.rules[0].estimate == pytest.approx(inside.sum(axis=1).mean())
    with pytest.raises(EvidenceError, match="must be a boolean array"):
        audit(policy, HELD, labels=Y, decisions=Y)


def test_weights_count():
    weights = np.where(SEX == "F", 3.0, 1.0)
    weighted = HELD.with_columns(weights=weights)
    found = audit(POLICY, weighted, labels=Y, rules=[rejected() <= 0.2], largest_weight=3.0)
    assert found.rules[0].estimate == pytest.approx(np.average(LAW[:, 2], weights=weights))
    assert found.rules[0].rows == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


@pytest.mark.slow
def test_unlabelled_rows_sharpen_rules_on_labels():
    """The model is right and sharp here, so that what it predicts stands in for most of the labels."""

    def rows(n, seed):
        rng = np.random.default_rng(seed)
        chance = rng.beta(0.15, 0.15, n)
        evidence = Evidence(np.column_stack([1 - chance, chance]))
        return evidence, (rng.random(n) < chance).astype(int)

    policy = solve(Problem(cost([[0, 1], [3, 0]])), rows(2000, 0)[0])
    rule = cost([[0, 0], [3, 0]]) + 2 * selected(1) <= 1.05
    few, labels = rows(400, 1)
    plain = audit(policy, few, labels=labels, rules=rule).rules[0]
    more = audit(policy, few, labels=labels, rules=rule, unlabelled=rows(40_000, 2)[0]).rules[0]
    assert more.upper - more.lower < 0.8 * (plain.upper - plain.lower)
    truth = audit(policy, rows(100_000, 3)[0], labels=rows(100_000, 3)[1], rules=rule).rules[0].estimate
    wrong = 0
    for seed in range(20):
        sample, seen = rows(400, 10 + seed)
        rows_there = rows(8000, 900 + seed)[0]
        at = audit(policy, sample, labels=seen, rules=rule, unlabelled=rows_there).rules[0]
        wrong += at.upper < truth
    assert wrong <= 4  # of 20; P(more | 5 %) is 0.3 %


@pytest.mark.slow
def test_unlabelled_rows_do_no_harm_where_the_model_is_wrong():
    """Probabilities that are far off: the bound stays right."""
    rule = error() <= 0.5
    many, outcome, _ = people(200_000, 4, tilt=1.5)
    truth = POLICY.expected(
        error(), observe(many.with_observed(labels=outcome)), probabilities=POLICY.probabilities(many)
    )
    wrong = 0
    for seed in range(20):
        few, labels, _ = people(500, 50 + seed, tilt=1.5)
        more = people(5000, 500 + seed, tilt=1.5)[0]
        found = audit(POLICY, few, labels=labels, rules=rule, unlabelled=more)
        wrong += found.rules[0].upper < truth
    assert wrong <= 4  # of 20; P(more | 5 %) is 0.3 %


def test_companions_by_hand():
    """Two unlabelled rows for each labelled one: the estimate is Z less eta (f - mean f of all companions),
    with eta by least squares, and at most one."""
    few = HELD.rows(slice(0, 300))
    more = HELD.rows(slice(1000, 1600))
    distribution, more_law = LAW[:300], LAW[1000:1600]
    wrong = distribution[:, 1] * (Y[:300] == 0) + distribution[:, 0] * (Y[:300] == 1)
    predicted = (distribution[:, :2] * (1 - few.probabilities)).sum(axis=1)
    companions = (more_law[:, :2] * (1 - more.probabilities)).sum(axis=1)
    rows = DecidedRows(
        observe(few.with_observed(labels=Y[:300])),
        distribution,
        POLICY.action_space,
        True,
        DecidedRows(more, more_law, POLICY.action_space, False),
    )
    test = rows.test(error() <= 0.5)
    (sample,) = test.test.samples
    assert sample.differences is not None
    assert sample.differences[1].mean() == pytest.approx(predicted.mean() - companions.mean())
    differences, amounts = sample.differences[1], sample.amounts - wrong.mean()
    eta = (amounts * differences).sum() / (differences**2).sum()
    assert eta > 0
    eta = min(eta, 1.0)  # about one, as labels follow their probabilities
    expected = wrong.mean() - eta * (predicted.mean() - companions.mean())
    assert test.estimate + 0.5 == pytest.approx(expected)


def test_unlabelled_rows_with_weights_are_refused():
    more = people(9000, 7)[0]
    with pytest.raises(EvidenceError, match="must not have weights"):
        audit(POLICY, HELD, labels=Y, unlabelled=more.with_columns(weights=np.linspace(1, 2, 9000)))


def test_costs_are_judged_within_limits_and_not_without():
    """A rare large cost that no row shows would make anything look certain."""
    rule = custom("visit") <= 0.6
    known = {"outcomes": {"visit": "known"}}
    blind = audit(POLICY, HELD, rules=rule, **known)
    assert blind.rules[0].remedy == Remedy("pass_limits", "visit")
    assert "pass limits={'visit': (least, most)}" in str(blind)
    narrow, wide = (
        audit(POLICY, HELD, rules=rule, limits={"visit": (0, top)}, **known).rules[0] for top in (1, 500)
    )
    assert narrow.upper < wide.upper
    assert narrow.estimate == pytest.approx((HELD.costs["visit"] * LAW).sum(axis=1).mean())
    with pytest.raises(EvidenceError, match="must be within limits"):
        audit(POLICY, HELD, rules=rule, limits={"visit": (0, 0.5)})
    with pytest.raises(OptionError, match="must be a pair"):
        audit(POLICY, HELD, rules=rule, limits={"visit": 1})


def test_weights_that_are_all_the_largest_change_nothing():
    rule, weighted = (
        selected(1).given(sex="F") - selected(1) <= 0.05,
        HELD.with_columns(weights=np.full(6000, 7.0)),
    )
    plain, alike, light = (
        audit(POLICY, rows, rules=rule, largest_weight=largest).rules[0]
        for rows, largest in ((HELD, None), (weighted, 7.0), (weighted, 70.0))
    )
    assert (alike.lower, alike.upper) == pytest.approx((plain.lower, plain.upper))
    assert light.upper > plain.upper
    assert light.estimate == pytest.approx(plain.estimate)
    unknown = audit(POLICY, weighted, rules=rule).rules[0]
    assert (unknown.verdict, unknown.remedy) == ("not judged", Remedy("pass_largest_weight"))


def test_heavy_rows_that_no_sample_shows_are_not_certified_away():
    """Of the rows, 0.3 % weigh 100 and are all wrong, so that the weighted error is 0.27. Most samples of 100
    rows have none of them, and show an error of less than 0.1. A rule that the error is at most 0.26 does not
    hold, and is certified in at most 5 % of the samples (here plus three standard errors)."""
    rng, n, repetitions, certified = np.random.default_rng(0), 100, 200, 0
    rest = (0.27 * (0.997 + 0.3) - 0.3) / 0.997  # the share of wrong rows among the others
    for _ in range(repetitions):
        heavy = rng.random(n) < 0.003
        wrong = np.where(heavy, True, rng.random(n) < rest)
        evidence = Evidence(rng.dirichlet([1, 1], n), weights=np.where(heavy, 100.0, 1.0))
        labels = rng.integers(2, size=n)
        decisions = np.eye(2)[np.where(wrong, 1 - labels, labels)]
        rows = DecidedRows(
            observe(evidence.with_observed(labels=labels)),
            decisions,
            ALONE.action_space,
            True,
            largest_weight=100,
        )
        certified += rows.test(error() <= 0.26).p_value(0.05) <= 0.05
    assert certified <= repetitions * 0.05 + 3 * math.sqrt(repetitions * 0.05 * 0.95)


def test_the_largest_weight_that_can_be():
    weighted = HELD.with_columns(weights=np.where(SEX == "F", 2.0, 1.0))
    seen, known = (
        audit(POLICY, weighted, rules=rejected() <= 0.2, largest_weight=top).rules[0] for top in (2.0, 40.0)
    )
    assert known.upper > seen.upper
    assert known.estimate == pytest.approx(seen.estimate)
    with pytest.raises(EvidenceError, match="at most largest_weight"):
        audit(POLICY, weighted, largest_weight=1.5)


@pytest.mark.slow
def test_gaps_with_weights_at_their_limit_are_rarely_certified():
    """Weights that go with the decision, in a gap between a group and everybody."""

    def rows(n, seed):
        evidence = people(n, seed)[0]
        distribution = POLICY.probabilities(evidence)
        evidence = evidence.with_columns(weights=np.where(distribution[:, 1] > 0.5, 3.0, 1.0))
        return DecidedRows(observe(evidence), distribution, POLICY.action_space, False, largest_weight=3.0)

    rate = selected(1).given(sex="M") - selected(1)
    many = rows(50_000, 4)
    truth = POLICY.expected(rate, many.observed, probabilities=many.probabilities)
    p_values = [rows(700, 300 + seed).test(rate <= truth).p_value(0.05) for seed in range(60)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.13


@pytest.mark.slow
def test_many_rules_can_all_be_certified_one_by_one():
    """Each gap spends a little error on the rate of all rows: no more than its part of all."""
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(5), 6000)
    rows = Evidence(chances, groups={"g": rng.integers(0, 6, 6000)})
    policy = solve(Problem(error(), demographic_parity("g", tol=0.9)), rows.rows(slice(0, 2000)))
    found = audit(policy, rows.rows(slice(2000, None)))
    assert len(found.rules) == 60
    assert {str(rule.verdict) for rule in found.rules} == {"certified"}


def test_everybody_in_one_group():
    """Of the group and everybody else, nobody else is there."""
    men = HELD.rows(np.flatnonzero(SEX == "M"))
    found = audit(POLICY, men, rules=selected(1).given(sex="M") - selected(1) <= 0.1).rules[0]
    assert found.estimate == pytest.approx(0.0, abs=1e-12)
    assert found.lower < 0 < found.upper


def test_values_that_nobody_has_are_not_judged():
    town = np.full(len(HELD), "a")
    rule = "selected(1).given(town='b') <= 0.5"
    found = audit(POLICY, HELD, groups={"town": town}, rules=rule)
    assert "no row with town='b'" in found.rules[0].reason


def test_an_objective_that_nobody_has_is_not_known():
    policy = solve(Problem(error().given(sex="F") + error(), rejected() <= 0.1), FIT)
    men = HELD.rows(np.flatnonzero(SEX == "M"))
    found = audit(policy, men, labels=Y[SEX == "M"])
    assert math.isnan(found.cost_after)
    assert found.to_dict()["cost_after"] is None


def test_the_sense_of_a_rule_is_not_read_off_its_text():
    labels = np.where(Y == 1, "x <= 3", "more")
    evidence = Evidence(HELD.probabilities, classes=["more", "x <= 3"])
    policy = solve(Problem(error()), Evidence(FIT.probabilities, classes=["more", "x <= 3"]))
    found = audit(policy, evidence, labels=labels, rules=selected("x <= 3") >= 0.2).rules[0]
    assert found.excess == pytest.approx(0.2 - found.estimate)


# DecidedRows that chose the policy.


@pytest.mark.parametrize("part", [slice(None), slice(0, 500), slice(None, None, 5)])
def test_rows_that_chose_the_policy_are_refused(part):
    with pytest.raises(EvidenceError, match="held out"):
        audit(POLICY, FIT.rows(part))


def test_fitted_rows_are_refused_with_a_remedy():
    with pytest.raises(EvidenceError, match="cannot certify it; pass rows that were held out, or") as caught:
        audit(POLICY, FIT)
    assert caught.value.remedy == Remedy("estimate_fitted_rows")


def test_or_give_an_estimate_that_is_no_certificate():
    found = audit(POLICY, FIT, rules=[rejected() <= 0.15, rejected() <= 0.01], fitted_rows="estimate")
    assert not found.certificate
    assert [str(r.verdict) for r in found.rules] == ["estimated to hold", "estimated to be broken"]
    assert found.verdict == "estimated to be broken"
    assert math.isnan(found.rules[0].p_value)
    assert "no certificate" in repr(found)
    assert audit(POLICY, FIT, rules=rejected() <= 0.15, fitted_rows="estimate").verdict == "estimated to hold"


def test_unlabelled_rows_that_chose_the_policy_are_refused_too():
    with pytest.raises(EvidenceError, match="held out"):
        audit(POLICY, HELD, labels=Y, unlabelled=FIT)


# What it looks like.


def test_frames_have_the_promised_columns(found):
    columns = ["rule", "target", "estimate", "lower", "upper", "p_value", "p_holm", "rows", "verdict"]
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame) == columns
    assert len(frame) == len(found.rules)
    assert isinstance(found.to_frame(like=polars.DataFrame()), polars.DataFrame)


@pytest.mark.slow
def test_plain_values_for_json(found):
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["verdict"] == "undecided"
    assert content["rules"][0]["rule"] == "rejected() <= 0.15"
    blind = json.loads(json.dumps(audit(POLICY, HELD).to_dict(), allow_nan=False))
    assert None in [rule["p_value"] for rule in blind["rules"]]


def test_in_words(found):
    text = repr(found)
    assert text.startswith(
        "Audit of 6,000 rows at 95 % confidence, by betting. All rules together: undecided"
    )
    assert f"adjusted for {len(found.rules)} rules" in text
    rejected_share = 100 * LAW[:, 2].mean()
    assert f"with {rejected_share:.3g} % rejected" in text
    assert "rows would decide it" in text
    assert "random decisions" in text
    assert "with your model" in text
    assert "agree with what was observed" in text
    page = found._repr_html_()
    assert "&lt;=" in page
    assert "<= " not in page


@pytest.mark.slow
def test_bad_calibration_is_said():
    tilted, labels, _ = people(6000, 1, tilt=0.7)
    found = audit(POLICY, tilted, labels=labels)
    assert "that are not calibrated" in repr(found)
    line = next(line for line in found.reliability if line.value == 1 and line.among == "sex='F'")
    women = SEX == "F"
    assert line.predicted == pytest.approx(tilted.probabilities[women, 1].mean())
    assert line.observed == pytest.approx(labels[women].mean())
    assert line.deviations > 5
    assert line.rows == women.sum()


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 95}, "between 0 and 1"),
        ({"method": "guess"}, "method must be one of"),
        ({"fitted_rows": "yes"}, "fitted_rows must be"),
        ({"labels": Y[:-1]}, "5999 rows"),
        ({"labels": Y + 5}, "is not a class"),
        ({"decisions": Y[:-1]}, "5999 rows"),
        ({"decisions": np.full(6000, "maybe")}, "'maybe' in row 0"),
        ({"rules": "sensitivity_of() >= 0.5"}, "unknown word"),
        ({"rules": selected(7) <= 0.5}, "one of the classes"),
        ({"unlabelled": HELD, "decisions": Y}, "leave out"),
        ({"groups": {"sex": SEX[:-1]}}, "5999 rows"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises((OptionError, EvidenceError, ValueError), match=message):
        audit(POLICY, HELD, **options)


def test_rows_in_another_order_are_noticed():
    frame = pandas.DataFrame(HELD.probabilities, columns=[0, 1])
    policy = solve(Problem(error()), Evidence(FIT.probabilities))
    evidence = Evidence(frame)
    labels = pandas.Series(Y)
    shuffled = labels.sample(frac=1, random_state=0)
    assert audit(policy, evidence, labels=labels, rules=error() <= 0.5).verdict == "certified"
    for options in ({"labels": shuffled}, {"labels": labels, "decisions": shuffled}):
        with pytest.raises(EvidenceError, match="in another order"):
            audit(policy, evidence, rules=error() <= 0.5, **options)
    part = np.arange(100, 200)
    with pytest.raises(EvidenceError, match="in another order"):
        audit(policy, evidence.rows(part), labels=labels[part][::-1], rules=error() <= 0.5)
    shifted = labels.set_axis(labels.index + 1)
    with pytest.raises(
        EvidenceError, match=r"labels and probabilities have different indexes \(other labels"
    ):
        audit(policy, evidence, rules=error() <= 0.5, labels=shifted)
    plain = Evidence(HELD.probabilities)  # without an index, what comes with it is compared
    with pytest.raises(EvidenceError, match="decisions and labels have different indexes"):
        audit(policy, plain, rules=error() <= 0.5, labels=labels, decisions=shifted)
    with pytest.raises(EvidenceError, match=r"groups\['sex'\] and labels have different indexes"):
        audit(policy, plain, rules=error() <= 0.5, labels=labels, groups={"sex": shifted})
    sparse = labels.where(labels.index > 20)
    with pytest.raises(EvidenceError, match="propensity_weights and labels have different indexes"):
        audit(policy, plain, rules=error() <= 0.5, labels=sparse, propensity_weights=shifted + 1.0)


def test_sets_in_another_order_are_noticed():
    policy = solve(Problem(size(), [miscoverage() <= 0.2]), Evidence(FIT.probabilities))
    evidence = Evidence(pandas.DataFrame(HELD.probabilities, columns=[0, 1]))
    sets = pandas.DataFrame(policy.decide(evidence, rng=0))
    assert len(audit(policy, evidence, labels=Y, decisions=sets).rules) == 1
    with pytest.raises(EvidenceError, match="decisions and probabilities have different indexes"):
        audit(policy, evidence, labels=Y, decisions=sets[::-1])


@pytest.mark.parametrize("wrong", [None, Problem(error())])
def test_only_policies_are_audited(wrong):
    with pytest.raises(OptionError, match="must be a Policy"):
        audit(wrong, HELD)


def test_a_policy_without_rules_has_nothing_to_judge():
    assert audit(solve(Problem(error()), FIT), HELD, labels=Y).verdict == "not judged"


def test_a_rate_that_everybody_has_is_certain():
    """selected(0) + selected(1) + rejected() is one on every row: no rows are needed to know it."""
    rows = DecidedRows(observe(HELD.with_observed(labels=Y)), LAW, POLICY.action_space, labelled=True)
    assert rows.test(selected(0) + selected(1) + rejected() <= 1.5).p_value(0.05) == 0.0


def test_nothing_is_certified_or_violated_against_the_estimate():
    """Capital counts at its best moment, and that of some order is great whatever all rows say: here the
    first ninety rows are without an error, and then there are only errors."""
    wrong = np.repeat([0.01, 0.99], [90, 60])
    for sign in (1.0, -1.0):
        low, high = sorted((0.0, sign))
        hypothesis = Hypothesis(error() <= 0.1, (), -sign * 0.1, frozenset())
        test = HypothesisTest(hypothesis, [Sample(np.ones(len(wrong)), sign * wrong, low, high)])
        (((kept, broken),),) = compute_p_values([test], [0.05])
        raw = test.test.p_value(sign * 0.1, 0.05, 1 if sign > 0 else -1)
        assert raw <= 0.05  # by betting alone
        assert (kept if sign > 0 else broken) == 1.0
        lower, upper = test.bounds(0.05)
        assert lower <= test.estimate <= upper


@pytest.mark.slow
def test_the_order_of_rows_changes_nothing():
    """Also where many rows are alike in their scores and differ in their labels."""
    rng = np.random.default_rng(0)
    for digits in (1, 12):
        chance = rng.random(900).round(digits)
        labels = (rng.random(900) < chance).astype(int)
        sex = rng.choice(["F", "M"], 900)
        rules = ["error() <= 0.3", "selected(1).given(sex='F') - selected(1) <= 0.1"]

        def judge(order, chance=chance, labels=labels, sex=sex, rules=rules):
            rows = Evidence(np.column_stack([1 - chance, chance])[order], groups={"sex": sex[order]})
            return [
                (r.p_value, r.lower, r.upper)
                for r in audit(ALONE, rows, labels=labels[order], rules=rules).rules
            ]

        first = judge(np.arange(900))
        for _ in range(3):
            assert np.allclose(judge(rng.permutation(900)), first, rtol=1e-9, atol=0)
        assert not np.allclose(judge(rng.integers(900, size=900)), first, rtol=1e-3)


def test_weights_need_the_largest_that_there_can_be():
    """Rare rows that are heavy may be missing from any sample, and with them all errors."""
    weighted = HELD.with_columns(weights=np.where(SEX == "F", 2.0, 1.0))
    found = audit(POLICY, weighted, rules=rejected() <= 0.2)
    assert found.rules[0].verdict == "not judged"
    assert found.rules[0].remedy == Remedy("pass_largest_weight")
    assert "the largest possible weight is not known; pass largest_weight=" in str(found)
    assert audit(POLICY, weighted, rules=rejected() <= 0.2, largest_weight=2.0).verdict == "certified"
    weights = np.where(FIT.groups["sex"].codes == 0, 2.0, 1.0)  # an estimate promises nothing
    fitted = FIT.with_columns(weights=weights)
    found = audit(POLICY, fitted, rules=rejected() <= 0.2, fitted_rows="estimate").rules[0]
    assert found.estimate == pytest.approx(np.average(POLICY.probabilities(FIT)[:, 2], weights=weights))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["selected(1).given(sex='F') - selected(1)", "selected(1).given(label=1, sex='F')"]
)
def test_unlabelled_rows_and_hidden_groups_give_no_false_certificate(text):
    """Guessed groups sharpen a bound and never shift it."""
    policy = solve(Problem(error(), demographic_parity("sex", tol=0.05)), people(4000, 0, known=False)[0])
    many, labels, sex = people(50_000, 4, known=False)
    rate = parse(text)
    truth = policy.expected(
        rate,
        observe(many.with_observed(labels=labels, true_groups={"sex": sex})),
        probabilities=policy.probabilities(many),
    )
    wrong, width, plain = 0, 0.0, 0.0
    for seed in range(25):
        few, y, true = people(600, 3000 + seed, known=False)
        more = people(2000, 6000 + seed, known=False)[0]
        options = {"labels": y, "groups": {"sex": true}, "rules": rate <= truth - 1e-9}
        (sharp,) = audit(policy, few, **options, unlabelled=more).rules
        (dull,) = audit(policy, few, **options).rules
        wrong += sharp.verdict == "certified"
        width, plain = width + sharp.upper - sharp.lower, plain + dull.upper - dull.lower
    assert wrong <= 25 * (0.05 + 3 * math.sqrt(0.05 * 0.95 / 25))
    assert width <= 1.08 * plain


def test_groups_that_contradict_those_of_the_decisions_are_refused():
    """Decisions by one attribute and a verdict by another of the same name certify nothing."""
    with pytest.raises(EvidenceError, match=r"true_groups\['sex'\] must equal .* but differs on 1 rows"):
        audit(POLICY, HELD, groups={"sex": np.where(np.arange(6000) == 7, OTHER_SEX, SEX)})
    rule = rejected() <= 0.2
    same, plain = (audit(POLICY, HELD, groups=g, rules=rule).rules[0] for g in ({"sex": SEX}, None))
    assert same.p_value == plain.p_value


@pytest.mark.parametrize("pair", [(0, math.inf), (1, 0), (math.nan, 1)])
def test_limits_are_finite_and_in_order(pair):
    with pytest.raises(
        OptionError, match=r"limits\['visit'\] must be two finite numbers, the least and then"
    ):
        audit(POLICY, HELD, limits={"visit": pair}, outcomes={"visit": "known"}, rules=custom("visit") <= 0.6)


def test_costs_of_which_few_rows_show_the_label_are_not_called_observed():
    found = audit(POLICY, HELD, labels=np.where(np.arange(6000) < 5, Y, np.nan), rules=rejected() <= 0.2)
    assert "prediction-powered, since not all rows show it" in str(found)
    assert "rejected, observed" in str(audit(POLICY, HELD, labels=Y, rules=rejected() <= 0.2))
