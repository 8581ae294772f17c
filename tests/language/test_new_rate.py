"""A rate that somebody defines in one place works everywhere: in rules as text, in solutions, audits, reports
and frontiers."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import Evidence, Policy, Problem, audit, error, frontier, parse, solve
from bylaw.language import DEFINITIONS, LabelSpace, Meaning
from bylaw.language._expressions import Term
from bylaw.language._rates import define_rate, make_rate
from bylaw.report import report
from bylaw.view import describe_rate, name_cost, write_sentence
from bylaw.view._sentences import name_saving
from helpers.reported import parsed
from helpers.scored import people


def false_alarm(label):
    """P(decision == label, though Y is another one)."""
    return make_rate("false_alarm", label)


def upheaval():
    """E[distance of the decision's place from that of the first label]; it has no words of its own."""
    return make_rate("upheaval")


@pytest.fixture(autouse=True)
def _defined():
    """Each rate is defined here, once, and forgotten afterwards."""

    @define_rate(
        false_alarm, spaces=(LabelSpace,), phrase="are decided {0} by mistake", saving="of false alarms"
    )
    def _false_alarm(label, *, space):
        return Meaning([Term(label, 1.0), Term(label, -1.0, label=label)])

    @define_rate(upheaval, probability=False)
    def _upheaval(*, space):
        return Meaning([Term(a, float(i)) for i, a in enumerate(space.classes)])

    yield
    del DEFINITIONS["false_alarm"], DEFINITIONS["upheaval"]


EVIDENCE, LABELS, SEX = people(1200, 8)
NEW, SEEN, NEW_SEX = people(1500, 9)
GAP = "abs(false_alarm(1).given(sex='F') - false_alarm(1).given(sex='M')) <= 0.02"
LIMIT = "false_alarm(1).given(sex='M') <= 0.1"


def by_hand(taken, labels, rows):
    return (taken[rows, 1] * (labels[rows] != 1)).mean()


def test_it_is_read_and_written():
    rule = parse(GAP)
    assert str(rule) == GAP
    assert parse(str(rule)) == rule
    assert parse("upheaval() <= 0.5") == (upheaval() <= 0.5)


@pytest.mark.slow
def test_its_rules_are_solved_and_audited(tmp_path):
    policy = solve(Problem(error(), [GAP, LIMIT]), EVIDENCE, labels=LABELS)
    taken = policy.probabilities(EVIDENCE)
    rates = {sex: by_hand(taken, LABELS, sex == SEX) for sex in "FM"}
    assert abs(rates["F"] - rates["M"]) <= 0.0205
    assert rates["M"] <= 0.1005
    found = audit(policy, NEW, labels=SEEN)
    decided = policy.probabilities(NEW)
    estimates = {rule.rule: rule.estimate for rule in found.rules}
    assert estimates[LIMIT] == pytest.approx(by_hand(decided, SEEN, NEW_SEX == "M"))
    assert "not judged" in {str(rule.verdict) for rule in audit(policy, NEW).rules}  # it depends on labels
    policy.save(tmp_path / "policy.json")
    assert (Policy.load(tmp_path / "policy.json").probabilities(NEW) == decided).all()


@pytest.mark.slow
def test_it_is_reported_in_its_own_words():
    policy = solve(Problem(error(), [GAP, LIMIT]), EVIDENCE)
    page = parsed(
        report(policy, EVIDENCE, labels=LABELS, held_out=NEW.with_observed(labels=SEEN), levels=3).html
    )
    words = page.words().replace("\N{NO-BREAK SPACE}", " ")
    assert "At most 10 % of cases with sex “M” are decided “1” by mistake." in words
    assert (
        "The share of cases with sex “F” that are decided “1” by mistake differs from that of cases with sex "
        "“M” by at most 2 points." in words
    )
    assert len(page.all("div", class_="curve")) == 2


def test_it_can_be_minimised_and_swept():
    rule = error() <= 0.35
    policy = solve(Problem(false_alarm(1), [rule]), EVIDENCE)
    words = parsed(report(policy, EVIDENCE, levels=3).html).words()
    assert "False alarms, as predicted" in words
    assert "points of false alarms." in words
    found = frontier(Problem(error(), [LIMIT]), EVIDENCE, {LIMIT: [0.05, 0.1]})
    assert found.cost[0] > found.cost[1]
    assert name_saving(false_alarm(1)) == "of false alarms"


@pytest.mark.slow
def test_without_a_phrase_it_keeps_its_text():
    for rule in ("upheaval() <= 0.4", "abs(upheaval().given(sex='F') - upheaval()) <= 0.1"):
        assert write_sentence(parse(rule)) == rule
    assert describe_rate(upheaval() - 0.5 * error()) == "upheaval() - 0.5 * error()"
    assert (name_cost(upheaval()), name_saving(upheaval())) == ("cost", "of upheaval()")
    policy = solve(Problem(error(), ["upheaval() <= 0.4", "upheaval().given(sex='F') <= 0.3"]), EVIDENCE)
    assert policy.expected(upheaval(), EVIDENCE) == pytest.approx(0.4, abs=1e-3)
    words = parsed(report(policy, EVIDENCE, held_out=NEW.with_observed(labels=SEEN), levels=3).html).words()
    assert words.count("upheaval().given(sex='F') <= 0.3") >= 3  # as a rule, as its text, with its price
    policy = solve(Problem(upheaval(), [error() <= 0.4]), EVIDENCE)
    assert "Cost, as predicted" in parsed(report(policy, EVIDENCE, levels=3).html).words()


def test_it_is_refused_where_it_makes_no_sense():
    evidence = Evidence(np.full((4, 2), 0.5))
    with pytest.raises(ValueError, match=r"false_alarm\(\) is not defined if a decision is a set"):
        solve(Problem(false_alarm(1), decisions="sets"), evidence)
