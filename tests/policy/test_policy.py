from __future__ import annotations

import warnings

import numpy as np
import pandas
import pytest

from bylaw import (
    Evidence,
    EvidenceError,
    GuaranteeWarning,
    Policy,
    Problem,
    custom,
    demographic_parity,
    disagreement,
    equalized_odds,
    error,
    miscoverage,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.errors import Remedy
from helpers.generated_rows import Rows

ROWS = Rows(n=700, K=3, S=2)
RULES = [demographic_parity("hidden", tol=0.02), equalized_odds("known", tol=0.01), rejected() <= 0.1]


@pytest.fixture(scope="module")
def policy():
    return solve(Problem(error(), [*RULES, disagreement("old") <= 0.3]), ROWS.evidence(), beta=30)


@pytest.fixture(scope="module")
def sets():
    return solve(Problem(miscoverage(), [size() <= 1.5]), ROWS.evidence(), beta=30)


def part(index):
    """Some of the rows, in any order."""
    return Evidence(
        ROWS.P[index],
        groups={"known": ROWS.group[index], "hidden": dict(enumerate(ROWS.T[index].T))},
        joint={"hidden": ROWS.joint[index]},
        references={"old": ROWS.old[index]},
    )


def test_the_law_is_the_papers_softmax(policy):
    """pi(a|x) proportional to exp(-beta (l + sum_j lambda_j c_j)), written out for parity."""
    small = solve(Problem(error(), [demographic_parity("known", tol=0.02)]), ROWS.evidence(), beta=30)
    share = np.eye(2)[ROWS.group] / np.eye(2)[ROWS.group].mean(axis=0) - 1
    scores = -(1 - ROWS.P)
    for name, price in small.multipliers.items():
        y, s = int(name[len("selected(")]), int(name.split("known=")[1][0])
        scores[:, y] -= price * share[:, s] * (1 if "<=" in name else -1)
    weight = np.exp(30 * scores)
    expected = weight / weight.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(small.probabilities(ROWS.evidence()), expected, atol=1e-12)


def test_probabilities_are_a_law(policy, sets):
    distribution = policy.probabilities(ROWS.evidence())
    assert distribution.shape == (700, 4)
    assert policy.actions == (0, 1, 2, "reject")
    np.testing.assert_allclose(distribution.sum(axis=1), 1, atol=1e-12)
    assert sets.probabilities(ROWS.evidence()).shape == (700, 3)


@pytest.mark.parametrize("which", ["policy", "sets"])
def test_a_rows_answer_never_depends_on_its_batch(which, request):
    policy = request.getfixturevalue(which)
    whole = policy.probabilities(ROWS.evidence())
    rng = np.random.default_rng(0)
    for size_ in (1, 2, 3, 7, 63, 64, 65, 130, 700):
        index = rng.permutation(700)[:size_]
        assert (policy.probabilities(part(index)) == whole[index]).all()


def test_the_fixture_depends_on_every_kind_of_column(policy):
    assert all(price > 0.01 for price in policy.prices.values()), policy.prices


@pytest.mark.parametrize("value", [0, 1])
def test_a_batch_of_one_group_is_decided_as_that_group(policy, value):
    index = np.flatnonzero(value == ROWS.group)[:20]
    whole = policy.probabilities(ROWS.evidence())
    assert (policy.probabilities(part(index)) == whole[index]).all()


def test_many_rows_are_decided_row_by_row(policy):
    index = np.random.default_rng(0).integers(0, 700, 5000)
    whole = policy.probabilities(ROWS.evidence())
    assert (policy.probabilities(part(index)) == whole[index]).all()


def test_the_default_key_is_the_policys_own(policy, sets):
    ids = np.arange(700)
    assert (
        policy.decide(ROWS.evidence(), ids=ids) == policy.decide(ROWS.evidence(), ids=ids, key=policy.digest)
    ).all()
    assert policy.digest != sets.digest
    other = solve(Problem(error(), [rejected() <= 0.2]), ROWS.evidence(), beta=30)
    assert other.digest != policy.digest


def test_seeds_decide(policy):
    evidence = ROWS.evidence()
    first = policy.decide(evidence, rng=7)
    assert (first == policy.decide(evidence, rng=np.random.default_rng(7))).all()
    assert (first != policy.decide(evidence, rng=8)).any()
    assert set(first) <= set(policy.actions)


def test_decisions_follow_the_probabilities(policy):
    evidence = ROWS.evidence()
    distribution = policy.probabilities(evidence)
    rng = np.random.default_rng(0)
    drawn = np.stack([policy.decide(evidence, rng=rng) for _ in range(300)])
    for a, action in enumerate(policy.actions):
        spread = np.sqrt((distribution[:, a] * (1 - distribution[:, a])).sum() * 300) + 1
        assert abs((drawn == action).sum() - 300 * distribution[:, a].sum()) < 4.5 * spread


def test_ids_decide_in_any_batch_and_order(policy):
    ids = np.array([f"case-{i}" for i in range(700)])
    whole = policy.decide(ROWS.evidence(), ids=ids)
    index = np.random.default_rng(1).permutation(700)[:100]
    assert (policy.decide(part(index), ids=ids[index]) == whole[index]).all()
    other = policy.decide(ROWS.evidence(), ids=ids, key="another release")
    assert (other != whole).any()


def test_positions_are_those_of_the_decisions(policy, sets):
    evidence, ids = ROWS.evidence(), np.arange(700)
    positions = policy.decide_positions(evidence, ids=ids, key="k")
    actions = np.array(policy.actions, dtype=object)
    assert (actions[positions] == policy.decide(evidence, ids=ids, key="k")).all()
    assert (sets.decide_positions(evidence, ids=ids) == sets.decide(evidence, ids=ids)).all()


def test_ids_of_sets_draw_each_label_by_itself(sets):
    ids = np.arange(700)
    inside = sets.decide(ROWS.evidence(), ids=ids)
    assert inside.dtype == bool
    assert inside.shape == (700, 3)
    distribution = sets.probabilities(ROWS.evidence())
    soft = (distribution > 0.2) & (distribution < 0.8)
    assert inside[soft].mean() == pytest.approx(distribution[soft].mean(), abs=4 * 0.5 / np.sqrt(soft.sum()))
    index = np.random.default_rng(1).permutation(700)[:100]
    assert (sets.decide(part(index), ids=ids[index]) == inside[index]).all()


@pytest.mark.parametrize("source", ["ids", "rng"])
def test_labels_of_a_set_are_drawn_independently(source):
    evidence = Evidence(np.full((4000, 6), 1 / 6))
    sets = solve(Problem(miscoverage(), [size() <= 3]), evidence, beta=30)
    np.testing.assert_allclose(sets.probabilities(evidence), 0.5, atol=1e-6)
    inside = sets.decide(evidence, **({"ids": range(4000)} if source == "ids" else {"rng": 0}))
    correlation = np.corrcoef(inside.T) - np.eye(6)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(4000)


def test_systematic_counts_are_close_to_their_expectation(policy, sets):
    evidence = ROWS.evidence()
    for seed in range(5):
        drawn = policy.decide(evidence, rng=seed, method="systematic")
        for a, action in enumerate(policy.actions):
            assert abs((drawn == action).sum() - policy.probabilities(evidence)[:, a].sum()) <= 6
        inside = sets.decide(evidence, rng=seed, method="systematic")
        assert (abs(inside.sum(axis=0) - sets.probabilities(evidence).sum(axis=0)) <= 1).all()


def test_argmax_says_that_the_guarantee_is_gone(policy, sets):
    evidence = ROWS.evidence()
    with pytest.warns(GuaranteeWarning, match="audit these decisions"):
        decided = policy.decide(evidence, method="argmax")
    best = policy.probabilities(evidence).argmax(axis=1)
    assert (decided == np.array(policy.actions, dtype=object)[best]).all()
    with pytest.warns(GuaranteeWarning):
        assert (sets.decide(evidence, method="argmax") == (sets.probabilities(evidence) >= 0.5)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass either rng"),
        ({"rng": 1, "ids": range(700)}, "pass either rng"),
        ({"rng": 1, "key": "k"}, "pass either rng"),
        ({"rng": 1, "method": "argmax"}, "no effect with method='argmax'"),
        ({"ids": range(700), "method": "systematic"}, "pass rng= instead of ids="),
        ({"rng": 1, "method": "best"}, "method must be"),
    ],
)
def test_decide_takes_one_source_of_randomness(policy, arguments, message):
    with pytest.raises(ValueError, match=message):
        policy.decide(ROWS.evidence(), **arguments)


def test_labels_keep_their_type():
    words = Evidence([[0.9, 0.1], [0.2, 0.8]], classes=["no", "yes"])
    policy = solve(Problem(error(), [rejected() <= 0.1], reject="ask"), words)
    assert policy.decide(words, rng=0).dtype.kind == "U"
    assert policy.actions[-1] == "ask"
    numbers = Evidence([[0.9, 0.1], [0.2, 0.8]])
    assert solve(Problem(error()), numbers).decide(numbers, rng=0).dtype.kind == "i"
    rejecting = solve(Problem(error(), [rejected() <= 0.1], reject=-1), numbers)
    assert rejecting.decide(numbers, rng=0).dtype.kind == "i"


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        (
            lambda e: e["groups"].pop("known"),
            "needs 'known' to decide; pass groups={'known': ...}",
            Remedy("pass_groups", "known"),
        ),
        (
            lambda e: e["groups"].pop("hidden"),
            "needs 'hidden' to decide",
            Remedy("pass_group_probabilities", "hidden"),
        ),
        (lambda e: e["groups"].update(known=[0] * 699 + [5]), r"not fitted on: \['5'\]", None),
        (
            lambda e: e["groups"].update(known={0: [0.5] * 700, 1: [0.5] * 700}),
            "needs the values of 'known'",
            Remedy("pass_groups", "known"),
        ),
        (
            lambda e: e["groups"].update(hidden=[0, 1] * 350),
            "of 'hidden', as in its fit; pass groups={'hidden': {value: its probabilities, ...}}",
            Remedy("pass_group_probabilities", "hidden"),
        ),
        (lambda e: e.pop("references"), "references={'old'", Remedy("pass_reference", "old")),
        (lambda e: e.update(classes=[2, 1, 0]), "in this order", None),
    ],
)
def test_evidence_that_differs_from_the_fit(policy, change, message, remedy):
    given = {
        "groups": {"known": ROWS.group, "hidden": dict(enumerate(ROWS.T.T))},
        "references": {"old": ROWS.old},
    }
    change(given)
    with pytest.raises(EvidenceError, match=message) as caught:
        policy.probabilities(Evidence(ROWS.P, **given))
    assert caught.value.remedy == remedy


def test_prices_add_up_to_what_was_stated(policy):
    assert set(policy.prices) == {str(rule) for rule in policy.problem.rules}
    assert sum(policy.prices.values()) == pytest.approx(sum(policy.multipliers.values()))
    assert policy.prices["rejected() <= 0.1"] == policy.multipliers["rejected() <= 0.1"] > 0


def test_repr_tells_the_story(policy):
    text = repr(policy)
    assert "converged" in text
    assert "rejected() <= 0.1   price 0." in text


@pytest.mark.parametrize("which", ["policy", "sets"])
def test_saved_and_loaded_policies_agree_to_the_last_bit(which, request, tmp_path):
    policy = request.getfixturevalue(which)
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    evidence = ROWS.evidence()
    assert (again.probabilities(evidence) == policy.probabilities(evidence)).all()
    assert (again.decide(evidence, ids=range(700)) == policy.decide(evidence, ids=range(700))).all()
    assert (again.decide(evidence, rng=3) == policy.decide(evidence, rng=3)).all()
    assert again.multipliers == pytest.approx(policy.multipliers, rel=0.05)  # a file has two digits of them
    assert again.prices == pytest.approx(policy.prices, rel=0.05)
    assert again.problem.rules == policy.problem.rules
    assert again.digest == policy.digest
    assert again.solution.status is policy.solution.status
    assert again.solution.gradient_mapping == pytest.approx(policy.solution.gradient_mapping, rel=0.05)
    again.save(tmp_path / "q.json")
    assert (tmp_path / "q.json").read_bytes() == (tmp_path / "p.json").read_bytes()


def test_a_function_is_saved_as_the_cost_it_computes(tmp_path):
    costs = np.random.default_rng(0).random((700, 3))
    computed = custom(lambda evidence: costs[: len(evidence)], name="visit")
    policy = solve(Problem(error(), [computed <= 0.4]), ROWS.evidence())
    policy.save(tmp_path / "p.json")
    again = Policy.load(tmp_path / "p.json")
    with pytest.raises(EvidenceError, match=r"pass costs={'visit': an array}"):
        again.probabilities(ROWS.evidence())
    named = ROWS.evidence(costs={"visit": costs})
    assert (again.probabilities(named) == policy.probabilities(ROWS.evidence())).all()


def test_nothing_global_is_drawn_from(policy):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        policy.decide(ROWS.evidence(), method="argmax")
    policy.decide(ROWS.evidence(), rng=0)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_expected_rates_are_those_of_many_draws(policy):
    evidence = ROWS.evidence()
    rng = np.random.default_rng(0)
    drawn = np.stack([policy.decide(evidence, rng=rng) for _ in range(400)])
    share = (drawn[:, ROWS.group == 1] == 2).mean()
    assert policy.expected(selected(2).given(known=1), evidence) == pytest.approx(share, abs=0.01)


def test_ids_and_probabilities_of_rows_in_another_order_are_noticed():
    scores = np.linspace(0.05, 0.95, 19)
    frame = pandas.DataFrame({0: 1 - scores, 1: scores})
    policy = solve(Problem(error(), [rejected() <= 0.1]), Evidence(frame))
    ids = pandas.Series([f"row {i}" for i in range(19)])
    assert (
        policy.decide(Evidence(frame), ids=ids).tolist()
        == policy.decide(Evidence(frame), ids=ids.tolist()).tolist()
    )
    for other in (ids[::-1], ids.set_axis(range(1, 20))):
        assert len(policy.decide(Evidence(frame.to_numpy()), ids=other)) == 19  # an array has no index
        with pytest.raises(EvidenceError, match="ids and probabilities have different indexes"):
            policy.decide(Evidence(frame), ids=other)
    chances = pandas.DataFrame(policy.probabilities(Evidence(frame)))
    assert policy.expected(rejected(), Evidence(frame), probabilities=chances) == pytest.approx(0.1)
    with pytest.raises(EvidenceError, match="have different indexes"):
        policy.expected(rejected(), Evidence(frame), probabilities=chances[::-1])


def test_a_function_that_returns_rows_in_another_order_is_noticed():
    scores = np.linspace(0.05, 0.95, 19)
    evidence = Evidence(pandas.DataFrame({0: 1 - scores, 1: scores}))
    table = pandas.DataFrame({0: scores, 1: 1 - scores})
    assert solve(Problem(custom(lambda _: table, name="c")), evidence).actions == (0, 1)
    with pytest.raises(EvidenceError, match="have different indexes"):
        solve(Problem(custom(lambda _: table[::-1], name="c")), evidence)
