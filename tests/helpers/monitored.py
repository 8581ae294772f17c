"""Policies that are watched, rows for them, and pooled U-statistics written out as loops."""

from __future__ import annotations

import itertools
import json
import math
from typing import NamedTuple

import numpy as np

from bylaw import Evidence, Policy, Problem, custom, error, miscoverage, rejected, size, solve
from bylaw.testing._state_files import pack_rows, state_to_dict

CLASSES = ["no", "yes"]


class Rows(NamedTuple):
    """Rows with all that may become known of them."""

    evidence: Evidence
    labels: np.ndarray
    sex: np.ndarray
    old: np.ndarray

    def take(self, places):
        return Rows(self.evidence.rows(np.asarray(places)), *(column[places] for column in self[1:]))

    def __len__(self):
        return len(self.labels)


def draw_rows(n, seed, gap=0.0):
    """Two labels; women have scores that are lower by a gap."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.3, "F", "M")
    yes = np.clip(rng.random(n) - gap * (sex == "F"), 0.0, 1.0)
    labels = np.where(rng.random(n) < yes, "yes", "no")
    old = np.where(rng.random(n) < 0.8, np.where(yes > 0.5, "yes", "no"), rng.choice(CLASSES, n))
    evidence = Evidence(np.column_stack([1 - yes, yes]), classes=CLASSES, references={"old": old})
    return Rows(evidence, labels, sex, old)


def fit_rejecting() -> Policy:
    """Decisions are quite random."""
    return solve(Problem(error(), [rejected() <= 0.2]), draw_rows(1500, 0).evidence, beta=8.0)


def fit_binary() -> Policy:
    """No rejection: of two labels, one is what the other is not."""
    return solve(Problem(error()), draw_rows(1500, 0).evidence, beta=8.0)


def fit_sets() -> Policy:
    return solve(Problem(size(), [miscoverage() <= 0.1]), draw_rows(1500, 0).evidence, beta=8.0)


def fit_routes() -> Policy:
    return solve(Problem(custom("wrong"), [custom("usd") <= 0.012]), draw_routes(1000, 0))


def draw_routes(n, seed):
    rng = np.random.default_rng(seed)
    wrong = rng.uniform(size=(n, 3)) * [0.6, 0.4, 0.2]
    usd = np.tile([0.001, 0.01, 0.03], (n, 1)) * rng.uniform(0.5, 1.5, (n, 1))
    return Evidence(costs={"wrong": wrong, "usd": usd}, options=("small", "mid", "large"))


def average(weights, values):
    """The sum of the means of all rows, one for each event."""
    pairs = zip(np.atleast_2d(weights).astype(float), np.atleast_2d(values).astype(float), strict=True)
    return sum(np.average(z, weights=w) for w, z in pairs)


def pool(weights, values):
    """The pooled U-statistic: over the tuples of different rows of each round, one row for each event, the
    mean of the sum of values, weighted by the products of weights. Rows outside all events are left out."""
    weights, values = (np.atleast_2d(np.asarray(a, dtype=float)) for a in (weights, values))
    inside = (weights > 0).any(axis=0)
    weights, values = weights[:, inside], values[:, inside]
    n = len(weights)
    rows = {1: 1, 2: 8}.get(n, 4 * n)
    disjoint = ((weights > 0).sum(axis=0) <= 1).all()
    top = bottom = 0.0
    for begin in range(0, weights.shape[1] - rows + 1, rows):
        w, z = weights[:, begin : begin + rows], values[:, begin : begin + rows]
        places = [np.arange(rows) if n <= 2 or disjoint else np.arange(e, rows, n) for e in range(n)]
        for chosen in itertools.product(*places):
            if len(set(chosen)) == n:
                product = math.prod(w[e, i] for e, i in enumerate(chosen))
                bottom += product
                top += product * sum(z[e, i] for e, i in enumerate(chosen))
    return top / bottom


def describe(monitor):
    """All that is kept, but for the log, as comparable values."""
    found = state_to_dict(monitor)
    del found["log"]
    return json.dumps(found), pack_rows(monitor)
