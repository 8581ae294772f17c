"""Policies to report on: referrals, five classes with a guessed group, sets, and names that attack."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser

import numpy as np

from bylaw import (
    Evidence,
    Monitor,
    Problem,
    coverage_parity,
    demographic_parity,
    disparate_impact,
    error,
    miscoverage,
    refit,
    rejected,
    size,
    solve,
)
from bylaw.report import report
from bylaw.testing import compare_policies
from helpers.scored import people

HOSTILE = "<script>alert(1)</script>\"'&"
WHEN = "1 January 2026"


@cache
def referring():
    """A policy with referrals; rows, labels, and rows that were held out."""
    evidence, labels, _ = people(800, seed=0)
    policy = solve(Problem(error(), [demographic_parity("sex", tol=0.03), rejected() <= 0.1]), evidence)
    held, seen, _ = people(900, seed=1)
    return policy, evidence, labels, held.with_observed(labels=seen)


@cache
def guessing():
    """Five classes, and a group that is known only as probabilities."""
    rng = np.random.default_rng(3)
    n, K = 700, 5
    joint = rng.dirichlet(np.full(2 * K, 0.5), size=n).reshape(n, 2, K)
    draws = np.array([rng.choice(2 * K, p=row.ravel()) for row in joint])
    group = np.array(["Female", "Male"])[draws // K]
    classes = ["lowest", "low", "middle", "high", "highest"]
    evidence = Evidence(
        joint.sum(axis=1),
        classes=classes,
        groups={"gender": {"Female": joint[:, 0].sum(axis=1), "Male": joint[:, 1].sum(axis=1)}},
        joint={"gender": joint},
    )
    policy = solve(Problem(error(), [demographic_parity("gender", tol=0.02)]), evidence)
    return policy, evidence, np.array(classes)[draws % K], group


@cache
def crowded():
    """Five classes and four groups, one of them small, with referrals; rows to fit, and held-out ones."""
    classes = ["none", "basic", "standard", "advanced", "honors"]
    tilt = {"north": 0.0, "south": 0.6, "east": -0.4, "west": 1.0}
    made = []
    for n, seed in ((1200, 1), (700, 2)):
        rng = np.random.default_rng(seed)
        region = rng.choice(list(tilt), p=[0.45, 0.3, 0.2, 0.05], size=n)
        logits = 1.3 * rng.normal(size=(n, 5)) + [1.0, 0.6, 0.2, 0.0, -0.6]
        shift = np.array([tilt[one] for one in region])
        logits[:, 4] += shift
        logits[:, 0] -= shift
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = np.array(classes)[[rng.choice(5, p=row) for row in chances]]
        made.append((Evidence(chances, classes=classes, groups={"region": region}), labels))
    problem = Problem(error(), [demographic_parity("region", tol=0.02), rejected() <= 0.15])
    return (
        solve(problem, made[0][0], labels=made[0][1]),
        *made[0],
        made[1][0].with_observed(labels=made[1][1]),
    )


@cache
def in_sets():
    rng = np.random.default_rng(4)
    P = rng.dirichlet(np.full(4, 0.6), size=600)
    site = np.where(rng.random(600) < 0.3 + 0.4 * P[:, 0], "A", "B")
    evidence = Evidence(P, classes=list("abcd"), groups={"site": site})
    rules = [miscoverage() <= 0.1, coverage_parity("site", tol=0.01)]
    return solve(Problem(size(), rules), evidence), evidence


@cache
def attacking():
    """Every name that a caller can choose is an attack."""
    rng = np.random.default_rng(5)
    P = rng.dirichlet([1, 1], size=300)
    group = np.where(rng.random(300) < 0.3 + 0.4 * P[:, 0], HOSTILE, "x' onload='alert(2)")
    evidence = Evidence(P, classes=[HOSTILE, "</title><b>"], groups={HOSTILE: group})
    rules = [disparate_impact(HOSTILE, ratio=0.9, labels=[HOSTILE]), rejected() <= 0.1]
    problem = Problem(error(), rules, reject="<img src=x onerror=alert(3)>")
    return solve(problem, evidence), evidence


@cache
def watched():
    """A policy that was watched: quiet at first, then men are preferred; some labels are still to come."""
    policy = referring()[0]
    monitor = Monitor(policy, rules=["demographic_parity('sex', tol=0.08)", "error() <= 0.4"])
    for day in range(12):
        evidence, labels, sex = people(400, seed=100 + day)
        decisions = np.where(sex == "M", 1, 0) if day > 7 else policy.decide(evidence, rng=day)
        late = [label if day < 10 else None for label in labels.tolist()]
        monitor.update(evidence, labels=late, decisions=decisions, ids=np.arange(400) + 400 * day)
    return monitor


@cache
def refitted():
    """A later policy beside the earlier one."""
    policy = referring()[0]
    evidence, labels, _ = people(800, seed=7, tilt=0.5)
    later = refit(policy, evidence)
    return later, evidence, labels, compare_policies(policy, later, evidence, labels=labels)


@cache
def page_of(name):
    """The page of one of the policies above."""
    if name == "referring":
        policy, evidence, labels, _ = referring()
        made = report(policy, evidence, labels=labels, levels=7, created=WHEN)
    elif name == "audited":
        policy, evidence, labels, held_out = referring()
        made = report(policy, evidence, labels=labels, held_out=held_out, levels=5, created=WHEN)
    elif name == "guessing":
        policy, evidence, labels, group = guessing()
        made = report(policy, evidence, labels=labels, groups={"gender": group}, levels=5, created=WHEN)
    elif name == "watched":
        policy, evidence, labels, _ = referring()
        made = report(policy, evidence, labels=labels, levels=0, monitor=watched(), created=WHEN)
    elif name == "refitted":
        policy, evidence, labels, compared = refitted()
        made = report(policy, evidence, labels=labels, levels=0, comparison=compared, created=WHEN)
    elif name == "crowded":
        policy, evidence, labels, held_out = crowded()
        named = {"title": "Placement", "owner": "School board", "model_version": "3.1"}
        made = report(policy, evidence, labels=labels, held_out=held_out, levels=4, created=WHEN, **named)
    elif name == "sets":
        made = report(*in_sets(), levels=5, created=WHEN)
    else:
        made = report(*attacking(), levels=3, title=HOSTILE, created=HOSTILE)
    return made.html


class Element:
    def __init__(self, name, attributes):
        self.name, self.attributes, self.children, self.text = name, dict(attributes), [], ""

    def all(self, name, **wanted):
        """Elements below with this name and these attributes, in order; class_ is one of the classes."""
        found = []
        for child in self.children:
            classes = (child.attributes.get("class") or "").split()
            fits = all(
                v in classes if k == "class_" else child.attributes.get(k.replace("_", "-")) == v
                for k, v in wanted.items()
            )
            if child.name == name and fits:
                found.append(child)
            found += child.all(name, **wanted)
        return found

    def words(self):
        return " ".join([self.text, *(child.words() for child in self.children)]).strip()


class _Reader(HTMLParser):
    VOID = ("meta", "input", "br", "hr")

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Element("root", [])
        self.stack = [self.root]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, attrs)
        self.stack[-1].children.append(element)
        if tag not in self.VOID:
            self.stack.append(element)

    def handle_endtag(self, tag):
        assert self.stack[-1].name == tag, f"</{tag}> closes <{self.stack[-1].name}>"
        self.stack.pop()

    def handle_data(self, data):
        self.stack[-1].text += data


def parsed(html):
    """A tree of the page; every element must be closed in order."""
    reader = _Reader()
    reader.feed(html)
    assert reader.stack == [reader.root]
    return reader.root
