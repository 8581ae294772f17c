"""Every line of the table "I want ... write ..." is a problem that is solved as written."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from bylaw import Evidence, Problem, parse, solve
from bylaw.language._problem import list_words

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def read_table():
    section = PAGE.read_text(encoding="utf-8").partition("## I want")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    return [
        (wish.strip(), minimize.strip(" `"), re.findall("`([^`]+)`", rules))
        for wish, minimize, rules in lines
    ]


def make_evidence(n_actions):
    rng = np.random.default_rng(0)
    yes = rng.beta(0.6, 0.6, 600)
    return Evidence(
        np.column_stack([1 - yes, yes]),
        classes=["deny", "approve"],
        groups={"sex": np.where(rng.random(600) < 0.3 + 0.4 * yes, "F", "M")},
        references={"old": np.where(rng.random(600) < yes, "approve", "deny")},
        costs={"visit": rng.random((600, n_actions))},
    )


def make_routes(options):
    rng = np.random.default_rng(1)
    wrong = np.column_stack([rng.uniform(0, 0.8, 600), rng.uniform(0, 0.3, 600)])
    return Evidence(costs={"wrong": wrong, "usd": np.tile([0.001, 0.03], (600, 1))}, options=options)


def read_options(rules):
    """The rules, and what else goes with them: `name=value`."""
    found = {rule: re.fullmatch(r"(decisions|options|deterministic)=(.+)", rule) for rule in rules}
    stated = {match[1]: ast.literal_eval(match[2]) for match in found.values() if match}
    return [rule for rule in rules if not found[rule]], stated


@pytest.mark.parametrize(
    ("minimize", "rules"), [line[1:] for line in read_table()], ids=[w for w, *_ in read_table()]
)
def test_each_line_is_solved(minimize, rules):
    rules, stated = read_options(rules)
    problem = Problem(minimize, rules, decisions=stated.get("decisions", "auto"))
    assert parse(str(problem.minimize)) == problem.minimize
    if "options" in stated:
        evidence = make_routes(stated["options"])
    else:
        evidence = make_evidence(3 if problem.kind == "reject" else 2)
    policy = solve(problem, evidence, deterministic=stated.get("deterministic", False))
    for found in problem.expand(evidence.classes, evidence.group_values, policy.action_space.options):
        one_row = 1 / 250 if stated.get("deterministic", False) else 0.0
        assert not policy.expected(found.rule.excess, evidence) > 1e-4 + one_row


def test_the_table_has_every_word():
    text = " ".join(f"{minimize} {' '.join(rules)}" for _, minimize, rules in read_table())
    assert {word for word in list_words() if f"{word}(" not in text} == set()
