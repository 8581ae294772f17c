"""Names of NumPy's types come back from files; hostile ids, keys and files are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    OptionError,
    Policy,
    PolicyFileError,
    Problem,
    RuleError,
    custom,
    demographic_parity,
    disagreement,
    equal_opportunity,
    error,
    parse,
    rejected,
    selected,
    solve,
)
from helpers.hostile import SURROGATES, hostile_policy, hostile_rows

N = 60
SCORES = np.random.default_rng(0).random(N)
P = np.column_stack([1 - SCORES, SCORES])
TYPES = {
    "text": (["no", "yes"], ["a", "b"], np.str_),
    "whole": ([3, 4], [1, 2], np.int64),
    "bytes": ([3, 4], [1, 2], np.uint8),
    "truth": ([False, True], [False, True], np.bool_),
    "single": ([0.5, 1.1], [0.1, 0.3], np.float32),
    "double": ([0.5, 1.1], [0.1, 0.3], np.float64),
}
RULES = {
    "family": lambda name, classes, groups: demographic_parity(name, tol=0.1),
    "levels": lambda name, classes, groups: demographic_parity(
        name, tol={groups[0]: np.float32(0.1), groups[1]: 0.2}
    ),
    "labels": lambda name, classes, groups: equal_opportunity([name], tol=0.1, labels=classes[:1]),
    "given": lambda name, classes, groups: selected(classes[1]).given(**{name: groups[0]}) <= np.float32(0.6),
    "reference": lambda name, classes, groups: disagreement(np.str_("old")) <= 0.2,
    "cost": lambda name, classes, groups: custom(np.str_("visit")) <= 0.7,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ["sex", "home town"])
def test_names_of_numpys_types_are_plain_in_files(kind, rule, name, tmp_path):
    labels, values, make = TYPES[kind]
    classes, groups = list(map(make, labels)), list(map(make, values))
    evidence = Evidence(
        P,
        classes=classes,
        groups={np.str_(name): groups * (N // 2)},
        references={np.str_("old"): [classes[int(score > 0.4)] for score in SCORES]},
        costs={np.str_("visit"): np.full((N, 3), 0.5)},
    )
    rules = [RULES[rule](np.str_(name), classes, groups), rejected() <= np.float64(0.1)]
    policy = solve(Problem(error(), rules, classes=classes, reject=np.str_("refer")), evidence)
    policy.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert "np." not in (tmp_path / "p.json").read_text()
    assert loaded.digest == policy.digest
    assert loaded.problem.rules == policy.problem.rules
    assert (loaded.decide(evidence, ids=range(N)) == policy.decide(evidence, ids=range(N))).all()


@pytest.mark.parametrize("name", SURROGATES)
def test_halves_of_characters_are_refused_wherever_they_enter(name):
    evidence = Evidence(P)
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    with pytest.raises(EvidenceError, match="lone surrogate"):
        policy.decide(evidence, ids=[name] * N)
    with pytest.raises(OptionError, match="lone surrogate"):
        policy.decide(evidence, ids=range(N), key=name)
    for build in (
        lambda: selected(name),
        lambda: demographic_parity(name, tol=0.1),
        lambda: error().given(**{name: 1}),
        lambda: error().given(sex=name),
        lambda: disagreement(name),
        lambda: custom(name),
        lambda: Problem(error(), reject=name),
        lambda: Problem(error(), classes=[name, "b"]),
        lambda: parse(f"selected({name!r}) <= 0.1"),
        lambda: parse(f"selected('{name}') <= 0.1"),
    ):
        with pytest.raises(RuleError):
            build()


@pytest.mark.parametrize(
    ("key", "message"), [("", "the secret is set"), (b"secret", "of type bytes"), (5, "type int")]
)
def test_keys_that_are_none(key, message):
    evidence = Evidence(P)
    policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    with pytest.raises(OptionError, match=message) as refused:
        policy.decide(evidence, ids=range(N), key=key)
    assert "secret'" not in str(refused.value)


def test_names_that_reorder_text_are_kept_and_never_shown_as_they_are(tmp_path):
    policy, evidence = hostile_policy(), hostile_rows()
    policy.save(tmp_path / "p.json")
    loaded = Policy.load(tmp_path / "p.json")
    assert loaded.actions == policy.actions == (*evidence.classes, policy.problem.reject)
    for shown in (repr(policy), policy._repr_html_(), repr(evidence), str(policy.problem)):
        assert "\u202e" not in shown
    assert "\u202e" in policy.decide(evidence, ids=range(len(evidence)))[0]


@pytest.mark.parametrize("depth", [500, 980, 1500, 100_000])
def test_deeply_nested_files_are_refused(depth, tmp_path):
    policy = solve(Problem(error(), [rejected() <= 0.1]), Evidence(P))
    path = tmp_path / "p.json"
    policy.save(path)
    content = json.loads(path.read_text())
    for key in ("card", "decisions", "minimize", "extra"):
        text = json.dumps({**content, key: 0}).replace(f'"{key}": 0', f'"{key}": {"[" * depth}{"]" * depth}')
        path.write_text(text)
        with pytest.raises(PolicyFileError):
            Policy.load(path)
    path.write_text(json.dumps({**content, "minimize": "-" * depth + "error()"}))
    with pytest.raises(PolicyFileError):
        Policy.load(path)


def test_ids_can_be_tried_until_one_is_lucky_only_with_a_key_that_is_public():
    """The reason for secret keys: whoever knows the key knows the answer of every id beforehand."""
    rare = Evidence([[0.95, 0.05]], classes=["no", "yes"])
    policy = solve(Problem("1 * selected('no')", ["selected('yes') <= 0.05"]), rare, beta=20.0)
    chance = policy.probabilities(rare)[0, 1]
    assert 0.01 < chance < 0.06

    def lucky(key):
        return {i for i in range(400) if policy.decide(rare, ids=[f"id {i}"], key=key)[0] == "yes"}

    public, secret = lucky(None), lucky("a secret of thirty-two letters..")
    assert public  # found without asking anybody
    assert len(public & secret) < len(public) / 2  # and worth no more than any other id with a secret key
