"""Rules that are watched: every kind by hand, alarms where they are due, and no cut that matters."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas
import pytest
from hypothesis import given, settings, strategies as st

from bylaw import (
    Evidence,
    EvidenceError,
    Monitor,
    OptionError,
    Problem,
    RuleError,
    balanced_error,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equalized_odds,
    error,
    f1,
    miscoverage,
    precision,
    predictive_parity,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.testing import Watch
from bylaw.testing._wealth import Wealth
from helpers.monitored import (
    average,
    describe,
    draw_routes,
    draw_rows,
    fit_binary,
    fit_rejecting,
    fit_routes,
    fit_sets,
    pool,
)

SEX = {"sex": ["F", "M"]}
POLICY = fit_rejecting()
BINARY = fit_binary()
ROWS = draw_rows(1203, 1, gap=0.1)
NO, YES, OUT = POLICY.probabilities(ROWS.evidence).T
F, M, RIGHT = ROWS.sex == "F", ROWS.sex == "M", ROWS.labels == "yes"
ALL = np.ones(len(ROWS))
WRONG = np.where(RIGHT, NO, YES)
LOSS = np.random.default_rng(3).uniform(1, 4, (len(ROWS), 3))

KINDS = {  # a rule, and weights and values in each of its events
    "rate": (rejected() <= 0.3, ALL, OUT),
    "at least": (selected("yes") >= 0.3, ALL, YES),
    "given a group": (error().given(sex="F") <= 0.3, F, WRONG),
    "between groups": (
        selected("yes").given(sex="F") - selected("yes").given(sex="M") <= 0.1,
        [F, M],
        [YES, -YES],
    ),
    "a group and all": (selected("yes").given(sex="F") - selected("yes") <= 0.1, [F, ALL], [YES, -YES]),
    "at least, a group and all": (
        selected("yes").given(sex="F") - selected("yes") >= -0.1,
        [F, ALL],
        [YES, -YES],
    ),
    "ratio": (
        selected("yes").given(sex="F") >= 0.8 * selected("yes").given(sex="M"),
        [F, M],
        [YES, -0.8 * YES],
    ),
    "given a decision": (error().given(decision="yes") <= 0.4, YES, ~RIGHT),
    "precision of a group": (precision("yes").given(sex="F") >= 0.5, F * YES, RIGHT),
    "predictive parity between groups": (
        precision("yes").given(sex="F") - precision("yes").given(sex="M") <= 0.2,
        [F * YES, M * YES],
        [RIGHT, -1.0 * RIGHT],
    ),
    "predictive parity and all": (
        precision("yes").given(sex="F") - precision("yes") <= 0.2,
        [F * YES, YES],
        [RIGHT, -1.0 * RIGHT],
    ),
    "f1": (f1("yes") >= 0.5, (YES + RIGHT) / 2, 2 * YES * RIGHT / (YES + RIGHT)),
    "churn": (disagreement("old") <= 0.5, ALL, 1 - np.where(ROWS.old == "yes", YES, NO)),
    "churn of a group": (
        disagreement("old").given(sex="M") <= 0.5,
        M,
        1 - np.where(ROWS.old == "yes", YES, NO),
    ),
    "odds": (
        selected("yes").given(sex="F", label="no") - selected("yes").given(label="no") <= 0.2,
        [F & ~RIGHT, ~RIGHT],
        [YES, -YES],
    ),
    "labels": (balanced_error() <= 0.4, [~RIGHT, RIGHT], [YES / 2, NO / 2]),
    "three events": (
        selected("yes").given(sex="F") + rejected().given(sex="M") - selected("no").given(label="yes") <= 0.9,
        [F, M, RIGHT],
        [YES, OUT, -NO],
    ),
    "a cost": (custom("loss") <= 3.0, ALL, (LOSS * np.column_stack([NO, YES, OUT])).sum(axis=1)),
    "a cost between groups": (
        custom("loss").given(sex="F") - custom("loss").given(sex="M") <= 0.5,
        [F, M],
        np.outer([1, -1], (LOSS * np.column_stack([NO, YES, OUT])).sum(axis=1)),
    ),
}


def watch(rules, rows=ROWS, policy=POLICY, **options):
    """A monitor of these rules that has seen rows with all that is to know of them."""
    monitor = Monitor(policy, rules=rules, groups=SEX, limits={"loss": (1, 4)}, **options)
    outcomes = {"loss": LOSS} if monitor.columns.costs else None
    monitor.update(rows.evidence, labels=rows.labels, groups={"sex": rows.sex}, outcomes=outcomes)
    return monitor


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rule_by_hand(kind):
    """The rate over all rows, or over pairs of rows of the same round, which the evidence is about."""
    rule, weights, values = KINDS[kind]
    monitor = watch(rule)
    (found,) = monitor.status
    assert found.estimate == pytest.approx(pool(weights, values), abs=1e-12)
    if np.ndim(weights) == 1:
        assert found.estimate == pytest.approx(average(weights, values), abs=1e-12)
    assert found.lower <= found.estimate <= found.upper
    assert found.rows == (np.atleast_2d(weights) > 0).any(axis=0).sum()
    assert (found.rule, found.sense) == (str(rule), rule.sense)


@pytest.mark.parametrize("kind", KINDS)
def test_no_round_of_any_rule_loses_more_than_all(kind, monkeypatch):
    """Decisions, groups and labels that go together as badly as they can: money stays positive, and where
    the rule is turned around, too."""
    rule, seen, bet = KINDS[kind][0], [], Wealth.bet
    monkeypatch.setattr(Wealth, "bet", lambda self, factors, n: seen.append(factors) or bet(self, factors, n))
    excess = rule.excess
    for one in (rule, excess >= 0.1):
        for seed in range(4):
            rng = np.random.default_rng(seed)
            monitor = Monitor(POLICY, rules=one, groups=SEX, limits={"loss": (1, 4)})
            women, yes = rng.random((2, len(ROWS))) < rng.choice([0.5, 0.9], (2, 1))
            taken = np.where(women ^ yes, "yes", rng.choice(["no", "reject"], len(ROWS)))
            monitor.update(
                ROWS.evidence,
                labels=np.where(yes, "yes", "no"),
                groups={"sex": np.where(women, "F", "M")},
                decisions=taken if seed % 2 else None,
                outcomes={"loss": rng.choice([1.0, 4.0], LOSS.shape)} if monitor.columns.costs else None,
            )
    rows = monitor.watched[0].events.rows if monitor.watched[0].events.guesses else 1
    assert min(factors.min() for factors in seen) >= (0.05 - 1e-12) ** rows


def test_which_rules_have_values_that_cancel():
    """A group against a whole of which it is a part: what both have of the same rows goes out."""
    found = {kind for kind, (rule, *_) in KINDS.items() if watch(rule).watched[0].events.cancels}
    assert found == {"a group and all", "at least, a group and all", "odds"}


def test_decisions_that_were_taken_count_in_place_of_probabilities():
    taken = POLICY.decide(ROWS.evidence, rng=0)
    monitor = Monitor(POLICY, rules=[precision("yes") >= 0.5, rejected() <= 0.3])
    monitor.update(ROWS.evidence, decisions=taken, labels=ROWS.labels)
    one, two = monitor.status
    assert one.estimate == pytest.approx(average(taken == "yes", RIGHT))
    assert one.rows == (taken == "yes").sum()
    assert two.estimate == pytest.approx(average(ALL, taken == "reject"))


def test_sets_by_hand():
    policy = fit_sets()
    monitor = Monitor(policy, rules=[size() <= 1.5, miscoverage().given(sex="F") <= 0.2], groups=SEX)
    inside = policy.probabilities(ROWS.evidence)
    monitor.update(ROWS.evidence, labels=ROWS.labels, groups={"sex": ROWS.sex})
    sizes, missed = monitor.status
    assert sizes.estimate == pytest.approx(average(ALL, inside.sum(axis=1)))
    assert missed.estimate == pytest.approx(average(F, 1 - inside[np.arange(len(ROWS)), RIGHT.astype(int)]))
    taken = policy.decide(ROWS.evidence, rng=0)
    monitor = Monitor(policy, rules=size() <= 1.5)
    monitor.update(ROWS.evidence, decisions=taken)
    assert monitor.status[0].estimate == pytest.approx(average(ALL, taken.sum(axis=1)))


def test_options_by_hand():
    policy, rows = fit_routes(), draw_routes(400, 1)
    usd, chances = np.asarray(rows.costs["usd"]), policy.probabilities(rows)
    rules = [selected("large") <= 0.4, custom("usd") <= 0.02, custom("usd").given(lang="fr") <= 0.02]
    lang = np.random.default_rng(2).choice(["en", "fr"], 400)
    monitor = Monitor(policy, rules=rules, limits={"usd": (0, 0.05)}, groups={"lang": ["en", "fr"]})
    monitor.update(rows, groups={"lang": lang}, outcomes={"usd": usd})
    large, all_rows, french = monitor.status
    assert large.estimate == pytest.approx(average(np.ones(400), chances[:, 2]))
    assert all_rows.estimate == pytest.approx(average(np.ones(400), (usd * chances).sum(axis=1)))
    assert french.estimate == pytest.approx(average(lang == "fr", (usd * chances).sum(axis=1)))


def test_experts_by_hand():
    experts = ["no", "yes", "junior", "senior"]
    rule = selected("senior") <= 0.125
    minimize = error() + 0.3 * selected("junior") + 0.1 * selected("senior")
    policy = solve(Problem(minimize, [rule], decisions=experts), draw_rows(500, 5).evidence)
    chances = policy.probabilities(ROWS.evidence)
    monitor = Monitor(policy, rules=["selected('senior') <= 0.2", "error() <= 0.3"])
    monitor.update(ROWS.evidence, labels=ROWS.labels)
    senior, wrong = monitor.status
    assert senior.estimate == pytest.approx(average(ALL, chances[:, 3]))
    assert wrong.estimate == pytest.approx(average(ALL, np.where(RIGHT, chances[:, 0], chances[:, 1])))


@pytest.mark.slow
def test_families_are_watched_rule_by_rule():
    families = [
        demographic_parity("sex", tol=0.1),
        equalized_odds("sex", tol=0.1, between="groups"),
        disparate_impact("sex", ratio=0.8, labels=["yes"]),
        predictive_parity("sex", tol=0.1),
    ]
    monitor = watch(families)
    for family in families:
        texts = [str(rule) for rule in family.expand(("no", "yes"), {"sex": ("F", "M")})]
        assert [one.rule for one in monitor.status if one.statement == str(family)] == texts
    assert all(math.isfinite(one.estimate) for one in monitor.status)


# Copies.


def test_of_two_labels_one_is_a_copy_of_the_other():
    """Each is told in its own words."""
    no, yes = BINARY.probabilities(ROWS.evidence).T
    monitor = watch(demographic_parity("sex", tol=0.1), policy=BINARY)
    assert len(monitor.status) == 8
    assert len(monitor.watched) == 4
    for one in monitor.status:
        group, chance = (F if "'F'" in one.rule else M), (no if "'no'" in one.rule else yes)
        assert one.estimate == pytest.approx(pool([group, ALL], [chance, -chance]), abs=1e-12), one.rule
    levels = Monitor(BINARY, rules=["selected('yes') <= 0.6", "selected('no') >= 0.4"])
    levels.update(ROWS.evidence)
    assert len(levels.watched) == 1
    assert [one.estimate for one in levels.status] == pytest.approx([average(ALL, yes), average(ALL, no)])
    assert [one.target for one in levels.status] == [0.6, 0.4]


def test_what_merely_looks_alike_is_no_copy():
    rules = [
        "selected('yes') <= 0.6",
        "selected('yes') <= 0.61",
        "selected('no') >= 0.4",  # with rejections, it is another
        "selected('yes').given(sex='F') <= 0.6",
        "selected('yes').given(sex='F', label='yes') <= 0.6",
        "precision('yes') <= 0.6",
    ]
    assert len(Monitor(POLICY, rules=rules, groups=SEX).watched) == len(rules)


@pytest.mark.slow
def test_rules_about_cells_without_random_rows_are_no_copies():
    """1,000 cells, of which the rows that tell rules apart have not all; of them, 100 are watched."""
    cells = {name: list(range(10)) for name in "abc"}
    rules = [selected("yes").given(a=0, b=j, c=k) <= 0.6 for j in range(10) for k in range(10)]
    monitor = Monitor(POLICY, rules=rules, groups=cells)
    assert len(monitor.watched) == 100
    b, c = np.divmod(np.random.default_rng(0).permutation(300) % 100, 10)
    monitor.update(ROWS.evidence.rows(np.arange(300)), groups={"a": np.zeros(300, int), "b": b, "c": c})
    assert {one.rows for one in monitor.status} == {3}


# Alarms.


def test_a_rule_that_is_clearly_broken_is_called_so():
    """Women are accepted less and less often: first nothing, then a change, then a rule that is broken."""
    monitor = Monitor(BINARY, rules=demographic_parity("sex", tol=0.1, between="groups"), groups=SEX)
    for day in range(6):
        rows = draw_rows(500, 100 + day)
        monitor.update(rows.evidence, groups={"sex": rows.sex})
    assert not monitor.alarm
    assert {one.status for one in monitor.status} == {Watch.QUIET}
    for day in range(6):
        rows = draw_rows(500, 200 + day, gap=0.4)
        monitor.update(rows.evidence, groups={"sex": rows.sex})
    assert monitor.alarm
    broken = {one.rule: one for one in monitor.status if one.status is Watch.BROKEN}
    assert set(broken) == {
        "selected('no').given(sex='F') - selected('no').given(sex='M') <= 0.1",
        "selected('yes').given(sex='M') - selected('yes').given(sex='F') <= 0.1",
    }
    for one in broken.values():
        assert 3000 < one.since < 6000
        assert one.e_value >= monitor.e_limit or one.detector >= monitor.detector_limit
        assert one.estimate > 0.1
    assert [entry.alarm for entry in monitor.log[:6]] == [False] * 6
    assert monitor.log[-1].alarm


def test_the_detector_calls_a_late_change_before_the_other():
    monitor = Monitor(BINARY, rules="selected('yes') <= 0.6", run_length=2000, ever=1e-90)
    monitor.update(draw_rows(20_000, 1).evidence)
    assert not monitor.alarm
    high = np.random.default_rng(2).uniform(0.4, 1, 500)
    monitor.update(Evidence(np.column_stack([1 - high, high]), classes=["no", "yes"]))
    (one,) = monitor.status
    assert one.status is Watch.CHANGED
    assert 20_000 < one.since <= 20_500
    assert one.detector >= monitor.detector_limit
    monitor.restart()
    (again,) = monitor.status
    assert (again.status, again.since, again.e_value, again.detector) == (Watch.QUIET, None, 1.0, 0.0)
    assert (again.estimate, again.rows, len(again.history)) == (one.estimate, one.rows, len(one.history))


def test_alarm_limits_by_hand():
    """Two rules that are told apart: a deposit for each row of the first, and for eight of the second."""
    monitor = Monitor(
        POLICY,
        rules=["rejected() <= 0.3", "selected('yes').given(sex='F') - selected('yes') <= 0.7"],
        ever=0.1,
        run_length=5120,
        groups=SEX,
    )
    assert monitor.e_limit == pytest.approx(20)
    assert monitor.detector_limit == pytest.approx(5120 + 1 + 5120 / 8 + 1)
    assert monitor.alarm_limits.level == 0.025


def test_since_is_the_row_at_which_the_round_was_whole():
    """Every row breaks the rule: rounds pay their most, and the alarm comes after as many as by hand."""
    monitor = Monitor(BINARY, rules="selected('yes').given(sex='F') <= 0.5", groups=SEX)
    n = 200
    sex = np.tile(["M", "M", "F"], n)
    sure = Evidence(np.tile([0.0, 1.0], (3 * n, 1)), classes=["no", "yes"])
    monitor.update(sure, groups={"sex": sex}, decisions=np.full(3 * n, "yes"))
    first = 1 - math.log(2) / math.log(3)
    stakes = 0.999 * np.minimum(6 * 0.5 ** np.arange(7) * 0.5, 0.95)
    made = first * np.exp(np.outer(np.arange(1, 30), np.log1p(stakes))).mean(axis=1) + 1 - first
    rounds = 1 + int(np.flatnonzero(made >= 20)[0])
    assert monitor.states[0].broken_at == 3 * rounds
    assert rounds < 32


# Batches.


def draw_swinging_day(rng, gap, n=500):
    """Groups and decisions of a day within which approvals and the share of the second group swing in
    opposite directions, so that the groups differ over the whole day by .14 and more."""
    swing = np.sin(2 * np.pi * np.arange(n) / n)
    second = rng.random(n) < 0.5 - 0.35 * swing
    approved = rng.random(n) < 0.4 + 0.2 * swing + np.where(second, 0.0, gap)
    return np.where(second, "F", "M"), np.where(approved, "yes", "no")


def watch_days(seed, bound, days, named=True, gap=0.0):
    """A monitor of the gap that has seen so many swinging days, and the gap over all rows."""
    rng = np.random.default_rng(seed)
    rule = f"selected('yes').given(sex='M') - selected('yes').given(sex='F') <= {bound}"
    monitor, seen = Monitor(BINARY, rules=rule, groups=SEX), []
    for day in range(days):
        sex, taken = draw_swinging_day(rng, gap)
        rows = Evidence(np.full((len(sex), 2), 0.5), classes=["no", "yes"])
        batch = str(day) if named else None
        monitor.update(rows, groups={"sex": sex}, decisions=taken, batch=batch)
        seen.append((sex, taken == "yes"))
    sex, yes = (np.concatenate(columns) for columns in zip(*seen, strict=True))
    return monitor, float(yes[sex == "M"].mean() - yes[sex == "F"].mean())


@pytest.mark.slow
def test_a_gap_of_the_day_is_found_where_the_day_is_a_batch():
    """Approvals swing within the day, and so do the groups: over the day the gap is .14, as an audit would
    find it, though there is none among rows next to each other. Estimate, interval and alarm agree."""
    alarms = []
    for seed in range(20):
        monitor, gap = watch_days(seed, 0.05, 30)
        (one,) = monitor.status
        alarms.append(one.since)
        assert abs(one.estimate - gap) < 0.03  # two standard errors of the pairs that rounds leave out
        assert 0.05 < one.lower < gap < one.upper
    assert all(alarms)
    assert np.median(alarms) <= 1100
    monitor, gap = watch_days(0, 0.05, 30, named=False)
    (one,) = monitor.status
    assert one.since is None
    assert gap > 0.12
    assert one.estimate < 0.05  # it is about rows next to each other, as the evidence is
    assert "adjacent rows" in repr(monitor)


@pytest.mark.slow
def test_a_gap_of_the_day_at_its_bound_raises_hardly_any_alarm():
    """The true gap over a day is .14: 30 days are 15 % of the run length, so that of 40 runs 6 and three
    standard errors have a false alarm at most."""
    rng = np.random.default_rng(0)
    days = [draw_swinging_day(rng, 0.0, 500) for _ in range(400)]
    sex, taken = (np.concatenate(columns) for columns in zip(*days, strict=True))
    bound = np.mean(taken[sex == "M"] == "yes") - np.mean(taken[sex == "F"] == "yes")
    alarms = sum(watch_days(100 + seed, round(float(bound), 4), 30)[0].alarm for seed in range(40))
    assert alarms <= 6


def test_the_order_of_a_named_batch_follows_from_its_name():
    """And from nothing in the rows: the same again is the same, and another name is another order."""
    rows, found = draw_rows(300, 5), []
    for batch in ("monday", "monday", "tuesday"):
        monitor = Monitor(POLICY, rules=MANY, groups=SEX)
        monitor.update(rows.evidence, labels=rows.labels, groups={"sex": rows.sex}, batch=batch)
        found.append([one.estimate for one in monitor.status])
    assert found[0] == found[1]
    assert found[0][2] != found[2][2]
    assert found[0][0] == pytest.approx(found[2][0])


def test_sorted_rows_of_a_named_batch_are_no_trouble(recwarn):
    """The gap is found, and no warning says that rows are sorted."""
    rows = draw_rows(2000, 6, gap=0.5)
    order = np.argsort(rows.sex, kind="stable")
    rule = "selected('yes').given(sex='M') - selected('yes').given(sex='F') <= 0.1"
    monitor = Monitor(BINARY, rules=rule, groups=SEX)
    monitor.update(rows.evidence.rows(order), groups={"sex": rows.sex[order]}, batch="monday")
    assert monitor.alarm
    assert not [one for one in recwarn if "sorted" in str(one.message)]


def watch_lucky_days(seed, unit, days=80):
    """Rejections of .1 on one day and of .3 on another by the toss of a coin, where .2 are allowed."""
    rng, monitor = np.random.default_rng(seed), Monitor(POLICY, rules="rejected() <= 0.2", unit=unit)
    for day in range(days):
        taken = np.where(rng.random(200) < rng.choice([0.1, 0.3]), "reject", "yes")
        rows = Evidence(np.full((200, 2), 0.5), classes=["no", "yes"], references={"old": ["no"] * 200})
        monitor.update(rows, decisions=taken, batch=str(day))
    return monitor


@pytest.mark.slow
def test_days_that_differ_by_chance_are_no_violation_where_the_unit_is_the_batch():
    """The rule holds on average over days. With rows as units, that is often called broken; with batches, in
    at most 5 of 100 runs and three standard errors."""
    by_row = [watch_lucky_days(seed, "rows") for seed in range(8)]
    assert sum(one.status[0].status is Watch.BROKEN for one in by_row) >= 2
    by_day = [watch_lucky_days(seed, "batches") for seed in range(20)]
    assert sum(one.status[0].status is Watch.BROKEN for one in by_day) <= 1 + 3 * math.sqrt(0.95)
    assert sum(not one.status[0].lower <= 0.2 <= one.status[0].upper for one in by_day) <= 3
    assert "on average over batches" in repr(by_day[0])
    assert "rows are independent" in repr(by_row[0])


def test_batches_by_hand():
    """A rate and a gap are means over batches, within each of which groups are compared."""
    rules = ["rejected() <= 0.3", "rejected().given(sex='F') - rejected().given(sex='M') <= 0.2"]
    monitor = Monitor(POLICY, rules=rules, groups=SEX, unit="batches")
    parts = np.split(np.arange(400), [30, 300])
    for part in parts:
        monitor.update(ROWS.evidence.rows(part), groups={"sex": ROWS.sex[part]})
    rate, gap = monitor.status
    assert rate.estimate == pytest.approx(np.mean([OUT[part].mean() for part in parts]))
    gaps = [OUT[part][F[part]].mean() - OUT[part][M[part]].mean() for part in parts]
    assert gap.estimate == pytest.approx(np.mean(gaps))
    assert monitor.run_length == 1000
    assert monitor.detector_limit == pytest.approx(2 * 1001)
    with pytest.raises(OptionError, match="unit must be one of"):
        Monitor(POLICY, unit="days")


def test_a_violation_of_all_days_is_found_where_the_unit_is_the_batch():
    monitor = Monitor(POLICY, rules="rejected() <= 0.05", unit="batches")
    for day in range(60):
        rows = draw_rows(200, day)
        monitor.update(rows.evidence)
    assert monitor.alarm


# Cuts.

MANY = [
    "rejected() <= 0.3",
    "error() <= 0.3",
    selected("yes").given(sex="F") - selected("yes") <= 0.1,
    precision("yes").given(sex="F") - precision("yes").given(sex="M") <= 0.1,
    KINDS["three events"][0],
]


def cut(n, ends):
    """Places of n rows, in parts that end there."""
    return np.split(np.arange(n), sorted(end for end in set(ends) if 0 < end < n))


ENDS = st.lists(st.integers(1, 699), max_size=12)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10**6), ENDS, ENDS, ENDS, st.booleans(), st.booleans())
def test_no_cut_of_rows_into_updates_matters(seed, first, second, third, restarts, looks):
    """Rows with labels and groups that are there or come later: whoever gets the same in the same order is in
    the same state, to the last bit."""
    rng = np.random.default_rng(seed)
    rows = draw_rows(700, seed, gap=0.2)
    labels = np.where(rng.random(700) < 0.5, rows.labels.astype(object), None)
    sex = np.where(rng.random(700) < 0.3, rows.sex.astype(object), None)
    late = rng.permutation(700)[:600]
    states = []
    for ends in ([], [], []), (first, second, third):
        monitor = Monitor(POLICY, rules=MANY, groups=SEX, run_length=1000)
        for part in cut(700, ends[0]):
            groups = {"sex": sex[part]}
            monitor.update(rows.evidence.rows(part), labels=labels[part], groups=groups, ids=part)
        for part in cut(300, ends[1]):
            monitor.update(ids=late[part], labels=rows.labels[late[part]])
        if restarts:
            monitor.restart()
        if looks and any(ends):
            assert monitor.status  # a look changes nothing
        for part in cut(600, ends[2]):
            ids = late[part]
            monitor.update(ids=ids, labels=rows.labels[ids], groups={"sex": rows.sex[ids]})
        states.append(describe(monitor))
        assert 0 < monitor.waiting < 700
    assert states[0] == states[1]


@pytest.mark.slow
def test_one_row_at_a_time():
    rows = draw_rows(200, 9)
    one, many = (Monitor(POLICY, rules=MANY, groups=SEX) for _ in range(2))
    one.update(rows.evidence, labels=rows.labels, groups={"sex": rows.sex})
    for i in range(200):
        many.update(rows.evidence.rows([i]), labels=rows.labels[[i]], groups={"sex": rows.sex[[i]]})
    assert describe(one) == describe(many)


@pytest.mark.slow
@pytest.mark.parametrize("begin", [448, 451, 900])
def test_no_cut_matters_after_a_restart(begin):
    """Long enough that histories are thinned out."""
    rows = draw_rows(8000, 4)
    one, many = (Monitor(POLICY, rules="rejected() <= 0.3") for _ in range(2))
    for monitor in (one, many):
        monitor.update(rows.evidence.rows(np.arange(begin)))
        monitor.restart()
    one.update(rows.evidence.rows(np.arange(begin, 8000)))
    for part in np.array_split(np.arange(begin, 8000), 400):
        many.update(rows.evidence.rows(part))
    assert describe(one) == describe(many)
    times = [point.row for point in one.status[0].history]
    assert len(set(np.diff(times))) == 1
    assert len(times) <= 28


def test_the_order_of_rows_matters_and_rows_before_are_no_future():
    """Stakes and rounds do not depend on later rows: what was noted of earlier ones stays."""
    rows = draw_rows(4000, 6)
    short, whole = (Monitor(POLICY, rules="error() <= 0.3") for _ in range(2))
    short.update(rows.evidence.rows(np.arange(1000)), labels=rows.labels[:1000])
    whole.update(rows.evidence, labels=rows.labels)
    early = {point.row: point for point in short.status[0].history}
    shared = [point for point in whole.status[0].history if point.row in early]
    assert shared
    assert shared == [early[point.row] for point in shared]


# Late labels, ids and batches.


def test_labels_and_groups_come_later_and_in_any_order():
    """A rule counts a row once it shows all that the rule refers to, in the order in which that happens."""
    order = np.random.default_rng(0).permutation(len(ROWS))
    monitor = Monitor(POLICY, rules=["error().given(sex='F') <= 0.3", "rejected() <= 0.3"], groups=SEX)
    monitor.update(ROWS.evidence, ids=np.arange(len(ROWS)))
    assert (monitor.rows, monitor.waiting) == (len(ROWS), len(ROWS))
    late, now = monitor.status
    assert (late.status, late.rows) == (Watch.UNSEEN, 0)
    assert late.reason == "no row with label and sex has been observed yet"
    assert math.isnan(late.estimate)
    assert now.rows == len(ROWS)
    monitor.update(ids=np.arange(len(ROWS)), labels=ROWS.labels)
    assert monitor.status[0].rows == 0
    assert monitor.waiting == len(ROWS)
    monitor.update(ids=order, groups={"sex": ROWS.sex[order]})
    late, now = monitor.status
    assert late.estimate == pytest.approx(average(F[order], WRONG[order]))
    assert (late.rows, now.rows, monitor.rows, monitor.waiting) == (F.sum(), len(ROWS), len(ROWS), 0)


def test_costs_come_later():
    """Rules that read none of them go on."""
    rows = ROWS.take(np.arange(100))
    monitor = Monitor(POLICY, rules=["rejected() <= 0.3", custom("loss") <= 3.0], limits={"loss": (1, 4)})
    monitor.update(rows.evidence, ids=np.arange(100))
    assert [one.rows for one in monitor.status] == [100, 0]
    monitor.update(ids=np.arange(50), outcomes={"loss": LOSS[:50]})
    assert [one.rows for one in monitor.status] == [100, 50]
    paid = (LOSS * np.column_stack([NO, YES, OUT])).sum(axis=1)[:50]
    assert monitor.status[1].estimate == pytest.approx(average(np.ones(50), paid))
    assert monitor.waiting == 50


def test_late_rows_may_come_with_new_ones():
    """A table of rows, of which some were seen before and have labels now."""
    monitor = Monitor(POLICY, rules="error() <= 0.3")
    monitor.update(ROWS.evidence.rows(np.arange(100)), ids=np.arange(100))
    monitor.update(ROWS.evidence.rows(np.arange(50, 200)), labels=ROWS.labels[50:200], ids=np.arange(50, 200))
    assert (monitor.rows, monitor.waiting) == (200, 50)
    monitor.update(ids=np.arange(60), labels=ROWS.labels[:60])  # of which ten were counted
    (found,) = monitor.status
    order = np.concatenate([np.arange(50, 200), np.arange(50)])
    assert found.rows == 200
    assert found.estimate == pytest.approx(average(ALL[:200], WRONG[order]))


def test_what_is_done_again_is_harmless():
    rows = ROWS.take(np.arange(300))
    monitor = Monitor(POLICY, rules=["error() <= 0.3", "rejected() <= 0.3"])

    def run():
        monitor.update(rows.evidence, ids=np.arange(300))
        monitor.update(ids=np.arange(200), labels=rows.labels[:200])
        monitor.update(rows.evidence, batch="monday")

    monitor.update(rows.evidence, ids=np.arange(300))
    monitor.update(ids=np.arange(200), labels=rows.labels[:200])
    monitor.update(rows.evidence, batch="monday")
    before, looks = describe(monitor), len(monitor.log)
    run()
    monitor.update(rows.evidence, batch="monday")
    monitor.update(ids=np.arange(300))
    assert describe(monitor) == before
    assert len(monitor.log) == looks
    monitor.update(rows.evidence, batch="tuesday")
    assert monitor.rows == 900


ERRORS = {
    "some rows were counted": (
        lambda m: m.update(ROWS.evidence.rows(np.arange(95, 105)), ids=np.arange(95, 105)),
        "5 of 10 rows were counted before and have no new values, the first of them in row 0",
    ),
    "an id twice": (
        lambda m: m.update(ROWS.evidence.rows(np.arange(3)), ids=["x", "y", "x"]),
        "ids must be unique, got 'x' more than once",
    ),
    "ids that were never seen": (
        lambda m: m.update(ids=[1, 1000, 1001], labels=["yes"] * 3),
        "got 2 new ids, the first in row 1",
    ),
    "another label": (
        lambda m: m.update(ids=np.arange(100), labels=np.where(RIGHT[:100], "no", "yes")),
        "the label of 40 rows differs from the values passed before",
    ),
    "another group": (
        lambda m: m.update(ids=np.arange(100), groups={"sex": np.where(F[:100], "M", "F")}),
        "the sex of 30 rows differs from the values passed before",
    ),
    "another cost": (
        lambda m: m.update(ids=np.arange(100), outcomes={"loss": 5 - LOSS[:100]}),
        r"the custom\('loss'\) of 20 rows differs from the values passed before",
    ),
    "too few ids": (
        lambda m: m.update(ROWS.evidence.rows(np.arange(200, 210)), ids=np.arange(200, 205)),
        "ids must have one id for each of the 10 rows, got 5",
    ),
    "too few labels": (
        lambda m: m.update(ids=np.arange(100), labels=ROWS.labels[:99]),
        "labels has 99 rows",
    ),
    "an unknown label": (
        lambda m: m.update(ids=[50], labels=["perhaps"]),
        "perhaps",
    ),
    "an unknown group": (
        lambda m: m.update(ids=[50], groups={"sex": ["X"]}),
        r"sex has values .* \['X'\]",
    ),
    "a cost beyond its limits": (
        lambda m: m.update(ids=[50], outcomes={"loss": [[1, 2, 9]]}),
        r"outcomes\['loss'\] must be within limits\['loss'\]=\(1.0, 4.0\), got 1 to 9",
    ),
    "costs of too few actions": (
        lambda m: m.update(ids=[50], outcomes={"loss": [[1, 2]]}),
        r"outcomes\['loss'\] must have one column",
    ),
    "weights": (
        lambda m: m.update(ROWS.evidence.rows([5]).with_columns(weights=np.ones(1))),
        "does not support sample weights",
    ),
    "no reference": (
        lambda m: m.update(Evidence([[0.5, 0.5]], classes=["no", "yes"])),
        "earlier model 'old', to which a rule refers: pass references=",
    ),
    "an unknown decision": (
        lambda m: Monitor(m.policy, rules=["error() <= 0.9"]).update(
            ROWS.evidence.rows([300]), decisions=["maybe"]
        ),
        "maybe",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_the_cause_and_nothing_is_counted(name):
    """After rows of which some show labels, groups and costs."""
    rules = ["error().given(sex='F') <= 0.3", custom("loss") <= 3.0, disagreement("old") <= 0.5]
    monitor = Monitor(POLICY, rules=rules, groups=SEX, limits={"loss": (1, 4)})
    monitor.update(ROWS.evidence.rows(np.arange(100)), ids=np.arange(100))
    monitor.update(ids=np.arange(40), labels=ROWS.labels[:40])
    monitor.update(ids=np.arange(30), groups={"sex": ROWS.sex[:30]})
    monitor.update(ids=np.arange(80, 100), outcomes={"loss": LOSS[80:100]})
    before = describe(monitor)
    act, message = ERRORS[name]
    with pytest.raises(EvidenceError, match=message):
        act(monitor)
    assert describe(monitor) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ever": 0}, "ever must be"),
        ({"ever": 1.5}, "ever must be"),
        ({"run_length": -1}, "run_length must be a positive number"),
        ({"limits": {"loss": 5}}, r"limits\['loss'\] must be a pair"),
        ({"limits": {"loss": (5, 1)}}, r"limits\['loss'\] must be two finite numbers"),
        ({"limits": {"loss": (0, math.inf)}}, r"limits\['loss'\] must be two finite numbers"),
        ({"limits": [1]}, "limits must be a dict"),
        (
            {"limits": {}},
            r"limits must have the range of custom\('loss'\), to which a rule refers; pass limits=",
        ),
        ({"groups": {}}, "groups must have the values of 'sex', to which a rule refers"),
        ({"groups": {"sex": "FM"}}, r"groups\['sex'\] must be a list of its values, got 'FM'"),
        ({"groups": {"sex": 3}}, r"groups\['sex'\] must be a list of its values, got 3"),
        ({"groups": {"sex": ["F", "F"]}}, r"groups\['sex'\] must have at least one value and no value twice"),
        ({"groups": ["F"]}, "groups must be a dict"),
    ],
)
def test_options_are_checked(options, message):
    rules = [custom("loss") <= 3.0, "error().given(sex='F') <= 0.3"]
    with pytest.raises(OptionError, match=message):
        Monitor(POLICY, **{"rules": rules, "limits": {"loss": (1, 4)}, "groups": SEX, **options})


def test_what_cannot_be_watched():
    with pytest.raises(RuleError, match=r"g_mean\(\) is not linear and rules cannot bound it"):
        Monitor(POLICY, rules="g_mean() >= 0.5")
    with pytest.raises(OptionError, match="the policy must have rules"):
        Monitor(BINARY)
    with pytest.raises(OptionError, match="must be a Policy, got str"):
        Monitor("policy")
    monitor = Monitor(POLICY)
    with pytest.raises(OptionError, match="must have evidence of new rows, or ids="):
        monitor.update(labels=["yes"])
    with pytest.raises(OptionError, match="decisions must be passed with evidence of new rows"):
        monitor.update(ids=[1], decisions=["yes"])
    with pytest.raises(OptionError, match=r"a monitored rule uses, .* got 'usd'"):
        monitor.update(ROWS.evidence, outcomes={"usd": LOSS})
    with pytest.raises(OptionError, match="batch must be text"):
        monitor.update(ROWS.evidence, batch=3)


def test_tables_in_another_order_are_refused():
    """Labels go with ids by position: an index that says otherwise is no accident."""
    ids, labels = pandas.Series(np.arange(50)), pandas.Series(ROWS.labels[:50])
    monitor = Monitor(POLICY, rules="error() <= 0.3")
    rows = Evidence(pandas.DataFrame(ROWS.evidence.probabilities[:50], columns=["no", "yes"]))
    with pytest.raises(EvidenceError, match="ids"):
        monitor.update(rows, ids=ids[::-1])
    monitor.update(rows, ids=ids)
    with pytest.raises(EvidenceError, match="labels"):
        monitor.update(ids=ids, labels=labels[::-1])
    assert monitor.status[0].rows == 0
    monitor.update(ids=ids[::-1], labels=labels[::-1])
    assert monitor.status[0].rows == 50


# What it tells.


def test_silence_is_explained():
    rules = ["error() <= 0.3", "rejected().given(sex='F') <= 0.3", "rejected() <= 0.3"]
    monitor = Monitor(POLICY, rules=rules, groups={"sex": ["F", "M"]})
    assert {one.reason for one in monitor.status} == {"no row has been counted yet"}
    men = ROWS.take(np.flatnonzero(M))
    monitor.update(men.evidence, groups={"sex": men.sex})
    assert [one.reason for one in monitor.status] == [
        "no row with label has been observed yet",
        "no row with sex has been observed yet",
        "",
    ]
    assert "no row with label has been observed yet" in repr(monitor)
    assert "no row with label has been observed yet" in monitor._repr_html_()


def test_a_known_group_without_rows():
    women = draw_rows(800, 11)
    known = Evidence(women.evidence.probabilities, classes=["no", "yes"], groups={"sex": women.sex})
    policy = solve(Problem(error(), [rejected().given(sex="F") <= 0.3]), known, beta=8.0)
    monitor = Monitor(policy)
    men = known.rows(np.flatnonzero(women.sex == "M"))
    monitor.update(men)
    assert monitor.status[0].reason == "no row is in the groups that it compares"
    monitor.update(known)
    assert monitor.status[0].rows == (women.sex == "F").sum()


def test_groups_that_the_policy_guesses_are_passed_later():
    rng = np.random.default_rng(12)
    rows = draw_rows(600, 12)
    chance = np.where(rows.sex == "F", 0.8, 0.2) + rng.uniform(-0.1, 0.1, 600)
    guessed = {"sex": {"F": chance, "M": 1 - chance}}
    evidence = Evidence(rows.evidence.probabilities, classes=["no", "yes"], groups=guessed)
    policy = solve(Problem(error(), [demographic_parity("sex", tol=0.1)]), evidence, beta=8.0)
    monitor = Monitor(policy)
    monitor.update(evidence, ids=np.arange(600))
    assert {one.rows for one in monitor.status} == {0}
    monitor.update(ids=np.arange(600), groups={"sex": rows.sex})
    yes = policy.probabilities(evidence)[:, 1]
    for one in monitor.status:
        if one.rule.startswith("selected('yes').given(sex='F')"):
            women = rows.sex == "F"
            assert one.estimate == pytest.approx(pool([women, np.ones(600)], [yes, -yes]))


def test_a_rate_is_not_known_before_there_are_pairs():
    """A history has no rate where there is none, and says so in files, too."""
    monitor = Monitor(BINARY, rules="selected('yes').given(sex='F') - selected('yes') <= 0.1", groups=SEX)
    men = draw_rows(800, 13)
    monitor.update(men.evidence, groups={"sex": np.full(800, "M")})
    (one,) = monitor.status
    assert math.isnan(one.estimate)
    assert (one.lower, one.upper) == (-1.0, 1.0)
    assert all(math.isnan(point.estimate) for point in one.history)
    assert "too few to compare" in repr(monitor)


@pytest.mark.slow
def test_numbers_as_frames_dicts_and_text():
    monitor = watch([rule for rule, *_ in KINDS.values()])
    frame = monitor.to_frame()
    names = "rule target estimate lower upper rows e_value detector evidence status since"
    assert list(frame.columns) == names.split()
    found = json.loads(json.dumps(monitor.to_dict(), allow_nan=False))
    assert [one["rule"] for one in found["rules"]] == list(frame["rule"])
    assert (found["rows"], found["waiting"], found["alarm"]) == (len(ROWS), 0, monitor.alarm)
    shown = repr(monitor)
    assert shown.startswith("quiet after 1,203 rows\n")
    assert all(str(rule) in shown for rule, *_ in KINDS.values())
    assert "and 2 more rules" in repr(watch([selected("yes") <= 0.5 + i / 100 for i in range(22)]))


@pytest.mark.slow
def test_pictures():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    monitor = watch([KINDS[name][0] for name in ("rate", "between groups", "three events")])
    assert len(monitor.plot().axes) == 6
    assert len(monitor.plot(["rejected() <= 0.3"]).axes) == 2
    with pytest.raises(OptionError, match="got 'nothing'"):
        monitor.plot(["nothing"])
    with pytest.raises(OptionError, match="no rule has enough rows"):
        Monitor(POLICY).plot()
    plt.close("all")


def test_the_latest_names_of_batches_are_the_ones_that_are_remembered(monkeypatch):
    monkeypatch.setattr("bylaw.testing._monitor._MOST_BATCHES", 2)
    monitor, rows = Monitor(POLICY, rules=[rejected() <= 0.3]), draw_rows(20, 5).evidence
    for day in ("monday", "tuesday", "wednesday", "wednesday"):
        monitor.update(rows, batch=day)
    assert monitor.batches == ("tuesday", "wednesday")
    assert monitor.rows == 60
