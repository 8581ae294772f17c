"""Frequencies of events from sums over cells, against those of the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw.errors import EvidenceError
from bylaw.rows import Evidence, Margins, observe
from helpers.generated_rows import Rows

ROWS = Rows(n=500, K=3, S=2, seed=4)
EVENTS = [
    (("label", 1),),
    (("known", 0),),
    (("hidden", 1),),
    (("known", 1), ("label", 2)),
    (("hidden", 0), ("label", 1)),
    (("hidden", 1), ("known", 0)),
    (("hidden", 1), ("known", 0), ("label", 2)),
]


def cut(rows, n_parts):
    return [rows.rows(np.arange(i, len(rows), n_parts)) for i in range(n_parts)]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_parts_give_the_frequency_of_all_rows(event, weighted):
    weights = np.random.default_rng(0).uniform(0.1, 2.0, 500) if weighted else None
    evidence = ROWS.evidence(weights=weights)
    first, *others = [Margins.of(part, ["known", "hidden"]) for part in cut(evidence, 3)]
    margins = sum(others, first)
    assert margins.mass == pytest.approx(500 if weights is None else weights.sum())
    assert margins.frequency(event) == pytest.approx(evidence.frequency(event))
    assert margins.count_effective(event) == pytest.approx(evidence.count_effective(event))


@pytest.mark.parametrize("event", EVENTS)
def test_observed_rows(event):
    labels = np.random.default_rng(1).integers(3, size=500)
    seen = observe(ROWS.evidence().with_observed(labels=labels, true_groups={"hidden": ROWS.group}))
    margins = Margins.of(seen, ["known", "hidden"])
    assert margins.frequency(event) == pytest.approx(seen.frequency(event))


def test_values_are_the_union_of_those_of_the_parts():
    parts = [Evidence([[0.5, 0.5]] * 2, groups={"g": values}) for values in (["b", "a"], ["c", "a"])]
    one, two = (Margins.of(part, ["g"]) for part in parts)
    assert (one + two).list_values("g") == ("a", "b", "c")
    assert (one + two).frequency((("g", "a"),)) == 0.5
    renamed = (one + two).rename("g", {"a": 1, "b": 2, "c": 3})
    assert renamed.frequency((("g", 3),)) == 0.25


def test_values_of_several_types_are_refused():
    parts = [Evidence([[0.5, 0.5]], groups={"g": values}) for values in (["a"], [1])]
    one, two = (Margins.of(part, ["g"]) for part in parts)
    with pytest.raises(EvidenceError, match="must have one type"):
        (one + two).list_values("g")
