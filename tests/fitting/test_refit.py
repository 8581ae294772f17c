"""Refits: the same rules on new rows, with few decisions changed."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    InfeasibleRulesError,
    Monitor,
    OptionError,
    Policy,
    Problem,
    audit,
    demographic_parity,
    error,
    miscoverage,
    refit,
    rejected,
    size,
    solve,
)
from bylaw.testing import compare_policies
from helpers.reference import Reference
from helpers.scored import people


def rows(n, seed, drift=0.0, sex_drift=0.0):
    """Scores with two sexes; they drift by so much on the scale of logits."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    x = 1.5 * rng.normal(size=n) + drift + sex_drift * (sex == "M")
    chance = 1 / (1 + np.exp(-x))
    labels = (rng.random(n) < chance).astype(int)
    return Evidence(np.column_stack([1 - chance, chance]), groups={"sex": sex}), labels, sex


def find_share(earlier, evidence):
    """Of decisions that the rules alone change."""
    return compare_policies(earlier, refit(earlier, evidence), evidence).changed


RULES = [demographic_parity("sex", tol=0.03), rejected() <= 0.1]


@pytest.fixture(scope="module")
def earlier():
    return solve(Problem(error(), RULES), rows(3000, 0)[0])


def exact(earlier, evidence, sex, churn):
    """The least error under parity, rejections and changes, as a linear program of its own."""
    n, (no, yes) = len(evidence), evidence.probabilities.T
    loss = np.column_stack([yes, no, np.zeros(n)])
    taken = earlier.probabilities(evidence).argmax(axis=1)
    found = [(1.0 * (np.arange(3) != taken[:, None]), churn), (np.tile([0.0, 0.0, 1.0], (n, 1)), 0.1)]
    for group in "FM":
        weight = (sex == group) / (sex == group).mean() - 1
        for action in range(2):
            for sign in (1, -1):
                cost = np.zeros((n, 3))
                cost[:, action] = sign * weight
                found.append((cost, 0.03))
    return Reference(loss, found)


@pytest.mark.parametrize("less", [0.005, 0.01])
def test_the_least_error_with_so_few_changes(earlier, less):
    evidence, _, sex = rows(400, 1, drift=0.4, sex_drift=0.6)
    churn = find_share(earlier, evidence) - less
    later = refit(earlier, evidence, churn=churn)
    program = exact(earlier, evidence, sex, churn)
    marked = earlier.mark_changes(evidence)
    chances = later.probabilities(marked)
    assert program.excesses(chances).max() <= 1e-5
    assert program.cost(chances) <= program.optimum() + 2e-3  # of the entropy
    assert program.optimum() > exact(earlier, evidence, sex, 1.0).optimum() + 1e-5  # the changes bind


def test_rules_that_change_few_decisions_need_nothing_else(earlier):
    evidence, _, _ = rows(2000, 2)
    later = refit(earlier, evidence, churn=0.2)
    assert later.problem.rules == earlier.problem.rules
    assert np.array_equal(
        later.probabilities(evidence), solve(earlier.problem, evidence).probabilities(evidence)
    )


def test_too_few_changes_conflict_and_the_changes_are_named(earlier):
    evidence, _, _ = rows(2000, 3, sex_drift=1.0)
    with pytest.raises(InfeasibleRulesError, match=r"custom\('changed'\) <= 0.02"):
        refit(earlier, evidence, churn=0.02)


def test_a_second_refit_counts_changes_since_the_first(earlier):
    one, _, _ = rows(2000, 4, drift=0.3, sex_drift=0.5)
    second = refit(earlier, one, churn=find_share(earlier, one) - 0.01)
    assert "custom('changed')" in str(second.problem)
    two, _, _ = rows(2000, 5, drift=0.3, sex_drift=0.6)
    third = refit(second, earlier.mark_changes(two), churn=0.13)
    assert str(third.problem).count("custom('changed')") <= 1
    marked = second.mark_changes(earlier.mark_changes(two))
    changed = (third.probabilities(marked) * marked.costs["changed"]).sum(axis=1).mean()
    assert changed <= 0.13 + 1e-5


def test_changes_by_id_are_those_of_the_decisions_that_were_drawn(earlier):
    evidence, _, _ = rows(300, 6)
    ids = np.arange(300)
    drawn = earlier.decide(evidence, ids=ids)
    marks = earlier.mark_changes(evidence, ids=ids).costs["changed"]
    assert [earlier.actions[place] for place in marks.argmin(axis=1)] == drawn.tolist()
    assert (marks.sum(axis=1) == 2).all()


def test_calibration_and_hard_decisions_stay():
    evidence, labels, _ = rows(3000, 7)
    hard = solve(
        Problem(error(), [rejected() <= 0.1]),
        evidence,
        labels=labels,
        calibrate="isotonic",
        deterministic=True,
    )
    later = refit(hard, rows(2000, 8)[0], churn=0.3)
    assert later.calibration == hard.calibration
    assert later.deterministic


@pytest.mark.slow
def test_certified_rules_and_changes(earlier):
    evidence, labels, _ = rows(6000, 9, sex_drift=0.3)
    held, seen, _ = rows(8000, 10, sex_drift=0.3)
    later = refit(earlier, evidence, churn=0.25, labels=labels, held_out=held.with_observed(labels=seen))
    assert later.certificate is not None
    assert later.problem.rules == earlier.problem.rules
    fresh, truth, _ = rows(60_000, 11, sex_drift=0.3)
    marked = earlier.mark_changes(fresh)
    assert (later.probabilities(marked) * marked.costs["changed"]).sum(axis=1).mean() <= 0.25
    tight = refit(earlier, evidence, churn=0.16, labels=labels, held_out=held.with_observed(labels=seen))
    assert tight.certificate is not None
    found = audit(tight, marked, labels=truth, confidence=0.9)
    assert all(rule.estimate <= rule.target + 0.005 for rule in found.rules if rule.sense == "<=")


def test_audits_and_monitors_know_what_a_change_is(earlier):
    evidence, _, _ = rows(3000, 12, drift=0.3, sex_drift=0.5)
    later = refit(earlier, evidence, churn=find_share(earlier, evidence) - 0.01)
    fresh, labels, _ = rows(20_000, 13, drift=0.3, sex_drift=0.5)
    marked = earlier.mark_changes(fresh)
    by_hand = (later.probabilities(marked) * marked.costs["changed"]).sum(axis=1).mean()
    found = audit(later, marked, labels=labels, rules="custom('changed') <= 0.3")
    assert found.rules[0].estimate == pytest.approx(by_hand)
    assert str(found.verdict) == "certified"
    monitor = Monitor(later, rules=[f"custom('changed') <= {by_hand - 0.03:.3f}"])
    monitor.update(marked)
    (one,) = monitor.status
    assert one.estimate == pytest.approx(by_hand, abs=1e-3)
    assert str(one.status) == "broken"


def test_few_changes_are_certified_with_the_confidence_that_is_asked_for(earlier):
    evidence, held = rows(2000, 17)[0], rows(1500, 18)[0]
    options = {"rules": "rejected() <= 0.15", "held_out": held, "confidence": 0.6}
    later = refit(earlier, evidence, churn=0.053, **options)
    changed = (later.probabilities(held) * earlier.mark_changes(held).costs["changed"]).sum(axis=1)
    room = (0.053 - changed.mean()) / (changed.std() / np.sqrt(1500))
    assert 0.8 < room < 1.2  # standard errors: enough for a confidence of 60 %, and not for 95 %
    assert "changed" not in str(later.problem)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_comparison_by_hand(earlier, weighted):
    evidence, labels, sex = rows(1000, 14, drift=0.5, sex_drift=0.5)
    weights = np.random.default_rng(16).uniform(0.1, 3.0, 1000) if weighted else np.ones(1000)
    later = refit(earlier, evidence)
    if weighted:
        evidence = evidence.with_columns(weights=weights)
    found = compare_policies(earlier, later, evidence, labels=labels)

    def mean(values, where=None):
        return np.average(values, weights=weights if where is None else weights * where, axis=0)

    before, after = earlier.probabilities(evidence), later.probabilities(evidence)
    wrong = np.column_stack([labels == 1, labels == 0, np.zeros(1000)])
    assert found.cost_before == pytest.approx(mean((before * wrong).sum(axis=1)))
    assert found.cost_after == pytest.approx(mean((after * wrong).sum(axis=1)))
    changed = 1 - after[np.arange(1000), before.argmax(axis=1)]
    assert found.changed == pytest.approx(mean(changed))
    assert {one.value: one.changed for one in found.by_group} == pytest.approx(
        {group: mean(changed, sex == group) for group in "FM"}
    )
    assert {one.value: one.rows for one in found.by_group} == pytest.approx(
        {group: mean(sex == group) for group in "FM"}
    )
    taken = before.argmax(axis=1)
    assert found.flows == pytest.approx(np.array([mean(after * (taken == a)[:, None]) for a in range(3)]))
    parity, referred = found.rules
    gaps = [abs(mean(before, sex == g) - mean(before))[:2].max() for g in "FM"]
    assert parity.before == pytest.approx(max(gaps))
    assert (parity.target, referred.target) == (0.03, 0.1)
    assert referred.after == pytest.approx(mean(after[:, 2]))


def test_bad_input_is_named(earlier, tmp_path):
    evidence, _, _ = rows(100, 15)
    with pytest.raises(OptionError, match="must be a Policy, got"):
        refit(evidence, earlier)
    with pytest.raises(OptionError, match="churn"):
        refit(earlier, evidence, churn=5)
    sets = solve(Problem(size(), [miscoverage() <= 0.1]), people(200, 0)[0])
    with pytest.raises(OptionError, match="omits"):
        refit(sets, people(200, 1)[0], churn=0.1)
    earlier.save(tmp_path / "policy.json")
    assert str(refit(Policy.load(tmp_path / "policy.json"), evidence).problem) == str(earlier.problem)
