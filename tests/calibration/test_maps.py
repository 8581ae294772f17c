"""Maps against formulas written out by hand, and against each other."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from bylaw._base import BadValueError, Node
from bylaw.calibration import CalibrationMap
from bylaw.calibration._maps import make_sample, take_logs


def a_map(K=3, H=2):
    rng = np.random.default_rng(0)
    return CalibrationMap(
        "isotonic",
        1e-6,
        rng.normal(size=K),
        rng.normal(size=(K, K)),
        rng.uniform(-3, 0, (K, H)),
        rng.uniform(0, 1, (K, H)),
    )


def by_hand(one, row):
    """One row, term by term."""
    logs = [math.log(max(p, one.floor)) for p in row]
    scores = []
    for k in range(len(row)):
        score = one.bias[k] + sum(one.weights[k, j] * logs[j] for j in range(len(row)))
        score += sum(b * max(0.0, logs[k] - t) for t, b in zip(one.knots[k], one.bends[k], strict=True))
        scores.append(score)
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def test_the_formula():
    one, P = a_map(), np.random.default_rng(1).dirichlet(np.ones(3), 50)
    P[0] = [0.0, 1e-9, 1 - 1e-9]  # below the floor
    assert one.apply(P) == pytest.approx(np.array([by_hand(one, row) for row in P]), abs=1e-12)


def test_the_identity_changes_nothing_above_its_floor():
    P = np.random.default_rng(1).dirichlet(np.ones(4), 100)
    assert CalibrationMap("none", 1e-12, np.zeros(4), np.eye(4)).apply(P) == pytest.approx(P, abs=1e-14)


def test_a_temperature_divides_log_odds():
    p = np.random.default_rng(1).uniform(0.01, 0.99, 100)
    calibrated = CalibrationMap("temperature", 1e-9, np.zeros(2), np.eye(2) / 3).apply(
        np.column_stack([1 - p, p])
    )
    expected = np.log(p / (1 - p)) / 3
    assert np.log(calibrated[:, 1] / calibrated[:, 0]) == pytest.approx(expected)


def test_no_probability_is_zero_or_one():
    P = np.array([[1.0, 0.0], [1e-300, 1.0], [0.5, 0.5]])
    steep = CalibrationMap("vector", 1e-100, np.array([50.0, -50.0]), np.eye(2) * 30)
    calibrated = steep.apply(P)
    assert calibrated.min() > 0
    assert calibrated.max() < 1
    assert calibrated.sum(axis=1) == pytest.approx(1)


def test_a_row_is_the_same_in_any_batch():
    one, P = a_map(5, 3), np.random.default_rng(1).dirichlet(np.ones(5), 5000)
    whole = one.apply(P)
    for part in (slice(0, 1), slice(7, 2100), slice(2047, 2049), slice(4999, 5000)):
        assert (one.apply(P[part]) == whole[part]).all()


def test_numbers_are_read_only_and_not_aliased():
    bias = np.zeros(2)
    one = CalibrationMap("vector", 1e-9, bias, np.eye(2))
    bias[0] = 7
    assert one.bias[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        one.weights[0, 0] = 2


def test_the_floor_is_below_what_was_seen():
    for rows, floor in (
        ([[0.0, 1.0], [0.02, 0.98]], 0.01),
        ([[1e-200, 1.0]], 1e-100),
        ([[0.6, 0.4], [0.5, 0.5]], 0.2),
    ):
        ones = np.ones(len(rows))
        assert make_sample(np.array(rows), ones.astype(int), ones).floor == pytest.approx(floor)
    assert take_logs(np.array([[0.0, 1.0]]), 0.01).tolist() == [[math.log(0.01)], [0.0]]


def test_a_saved_map_reads_back_to_the_last_bit():
    one = a_map()
    read = CalibrationMap.from_node(Node(json.loads(json.dumps(one.to_dict())), "map"), 3)
    assert read.to_dict() == one.to_dict()
    P = np.random.default_rng(1).dirichlet(np.ones(3), 20)
    assert (read.apply(P) == one.apply(P)).all()
    plain = CalibrationMap("none", 1e-9, np.zeros(3), np.eye(3))
    assert CalibrationMap.from_node(Node(plain.to_dict(), "map"), 3).to_dict() == plain.to_dict()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("method", "magic", "one of"),
        ("method", None, "one of"),
        ("floor", 0.0, "positive"),
        ("floor", 1e-200, "at least 1e-100 and less than 1"),
        ("floor", 2.0, "at least 1e-100 and less than 1"),
        ("bias", [1.0, 2.0], "3 numbers"),
        ("bias", [1.0, 2.0, "3"], "a number"),
        ("weights", [[1.0] * 3] * 2, "matrix of 3 x 3"),
        ("weights", [[1e308] * 3] * 3, "must give finite scores"),
        ("knots", [[1.0], [1.0, 2.0], [1.0]], "matrix of 3 x 1"),
        ("bends", [[1.0]] * 3, "matrix of 3 x 2"),
        ("knots", None, "a list"),
    ],
)
def test_a_damaged_map_is_refused(key, value, said):
    with pytest.raises(BadValueError, match=said):
        CalibrationMap.from_node(Node({**a_map().to_dict(), key: value}, "map"), 3)


def test_a_map_without_a_number_is_refused():
    content = a_map().to_dict()
    del content["bends"]
    with pytest.raises(BadValueError, match="has no 'bends'"):
        CalibrationMap.from_node(Node(content, "map"), 3)
