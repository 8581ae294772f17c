"""The result of a solver: multipliers, their quality, and the price of each rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from bylaw._base import Floats
from bylaw.errors import Remedy
from bylaw.language import Conditions, format_conditions


class Status(Enum):
    """The reason why a solver stopped; `remedy` is what to do about it.

    Examples
    --------
    >>> Status.INFEASIBLE.value
    'the rules conflict; loosen or remove one'
    """

    CONVERGED = "the gradient mapping is within the tolerance"
    MAX_STEPS = "the steps ran out"
    STALLED = "no step improves the dual at this precision"
    SAMPLED = (
        "every step of a stochastic optimizer is taken; for a smaller gradient mapping, add rows or passes"
    )
    INFEASIBLE = "the rules conflict; loosen or remove one"
    MISSED = "some observed rates violate their rules"

    @property
    def remedy(self) -> Remedy | None:
        """The action to take, or None if the description of the status contains it or no action is needed."""
        return {
            "MAX_STEPS": Remedy("add_steps"),
            "STALLED": Remedy("loosen_tolerance"),
            "SAMPLED": Remedy("choose_solver", "full_batch"),
        }.get(self.name)


class Step(NamedTuple):
    """One step of a solver, for callbacks and traces.

    Attributes
    ----------
    number : int
        index of the step, from zero.
    rows : float
        total weight of the rows that this step used.
    beta : float
        inverse temperature of the policy.
    value : float
        value of the dual.
    gradient_mapping : float
        norm of the gradient mapping, which is zero at the optimum.

    Examples
    --------
    >>> Step(0, 2000.0, 30.0, -0.2, 1e-3).rows
    2000.0
    """

    number: int
    rows: float
    beta: float
    value: float
    gradient_mapping: float


Callback = Callable[[Step], Any]


@dataclass(frozen=True)
class Guarantee:
    """Bounds on the violation and the cost of a policy, by the paper's Lemma "hat_grad_map_stat".

    The lemma bounds both by the norm of the gradient mapping, ||G||, on the population. Only its value on the
    n fitted rows is known (for a stream, which keeps no rows, on its last batch). As projections do not
    increase distances, and the rate of each rule is a mean,

        ||G|| <= ||G on the fitted rows|| + ||v - v on the fitted rows||, E||v - v on n rows|| <= sigma /
        sqrt(n)

    for the violations v of a policy that does not depend on these rows. For a policy fitted on the same rows,
    it is the order of magnitude (in the paper: up to logarithms and a factor 1 + ||lambda|| sigma / sqrt(n)).
    This estimate is not a certificate; held-out rows give one.

    Two more terms depend on the errors of the model, which scores alone do not reveal: delta_loss =
    E max_a abs(l - l_hat), the error in the estimated loss, and delta_constr^2 = E norm(C - C_hat)^2, the
    error in the estimated rules. They must be added to all bounds of this class. Rules are in the solver's
    unit: shares of rows, and costs relative to their size.

    Attributes
    ----------
    gradient_mapping : float
        ||G_alpha(lambda)||, where G_alpha(lambda) = (lambda - (lambda - alpha grad F(lambda))_+) / alpha.
    multiplier_norm : float
        ||lambda||_2, the norm of the multipliers.
    alpha : float
        the step of the gradient mapping: E[largest - smallest loss of a row].
    beta : float
        the inverse temperature.
    sigma : float
        sigma^2 = E max_a ||c(x, a)||^2, where c are the rules' costs less their bounds. With weights w,
        sigma^2 is at least n sum w^2 max_a ||c||^2 / (sum w)^2, so that sigma^2 / n is the variance of
        weighted means.
    smoothness : float
        L = 2 beta sigma^2.
    mean_norm : float
        E max_a ||c(x, a)||.
    entropy : float
        the largest entropy of a decision: ``log(A)`` for A actions, or K log 2 for sets of K labels.
    rows : float
        n, the number of fitted rows; nan if it is not known.
    most_slack : float
        an upper bound on the slack that a policy can leave in all rules at once, (E[largest loss of a row] +
        F(lambda)) / ||lambda||_1. Slater's condition requires a positive slack. Infinite if no rule binds,
        nan if it is not known. `diagnose(problem, evidence).slack` is the slack itself.
    chance : float
        for deterministic decisions, their cost beyond the bound of the lemma, which is for randomized ones.
    violation, excess_cost : float
        the bounds on the fitted rows.
    sampling : float
        sigma / sqrt(n).
    violation_on_new_rows, excess_cost_on_new_rows : float
        the bounds to expect on new rows, with ||G|| + sampling in place of ||G||.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> evidence = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    >>> terms = solve(Problem(error(), [rejected() <= 0.4]), evidence).guarantee
    >>> round(terms.sigma, 3), terms.rows, round(terms.sampling, 3)  # 0.6 for a rejected row, 0.6 / sqrt(4)
    (0.6, 4.0, 0.3)
    """

    gradient_mapping: float
    multiplier_norm: float
    alpha: float
    beta: float
    sigma: float
    smoothness: float
    mean_norm: float
    entropy: float
    rows: float = math.nan
    most_slack: float = math.nan
    chance: float = 0.0

    @property
    def violation(self) -> float:
        """A bound on the norm of all violations on the fitted rows: ||G||. Add delta_constr to it."""
        return self.gradient_mapping

    @property
    def excess_cost(self) -> float:
        """A bound on the cost beyond the best policy that satisfies the rules, on the fitted rows.

        It is (||lambda|| + alpha E||C||) ||G|| + 2 entropy / beta. Add 2 delta_loss + delta_constr
        ||lambda||.
        """
        return self._bound_cost(self.gradient_mapping)

    def _bound_cost(self, mapping: float) -> float:
        reach = self.multiplier_norm + self.alpha * self.mean_norm
        return reach * mapping + 2 * self.entropy / self.beta + self.chance

    @property
    def sampling(self) -> float:
        """An estimate of the additional norm of all violations on new rows: sigma / sqrt(n)."""
        return self.sigma / math.sqrt(self.rows) if self.rows else math.nan

    @property
    def violation_on_new_rows(self) -> float:
        """An estimate of the violation on new rows: ||G|| + sigma / sqrt(n). Add delta_constr to it."""
        return self.gradient_mapping + self.sampling

    @property
    def excess_cost_on_new_rows(self) -> float:
        """An estimate of `excess_cost` on new rows, with ||G|| + sigma / sqrt(n) in place of ||G||."""
        return self._bound_cost(self.violation_on_new_rows)

    def __str__(self) -> str:
        model = f"2 delta_loss + {self.multiplier_norm:.3g} delta_constr"
        new = (
            f"on new rows, by the sampling of {self.rows:,.0f} rows, expect about\n"
            f"  violation      {self.violation_on_new_rows:.3g} + delta_constr\n"
            f"  excess cost    {self.excess_cost_on_new_rows:.3g} + {model}\n"
        )
        new = "" if math.isnan(self.sampling) else new
        return (
            "on the fitted rows\n"
            f"  violation   <= {self.violation:.3g} + delta_constr\n"
            f"  excess cost <= {self.excess_cost:.3g} + {model}\n"
            f"{new}"
            f"with ||G|| = {self.gradient_mapping:.3g}, ||lambda|| = {self.multiplier_norm:.3g}, "
            f"alpha = {self.alpha:.3g}, sigma = {self.sigma:.3g}, L = {self.smoothness:.3g}, "
            f"beta = {self.beta:.4g}, entropy/beta = {self.entropy / self.beta:.3g}, "
            f"sigma/sqrt(n) = {self.sampling:.3g}, slack <= {self.most_slack:.3g}; delta_loss and "
            "delta_constr are the model's errors in the loss and in the rules"
        )


@dataclass(frozen=True)
class Certificate:
    """The result of a test on held-out rows that all rules are satisfied together on the population.

    Attributes
    ----------
    confidence : float
        the confidence of the test.
    rows : int
        the number of held-out rows.
    margin : float
        by how many standard errors the rules were tightened.
    tested : int
        the number of policies tested, from the most cautious on; the certified one is the last that passed.
    p_value : float
        the largest p-value of all rules.

    Examples
    --------
    >>> print(Certificate(0.95, 200, 1, 4, 0.03))
    all rules hold with 95 % confidence, tested on 200 held-out rows (p = 0.03, margin of 1 standard errors)
    """

    confidence: float
    rows: int
    margin: float
    tested: int
    p_value: float

    def __str__(self) -> str:
        return (
            f"all rules hold with {100 * self.confidence:g} % confidence, tested on {self.rows:,} held-out "
            f"rows (p = {self.p_value:.2g}, margin of {self.margin:.3g} standard errors)"
        )


class FittedRate(NamedTuple):
    """The rate of one rule on the fitted rows, from observed labels and groups, in the rule's own unit."""

    rule: str
    excess: float  # of the rate beyond its bound; negative if the rule is satisfied with slack
    standard_error: float  # of the rate, as an estimate of the rate on the population
    rows: float  # number of rows that are observed to satisfy the rarest condition of the rule
    trust: float  # weight of the observed rate; below 1 with few rows, where the predicted rate has the rest
    margin: float  # by how much the rule was tightened


@dataclass(frozen=True)
class FittedRates:
    """The rates of all rules on the fitted rows, and the probability to satisfy all on the population.

    Attributes
    ----------
    rules : tuple of FittedRate
        the result of each rule.
    chance : float
        the estimated probability that the policy satisfies all rules on the population.
    rows_needed : float
        about how many rows would make that 90 %, with the same rates; infinite if a rule that binds has no
        margin.
    softness : float
        the factor by which beta was reduced, because no policy with a larger beta was found to satisfy the
        rules.
    observed : bool
        whether labels or groups on which some rule depends were given.

    Examples
    --------
    >>> rates = FittedRates((FittedRate("error() <= 0.1", -0.002, 0.004, 5000.0, 1.0, 0.002),), 0.7, 33000.0)
    >>> print(rates.describe_fitted_rows())
    as observed, all rules hold on the fitted rows
    >>> print(rates.describe_chance())
    on many new rows with a probability of 70 %
    """

    rules: tuple[FittedRate, ...]
    chance: float
    rows_needed: float
    softness: float = 1.0
    observed: bool = True

    def describe_fitted_rows(self) -> str:
        """Return a sentence on whether the policy satisfies the rules on the fitted rows."""
        worst, how = max(self.rules, key=lambda one: one.excess), "as observed, " if self.observed else ""
        text = f"{how}all rules hold on the fitted rows"
        if worst.excess > 1e-6:  # the default tolerance of solvers
            text = f"{how}{worst.rule!r} is violated by {worst.excess:.3g} on the fitted rows"
        softer = f"; beta is {self.softness:.3g} times smaller for it" if self.softness > 1 else ""
        return f"{text}{softer}"

    def __str__(self) -> str:
        text = f"{self.describe_fitted_rows()}; {self.describe_chance()}"
        more = self.chance < 0.9 and self.rows_needed < math.inf
        return f"{text}, 90 % with {self.rows_needed:,.0f} rows" if more else text

    def describe_chance(self) -> str:
        """Return a phrase with the probability that the policy satisfies all rules on the population."""
        return f"on many new rows with a probability of {100 * self.chance:.0f} %"


class GroupRate(NamedTuple):
    """One group of the objective "rate of the worst group", with its rate and its weight."""

    group: Conditions
    weight: float  # in the weighted mean of group rates with the same optimum; all weights sum to one
    rate: float  # on the fitted rows, from observed labels and groups if given; nan with too few rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rate = None if math.isnan(self.rate) else self.rate
        return {**self._asdict(), "group": dict(self.group), "rate": rate}

    def __str__(self) -> str:
        rate = "too few rows to show its rate" if math.isnan(self.rate) else f"{self.rate:.4g}"
        return f"{format_conditions(self.group)}: {rate}, weight {self.weight:.3g}"


class HardDecisions(NamedTuple):
    """The cost of deterministic decisions and of randomized ones on the fitted rows, for predicted rates."""

    cost: float  # of the deterministic decisions
    randomised_cost: float
    randomised_excess: float  # a bound on the cost of the randomized decisions beyond the best policy

    @property
    def excess(self) -> float:
        """The largest possible cost of the deterministic decisions beyond the best randomized ones."""
        return max(self.price, 0.0) + self.randomised_excess

    @property
    def price(self) -> float:
        """The cost of the deterministic decisions less that of the randomized ones."""
        return self.cost - self.randomised_cost

    def __str__(self) -> str:
        compared = f"{abs(self.price):.2g} {'less' if self.price < 0 else 'more'} than the randomized ones"
        return f"deterministic decisions: they cost {self.cost:.4g}, {compared}"


class ExactOptimum(NamedTuple):
    """The optimum of the exact linear program on the fitted rows."""

    cost: float
    multipliers: Floats  # (n_rules,): one for each rule
    probabilities: Floats | None = None  # (n_actions, n_rows), in the order of the dual's blocks


@dataclass(frozen=True)
class Solution:
    """The multipliers that a solver found, and their quality on the fitted rows.

    Attributes
    ----------
    multipliers : array of shape (n_rules,)
        lambda in the paper, one for each rule.
    status : Status
        why the solver stopped.
    gradient_mapping : float
        norm of G_alpha(lambda), which bounds every violation.
    value : float
        value of the dual, F(lambda).
    steps : int
        the number of steps.
    trace : tuple of Step
        the values of each step.
    exact : ExactOptimum or None
        cost and multipliers of the exact linear program, by solver="linear_program"; not saved.
    passes : int
        the number of passes over all rows if these are out of memory; 0 for rows in memory.
    """

    multipliers: Floats
    status: Status
    gradient_mapping: float
    value: float
    steps: int
    trace: tuple[Step, ...] = field(default=(), repr=False)
    exact: ExactOptimum | None = field(default=None, repr=False)
    passes: int = 0


class RulePrice(NamedTuple):
    """The multiplier of a single rule of a fitted policy, and the margin by which it was tightened."""

    statement: str  # the rule, or the family it is part of, as written in the problem
    rule: str  # the single rule
    multiplier: float  # its shadow price
    tightened: float = 0.0  # by how much its bound was tightened, so that the observed rate satisfies it


class RateExcess(NamedTuple):
    """The excesses of a policy's rates beyond the stated bounds, (n_rules,) each, in the dual's units."""

    predicted: Floats
    observed: Floats

    @property
    def error(self) -> Floats:
        """The plug-in error of each rate: observed less predicted."""
        return self.observed - self.predicted


Target = Callable[[RateExcess], Floats]  # returns the excess of each rule that must be <= 0, (n_rules,)
