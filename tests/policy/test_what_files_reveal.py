"""Sums over rows in saved policies: two files whose rows differ by one, and groups of one row."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from bylaw import Evidence, Policy, Problem, equal_opportunity, error, explain, selected, solve, worst

N = 400
PLACES = [{"label": 1, "sex": "F"}, {"label": 1, "sex": "M"}]


def draw_rows(seed, n=N):
    rng = np.random.default_rng(seed)
    return rng.beta(2, 2, n), rng.choice(["F", "M"], n)


def fit(scores, groups, rules, minimize=None):
    evidence = Evidence(np.column_stack([1 - scores, scores]), classes=[0, 1], groups=groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # groups of one
        return solve(Problem(minimize or error(), rules), evidence), evidence


def save(policy, path):
    policy.save(path)
    return json.loads(path.read_text())


def list_frequencies(frequencies):
    """Those of label 1 in each group, of a policy in memory or of a file."""
    if isinstance(frequencies, list):
        return [next(item["frequency"] for item in frequencies if item["event"] == place) for place in PLACES]
    return [frequencies[tuple(sorted(place.items()))] for place in PLACES]


def subtract(before, after):
    """The group and the score of a row that was added, if frequencies were exact."""
    moved = (N + 1) * np.array(after) - N * np.array(before)
    return "FM"[int(np.argmax(np.abs(moved)))], float(moved[np.argmax(np.abs(moved))])


@pytest.mark.slow
def test_a_row_cannot_be_told_from_the_difference_of_two_files(tmp_path):
    scores, sexes = draw_rows(0)
    new_scores, new_sexes = draw_rows(1, 20)
    rules = [equal_opportunity("sex", tol=0.02)]
    policy, _ = fit(scores, {"sex": sexes}, rules)
    file = save(policy, tmp_path / "before.json")
    right, exact, told, spreads, saved = 0, [], [], [], set()
    for score, sex in zip(new_scores, new_sexes, strict=True):
        later, _ = fit(np.append(scores, score), {"sex": np.append(sexes, sex)}, rules)
        later_file = save(later, tmp_path / "after.json")
        before, after = list_frequencies(policy.frequencies), list_frequencies(later.frequencies)
        exact.append(subtract(before, after) == (sex, pytest.approx(score)))
        after = list_frequencies(later_file["frequencies"])
        guess = subtract(list_frequencies(file["frequencies"]), after)
        right, told = right + (guess[0] == sex), [*told, abs(guess[1] - score)]
        spread = (N + 1) * later_file["guarantee"]["alpha"] - N * file["guarantee"]["alpha"]
        spreads.append(abs(spread - abs(2 * score - 1)))
        saved.add(tuple(after))
    assert all(exact)  # in memory, the attack succeeds
    assert len(saved) == 1  # and files are the same, whoever was added
    assert right <= 15
    assert np.median(told) > 0.1
    assert np.median(spreads) > 0.1


def test_a_weight_divided_by_its_price_tells_little_of_a_row(tmp_path):
    """A rule's weight is its price over the frequency of its condition."""
    scores, sexes = draw_rows(2)
    rules = [selected(1).given(label=1, sex="F") >= 0.9]

    def read(policy):
        file = save(policy, tmp_path / "p.json")
        place = next(
            k for k, one in enumerate(file["features"]) if one == {"source": None, "event": PLACES[0]}
        )
        weight = file["weights"][place][1]
        exact = policy.rule_prices[0].multiplier / weight
        assert exact == pytest.approx(
            list_frequencies({**policy.frequencies, (("label", 1), ("sex", "M")): 0})[0]
        )
        return file["multipliers"][0]["multiplier"] / weight

    errors = []
    before = read(fit(scores, {"sex": sexes}, rules)[0])
    for score in draw_rows(3, 10)[0]:
        after = read(fit(np.append(scores, score), {"sex": np.append(sexes, "F")}, rules)[0])
        errors.append(abs((N + 1) * after - N * before - score))
    assert np.median(errors) > 0.3


@pytest.mark.parametrize("score", [0.15, 0.25, 0.45])
def test_the_score_of_a_group_of_one_is_not_in_the_file(score, tmp_path):
    scores, _ = draw_rows(4)
    scores[0] = score
    races = np.array(["x", *["y"] * (N - 1)])
    rules = [selected(1).given(label=1, race="x") >= 0.9]
    policy, _ = fit(scores, {"race": races}, rules)
    event = (("label", 1), ("race", "x"))
    assert N * policy.frequencies[event] == pytest.approx(score)
    file = save(policy, tmp_path / "p.json")
    (frequency,) = [one["frequency"] for one in file["frequencies"] if one["event"] == dict(event)]
    place = next(k for k, one in enumerate(file["features"]) if one == {"source": None, "event": dict(event)})
    divided = file["multipliers"][0]["multiplier"] / file["weights"][place][1]
    assert N * frequency >= 10
    assert abs(N * divided - score) > 0.05


def test_the_rate_of_a_small_group_is_left_out_of_the_file(tmp_path):
    scores, _ = draw_rows(5)
    races = np.array([*["x"] * 3, *["y"] * (N - 3)])
    policy, _ = fit(scores, {"race": races}, [], worst(error(), by="race"))
    rates = {one["group"]["race"]: one["rate"] for one in save(policy, tmp_path / "p.json")["group_rates"]}
    assert rates["x"] is None
    assert rates["y"] == pytest.approx(
        {one.group: one.rate for one in policy.group_rates}[("race", "y"),], rel=0.05
    )
    loaded = Policy.load(tmp_path / "p.json")
    assert "race='x'" not in str(loaded).split("weights")[0]


@pytest.mark.parametrize("minimize", [error(), 0.5 * error().given(label=0) + 0.5 * error().given(label=1)])
def test_explanations_of_a_loaded_policy_still_add_up(minimize, tmp_path):
    scores, sexes = draw_rows(6)
    rules = [equal_opportunity("sex", tol=0.02), selected(1) <= 0.4]
    policy, evidence = fit(scores, {"sex": sexes}, rules, minimize)
    policy.save(tmp_path / "p.json")
    ours, theirs = explain(policy, evidence), explain(Policy.load(tmp_path / "p.json"), evidence)
    assert ours.rules == theirs.rules
    np.testing.assert_allclose(np.diff(theirs.scores), np.diff(ours.scores), atol=1e-9)
    np.testing.assert_allclose(theirs.pulls, ours.pulls, atol=0.05 * abs(ours.pulls).max())
