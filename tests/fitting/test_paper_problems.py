"""Every problem of the paper, and combinations of them, against the exact linear program."""

from __future__ import annotations

import numpy as np
import pytest

from bylaw import (
    Evidence,
    Problem,
    accepted,
    cost,
    coverage_parity,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equal_opportunity,
    equalized_odds,
    error,
    error_parity,
    miscoverage,
    omits,
    rejected,
    rejection_parity,
    selected,
    size,
    solve,
)
from helpers import reference as ref
from helpers.generated_rows import Rows
from helpers.shared_data import shared

BETA = 200.0


def check(problem, evidence, reference, beta=BETA, weights=None):
    """Rules hold to 1e-6, and the cost is within log|A|/beta of the linear program's."""
    policy = solve(problem, evidence, beta=beta)
    distribution = policy.probabilities(evidence)
    optimum = reference.optimum(weights)
    assert optimum is not None
    assert len(policy.multipliers) == len(reference.rules)
    assert reference.excesses(distribution, weights).max(initial=-1) <= 1e-6
    slack = 1e-6 * (1 + sum(policy.multipliers.values()))
    paid = reference.cost(distribution, weights)
    assert optimum - slack <= paid <= optimum + policy.entropy_cost + 1e-6
    # The policy's own account of itself agrees with the arrays.
    assert policy.expected(problem.minimize, evidence) == pytest.approx(paid, abs=1e-9)
    return policy


def test_standard(rows):
    reference = ref.Reference(ref.error_loss(rows.P, 2), [])
    policy = check(Problem(error()), rows.evidence(), reference)
    assert (policy.probabilities(rows.evidence()).argmax(axis=1) == rows.P.argmax(axis=1)).all()


@pytest.mark.parametrize("K", [2, 5])
def test_controlled_rejection(K):
    rows = Rows(K=K)
    reference = ref.Reference(ref.error_loss(rows.P, K + 1), [(ref.rejection(rows.P), 0.1)])
    policy = check(Problem(error(), [rejected() <= 0.1]), rows.evidence(), reference)
    assert policy.actions == (*range(K), "reject")


@pytest.mark.parametrize("K", [2, 5])
def test_controlled_error(K):
    rows = Rows(K=K)
    reference = ref.Reference(ref.rejection(rows.P), [(ref.error_loss(rows.P, K + 1), 0.1)])
    check(Problem(rejected(), [error() <= 0.1]), rows.evidence(), reference)


def test_chows_penalty(rows):
    loss = ref.error_loss(rows.P, 3) + 0.2 * ref.rejection(rows.P)
    check(Problem(error() + 0.2 * rejected()), rows.evidence(), ref.Reference(loss, []))


@pytest.mark.parametrize("K", [2, 5])
@pytest.mark.parametrize("S", [2, 4])
@pytest.mark.parametrize("attribute", ["known", "hidden"])
@pytest.mark.parametrize("tol", [0.0, 0.02])
def test_demographic_parity(K, S, attribute, tol):
    rows = Rows(K=K, S=S)
    T = rows.T if attribute == "hidden" else ref.one_hot(rows.group, S)
    reference = ref.Reference(ref.error_loss(rows.P, K), ref.parity(T, K, tol, K))
    check(Problem(error(), [demographic_parity(attribute, tol=tol)]), rows.evidence(), reference)


@pytest.mark.parametrize("attribute", ["known", "hidden"])
def test_one_tolerance_per_group(attribute):
    rows = Rows(K=3, S=4)
    T = rows.T if attribute == "hidden" else ref.one_hot(rows.group, 4)
    tols = [0.0, 0.01, 0.05, 0.2]
    reference = ref.Reference(ref.error_loss(rows.P, 3), ref.parity(T, 3, tols, 3))
    rule = demographic_parity(attribute, tol=dict(enumerate(tols)))
    check(Problem(error(), [rule]), rows.evidence(), reference)


def test_parity_between_groups():
    rows = Rows(K=3, S=4)
    share = rows.T / rows.T.mean(axis=0)
    rules = [
        (ref.on(y, share[:, s] - share[:, t], 3), 0.02)
        for y in range(3)
        for s in range(4)
        for t in range(4)
        if s != t
    ]
    reference = ref.Reference(ref.error_loss(rows.P, 3), rules)
    rule = demographic_parity("hidden", tol=0.02, between="groups")
    check(Problem(error(), [rule]), rows.evidence(), reference)


@pytest.mark.parametrize("K", [2, 5])
@pytest.mark.parametrize("S", [2, 4])
def test_equalized_odds_with_known_group(K, S):
    rows = Rows(K=K, S=S, n=500)
    J = ref.one_hot(rows.group, S)[:, :, None] * rows.P[:, None, :]
    reference = ref.Reference(ref.error_loss(rows.P, K), ref.odds(J, rows.P, 0.05, K))
    check(Problem(error(), [equalized_odds("known", tol=0.05)]), rows.evidence(), reference)


@pytest.mark.parametrize("K", [2, 5])
@pytest.mark.parametrize("S", [2, 4])
def test_equalized_odds_with_a_joint_model(K, S):
    rows = Rows(K=K, S=S, n=500)
    reference = ref.Reference(ref.error_loss(rows.P, K), ref.odds(rows.joint, rows.P, 0.05, K))
    check(Problem(error(), [equalized_odds("hidden", tol=0.05)]), rows.evidence(), reference)


def test_equal_opportunity(rows):
    columns = [
        (y, rows.joint[:, s, y] / rows.joint[:, s, y].mean() - rows.P[:, y] / rows.P[:, y].mean())
        for y in range(2)
        for s in range(2)
    ]
    rules = [(sign * ref.on(y, column, 2), 0.01) for y, column in columns for sign in (1, -1)]
    reference = ref.Reference(ref.error_loss(rows.P, 2), rules)
    check(Problem(error(), [equal_opportunity("hidden", tol=0.01)]), rows.evidence(), reference)


@pytest.mark.parametrize("K", [2, 5])
def test_churn(K):
    rows = Rows(K=K)
    reference = ref.Reference(ref.error_loss(rows.P, K), [(ref.churn(rows.old, K), 0.05)])
    check(Problem(error(), [disagreement("old") <= 0.05]), rows.evidence(), reference)


def test_churn_against_a_randomised_model():
    rows = Rows(K=3)
    old = ref.softmax(np.log(rows.P) * 0.5 + 1)
    evidence = Evidence(rows.P, references={"old": old})
    reference = ref.Reference(ref.error_loss(rows.P, 3), [(1 - old, 0.56)])
    check(Problem(error(), [disagreement("old") <= 0.56]), evidence, reference)


def missing(P):
    """P(Y not in set) = 1 - sum_y p_y pi_y, as a cost of leaving labels in, and a constant."""
    return -P


@pytest.mark.parametrize("K", [3, 8])
def test_sets_of_bounded_size(K):
    rows = Rows(K=K)
    reference = ref.Reference(missing(rows.P), [(np.ones_like(rows.P), 1.5)], sets=True, loss_constant=1)
    check(Problem(miscoverage(), [size() <= 1.5]), rows.evidence(), reference, beta=2000)


@pytest.mark.parametrize("K", [3, 8])
def test_smallest_sets_that_cover(K):
    rows = Rows(K=K)
    reference = ref.Reference(np.ones_like(rows.P), [(missing(rows.P), 0.1 - 1)], sets=True)
    check(Problem(size(), [miscoverage() <= 0.1]), rows.evidence(), reference, beta=2000)


def test_churn_for_sets():
    rows = Rows(K=4)
    rules = [(np.ones_like(rows.P), 1.5), (-ref.one_hot(rows.old, 4), 0.1 - 1)]
    reference = ref.Reference(missing(rows.P), rules, sets=True, loss_constant=1)
    check(Problem(miscoverage(), [size() <= 1.5, omits("old") <= 0.1]), rows.evidence(), reference, beta=2000)


# Combinations


def test_parity_with_rejection_and_churn():
    rows = Rows(K=3, S=2)
    rules = [
        *ref.parity(rows.T, 3, 0.02, 4),
        (ref.rejection(rows.P), 0.1),
        (ref.churn(rows.old, 4), 0.3),
    ]
    reference = ref.Reference(ref.error_loss(rows.P, 4), rules)
    stated = [demographic_parity("hidden", tol=0.02), rejected() <= 0.1, disagreement("old") <= 0.3]
    check(Problem(error(), stated), rows.evidence(), reference)


def test_odds_with_parity_of_rejection():
    rows = Rows(K=2, S=3, n=500)
    share = rows.T / rows.T.mean(axis=0)
    rules = ref.odds(rows.joint, rows.P, 0.05, 3)
    rules += [(sign * ref.on(2, share[:, s] - 1, 3), 0.01) for s in range(3) for sign in (1, -1)]
    rules += [(ref.rejection(rows.P), 0.2)]
    reference = ref.Reference(ref.error_loss(rows.P, 3), rules)
    stated = [
        equalized_odds("hidden", tol=0.05),
        rejection_parity("hidden", tol=0.01),
        rejected() <= 0.2,
    ]
    check(Problem(error(), stated), rows.evidence(), reference)


def test_coverage_by_group_with_size():
    rows = Rows(K=4, S=3)
    rules = [(-rows.joint[:, s] / rows.T[:, s].mean(), 0.25 - 1) for s in range(3)]
    rules += [(np.ones_like(rows.P), 2.5)]
    reference = ref.Reference(missing(rows.P), rules, sets=True, loss_constant=1)
    stated = [miscoverage().given(hidden=s) <= 0.25 for s in range(3)]
    check(Problem(miscoverage(), [*stated, size() <= 2.5]), rows.evidence(), reference, beta=2000)


def test_parity_of_coverage_with_size():
    rows = Rows(K=4, S=2)
    G = ref.one_hot(rows.group, 2) / ref.one_hot(rows.group, 2).mean(axis=0)
    rules = [(sign * (rows.P - G[:, [s]] * rows.P), 0.01) for s in range(2) for sign in (1, -1)]
    rules += [(np.ones_like(rows.P), 1.5)]
    reference = ref.Reference(missing(rows.P), rules, sets=True, loss_constant=1)
    stated = [coverage_parity("known", tol=0.01), size() <= 1.5]
    check(Problem(miscoverage(), stated), rows.evidence(), reference, beta=2000)


def test_two_attributes_each_by_itself():
    rows = Rows(K=2, S=3)
    rules = ref.parity(rows.T, 2, 0.02, 2) + ref.parity(ref.one_hot(rows.group, 3), 2, 0.02, 2)
    reference = ref.Reference(ref.error_loss(rows.P, 2), rules)
    check(Problem(error(), [demographic_parity(["hidden", "known"], tol=0.02)]), rows.evidence(), reference)


def test_intersections_of_a_known_and_a_hidden_attribute():
    rows = Rows(K=2, S=2)
    cells = np.stack([(rows.group == s) * rows.T[:, t] for t in range(2) for s in range(2)], axis=1)
    order = [0, 2, 1, 3]  # ("known", "hidden"): hidden runs fastest
    reference = ref.Reference(ref.error_loss(rows.P, 2), ref.parity(cells[:, order], 2, 0.03, 2))
    rule = demographic_parity(("known", "hidden"), tol=0.03)
    check(Problem(error(), [rule]), rows.evidence(), reference)


def test_cost_matrix_with_a_budget_and_parity_of_error():
    rows = Rows(K=3, S=2)
    matrix = np.array([[0, 1, 4, 0.5], [2, 0, 1, 0.5], [9, 3, 0, 0.5]])
    G = ref.one_hot(rows.group, 2) / ref.one_hot(rows.group, 2).mean(axis=0)
    wrong = ref.error_loss(rows.P, 4)
    rules = [(sign * (G[:, [s]] * wrong - wrong), 0.02) for s in range(2) for sign in (1, -1)]
    rules += [(ref.rejection(rows.P), 0.3)]
    reference = ref.Reference(rows.P @ matrix, rules)
    stated = [error_parity("known", tol=0.02), rejected() <= 0.3]
    check(Problem(cost(matrix), stated), rows.evidence(), reference)


def test_four_fifths_rule(rows):
    G = ref.one_hot(rows.group, 2) / ref.one_hot(rows.group, 2).mean(axis=0)
    rules = [(ref.on(1, 0.8 * G[:, t] - G[:, s], 2), 0.0) for s, t in ((0, 1), (1, 0))]
    reference = ref.Reference(ref.error_loss(rows.P, 2), rules)
    check(Problem(error(), [disparate_impact("known", labels=[1])]), rows.evidence(), reference)
    one = selected(1).given(known=0) >= 0.8 * selected(1).given(known=1)
    check(Problem(error(), [one]), rows.evidence(), ref.Reference(reference.loss, rules[:1]))


def test_selective_error(rows):
    loss = ref.rejection(rows.P)
    accept = 1 - ref.rejection(rows.P)
    rules = [(ref.error_loss(rows.P, 3) - 0.1 * accept, 0.0)]
    check(Problem(rejected(), [error() <= 0.1 * accepted()]), rows.evidence(), ref.Reference(loss, rules))


def test_capacity():
    rows = Rows(K=3)
    reference = ref.Reference(ref.error_loss(rows.P, 3), [(ref.on(2, np.ones(rows.n), 3), 0.15)])
    check(Problem(error(), [selected(2) <= 0.15]), rows.evidence(), reference)


def test_custom_costs_named_and_computed():
    rows = Rows(K=3)
    visits = np.random.default_rng(1).random((rows.n, 3))
    reference = ref.Reference(ref.error_loss(rows.P, 3), [(visits, 0.4)])
    named = rows.evidence(costs={"visit": visits})
    check(Problem(error(), [custom("visit") <= 0.4]), named, reference)
    computed = custom(lambda evidence: visits[: len(evidence)], name="visit")
    check(Problem(error(), [computed <= 0.4]), rows.evidence(), reference)


def test_weights():
    rows = Rows(K=3, S=2)
    w = np.random.default_rng(2).exponential(size=rows.n)
    share = rows.T / np.average(rows.T, axis=0, weights=w)
    rules = [
        (sign * ref.on(y, share[:, s] - 1, 3), 0.02) for y in range(3) for s in range(2) for sign in (1, -1)
    ]
    reference = ref.Reference(ref.error_loss(rows.P, 3), rules)
    rule = demographic_parity("hidden", tol=0.02)
    check(Problem(error(), [rule]), rows.evidence(weights=w), reference, weights=w)


# Real rows


def test_churn_between_two_language_models():
    logits = np.load(shared("cosmosqa_llm_logits.npz"))
    new = next(name for name in logits.files if "13b" in name.lower())
    old = next(name for name in logits.files if "7b" in name.lower() and "llama" in name.lower())
    P = ref.softmax(logits[new][:2000].astype(float))
    before = logits[old][:2000].argmax(axis=1)
    evidence = Evidence(P, references={"7b": before})
    reference = ref.Reference(ref.error_loss(P, 6), [(ref.churn(before, 6), 0.1)])
    check(Problem(error(), [disagreement("7b") <= 0.1]), evidence, reference)


def test_sets_on_news():
    P = np.load(shared("news20_probabilities.npy"))[:500].astype(float)
    evidence = Evidence(P, normalize=True)
    P = P / P.sum(axis=1, keepdims=True)
    reference = ref.Reference(np.ones_like(P), [(-P, 0.02 - 1)], sets=True)
    check(Problem(size(), [miscoverage() <= 0.02]), evidence, reference, beta=2000)


@pytest.mark.slow
@pytest.mark.parametrize(("attribute", "tol"), [("gender", 0.02), ("race", 0.05)])
def test_unaware_parity_on_adult(attribute, tol):
    pandas = pytest.importorskip("pandas")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    frame = pandas.read_parquet(shared("adult.parquet"))
    numbers = frame.select_dtypes("number")
    fit, use = slice(0, 5000), slice(5000, 6500)

    def model(target):
        learner = make_pipeline(StandardScaler(), LogisticRegression())
        learner.fit(numbers[fit], target[fit])
        return learner.predict_proba(numbers[use]), learner[-1].classes_

    P, classes = model(frame["income"])
    T, values = model(frame[attribute])
    table = pandas.DataFrame(T, columns=values)
    evidence = Evidence(P, classes=classes, groups={attribute: table})
    reference = ref.Reference(ref.error_loss(P, 2), ref.parity(T, 2, tol, 2))
    check(Problem(error(), [demographic_parity(attribute, tol=tol)]), evidence, reference)
