from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from bylaw import (
    ConvergenceWarning,
    Evidence,
    EvidenceError,
    Monitor,
    OptionError,
    Policy,
    Problem,
    accepted,
    audit,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    error,
    error_parity,
    frontier,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.report import report
from bylaw.report._context import bound_rates, make_report_rows
from bylaw.report._prices import trace_curves
from bylaw.report._rules import draw_evidence
from bylaw.rows import observe
from bylaw.solvers import FullBatch
from bylaw.testing._watched_rule import Point
from bylaw.view import Field, Scale, format_count, format_percent, format_points
from helpers.reported import (
    HOSTILE,
    WHEN,
    guessing,
    in_sets,
    page_of,
    parsed,
    referring,
    refitted,
    watched,
)
from helpers.scored import people

ICONS = {"violated": "✕", "undecided": "?", "certified": "✓"}
NAMES = ["referring", "audited", "guessing", "sets", "watched", "refitted", "attacking"]


def tables(tree):
    """Captions -> rows of texts."""
    found = {}
    for table in tree.all("table"):
        rows = [[cell.words() for cell in row.children] for row in table.all("tr")]
        found.setdefault(table.all("caption")[0].words(), rows)
    return found


def section(tree, anchor):
    return next(s for s in tree.all("section") if s.attributes["id"] == anchor)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_whole_and_alone(name):
    html = page_of(name)
    tree = parsed(html)
    assert [h.name for h in tree.all("h1")] == ["h1"]
    anchors = [s.attributes["id"] for s in tree.all("section")]
    assert anchors == [a.attributes["href"][1:] for a in tree.all("nav")[0].all("a")]
    assert len(anchors) == (13 if name in ("watched", "refitted") else 12)
    assert not re.search(r"https?:|src=|url\(|@import", re.sub(r"&[^;]*;", "", html.split("<main")[0]))
    (policy,) = tree.all("meta", http_equiv="Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'; style-src 'sha256-")
    assert len(html) < 150_000


def test_before_and_after_are_the_policys_own_rates():
    policy, evidence, labels, _ = referring()
    shown = tables(section(parsed(page_of("referring")), "groups"))
    distribution = policy.probabilities(evidence)
    sex = np.array(evidence.groups["sex"].values)[evidence.groups["sex"].codes]
    own = evidence.probabilities.argmax(axis=1)
    for a, caption in ((0, "Decided “0”"), (1, "Decided “1”"), (2, "Referred (“reject”)")):
        for group, _, before, after in shown[caption][1:]:
            name, size = group.split(maxsplit=1)
            assert size == f"{(sex == name).sum()}\N{NO-BREAK SPACE}cases"
            rate = selected(a).given(sex=name) if a < 2 else rejected().given(sex=name)
            assert after == format_percent(policy.expected(rate, evidence))
            assert after == format_percent(distribution[sex == name, a].mean())
            assert before == format_percent((own[sex == name] == a).mean())
    caption = "Answered wrongly, as observed; cases that are referred count as no error"
    for group, _, before, after in shown[caption][1:]:
        here = sex == group.split()[0]
        assert before == format_percent((own != labels)[here].mean())
        wrong = distribution[np.arange(len(labels)), 1 - labels]
        assert after == format_percent(wrong[here].mean())


def test_changed_decisions_are_counted():
    policy, evidence, _, _ = referring()
    shown = tables(section(parsed(page_of("referring")), "affected"))
    distribution, own = policy.probabilities(evidence), evidence.probabilities.argmax(axis=1)
    changed = 1 - distribution[np.arange(len(own)), own]
    sex = np.array(evidence.groups["sex"].values)[evidence.groups["sex"].codes]
    rows = {" ".join(row[0].split()): row for row in shown["Changed decisions by group"][1:]}
    assert rows["All cases 800 cases"][2] == format_percent(changed.mean())
    for value in "FM":
        assert rows[f"sex: {value} {(sex == value).sum()} cases"][2] == format_percent(
            changed[sex == value].mean()
        )
    rows = {row[0]: row for row in shown["Changed decisions by decision of your model"][1:]}
    for a in (0, 1):
        assert rows[str(a)][2] == format_percent(changed[own == a].mean())
        assert rows[str(a)][3] == format_percent((own == a).mean())
    flows = next(rows for caption, rows in shown.items() if caption.startswith("From what"))
    assert flows[1][1:] == [format_percent(distribution[own == 0, b].sum() / len(own)) for b in range(3)]


def test_the_summary_counts_errors_referrals_changes_and_draws():
    policy, evidence, labels, _ = referring()
    numbers = [
        s.words() for s in section(parsed(page_of("referring")), "summary").all("span", class_="number")
    ]
    distribution, own = policy.probabilities(evidence), evidence.probabilities.argmax(axis=1)
    wrong = distribution[np.arange(len(labels)), 1 - labels].mean()
    changed = 1 - distribution[np.arange(len(own)), own].mean()
    assert numbers == [
        f"{format_percent((own != labels).mean())} → {format_percent(wrong)}",
        format_percent(policy.expected(rejected(), evidence)),
        format_percent(changed),
        format_percent((distribution.max(axis=1) < 0.99).mean()),
    ]


def test_the_summary_tells_size_referrals_and_errors_of_each_group():
    policy, evidence, labels, _ = referring()
    found = tables(section(parsed(page_of("referring")), "summary"))
    (caption,) = found
    assert caption.startswith("Group by group, on the 800")
    assert found[caption][0] == [
        "Group",
        "Cases",
        "Referred",
        "Wrong answers: your model",
        "With rules",
        "Changed",
    ]
    chances, own = policy.probabilities(evidence), evidence.probabilities.argmax(axis=1)
    sex = np.array(evidence.groups["sex"].values)[evidence.groups["sex"].codes]
    rows = {row[0]: row[1:] for row in found[caption][1:]}
    wrong, place = chances[np.arange(800), 1 - labels], np.arange(800)
    for name, here in (("All cases", np.full(800, True)), ("sex: F", sex == "F"), ("sex: M", sex == "M")):
        assert rows[name] == [
            str(here.sum()),
            format_percent(chances[here, 2].mean()),
            format_percent((own != labels)[here].mean()),
            format_percent(wrong[here].mean()),
            format_percent((1 - chances[place, own])[here].mean()),
        ]


def test_errors_that_fall_because_of_referrals_are_said_to():
    """In the same line, with the share of wrong answers among those that are given."""
    policy, evidence, labels, _ = referring()
    chances = policy.probabilities(evidence)
    wrong, referred = chances[np.arange(800), 1 - labels].mean(), chances[:, 2].mean()
    for anchor in ("summary", "sign"):
        assert (
            f"With rules, {format_percent(wrong)} are answered wrongly, because "
            f"{format_percent(referred)} of all cases are referred and count as no error; of the cases that "
            f"still get an answer, {format_percent(wrong / (1 - referred))} get a wrong one."
        ) in section(parsed(page_of("referring")), anchor).words()
    assert re.search("your model → with rules; .* without rules; those referred count", page_of("referring"))
    assert "A case that is referred counts as no error." in page_of("referring")
    assert "count as no error" not in page_of("guessing")


@pytest.mark.slow
def test_charts_of_one_kind_have_one_scale():
    """The same ticks at the same places below every chart of actions."""
    for name in ("referring", "guessing", "crowded"):
        axes = {}
        for table in section(parsed(page_of(name)), "groups").all("table"):
            axis = [
                (text.attributes["x"], text.text) for text in table.all("svg", class_="axis")[0].all("text")
            ]
            kind = table.all("caption")[0].words().split(",")[0] == "Answered wrongly"
            axes.setdefault(kind, []).append(axis)
            (x1, v1), (x2, v2) = (
                [float(text.split("%")[0]) for text in tick] for tick in (axis[0], axis[-1])
            )
            for row in table.all("tr")[1:]:
                (dot,) = row.all("circle", class_="after")
                value, place = (
                    float(text.split("%")[0]) for text in (row.children[-1].words(), dot.attributes["cx"])
                )
                found = v1 + (v2 - v1) * (place - x1) / (x2 - x1)
                assert found == pytest.approx(value, abs=0.07)  # as shown, to one decimal
        assert len(axes[False]) > 2, name
        assert all(axis == axes[False][0] for axis in axes[False])
    costs = [
        [t.text for t in f.all("svg")[0].all("text")]
        for f in parsed(page_of("referring")).all("div", class_="framed")
    ]
    assert costs[0] == costs[1]


@pytest.mark.slow
def test_groups_are_words_not_code():
    """Outside of <code>, nothing is written as a program would read it."""
    for name in ("audited", "guessing", "crowded", "watched"):
        text = re.sub(r"<code.*?</code>", "", page_of(name).split("<main")[1].split("<script")[0])
        assert not re.search(r"\w=(&#x27;|')|given\(|\.given|selected\(", text), name
    assert "label “honors” among cases with region “south”" in parsed(page_of("crowded")).words()


def test_one_report_shows_one_price():
    """A policy that was chosen with labels has curves with labels; where these are withheld, it is said."""
    evidence, labels, _ = people(1500, seed=8)
    wrong = np.random.default_rng(0).random(1500) < 0.15  # less certain than the scores say
    labels = np.where(wrong, 1 - labels, labels)
    policy = solve(Problem(rejected(), [error() <= 0.3]), evidence, labels=labels, calibrate="none")
    page = parsed(report(policy, evidence, labels=labels, levels=4).html)
    (price,), (stated,) = policy.prices.values(), section(page, "prices").all("span", class_="price")
    words = f"Loosening it by one point would save {format_points(0.01 * price)} of referrals."
    assert stated.words() == words
    (shown,) = section(page, "frontier").all("p", class_="said")
    referred = format_percent(policy.expected(rejected(), evidence))
    assert shown.words().endswith(f"At the present level, as observed: referrals {referred}. {words}")
    assert "For larger steps, see the curves below" in section(page, "prices").words()
    predicted = parsed(report(policy, evidence, levels=4).html)
    (other,) = section(predicted, "frontier").all("p", class_="said")
    assert "as predicted: referrals" in other.words()
    assert words not in other.words()
    (stated,) = section(predicted, "prices").all("span", class_="price")
    assert stated.words() == words
    assert "So their prices differ" in section(predicted, "prices").words()


def test_prices_of_factors_are_those_of_their_curves():
    """One point of the level of a selective error is one point of the answered share, not of all cases."""
    evidence, _, _ = people(1500, seed=8)
    policy = solve(Problem(rejected(), [error() <= 0.2 * accepted()]), evidence)
    page = parsed(report(policy, evidence, levels=4).html)
    (stated,) = section(page, "prices").all("span", class_="price")
    (shown,) = section(page, "frontier").all("p", class_="said")
    (price,) = policy.prices.values()
    level = price * policy.expected(accepted(), evidence)
    assert format_points(0.01 * level) != format_points(0.01 * price)
    assert (
        stated.words() == f"Loosening it by one point would save {format_points(0.01 * level)} of referrals."
    )
    assert stated.words() in shown.words()


@pytest.mark.slow
def test_a_margin_is_kept_on_curves():
    evidence, labels, _ = people(1500, seed=8)
    rules = [error_parity("sex", tol=0.05), rejected() <= 0.1]
    policy = solve(Problem(error(), rules), evidence, labels=labels, margin=1.0)
    for margin, agrees in ((1.0, True), (0.0, False)):
        page = parsed(report(policy, evidence, labels=labels, levels=3, margin=margin).html)
        assert ("see the curves below" in section(page, "prices").words()) == agrees
        costs = [
            re.search(r"as observed: error ([\d.]+)", one.words())[1]
            for one in section(page, "frontier").all("p", class_="said")
        ]
        own = policy.expected(
            error(),
            observe(evidence.with_observed(labels=labels)),
            probabilities=policy.probabilities(evidence),
        )
        assert (
            {float(cost) for cost in costs} == {float(format_percent(own).split("\N{NO-BREAK SPACE}")[0])}
        ) == agrees
    with pytest.raises(OptionError, match="margin"):
        report(policy, evidence, margin=-1)


def test_prices_of_what_is_no_share_are_per_tenth():
    _, evidence = in_sets()
    bounded = solve(Problem(miscoverage(), [size() <= 2]), evidence)
    text = section(parsed(report(bounded, evidence, levels=0).html), "prices").words()
    (price,) = bounded.prices.values()
    assert f"Loosening it by 0.2 (a tenth) would save {format_points(0.2 * price)} of missed labels." in text
    assert "unit" not in text


def test_what_only_engineers_need_is_folded():
    for name in NAMES:
        tree = section(parsed(page_of(name)), "fingerprint")
        (folded,) = tree.all("details")
        for words in ("beta", "Solver", "bylaw"):
            assert words in folded.words()
        open_ = parsed(page_of(name)).words().replace(folded.words(), "")
        assert "Inverse temperature" not in open_


def test_weights_count():
    evidence, labels, _ = people(400, seed=2)
    weights = np.random.default_rng(0).random(400)
    evidence = evidence.with_columns(weights=weights)
    policy = solve(Problem(error(), [demographic_parity("sex", tol=0.05)]), evidence)
    cases = make_report_rows(policy, evidence.with_observed(labels=labels), held_out=False)
    assert cases.measure(error()) == pytest.approx(
        np.average(1 - policy.probabilities(evidence)[np.arange(400), labels], weights=weights)
    )
    assert cases.all_rows.average(cases.probabilities)[1] == pytest.approx(
        policy.expected(selected(1), evidence)
    )


def test_guessed_groups_are_as_observed_where_they_were_seen():
    policy, evidence, _, group = guessing()
    distribution = policy.probabilities(evidence)
    shown = tables(section(parsed(page_of("guessing")), "groups"))
    for name, _, _, after in shown["Decided “highest”"][1:]:
        assert after == format_percent(distribution[group == name.split()[0], 4].mean())
    alone = report(policy, evidence, levels=0)
    shown = tables(section(parsed(alone.html), "groups"))
    for name, _, _, after in shown["Decided “highest”"][1:]:
        rate = selected("highest").given(gender=name.split()[0])
        assert after == format_percent(policy.expected(rate, evidence))
    assert "The true gender of these cases is not known" in alone.html


def test_bars_of_an_audit_are_the_audits():
    policy, _, _, held_out = referring()
    found = audit(policy, held_out)
    bars = bound_rates(make_report_rows(policy, held_out, held_out=True), found)
    assert sorted(rule for bar in bars for rule in bar.rules) == sorted(rule.rule for rule in found.rules)
    for rule in found.rules:
        bar = next(bar for bar in bars if rule.rule in bar.rules)
        assert bar.track[2:] == pytest.approx((rule.estimate, rule.lower, rule.upper))
        assert (bar.track.high if rule.sense == "<=" else bar.track.low) == pytest.approx(rule.target)
    order = ["violated", "undecided", "certified"]
    for bar in bars:  # as bad as its worst rule
        verdicts = [rule.verdict for rule in found.rules if rule.rule in bar.rules]
        assert bar.verdict == min(verdicts, key=order.index)
    cards = section(parsed(page_of("audited")), "kept").all("ul", class_="cards")[0].children
    assert len(cards) == len(bars)
    for card, bar in zip(cards, bars, strict=True):
        assert card.all("span", class_="badge")[0].words() == f"{bar.verdict} {ICONS[bar.verdict]}"
        assert (format_percent if bar.unit == "share" else format_points)(bar.track.estimate) in card.words()


def test_estimates_on_fitted_rows_are_those_of_an_audit():
    policy, evidence, labels, _ = referring()
    found = audit(policy, evidence, labels=labels, fitted_rows="estimate")
    bars = bound_rates(make_report_rows(policy, evidence.with_observed(labels=labels), held_out=False), None)
    for rule in found.rules:
        bar = next(bar for bar in bars if rule.rule in bar.rules)
        assert bar.track.estimate == pytest.approx(rule.estimate)
        assert bar.judged.rows == rule.rows
        assert bar.verdict == rule.verdict == "estimated to hold"


def test_pairs_of_groups_are_drawn_once():
    evidence, _, _ = people(300, seed=3)
    problem = Problem(error(), [demographic_parity("sex", tol=0.04, between="groups", labels=[1])])
    policy = solve(problem, evidence)
    (bar,) = bound_rates(make_report_rows(policy, evidence, held_out=False), None)
    assert (*bar.track[:2], len(bar.rules)) == (-0.04, 0.04, 2)
    gap = policy.expected(selected(1).given(sex="F") - selected(1).given(sex="M"), evidence)
    assert bar.track.estimate == pytest.approx(gap)
    assert bar.verdict == "estimated to hold"


def test_without_held_out_rows_nothing_is_called_certified():
    text = parsed(page_of("referring")).words()
    assert "estimated to hold" in text
    assert "certified" not in text
    assert "--held-out on the command line" in text
    assert "No held-out cases were given to test it" in text
    assert "cases, a sample: on others, all rules together may be violated by about" in text


def test_a_broken_rule_is_said_to_be_broken():
    rows, labels, _ = people(900, seed=1)
    policy = solve(Problem(error(), [error() <= 0.2, rejected() <= 0.5]), rows)
    wrong = 1 - labels  # the model is mostly mistaken
    observed = policy.probabilities(rows)[np.arange(900), 1 - wrong].mean()
    assert observed > 0.2 > policy.expected(error(), rows) - 1e-6
    text = parsed(report(policy, rows, labels=wrong, levels=0).html).words()
    assert "estimated to be broken" in text
    assert format_percent(observed) in text
    new, seen, _ = people(900, seed=2)
    text = parsed(report(policy, rows, held_out=new.with_observed(labels=1 - seen), levels=0).html).words()
    assert "that at least one rule does not hold" in text
    assert "violated" in text


def test_rules_that_cannot_be_judged_are_said_to_be():
    rows, _, _ = people(400, seed=1)
    policy = solve(Problem(error(), [error() <= 0.3, rejected() <= 0.9]), rows)
    new, _, _ = people(400, seed=2)
    text = parsed(report(policy, rows, held_out=new, levels=0).html).words()
    assert "not judged" in text
    assert "1 of 2\N{NO-BREAK SPACE}rates could not be judged at all" in text
    assert "nan" not in text


def test_rows_of_others_are_called_so():
    policy, _, _, held_out = referring()
    text = parsed(report(policy, held_out.without_observed(), levels=3).html).words()
    assert "given to this report" in text
    assert "on which the policy was chosen, as predicted by" in text  # what the policy itself guarantees


def test_a_solver_that_stopped_early_guarantees_nothing():
    rows, _, _ = people(400, seed=1)
    problem = Problem(error(), [demographic_parity("sex", tol=0.01)])
    with pytest.warns(ConvergenceWarning):
        policy = solve(problem, rows, solver=FullBatch(max_steps=1))
    text = parsed(report(policy, rows, levels=0).html).words()
    assert "the solver stopped before its tolerance" in text
    assert "all rules together are violated by no more than" not in text


def test_prices_are_in_words():
    policy, _, _, _ = referring()
    text = section(parsed(page_of("referring")), "prices").words()
    for price in policy.prices.values():
        assert f"Loosening it by one point would save {format_points(price * 0.01)} of error." in text


@pytest.mark.slow
def test_the_frontier_is_the_frontiers():
    policy, evidence, _, _ = referring()
    panels = parsed(page_of("referring")).all("div", class_="curve")
    assert len(panels) == 2
    for panel, statement in zip(panels, policy.problem.rules, strict=True):
        circles = [c for c in panel.all("circle") if "data-level" in c.attributes]
        rows = next(iter(tables(panel).values()))[1:]
        assert len(circles) == len(rows)
        curve = next(c for c in _curves() if c.statement == statement)
        exact = frontier(policy.problem, evidence, {statement: curve.levels}, beta=policy.beta)
        assert [row[1] for row in rows] == [format_percent(cost) for cost in exact.cost]
        assert curve.levels[curve.now] == statement.level
        heights = [float(c.attributes["cy"]) for c in circles]
        assert np.allclose(np.polyval(np.polyfit(exact.cost, heights, 1), exact.cost), heights, atol=0.1)
        assert np.polyfit(exact.cost, heights, 1)[0] < 0  # more cost is higher up


def _curves():
    policy, evidence, _, _ = referring()
    return trace_curves(make_report_rows(policy, evidence, held_out=False), 7, None).curves


def test_curves_reach_from_tight_to_free():
    parity, budget = _curves()
    assert parity.levels[0] == budget.levels[0] == 0
    assert parity.prices[-1] == pytest.approx(0, abs=0.05)  # hardly binds any more
    assert parity.level in parity.levels


def test_given_frontiers_are_shown():
    policy, evidence, _, _ = referring()
    path = frontier(policy.problem, evidence, {"rejected() <= 0.1": [0.05, 0.1, 0.2]})
    html = report(policy, evidence, frontiers=[path]).html
    panels = parsed(html).all("div", class_="curve")
    assert len(panels) == 1
    assert [row[1] for row in next(iter(tables(panels[0]).values()))[1:]] == [
        format_percent(c) for c in path.cost
    ]


def test_conflicts_on_a_frontier_are_said():
    evidence, _, _ = people(300, seed=3)
    policy = solve(Problem(error(), [selected(1) >= 0.5, selected(0) >= 0.3]), evidence)
    html = report(policy, evidence, levels=9).html
    assert "the rules conflict: no policy satisfies them all" in html
    assert "nan" not in html.split("<main")[1].split("<script")[0].lower().replace("resonan", "")


def test_a_frontier_must_have_the_level_of_the_rule():
    """Otherwise another level would be shown as that of the rule."""
    policy, evidence, _, _ = referring()
    path = frontier(policy.problem, evidence, {"rejected() <= 0.1": [0.05, 0.2]})
    with pytest.raises(OptionError, match=r"must include the present level 0\.1"):
        report(policy, evidence, frontiers=[path])


def test_guessed_groups_are_not_called_observed():
    policy, evidence, labels, group = guessing()
    guessed = report(policy, evidence, labels=labels, levels=0).html
    assert "with gender as predicted" in section(parsed(guessed), "kept").words()
    seen = report(policy, evidence, labels=labels, groups={"gender": group}, levels=0).html
    assert "with gender as predicted" not in section(parsed(seen), "kept").words()


def test_groups_that_are_worse_off_are_named_first():
    evidence, labels, sex = people(4000, seed=5)
    policy = solve(Problem(error(), [selected(1).given(sex="F") >= 0.8]), evidence)
    own = np.argmax(evidence.probabilities, axis=1)
    wrong_before = {s: np.mean(own[sex == s] != labels[sex == s]) for s in set(sex)}
    distribution = policy.probabilities(evidence)
    chance = 1 - distribution[np.arange(len(labels)), labels]
    wrong_after = {s: chance[sex == s].mean() for s in set(sex)}
    said = section(parsed(report(policy, evidence, labels=labels, levels=0).html), "summary").words()
    rising = [s for s in wrong_before if wrong_after[s] - wrong_before[s] > 0.005]
    assert rising, "the rule costs somebody"
    for s in rising:
        size = f"{(sex == s).sum():,}\N{NO-BREAK SPACE}cases"
        before, after = format_percent(wrong_before[s]), format_percent(wrong_after[s])
        assert f"sex “{s}” ({size}), from {before} to {after}" in said


def test_an_overconfident_model_is_not_called_calibrated():
    """Shares of labels agree on average, while the surest answers are often wrong."""
    rng = np.random.default_rng(0)
    yes = np.where(rng.random(4000) < 0.5, 0.95, 0.05)
    labels = (rng.random(4000) < np.where(yes > 0.5, 0.75, 0.25)).astype(int)
    evidence = Evidence(np.column_stack([1 - yes, yes]))
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    said = section(parsed(report(policy, evidence, labels=labels, levels=0).html), "calibration").words()
    assert "predicted and observed shares agree" in said
    assert re.search(r"where the model’s confidence is 95.%, it is right in 7\d", said)


def test_a_calibrated_policy_shows_its_scores_before_and_after():
    rng = np.random.default_rng(0)
    logit = rng.normal(size=4000)
    labels = (rng.random(4000) < 1 / (1 + np.exp(-logit))).astype(int)
    yes = 1 / (1 + np.exp(-8 * logit))
    evidence = Evidence(np.column_stack([1 - yes, yes]))
    rules = Problem(error(), [rejected() <= 0.1])
    calibrated = solve(rules, evidence, labels=labels, calibrate="auto")
    tree = section(parsed(report(calibrated, evidence, labels=labels, levels=0).html), "calibration")
    said = tree.words()
    assert "first calibrates the model’s probabilities" in said
    assert "labels: temperature" in said
    before, after = (
        float(number) for number in re.search(r"differ by ([\d.]+).*before, and by ([\d.]+)", said).groups()
    )
    assert after < 3 < 10 < before
    looks = [dot.attributes["class"] for dot in tree.all("circle")]
    assert looks.count("before") == looks.count("after") == 10
    assert "Before calibration" in said
    assert "its confidence is not calibrated" not in said
    plain = solve(rules, evidence, labels=labels, calibrate="none")
    tree = section(parsed(report(plain, evidence, labels=labels, levels=0).html), "calibration")
    assert "first calibrates the model’s probabilities" not in tree.words()
    assert "Before calibration" not in tree.words()
    assert not [dot for dot in tree.all("circle") if dot.attributes["class"] == "before"]


def test_counts_and_words_of_weighted_cases():
    evidence, labels, _ = people(800, seed=0)
    weighted = evidence.with_columns(weights=np.full(800, 1 / 800))
    policy = solve(Problem(error(), [demographic_parity("sex", tol=0.03), rejected() <= 0.1]), weighted)
    page = parsed(report(policy, weighted, labels=labels, levels=0).html)
    assert "with an effective sample size of 800\N{NO-BREAK SPACE}cases" in section(page, "kept").words()
    assert "Cases count by their weights" in section(page, "rules").words()


@pytest.mark.slow
def test_a_certificate_and_an_undecided_audit_do_not_contradict_each_other():
    evidence, _, _ = people(3000, seed=0)
    proof, seen, _ = people(4000, seed=1)
    problem = Problem(error(), [rejected() <= 0.1])
    policy = solve(problem, evidence, guarantee="high_probability", held_out=proof.with_observed(labels=seen))
    few, outcome, _ = people(300, seed=2)
    page = parsed(report(policy, evidence, held_out=few.with_observed(labels=outcome), levels=0).html)
    assert (
        "4,000\N{NO-BREAK SPACE}held-out cases proved that all rules hold together"
        in section(page, "summary").words()
    )
    assert "by the cases of this report alone" in section(page, "guarantees").words()
    assert "3,000 + 4,000" in section(page, "fingerprint").words()


@pytest.mark.slow
def test_sets_are_counted():
    policy, evidence = in_sets()
    tree = parsed(page_of("sets"))
    shown = tables(section(tree, "affected"))
    distribution = policy.probabilities(evidence)
    chance = np.zeros(5)  # of none to all four
    for row in distribution:
        for members in np.ndindex(2, 2, 2, 2):
            p = np.prod([q if m else 1 - q for q, m in zip(row, members, strict=True)])
            chance[sum(members)] += p / len(distribution)
    assert [row[2] for row in shown["How many labels the sets have"][1:]] == [
        format_percent(c) for c in chance
    ]
    numbers = [s.words() for s in section(tree, "summary").all("span", class_="number")]
    assert numbers[2] == f"{policy.expected(size(), evidence):.2f}".rstrip("0").rstrip(".")


@pytest.mark.slow
def test_ratios_are_shown_as_ratios():
    evidence, labels, _ = people(3000, 0)
    held, held_labels, _ = people(3000, 1)
    rules = [disparate_impact("sex", ratio=0.8, labels=[1]), error() <= 0.3 * accepted(), rejected() <= 0.2]
    policy = solve(Problem(error(), rules), evidence, labels=labels)
    made = report(policy, evidence, held_out=held.with_observed(labels=held_labels), levels=0)
    kept = section(parsed(made.html), "kept").words().replace("\N{NO-BREAK SPACE}", " ")
    found = {rule.rule: rule for rule in audit(policy, held, labels=held_labels).rules}
    ratio = found["selected(1).given(sex='F') >= 0.8 * selected(1).given(sex='M')"]
    shares = [policy.expected(selected(1).given(sex=sex), held) for sex in "FM"]
    assert ratio.estimate == pytest.approx(shares[0] / shares[1])
    assert (
        "The ratio of the share of cases with sex “F” that get the decision “1” to that of cases with sex “M”"
        in kept
    )
    assert f"Allowed: at least 80 %. Estimate: {100 * ratio.estimate:.1f}".rstrip("0").rstrip(".") in kept
    assert "The share, among all cases that get an answer, of those that get a wrong one" in kept
    assert "Allowed: at most 30 %" in kept


def test_calibration_needs_labels_and_uses_them():
    assert "the true labels of these cases were not given" in page_of("sets")
    tree = section(parsed(page_of("audited")), "calibration")
    _, _, _, held_out = referring()
    rows = {row[0]: row for row in tables(tree)["Predicted and observed shares, worst first"][1:]}
    predicted = held_out.probabilities[:, 1].mean()
    assert rows["label “1”"][1:3] == [format_percent(predicted), format_percent(held_out.labels.mean())]
    (plot,) = tree.all("figure")
    assert len(plot.all("circle")) == 10


def test_the_fingerprint_names_the_policy():
    policy, evidence, _, _ = referring()
    text = section(parsed(page_of("audited")), "fingerprint").words()
    assert policy.digest in text
    assert WHEN in text
    assert format_count(len(evidence)) in text


@pytest.mark.slow
def test_many_classes_make_no_large_page():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.full(100, 0.1), size=400)
    evidence = Evidence(P, classes=[f"class {i}" for i in range(100)], groups={"g": rng.integers(0, 4, 400)})
    problem = Problem(error(), [demographic_parity("g", tol=0.05), rejected() <= 0.2])
    html = report(solve(problem, evidence, tol=1e-3), evidence).html
    assert len(html) < 500_000
    tree = parsed(html)
    assert len(section(tree, "kept").all("ul", class_="cards")[0].children) == 12
    assert "most critical of 401" in html.replace("\N{NO-BREAK SPACE}", " ")
    assert "Not shown: 301 rates" in html.replace("\N{NO-BREAK SPACE}", " ")
    assert "No curve was computed, for 801" in html


def test_only_what_matters_most_is_drawn_and_the_rest_is_counted():
    """Six actions of a group, twelve lines of a table, names of sixty characters."""
    rng = np.random.default_rng(1)
    classes = [f"{i} {'long ' * 20}" for i in range(20)]
    evidence = Evidence(
        rng.dirichlet(np.full(20, 0.2), 300), classes=classes, groups={"g": rng.integers(0, 2, 300)}
    )
    policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    page = parsed(report(policy, evidence, levels=0).html)
    captions = list(tables(section(page, "groups")))
    assert len(captions) == 6 + 1  # and the wrong answers
    drawn = [
        caption.removeprefix("Decided “").removesuffix("”")
        for caption in captions
        if caption.startswith("Decided")
    ]
    assert {len(name) for name in drawn} == {60}
    assert "Not drawn: 15\N{NO-BREAK SPACE}more decisions" in section(page, "groups").words()
    assert "Not shown: 8\N{NO-BREAK SPACE}more labels" in section(page, "affected").words()
    shown = tables(section(page, "affected"))
    listed = [int(row[0].split()[0]) for row in shown["Changed decisions by decision of your model"][1:]]
    own = evidence.probabilities.argmax(axis=1)
    changed = 1 - policy.probabilities(evidence)[np.arange(300), own]
    counts = np.bincount(own, weights=changed, minlength=20)
    assert listed == sorted(np.argsort(-counts)[:12])
    (largest,) = (rows for caption, rows in shown.items() if "largest change" in caption)
    assert len(largest) == 1 + 12
    shares = [float(row[1].removesuffix("%")) for row in largest[1:]]
    assert shares == sorted(shares, reverse=True)
    assert all(row[0].endswith("referred") and len(row[0]) < 50 for row in largest[1:])


def test_actions_that_differ_between_groups_or_change_are_drawn():
    """Of eight labels, the six that differ most between the groups before, or change most."""
    rng = np.random.default_rng(2)
    group = rng.integers(0, 2, 4000)
    chances = rng.dirichlet(np.full(8, 0.3), 4000)
    chances[:, 0] += 2.0 * (group == 0)  # label 0 differs between groups, and hardly changes
    chances[:, 1] += 0.5  # labels 6 and 7 become rare, alike in both groups
    chances[:, 6:] /= 8
    evidence = Evidence(chances / chances.sum(axis=1, keepdims=True), groups={"g": group})
    policy = solve(Problem(error(), [selected(5) >= 0.15]), evidence)
    captions = list(tables(section(parsed(report(policy, evidence, levels=0).html), "groups")))
    drawn = [int(caption[len("Decided “") : -1]) for caption in captions if caption.startswith("Decided")]
    before = np.eye(8)[evidence.probabilities.argmax(axis=1)]
    after = policy.probabilities(evidence)
    shares = np.array([[side[group == g].mean(axis=0) for side in (before, after)] for g in (0, 1)])
    moved = np.abs(shares[:, 1] - shares[:, 0]).max(axis=0) + np.abs(shares[1, 0] - shares[0, 0])
    assert drawn == sorted(np.argsort(-moved)[:6].tolist())
    assert 0 in drawn
    assert 5 in drawn


@pytest.mark.slow
def test_undecided_rules_are_told_with_their_estimates():
    policy, evidence, _, _ = referring()
    new, seen, _ = people(120, seed=3)
    inside = solve(Problem(error(), [rejected() <= 0.1, selected(1) >= 0.45]), evidence)
    for one, few, outside in ((policy, (new, seen), True), (inside, (new, seen), False)):
        rows = few[0].with_observed(labels=few[1])
        rates = bound_rates(make_report_rows(one, rows, held_out=True), audit(one, few[0], labels=few[1]))
        missed = sum(rate.slack < 0 for rate in rates)
        assert bool(missed) == outside, [rate.slack for rate in rates]
        words = section(parsed(report(one, evidence, held_out=rows, levels=0).html), "summary").words()
        verb = "is" if missed == 1 else "are"
        expected = f"{missed} of {len(rates)}\N{NO-BREAK SPACE}rates {verb} outside the bounds"
        assert (expected if outside else "all rates are within the bounds") in words


def test_a_plot_holds_its_letters():
    frames = parsed(page_of("referring")).all("div", class_="framed")
    assert len(frames) == 3  # two curves, and calibration
    for frame in frames:
        side, plot = frame.all("svg")[:2]
        places = [float(text.attributes["y"]) for text in side.all("text")]
        assert 0 < min(places) <= max(places) < float(side.attributes["height"])
        lines = [float(line.attributes["y1"]) for line in plot.all("line", class_="grid")]
        assert [y - 4 for y in places] == pytest.approx(lines, abs=0.1)


def test_the_table_of_rates_is_named_for_what_it_holds():
    evidence, _, _ = people(300, seed=5)
    one = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    two = solve(Problem(error(), [rejected() <= 0.1, selected(1) >= 0.2]), evidence)
    for policy, name in ((one, "The rate as a table"), (two, "All 2 rates as a table")):
        page = section(parsed(report(policy, evidence, levels=0).html), "kept")
        assert [fold.all("summary")[0].text for fold in page.all("details")] == [name]


@pytest.mark.slow
def test_other_problems_have_pages():
    evidence, labels, _ = people(300, seed=5)
    bare = Evidence(evidence.probabilities)
    for policy, rows in [
        (solve(Problem(error()), bare), bare),
        (solve(Problem(error(), [rejected() <= 0.1]), bare), bare),
        (solve(Problem(rejected(), [error() <= 0.2]), evidence), evidence),
        (solve(Problem(error(), [disagreement("old") <= 0.1]), evidence), evidence),
        (solve(Problem(error(), [custom("visit") <= 0.5], decisions="reject"), evidence), evidence),
        (solve(Problem(error() + 0.2 * rejected()), evidence), evidence),
    ]:
        parsed(report(policy, rows, levels=3).html)
        parsed(report(policy, rows, labels=labels, levels=0).html)


def test_a_loaded_policy_has_the_same_page(tmp_path):
    policy, evidence, labels, _ = referring()
    policy.save(tmp_path / "p.json")
    again = report(Policy.load(tmp_path / "p.json"), evidence, labels=labels, levels=7, created=WHEN)
    # A file has two digits of prices, and its hash covers the second in which the policy was made.
    digits = re.compile(r"[0-9a-f]{64}|\d+(\.\d+)?")
    assert digits.sub("0", again.html) == digits.sub("0", page_of("referring"))


@pytest.mark.slow
def test_a_certificate_is_told():
    evidence, _, _ = people(3000, seed=6)
    held, _, _ = people(3000, seed=7)
    problem = Problem(error(), [rejected() <= 0.1])
    policy = solve(problem, evidence, guarantee="high_probability", held_out=held)
    text = parsed(report(policy, evidence, levels=0).html).words()
    assert "3,000\N{NO-BREAK SPACE}held-out cases proved that all rules hold together" in text


def test_saving_is_all_or_nothing(tmp_path, monkeypatch):
    policy, evidence, _, _ = referring()
    made = report(policy, evidence, levels=0)
    made.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == made.html
    (tmp_path / "r.html").write_text("old")

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        made.save(tmp_path / "r.html")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    assert (tmp_path / "r.html").read_text() == "old"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        made.save(tmp_path / "none" / "r.html")


def test_in_a_notebook_it_is_framed():
    policy, evidence, _, _ = referring()
    made = report(policy, evidence, levels=0)
    (frame,) = parsed(made._repr_html_()).all("iframe")
    assert frame.attributes["srcdoc"] == made.html
    assert "KB" in repr(made)


def test_levels_and_given_frontiers_do_not_go_together():
    policy, evidence, _, _ = referring()
    path = frontier(policy.problem, evidence, {"rejected() <= 0.1": [0.05, 0.1, 0.2]})
    for levels in (0, 5):
        with pytest.raises(OptionError, match="leave out levels= to show the given frontiers"):
            report(policy, evidence, levels=levels, frontiers=[path])


@pytest.mark.slow
def test_certain_answers_that_are_wrong_are_not_called_calibrated():
    """A confidence of 100 % has no standard error, and is refuted by any mistake."""
    evidence = Evidence(np.eye(2)[[0, 1] * 50])
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    said = section(
        parsed(report(policy, evidence, labels=[0, 1] * 40 + [1, 0] * 10, levels=0).html), "calibration"
    )
    words = said.words().replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"the model’s confidence is 100 %, it is right in \d+ % of the cases: its", words)


@pytest.mark.slow
def test_names_of_rows_and_words_of_the_field():
    """Changes are told from your model, and rows without a part in the fit are held out."""
    for name in NAMES:
        text = parsed(page_of(name)).all("main")[0].words()
        assert not re.search(r"model alone|model’s own|speaks? of|nobody|\bdraws?\b|\bobey", text), name
        assert "baseline" not in text
        assert "your model" in text
    assert "on 900\N{NO-BREAK SPACE}held-out cases" in parsed(page_of("audited")).words()


def test_bad_arguments_are_refused():
    policy, evidence, labels, _ = referring()
    with pytest.raises(OptionError, match="must be a Policy"):
        report(evidence, policy)
    with pytest.raises(EvidenceError, match="passed as Evidence"):
        report(policy, evidence, held_out=labels)
    with pytest.raises(OptionError, match="labels must be given once"):
        report(policy, evidence.with_observed(labels=labels), labels=labels)
    with pytest.raises(EvidenceError, match="cannot certify"):
        report(policy, evidence, held_out=evidence.with_observed(labels=labels))
    for levels in (1, -3, 2.5, True, 10**6):
        with pytest.raises(OptionError, match="levels"):
            report(policy, evidence, levels=levels)
    with pytest.raises(OptionError, match="confidence"):
        report(policy, evidence, confidence=95)
    grid = frontier(policy.problem, evidence, {r: [0.05, 0.1] for r in policy.problem.rules})
    with pytest.raises(OptionError, match="each over one rule"):
        report(policy, evidence, frontiers=[grid])
    other = frontier(Problem(error(), [rejected() <= 0.1]), evidence, {"rejected() <= 0.1": [0.1]})
    assert report(policy, evidence, frontiers=[other]).html
    foreign = frontier(Problem(error(), [error() <= 0.4]), evidence, {"error() <= 0.4": [0.4]})
    with pytest.raises(OptionError, match="must be over a rule of the policy"):
        report(policy, evidence, frontiers=[foreign])


def test_nothing_is_shown_as_nan():
    for name in NAMES:
        words = parsed(page_of(name)).all("main")[0].words()
        assert not re.search(r"\b(nan|inf|None)\b", words), name
    assert HOSTILE in parsed(page_of("attacking")).words()


@pytest.mark.slow
def test_what_was_watched_is_shown_as_the_monitor_tells_it():
    monitor, tree = watched(), parsed(page_of("watched"))
    part = section(tree, "watch")
    found = tables(tree)["Monitored rules"]
    codes = [code.words() for code in part.all("code")]
    shown = dict(zip(codes, found[1:], strict=True))
    assert set(shown) == {one.rule for one in monitor.status}
    for one in monitor.status:
        sign = -1 if shown[one.rule][2].startswith("\N{MINUS SIGN}") else 1
        size = float(re.search(r"[\d.]+", shown[one.rule][2])[0])
        assert sign * size / 100 == pytest.approx(one.estimate, abs=1e-3)
        assert str(one.status) in shown[one.rule][-1]
    alarms = [one for one in monitor.status if one.since is not None]
    assert alarms
    assert len(part.all("line", class_="alarm")) >= 2  # in the rate and in the evidence
    assert f"{monitor.waiting:,} of them still wait" in part.words()
    copies = [rule.copies for rule in monitor.watched]
    assert len(part.all("li")) <= len(copies)  # rules that say the same are drawn once


@pytest.mark.slow
def test_both_policies_are_shown_side_by_side():
    _, _, _, compared = refitted()
    tree = parsed(page_of("refitted"))
    found = tables(tree)
    rules = found["Rules under both policies"][1:]
    assert [float(line[2]) for line in rules] == pytest.approx(
        [one.before for one in compared.rules], rel=1e-3
    )
    assert [float(line[3]) for line in rules] == pytest.approx(
        [one.after for one in compared.rules], rel=1e-3
    )
    assert format_percent(compared.changed) in section(tree, "earlier").words()
    flows = next(rows for caption, rows in found.items() if caption.startswith("From the earlier decision"))
    shown = [[cell.split()[0] for cell in line[1:]] for line in flows[1:]]
    assert shown == [[format_percent(float(share)).split()[0] for share in line] for line in compared.flows]


def test_a_monitor_of_another_policy_is_refused():
    evidence = referring()[1]
    other = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    with pytest.raises(OptionError, match="of another policy"):
        report(other, evidence, levels=0, monitor=watched())


def test_sizes_of_sets_are_those_of_every_possible_set():
    rng = np.random.default_rng(7)
    evidence = Evidence(rng.dirichlet(np.full(7, 2.0), 60))
    policy = solve(Problem(size(), [miscoverage() <= 0.1]), evidence, beta=5.0)
    rows = make_report_rows(policy, evidence, held_out=False)
    expected = np.zeros(6)
    for members in itertools.product([0, 1], repeat=7):
        chances = np.where(members, rows.probabilities, 1 - rows.probabilities)
        expected[min(sum(members), 5)] += chances.prod(axis=1).mean()  # the last is of five labels or more
    assert rows.set_sizes == pytest.approx(expected)


def test_rates_are_listed_from_the_most_violated_to_the_safest():
    policy, evidence, labels, _ = referring()
    rules = [error() <= level for level in (0.9, 0.01, 0.2)] + [rejected() <= 0.99, selected(1) >= 0.9]
    stated = replace(policy, problem=Problem(error(), rules))
    bars = bound_rates(make_report_rows(stated, evidence.with_observed(labels=labels), held_out=False), None)
    slack = {"error()": 0.01 - policy.expected(error(), evidence, labels=labels)}
    slack["rejected()"] = 0.99 - policy.expected(rejected(), evidence)
    slack["selected(1)"] = policy.expected(selected(1), evidence) - 0.9
    assert [str(bar.rate) for bar in bars] == sorted(slack, key=lambda name: slack[name])


@pytest.mark.slow
def test_prices_are_listed_from_the_dearest_to_the_cheapest():
    _, evidence, *_ = referring()
    for rules in ([rejected() <= 0.9, selected(1) <= 0.2], [selected(1) <= 0.2, rejected() <= 0.9]):
        policy = solve(Problem(error() + 0.3 * rejected(), rules), evidence)
        assert policy.prices["selected(1) <= 0.2"] > 0 == policy.prices.get("rejected() <= 0.9", 0)
        first, last = section(parsed(report(policy, evidence).html), "prices").all("li")
        assert "20" in first.words()
        assert "90" in last.words()


def test_the_group_that_loses_most_is_named_first():
    evidence, _, sex = people(1000, seed=5)
    labels = evidence.probabilities.argmax(axis=1)  # the model is never wrong: all errors are of the rules
    rules = [selected(1).given(sex="F") >= 0.6, selected(1).given(sex="M") >= 0.95]
    policy = solve(Problem(error(), rules), evidence)
    wrong = 1 - policy.probabilities(evidence)[np.arange(1000), labels]
    assert wrong[sex == "M"].mean() > wrong[sex == "F"].mean() + 0.01 > 0.02
    said = section(parsed(report(policy, evidence, labels=labels, levels=0).html), "summary").words()
    assert re.search(r"wrong answers rise in 2.groups: sex “M” .*, from 0.* and sex “F” ", said)


def test_the_violation_that_is_stated_is_that_of_the_solver():
    evidence, _, _ = people(200, seed=6)
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    for mapping, stated in ((0.03, "3"), (1e-9, "0.01")):
        loose = replace(policy, guarantee=replace(policy.guarantee, gradient_mapping=mapping))
        said = section(parsed(report(loose, evidence, levels=0).html), "guarantees").words()
        assert f"violated by no more than {stated}\N{NO-BREAK SPACE}points" in said


def test_evidence_that_raises_an_alarm_is_drawn_at_the_line_of_alarms():
    evidence, _, _ = people(100, seed=8)
    monitor = Monitor(solve(Problem(error(), [rejected() <= 0.1]), evidence))
    monitor.update(evidence)
    limits, (one,) = monitor.alarm_limits, monitor.status
    ends = [(0.0, 0.0), (limits.log_ever / np.log(10), limits.log_change / np.log(10))]  # log10 of both
    history = tuple(Point(50 * i, 0.1, 0.0, 0.2, *both) for i, both in enumerate(ends, 1))
    field = Field(Scale(0.0, 100.0), Scale(0.0, 1.25), 70)
    svg = parsed(draw_evidence(replace(one, history=history), field, monitor))
    ends_at = {line.attributes["class"]: line.attributes["y2"] for line in svg.all("line")}
    assert ends_at["curve-line"] == ends_at["now-line"] == ends_at["target"]
