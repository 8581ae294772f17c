"""The statement to sign, and what is printed around every page."""

from __future__ import annotations

import re

import pytest

from bylaw import Problem, audit, error, rejected, solve
from bylaw.report import report
from helpers.reported import HOSTILE, WHEN, crowded, page_of, parsed, referring, watched
from helpers.scored import people

SPACE = "\N{NO-BREAK SPACE}"


def statement(html):
    (found,) = (s for s in parsed(html).all("section") if s.attributes["id"] == "sign")
    return found


def blanks(html):
    return [line.words() for line in statement(html).all("div", class_="signature")]


@pytest.mark.slow
def test_it_names_who_what_and_when():
    policy, evidence, labels, held_out = referring()
    html = report(
        policy,
        evidence,
        labels=labels,
        held_out=held_out,
        levels=0,
        created=WHEN,
        title="Loans",
        owner="Credit risk",
        model_version="2.3",
        held_out_source="new.parquet",
    ).html
    text = statement(html).words().replace(SPACE, " ")
    for part in (
        policy.digest,
        "owned by Credit risk,",
        "model version “2.3”",
        f"“Loans”, of {WHEN}",
        f"It was chosen at {policy.card.created[:16].replace('T', ' ')} UTC on 800 cases.",
        "Each decision is given to every sex at a rate within 3 points of the overall rate.",
        "At most 10 % of all cases are referred.",
        "Verdict on all rules together, on 900 held-out cases of the table “new.parquet”, with 95 % "
        "confidence:",
        "The undersigned has read this report",
    ):
        assert part in text, part
    found = audit(policy, held_out)
    verdicts = [str(rule.verdict) for rule in found.rules]
    (counted,) = re.findall(rf"Of {len(verdicts)} single rules: (.*?)\.", text)
    expected = {verdict: str(verdicts.count(verdict)) for verdict in set(verdicts)}
    assert {verdict: number for number, verdict in re.findall(r"(\d+) (\w+)", counted)} == expected
    assert blanks(html) == ["Name", "Date", "Signature"]
    assert "Credit risk · 1 January 2026 · model version 2.3 · policy" in parsed(html).words()


@pytest.mark.slow
def test_what_is_not_known_is_left_to_be_filled_in():
    assert blanks(page_of("referring")) == ["Name", "Date", "Signature", "Owner", "Model version"]
    assert "model version" not in statement(page_of("referring")).all("p")[0].words()
    assert blanks(page_of("crowded")) == ["Name", "Date", "Signature"]


def test_estimates_are_no_proof():
    text = statement(page_of("referring")).words()
    assert "estimated to hold" in text
    assert "This is an estimate, not a proof for new cases." in text


@pytest.mark.slow
def test_alarms_are_told():
    alarms = sum(one.since is not None for one in watched().status)
    assert alarms > 1
    said = f"Since then, 4,800{SPACE}cases were watched: {alarms}{SPACE}rules raised an alarm."
    assert said in statement(page_of("watched")).words()
    assert "Since then" not in statement(page_of("referring")).words()


def test_many_rules_are_counted_and_none_are_not_promised():
    evidence, _, _ = people(300, seed=1)
    many = solve(Problem(error(), [rejected() <= 0.1 + i / 100 for i in range(14)]), evidence)
    items = [item.words() for item in statement(report(many, evidence, levels=0).html).all("li")]
    assert len(items) == 13
    assert items[-1] == f"2{SPACE}further rules, listed above."
    free = statement(report(solve(Problem(error()), evidence), evidence, levels=0).html).words()
    assert "promises" not in free
    assert "Verdict on all rules together" not in free


def read_margins(html):
    """Margin boxes of printed pages, by their place, with escapes undone."""
    style = html.split("<style>")[1].split("</style>")[0]
    boxes = dict(re.findall(r"@(top-left|bottom-left|bottom-right)\{content:(?!none)(.*?);\}", style))
    return {
        name: re.sub(r"\\([0-9a-f]+) ", lambda found: chr(int(found[1], 16)), text)
        for name, text in boxes.items()
    }


def test_printed_pages_have_a_title_the_hash_and_a_number():
    policy = crowded()[0]
    boxes = read_margins(page_of("crowded"))
    assert boxes["top-left"] == '"Placement"'
    assert boxes["bottom-left"] == f'"policy {policy.digest}"'
    assert "counter(page)" in boxes["bottom-right"]
    assert "counter(pages)" in boxes["bottom-right"]


def test_a_title_cannot_leave_its_string():
    style = page_of("attacking").split("<style>")[1].split("</style>")[0]
    assert HOSTILE[:8] not in style
    assert read_margins(page_of("attacking"))["top-left"] == f'"{HOSTILE}"'
    assert "<script>alert" not in page_of("attacking").split("<body")[0]
    tree = parsed(report(*referring()[:2], levels=0, owner=HOSTILE, model_version=HOSTILE).html)
    assert tree.words().count(HOSTILE) >= 3
    assert len(tree.all("script")) == 1


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_order_of_sections_ends_with_the_signature(number):
    html = page_of(["referring", "audited", "sets"][number])
    assert parsed(html).all("section")[-1].attributes["id"] == "sign"
