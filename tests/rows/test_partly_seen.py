"""Labels and groups that some rows show and others do not: prediction-powered rates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from bylaw import Evidence, EvidenceError, Problem, custom, disagreement, error, selected
from bylaw.errors import OptionError
from bylaw.program import compile_problem, compute_row_rates, make_blocks, standard_error
from bylaw.program._linear_form import measure_frequency
from bylaw.rows import KnownGroup, observe

SPACE = Problem(error()).action_space((0, 1))
RATES = {
    "error": error(),
    "error given group": error().given(s=1),
    "parity": selected(1).given(s=1) - selected(1),
    "odds": selected(1).given(s=1, label=1) - selected(1).given(label=1),
    "gap": error().given(s=1) - error().given(s=0),
}


def draw_people(n_rows, rng):
    x = rng.normal(size=n_rows)
    s = (rng.random(n_rows) < 1 / (1 + np.exp(-x))).astype(int)
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-(1.5 * x - 0.5 + 0.8 * s)))).astype(int)
    return x, s, y


def predict(x, weights=None):
    """Evidence from a model that is wrong about labels and groups."""
    group = 1 / (1 + np.exp(-0.8 * x))
    label = [1 / (1 + np.exp(-(x + 0.3 * s))) for s in (0, 1)]
    share = [1 - group, group]
    joint = np.stack(
        [np.column_stack([(1 - p) * q, p * q]) for p, q in zip(label, share, strict=True)], axis=1
    )
    return Evidence(
        joint.sum(axis=1), groups={"s": {0: 1 - group, 1: group}}, joint={"s": joint}, weights=weights
    )


def decide(x):
    chance = 1 / (1 + np.exp(-3 * x))
    return np.column_stack([1 - chance, chance])


def measure(rate, rows, x):
    return float(np.average(compute_row_rates(rate, rows, decide(x), SPACE), weights=rows.weights))


@pytest.fixture(scope="module")
def truth():
    x, s, y = draw_people(400_000, np.random.default_rng(1))
    rows = observe(predict(x).with_observed(labels=y, true_groups={"s": s}))
    return {name: measure(rate, rows, x) for name, rate in RATES.items()}


def simulate(repeats, see, n_rows=2000, propensity_weights=None):
    """Estimates and standard errors of all rates, over samples of which `see(x, rng)` tells what is shown."""
    estimates, errors = [], []
    for seed in range(repeats):
        rng = np.random.default_rng([7, seed])
        x, s, y = draw_people(n_rows, rng)
        label, group = see(x, rng)
        rows = observe(
            predict(x).with_observed(
                labels=np.where(label, y, np.nan),
                true_groups={"s": np.ma.MaskedArray(s, mask=~group)},
                propensity_weights=None if propensity_weights is None else propensity_weights(x),
            )
        )
        estimates.append([measure(rate, rows, x) for rate in RATES.values()])
        errors.append([standard_error(rate, rows, decide(x), SPACE) for rate in RATES.values()])
    return np.array(estimates), np.array(errors)


def see_together(x, rng):
    shown = rng.random(len(x)) < 0.1
    return shown, shown


def see_apart(x, rng):
    return rng.random(len(x)) < 0.15, rng.random(len(x)) < 0.4


def see_nested(x, rng):
    group = rng.random(len(x)) < 0.5
    return group & (rng.random(len(x)) < 0.3), group


@pytest.mark.slow
@pytest.mark.parametrize("see", [see_together, see_apart, see_nested])
def test_rates_are_right_on_average_and_vary_as_their_standard_errors_state(see, truth):
    estimates, errors = simulate(80, see)
    spread = estimates.std(axis=0, ddof=1)
    bias = (estimates.mean(axis=0) - list(truth.values())) / (spread / np.sqrt(80))
    assert np.abs(bias).max() < 3.3, bias
    ratio = np.median(errors, axis=0) / spread  # the standard error of a standard deviation of 80 is 8 %
    assert ratio.min() > 0.76, ratio
    assert ratio.max() < 1.32, ratio


def _see_by_x(x, rng):
    shown = rng.random(len(x)) < _chance_seen(x)
    return shown, shown


def _chance_seen(x):
    return 0.03 + 0.4 / (1 + np.exp(-2 * x))


@pytest.mark.slow
def test_where_seeing_depends_on_x_its_weights_take_away_the_bias(truth):
    estimates, _ = simulate(80, _see_by_x, propensity_weights=lambda x: 1 / _chance_seen(x))
    error_of_mean = estimates.std(axis=0, ddof=1) / np.sqrt(80)
    bias = estimates.mean(axis=0) - list(truth.values())
    assert np.abs(bias / error_of_mean).max() < 3.3
    without, _ = simulate(80, _see_by_x)
    left = without.mean(axis=0) - list(truth.values())
    assert np.abs(left / error_of_mean).max() > 5


@pytest.mark.slow
def test_unseen_rows_narrow_a_rate_that_is_predicted_well():
    rng = np.random.default_rng(3)
    estimates, alone = [], []
    for _ in range(100):
        x, _, y = draw_people(2000, rng)
        shown = rng.random(2000) < 0.1
        rows = observe(predict(x).with_observed(labels=np.where(shown, y, np.nan)))
        estimates.append(measure(error(), rows, x))
        few = np.flatnonzero(shown)
        alone.append(measure(error(), observe(predict(x[few]).with_observed(labels=y[few])), x[few]))
    assert np.std(estimates) < 0.9 * np.std(alone)


def make_rows(n_rows=400, share=0.3, seed=0, weights=False):
    rng = np.random.default_rng(seed)
    x, s, y = draw_people(n_rows, rng)
    shown = rng.random(n_rows) < share
    return x, s, y, shown, predict(x, rng.integers(1, 4, n_rows).astype(float) if weights else None)


def test_rates_with_everything_seen_are_as_before():
    _, s, y, _, evidence = make_rows(weights=True)
    plain = observe(evidence.with_observed(labels=y, true_groups={"s": s}))
    objects = observe(evidence.with_observed(labels=y.astype(object), true_groups={"s": s.astype(object)}))
    assert plain.partly is None
    assert objects.partly is None
    for rows in (plain, objects):
        assert rows.event_probability((("label", 1), ("s", 1))).tolist() == ((y == 1) & (s == 1)).tolist()


@pytest.mark.parametrize(
    "spell",
    [
        lambda y, shown: [int(v) if k else None for v, k in zip(y, shown, strict=True)],
        lambda y, shown: np.where(shown, y, np.nan),
        lambda y, shown: np.where(shown, y, None),
        lambda y, shown: np.ma.MaskedArray(y, mask=~shown),
        lambda y, shown: pd.Series(y).where(shown),
        lambda y, shown: pd.Series(y, dtype="Int64").where(shown),
        lambda y, shown: pd.Series(np.where(shown, y, None), dtype=object),
        lambda y, shown: pd.Series([int(v) if k else pd.NaT for v, k in zip(y, shown, strict=True)]),
        lambda y, shown: pl.Series([int(v) if k else None for v, k in zip(y, shown, strict=True)]),
        lambda y, shown: pl.Series(np.where(shown, y, np.nan)),
    ],
)
def test_missing_in_every_spelling(spell):
    _, s, y, shown, evidence = make_rows(60)
    first = observe(
        evidence.with_observed(
            labels=np.where(shown, y, np.nan), true_groups={"s": np.where(shown, s, np.nan)}
        )
    )
    rows = observe(evidence.with_observed(labels=spell(y, shown), true_groups={"s": spell(s, shown)}))
    assert rows.seen["label"].tolist() == rows.seen["s"].tolist() == shown.tolist()
    for event in ((("label", 1),), (("s", 1),), (("label", 1), ("s", 0))):
        assert rows.event_probability(event) == pytest.approx(first.event_probability(event))


def test_missing_text():
    probabilities = [[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]
    evidence = Evidence(probabilities, classes=["no", "yes"], groups={"d": {"a": [0.5] * 3, "b": [0.5] * 3}})
    for labels in (["no", None, "yes"], ["no", np.nan, "yes"], pl.Series(["no", None, "yes"])):
        rows = observe(
            evidence.with_observed(
                labels=labels, true_groups={"d": pd.Series(["a", "b", None], dtype="string")}
            )
        )
        assert rows.event_probability((("label", "yes"),)) == pytest.approx([-0.15, 0.8, 1.25])
        assert rows.event_probability((("d", "b"),)) == pytest.approx([-0.25, 1.25, 0.5])


def test_an_unknown_label_is_named_and_missing_ones_are_not():
    _, _, _, _, evidence = make_rows(4)
    with pytest.raises(EvidenceError, match="labels: 2 in row 2 is not a class"):
        observe(evidence.with_observed(labels=[0, None, 2, None]))
    with pytest.raises(EvidenceError, match=r"values without probabilities: \['7'\]"):
        observe(evidence.with_observed(true_groups={"s": [7, None, 1, 0]}))


def test_what_no_row_shows_counts_as_not_given():
    _, _, _, _, evidence = make_rows(5)
    rows = observe(evidence.with_observed(labels=[None] * 5, true_groups={"s": [np.nan] * 5}))
    assert rows.partly is None
    assert rows.unseen == {"label", "s"}
    assert rows.event_probability((("label", 1),)) == pytest.approx(evidence.probabilities[:, 1])
    assert observe(evidence.with_observed(labels=[0, 1, 1, 0, None])).unseen == {"s"}


def test_parts_of_the_rows_keep_what_each_counts():
    _, s, y, shown, evidence = make_rows(weights=True)
    rows = observe(
        evidence.with_observed(
            labels=np.where(shown, y, np.nan), true_groups={"s": np.where(shown, s, np.nan)}
        )
    )
    event = (("label", 1), ("s", 1))
    whole = rows.event_probability(event)
    assert rows.event_probability(event, slice(3, None, 7)) == pytest.approx(whole[3::7])
    part = np.array([5, 300, 2, 77])
    few = rows.rows(part)
    assert few.event_probability(event) == pytest.approx(whole[part])
    assert few.rows(slice(1, 3)).event_probability(event) == pytest.approx(whole[part][1:3])
    assert few.seen["s"].tolist() == shown[part].tolist()
    form = compile_problem(Problem(error(), [RATES["odds"] <= 0.1]), rows)
    blocks = make_blocks(form, rows)
    place = [feature.event for feature in form.feature_map.features].index(event)
    found = np.concatenate([block.features[place] for block in blocks])
    assert sorted(found) == pytest.approx(sorted(whole))


def test_labels_of_a_group_add_up_to_the_group_whichever_rows_show_them():
    x, s, y, shown, evidence = make_rows()
    label = np.random.default_rng(5).random(len(x)) < 0.5
    rows = observe(
        evidence.with_observed(
            labels=np.where(label, y, np.nan), true_groups={"s": np.where(shown, s, np.nan)}
        )
    )
    total = sum(rows.event_probability((("label", k), ("s", 1))) for k in (0, 1))
    assert total == pytest.approx(rows.event_probability((("s", 1),)))


def test_only_one_of_label_and_group_has_missing_values():
    x, s, y, shown, evidence = make_rows(weights=True)
    weights = evidence.weights
    rho = np.average(shown, weights=weights)
    group = observe(evidence.with_observed(labels=y, true_groups={"s": np.where(shown, s, np.nan)}))
    given = evidence.joint["s"][np.arange(len(x)), 1, y] / evidence.probabilities[np.arange(len(x)), y]
    predicted = np.where(y == 1, given, 0)
    wanted = predicted + shown / rho * ((s == 1) & (y == 1)) - shown / rho * predicted
    assert group.event_probability((("label", 1), ("s", 1))) == pytest.approx(wanted)
    label = observe(evidence.with_observed(labels=np.where(shown, y, np.nan), true_groups={"s": s}))
    joint = evidence.joint["s"][np.arange(len(x)), s]
    predicted = (s == 1) * joint[:, 1] / joint.sum(axis=1)
    wanted = predicted + shown / rho * ((s == 1) & (y == 1)) - shown / rho * predicted
    assert label.event_probability((("label", 1), ("s", 1))) == pytest.approx(wanted)
    assert label.event_probability((("s", 1),)).tolist() == (s == 1).tolist()


def test_intersections_of_which_one_attribute_is_missing():
    rng = np.random.default_rng(2)
    n = 50
    cells = rng.dirichlet(np.ones(4), size=n)
    pairs = [("F", 0), ("F", 1), ("M", 0), ("M", 1)]
    evidence = Evidence(
        np.full((n, 2), 0.5), groups={("s", "r"): {pair: cells[:, i] for i, pair in enumerate(pairs)}}
    )
    s, r, shown = rng.choice(["F", "M"], n), rng.integers(0, 2, n), rng.random(n) < 0.5
    rows = observe(evidence.with_observed(true_groups={"s": s, "r": np.where(shown, r, np.nan)}))
    given = np.where(s == "F", cells[:, 1] / cells[:, :2].sum(axis=1), 0)
    wanted = given + shown / shown.mean() * (((s == "F") & (r == 1)) - given)
    assert rows.event_probability((("r", 1), ("s", "F"))) == pytest.approx(wanted)
    both = observe(
        evidence.with_observed(true_groups={"s": np.where(shown, s, None), "r": np.where(shown, r, np.nan)})
    )
    wanted = cells[:, 1] + shown / shown.mean() * (((s == "F") & (r == 1)) - cells[:, 1])
    assert both.event_probability((("r", 1), ("s", "F"))) == pytest.approx(wanted)


def test_sources_multiply_what_was_seen():
    x, s, y, shown, evidence = make_rows()
    costs = np.random.default_rng(0).random((len(x), 2))
    evidence = evidence.with_columns(references={"old": (x > 0).astype(int)}, costs={"visit": costs})
    rows = observe(
        evidence.with_observed(
            labels=np.where(shown, y, np.nan), true_groups={"s": np.where(shown, s, np.nan)}
        )
    )
    rate = disagreement("old").given(s=1) + custom("visit").given(label=1)
    group, label = rows.event_probability((("s", 1),)), rows.event_probability((("label", 1),))
    chance = decide(x)
    old = 1 - np.where(x > 0, chance[:, 1], chance[:, 0])
    wanted = (old * group).mean() / group.mean() + (
        (costs * chance).sum(axis=1) * label
    ).mean() / label.mean()
    assert measure(rate, rows, x) == pytest.approx(wanted)


def test_a_group_of_which_the_evidence_knows_nothing_has_its_share_among_the_rows_that_show_it():
    _, s, y, shown, _ = make_rows(weights=True)
    evidence = make_rows(weights=True)[4].with_columns(groups={}, joint={})
    rows = observe(evidence.with_observed(labels=y, true_groups={"s": np.where(shown, s, np.nan)}))
    share = np.average(s[shown], weights=evidence.weights[shown])
    assert measure_frequency((("s", 1),), rows) == pytest.approx(share)
    both = np.average((s * y)[shown], weights=evidence.weights[shown])
    assert measure_frequency((("label", 1), ("s", 1)), rows) == pytest.approx(both, abs=0.1)


def test_an_event_that_was_hardly_seen():
    evidence = Evidence(
        [[0.9, 0.1]] * 4, groups={"s": {"a": [0.9, 0.1, 0.1, 0.1], "b": [0.1, 0.9, 0.9, 0.9]}}
    )
    rows = observe(evidence.with_observed(true_groups={"s": ["b", None, None, None]}))
    assert rows.event_probability((("s", "a"),)).mean() < 0
    with pytest.raises(EvidenceError, match=r"s='a', but too few of them were observed"):
        compile_problem(Problem(error(), [selected(1).given(s="a") <= 0.2]), rows)
    apart = observe(
        make_rows(4)[4].with_observed(labels=[0, None, None, 1], true_groups={"s": [None, 0, 1, None]})
    )
    with pytest.raises(
        EvidenceError, match="label and s, but no row with positive weight has observed values of all"
    ):
        apart.event_probability((("label", 1), ("s", 1)))


def test_weights_of_being_seen():
    _, _, y, _, evidence = make_rows(6)
    labels = [0, 1, None, None, 1, None]
    weights = [2.0, 1.0, None, np.nan, 4.0, None]
    rows = observe(evidence.with_observed(labels=labels, propensity_weights=weights))
    r = np.array([2, 1, 0, 0, 4, 0]) / (7 / 6)
    p = evidence.probabilities[:, 1]
    assert rows.event_probability((("label", 1),)) == pytest.approx(p + r * ([0, 1, 0, 0, 1, 0] - p))
    assert rows.restrict(["label"]).weights.tolist() == [2, 1, 4]
    assert rows.seen_share((("label", 1),)) == 0.5
    for wrong in ([1, 1, 1, 1, 0, 1], [1, np.nan, 1, 1, 1, 1], [1, np.inf, 1, 1, 1, 1]):
        with pytest.raises(EvidenceError, match="finite and positive"):
            observe(evidence.with_observed(labels=labels, propensity_weights=wrong))
    with pytest.raises(EvidenceError, match="must be numbers"):
        observe(evidence.with_observed(labels=labels, propensity_weights=list("abcdef")))
    with pytest.raises(OptionError, match="no label or group is missing"):
        observe(evidence.with_observed(labels=y, propensity_weights=np.ones(6)))


def test_rows_restricted_to_those_that_show_something():
    x, s, y, shown, evidence = make_rows(weights=True)
    label = np.random.default_rng(5).random(len(x)) < 0.5
    rows = observe(
        evidence.with_observed(
            labels=np.where(label, y, np.nan), true_groups={"s": np.where(shown, s, np.nan)}
        )
    )
    both = np.flatnonzero(label & shown)
    found, places = rows.restrict_with_places(["label", "s"])
    assert places.tolist() == both.tolist()
    assert found.partly is None
    plain = observe(evidence.rows(both).with_observed(labels=y[both], true_groups={"s": s[both]}))
    event = (("label", 1), ("s", 1))
    assert found.event_probability(event).tolist() == plain.event_probability(event).tolist()
    assert found.weights.tolist() == plain.weights.tolist()
    one = rows.rows(slice(0, 100)).restrict(["label"])
    assert len(one) == label[:100].sum()
    assert one.unseen == {"s"}
    assert rows.restrict(["elsewhere"]) is rows


def test_groups_that_are_missing_on_some_rows_come_encoded_too():
    _, s, _, shown, evidence = make_rows(50)
    plain = observe(evidence.with_observed(true_groups={"s": np.where(shown, s, np.nan)}))
    partly = KnownGroup((0, 1), np.where(shown, s, -1))
    assert observe(evidence.with_observed(true_groups={"s": partly})).event_probability(
        (("s", 1),)
    ) == pytest.approx(plain.event_probability((("s", 1),)))
