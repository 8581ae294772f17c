"""Rules held as observed: where labels or groups of the fitted rows are known, their rates satisfy the rules.

The plug-in error of a rule is its observed rate less the predicted one. Bounds are shifted by it, rule by
rule, until the observed rates satisfy the rules as stated (`solvers.shifts`). Where so few rows show a rule
that its observed rate is mostly noise, its shift is shrunk by its own standard error. Margins are multiples
of the standard errors of observed rates, from which follows the chance that all rules hold on new rows.
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

from bylaw._base.typing import Floats
from bylaw.language.expressions import LABEL
from bylaw.language.problem import Problem
from bylaw.program.dual import Dual
from bylaw.program.linear_form import LinearForm
from bylaw.program.observed_rates import (
    ObservedRates,
    RateExcess,
    RateUncertainty,
    StandardErrors,
    attach_observed,
    compile_observed,
)
from bylaw.program.solution import HardDecisions, Solution, Status
from bylaw.reductions._ratio_rules import RatioRules
from bylaw.rows.evidence import Evidence
from bylaw.rows.outcomes import ObservedRows
from bylaw.solvers import Callback
from bylaw.solvers.screening import screen_rows
from bylaw.solvers.separable import find_separate_rules
from bylaw.solvers.shifts import ObservedSolution, ShiftedRules

Resolve = Callable[..., Solution]  # of a dual and, optionally, where to start
Margin = float | Literal["auto"]

FEW_ROWS = 20  # fewer tell nothing about a rate
FINEST = 0.02  # a standard error of a difference of rates below this is small, whatever the tolerance
CHANCE = 0.95  # that all rules hold on new rows, which margin="auto" aims at
LEAST_CHANCE = 0.5  # of all rules: below it, a violation is likelier than not, and gap margins fit noise
RAREST = 1e-3  # share of rows that a ratio divides by, for it to be held as precisely as other rates
ROOM = 0.9  # of what two opposite rules leave, that their margins may take
TRIALS = 5  # sizes of a margin that are tried
DRAWS = 8192  # of normal vectors, for joint chances: a standard error below .006
MOST_BINDING = 200  # rules in a joint chance, those closest to their bounds


@dataclass(frozen=True)
class RuleTarget:
    """What the rates of M rules must satisfy: predicted excess, plug-in error and margin together <= 0."""

    exact: NDArray[np.bool_]  # (M,): rules that are held as observed
    trust: Floats  # (M,): the part of the plug-in error that counts; one for exact rules
    margins: Floats  # (M,)

    def __call__(self, rates: RateExcess) -> Floats:
        """Return what must be <= 0, (M,)."""
        return self.stated_excess(rates) + self.margins

    def stated_excess(self, rates: RateExcess) -> Floats:
        """Return the excess of the rules without margins, (M,), as observed or as estimated."""
        return rates.predicted + self.trust * rates.error

    def limit(self, most: RuleTarget | None) -> RuleTarget:
        """Return the target with margins no larger than those of another one."""
        return self if most is None else replace(self, margins=np.minimum(self.margins, most.margins))

    def cut(self, shares: Floats) -> RuleTarget:
        """Return the target with these shares (M,) of the margins."""
        return replace(self, margins=shares * self.margins)


@dataclass(frozen=True)
class CorrectedSolution:
    """Multipliers for which the rates satisfy the rules as observed, as far as they can."""

    dual: Dual  # with the bounds as stated
    solution: Solution
    rates: RateExcess
    target: RuleTarget
    hard: HardDecisions | None = None  # without chance

    @property
    def shift(self) -> Floats:
        """By how much tighter than stated predicted rates are held, (M,)."""
        return self.target(self.rates) - self.rates.predicted


Restate = Callable[[CorrectedSolution], CorrectedSolution]  # in terms of the rules as they are stated


def as_stated(found: CorrectedSolution) -> CorrectedSolution:
    """Return a solution of the rules as they are stated: a `Restate` that changes nothing."""
    return found


@dataclass(frozen=True)
class Coverage:
    """Rules on prediction sets, each of which limits the share of one label's rows that miss their label.

    If m of n rows miss their label, the share of new rows that miss it has a beta distribution with the
    parameters m + 1 and n - m, as in conformal prediction.
    """

    most: Floats  # (M,): largest share of rows that may miss their label
    counts: Floats  # (M,): rows of the label

    def chances(self, shares: Floats) -> Floats:
        """Return the chance of each rule, (M,), with these shares (M,) of rows that miss their label."""
        misses = np.clip(shares * self.counts, 0.0, self.counts - 1e-9)
        return special.betainc(misses + 1, self.counts - misses, self.most)

    def find_margins(self, errors: float) -> Floats:
        """Return how much smaller than stated the observed shares must be, (M,).

        With zero errors, the mean share of new rows is as stated. Otherwise it is with the chance that a
        normal variable is within so many standard errors.
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
    """Facts about the rules of a problem on rows with observed labels or groups, before any margin.

    They remain the same when rules are tightened.
    """

    problem: Problem
    evidence: Evidence
    rows: ObservedRows
    dual: Dual  # with the bounds as stated, and observed features beside the predicted
    rates: ObservedRates
    run: Resolve  # the solver
    spared: int = 0  # number of last rules, which compare groups for the objective and get no margin

    @cached_property
    def affected(self) -> NDArray[np.bool_]:
        """The rules whose observed rates differ from the predicted ones, (M,)."""
        return self.refer_to(self.rows.observed - set(self.evidence.known_groups)) & self.rates.visible

    def refer_to(self, names: Set[str]) -> NDArray[np.bool_]:
        """Return which rules have features about some of these attributes, (M,)."""
        form = self.dual.form
        named = [not names.isdisjoint(dict(feature.event)) for feature in form.feature_map.features]
        return abs(form.couplings) @ np.repeat(named, form.base.shape[1]) > 0

    @cached_property
    def counts(self) -> Floats:
        """The number of rows with the rarest condition of each rule, (M,)."""
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
        """The rules on some of the rows only, (M,)."""
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
        """The largest margin of a rule whose opposite is a rule too, so that both can hold, (M,)."""
        return _find_room(self.dual.form)

    @cached_property
    def ratios(self) -> RatioRules | None:
        """The rules of the form N <= D, and their D."""
        return RatioRules.find(self)

    @cached_property
    def uncertainty(self) -> RateUncertainty:
        return RateUncertainty.of(self.dual, self.rates, self.evidence, self.rows)

    @cached_property
    def errors(self) -> StandardErrors:
        """Standard errors of the rates near the answer."""
        return self.uncertainty.standard_errors(self.begin, self.dual.beta)

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """The rules with enough rows to hold them as observed, (M,).

        The standard error of a difference between groups must not exceed the tolerance. Groups that are
        compared for the objective are held as observed.
        """
        form = self.dual.form
        compares = np.array([len(found.excess.by_condition()) > 1 for found in form.rules])
        tolerance = np.maximum(abs(form.bounds * form.scales), FINEST)
        noisy = compares & (self.errors.error * form.scales > tolerance)
        spared = np.arange(self.dual.n_rules) >= self.dual.n_rules - self.spared
        return ~self.affected | spared | (self.counts >= FEW_ROWS) & ~noisy

    @cached_property
    def trust(self) -> Floats:
        """The share of each plug-in error that counts, (M,).

        If few rows show a rule, it is e^2 / (e^2 + SE^2), a Bayesian estimate with a prior variance of e^2.
        """
        total = self.uncertainty.tally(self.begin, self.dual.beta)
        error = self.rates.measure(self.uncertainty.sample, total).error
        squares, noise = error**2, self.errors.error**2
        own = np.divide(squares, squares + noise, out=np.ones_like(noise), where=noise > 0)
        return np.where(self.exact, 1.0, own)

    @cached_property
    def coverage(self) -> Coverage | None:
        """The rules on prediction sets that each limit the misses of one label, or None for other rules."""
        form = self.dual.form
        if find_separate_rules(form) is None:
            return None
        bounds = form.bounds * form.scales  # of misses, or of labels that are included, which are negative
        return Coverage(np.where(bounds < 0, 1 + bounds, bounds), np.maximum(self.counts, 1.0))


@dataclass(frozen=True)
class Correction:
    """A problem on rows with observed labels or groups, to be fitted with a margin."""

    facts: RuleFacts
    dual: Dual  # of the stated rules or of tightened ones
    rates: ObservedRates
    tol: float
    rng: np.random.Generator | None
    callback: Callback | None
    polish: bool  # whether the solver is applied to the answer again, because it is not the default one

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
        """Return the correction of a problem, with the options of the fields after `rates`."""
        rates = compile_observed(problem, dual.form, rows)
        whole = screen_rows(attach_observed(dual, rates, rows))
        facts = RuleFacts(problem, evidence, rows, whole, rates, run, spared)
        return cls(facts, whole, rates, **options)  # type: ignore[arg-type]

    @cached_property
    def uncertainty(self) -> RateUncertainty:
        """The covariance of the rates, measured on policies with these coefficients."""
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
        """Return the rules held with a margin, as far as they leave a policy.

        Parameters
        ----------
        margin : float or "auto"
            in standard errors of observed rates.
        held_out : float
            for a test on held-out rows, the variance of their rates as a multiple of that on these rows: the
            margin has room for both.
        begin : array of shape (n_rules,), optional
            multipliers to begin with.
        most : RuleTarget, optional
            margins are no larger than those of this target.
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
        """Return the policy with the smallest margin with which all rules hold on new rows with `CHANCE`.

        The margin is bisected. If there is none, return the policy with the largest chance.
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
        """Return the rules held to this target, or as near to it as they can be."""
        return self._finish(self._solve(target, begin), target)

    def with_couplings(self, predicted: sparse.csr_array, observed: sparse.csr_array) -> Correction:
        """Return the same rules with other coefficients, in the same units."""
        form = replace(self.dual.form, couplings=predicted)
        return replace(self, dual=self.dual.with_form(form), rates=replace(self.rates, couplings=observed))

    @cached_property
    def plain(self) -> CorrectedSolution:
        """The solution without margins."""
        return self.hold(self.make_target(0.0, 0.0), self.facts.begin)

    @cached_property
    def bound_errors(self) -> Floats:
        """The standard errors of the observed rates without margins, (M,)."""
        at = self.plain.solution.multipliers, self.plain.dual.beta
        return self.uncertainty.standard_errors(*at).observed

    def make_target(self, margin: float, held_out: float) -> RuleTarget:
        """Return the rules with margins in standard errors of the policy without any."""
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
        """The search for multipliers at which the rules hold without margins."""
        return self.pose(self.make_target(0.0, 0.0))

    def pose(self, target: RuleTarget, callback: Callback | None = None) -> ShiftedRules:
        """Return the search for multipliers at which the rates satisfy a target."""
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
        """Solve with margins alone, which is convex."""
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
        if self.polish:  # a solver of the caller's has the last word
            last = self.facts.run(
                dual.with_bounds(dual.form.bounds - (target(rates) - rates.predicted)), multipliers
            )
            multipliers, value, steps = last.multipliers, last.value, last.steps
            rates = self.rates.measure(dual, dual.tally(multipliers))
        solution = Solution(multipliers, Status.MISSED, 0.0, value, steps, found.trace)
        return self.conclude(CorrectedSolution(dual, solution, rates, target))

    def conclude(self, found: CorrectedSolution) -> CorrectedSolution:
        """Return a solution with the status that its rates give it."""
        missed = np.maximum(found.target.stated_excess(found.rates)[self.facts.exact], 0.0)
        status = Status.CONVERGED if missed.max(initial=0.0) <= self.tol else Status.MISSED
        norm = float(np.linalg.norm(missed))
        return replace(found, solution=replace(found.solution, status=status, gradient_mapping=norm))

    def describe(self, solution: Solution) -> CorrectedSolution:
        """Return a solution for which nothing is to be corrected, with its observed rates."""
        rates = self.rates.measure(self.dual, self.dual.tally(solution.multipliers))
        return CorrectedSolution(self.dual, solution, rates, self.make_target(0.0, 0.0))

    # Joint chances, by draws of normal vectors with the covariance of the observed rates.

    def _find_joint_quantile(self) -> float:
        """Return within how many standard errors the worst of the nearest rules stays, with `CHANCE`."""
        *_, draws = self._draw(self.plain)
        deviations = draws.std(axis=1, keepdims=True)
        worst = (draws / np.where(deviations > 0, deviations, 1.0)).max(axis=0, initial=0.0)
        return float(np.quantile(worst, CHANCE))

    def estimate_chance(self, found: CorrectedSolution) -> tuple[float, float]:
        """Return the chance that all rules hold on the population, and the rows that would make it 90 %.

        Observed rates vary around those of the population with their standard errors. If rules compare groups
        that decisions cannot depend on, the observed gaps are mostly noise that no policy can follow. Then
        estimates are averaged over the observed gaps and gaps that are shrunk towards zero, by as much as
        their size in standard errors suggests (James and Stein).
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

        Rules are places, and draws have the shape (n_nearest, n_draws).
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
    """Draw by how much gaps are to be shrunk towards zero, (n_draws,), from zero to one.

    Gaps of the population are taken to be normal with the covariance of their estimates times 1 / B - 1,
    where B is uniform. Given the estimates, B has a gamma distribution that is cut off at one, and gaps are
    normal with 1 - B times the mean and the covariance that they have without such a prior.
    """
    values, vectors = np.linalg.eigh(covariance)
    # A rule and its opposite vary alike: what is left of their difference is rounding.
    kept = values > math.sqrt(np.finfo(float).eps) * values[-1]
    half = max(float(((vectors.T @ gaps)[kept] ** 2 / values[kept]).sum()) / 2, 1e-9)
    shape = kept.sum() / 2 + 1
    uniform = np.random.default_rng(1).random(DRAWS)
    return np.minimum(special.gammaincinv(shape, uniform * special.gammainc(shape, half)) / half, 1.0)


@lru_cache(maxsize=1)
def _draw_normal(size: int) -> Floats:
    """Return normal draws (size, n_draws), the same whenever they are needed."""
    return np.ascontiguousarray(np.random.default_rng(0).standard_normal((DRAWS, size)).T)


def _find_room(form: LinearForm) -> Floats:
    """Return half of the distance between a rule's bound and that of its opposite, (M,), or infinity."""
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
