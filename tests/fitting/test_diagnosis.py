"""Conflicts with answers worked out by hand, each also checked by a linear program on the rows that
knows nothing of bylaw's compiled form."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq, linprog

from bylaw import (
    ConvergenceWarning,
    Evidence,
    InfeasibleRulesError,
    OptionError,
    Problem,
    accepted,
    custom,
    demographic_parity,
    disagreement,
    disparate_impact,
    equalized_odds,
    error,
    miscoverage,
    precision,
    rejected,
    selected,
    size,
    solve,
)
from bylaw.fitting._diagnosis import diagnose
from bylaw.language import parse
from bylaw.solvers import FullBatch, MixtureProgram
from helpers.generated_rows import Rows
from helpers.reference import churn, error_loss, on, one_hot, parity, rejection


@dataclass
class Conflict:
    """A problem, the same as arrays, and the answers."""

    problem: Problem
    evidence: Evidence
    rules: list[tuple[np.ndarray, float]]  # ((n, A), bound) of mean(cost * pi) <= bound, in order
    statement_of: list[int]  # which statement each single rule belongs to
    conflict: list[int]  # positions of the rules that conflict
    off: list[float] | None  # of each of them, while the other rules listed here hold
    total: float | None  # of the smallest relaxation
    weights: dict[str, float] = field(default_factory=dict)
    sets: bool = False
    factors: dict[int, np.ndarray] = field(default_factory=dict)  # (n, A) that the level of a rule multiplies

    def lp(self, rules, slack_of, prices, goal=None, free=False):
        """min goal + prices'slack over policies and slacks; None if nothing is feasible."""
        n, A = self.rules[0][0].shape
        share = np.full(n, 1 / n) if self.evidence.weights is None else self.evidence.weights
        share = (share / share.sum())[:, None]
        rows = np.array([(self.rules[j][0] * share).ravel() for j in rules]).reshape(len(rules), n * A)
        loosening = np.zeros((len(rules), len(prices)))
        for i, slack in enumerate(slack_of):
            loosening[i, slack] = -1.0
        start = np.zeros(n * A) if goal is None else (goal * share).ravel()
        one_each = sparse.kron(sparse.eye(n), np.ones((1, A)))
        answer = linprog(
            np.concatenate([start, prices]),
            A_ub=np.hstack([rows, loosening]) if len(rules) else None,
            b_ub=[self.rules[j][1] for j in rules] if len(rules) else None,
            A_eq=None if self.sets else sparse.hstack([one_each, sparse.csr_array((n, len(prices)))]),
            b_eq=None if self.sets else np.ones(n),
            bounds=[(0, 1)] * (n * A) + [(None if free else 0, None)] * len(prices),
            method="highs",
        )
        return answer.fun if answer.status == 0 else None

    def least_worst(self, rules):
        return self.lp(rules, [0] * len(rules), [1.0], free=True)

    def least_relaxation(self):
        texts = [str(statement) for statement in self.problem.rules]
        prices = [self.weights.get(text, 1.0) for text in texts]
        return self.lp(range(len(self.rules)), self.statement_of, prices)

    def off_while_others_hold(self, j):
        others = [i for i in self.conflict if i != j]

        def miss(shift):
            goal = self.rules[j][0] - shift * self.factors.get(j, 0.0)
            return self.lp(others, [], [], goal=goal) - self.rules[j][1]

        return brentq(miss, 0, 10, xtol=1e-7) if j in self.factors else miss(0.0)


def scores(*p):
    """Two classes, P(label 1) of each row."""
    p = np.array(p, dtype=float)
    return np.column_stack([1 - p, p])


def pick(label, n, A, factor=1.0):
    return on(label, np.full(n, factor), A)


def two_caps():
    # selected(0) + selected(1) = 1 > 0.3 + 0.5.
    P = scores(0.2, 0.4, 0.6, 0.8)
    rules = [(pick(0, 4, 2), 0.3), (pick(1, 4, 2), 0.5)]
    problem = Problem(error(), [selected(0) <= 0.3, selected(1) <= 0.5])
    return Conflict(problem, Evidence(P), rules, [0, 1], [0, 1], [0.2, 0.2], 0.2)


def rejection_against_selective_error():
    # Every row errs with 0.4 when answered, so error - 0.1 * accepted = 0.3 * accepted: nothing may be
    # answered, while a fifth may be rejected: 0.8 too many, or a selective error of 0.4, 0.3 too much.
    P = scores(*[0.4, 0.6] * 5)
    answered = 1 - rejection(P)
    rules = [(rejection(P), 0.2), (error_loss(P, 3) - 0.1 * answered, 0.0)]
    problem = Problem(error(), [rejected() <= 0.2, error() <= 0.1 * accepted()])
    return Conflict(problem, Evidence(P), rules, [0, 1], [0, 1], [0.8, 0.3], 0.3, factors={1: answered})


def parity_against_a_gap():
    # Groups of equal size: a gap of 0.5 between them is 0.25 to either side of all, where 0.1 is allowed.
    P, codes = scores(*[0.3, 0.7] * 4), np.repeat([0, 1], 4)
    T = one_hot(codes, 2)
    gap = pick(1, 8, 2) * ((T[:, 1] - T[:, 0]) / 0.5)[:, None]
    rules = [*parity(T, 2, 0.1, 2), (-gap, -0.5)]
    wide = selected(1).given(g=1) - selected(1).given(g=0) >= 0.5
    problem = Problem(error(), [demographic_parity("g", tol=0.1), wide])
    # Any one side of parity conflicts with it; raising tol by 0.15 settles all four, or the gap by 0.3.
    return Conflict(problem, Evidence(P, groups={"g": codes}), rules, [0] * 8 + [1], [], None, 0.15)


def four_fifths_against_caps():
    # Group 0 may be selected 0.2 of the time, group 1 must be 0.5: a ratio of 0.4 where 0.8 is demanded.
    P, codes = scores(*[0.3, 0.7] * 4), np.repeat([0, 1], 4)
    first, second = pick(1, 8, 2) * (codes == 0)[:, None] * 2, pick(1, 8, 2) * (codes == 1)[:, None] * 2
    rules = [(0.8 * second - first, 0.0), (0.8 * first - second, 0.0), (first, 0.2), (-second, -0.5)]
    problem = Problem(
        error(),
        [
            disparate_impact("g", labels=[1]),
            selected(1).given(g=0) <= 0.2,
            selected(1).given(g=1) >= 0.5,
        ],
    )
    # Group 1 could reach 0.2 / 0.8 = 0.25 at most, 0.25 too few; group 0 0.4 at least, 0.2 too many.
    # Both limits are dearer to move.
    off, evidence = [0.4, 0.2, 0.25], Evidence(P, groups={"g": codes})
    weights = {str(rule): 3.0 for rule in problem.rules[1:]}
    factors = {0: second, 1: first}
    return Conflict(problem, evidence, rules, [0, 0, 1, 2], [0, 2, 3], off, 0.4, weights, factors=factors)


def churn_against_error():
    # The old model says 0 everywhere, where label 1 has 0.9: each change turns an error of 0.9 into 0.1.
    # A fifth may change: error 0.8 * 0.9 + 0.2 * 0.1 = 0.74; for 0.5, half must.
    P, old = scores(*[0.9] * 10), np.zeros(10, int)
    rules = [(churn(old, 2), 0.2), (error_loss(P, 2), 0.5)]
    problem = Problem(error(), [disagreement("old") <= 0.2, error() <= 0.5])
    return Conflict(problem, Evidence(P, references={"old": old}), rules, [0, 1], [0, 1], [0.3, 0.24], 0.24)


def size_against_miscoverage():
    # Both labels have 0.5: with one label in the set on average, half is missed; 0.2 needs 1.6 labels.
    P = scores(*[0.5] * 6)
    rules = [(np.ones((6, 2)), 1.0), (-P, 0.2 - 1)]
    problem = Problem(size(), [size() <= 1.0, miscoverage() <= 0.2])
    return Conflict(problem, Evidence(P), rules, [0, 1], [0, 1], [0.6, 0.3], 0.3, sets=True)


def three_of_which_any_two_can_hold():
    # Three labels at most 0.3 of the time each: 0.1 remains.
    P = np.full((5, 3), 1 / 3)
    rules = [(pick(k, 5, 3), 0.3) for k in range(3)]
    problem = Problem(error(), [selected(k) <= 0.3 for k in range(3)])
    return Conflict(problem, Evidence(P), rules, [0, 1, 2], [0, 1, 2], [0.1] * 3, 0.1)


def two_conflicts_at_once():
    # In each group by itself the two labels get 0.8 of the time: 0.2 off, twice.
    P, codes = scores(*[0.3, 0.7] * 4), np.repeat([0, 1], 4)
    rules, stated = [], []
    for g in (0, 1):
        for label in (0, 1):
            rules.append((pick(label, 8, 2) * (codes == g)[:, None] * 2, 0.4))
            stated.append(selected(label).given(g=g) <= 0.4)
    evidence = Evidence(P, groups={"g": codes})
    return Conflict(Problem(error(), stated), evidence, rules, [0, 1, 2, 3], [], None, 0.4)


def a_family_shares_its_slack():
    # Everybody of group 1 is selected and nobody of group 0: each is 0.5 off from all, in four rules; one
    # slack of 0.48 serves them all. The two rules are ten times as dear.
    P, codes = scores(*[0.3, 0.7] * 4), np.repeat([0, 1], 4)
    first, second = pick(1, 8, 2) * (codes == 0)[:, None] * 2, pick(1, 8, 2) * (codes == 1)[:, None] * 2
    rules = [*parity(one_hot(codes, 2), 2, 0.02, 2), (first, 0.0), (-second, -1.0)]
    none, everybody = selected(1).given(g=0) <= 0, selected(1).given(g=1) >= 1
    problem = Problem(error(), [demographic_parity("g", tol=0.02), none, everybody])
    weights = {str(none): 10.0, str(everybody): 10.0}
    evidence = Evidence(P, groups={"g": codes})
    return Conflict(problem, evidence, rules, [0] * 8 + [1, 2], [], None, 0.48, weights)


def weights_move_the_relaxation():
    case = two_caps()
    case.weights, case.total = {"selected(0) <= 0.3": 3.0}, 0.2
    return case


def weighted_rows():
    # The first row counts for 0.7 and is right only with label 1: selected(1) <= 0.4 costs 0.3 of errors.
    P = scores(1, 0, 0, 0)
    rules = [(pick(1, 4, 2), 0.4), (error_loss(P, 2), 0.1)]
    problem = Problem(error(), [selected(1) <= 0.4, error() <= 0.1])
    evidence = Evidence(P, weights=[7, 1, 1, 1])
    # With errors of 0.1, selected(1) is 0.6 at least: 0.2 off. And 0.3 - 0.1 = 0.2.
    return Conflict(problem, evidence, rules, [0, 1], [0, 1], [0.2, 0.2], 0.2)


def millions():
    # Label 1 costs 3 million and label 0 one million: 1.2 million allow label 1 a tenth of the time.
    P = scores(*[0.3, 0.7] * 3)
    toll = np.tile([1e6, 3e6], (6, 1))
    rules = [(toll, 1.2e6), (-pick(1, 6, 2), -0.5)]
    problem = Problem(error(), [custom("toll") <= 1.2e6, selected(1) >= 0.5])
    evidence = Evidence(P, costs={"toll": toll})
    # At 0.5 the toll is 2 million. A share is cheaper to give up than a million.
    return Conflict(problem, evidence, rules, [0, 1], [0, 1], [0.8e6, 0.4], 0.4)


CASES = [
    two_caps,
    rejection_against_selective_error,
    parity_against_a_gap,
    four_fifths_against_caps,
    churn_against_error,
    size_against_miscoverage,
    three_of_which_any_two_can_hold,
    two_conflicts_at_once,
    a_family_shares_its_slack,
    weights_move_the_relaxation,
    weighted_rows,
    millions,
]


@pytest.mark.parametrize("make", CASES)
def test_known_conflicts(make):
    case = make()
    found = diagnose(case.problem, case.evidence, relaxation_costs=case.weights)
    assert not found.feasible
    names = [
        str(found.rule) for found in case.problem.expand(case.evidence.classes, case.evidence.group_values)
    ]
    if not case.conflict:  # one of several will do
        case.conflict = [names.index(name) for name in found.conflict]
    assert found.conflict == tuple(names[j] for j in case.conflict)
    # Irreducible: together they cannot hold; without any one of them, the others can.
    least = case.least_worst(case.conflict)
    assert least > 1e-7
    for j in case.conflict:
        others = [i for i in case.conflict if i != j]
        assert not others or case.least_worst(others) <= 1e-9
    off = list(found.violations.values())
    precision = 1.01e-4 if case.factors else 1e-7  # of levels that are searched for
    exact = [case.off_while_others_hold(j) for j in case.conflict]
    assert off == pytest.approx(exact, rel=1e-6, abs=precision)
    if case.off is not None:
        assert off == pytest.approx(case.off, rel=1e-6, abs=precision)
    assert 0 < found.least_violation <= max(least * (1 + 1e-6), least + 1e-9)
    assert sum(found.multipliers.values()) == pytest.approx(1)
    assert min(found.multipliers.values()) > 0
    # The proof: whatever the policy, the rules with these weights are off by so much on average.
    proof = [(found.multipliers[names[j]], *case.rules[j]) for j in case.conflict]
    average = case.lp([], [], [], goal=sum(weight * cost for weight, cost, _ in proof))
    bound = sum(weight * bound for weight, _, bound in proof)
    assert found.least_violation == pytest.approx(average - bound, rel=1e-6, abs=1e-9)
    total = sum(case.weights.get(key, 1.0) * slack for key, slack in found.relaxation.items())
    assert total == pytest.approx(case.total, rel=5e-4)
    assert found.least_relaxation == pytest.approx(case.least_relaxation(), rel=2e-4)
    assert found.least_relaxation <= total * (1 + 2e-4)
    if not case.factors:  # which are linear in no slack
        assert total == pytest.approx(case.least_relaxation(), rel=2e-4)


@pytest.mark.parametrize("make", CASES)
def test_the_relaxed_problem_solves(make):
    case = make()
    slacks = diagnose(case.problem, case.evidence, relaxation_costs=case.weights).relaxation
    rules = []
    for statement in case.problem.rules:
        slack = slacks.get(str(statement), 0.0) * (1 + 1e-6) + 1e-7
        for rule in statement.expand(case.evidence.classes, case.evidence.group_values):
            shifted = (
                rule.left <= rule.right + slack if rule.sense == "<=" else rule.left >= rule.right - slack
            )
            rules.append(shifted if rule.factor is None else rule.at(rule.level + rule.loosening * slack))
    relaxed = Problem(case.problem.minimize, rules, decisions=case.problem.kind)
    assert diagnose(relaxed, case.evidence).feasible
    solve(relaxed, case.evidence)


def test_values_are_in_the_rules_own_terms():
    found = diagnose(*_of(four_fifths_against_caps()))
    assert found.least == pytest.approx(
        {
            "selected(1).given(g=0) >= 0.8 * selected(1).given(g=1)": 0.4,  # 0.2 / 0.5
            "selected(1).given(g=0) <= 0.2": 0.4,
            "selected(1).given(g=1) >= 0.5": 0.25,
        },
        abs=1.01e-4,
    )
    found = diagnose(*_of(churn_against_error()))
    assert found.least == pytest.approx({"disagreement('old') <= 0.2": 0.5, "error() <= 0.5": 0.74}, abs=1e-6)
    found = diagnose(*_of(millions()))
    assert found.least == pytest.approx({"custom('toll') <= 1200000": 2e6, "selected(1) >= 0.5": 0.1})


def _of(case):
    return case.problem, case.evidence


def test_weights_move_the_relaxation_from_one_rule_to_the_other():
    problem, evidence = _of(two_caps())
    first, second = problem.rules
    assert list(diagnose(problem, evidence, relaxation_costs={first: 3}).relaxation) == [str(second)]
    assert list(diagnose(problem, evidence, relaxation_costs={"selected(1)<=0.5": 3}).relaxation) == [
        str(first)
    ]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"error() <= 0.2": 2}, r"'error\(\) <= 0.2'; its rules are"),
        ({"nonsense": 2}, "the problem has no rule 'nonsense'"),
        ({3: 2}, "the problem has no rule '3'"),
        (
            {"selected(0) <= 0.3": -1},
            r"relaxation_costs\['selected\(0\) <= 0.3'\] must be a positive number, got -1",
        ),
        ({"selected(0) <= 0.3": "much"}, "must be a positive number"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(OptionError, match=message):
        diagnose(*_of(two_caps()), relaxation_costs=weights)


def test_a_problem_comes_first():
    problem, evidence = _of(two_caps())
    with pytest.raises(OptionError, match="must be a Problem, got"):
        diagnose(evidence, problem)


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [selected(0) <= 0.4, selected(1) <= 0.6],  # exactly tight
        [selected(0) <= 0.1, selected(1) <= 0.9],
        [abs(selected(1) - 0.3) <= 0],
        [demographic_parity("known", tol=0), demographic_parity("hidden", tol=0), selected(1) <= 0],
        [equalized_odds("hidden", tol=0), abs(selected(0) - 1) <= 0],
    ],
)
def test_rules_that_just_hold_are_no_conflict(rules, rows):
    found = diagnose(Problem(error(), rules), rows.evidence())
    assert found.feasible
    assert (found.conflict, found.least, found.relaxation) == ((), {}, {})
    assert str(found) == "the rules can be satisfied together on these rows."
    solve(Problem(error(), rules), rows.evidence())


def test_the_text_is_advice():
    text = str(diagnose(*_of(two_caps())))
    assert text == repr(diagnose(*_of(two_caps())))
    assert "any policy violates at least one of these by 0.1 or more" in text
    assert "selected(0) <= 0.3   can reach 0.5 while the other listed rules are satisfied" in text
    assert "selected(1) <= 0.5   can reach 0.7 while the other listed rules are satisfied" in text
    assert "loosened by 0.2" in text


def test_small_cells_are_counted():
    # Six rows of group 1 with P(label 1) = 0.5: three are expected. Others count as much as four.
    P, codes = scores(*[0.5] * 46), np.array([1] * 6 + [0] * 40)
    problem = Problem(error(), [selected(1).given(g=1, label=1) <= 0.5, error().given(g=0) <= 0.9])
    assert diagnose(problem, Evidence(P, groups={"g": codes})).small_cells == pytest.approx(
        {"g=1, label=1": 3.0}
    )
    weights = np.where(np.arange(46) % 2, 3.0, 1.0)  # (3 + 1)^2 / (9 + 1) / 2 = 0.8 of the rows
    few = diagnose(problem, Evidence(P, groups={"g": codes}, weights=weights))
    assert few.small_cells == pytest.approx({"g=1, label=1": 2.4})
    assert "g=1, label=1   2.4 rows" in str(few)


@pytest.mark.slow
def test_hundreds_of_rules():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 60, 1000)
    groups[:60] = range(60)
    chance = 1 / (1 + np.exp(-(rng.normal(size=1000) + (groups - 30) / 10)))
    evidence = Evidence(scores(*chance), groups={"g": groups})
    problem = Problem(error(), [equalized_odds("g", tol=0.02), error() <= 0.2])
    found = diagnose(problem, evidence)
    assert not found.feasible
    assert found.least_violation > 0
    total = sum(found.relaxation.values())
    assert 0 < found.least_relaxation <= total * (1 + 1e-9)
    assert "error() <= 0.2" in found.conflict


def test_a_solver_that_runs_out_of_steps_asks_the_doctor():
    problem, evidence = _of(two_caps())
    with pytest.raises(InfeasibleRulesError, match="selected"):
        solve(problem, evidence, solver=FullBatch(max_steps=1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_conflicts_beside_the_linear_program(seed):
    """Random costs under random bounds: the same verdict, the same relaxation."""
    rng = np.random.default_rng(seed)
    n, K, M = int(rng.integers(5, 60)), int(rng.integers(2, 5)), int(rng.integers(2, 9))
    costs = {f"c{j}": rng.normal(size=(n, K)) for j in range(M)}
    bounds = rng.uniform(-0.9, 0.2, M)
    stated = [custom(name) <= float(b) for name, b in zip(costs, bounds, strict=True)]
    weights = rng.uniform(0.5, 2, M)
    case = Conflict(
        Problem(error(), stated),
        Evidence(rng.dirichlet(np.ones(K), n), costs=costs),
        list(zip(costs.values(), bounds, strict=True)),
        list(range(M)),
        [],
        None,
        None,
        {str(s): float(w) for s, w in zip(stated, weights, strict=True)},
    )
    found = diagnose(case.problem, case.evidence, relaxation_costs=case.weights)
    everything = range(M)
    assert found.feasible == (case.least_worst(everything) <= 1e-9)
    total = sum(case.weights[key] * slack for key, slack in found.relaxation.items())
    assert total == pytest.approx(case.least_relaxation(), rel=2e-4, abs=1e-9)


def test_rows_of_the_fixture_are_needed():
    """A conflict of rates that only the rows make: errors of less than the model's own."""
    rows = Rows(n=500, K=3)
    best = float(1 - rows.P.max(axis=1).mean())
    found = diagnose(Problem(error(), [error() <= best - 0.01]), rows.evidence())
    assert found.least == pytest.approx({f"error() <= {best - 0.01!r}": best})
    assert diagnose(Problem(error(), [error() <= best + 1e-12]), rows.evidence()).feasible


def test_prices_of_rules_never_exceed_the_price_of_their_slack():
    """Otherwise the bound from below would be none."""
    loosening = sparse.csr_array(np.array([[1.0, 0], [1, 0], [0, 2]]))
    program = MixtureProgram(np.arange(3), np.zeros(3), np.array([1.0, 3.0]), loosening)
    assert program.project_prices(np.array([3.0, 1.0, 1.0])) == pytest.approx([0.75, 0.25, 1.0])
    assert program.project_prices(np.array([0.25, -1.0, 6.0])) == pytest.approx([0.25, 0.0, 1.5])
    assert program.cost(np.array([0.1, 0.3, 0.4])) == pytest.approx(0.3 + 3 * 0.2)


def make_labelled_rows(sharpness=1.0):
    """Scores of two classes with their labels; beyond a sharpness of 1 they are too sure."""
    rng = np.random.default_rng(3)
    truth = rng.random(3000)
    labels = (rng.random(3000) < truth).astype(int)
    logits = sharpness * np.log(truth / (1 - truth))
    scores = 1 / (1 + np.exp(-logits))
    return Evidence(np.column_stack([1 - scores, scores])), labels


@pytest.mark.slow
def test_rules_that_hold_as_predicted_may_conflict_as_observed():
    evidence, labels = make_labelled_rows(sharpness=6.0)
    problem = Problem(error(), [error() <= 0.1, rejected() <= 0.0])
    assert diagnose(problem, evidence).feasible
    found = diagnose(problem, evidence, labels=labels)
    decided = np.asarray(evidence.probabilities).argmax(axis=1)
    assert not (found.feasible and not found.missed)
    assert np.mean(decided != labels) > 0.2  # what no rule on these scores can mend
    with pytest.warns(ConvergenceWarning) if found.missed else pytest.raises(InfeasibleRulesError):
        solve(problem, evidence, labels=labels)  # says the same


def test_rules_that_conflict_as_predicted_may_hold_as_observed():
    evidence, labels = make_labelled_rows(sharpness=0.2)
    problem = Problem(error(), [error() <= 0.3])
    assert not diagnose(problem, evidence).feasible
    found = diagnose(problem, evidence, labels=labels)
    assert found.feasible
    assert found.observed
    assert not found.missed
    assert "for observed rates" in str(found)
    assert max(solve(problem, evidence, labels=labels).observed.values()) <= 1e-6


def test_a_proof_as_observed_on_rows_of_equal_scores():
    """Two scores, each wrong in one of four rows: no policy tells these apart."""
    scores = np.repeat([0.1, 0.9], 40)
    labels = np.concatenate([np.tile([0, 0, 0, 1], 10), np.tile([1, 1, 1, 0], 10)])
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    found = diagnose(Problem(error(), [error() <= 0.2]), evidence, labels=labels)
    assert not found.feasible
    assert found.observed
    assert found.least["error() <= 0.2"] == pytest.approx(0.25)  # one of four, whatever is decided
    assert found.relaxation["error() <= 0.2"] == pytest.approx(0.05, abs=1e-4)
    dear = diagnose(
        Problem(error(), [error() <= 0.2]), evidence, labels=labels, relaxation_costs={"error() <= 0.2": 2}
    )
    assert dear.least_relaxation == pytest.approx(2 * found.least_relaxation, rel=1e-3)


def test_labels_that_no_rule_refers_to_change_nothing():
    evidence, labels = make_labelled_rows()
    problem = Problem(error(), [selected(0) <= 0.3, selected(1) <= 0.6])
    assert diagnose(problem, evidence, labels=labels).conflict == diagnose(problem, evidence).conflict
    assert diagnose(Problem(error()), evidence, labels=labels).feasible


@pytest.mark.slow
def test_loosened_by_what_is_said_rules_with_quotients_hold_together():
    """Also those that have no part in the conflict, and would be in the next."""
    rng = np.random.default_rng(0)
    chance, group = rng.beta(4, 2, 1500), rng.choice(["a", "b"], 1500, p=[0.2, 0.8])
    chance[group == "a"] *= 0.6
    evidence = Evidence(np.column_stack([1 - chance, chance]), groups={"g": group})
    precise = precision(1) >= 0.9
    others = [demographic_parity("g", tol=0.02), rejected() <= 0.05, selected(1) >= 0.8]
    found = diagnose(Problem(error(), [precise, *others]), evidence)
    assert list(found.relaxation) == [str(precise)]
    assert len(found.conflict) == 2
    loosened = precise.at(precise.level - found.relaxation[str(precise)])
    assert diagnose(Problem(error(), [loosened, *others]), evidence).feasible
    tighter = precise.at(loosened.level + 2e-4)
    assert not diagnose(Problem(error(), [tighter, *others]), evidence).feasible


def test_ratios_of_sets_are_relaxed_by_their_level():
    """Miscoverage is one less a sum over decisions, so that its bound moves with the level."""
    P, codes = scores(*[0.3, 0.8] * 6), np.repeat([0, 1], 6)
    first, second = (miscoverage().given(g=g) for g in (0, 1))
    rules = [first >= 3 * second, second >= 0.2, first <= 0.4]
    evidence = Evidence(P, groups={"g": codes})
    found = diagnose(Problem(size(), rules), evidence)
    # At best 0.4 / 0.2.
    assert found.least[str(rules[0])] == pytest.approx(2, abs=1.1e-4)
    for name, level in found.levels.items():
        rules[[str(rule) for rule in rules].index(name)] = parse(name).at(level)
    assert diagnose(Problem(size(), rules), evidence).feasible


@pytest.mark.slow
def test_ratios_as_observed_are_relaxed_by_what_was_observed():
    """Scores that are far too sure: the level at which the rules can hold is that of the outcomes."""
    rng = np.random.default_rng(0)
    chance = rng.choice([0.3, 0.4, 0.6, 0.7], 800)
    labels = (rng.random(800) < chance).astype(int)
    sure = np.where(chance > 0.5, 0.9 + 0.1 * (chance - 0.5), 0.1 + 0.1 * (chance - 0.5))
    ratio, budget = error() <= 0.05 * accepted(), rejected() <= 0.1
    evidence = Evidence(scores(*sure))
    found = diagnose(Problem(error(), [ratio, budget]), evidence, labels=labels)
    assert found.observed
    # A tenth is rejected where errors are most frequent; the others get the more frequent label.
    groups = {one: labels[chance == one].mean() for one in np.unique(chance)}
    wrong = sorted(((min(p, 1 - p), np.mean(chance == one)) for one, p in groups.items()), reverse=True)
    left, errors = 0.1, 0.0
    for rate, share in wrong:
        errors += rate * max(share - left, 0.0)
        left = max(left - share, 0.0)
    assert found.least[str(ratio)] == pytest.approx(errors / 0.9, abs=2e-4)
    assert found.levels[str(ratio)] == pytest.approx(errors / 0.9, abs=2e-4)


@pytest.mark.slow
def test_weighted_rows_conflict_as_observed_like_repeated_ones():
    rng = np.random.default_rng(11)
    P = rng.dirichlet([1, 1], 40).round(1)  # rows of equal scores decide alike
    labels, times = rng.integers(0, 2, 40), rng.integers(1, 6, 40)
    problem = Problem(error(), [error() <= 0.1])
    weighted = diagnose(problem, Evidence(P, weights=times.astype(float)), labels=labels)
    repeated = diagnose(problem, Evidence(np.repeat(P, times, axis=0)), labels=np.repeat(labels, times))
    assert weighted.least == pytest.approx(repeated.least, abs=1e-6)
    plain = diagnose(problem, Evidence(P), labels=labels)
    assert abs(plain.least["error() <= 0.1"] - weighted.least["error() <= 0.1"]) > 1e-3


@pytest.mark.slow
def test_many_classes_are_examined_in_the_memory_that_their_scores_take():
    """Feasible or not: no array of classes x classes x classes is made."""
    rng = np.random.default_rng(0)
    evidence = Evidence(rng.dirichlet(np.full(600, 0.05), 300))
    tracemalloc.start()
    found = [
        diagnose(Problem(error(), [rejected() <= 0.1, error() <= level]), evidence) for level in (0.9, 0.01)
    ]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.feasible for one in found] == [True, False]
    assert peak < 300e6  # a matrix of classes x classes takes 3 MB
