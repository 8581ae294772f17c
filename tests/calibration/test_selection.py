"""Which map is chosen, and for which groups."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.special import expit, logit, softmax

from bylaw.calibration._calibration import GROUP_ROWS, Comparison, select_maps
from bylaw.calibration._maps import make_sample


def binary(p):
    return np.column_stack([1 - p, p])


def generated(n=6000, seed=0, spread=1.5):
    """True log-odds, and labels of them."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=n) * spread
    return truth, (rng.random(n) < expit(truth)).astype(int)


def log_loss(P, y, weights=None):
    return np.average(-np.log(P[np.arange(len(y)), y]), weights=weights)


def multiclass(n, K, factor, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, K)) * 1.5
    labels = (softmax(scores, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return softmax(factor * scores, axis=1), labels.clip(0, K - 1)


@pytest.mark.parametrize("seed", range(5))
def test_calibrated_scores_are_left_alone(seed):
    truth, y = generated(seed=seed)
    group = np.random.default_rng(seed).integers(0, 3, len(y))
    assert select_maps(binary(expit(truth)), y, np.ones(len(y)), {"g": group}) == (None, None, {})


def test_equal_scores_become_the_observed_frequencies():
    """No slope can be told from a bias where all scores are equal."""
    y = (np.random.default_rng(0).random(3000) < 0.3).astype(int)
    found = select_maps(np.full((3000, 2), 0.5), y, np.ones(3000), {})
    logs = np.log(np.full((2, 1), 0.5))
    scores = found.pooled.bias[:, None] + found.pooled.weights @ logs
    # The penalty on biases moves the share by less than one row in a thousand.
    assert softmax(scores[:, 0])[1] == pytest.approx(y.mean(), abs=1e-3)


@pytest.mark.parametrize("factor", [0.3, 20.0])
def test_a_wrong_temperature_is_corrected_by_a_temperature(factor):
    P, y = multiclass(6000, 4, factor)
    found = select_maps(P, y, np.ones(len(y)), {})
    assert found.pooled is not None
    assert found.pooled.method == "temperature"
    assert 1 / found.pooled.weights[0, 0] == pytest.approx(factor, rel=0.1)


def test_a_shifted_class_takes_a_bias():
    P, y = multiclass(8000, 3, 1.0)
    shifted = softmax(np.log(P) + np.array([1.5, 0, 0]), axis=1)
    found = select_maps(shifted, y, np.ones(len(y)), {}).pooled
    assert found is not None
    assert found.method == "vector"
    assert log_loss(found.apply(shifted), y) < log_loss(P, y) + 0.002


def test_a_monotone_distortion_takes_a_monotone_map():
    truth, y = generated(20_000)
    distorted = binary(expit(np.where(truth > 0, 6 * truth, truth / 3) + np.sign(truth)))
    found = select_maps(distorted, y, np.ones(len(y)), {}).pooled
    assert found is not None
    assert found.method == "isotonic"
    fresh, labels = generated(20_000, seed=1)
    again = binary(expit(np.where(fresh > 0, 6 * fresh, fresh / 3) + np.sign(fresh)))
    best = log_loss(binary(expit(fresh)), labels)
    assert log_loss(found.apply(again), labels) < best + 0.002
    simple = select_maps(distorted, y, np.ones(len(y)), {}, "temperature").pooled
    assert simple is not None
    assert log_loss(simple.apply(again), labels) > best + 0.02
    assert log_loss(again, labels) > best + 0.1


def test_classes_that_are_mixed_up_take_a_full_matrix():
    P, y = multiclass(12_000, 3, 1.0)
    mixed = softmax(np.log(P) @ np.array([[1.0, 0.5, 0], [0, 1, -0.5], [0.3, 0, 1]]), axis=1)
    found = select_maps(mixed, y, np.ones(len(y)), {}).pooled
    assert found is not None
    assert found.method == "dirichlet"
    assert log_loss(found.apply(mixed), y) < log_loss(P, y) + 0.002


def test_groups_get_their_own_maps_where_that_is_better():
    truth, y = generated(6000)
    group = np.random.default_rng(0).integers(0, 2, len(y))
    other = np.random.default_rng(1).integers(0, 2, len(y))
    biased = binary(expit(truth + np.where(group == 1, 1.0, -1.0)))
    found = select_maps(biased, y, np.ones(len(y)), {"other": other, "g": group})
    assert found.by == "g"
    assert sorted(found.maps) == [0, 1]
    calibrated = np.where((group == 1)[:, None], found.maps[1].apply(biased), found.maps[0].apply(biased))
    assert log_loss(calibrated, y) < log_loss(binary(expit(truth)), y) + 0.002
    alone = select_maps(biased, y, np.ones(len(y)), {"other": other})
    assert alone.by is None


def test_a_small_group_gets_the_map_of_all():
    truth, y = generated(4000)
    group = np.repeat([0, 1, 2], [1900, 2100 - GROUP_ROWS + 1, GROUP_ROWS - 1])
    biased = binary(expit(truth + np.array([1.0, -1.0, 0.0])[group]))
    found = select_maps(biased, y, np.ones(len(y)), {"g": group})
    assert found.by == "g"
    assert sorted(found.maps) == [0, 1]


def test_rows_without_an_observation_teach_nothing():
    P, y = multiclass(4000, 3, 5.0)
    hidden = np.arange(4000) % 2 == 0
    seen = select_maps(P[~hidden], y[~hidden], np.ones(2000), {}).pooled
    partly = select_maps(P, np.where(hidden, -1, y), np.ones(4000), {}).pooled
    assert seen is not None
    assert partly is not None
    assert partly.to_dict() == seen.to_dict()
    unweighted = select_maps(P, y, (~hidden).astype(float), {}).pooled
    assert unweighted is not None
    assert unweighted.to_dict() == seen.to_dict()


def test_weights_are_respected():
    """Rows of weight nine have labels of sharp scores, the others of flat ones."""
    truth, _ = generated(8000)
    rng = np.random.default_rng(2)
    heavy = rng.random(8000) < 0.5
    y = (rng.random(8000) < expit(np.where(heavy, 2.0, 0.2) * truth)).astype(int)
    slopes = {}
    for name, weights in (("heavy", np.where(heavy, 9.0, 0.1)), ("light", np.where(heavy, 0.1, 9.0))):
        found = select_maps(binary(expit(truth)), y, weights, {}, "temperature").pooled
        assert found is not None
        slopes[name] = found.weights[0, 0]
    assert slopes["heavy"] > 1.7
    assert slopes["light"] < 0.4


@pytest.mark.parametrize("n", [1, 50])
def test_few_rows_choose_nothing(n):
    P, y = multiclass(n, 3, 20.0)
    assert select_maps(P, y, np.ones(n), {}).pooled is None


def test_one_kind_of_label_teaches_nothing():
    P, _ = multiclass(500, 3, 20.0)
    assert select_maps(P, np.ones(500, dtype=int), np.ones(500), {}).pooled is None


def test_a_class_that_was_never_seen_is_unlikely():
    P, y = multiclass(4000, 4, 3.0)
    kept = y != 3
    found = select_maps(P[kept], y[kept], np.ones(kept.sum()), {}).pooled
    assert found is not None
    calibrated = found.apply(P[kept])
    assert np.isfinite(calibrated).all()
    assert calibrated[:, 3].mean() < 0.02


def test_the_choice_is_the_same_every_time():
    P, y = multiclass(3000, 3, 3.0)
    one, other = (select_maps(P, y, np.ones(3000), {}, "isotonic").pooled for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.to_dict() == other.to_dict()


def test_folds_are_stratified():
    _, y = multiclass(999, 3, 1.0)
    comparison = Comparison(make_sample(np.full((999, 3), 1 / 3), y, np.ones(999)))
    for k in range(3):
        counts = np.bincount(comparison.folds[y == k], minlength=4)
        assert counts.max() - counts.min() <= 1


def test_the_losses_of_a_fold_do_not_depend_on_its_labels():
    """Each row's loss comes from a map that was fitted on other rows."""
    P, y = multiclass(400, 2, 3.0)
    comparison = Comparison(make_sample(P, y, np.ones(400)))
    fold = int(comparison.folds[0])
    fitted = comparison.cross_fit("vector")[fold]
    rows = np.flatnonzero(comparison.folds == fold)
    part = comparison.sample.rows(rows)
    assert comparison.losses("vector")[rows] == pytest.approx(part.losses(fitted.scores(part)))
    in_sample = np.mean(
        [comparison.sample.losses(f.scores(comparison.sample)).mean() for f in comparison.cross_fit("vector")]
    )
    assert comparison.losses("vector").mean() > in_sample


@pytest.mark.slow
@pytest.mark.parametrize(("n", "K"), [(200_000, 5), (8000, 100)])
def test_many_rows_and_classes_take_seconds(n, K):
    P, y = multiclass(n, K, 3.0)
    began = time.process_time()
    found = select_maps(P, y, np.ones(n), {"g": np.arange(n) % 3})
    assert time.process_time() - began < 20  # a few seconds at most
    assert found.pooled is not None
    assert found.pooled.method == "temperature"


def test_logits_far_beyond_ordinary_ones_keep_their_order():
    """Probabilities of 1 - 1e-40 still tell rows apart, by their other side."""
    truth, y = generated(6000, spread=2.0)
    sharp = binary(expit(40 * truth))
    sharp[:, 0] = expit(-40 * truth)
    found = select_maps(sharp, y, np.ones(len(y)), {}).pooled
    assert found is not None
    calibrated = found.apply(sharp)[:, 1]
    inside = np.abs(truth) < 5
    order = np.argsort(truth[inside])
    assert (np.diff(calibrated[inside][order]) > 0).all()
    assert np.abs(logit(calibrated[inside]) - truth[inside]).mean() < 0.2


def test_log_odds_far_from_zero_are_calibrated():
    """No temperature alone brings log-odds of 35 to frequencies of a fifth."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=4000)
    labels = (rng.random(4000) < 1 / (1 + np.exp(1.5 - 1.2 * z))).astype(int)
    rest = 1 / (1 + np.exp(35 + 12 * z))
    found = select_maps(np.column_stack([rest, 1 - rest]), labels, np.ones(4000), {})
    calibrated = found.pooled.apply(np.column_stack([rest, 1 - rest]))[:, 1]
    for part in np.array_split(np.argsort(z), 4):
        noise = labels[part].std() / np.sqrt(len(part))
        assert calibrated[part].mean() == pytest.approx(labels[part].mean(), abs=3 * noise)


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 500])
def test_calibrated_scores_are_hardly_ever_moved(n):
    """A map that moves decisions must be significantly better: it would fit noise."""
    moved = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, n])
        chance = 1 / (1 + np.exp(-1.5 * rng.normal(size=n)))
        labels = (rng.random(n) < chance).astype(int)
        found = select_maps(np.column_stack([1 - chance, chance]), labels, np.ones(n), {}).pooled
        moved += found is not None and found.method != "temperature"
    assert moved <= 3
