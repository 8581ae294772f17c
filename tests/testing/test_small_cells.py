"""Groups of a few people are not shown: in audits, reports, the studio and monitors, by one function."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Monitor,
    OptionError,
    Problem,
    audit,
    demographic_parity,
    error,
    solve,
    worst,
)
from bylaw._base import choose_shown
from bylaw.report import report
from bylaw.studio import Session
from bylaw.testing._verdicts import find_hidden_cells

SIZES = {"x": 3, "y": 60, "z": 437}
QUESTION = {"tab": "one", "number": 1, "minimize": "error()", "view": "observed"}
RULE = "demographic_parity('race', tol=0.1)"


def draw_rows(seed, sizes=None):
    """Rows with a small group, whose scores are far from those of others."""
    rng = np.random.default_rng(seed)
    races = np.repeat(list(sizes or SIZES), list((sizes or SIZES).values()))
    scores = np.clip(rng.beta(2, 2, len(races)) + 0.3 * (races == "x"), 0.01, 0.99)
    evidence = Evidence(np.column_stack([1 - scores, scores]), classes=["no", "yes"], groups={"race": races})
    return evidence, np.where(rng.random(len(races)) < scores, "yes", "no")


def fit(evidence, problem=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the small group
        return solve(problem or Problem(error(), [demographic_parity("race", tol=0.1)]), evidence)


@pytest.mark.parametrize("n_cells", [1, 2, 3, 4])
def test_what_is_left_of_a_total_is_never_one_cell_nor_few_rows(n_cells):
    """All tables of so many cells of some sizes: what is shown, and what the total then tells."""
    for counts in itertools.product([0, 1, 4, 9, 10, 50], repeat=n_cells):
        shown, sizes = choose_shown(counts, 10), np.array(counts)
        hidden = sizes[~shown]
        assert not any(0 < size < 10 for size in sizes[shown])
        assert (hidden > 0).all()
        if (sizes[(sizes > 0)] >= 10).all():
            assert not len(hidden)
        elif np.count_nonzero(sizes) > len(hidden):  # where others could be hidden, too
            assert len(hidden) > 1
            assert hidden.sum() >= 10
        assert choose_shown(counts, 0).all()
        assert choose_shown(counts, 1).all()


@pytest.mark.slow
def test_an_audit_states_verdicts_and_hides_numbers_of_small_groups():
    policy = fit(draw_rows(0)[0])
    held_out, labels = draw_rows(1)
    found = audit(policy, held_out, labels=labels)
    told = {rule["rule"]: rule for rule in found.to_dict()["rules"]}
    for rule in found.rules:
        line, small = told[rule.rule], "race='z'" not in rule.rule
        assert (rule.rule in found.hidden) == small  # x has three rows; with y, the total would tell it
        assert line["verdict"] == str(rule.verdict)
        assert not np.isnan(rule.estimate)  # in Python, for whoever has the rows
        numbers = [line[name] for name in ("estimate", "lower", "upper", "p_value", "rows")]
        assert numbers == (
            [None] * 5
            if small
            else pytest.approx([getattr(rule, n) for n in ("estimate", "lower", "upper", "p_value", "rows")])
        )
        for page in (str(found), found._repr_html_()):
            assert (f"{rule.estimate:.4g}" in page) or small
    assert {line["among"] for line in found.to_dict()["reliability"]} == {"", "race='z'"}
    assert "fewer than 10 rows" in str(found)
    everything = audit(policy, held_out, labels=labels, min_cell=0)
    assert not everything.hidden
    assert everything.to_dict()["rules"][0]["estimate"] == found.rules[0].estimate
    with pytest.raises(OptionError, match="min_cell must be 0 or more"):
        audit(policy, held_out, labels=labels, min_cell=-1)


def test_the_rates_of_small_groups_are_hidden_where_the_worst_is_minimised():
    problem = Problem(worst(error(), by="race"))
    found = audit(fit(draw_rows(0)[0], problem), draw_rows(1)[0])
    assert set(found.group_rates) == {"race='x'", "race='y'", "race='z'"}
    assert set(found.to_dict()["group_rates"]) == {"race='z'"}
    assert "race='x'" not in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("minimize", [error(), worst(error(), by="race")])
def test_a_report_has_no_rates_of_small_groups(minimize):
    evidence, labels = draw_rows(0)
    policy = fit(evidence, Problem(minimize, [demographic_parity("race", tol=0.1)]))
    options = {"labels": labels, "levels": 0, "created": "2026-01-01"}
    page = report(policy, evidence, **options).html
    everything = report(policy, evidence, **options, min_cell=0).html
    sizes = [set(re.findall(r"\b(3|60|437)\b.cases?\b", text)) for text in (page, everything)]
    assert sizes == [{"437"}, {"3", "60", "437"}]
    share = policy.probabilities(evidence)[:3, 1].mean()
    shown = f"{100 * share:.1f}"
    assert shown in everything.replace("\N{NO-BREAK SPACE}", " ")
    assert f"x: {shown}" not in page
    assert "fewer than 10 cases" in page
    held_out, seen = draw_rows(1)
    judged = report(policy, evidence, **options, held_out=held_out.with_observed(labels=seen)).html
    assert set(re.findall(r"from (3|60|437)\b.cases", judged)) <= {"437"}


def test_a_report_on_small_groups_alone_is_written():
    evidence, labels = draw_rows(0, {"x": 3, "y": 4, "z": 5})
    page = report(fit(evidence), evidence, labels=labels, levels=0).html
    assert "smaller groups" in page


def test_the_studio_sends_no_rates_of_small_groups():
    evidence, labels = draw_rows(0)
    asked = {
        **QUESTION,
        "rules": [{"text": RULE, "on": True}, {"text": "selected('yes') <= 0.9", "on": True}],
    }

    def ask(**options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Session(Problem("error()"), evidence.with_observed(labels=labels), **options).answer(asked)

    reply, everything = ask(), ask(min_cell=0)
    groups = [[one["value"] for one in part["groups"]] for part in reply["partitions"]]
    assert groups == [["all rows"], ["z"]]
    assert reply["partitions"][1]["left_out"] == 2
    assert [one["value"] for one in reply["changed_by_group"]] == ["z"]
    assert [one["value"] for one in everything["partitions"][1]["groups"]] == ["x", "y", "z"]
    assert "“z”" in reply["rules"][0]["worst"]
    assert reply["rules"][0]["holds"] == everything["rules"][0]["holds"]


@pytest.mark.parametrize(("min_cell", "shown"), [(0, {"3", "60", "437"}), (10, {"437"}), (500, set())])
def test_a_report_that_the_studio_saves_hides_the_groups_that_its_page_hides(min_cell, shown):
    evidence, labels = draw_rows(0)
    session = Session(Problem("error()"), evidence.with_observed(labels=labels), min_cell=min_cell)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved = session.save({**QUESTION, "rules": [{"text": RULE, "on": True}], "kind": "report"})
    assert set(re.findall(r"\b(3|60|437)\b.cases?\b", saved.text)) == shown


def test_a_monitor_hides_groups_that_it_has_seen_on_few_rows():
    policy = fit(draw_rows(0)[0])
    monitor = Monitor(
        policy,
        rules=[
            "selected('yes').given(race='x') <= 0.9",
            "selected('yes').given(race='z') <= 0.9",
            "error() <= 0.9",
        ],
    )
    rng = np.random.default_rng(2)
    evidence, labels = draw_rows(1)
    order = rng.permutation(len(labels))
    monitor.update(evidence.rows(order), labels=labels[order])
    told = {rule["rule"]: rule for rule in monitor.to_dict()["rules"]}
    small, other, whole = told.values()
    assert (small["estimate"], small["rows"], small["status"]) == (None, None, "quiet")
    assert (other["estimate"], other["hidden"]) == (None, True)  # or the total would tell the small one
    assert whole["estimate"] == pytest.approx(monitor.status[2].estimate)
    assert f"{monitor.status[0].estimate:.4f}" not in repr(monitor)
    assert monitor.to_dict(min_cell=0)["rules"][0]["rows"] == 3


@pytest.mark.parametrize("order", [1, -1])
def test_a_monitor_hides_a_group_of_which_few_labels_came(order):
    """A rule about labels has seen three rows of the group, one about decisions all of them."""
    policy = fit(draw_rows(0)[0])
    rules = ["error().given(race='z') <= 0.9", "selected('yes').given(race='z') <= 0.9"][::order]
    evidence, labels = draw_rows(1)
    mixed = np.random.default_rng(2).permutation(len(labels))
    evidence, labels = evidence.rows(mixed), labels[mixed]
    shown = np.zeros(len(labels), dtype=bool)
    shown[np.flatnonzero(evidence.groups["race"].codes == 2)[:3]] = True
    monitor = Monitor(policy, rules=rules)
    monitor.update(evidence, labels=np.ma.MaskedArray(labels, mask=~shown))
    assert {one.rule: one.rows for one in monitor.status}["error().given(race='z') <= 0.9"] == 3
    assert [rule["estimate"] for rule in monitor.to_dict()["rules"]] == [None, None]


def test_cells_of_one_true_label_are_hidden_beside_a_small_one_of_the_same_label():
    sizes = {("F", 0): 3.0, ("M", 0): 100.0, ("F", 1): 50.0, ("M", 1): 80.0}
    counts = {(("label", label), ("sex", sex)): size for (sex, label), size in sizes.items()}
    # The total of label 0 less the men of label 0 would give the three women of label 0 away.
    assert find_hidden_cells(counts, 10) == {(("label", 0), ("sex", sex)) for sex in ("F", "M")}
