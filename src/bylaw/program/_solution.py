"""What a solver returns: multipliers, how good they are, and the price of each rule."""

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
    """How a solver ended; `remedy` is what to do about it.

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
    MISSED = "some observed rates do not satisfy their rules"

    @property
    def remedy(self) -> Remedy | None:
        """What to do about it, beside what its description states."""
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
    rows : float
        total weight of the rows that this step used.
    beta : float
    value : float
        of the dual.
    gradient_mapping : float
        its norm.

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
    """The terms of the paper's Lemma "hat_grad_map_stat" on the fitted rows and on new ones.

    For a stream, which keeps no rows, the gradient mapping is that on its last batch.

    The lemma bounds a policy by the gradient mapping, ||G||, of the population. Known is that of the fitted
    rows, a sample of n. As projections do not widen, and each rule's rate is a mean,

        ||G|| <= ||G on the fitted rows|| + ||v - v on the fitted rows||,
        E||v - v on n rows|| <= sigma / sqrt(n)

    for the violations v of a policy chosen beforehand; for one chosen on the same rows it is the order of
    magnitude (the paper: up to logarithms and a factor 1 + ||lambda|| sigma / sqrt(n)). This estimate is not
    a certificate; held-out rows give one.

    Two more terms are about the model and cannot be known from scores alone: delta_loss = E max_a abs(l -
    l_hat) and delta_constr^2 = E norm(C - C_hat)^2, the errors in the estimated loss and rules. All bounds
    here are added to them. Rules are in the solver's unit: shares of rows, and costs relative to their size.

    Attributes
    ----------
    gradient_mapping : float
        ||G_alpha(lambda)||, where G_alpha(lambda) = (lambda - (lambda - alpha grad F(lambda))_+) / alpha.
    multiplier_norm : float
        ||lambda||_2.
    alpha : float
        the step of the gradient mapping: E[largest - smallest loss of a row].
    beta : float
        the inverse temperature.
    sigma : float
        sigma^2 = E max_a ||c(x, a)||^2, c the rules' costs less their bounds; with weights w at least
        n sum w^2 max_a ||c||^2 / (sum w)^2, so that sigma^2 / n is the variance of weighted means.
    smoothness : float
        L = 2 beta sigma^2.
    mean_norm : float
        E max_a ||c(x, a)||.
    entropy : float
        log|A|, or K log 2 for sets.
    rows : float
        n, of the fitted rows; nan where it is not known.
    most_slack : float
        (E[largest loss of a row] + F(lambda)) / ||lambda||_1: no policy satisfies all rules by more (Slater's
        condition asks for some that is above zero). Infinite if no rule binds, nan if it is not known.
        `diagnose(problem, evidence).slack` is the slack itself.
    chance : float
        of decisions without chance, what they cost beyond the bound of the lemma, which is about randomized
        ones.
    violation, excess_cost : float
        the bounds on the fitted rows.
    sampling : float
        sigma / sqrt(n).
    violation_on_new_rows, excess_cost_on_new_rows : float
        the same with ||G|| + sampling in place of ||G||: what to expect on new rows.

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
        """A bound on the norm of all violations on the fitted rows: ||G||, plus delta_constr."""
        return self.gradient_mapping

    @property
    def excess_cost(self) -> float:
        """A bound on the cost beyond the best policy that satisfies the rules, on the fitted rows.

        It is (||lambda|| + alpha E||C||) ||G|| + 2 entropy / beta, plus 2 delta_loss + delta_constr
        ||lambda||.
        """
        return self._bound_cost(self.gradient_mapping)

    def _bound_cost(self, mapping: float) -> float:
        reach = self.multiplier_norm + self.alpha * self.mean_norm
        return reach * mapping + 2 * self.entropy / self.beta + self.chance

    @property
    def sampling(self) -> float:
        """sigma / sqrt(n): by how much more all rules together may be violated on new rows."""
        return self.sigma / math.sqrt(self.rows) if self.rows else math.nan

    @property
    def violation_on_new_rows(self) -> float:
        """||G|| + sigma / sqrt(n): the norm of all violations to expect there; delta_constr comes on top."""
        return self.gradient_mapping + self.sampling

    @property
    def excess_cost_on_new_rows(self) -> float:
        """(||lambda|| + alpha E||C||) (||G|| + sigma / sqrt(n)) + 2 entropy / beta, likewise."""
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
    """That all rules hold together on the population, tested on held-out rows.

    Attributes
    ----------
    confidence : float
    rows : int
        that were held out.
    margin : float
        by how many standard errors the rules were tightened.
    tested : int
        policies, the most cautious first; the last that passed is this one.
    p_value : float
        the largest of all rules.

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
    """A single rule on the fitted rows, with labels and groups as observed; in the rule's own unit."""

    rule: str
    excess: float  # beyond the bound; below zero, the rule holds with room
    standard_error: float  # of the rate, as an estimate for the population
    rows: float  # that show the rarest of its conditions
    trust: float  # 1: held as observed; less: too few rows, and as predicted for the rest
    margin: float  # how much further it was held than it must be


@dataclass(frozen=True)
class FittedRates:
    """The rules on the fitted rows as observed, and what to expect on others.

    Attributes
    ----------
    rules : tuple of FittedRate
    chance : float
        estimated, that all rules hold on the population of the rows.
    rows_needed : float
        about how many rows would make that 90 %, with the same rates; infinite if a rule that binds has no
        margin.
    softness : float
        how many times smaller than asked for beta is, where no sharper policy was found to satisfy the rules.
    observed : bool
        whether labels or groups were given on which some rule depends.

    Examples
    --------
    >>> rates = FittedRates((FittedRate("error() <= 0.1", -0.002, 0.004, 5000.0, 1.0, 0.002),), 0.7, 33000.0)
    >>> print(rates.describe_fitted_rows())
    as observed, all rules hold on the fitted rows
    >>> print(rates.describe_chance())
    on many new rows with a chance of 70 %
    """

    rules: tuple[FittedRate, ...]
    chance: float
    rows_needed: float
    softness: float = 1.0
    observed: bool = True

    def describe_fitted_rows(self) -> str:
        """Return a sentence on whether the rules hold on the fitted rows."""
        worst, how = max(self.rules, key=lambda one: one.excess), "as observed, " if self.observed else ""
        text = f"{how}all rules hold on the fitted rows"
        if worst.excess > 1e-6:  # the default tolerance of solvers
            text = f"{how}{worst.rule!r} is missed by {worst.excess:.3g} on the fitted rows"
        softer = f"; beta is {self.softness:.3g} times smaller for it" if self.softness > 1 else ""
        return f"{text}{softer}"

    def __str__(self) -> str:
        text = f"{self.describe_fitted_rows()}; {self.describe_chance()}"
        more = self.chance < 0.9 and self.rows_needed < math.inf
        return f"{text}, 90 % with {self.rows_needed:,.0f} rows" if more else text

    def describe_chance(self) -> str:
        """Return a phrase on the chance that all rules hold on the population."""
        return f"on many new rows with a chance of {100 * self.chance:.0f} %"


class GroupRate(NamedTuple):
    """A group of an objective that is the worst group's rate."""

    group: Conditions
    weight: float  # in the linear objective with the same optimum; all have the sum one, and most are zero
    rate: float  # on the fitted rows, as observed where labels or groups were given

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rate = None if math.isnan(self.rate) else self.rate
        return {**self._asdict(), "group": dict(self.group), "rate": rate}

    def __str__(self) -> str:
        rate = "too few rows to show its rate" if math.isnan(self.rate) else f"{self.rate:.4g}"
        return f"{format_conditions(self.group)}: {rate}, weight {self.weight:.3g}"


class HardDecisions(NamedTuple):
    """Deterministic decisions beside randomized ones, on the fitted rows, by the model's probabilities."""

    cost: float
    randomised_cost: float
    randomised_excess: float  # what the randomized ones may cost beyond the best

    @property
    def excess(self) -> float:
        """The most that they may cost beyond the best randomized ones."""
        return max(self.price, 0.0) + self.randomised_excess

    @property
    def price(self) -> float:
        """The cost of giving up chance."""
        return self.cost - self.randomised_cost

    def __str__(self) -> str:
        compared = f"{abs(self.price):.2g} {'less' if self.price < 0 else 'more'} than the randomized ones"
        return f"decisions without chance: they cost {self.cost:.4g}, {compared}"


class ExactOptimum(NamedTuple):
    """The optimum of the exact linear program on the fitted rows."""

    cost: float
    multipliers: Floats  # (M,)
    probabilities: Floats | None = None  # (n_actions, n_rows), in the order of the dual's blocks


@dataclass(frozen=True)
class Solution:
    """Multipliers, and how good they are on the fitted rows.

    Attributes
    ----------
    multipliers : array of shape (n_rules,)
        lambda in the paper.
    status : Status
    gradient_mapping : float
        norm of G_alpha(lambda), which bounds every violation.
    value : float
        of the dual, F(lambda).
    steps : int
    trace : tuple of Step
    exact : ExactOptimum or None
        cost and multipliers of the exact linear program, by solver="linear_program"; not saved.
    passes : int
        how often all rows were looked at, where they live elsewhere; 0 for rows in memory.
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
    """A single rule of a fitted policy."""

    statement: str  # the rule or family as its author wrote it
    rule: str
    multiplier: float
    tightened: float = 0.0  # how much further its rate was held, so that the observed rate satisfies it
