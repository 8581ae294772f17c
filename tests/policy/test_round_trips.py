"""Whatever `solve` returns can be saved, and decides alike once it is loaded: random problems and options."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from bylaw import (
    BylawError,
    Evidence,
    Policy,
    Problem,
    accepted,
    coverage_parity,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    error_parity,
    f1,
    miscoverage,
    precision,
    rejected,
    selected,
    size,
    solve,
    worst,
)

CLASSES = [
    ("no", "yes"),
    (0, 1),
    (False, True),
    ("low", "mid", "high"),
    (1, 2, 3, 10),
    ("reject it", "ä", ""),
]
GROUPS = {"sex": ("F", "M"), "race": ("x", "y", "z"), "site": (1, 2), "age band": ("<30", "30+")}
HIDDEN = ("sex", "race")


def draw_rows(rng, n, classes):
    """Evidence with groups of all kinds, the labels, and the true values of hidden groups."""
    n_classes = len(classes)
    scores = rng.dirichlet(np.ones(n_classes), n)
    labels = (rng.random((n, 1)) > scores.cumsum(axis=1)[:, :-1]).sum(axis=1)
    true, known, joint = {}, {}, {}
    for name, values in GROUPS.items():
        chances = rng.dirichlet(np.ones(len(values)) * 2, n)
        codes = (rng.random((n, 1)) > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
        true[name] = np.array(values, dtype=object)[codes]
        hidden = dict(zip(values, chances.T, strict=True))
        known[name] = hidden if name in HIDDEN else true[name]
        if name in HIDDEN:
            joint[name] = chances[:, :, None] * scores[:, None, :]
    evidence = Evidence(
        scores,
        classes=classes,
        groups=known,
        joint=joint,
        weights=rng.choice([0.5, 1.0, 2.0], n),
        references={"old": np.array(classes, dtype=object)[labels]},
        costs={"visit": rng.random((n, n_classes))},
    )
    return evidence, np.array(classes, dtype=object)[labels], {name: true[name] for name in HIDDEN}


def draw_problem(rng, classes):
    """A problem that refers to some of the groups, or to none."""
    group, other = rng.choice(list(GROUPS), 2, replace=False).tolist()
    label, condition = classes[0], {group: GROUPS[group][0]}
    if rng.random() < 0.2:
        sets = [coverage_parity(group, tol=0.1), miscoverage().given(**condition) <= 0.3]
        return Problem(size(), [miscoverage() <= 0.2, *sets[: int(rng.integers(0, 3))]])
    if rng.random() < 0.1:
        asks = [selected("ann") <= 0.2, demographic_parity(group, tol=0.1)]
        return Problem(error() + 0.1 * selected("ann"), asks, decisions=[*classes, "ann"])
    rules = [
        demographic_parity(group, tol=float(rng.choice([0.05, 0.2]))),
        demographic_parity((group, other), tol=0.3),
        equalized_odds(group, tol=0.3),
        error_parity(other, tol=0.1),
        disagreement("old") <= 0.6,
        selected(label) <= 0.6,
        selected(label).given(**condition) <= 0.6,
        precision(label) >= 0.3,
        error() <= 0.7 * selected(label),
        rejected() <= 0.1,
        error() <= 0.6 * accepted(),
    ]
    goals = [error(), error(), error(), custom("visit"), worst(error(), by=other), 1 - f1(label)]
    chosen = rng.choice(len(rules), int(rng.integers(0, 3)), replace=False)
    return Problem(goals[int(rng.integers(len(goals)))], [rules[i] for i in chosen])


def draw_options(rng, labels, groups):
    options = {}
    if rng.random() < 0.6:
        options["labels"] = np.where(rng.random(len(labels)) < rng.choice([0.0, 0.3]), None, labels)
    if rng.random() < 0.6:
        options["groups"] = {name: groups[name] for name in HIDDEN if rng.random() < 0.7} or groups
    if options and rng.random() < 0.7:
        methods = ["auto", "none", "temperature", "vector", "isotonic", "dirichlet"]
        options["calibrate"] = str(rng.choice(methods))
    if rng.random() < 0.2:
        options["deterministic"] = True
    if rng.random() < 0.3:
        options["margin"] = ["auto", 0.5][rng.integers(2)]
    elif rng.random() < 0.3:
        options["guarantee"] = "high_probability"
    return options


@pytest.mark.parametrize("seed", range(16))
def test_a_saved_policy_is_loaded_and_decides_alike(seed, tmp_path):
    rng = np.random.default_rng(seed)
    classes = CLASSES[rng.integers(len(CLASSES))]
    evidence, labels, groups = draw_rows(rng, 400, classes)
    problem = draw_problem(rng, classes)
    options = draw_options(rng, labels, groups)
    if "guarantee" in options:
        rows, seen, true = draw_rows(rng, 600, classes)
        options["held_out"] = rows.with_observed(labels=seen, true_groups=true, largest_weight=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            policy = solve(problem, evidence, **options)
        except BylawError:  # there is no policy to save
            return
    path = tmp_path / "policy.json"
    policy.save(path)
    loaded = Policy.load(path)
    new, *_ = draw_rows(rng, 100, classes)
    np.testing.assert_array_equal(loaded.probabilities(new), policy.probabilities(new))
    np.testing.assert_array_equal(loaded.decide(new, ids=range(100)), policy.decide(new, ids=range(100)))
    assert loaded.digest == policy.digest
    assert loaded.prices == pytest.approx(policy.prices, rel=0.05)  # a file has two digits of them
    loaded.save(tmp_path / "again.json")
    assert str(Policy.load(tmp_path / "again.json")) == str(loaded)
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
