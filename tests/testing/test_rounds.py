"""Rounds against loops over all tuples of different rows; bets over all rounds that there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from bylaw import error
from bylaw.language import make_action_space
from bylaw.testing import _rounds as rounds
from bylaw.testing._hypotheses import Hypothesis
from bylaw.testing._rounds import Events, follow_means, follow_sums


def make_events(n, disjoint, *, cancels=False, binary=False, batched=False):
    """Events with values between -1 and 1; of a group and all, between 0 and 1 and between -1 and 0."""
    limits = ((0.0, 1.0), (-1.0, 0.0)) if cancels else ((-1.0, 1.0),) * n
    return Events(limits, disjoint, binary, cancels, batched)


def count_tuples(events):
    """The largest number of tuples, which sums are relative to."""
    return events._count_tuples(events.rows)


def draw_columns(kind, n_events, n_rows, seed=0):
    """(2 * n_events, n_rows): weights, then weights times values between -1 and 1."""
    rng = np.random.default_rng(seed)
    if kind == "disjoint":
        weights = np.eye(n_events)[:, rng.integers(n_events, size=n_rows)]
    elif kind == "nested":  # each event is a part of the one before
        weights = (rng.integers(1, n_events + 1, size=n_rows) >= np.arange(1, n_events + 1)[:, None]) * 1.0
    elif kind == "overlapping":
        weights = (rng.random((n_events, n_rows)) < 0.6) * 1.0
    else:
        weights = rng.random((n_events, n_rows)) * (rng.random((n_events, n_rows)) < 0.7)
    return np.concatenate([weights, weights * rng.uniform(-1, 1, (n_events, n_rows))])


def loop(columns, events):
    """Over tuples of different rows, one row for each event; of three events that may overlap, rows are for
    one of them, in turn."""
    n, found = events.number, []
    for begin in range(0, columns.shape[1], events.rows):
        block = columns[:, begin : begin + events.rows]
        total = [0.0, 0.0]
        for rows in itertools.product(range(events.rows), repeat=n):
            if len(set(rows)) < n:
                continue
            if n > 2 and not events.disjoint and any(row % n != e for e, row in enumerate(rows)):
                continue
            product = math.prod(block[e, row] for e, row in enumerate(rows))
            values = sum(block[n + e, row] / block[e, row] for e, row in enumerate(rows) if block[e, row])
            total[0] += product
            total[1] += product * values
        found.append(total)
    return np.array(found).T


@pytest.mark.parametrize("kind", ["disjoint", "nested", "overlapping", "fractional"])
@pytest.mark.parametrize("n_events", [1, 2, 3])
def test_sums_of_rounds_by_brute_force(kind, n_events):
    events = make_events(n_events, kind == "disjoint" or n_events == 1)
    columns = draw_columns(kind, n_events, 5 * events.rows)
    found = events.sum_rounds(columns)
    np.testing.assert_allclose(found, loop(columns, events) / count_tuples(events), rtol=0, atol=1e-12)
    assert (found[0] <= 1 + 1e-12).all()


class Population:
    """A few kinds of rows, with their probabilities: weights and values in each event."""

    def __init__(self, chances, weights, values):
        self.chances, self.weights, self.values = (np.array(x, float) for x in (chances, weights, values))

    @property
    def means(self):
        """(n_events,): the conditional means that a rule is about."""
        shares = self.chances * self.weights
        return (shares * self.values).sum(axis=1) / shares.sum(axis=1)

    def expect_round(self, events, constant):
        """The mean payment, over all rounds that there are."""
        kinds = np.array(list(itertools.product(range(len(self.chances)), repeat=events.rows)))
        columns = np.concatenate([self.weights, self.weights * self.values])[:, kinds.ravel()]
        sums = events.sum_rounds(columns)
        paid = sums[1] + constant * sums[0]
        return float(self.chances[kinds].prod(axis=1) @ paid), paid


POPULATIONS = {
    "a mean": (Population([0.2, 0.3, 0.5], [[1, 1, 0]], [[0.3, 0.9, 0]]), True),
    "two groups": (
        Population([0.1, 0.2, 0.3, 0.4], [[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 0, 0, 0], [0, 0, -1, 0]]),
        True,
    ),
    "a group and all": (
        Population([0.1, 0.2, 0.3, 0.4], [[1, 1, 0, 0], [1, 1, 1, 1]], [[1, 0, 0, 0], [-1, 0, -1, 0]]),
        False,
    ),
    "overlapping": (
        Population([0.3, 0.3, 0.4], [[1, 1, 0], [0, 1, 1]], [[0.2, -0.5, 0], [0, 0.7, -0.1]]),
        False,
    ),
    "quotients": (
        Population([0.3, 0.3, 0.4], [[0.9, 0.2, 0.0], [0.5, 0.6, 1.0]], [[1, 0, 0], [-1, 0, -1]]),
        False,
    ),
    "three groups": (
        Population(
            [0.2, 0.3, 0.5], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0.4, 0, 0], [0, -0.3, 0], [0, 0, 1]]
        ),
        True,
    ),
    "three that overlap": (
        Population([0.6, 0.4], [[1, 0.5], [0.3, 1], [1, 1]], [[0.4, 0.1], [-1, -0.3], [0.6, -1]]),
        False,
    ),
}


@pytest.fixture
def short_rounds(monkeypatch):
    """Of so few rows that all rounds can be listed."""
    monkeypatch.setattr(rounds, "_ROWS", 4)
    monkeypatch.setattr(rounds, "_ROWS_PER_EVENT", 2)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("excess", [0.0, 0.1, -0.1])
def test_a_payment_has_the_mean_of_the_excess(name, excess, short_rounds):
    """It is E[a_e] E[a_f] (m_e + m_f + c) for each tuple: zero at the bound, above where it is broken, and
    below where the rule holds."""
    population, disjoint = POPULATIONS[name]
    n = len(population.weights)
    events = make_events(n, disjoint)
    constant = excess - population.means.sum()
    mean, _ = population.expect_round(events, constant)
    rows = events.rows
    tuples = {1: rows, 2: rows * (rows - 1)}.get(n, math.prod(range(rows, rows - n, -1)))
    if n > 2 and not disjoint:
        tuples = (rows / n) ** n  # dealt to the events in turn
    expected = tuples * (population.chances * population.weights).sum(axis=1).prod() * excess
    assert mean == pytest.approx(expected / count_tuples(events), abs=1e-12)


def test_a_round_of_full_length_has_the_mean_of_the_excess():
    """Two groups and eight rows, of which one kind is a row in both events: all 3^8 rounds."""
    population = Population([0.3, 0.3, 0.4], [[1, 1, 0], [0, 1, 1]], [[1, 0, 0], [0, -1, 0]])
    events = make_events(2, False)
    assert events.rows == 8
    mean, _ = population.expect_round(events, 0.05 - population.means.sum())
    assert mean == pytest.approx(0.6 * 0.7 * 0.05, abs=1e-12)


def test_rates_may_drift_from_row_to_row_at_the_same_gap(short_rounds):
    """Rows of one round from two seasons, of which each has the same gap: the mean payment is zero."""
    seasons = [np.array([0.3, 0.2]), np.array([0.8, 0.7])]  # acceptance in both groups
    events, total = make_events(2, True), 0.0
    kinds = list(itertools.product((0, 1), (0, 1)))  # group, decision
    for drawn in itertools.product(kinds, repeat=events.rows):
        chance = math.prod(
            0.5 * (seasons[i % 2][g] if d else 1 - seasons[i % 2][g]) for i, (g, d) in enumerate(drawn)
        )
        weights = np.eye(2)[:, [g for g, _ in drawn]]
        values = np.array([[1.0], [-1.0]]) * [d for _, d in drawn]
        sums = events.sum_rounds(np.concatenate([weights, weights * values]))
        total += chance * float(sums[1, 0] - 0.1 * sums[0, 0])
    assert total == pytest.approx(0.0, abs=1e-12)


def search_extremes(events, constant, draw, n_rounds=4000):
    """The least and the most that rounds of such columns come to."""
    sums = events.sum_rounds(draw(n_rounds * events.rows))
    paid = sums[1] + constant * sums[0]
    return float(paid.min()), float(paid.max())


@pytest.mark.parametrize("kind", ["disjoint", "nested", "overlapping", "fractional"])
@pytest.mark.parametrize("n_events", [1, 2, 3])
@pytest.mark.parametrize("constant", [-0.4, 0.0, 0.7])
def test_no_round_loses_or_gains_more_than_is_stated(kind, n_events, constant):
    events = make_events(n_events, kind == "disjoint" or n_events == 1)
    rng = np.random.default_rng(1)

    def draw(n_rows):
        columns = draw_columns(kind, n_events, n_rows, 2)
        ends = rng.choice([-1.0, 1.0], n_rows)  # extreme values, the same in all events of a row or round
        ends[: n_rows // 2] = np.repeat(rng.choice([-1.0, 1.0], n_rows // 2 // events.rows), events.rows)
        columns[n_events:] = columns[:n_events] * ends
        return columns

    low, high = search_extremes(events, constant, draw)
    assert -low <= events.find_largest_loss(constant) + 1e-12
    assert high <= events.find_largest_loss(constant, -1.0) + 1e-12


@pytest.mark.parametrize(("n_events", "disjoint"), [(1, True), (2, True), (2, False), (3, True)])
def test_what_is_stated_is_reached(n_events, disjoint):
    """By rows that are all at one end, shared evenly between the events."""
    events = make_events(n_events, disjoint)
    weights = np.ones((n_events, events.rows))
    if disjoint:
        weights = np.eye(n_events)[:, np.arange(events.rows) % n_events]
    for constant in (-0.4, 0.0, 0.7):
        lost, won = (events.sum_rounds(np.concatenate([weights, end * weights])) for end in (-1.0, 1.0))
        assert -(lost[1, 0] + constant * lost[0, 0]) == pytest.approx(events.find_largest_loss(constant))
        assert won[1, 0] + constant * won[0, 0] == pytest.approx(events.find_largest_loss(constant, -1.0))


@pytest.mark.parametrize("constant", [-0.95, -0.4, -0.05, 0.0, 0.05, 0.7])
def test_where_values_cancel_all_rounds_are_listed(constant):
    """A group against all: rows are in the group or not and accepted or not, so that only the four numbers of
    a round count. The largest loss and gain are exactly those of the worst and the best round."""
    cancelling = make_events(2, False, cancels=True)
    plain = Events(cancelling.limits, False, True)
    blocks = []
    for counts in itertools.product(range(9), repeat=4):
        if sum(counts) == 8:
            inside = np.repeat([1.0, 1.0, 0.0, 0.0], counts)
            accepted = np.repeat([1.0, 0.0, 1.0, 0.0], counts)
            blocks.append(np.stack([inside, np.ones(8), inside * accepted, -accepted]))
    sums = cancelling.sum_rounds(np.concatenate(blocks, axis=1))
    paid = sums[1] + constant * sums[0]
    assert -paid.min() <= cancelling.find_largest_loss(constant) + 1e-12
    assert paid.max() <= cancelling.find_largest_loss(constant, -1.0) + 1e-12
    if constant < 0:  # a bound that can hold and be broken: no round is called worse than the worst
        assert -paid.min() == pytest.approx(float(cancelling.find_largest_loss(constant)))
    assert cancelling.find_largest_loss(constant) <= plain.find_largest_loss(constant)


def test_losses_of_many_constants_are_those_of_each():
    events = make_events(2, False, cancels=True)
    constants = np.linspace(-0.9, 0.9, 7)
    found = events.find_largest_loss(constants)
    assert found == pytest.approx([float(events.find_largest_loss(float(c))) for c in constants])


def test_a_bound_at_the_end_of_its_range_has_a_loss():
    """A rule that no row can break by less than nothing: payments stay finite."""
    events = Events(((0.0, 1.0),))
    assert 0 < events.find_largest_loss(0.0) < 1e-4
    assert events.find_largest_loss(0.5) > 0


def test_events_have_the_limits_of_their_hypotheses():
    space = make_action_space("reject", (0, 1))
    one, two = error().given(g=0), error().given(g=1)

    def make(rate):
        return Events.of(Hypothesis.of(rate <= 0.1, space, {}), batched=False)

    events = make(one - 0.8 * two)
    assert (events.number, events.lowest, events.highest, events.rows) == (2, -0.8, 1.0, 8)
    assert (events.disjoint, events.binary, events.cancels) == (True, True, False)
    assert make(one).rows == 1
    assert make(one - two + error().given(g=2)).rows == 12
    assert make(one - error()).cancels


def test_rate_sums_by_hand():
    followed = follow_sums(np.arange(1.0, 6.0), np.array([[1.0, 2.0], [0.5, -1.5]]))
    assert followed[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert followed[:, 1].tolist() == [2, 2.5, 3.25, 4.5, 6]
    assert followed[:, 2].tolist() == [4, 1, 5.5, 1.5, 10]


@pytest.mark.parametrize("n_events", [1, 2, 3, 9])
def test_sums_do_not_depend_on_how_many_rounds_there_are(n_events):
    """To the last bit: rows are cut into updates at will."""
    events = make_events(n_events, False)
    columns = draw_columns("fractional", n_events, 20 * events.rows)
    together = events.sum_rounds(columns)
    alone = [events.sum_rounds(part) for part in np.split(columns, 20, axis=1)]
    assert together.tobytes() == np.concatenate(alone, axis=1).tobytes()


# Bets.


def list_rounds(population, events):
    """The chances and columns of all rounds that there are."""
    kinds = np.array(list(itertools.product(range(len(population.chances)), repeat=events.rows)))
    columns = np.concatenate([population.weights, population.weights * population.values])[:, kinds.ravel()]
    return population.chances[kinds].prod(axis=1), columns


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("guess", [-0.7, 0.0, 0.2, 0.9])
@pytest.mark.parametrize("excess", [0.0, -0.1])
def test_no_bet_wins_on_average_while_the_rule_holds(name, guess, excess, short_rounds):
    """Whatever was guessed, the mean factor of each alternative over all rounds is at most one."""
    population, disjoint = POPULATIONS[name]
    n = len(population.weights)
    binary = bool(np.isin(population.weights, (0, 1)).all())
    events = make_events(n, disjoint, binary=binary)
    constant = excess - population.means.sum()
    chances, columns = list_rounds(population, events)
    guesses = np.full((n, len(chances)), guess) * np.linspace(1, -0.5, n)[:, None]
    factors = events.find_factors(columns, events.sum_rounds(columns), constant, guesses)
    assert (factors > 0).all()
    assert (factors @ chances <= 1 + 1e-12).all()


def test_bets_on_rows_by_hand():
    """One row of the first group and two of the second: the first counts twice as much. Guesses are moved to
    where the gap is 0.1."""
    events = Events(((0.0, 1.0), (-1.0, 0.0)))
    weights = np.zeros((2, 8))
    weights[0, 0] = weights[1, 1] = weights[1, 2] = 1
    columns = np.concatenate([weights, weights * [[1.0], [-1.0]] * ([1, 1, 0] + [0] * 5)])
    factors = events.find_factors(columns, events.sum_rounds(columns), -0.1, np.array([[0.6], [-0.4]]))
    first, second = 0.6 - 2 / 3 * 0.1, -0.4 - 1 / 3 * 0.1
    for place, stake in enumerate(6 / 2 ** np.arange(7.0)):
        loss = max(2 / 3 * first, 1 / 3 * (second + 1))
        s = min(stake, 0.95 / loss)
        by_hand = (1 + s * 2 / 3 * (1 - first)) * (1 + s / 3 * (-1 - second)) * (1 + s / 3 * (0 - second))
        assert factors[place, 0] == pytest.approx(by_hand)


def test_rounds_without_one_of_the_groups_are_no_bets():
    events = Events(((0.0, 1.0), (-1.0, 0.0)))
    columns = np.repeat([[1.0], [0.0], [1.0], [0.0]], 8, axis=1)
    factors = events.find_factors(columns, events.sum_rounds(columns), -0.1, np.array([[0.6], [-0.4]]))
    assert (factors == 1).all()


@pytest.mark.parametrize("n_events", [1, 2, 3])
@pytest.mark.parametrize("disjoint", [True, False])
def test_a_batch_is_one_bounded_bet(n_events, disjoint):
    """Its mean, or that of its tuples, is at most as far from zero as is stated, whatever its size."""
    events = make_events(n_events, disjoint, binary=True, batched=True)
    for size in (1, 2, 7, 100):
        columns = draw_columns("disjoint" if disjoint else "overlapping", n_events, size, size)
        sums = events.sum_rounds(columns)
        factors = events.find_factors(columns, sums, -0.1, np.empty(0))
        assert factors.shape == (7, 1)
        assert (factors > 0.04).all()
        assert abs(sums[1, 0]) <= n_events * sums[0, 0] + 1e-12 <= n_events + 2e-12
    if n_events == 1:
        assert sums[1, 0] == pytest.approx(columns[1].sum() / columns[0].sum())
    elif n_events == 2 and disjoint:
        means = columns[2:].sum(axis=1) / columns[:2].sum(axis=1)
        assert sums[1, 0] == pytest.approx(means.sum())


def test_guesses_are_means_of_the_last_rows_before_the_round():
    """Each event has a guess of its own, and any cut gives the same bits."""
    events, rng = Events(((0.0, 1.0), (-1.0, 0.0))), np.random.default_rng(0)
    counts = rng.integers(0, 6, (2, 60)).astype(float)
    amounts = counts * rng.random((2, 60))
    totals = np.add.accumulate(np.column_stack([np.zeros(4), np.concatenate([counts, amounts])]), axis=1)
    begun = np.array(events.limits).mean(axis=1), np.zeros(4)
    whole, *after = follow_means(*begun, totals)
    state, parts = begun, []
    for begin, end in itertools.pairwise([0, 1, 17, 18, 44, 60]):
        part, *state = follow_means(*state, totals[:, begin : end + 1])
        parts.append(part)
    assert np.concatenate(parts, axis=1).tobytes() == whole.tobytes()
    assert all((one == other).all() for one, other in zip(state, after, strict=True))
    assert (whole[:, 0] == [0.5, -0.5]).all()
    first = int(np.argmax(totals[0] >= rounds._RECENT))
    assert (whole[0, :first] == 0.5).all()
    assert whole[0, first] == pytest.approx(amounts[0, :first].sum() / counts[0, :first].sum())
