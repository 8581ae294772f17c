from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit, logsumexp, softmax

from bylaw import RuleError
from bylaw.errors import Remedy
from bylaw.language import make_action_space

LABELS = make_action_space("labels", (0, 1, 2))
SETS = make_action_space("sets", (0, 1, 2))
scores = hnp.arrays(np.float64, (3, 7), elements=st.floats(-1e9, 1e9))


@pytest.mark.slow
@given(scores)
def test_softmax_and_its_potential(scores):
    distribution = scores.copy()
    potential = LABELS.to_probabilities(distribution)
    np.testing.assert_allclose(distribution, softmax(scores, axis=0), atol=1e-15)
    np.testing.assert_allclose(potential, logsumexp(scores, axis=0), rtol=1e-12, atol=1e-12)


@given(scores)
def test_sigmoid_and_its_potential(scores):
    distribution = scores.copy()
    potential = SETS.to_probabilities(distribution)
    np.testing.assert_allclose(distribution, expit(scores), rtol=1e-12, atol=1e-17)
    np.testing.assert_allclose(potential, np.logaddexp(0, scores).sum(axis=0), rtol=1e-12, atol=1e-14)


def test_a_thousand_even_labels_keep_a_finite_potential():
    sets = make_action_space("sets", tuple(range(2500)))
    scores = np.zeros((2500, 2))
    assert sets.to_probabilities(scores).tolist() == pytest.approx([2500 * np.log(2)] * 2)
    assert (scores == 0.5).all()


def test_least_loss():
    losses = np.array([[1.0, -2.0], [0.5, -1.0], [3.0, 4.0]])
    assert LABELS.min_loss(losses).tolist() == [0.5, -2.0]
    assert SETS.min_loss(losses).tolist() == [0.0, -3.0]


def test_entropy_is_the_largest_possible():
    assert LABELS.entropy == pytest.approx(np.log(3))
    assert SETS.entropy == pytest.approx(3 * np.log(2))
    assert make_action_space("reject", (0, 1)).entropy == pytest.approx(np.log(3))


def test_actions():
    assert make_action_space("reject", (0, 1), reject=-1).actions == (0, 1, -1)
    assert LABELS.actions == SETS.actions == (0, 1, 2)


def test_bad_spaces():
    with pytest.raises(
        RuleError, match=r"must differ from all classes, got .*; choose another name with reject="
    ) as caught:
        make_action_space("reject", ("reject", "x"))
    assert caught.value.remedy == Remedy("choose_reject")
    with pytest.raises(RuleError, match="must differ from all classes"):  # once decisions are text
        make_action_space("reject", (0, 1), reject="1")
    with pytest.raises(RuleError, match="'labels', 'reject' or 'sets'"):
        make_action_space("nothing", (0, 1))


def test_the_confidence_of_a_decision():
    """Of one label, that of the likeliest; of a set, that of the label which is least settled."""
    probabilities = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])
    assert LABELS.decision_confidence(probabilities).tolist() == [0.7, 1.0]
    assert SETS.decision_confidence(probabilities).tolist() == [0.7, 1.0]
    assert SETS.decision_confidence(np.array([[0.99, 0.5, 0.01]])).tolist() == [0.5]


def test_best_hard_and_constant_decisions():
    losses = np.array([[0.3, -1.0], [0.1, -2.0], [0.2, 5.0]])  # (n_actions, n_rows)
    assert LABELS.best_decision(losses).T.tolist() == [[0, 1, 0], [0, 1, 0]]
    assert SETS.best_decision(losses).T.tolist() == [[0, 0, 0], [1, 1, 0]]
    assert LABELS.hard_decision(-losses.T).tolist() == [1, 1]
    assert SETS.hard_decision(-losses.T).tolist() == [[False] * 3, [True, True, False]]
    assert LABELS.constant_decisions().tolist() == np.eye(3).tolist()
    assert SETS.constant_decisions()[3:].tolist() == [[0, 0, 0], [1, 1, 1]]


def test_ranges_and_norms_of_decisions():
    low, high = np.array([[-1.0, 0.5]]), np.array([[2.0, 3.0]])
    assert [end.tolist() for end in LABELS.combine_ranges(low, high)] == [[-1.0], [3.0]]
    assert [end.tolist() for end in SETS.combine_ranges(low, high)] == [[-1.0], [5.0]]
    squares, crosses = np.array([[4.0], [9.0]]), np.array([[0.0], [6.0]])
    assert LABELS.combine_norms(squares, crosses, 1.0) == pytest.approx([np.sqrt(5.0)])
    assert SETS.combine_norms(squares, crosses, 1.0) == pytest.approx([2.0 + 3.0 + 1.0])
