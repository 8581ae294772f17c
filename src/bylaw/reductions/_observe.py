"""Rules on observed rates: corrections with which the observed labels or groups of fitted rows satisfy them.

The plug-in error of a rule is its observed rate minus its predicted rate. The bound of each rule is shifted
by this error until the observed rates satisfy the rules (`solvers.shifts`). If few rows are about a rule, its
observed rate is mostly noise, and the shift is shrunk according to its standard error. Margins are multiples
of the standard errors of observed rates; they give the probability that all rules are satisfied on new rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from bylaw._base import Floats
from bylaw.language import LABEL, Problem
from bylaw.program import (
    Callback,
    Dual,
    HardDecisions,
    LinearForm,
    ObservedRates,
    RateExcess,
    RateUncertainty,
    Solution,
    StandardErrors,
    Status,
    attach_observed,
    compile_observed,
)
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.rows import Evidence, ObservedRows
from bylaw.solvers import ObservedSolution, ShiftedRules, find_separate_rules, screen_rows

Resolve = Callable[..., Solution]  # solves a dual, optionally from given multipliers
Margin = float | Literal["auto"]

FEW_ROWS = 20  # an observed rate on fewer rows is too noisy to be used
FINEST = 0.02  # a smaller standard error of a difference of rates is always precise enough
CHANCE = 0.95  # probability that all rules hold on new rows, which is the goal of margin="auto"
LEAST_CHANCE = 0.5  # with a smaller probability, a violation is more likely than not: margins would fit noise
RAREST = 1e-3  # ratios with a smaller denominator (a share of rows) are satisfied less precisely
ROOM = 0.9  # part of the distance between two opposite rules that their margins may use
TRIALS = 5  # number of margins that are tried
DRAWS = 8192  # normal vectors per joint probability, whose standard error is then below 0.006
MOST_BINDING = 200  # rules in a joint probability: those closest to their bounds


@dataclass(frozen=True)
class RuleTarget:
    """The condition on M rules: predicted excess + trusted plug-in error + margin <= 0."""

    exact: NDArray[np.bool_]  # (M,): rules that observed rates must satisfy
    trust: Floats  # (M,): the part of the plug-in error that counts; one for exact rules
    margins: Floats  # (M,): how far each rate must be below its bound

    def __call__(self, rates: RateExcess) -> Floats:
        """Return the left side of the condition, (M,)."""
        return self.stated_excess(rates) + self.margins

    def stated_excess(self, rates: RateExcess) -> Floats:
        """Return the excess of each rule without its margin, (M,): how far its rate is beyond its bound."""
        return rates.predicted + self.trust * rates.error

    def limit(self, most: RuleTarget | None) -> RuleTarget:
        """Return the target with margins that are at most those of `most`."""
        return self if most is None else replace(self, margins=np.minimum(self.margins, most.margins))

    def cut(self, shares: Floats) -> RuleTarget:
        """Return the target with its margins multiplied by `shares`, (M,)."""
        return replace(self, margins=shares * self.margins)


@dataclass(frozen=True)
class CorrectedSolution:
    """A solution whose observed rates satisfy the rules, as far as that is possible."""

    dual: Dual  # with the stated bounds
    solution: Solution
    rates: RateExcess
    target: RuleTarget
    hard: HardDecisions | None = None  # for deterministic decisions

    @property
    def shift(self) -> Floats:
        """The margin by which each rule is tightened when it is applied to predicted rates, (M,)."""
        return self.target(self.rates) - self.rates.predicted


Restate = Callable[[CorrectedSolution], CorrectedSolution]  # express a solution in terms of the stated rules


def as_stated(found: CorrectedSolution) -> CorrectedSolution:
    """Return the solution unchanged: the `Restate` of rules that were not tightened."""
    return found


@dataclass(frozen=True)
class Coverage:
    """Rules on prediction sets that each limit the share of a label's rows whose set omits the label.

    If m of n rows are omissions, the share of omissions on new rows has a beta distribution with the
    parameters m + 1 and n - m, as in conformal prediction.
    """

    most: Floats  # (M,): largest allowed share of omissions
    counts: Floats  # (M,): number of rows with the label

    def chances(self, shares: Floats) -> Floats:
        """Return the probability that each rule holds on new rows, (M,), given shares of omissions, (M,)."""
        misses = np.clip(shares * self.counts, 0.0, self.counts - 1e-9)
        return special.betainc(misses + 1, self.counts - misses, self.most)

    def find_margins(self, errors: float) -> Floats:
        """Return how far the observed shares of omissions must be below their limits, (M,).

        With `errors` of zero, the expected share on new rows is at the limit. Otherwise the share on new rows
        is below the limit with the probability that a normal variable is at most `errors` standard errors.
        """
        if not errors:
            return (1 - self.most) / self.counts  # m + 1 of n + 1 rows, as a mean
        low, high, chance = np.zeros(len(self.most)), self.most, special.ndtr(errors)
        for _ in range(40):  # bisection, to below a thousandth of a row
            middle = (low + high) / 2
            enough = self.chances(middle) >= chance
            low, high = np.where(enough, middle, low), np.where(enough, high, middle)
        return self.most - low


@dataclass(frozen=True)
class RuleFacts:
    """Facts about the rules on rows with observed labels or groups, before any margin.

    They stay the same when rules are tightened.
    """

    problem: Problem
    evidence: Evidence
    rows: ObservedRows
    dual: Dual  # with the stated bounds, and with observed features beside the predicted ones
    rates: ObservedRates
    run: Resolve  # applies the solver
    spared: int = 0  # number of rules at the end that compare groups for the objective and get no margin

    @cached_property
    def affected(self) -> NDArray[np.bool_]:
        """Whether the observed rate of each rule can differ from its predicted rate, (M,)."""
        return self.refer_to(self.rows.observed - set(self.evidence.known_groups)) & self.rates.visible

    def refer_to(self, names: Set[str]) -> NDArray[np.bool_]:
        """Return whether each rule has features about one of these attributes, (M,)."""
        form = self.dual.form
        named = [not names.isdisjoint(dict(feature.event)) for feature in form.feature_map.features]
        return abs(form.couplings) @ np.repeat(named, form.base.shape[1]) > 0

    @cached_property
    def counts(self) -> Floats:
        """The number of rows that meet the rarest condition of each rule, (M,)."""
        shown = {
            event: share * self.dual.n_rows * self.rows.seen_share(event)
            for event, share in self.rates.form.frequencies.items()
        }
        rates = [found.excess for found in self.dual.form.rules]
        fewest = [
            min((shown.get(c, math.inf) for c in rate.by_condition()), default=math.inf) for rate in rates
        ]
        return np.minimum(fewest, self.dual.n_rows)

    @property
    def conditional(self) -> NDArray[np.bool_]:
        """Whether each rule is about only some of the rows, (M,)."""
        return np.array([any(found.excess.by_condition()) for found in self.dual.form.rules])

    @cached_property
    def begin(self) -> Floats:
        """The multipliers of the policy for predicted rates, (M,), or zero if the rules conflict."""
        solution = self.run(self.dual)
        if solution.status is Status.INFEASIBLE:
            return np.zeros(self.dual.n_rules)
        return solution.multipliers

    @cached_property
    def room(self) -> Floats:
        """The largest margin that a rule and its opposite rule can both have, (M,); infinity without one."""
        return _find_room(self.dual.form)

    @cached_property
    def ratios(self) -> RatioRules | None:
        """The rules of the form N <= D with their D, or None."""
        return RatioRules.find(self)

    @cached_property
    def uncertainty(self) -> RateUncertainty:
        return RateUncertainty.of(self.dual, self.rates, self.evidence, self.rows)

    @cached_property
    def errors(self) -> StandardErrors:
        """The standard errors of the rates of the policy for predicted rates."""
        return self.uncertainty.standard_errors(self.begin, self.dual.beta)

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """Whether each rule has enough rows to be satisfied by its observed rate, (M,).

        For a difference between groups, the standard error must not exceed the tolerance. Rules that compare
        groups for the objective always count as exact.
        """
        form = self.dual.form
        compares = np.array([len(found.excess.by_condition()) > 1 for found in form.rules])
        tolerance = np.maximum(abs(form.bounds * form.scales), FINEST)
        noisy = compares & (self.errors.error * form.scales > tolerance)
        spared = np.arange(self.dual.n_rules) >= self.dual.n_rules - self.spared
        return ~self.affected | spared | (self.counts >= FEW_ROWS) & ~noisy

    @cached_property
    def trust(self) -> Floats:
        """The part of each plug-in error by which bounds are shifted, (M,); one for exact rules.

        For other rules it is e^2 / (e^2 + SE^2), which is a Bayesian estimate with a prior variance of e^2.
        """
        total = self.uncertainty.tally(self.begin, self.dual.beta)
        error = self.rates.measure(self.uncertainty.sample, total).error
        squares, noise = error**2, self.errors.error**2
        own = np.divide(squares, squares + noise, out=np.ones_like(noise), where=noise > 0)
        return np.where(self.exact, 1.0, own)

    @cached_property
    def coverage(self) -> Coverage | None:
        """The limits on omitted labels if each rule bounds those of one label, else None."""
        form = self.dual.form
        if find_separate_rules(form) is None:
            return None
        bounds = form.bounds * form.scales  # of misses, or of labels that are included, which are negative
        return Coverage(np.where(bounds < 0, 1 + bounds, bounds), np.maximum(self.counts, 1.0))


@dataclass(frozen=True)
class Correction:
    """A problem on rows with observed labels or groups, to be fitted with a margin."""

    facts: RuleFacts
    dual: Dual  # the dual of the stated or of tightened rules
    rates: ObservedRates
    tol: float
    rng: np.random.Generator | None
    callback: Callback | None
    polish: bool  # whether a solver other than the default one is applied to the result

    @classmethod
    def prepare(
        cls,
        problem: Problem,
        evidence: Evidence,
        dual: Dual,
        rows: ObservedRows,
        run: Resolve,
        spared: int = 0,
        **options: object,
    ) -> Correction:
        """Return the `Correction` of a problem on these rows. `options` are the fields after `rates`."""
        rates = compile_observed(problem, dual.form, rows)
        whole = screen_rows(attach_observed(dual, rates, rows))
        facts = RuleFacts(problem, evidence, rows, whole, rates, run, spared)
        return cls(facts, whole, rates, **options)  # type: ignore[arg-type]

    @cached_property
    def uncertainty(self) -> RateUncertainty:
        """The covariance of the rates under policies with these coefficients."""
        stated = self.facts.uncertainty
        if self.dual is self.facts.dual:
            return stated
        return replace(stated, sample=stated.sample.with_form(self.dual.form))

    def fit(
        self,
        margin: Margin,
        *,
        held_out: float = 0.0,
        begin: Floats | None = None,
        most: RuleTarget | None = None,
    ) -> CorrectedSolution:
        """Return a solution that satisfies the rules with a margin, or with a smaller one if needed.

        Parameters
        ----------
        margin : float or "auto"
            In standard errors of observed rates.
        held_out : float
            For a test on held-out rows: the variance of their rates as a multiple of the variance on the
            fitted rows. The margin covers both.
        begin : array of shape (n_rules,), optional
            The multipliers to start from.
        most : RuleTarget, optional
            Upper bounds of the margins.
        """
        if margin == 0:
            return self.plain
        if margin == "auto":
            return self._fit_chance()
        target = self.make_target(margin, held_out).limit(most)
        for _ in range(TRIALS):
            found = self._solve(target, self.facts.begin if begin is None else begin)
            allowed = np.maximum(self.plain.target(self.plain.rates), target.margins) + self.tol
            dear = bool(self.facts.affected.any()) and found.cost > self.stated.most_cost
            if not dear and (found.holds or (not found.conflict and (found.excess <= allowed).all())):
                return self._finish(found, target)  # the rules hold, if perhaps with smaller margins
            # Halve the margins that cannot be had: where rules conflict or cost too much, all of them.
            violated = (found.excess > self.tol) | found.conflict | dear
            target = target.cut(np.where(violated, 0.5, 1.0))
        return self.plain

    def _fit_chance(self) -> CorrectedSolution:
        """Return the solution with the smallest margin with which all rules hold with probability `CHANCE`.

        This refers to new rows. If no margin suffices, the solution of the largest probability is returned.
        """
        best = self.plain
        low, high, highest = 0.0, math.inf, self.estimate_chance(best)[0]
        margin = self._find_joint_quantile() if highest < CHANCE else 0.0
        for _ in range(TRIALS if margin else 0):
            found = self.fit(margin)
            chance = self.estimate_chance(found)[0]
            if min(chance, CHANCE) > highest or chance >= CHANCE:
                best, highest = found, min(chance, CHANCE)
            # Where the margin falls short, a wider one would take more than the joint quantile of the noise.
            if chance <= (1 + CHANCE) / 2 and math.isinf(high):
                break
            low, high = (low, margin) if chance >= CHANCE else (margin, high)
            margin = (low + high) / 2
        noisy = self.facts.coverage is None and self.facts.affected.any() and highest < LEAST_CHANCE
        return self.plain if noisy else best

    def hold(self, target: RuleTarget, begin: Floats) -> CorrectedSolution:
        """Return the solution that satisfies a target, or comes as near to it as possible."""
        return self._finish(self._solve(target, begin), target)

    def with_couplings(self, predicted: sparse.csr_array, observed: sparse.csr_array) -> Correction:
        """Return the correction with other coefficients of the rules, in the same units."""
        form = replace(self.dual.form, couplings=predicted)
        return replace(self, dual=self.dual.with_form(form), rates=replace(self.rates, couplings=observed))

    @cached_property
    def plain(self) -> CorrectedSolution:
        """The solution without margins."""
        return self.hold(self.make_target(0.0, 0.0), self.facts.begin)

    @cached_property
    def bound_errors(self) -> Floats:
        """The standard errors of the observed rates of the solution without margins, (M,)."""
        at = self.plain.solution.multipliers, self.plain.dual.beta
        return self.uncertainty.standard_errors(*at).observed

    def make_target(self, margin: float, held_out: float) -> RuleTarget:
        """Return a target whose margins are this many standard errors of the solution without margins."""
        sizes, errors = np.zeros(self.dual.n_rules), margin * math.sqrt(1 + held_out)
        if self.facts.coverage is not None:
            sizes = np.where(
                self.facts.affected, self.facts.coverage.find_margins(errors) / self.dual.form.scales, 0.0
            )
        elif margin:
            sizes = np.minimum(errors * self.bound_errors, ROOM * self.facts.room)
            sizes[self.dual.n_rules - self.facts.spared :] = 0.0
            sizes[~self.facts.exact] = 0.0  # a margin on an estimate that is mostly noise proves nothing
        return RuleTarget(self.facts.exact, self.facts.trust, sizes)

    def _solve(self, target: RuleTarget, begin: Floats) -> ObservedSolution:
        if not self.facts.affected.any():
            return self._solve_as_predicted(target, begin)
        return self.pose(target, self.callback).solve(begin)

    @cached_property
    def stated(self) -> ShiftedRules:
        """The search for multipliers with which observed rates satisfy the rules without margins."""
        return self.pose(self.make_target(0.0, 0.0))

    def pose(self, target: RuleTarget, callback: Callback | None = None) -> ShiftedRules:
        """Return the search for multipliers with which the rates satisfy a target."""
        units, ratios = np.maximum(self.facts.errors.observed, 1 / self.facts.counts), self.facts.ratios
        tolerance = np.full(self.dual.n_rules, self.tol)
        if ratios is not None:  # a ratio exceeds its level by the excess of N over D divided by D
            tolerance[ratios.chosen] *= RAREST
        return ShiftedRules(
            self.dual,
            self.rates,
            target,
            units=np.where(self.facts.affected, units, 0.0),
            tolerance=tolerance,
            room=self.facts.room,
            denominators=None if ratios is None else ratios.predicted,
            tol=self.tol,
            rng=self.rng,
            callback=callback,
        )

    def _solve_as_predicted(self, target: RuleTarget, begin: Floats) -> ObservedSolution:
        """Solve a problem in which no observed rate differs from its predicted rate, which is convex."""
        answer = self.facts.run(self.dual.with_bounds(self.dual.form.bounds - target.margins), begin)
        total = self.dual.tally(answer.multipliers)
        rates, conflict = self.rates.measure(self.dual, total), answer.status is Status.INFEASIBLE
        excess = target(rates)
        return ObservedSolution(
            dual=self.dual,
            multipliers=answer.multipliers,
            value=answer.value,
            rates=rates,
            excess=excess,
            cost=self.rates.measure_cost(total),
            holds=not conflict and bool((excess <= self.tol).all()),
            conflict=conflict,
            trace=answer.trace,
        )

    def _finish(self, found: ObservedSolution, target: RuleTarget) -> CorrectedSolution:
        dual, rates = found.dual, found.rates
        multipliers, value, steps = found.multipliers, found.value, len(found.trace)
        if self.polish:  # apply the solver that the caller passed
            last = self.facts.run(
                dual.with_bounds(dual.form.bounds - (target(rates) - rates.predicted)), multipliers
            )
            multipliers, value, steps = last.multipliers, last.value, last.steps
            rates = self.rates.measure(dual, dual.tally(multipliers))
        solution = Solution(multipliers, Status.MISSED, 0.0, value, steps, found.trace)
        return self.conclude(CorrectedSolution(dual, solution, rates, target))

    def conclude(self, found: CorrectedSolution) -> CorrectedSolution:
        """Return the solution with the status that follows from its rates."""
        missed = np.maximum(found.target.stated_excess(found.rates)[self.facts.exact], 0.0)
        status = Status.CONVERGED if missed.max(initial=0.0) <= self.tol else Status.MISSED
        norm = float(np.linalg.norm(missed))
        return replace(found, solution=replace(found.solution, status=status, gradient_mapping=norm))

    def describe(self, solution: Solution) -> CorrectedSolution:
        """Return a solution that needs no correction as a `CorrectedSolution` with its observed rates."""
        rates = self.rates.measure(self.dual, self.dual.tally(solution.multipliers))
        return CorrectedSolution(self.dual, solution, rates, self.make_target(0.0, 0.0))

    # Joint probabilities, estimated by draws of normal vectors with the covariance of the observed rates.

    def _find_joint_quantile(self) -> float:
        """Return a margin, in standard errors, that covers the errors of all rules with probability `CHANCE`.

        Only the rules that are closest to their bounds count.
        """
        *_, draws = self._draw(self.plain)
        deviations = draws.std(axis=1, keepdims=True)
        worst = (draws / np.where(deviations > 0, deviations, 1.0)).max(axis=0, initial=0.0)
        return float(np.quantile(worst, CHANCE))

    def estimate_chance(self, found: CorrectedSolution) -> tuple[float, float]:
        """Return the probability that all rules hold on the population, and the number of rows for 90 %.

        Observed rates vary around the rates of the population with their standard errors. If rules compare
        groups that are unknown at decision time, the observed gaps are mostly noise that no policy can
        follow. The probability is then the mean of two estimates: one with the observed gaps, and one with
        gaps that are
        shrunk towards zero, by as much as their size in standard errors suggests (James and Stein).
        """
        rules, covariance, draws = self._draw(found)
        observed = found.rates.observed[rules, None]
        chance = float((observed + draws <= self.tol).all(axis=0).mean())
        hidden = self.facts.refer_to(self.facts.rows.observed - {LABEL, *self.facts.evidence.known_groups})
        paired = (hidden & self.facts.affected & np.isfinite(self.facts.room))[rules]
        if self.facts.coverage is not None:
            misses = self.facts.coverage.most + found.rates.observed * self.dual.form.scales
            chance = float(self.facts.coverage.chances(misses)[self.facts.affected].prod())
        elif paired.any():
            center = np.where(paired, -self.facts.room[rules], 0.0)[:, None]
            gaps = (observed - center)[paired, 0]
            shrinkage = _draw_shrinkage(gaps, covariance[np.ix_(paired, paired)])
            kept = np.where(paired[:, None], 1 - shrinkage, 1.0)
            shrunk = center + kept * (observed - center) + np.sqrt(kept) * draws
            chance = (chance + float((shrunk <= self.tol).all(axis=0).mean())) / 2
        slack = self.tol - observed
        if (slack < 0).any():
            return chance, math.inf
        room = np.divide(slack, draws, out=np.full(draws.shape, np.inf), where=draws > 0)
        # The factor by which noise may grow so that nine in ten draws still satisfy all rules.
        least = float(np.quantile(room.min(axis=0, initial=np.inf), 0.1, method="lower"))
        needed = self.dual.n_rows / least**2 if least > 0 else math.inf
        return chance, needed if needed < 1e4 * self.dual.n_rows else math.inf

    def _draw(self, found: CorrectedSolution) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Return the rules nearest to their bounds, the covariance of their rates, and draws of their errors.

        The rules are indices, (n_nearest,), and the draws have the shape (n_nearest, n_draws).
        """
        spread, observed = self.facts.errors.observed, found.rates.observed
        distance = np.divide(-observed, spread, out=np.full(len(spread), np.inf), where=spread > 0)
        rules = np.argsort(distance, kind="stable")[:MOST_BINDING]
        rules = rules[np.isfinite(distance[rules])]
        if not len(rules):
            return rules, np.zeros((0, 0)), np.zeros((0, DRAWS))
        covariance = self.uncertainty.covariance(found.solution.multipliers, found.dual.beta, rules)
        values, vectors = np.linalg.eigh(covariance)
        return rules, covariance, vectors * np.sqrt(np.maximum(values, 0.0)) @ _draw_normal(len(rules))


def _draw_shrinkage(gaps: Floats, covariance: Floats) -> Floats:
    """Draw factors from zero to one, (n_draws,), that shrink observed gaps between groups towards zero.

    The prior of the population gaps is normal, with the covariance of their estimates times 1 / B - 1, where
    B is uniform. Given the estimates, B has a gamma distribution truncated at one, and the gaps are normal
    with 1
    - B times the mean and the covariance that they have without a prior.
    """
    values, vectors = np.linalg.eigh(covariance)
    # The rates of a rule and its opposite vary together, so their sum only has rounding errors.
    kept = values > math.sqrt(np.finfo(float).eps) * values[-1]
    half = max(float(((vectors.T @ gaps)[kept] ** 2 / values[kept]).sum()) / 2, 1e-9)
    shape = kept.sum() / 2 + 1
    uniform = np.random.default_rng(1).random(DRAWS)
    return np.minimum(special.gammaincinv(shape, uniform * special.gammainc(shape, half)) / half, 1.0)


@lru_cache(maxsize=1)
def _draw_normal(size: int) -> Floats:
    """Return standard normal draws, (size, n_draws), from a fixed seed."""
    return np.ascontiguousarray(np.random.default_rng(0).standard_normal((DRAWS, size)).T)


def _find_room(form: LinearForm) -> Floats:
    """Return half of the distance between the bounds of a rule and its opposite rule, (M,), or infinity."""
    opposites: dict[tuple[bytes, bytes], int] = {}
    room = np.full(len(form.bounds), np.inf)
    for j in range(len(form.bounds)):
        part = slice(form.couplings.indptr[j], form.couplings.indptr[j + 1])
        places = form.couplings.indices[part].tobytes()
        values: Floats = np.asarray(form.couplings.data[part], dtype=np.float64)
        if (k := opposites.get((places, (-values).tobytes()))) is not None:
            room[[j, k]] = np.minimum(room[[j, k]], max((form.bounds[j] + form.bounds[k]) / 2, 0.0))
        opposites[places, values.tobytes()] = j
    return room
