"""Parts of the language together: options with ratios and worst groups, quotients without chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from bylaw import (
    Evidence,
    Problem,
    RuleError,
    balanced_error,
    custom,
    demographic_parity,
    error,
    f1,
    precision,
    predictive_parity,
    selected,
    solve,
    worst,
)

N = 400


def draw_rows():
    """Return probabilities, groups, and two costs of each option."""
    rng = np.random.default_rng(3)
    chances = rng.dirichlet([0.6, 0.6, 0.6], N)
    sex = np.where(rng.random(N) < 0.3 + 0.4 * chances[:, 0], "F", "M")
    wrong = np.sort(rng.uniform(size=(N, 2)), axis=1)[:, ::-1]
    return chances, sex, wrong, np.column_stack([np.full(N, 0.001), rng.uniform(0.01, 0.05, N)])


CHANCES, SEX, WRONG, USD = draw_rows()
LABELS = Evidence(CHANCES, classes=["low", "mid", "high"], groups={"sex": SEX})
DECISIONS = ["low", "mid", "high", "senior"]
ROUTES = Evidence(costs={"wrong": WRONG, "usd": USD}, options=["small", "large"], groups={"sex": SEX})


def solve_routes(cost, bounds_on, bounds, epigraph=False):
    """min cost'x over the chances x of each option, (n_rows, 2), by an independent program."""
    one_each = np.kron(np.eye(N), np.ones(2))
    extra = np.zeros((N, 1)) if epigraph else np.zeros((N, 0))
    return linprog(
        cost,
        A_ub=bounds_on,
        b_ub=bounds,
        A_eq=np.hstack([one_each, extra]),
        b_eq=np.ones(N),
        bounds=[(0, 1)] * (2 * N) + [(None, None)] * extra.shape[1],
        method="highs",
    ).fun


def test_the_worst_group_of_routed_questions():
    policy = solve(Problem(worst(custom("wrong"), by="sex"), [custom("usd") <= 0.01]), ROUTES, beta=1e5)
    shares = [(SEX == sex) / (SEX == sex).sum() for sex in "FM"]
    lines = [np.append((share[:, None] * WRONG).ravel(), -1.0) for share in shares]
    lines.append(np.append(USD.ravel() / N, 0.0))
    least = solve_routes(np.append(np.zeros(2 * N), 1.0), np.array(lines), [0.0, 0.0, 0.01], epigraph=True)
    assert max(one.rate for one in policy.group_rates) == pytest.approx(least, abs=2e-3)


def test_wrong_answers_for_each_dollar():
    """The ratio's optimum is where the least of wrong - ratio * usd is zero."""
    policy = solve(Problem(custom("wrong") / custom("usd"), [selected("large") <= 0.2]), ROUTES, beta=1e4)
    ratio = policy.expected(custom("wrong"), ROUTES) / policy.expected(custom("usd"), ROUTES)
    taken = np.tile([0.0, 1.0], N) / N
    least = solve_routes((WRONG - ratio * USD).ravel() / N, taken[None], [0.2])
    assert least == pytest.approx(0.0, abs=2e-4)


@pytest.mark.filterwarnings("ignore:the policy chooses at random between")
def test_an_option_beside_labels_takes_nothing_from_a_score():
    rules = [selected("senior") <= 0.1, error().given(decision="high") <= 0.2]
    policy = solve(Problem(1 - f1("high"), rules, decisions=DECISIONS), LABELS)
    assert policy.expected(error().given(decision="high"), LABELS) <= 0.2 + 1e-5
    without = solve(Problem(1 - f1("high"), [error().given(decision="high") <= 0.2]), LABELS)
    assert policy.expected(f1("high"), LABELS) >= without.expected(f1("high"), LABELS) - 1e-3


def test_worst_groups_with_rules_on_quotients_and_options():
    rules = [precision("high") >= 0.8, selected("senior") <= 0.1]
    minimize = worst(error() + 0.2 * selected("senior"), by="sex")
    policy = solve(Problem(minimize, rules, decisions=DECISIONS), LABELS)
    assert policy.expected(precision("high"), LABELS) >= 0.8 - 1e-5
    rates = [one.rate for one in policy.group_rates]
    assert np.ptp(rates) < 1e-3  # both groups have a weight, so that they are alike


def test_the_worst_balanced_error():
    policy = solve(Problem(worst(balanced_error(), by="sex")), LABELS)
    plain = solve(Problem(balanced_error()), LABELS)
    by_group = [balanced_error().given(sex=sex) for sex in "FM"]
    worse = max(plain.expected(rate, LABELS) for rate in by_group)
    assert max(one.rate for one in policy.group_rates) <= worse + 1e-4


@pytest.mark.filterwarnings("ignore:the policy always takes the first")
@pytest.mark.parametrize(
    ("minimize", "rules"),
    [
        (1 - f1("high"), [demographic_parity("sex", tol=0.05)]),
        (error(), [precision("high") >= 0.8]),
        (error(), [predictive_parity("sex", tol=0.05, labels=["high"])]),
    ],
    ids=["f1", "precision", "predictive parity"],
)
def test_quotients_without_chance(minimize, rules):
    problem = Problem(minimize, rules)
    policy = solve(problem, LABELS, deterministic=True)
    assert set(np.unique(policy.probabilities(LABELS).round(6))) <= {0.0, 1.0}
    for found in problem.expand(LABELS.classes, LABELS.group_values):
        assert policy.expected(found.rule.excess, LABELS) <= 1 / 50  # one row among some fifty that count


def test_worst_groups_and_differences_of_quotients_are_refused():
    problem = Problem(worst(error(), by="sex"), [predictive_parity("sex", tol=0.05)])
    with pytest.raises(RuleError, match="bound the rate of each group"):
        solve(problem, LABELS)
    with pytest.raises(RuleError, match="must be linear, such as error"):
        worst(precision("high"), by="sex")
