"""Tables that the studio's page shows in tests, and what is read and done on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from bylaw import Evidence, Problem, solve
from helpers.hostile import REORDERED

PARITY, REFERRED = "demographic_parity('race', tol=0.02)", "rejected() <= 0.1"
ATTACK = "<img src=x onerror=\"document.title='run'\">"
WAIT = 60_000  # milliseconds: a busy machine is slow, and nobody waits where all is well


@dataclass
class Table:
    """What is shown: a problem, its rows and, for some, labels."""

    problem: Problem
    evidence: Evidence
    labels: Any = None

    def solve(self, *rules, minimize="error()", observed=False):
        labels = self.labels if observed else None
        return solve(Problem(minimize, rules), self.evidence, labels=labels, calibrate="none")

    def cost(self, *rules, minimize="error()"):
        return self.solve(*rules, minimize=minimize).expected(Problem(minimize).minimize, self.evidence)


def make_loans(n=800, labelled=False):
    rng = np.random.default_rng(1)
    race = np.where(rng.random(n) < 0.3, "black", "others")
    scores = 1 / (1 + np.exp(-1.5 * (rng.normal(size=n) + 0.8 * (race == "others") - 0.2)))
    groups = {"race": race, "sex": rng.choice(["F", "M"], n)}
    labels = np.where(rng.random(n) < 0.1 + 0.8 * scores, "approve", "deny") if labelled else None
    evidence = Evidence(np.c_[scores, 1 - scores], classes=["approve", "deny"], groups=groups)
    return Table(Problem("error()", [PARITY, REFERRED]), evidence, labels)


def make_jobs(n=1200):
    """Four groups, five classes, an earlier model."""
    rng = np.random.default_rng(2)
    region = rng.integers(4, size=n)
    logits = 1.2 * rng.normal(size=(n, 5))
    logits[np.arange(n), region] += 0.7
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    names = np.array(["clerk", "manager", "nurse", "teacher", "engineer"])
    evidence = Evidence(
        scores,
        classes=names.tolist(),
        groups={"region": np.array(["north", "south", "east", "west"])[region]},
        references={"old": names[(scores + 0.15 * rng.random((n, 5))).argmax(axis=1)]},
    )
    rules = ["demographic_parity('region', tol=0.05)", "disagreement('old') <= 0.12"]
    return Table(Problem("error()", rules), evidence)


def make_sets():
    rows = make_jobs().evidence
    return Table(Problem("miscoverage()", ["size() <= 2"]), rows)


def make_hostile():
    loans = make_loans(300)
    classes = [ATTACK, f"</script><script>document.title='run'</script>{REORDERED}"]
    groups = {f"race{REORDERED}": np.where(np.arange(300) % 2, ATTACK, "level")}
    evidence = Evidence(loans.evidence.probabilities, classes=classes, groups=groups)
    rules = [f"demographic_parity({f'race{REORDERED}'!r}, tol=0.05)", f"selected({ATTACK!r}) <= 0.7"]
    return Table(Problem("error()", rules), evidence)


MAKERS = {
    "loans": make_loans,
    "labelled": lambda: make_loans(labelled=True),
    "jobs": make_jobs,
    "sets": make_sets,
    "hostile": make_hostile,
}


def settle(page):
    """Until the page shows the answer to what it states."""
    page.wait_for_selector("#results[data-settled=true]")


def figures(page):
    """Cost without rules, and with them."""
    return page.locator("#figures .number").all_text_contents()[1:3]


def texts(page):
    return page.locator("#rules code").all_text_contents()


def state(page):
    return json.loads(page.evaluate("decodeURIComponent(location.hash.slice(1))"))


def add(page, text):
    page.fill("#new-rule", text)
    page.keyboard.press("Escape")
    page.click("#add-rule")
    page.wait_for_function("() => document.querySelector('#new-rule').value === ''")
    settle(page)


def drag(page, index, shares):
    """The slider's thumb, through places along it."""
    box = page.locator(f"#slider-{index}").bounding_box()
    value = page.locator(f"#slider-{index}")
    at = value.evaluate("(e) => (e.value - e.min) / (e.max - e.min)")
    y, left, width = box["y"] + box["height"] / 2, box["x"] + 8, box["width"] - 16
    page.mouse.move(left + at * width, y)
    page.mouse.down()
    for share in shares:
        page.mouse.move(left + share * width, y, steps=4)
    page.mouse.up()
