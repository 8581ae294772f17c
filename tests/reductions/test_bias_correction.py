"""Observed rates obey the rules, where the probabilities alone would mislead."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import beta, norm

from bylaw import (
    ConvergenceWarning,
    Evidence,
    EvidenceError,
    GuaranteeWarning,
    InfeasibleRulesError,
    OptionError,
    Problem,
    accepted,
    demographic_parity,
    equalized_odds,
    error,
    miscoverage,
    precision,
    recall,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.program import Status
from bylaw.reductions._observe import _draw_shrinkage
from helpers.generated_rows import Rows
from helpers.reference import softmax


def gap(distribution, groups):
    """Worst difference in selection between a group and all rows, written out."""
    return max(
        np.abs(distribution[groups == s].mean(axis=0) - distribution.mean(axis=0)).max() for s in (0, 1)
    )


class Misled:
    """Rows whose probabilities are too sure of labels and too shy about groups."""

    def __init__(self, n=6000, K=3, seed=0):
        truth = Rows(n=n, K=K, S=2, seed=seed)
        rng = np.random.default_rng(seed + 1)
        cells = truth.joint.reshape(n, -1)
        drawn = (rng.random(n)[:, None] > cells.cumsum(axis=1)).sum(axis=1).clip(0, cells.shape[1] - 1)
        self.groups, self.labels = np.divmod(drawn, K)
        self.P = softmax(2.5 * np.log(truth.P))
        self.T = softmax(0.5 * np.log(truth.T))
        self.joint = self.T[:, :, None] * self.P[:, None, :]
        self.evidence = Evidence(self.P, groups={"s": dict(enumerate(self.T.T))}, joint={"s": self.joint})

    def gaps(self, distribution):
        return gap(distribution, self.groups)

    def odds(self, distribution):
        cells = [(s, t) for s in (0, 1) for t in range(self.P.shape[1])]
        return max(
            np.abs(
                distribution[(self.groups == s) & (self.labels == t)].mean(0)
                - distribution[self.labels == t].mean(0)
            ).max()
            for s, t in cells
        )

    def error(self, distribution):
        return (
            distribution[:, : self.P.shape[1]].sum(axis=1).mean()
            - distribution[np.arange(len(distribution)), self.labels].mean()
        )


@pytest.fixture(scope="module")
def rows():
    return Misled()


def test_groups_that_were_seen_are_treated_alike(rows):
    problem = Problem(error(), [demographic_parity("s", tol=0.01)])
    plain = solve(problem, rows.evidence).probabilities(rows.evidence)
    policy = solve(problem, rows.evidence, groups={"s": rows.groups})
    assert rows.gaps(plain) > 0.02
    assert rows.gaps(policy.probabilities(rows.evidence)) < 0.0106
    assert max(policy.tightened.values()) > 0.005
    assert policy.problem == problem


def test_labels_that_were_seen_are_counted(rows):
    problem = Problem(rejected(), [error() <= 0.2])
    plain = solve(problem, rows.evidence).probabilities(rows.evidence)
    distribution = solve(problem, rows.evidence, labels=rows.labels).probabilities(rows.evidence)
    assert rows.error(plain) > 0.25
    assert rows.error(distribution) == pytest.approx(0.2, abs=6e-4)


@pytest.mark.slow
def test_groups_and_labels_together(rows):
    problem = Problem(error(), [equalized_odds("s", tol=0.03)])
    plain = solve(problem, rows.evidence).probabilities(rows.evidence)
    distribution = solve(problem, rows.evidence, labels=rows.labels, groups={"s": rows.groups}).probabilities(
        rows.evidence
    )
    assert rows.odds(plain) > 0.04
    assert rows.odds(distribution) < 0.0306


def test_a_rule_that_is_held_too_far_is_loosened(rows):
    shy = Evidence(softmax(0.3 * np.log(rows.P)))
    problem = Problem(rejected(), [error() <= 0.1 * accepted()])
    plain, corrected = (
        solve(problem, shy, labels=labels).probabilities(shy) for labels in (None, rows.labels)
    )
    answered = [distribution[:, :3].sum(axis=1).mean() for distribution in (plain, corrected)]
    assert rows.error(plain) / answered[0] < 0.07
    assert rows.error(corrected) / answered[1] == pytest.approx(0.1, abs=6e-3)
    assert answered[1] > 1.5 * answered[0]


def test_sets_that_cover_as_often_as_they_say(rows):
    problem = Problem(size(), [miscoverage() <= 0.1])
    distribution = solve(problem, rows.evidence, labels=rows.labels).probabilities(rows.evidence)
    missed = 1 - distribution[np.arange(len(distribution)), rows.labels].mean()
    assert 0.1 - 1.1e-3 <= missed <= 0.1 + 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_a_guessed_group_obeys_as_it_was_seen_not_only_nearly(seed):
    """Where the guesses are off, each step overshoots or falls short a little; the last one is inside."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(1500) < 0.45, "F", "M")
    z = rng.normal(size=(1500, 3)) + 0.5 * (sex == "F")[:, None] * np.array([1, 0, -1])
    P = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    man = 1 / (1 + np.exp(-(z @ [-0.6, 0.1, 0.5] + 0.2)))
    evidence = Evidence(P, groups={"sex": {"F": 1 - man, "M": man}})
    problem = Problem(error(), [demographic_parity("sex", tol=0.02)])
    distribution = solve(problem, evidence, groups={"sex": sex}).probabilities(evidence)
    gap = max(
        np.abs(distribution[sex == s].mean(axis=0) - distribution.mean(axis=0)).max() for s in ("F", "M")
    )
    assert 0.02 - 2e-3 < gap <= 0.02 + 1e-6


def test_a_rule_of_which_not_everything_was_seen_is_left_alone(rows):
    problem = Problem(error(), [equalized_odds("s", tol=0.03)])
    plain = solve(problem, rows.evidence)
    by_groups = solve(problem, rows.evidence, groups={"s": rows.groups}, calibrate="none")
    by_labels = solve(problem, rows.evidence, labels=rows.labels, calibrate="none")
    for policy in (by_groups, by_labels):
        assert not any(policy.tightened.values())
        assert np.array_equal(policy.score_matrix, plain.score_matrix)


def test_nothing_to_correct_changes_nothing(rows):
    problem = Problem(error(), [rejected() <= 0.1])
    plain = solve(problem, rows.evidence)
    corrected = solve(problem, rows.evidence, labels=rows.labels, calibrate="none")
    assert np.array_equal(plain.score_matrix, corrected.score_matrix)


def test_weights_count_in_observed_rates(rows):
    weights = np.where(rows.labels == 0, 3.0, 1.0)
    evidence = rows.evidence.with_columns(weights=weights)
    distribution = solve(
        Problem(error(), [demographic_parity("s", tol=0.01)]), evidence, groups={"s": rows.groups}
    ).probabilities(evidence)
    overall = np.average(distribution, axis=0, weights=weights)
    for s in (0, 1):
        mine = rows.groups == s
        gap = np.abs(np.average(distribution[mine], axis=0, weights=weights[mine]) - overall).max()
        assert gap < 0.0106


@pytest.mark.slow
def test_a_margin_in_standard_errors_holds_on_new_rows():
    problem = Problem(error(), [demographic_parity("s", tol=0.05)])
    excess = {0.0: [], 2.0: []}
    for seed in range(5):
        rows = Misled(22_000, seed=seed)
        here, there = rows.evidence.rows(slice(2000)), rows.evidence.rows(slice(2000, None))
        for margin, found in excess.items():
            policy = solve(problem, here, groups={"s": rows.groups[:2000]}, margin=margin)
            distribution = policy.probabilities(there)
            found.append(gap(distribution, rows.groups[2000:]) - 0.05)
    assert np.mean(excess[0.0]) > 0
    assert np.mean(excess[2.0]) < 0
    assert all(np.array(excess[2.0]) < excess[0.0])


def test_a_margin_needs_no_labels(rows):
    problem = Problem(error(), [rejected() <= 0.1])
    policy = solve(problem, rows.evidence, margin=2.0)
    distribution = policy.probabilities(rows.evidence)[:, -1]
    own = distribution.std() / np.sqrt(len(distribution))
    assert policy.expected(rejected(), rows.evidence) == pytest.approx(0.1 - 2 * own, abs=1e-3)


def test_a_margin_takes_no_more_than_leaves_a_policy():
    rows = Misled(200)
    problem = Problem(error(), [demographic_parity("s", tol=0.01)])
    with pytest.warns(GuaranteeWarning, match="one row counts 0.01"):
        kept = [max(solve(problem, rows.evidence, margin=m).tightened.values()) for m in (0.1, 3, 30, 1e6)]
    assert kept[0] < kept[1]  # a tenth of a standard error can be afforded
    assert kept[1:] == pytest.approx([0.009] * 3, rel=0.01)  # of two opposite rules, most of the way to none


def test_each_rule_has_a_margin_of_its_own():
    """A group that is too small for its tolerance does not take the room of the others."""
    rng = np.random.default_rng(0)
    groups = rng.choice(["A", "B", "tiny"], 6000, p=[0.6, 0.395, 0.005])
    scores = 1 / (1 + np.exp(-rng.normal(size=6000) - 0.6 * (groups == "A")))
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
    problem = Problem(error(), [demographic_parity("g", tol=0.03)])
    with pytest.warns(GuaranteeWarning, match="one row counts 0.032"):
        one, two = (solve(problem, evidence, margin=m).fitted_rates.rules for m in (1.0, 2.0))
    of_a = "selected(1).given(g='A') - selected(1) <= 0.03"
    margins = [next(r.margin for r in rules if r.rule == of_a) for rules in (one, two)]
    own = next(r.standard_error for r in one if r.rule == of_a)
    assert margins[0] == pytest.approx(own, rel=0.3)
    assert margins[1] == pytest.approx(2 * margins[0], rel=0.01)
    of_tiny = [r.margin for r in two if "tiny" in r.rule]
    assert max(of_tiny) < 0.03 < 2 * max(r.standard_error for r in two if "tiny" in r.rule)


def test_rules_that_conflict_only_in_the_models_opinion():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 2000)
    right = rng.random(2000) < 0.95
    shy = np.where((labels == 1) == right, 0.55, 0.45)
    evidence = Evidence(np.column_stack([1 - shy, shy]))
    problem = Problem(error() + selected(1), [error() <= 0.1])
    with pytest.raises(InfeasibleRulesError):
        solve(problem, evidence)
    distribution = solve(problem, evidence, labels=labels).probabilities(evidence)
    assert 1 - distribution[np.arange(2000), labels].mean() < 0.1006
    with pytest.raises(InfeasibleRulesError) as caught:
        solve(Problem(error(), [error() <= 0.01]), evidence, labels=labels)
    assert "observed rates" in str(caught.value)  # the rows have two kinds of scores only


@pytest.mark.parametrize("limit", [0.15, 0.155, 0.2])
def test_a_modest_model_under_two_rules_that_hold(limit):
    """As observed, the likeliest label errs on less than the limit, and nobody need be rejected."""
    rng = np.random.default_rng(3)
    truth = 1 / (1 + np.exp(-4 * rng.normal(size=4000)))
    labels = (rng.random(4000) < truth).astype(int)
    root = np.sqrt(np.column_stack([1 - truth, truth]))
    evidence = Evidence(root / root.sum(axis=1, keepdims=True))
    assert (evidence.probabilities.argmax(axis=1) != labels).mean() < 0.15 < limit + 1e-9
    problem = Problem(error(), [error() <= limit, rejected() <= 0])
    distribution = solve(problem, evidence, labels=labels).probabilities(evidence)
    assert 1 - distribution[np.arange(4000), labels].mean() < limit + 6e-4
    assert distribution[:, -1].mean() < 1e-5
    spared = solve(
        Problem(rejected(), [error() <= limit]), evidence, labels=labels, margin=1.0, calibrate="none"
    )
    found = spared.probabilities(evidence)
    wrong = 1 - found[:, -1] - found[np.arange(4000), labels]
    assert wrong.mean() < limit - 0.8 * wrong.std() / np.sqrt(4000)


@pytest.mark.slow
def test_rates_that_cannot_be_met_as_observed_are_named():
    rows = Misled(3000)
    useless = Evidence(rows.P, groups={"s": dict(enumerate(np.full((2, 3000), 0.5)))})
    problem = Problem(error(), [demographic_parity("s", tol=0.01)])
    with pytest.warns(ConvergenceWarning, match=r"given\(s=.*violated by 0\.0\d+ \(.* rows, standard error"):
        solve(problem, useless, groups={"s": rows.groups})


@pytest.mark.parametrize(
    ("extra", "kind", "message"),
    [
        ({"labels": [0, 1]}, EvidenceError, "labels has 2 rows"),
        ({"labels": np.full(6000, 9)}, EvidenceError, "labels: .*9.* in row 0 is not a class"),
        ({"groups": {"s": np.full(6000, 7)}}, EvidenceError, r"values without probabilities: \['7'\]"),
        ({"groups": {"s": {0: [0.5] * 6000, 1: [0.5] * 6000}}}, EvidenceError, "one value per row"),
        ({"margin": -1}, OptionError, "margin must be a number of standard errors"),
        ({"margin": "wide"}, OptionError, "margin must be a number of standard errors"),
    ],
)
def test_bad_observations(rows, extra, kind, message):
    with pytest.raises(kind, match=message):
        solve(Problem(error(), [demographic_parity("s", tol=0.02)]), rows.evidence, **extra)


def test_a_corrected_policy_survives_its_file(rows, tmp_path):
    policy = solve(
        Problem(error(), [demographic_parity("s", tol=0.01)]), rows.evidence, groups={"s": rows.groups}
    )
    policy.save(tmp_path / "p.json")
    again = type(policy).load(tmp_path / "p.json")
    assert again.tightened == pytest.approx(policy.tightened, rel=0.2, abs=2e-3)  # rounded to standard errors
    assert again.digest == policy.digest


def test_no_warning_where_observed_rates_obey(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(Problem(error(), [demographic_parity("s", tol=0.02)]), rows.evidence, groups={"s": rows.groups})


def test_a_rule_that_no_policy_can_satisfy_as_observed_is_an_error():
    """All rows look alike: whatever is decided, 41 % of the answers are wrong."""
    evidence = Evidence(np.tile([0.7, 0.3], (400, 1)))
    labels = np.repeat([0, 1], [236, 164])
    with pytest.raises(InfeasibleRulesError, match=r"error\(\) <= 0.4   can reach 0.41"):
        solve(Problem(error(), ["error() <= 0.4"]), evidence, labels=labels)


def test_small_cells_are_named_with_what_they_miss():
    rng = np.random.default_rng(0)
    groups = np.where(np.arange(2000) < 15, "few", rng.choice(["a", "b"], 2000))
    scores = rng.random(2000)
    guess = {name: np.full(2000, (groups == name).mean()) for name in ("a", "b", "few")}
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": guess})
    problem = Problem(error(), [demographic_parity("g", tol=0.05)])
    with pytest.warns(GuaranteeWarning) as caught:
        policy = solve(problem, evidence, groups={"g": groups})
    small = {rate.rule: rate for rate in policy.fitted_rates.rules if rate.trust < 1}
    assert set(small) == {rate.rule for rate in policy.fitted_rates.rules if "few" in rate.rule}
    text = str(caught[0].message)
    for rule, rate in small.items():
        assert repr(rule) in text
        assert rate.excess <= 0 or f"violated by {rate.excess:.3g}" in text
    chosen = policy.probabilities(evidence)[:, 1]
    missed = chosen[groups == "few"].mean() - chosen.mean() - 0.05
    assert policy.observed["selected(1).given(g='few') - selected(1) <= 0.05"] == pytest.approx(
        missed, abs=1e-9
    )


@pytest.mark.slow
def test_the_estimated_chance_is_about_right():
    """Over samples: how often rules hold on the population, beside what the fits expected."""
    rng = np.random.default_rng(5)
    held, expected = [], []
    for _ in range(60):
        groups, scores = rng.integers(0, 2, 1500), rng.random(1500)
        scores = np.clip(scores + 0.1 * (groups == 1), 0.001, 0.999)
        evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
        policy = solve(Problem(error(), [demographic_parity("g", tol=0.02)]), evidence, margin=0.5)
        expected.append(policy.fitted_rates.chance)
        many = rng.random(200_000)
        rates = []
        for g in (0, 1):
            there = np.clip(many + 0.1 * (g == 1), 0.001, 0.999)
            rows = Evidence(np.column_stack([1 - there, there]), groups={"g": np.full(200_000, g)})
            rates.append(policy.probabilities(rows)[:, 1].mean())
        held.append(abs(rates[0] - rates[1]) / 2 <= 0.02)
    assert np.mean(held) == pytest.approx(np.mean(expected), abs=0.16)
    assert 0.55 < np.mean(expected) < 0.85


@pytest.mark.parametrize("tol", [0.05, 0.06])
def test_the_chance_of_an_observed_gap_is_the_mean_of_two_estimates(tol):
    """Two groups of equal size have one gap: as it is with its standard error, and shrunk towards zero by B,
    which has the density of a uniform prior times the likelihood, by sums over a grid."""
    rng = np.random.default_rng(8)
    x, groups = rng.normal(size=600), np.arange(600) % 2
    scores = 1 / (1 + np.exp(-1.5 * x - 0.3 * groups))
    labels = (rng.random(600) < scores).astype(int)
    shares = np.clip(0.5 + 0.05 * x, 0.05, 0.95)
    evidence = Evidence(
        np.column_stack([1 - scores, scores]), groups={"g": dict(enumerate([1 - shares, shares]))}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = solve(
            Problem(error(), [demographic_parity("g", tol=tol)]),
            evidence,
            labels=labels,
            groups={"g": groups},
            calibrate="none",
        )
    chosen = policy.probabilities(evidence)[:, 1]
    gap = chosen[groups == 1].mean() - chosen.mean()
    error_of_gap = np.sqrt(sum(chosen[groups == g].var() / 300 for g in (0, 1))) / 2
    flat = norm.cdf(tol, gap, error_of_gap) - norm.cdf(-tol, gap, error_of_gap)
    grid = (np.arange(20_000) + 0.5) / 20_000
    density = np.sqrt(grid) * np.exp(-grid * (gap / error_of_gap) ** 2 / 2)
    means, errors = (1 - grid) * gap, np.sqrt(1 - grid) * error_of_gap
    shrunk = (norm.cdf(tol, means, errors) - norm.cdf(-tol, means, errors)) @ density / density.sum()
    # Four standard errors of a share of 8,192 draws; that the groups are of random size adds little.
    assert policy.fitted_rates.chance == pytest.approx((flat + shrunk) / 2, abs=0.02)
    assert shrunk > flat + 0.03


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_the_shrinkage_of_gaps_is_its_posterior(scale):
    """By a sum over a grid of B, which has the likelihood of gaps with covariance / B."""
    rng = np.random.default_rng(9)
    root = rng.normal(size=(3, 3))
    covariance, gaps = root @ root.T, scale * root @ np.array([1.0, -0.5, 0.8])
    mirrored = np.block([[covariance, -covariance], [-covariance, covariance]])  # opposite rules
    drawn = _draw_shrinkage(np.concatenate([gaps, -gaps]), mirrored)
    grid = (np.arange(20_000) + 0.5) / 20_000
    size = gaps @ np.linalg.solve(covariance, gaps)
    weights = grid**1.5 * np.exp(-grid * size / 2)
    weights /= weights.sum()
    mean = grid @ weights
    spread = np.sqrt((grid - mean) ** 2 @ weights)
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert drawn.mean() == pytest.approx(mean, abs=4 * spread / np.sqrt(len(drawn)))
    assert drawn.std() == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("seed", [1, 3])
def test_prices_of_ratios_are_savings_that_are_seen(seed):
    """On few rows, the multiplier of a floor on precision is several times the recall that a lower floor
    buys."""
    rng = np.random.default_rng([seed, 1000])
    scores = 1 / (1 + np.exp(-0.5 * rng.normal(size=1000) - 0.7))
    labels = (rng.random(1000) < scores).astype(int)
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    policies = [
        solve(Problem(1 - recall(1), [precision(1) >= floor]), evidence, labels=labels)
        for floor in (0.75, 0.72)
    ]
    found = [policy.probabilities(evidence)[:, 1] @ labels / labels.sum() for policy in policies]
    slope = (found[1] - found[0]) / 0.03
    (price,) = policies[0].prices.values()
    assert slope / 2.5 <= price <= 2.5 * slope


@pytest.mark.parametrize("n_groups", [2, 5])
def test_an_automatic_margin_aims_at_all_rules_together(n_groups):
    rng = np.random.default_rng(6)
    groups = rng.integers(0, n_groups, 4000)
    scores = np.clip(rng.random(4000) + 0.4 * groups / n_groups, 0.001, 0.999)
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
    problem = Problem(error(), [demographic_parity("g", tol=0.06)])
    one, auto = (solve(problem, evidence, margin=margin).fitted_rates for margin in (1.0, "auto"))
    assert one.chance < 0.855
    assert auto.chance == pytest.approx(0.95, abs=0.03)
    assert 2000 < auto.rows_needed < 4000


def score_classes(rng, n, n_classes):
    """Labels, and the exact log-posteriors of classes around fixed centers."""
    centers = np.random.default_rng(0).normal(size=(n_classes, 4))
    labels = rng.integers(0, n_classes, n)
    x = centers[labels] + 1.2 * rng.normal(size=(n, 4))
    return softmax(-((x[:, None] - centers) ** 2).sum(axis=2) / (2 * 1.2**2)), labels


def share_left_out(policy, probabilities, labels):
    included = policy.probabilities(Evidence(probabilities))[np.arange(len(labels)), labels]
    return np.array([1 - included[labels == k].mean() for k in np.unique(labels)])


def test_sets_with_an_automatic_margin_cover_each_label_with_the_chance_of_beta_distributions():
    """Of n rows of a label, m are left out: the share of new rows that are is Beta(m + 1, n - m)."""
    scores, labels = score_classes(np.random.default_rng(3), 1200, 4)
    problem = Problem(size(), [miscoverage().given(label=k) <= 0.1 for k in range(4)])
    policy = solve(problem, Evidence(scores), labels=labels, margin="auto")
    counts = np.bincount(labels)
    misses = counts * share_left_out(policy, scores, labels)
    # Prices are found to within .3 %, which is less than one row.
    stated = beta.cdf(0.1, misses + 1, counts - misses).prod()
    assert policy.fitted_rates.chance == pytest.approx(stated, abs=1e-6)
    assert 0.95 <= stated <= 0.985
    bolder = beta.cdf(0.1, misses + 3, counts - misses - 2).prod()
    assert bolder < 0.95  # two more rows of each label could not be left out


@pytest.mark.slow
def test_sets_with_an_automatic_margin_cover_each_label_of_new_rows():
    problem = Problem(size(), [miscoverage().given(label=k) <= 0.1 for k in range(4)])
    new = score_classes(np.random.default_rng(1), 40_000, 4)
    held, n = {0.0: 0, "auto": 0}, 40
    for seed in range(n):
        scores, labels = score_classes(np.random.default_rng([seed, 2]), 600, 4)
        for margin in held:
            policy = solve(problem, Evidence(scores), labels=labels, margin=margin, calibrate="none")
            held[margin] += share_left_out(policy, *new).max() <= 0.1
    # Two standard errors of a share of 95 % below it; without a margin each label holds in about half.
    assert held["auto"] >= n * (0.95 - 2 * np.sqrt(0.95 * 0.05 / n))
    assert held[0.0] <= n / 2


def test_a_margin_that_cannot_be_had_is_announced():
    rng = np.random.default_rng(4)
    groups, scores = rng.integers(0, 3, 300), rng.uniform(size=300)
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
    labels = rng.random(300) < scores
    problem = Problem(error(), [demographic_parity("g", tol=0.02)])
    announced = pytest.warns(GuaranteeWarning, match=r"hold on new rows is only \d+%")
    with announced:
        policy = solve(problem, evidence, labels=labels, margin="auto")
    assert policy.fitted_rates.chance < 0.5


def test_fitted_rates_survive_a_file(rows, tmp_path):
    policy = solve(
        Problem(error(), [demographic_parity("s", tol=0.01)]), rows.evidence, groups={"s": rows.groups}
    )
    policy.save(tmp_path / "p.json")
    again = type(policy).load(tmp_path / "p.json").fitted_rates
    assert [one.rule for one in again.rules] == [one.rule for one in policy.fitted_rates.rules]
    for ours, theirs in zip(policy.fitted_rates.rules, again.rules, strict=True):
        assert theirs.excess == pytest.approx(ours.excess, abs=ours.standard_error)  # rounded to it
        assert theirs.standard_error == pytest.approx(ours.standard_error, rel=0.05)
    assert again.chance == pytest.approx(policy.fitted_rates.chance, rel=0.05)
    assert "as observed, all rules hold on the fitted rows" in repr(policy)


@pytest.mark.parametrize("level", [0.02, 0.05, 0.1])
def test_of_several_prices_the_one_that_decides_most_is_found(level):
    """Scores that are much less sure than they could be: as predicted hardly any row could be decided, and a
    policy that decides none satisfies the rule. By brute force over thresholds, most rows can be decided."""
    rng = np.random.default_rng(0)
    sure = rng.random(1500)
    labels = rng.integers(0, 5, 1500)
    right = rng.random(1500) < 1 - 0.25 * (1 - sure) ** 1.5
    named = np.where(right, labels, (labels + 1 + rng.integers(0, 4, 1500)) % 5)
    scores = np.full((1500, 5), 1.0)
    scores[np.arange(1500), named] += 0.3 + 2 * sure
    scores /= scores.sum(axis=1, keepdims=True)
    policy = solve(Problem(rejected(), [error() <= level * accepted()]), Evidence(scores), labels=labels)
    order = np.argsort(-sure)
    wrong = np.cumsum(~right[order]) / np.arange(1, 1501)
    most = np.flatnonzero(wrong <= level).max() + 1
    assert policy.solution.status is Status.CONVERGED
    assert max(policy.observed.values()) <= 1e-6
    assert policy.expected(accepted(), Evidence(scores)) >= 0.95 * most / 1500


@pytest.mark.parametrize(("rows", "tol", "said"), [(99, 0.01, True), (101, 0.01, False), (101, 0.0, False)])
def test_a_tolerance_finer_than_the_rows_of_a_group_can_show_is_said(rows, tol, said):
    """Of 99 rows one is more than a point. Nothing shows that rates are equal, so that is not said."""
    rng = np.random.default_rng(0)
    groups = np.where(np.arange(2000) < rows, "few", "many")
    scores = rng.uniform(size=2000)
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"g": groups})
    problem = Problem(error(), [demographic_parity("g", tol=tol)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solve(problem, evidence, labels=rng.random(2000) < scores)
    messages = [str(one.message) for one in caught]
    assert [
        r"g='few'" in text and "(99 rows," in text and "one row counts 0.01" in text for text in messages
    ] == ([True] if said else [])
