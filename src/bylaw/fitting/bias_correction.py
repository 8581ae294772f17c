"""Rules held as observed: where labels or groups of the fitted rows are known, their rates satisfy the rules.

The plug-in error of a rule is its observed rate less the predicted one. Bounds are shifted by it, rule by
rule, until the observed rates satisfy the rules as stated (`solvers.complementarity`). Where few rows show a
rule, its observed rate is mostly noise and the shift is shrunk towards none: by Bayes' rule, with the
variance of the plug-in errors pooled over all rules. Margins are multiples of standard errors, one for each
rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import ObservedRows
from bylaw.formulation.blocks import Block
from bylaw.formulation.dual import Dual
from bylaw.formulation.linear_form import LevelSlopes, LinearForm, scale_rows
from bylaw.formulation.observed_rates import ObservedRates, RateExcess, attach_observed, compile_observed
from bylaw.formulation.passes import Tally
from bylaw.formulation.rate_response import RateResponse
from bylaw.formulation.solution import HardDecisions, Solution, Status
from bylaw.formulation.uncertainty import RateUncertainty, StandardErrors
from bylaw.language.expressions import Rate
from bylaw.language.problem import Problem
from bylaw.solvers.base import Callback
from bylaw.solvers.complementarity import Complementarity, ObservedSolution, Outline
from bylaw.solvers.screening import screen_rows

Resolve = Callable[..., Solution]  # of a dual and, optionally, where to start
Margin = float | Literal["auto"]

FEW_ROWS = 20  # fewer tell nothing about a rate
FINEST = 0.02  # a standard error of a difference of rates below this is small, whatever the tolerance
CHANCE = 0.95  # that all rules hold on new rows, which margin="auto" aims at
_DEVIATION = 0.4  # of what a row adds to a rate, roughly
_ROOM = 0.9  # of what two opposite rules leave, that their margins may take
_LEEWAY = 0.1  # standard errors that a rule which few rows show may be missed by
_MOST_CUTS = 4
_FEW_RULES = 100  # whose rates are differentiated
_OVERCUT = 1.25  # times what a margin is too large
_CUTS = (0.1, 0.7)  # the least and the most that is left of such a margin
_CONFLICT_CUTS = (0.1, 0.95)  # the same where rules conflict, which tells how much is too large
_INVOLVED = 0.01  # of the largest part in a conflict
_GRID = 200  # points of an integral over the share of noise
_DRAWS = 8192  # of normal vectors, for joint chances
_MOST_BINDING = 200  # rules in a joint chance, those closest to their bounds
_SQUEEZED = 0.01  # of the noise: a rule that leaves no more room has no margin
_STEEP = 100.0  # units of the loss: beyond such a price of a rule, a cheaper policy is looked for
_FREE_STARTS = (1.0, 81.0)  # times softer than the policy, where that search begins without any price
_NEAR = 4.0  # standard errors: rules further inside hold anyway


@dataclass(frozen=True)
class RuleTarget:
    """What the rates of M rules must satisfy: excess plus margin <= 0, as observed, or as estimated from
    observed and predicted rates together."""

    trust: Floats  # (M,): the part of the plug-in error that counts in the estimate
    exact: NDArray[np.bool_]  # (M,): rules that are held as observed
    observed_margins: Floats  # (M,)
    estimate_margins: Floats  # (M,)

    def __call__(self, rates: RateExcess) -> Floats:
        """(M,): what must be <= 0. Of the two ways to leave a margin the one that takes less, but an exact
        rule always holds as observed."""
        estimated = self.trust * rates.error + self.estimate_margins
        observed = rates.error + self.observed_margins
        shift = np.where(self.exact, np.maximum(np.minimum(estimated, observed), rates.error), estimated)
        return rates.predicted + shift

    def stated_excess(self, rates: RateExcess) -> Floats:
        """(M,): of the rules without margins, as observed or as estimated."""
        return np.where(self.exact, rates.observed, rates.predicted + self.trust * rates.error)

    def limit(self, most: RuleTarget | None) -> RuleTarget:
        """With margins no larger than those of another target."""
        if most is None:
            return self
        return replace(
            self,
            observed_margins=np.minimum(self.observed_margins, most.observed_margins),
            estimate_margins=np.minimum(self.estimate_margins, most.estimate_margins),
        )

    def cut(self, shares: Floats) -> RuleTarget:
        """With these shares (M,) of the margins."""
        return replace(
            self,
            observed_margins=shares * self.observed_margins,
            estimate_margins=shares * self.estimate_margins,
        )


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
        """(M,): how much tighter than stated predicted rates are held."""
        return self.target(self.rates) - self.rates.predicted


Restate = Callable[[CorrectedSolution], CorrectedSolution]  # in terms of the rules as they are stated


def as_stated(found: CorrectedSolution) -> CorrectedSolution:
    """Return a solution of the rules as they are stated: a `Restate` that changes nothing."""
    return found


@dataclass(frozen=True)
class Correction:
    """A problem on rows of which labels or groups are known, to be fitted with one margin or another."""

    problem: Problem
    evidence: Evidence
    rows: ObservedRows
    dual: Dual  # with the bounds as stated, and observed features beside the predicted
    rates: ObservedRates
    tol: float
    rng: np.random.Generator | None
    callback: Callback | None
    soften: bool  # whether a smaller beta will do where the rules do not hold otherwise
    run: Resolve  # the solver
    polish: bool  # whether it has the last word
    spared: int = 0  # of the last rules, which compare groups for the objective and get no margin

    @classmethod
    def prepare(
        cls, problem: Problem, evidence: Evidence, dual: Dual, rows: ObservedRows, **options: object
    ) -> Correction:
        """With the options of the fields after `rates`."""
        rates = compile_observed(problem, dual.form, rows)
        dual.compute_shared()
        whole = screen_rows(attach_observed(dual, rates, rows))
        return cls(problem, evidence, rows, whole, rates, **options)  # type: ignore[arg-type]

    @cached_property
    def affected(self) -> NDArray[np.bool_]:
        """(M,): rules whose rates as observed differ from the predicted ones."""
        news = self.rows.observed - set(self.evidence.known_groups)
        features = self.dual.form.feature_map.features
        told = [bool(news.intersection(dict(feature.event))) for feature in features]
        touched = abs(self.dual.form.couplings) @ np.repeat(told, self.dual.form.base.shape[1]) > 0
        return touched & self.rates.visible

    @cached_property
    def counts(self) -> Floats:
        """(M,): rows that show the rarest condition of each rule."""
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
        """(M,): rules on some of the rows only."""
        return np.array([any(found.excess.by_condition()) for found in self.dual.form.rules])

    @cached_property
    def begin(self) -> Outline:
        """A soft policy that about satisfies the rules, before more than the number of rows is known of the
        errors of their rates."""
        if not self.affected.any():
            return Outline(self.run(self.dual).multipliers, self.dual.beta)
        units = _DEVIATION / np.sqrt(self.counts)
        exact, none = self._tell(units), np.zeros(self.dual.n_rules)
        target = RuleTarget(np.where(exact, 1.0, 0.5), exact, none, none)
        return self._pose(target, units, units).outline(self.rng)

    @cached_property
    def room(self) -> Floats:
        """(M,): the largest margin of a rule whose opposite is a rule too, so that both can hold."""
        return _find_room(self.dual.form)

    @cached_property
    def uncertainty(self) -> RateUncertainty:
        return RateUncertainty.of(self.dual, self.rates, self.evidence, self.rows)

    @cached_property
    def errors(self) -> StandardErrors:
        """Standard errors of the rates near the answer."""
        return self.uncertainty.standard_errors(self.begin.multipliers, self.dual.beta, self._near)

    @cached_property
    def _near(self) -> Tally:
        """Sums over a sample of the rows, near the answer."""
        return self.uncertainty.tally(self.begin.multipliers, self.dual.beta)

    @cached_property
    def trust(self) -> Floats:
        """(M,): the part of each plug-in error that counts."""
        error = self.rates.measure(self.uncertainty.sample, self._near).error
        return estimate_signal(error, self.errors.error)

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """(M,): rules that enough rows show to hold them as observed."""
        return self._tell(self.errors.error)

    def _tell(self, errors: Floats) -> NDArray[np.bool_]:
        """(M,): rules that rows with these standard errors tell about. Of a difference between groups it must
        not exceed the tolerance; groups that are compared for the objective are held as observed."""
        form = self.dual.form
        compares = np.array([len(found.excess.by_condition()) > 1 for found in form.rules])
        tolerance = np.maximum(abs(form.bounds * form.scales), FINEST)
        noisy = compares & (errors * form.scales > tolerance)
        spared = np.arange(self.dual.n_rules) >= self.dual.n_rules - self.spared
        return ~self.affected | spared | (self.counts >= FEW_ROWS) & ~noisy

    def fit(
        self,
        margin: float | Literal["auto"],
        *,
        held_out: float = 0.0,
        begin: Outline | None = None,
        most: RuleTarget | None = None,
    ) -> CorrectedSolution:
        """The rules held with a margin of so many standard errors, as far as they leave a policy, and no
        larger than those of `most`. For a test on held-out rows the margin has room for the error of their
        rates too, of which the variance is `held_out` times as large as on these rows."""
        if margin == 0:
            return self.plain
        target = self.make_target(margin, held_out).limit(most)
        for _ in range(_MOST_CUTS):
            found = self._solve(target, begin or self.begin)
            if found.holds or (
                not found.conflict and (found.excess <= target.estimate_margins + self.tol).all()
            ):
                return self._finish(found, target)  # the rules hold, if perhaps with smaller margins
            target = target.cut(self._find_shares(target, found))
        return self.plain

    def hold(self, target: RuleTarget, begin: Outline) -> CorrectedSolution:
        """The rules held to this target, or as near to it as they can be."""
        return self._finish(self._solve(target, begin), target)

    def with_couplings(self, predicted: sparse.csr_array, observed: sparse.csr_array) -> Correction:
        """The same rules with other coefficients, in the same units. What is known of the uncertainty of the
        rates as stated remains; it is measured on policies with the new coefficients."""
        form = replace(self.dual.form, couplings=predicted)
        other = replace(self, dual=self.dual.with_form(form), rates=replace(self.rates, couplings=observed))
        kept = ("affected", "counts", "begin", "room", "errors", "trust", "exact")
        other.__dict__.update({name: getattr(self, name) for name in kept})
        sample = self.uncertainty.sample.with_form(form)
        other.__dict__["uncertainty"] = replace(self.uncertainty, sample=sample)
        return other

    def _find_shares(self, target: RuleTarget, found: ObservedSolution) -> Floats:
        """(M,): what may be left of margins that are too large: where rules conflict, of all that do in
        proportion; elsewhere, as much as was held."""
        margins = np.maximum(target.estimate_margins, self.tol)
        if not found.conflict:
            held = 1 - _OVERCUT * found.excess / margins
            return np.where(found.excess > self.tol, np.clip(held, *_CUTS), 1.0)
        shifted = self.dual.with_bounds(self.dual.form.bounds - (found.excess - found.rates.predicted))
        prices = found.multipliers * margins
        held = 1 - _OVERCUT * shifted.conflict(found.multipliers) / prices.sum()
        return np.where(prices > _INVOLVED * prices.max(), np.clip(held, *_CONFLICT_CUTS), 1.0)

    @cached_property
    def plain(self) -> CorrectedSolution:
        """Without margins."""
        target = self.make_target(0.0, 0.0)
        return self._finish(self._solve(target, self.begin), target)

    def _solve(self, target: RuleTarget, begin: Outline) -> ObservedSolution:
        if not self.affected.any():
            return self._solve_as_predicted(target, begin)
        units = np.maximum(self.errors.observed, 1 / self.counts)
        tolerance = np.where(self.exact, self.tol, np.maximum(_LEEWAY * units, self.tol))
        problem = self._pose(target, units, tolerance)
        options = {"rng": self.rng, "callback": self.callback, "soften": self.soften}
        found = problem.solve(begin, **options)
        steep = found.multipliers.max(initial=0.0) > _STEEP * self.dual.loss_unit
        # Rates as observed may satisfy a ratio rule at several prices. At the dearest, hardly a row is
        # decided: the policy that satisfies it as predicted, where scores are less sure than they could be.
        ratios = any(is_ratio(rule.excess) for rule in self.dual.form.rules)
        if found.holds and not steep and not (ratios and self.dual.form.action_space.options):
            return found
        free = np.zeros(self.dual.n_rules)
        others = [problem.solve(Outline(free, self.dual.beta / softer), **options) for softer in _FREE_STARTS]
        return min(found, *others, key=_rank)

    def _pose(self, target: RuleTarget, units: Floats, tolerance: Floats) -> Complementarity:
        return Complementarity(self.dual, self.rates, target, units, tolerance, self.room, self.response)

    @cached_property
    def response(self) -> RateResponse | None:
        """Of few rules; of many, its matrices would cost more than they save."""
        return RateResponse.of(self.dual, self.rates) if self.dual.n_rules <= _FEW_RULES else None

    def _solve_as_predicted(self, target: RuleTarget, begin: Outline) -> ObservedSolution:
        """With margins alone, the problem is convex."""
        bounds = self.dual.form.bounds - target.estimate_margins
        answer = self.run(self.dual.with_bounds(bounds), begin.multipliers)
        rates = self._measure(self.dual, answer.multipliers)
        excess, conflict = target(rates), answer.status is Status.INFEASIBLE
        holds = not conflict and bool((excess <= self.tol).all())
        return ObservedSolution(
            answer.multipliers, self.dual.beta, answer.value, rates, excess, holds, conflict, answer.trace
        )

    def make_target(self, margin: float | Literal["auto"], held_out: float) -> RuleTarget:
        """Margins in standard errors of the policy without any."""
        if margin == 0:
            return RuleTarget(self.trust, self.exact, 0 * self.trust, 0 * self.trust)
        at = Outline(self.plain.solution.multipliers, self.plain.dual.beta)
        predicted, observed, error = self.uncertainty.standard_errors(*at)
        test = held_out * observed**2
        sizes = np.sqrt([observed**2 + test, predicted**2 + self.trust * error**2 + test])
        sizes *= self._find_joint_quantile(at) if margin == "auto" else margin
        sizes[:, len(observed) - self.spared :] = 0.0
        return RuleTarget(self.trust, self.exact, *np.minimum(sizes, _ROOM * self.room))

    def _finish(self, found: ObservedSolution, target: RuleTarget) -> CorrectedSolution:
        dual = self.dual.with_beta(found.beta)
        rates, answer = found.rates, (found.multipliers, found.value, len(found.trace))
        if self.polish:
            bounds = dual.form.bounds - (target(rates) - rates.predicted)
            last = self.run(dual.with_bounds(bounds), found.multipliers)
            rates, answer = self._measure(dual, last.multipliers), (last.multipliers, last.value, last.steps)
        multipliers, value, steps = answer
        solution = Solution(multipliers, Status.MISSED, 0.0, value, steps, found.trace)
        return self.conclude(CorrectedSolution(dual, solution, rates, target))

    def conclude(self, found: CorrectedSolution) -> CorrectedSolution:
        """With the status that its rates give it."""
        missed = np.maximum(found.target.stated_excess(found.rates)[self.exact], 0.0)
        status = Status.CONVERGED if missed.max(initial=0.0) <= self.tol else Status.MISSED
        norm = float(np.linalg.norm(missed))
        return replace(found, solution=replace(found.solution, status=status, gradient_mapping=norm))

    def _measure(self, dual: Dual, multipliers: Floats) -> RateExcess:
        return self.rates.measure(dual, dual.tally(multipliers))

    # Joint chances, by draws of normal vectors with the covariance of the rates.

    def _find_joint_quantile(self, at: Outline) -> float:
        """Standard errors that the worst of the rules near their bounds stays within, with the chance that is
        aimed at."""
        draws, rules = self._draw(at, self.plain.rates)
        if not len(rules):
            return 0.0
        deviations = draws.std(axis=1, keepdims=True)
        worst = (draws / np.where(deviations > 0, deviations, 1.0)).max(axis=0)
        return max(float(np.quantile(worst, CHANCE)), 0.0)

    def describe(self, solution: Solution) -> CorrectedSolution:
        """A solution for which nothing is to be corrected, with its observed rates."""
        rates = self._measure(self.dual, solution.multipliers)
        return CorrectedSolution(self.dual, solution, rates, self.make_target(0.0, 0.0))

    def estimate_chance(self, found: CorrectedSolution) -> tuple[float, float]:
        """That all rules hold on the population of the rows; and about how many rows would make it 90 %."""
        draws, rules = self._draw(Outline(found.solution.multipliers, found.dual.beta), found.rates)
        if not len(rules):
            return 1.0, float(self.dual.n_rows)
        slack = -(found.rates.predicted + self.trust * found.rates.error)[rules, None] + self.tol
        if (slack < 0).any():
            return float((draws <= slack).all(axis=0).mean()), math.inf
        room = np.divide(slack, draws, out=np.full(draws.shape, np.inf), where=draws > 0).min(axis=0)
        least = float(np.quantile(room, 0.1, method="lower"))  # times the noise that nine in ten draws bear
        needed = self.dual.n_rows / least**2 if least > _SQUEEZED else math.inf
        return float((room >= 1).mean()), needed

    def _draw(self, at: Outline, rates: RateExcess) -> tuple[Floats, NDArray[np.int64]]:
        """Errors of the estimated rates of rules near their bounds, (n_near, n_draws), and these rules."""
        errors = self.errors
        spread = np.sqrt(errors.predicted**2 + self.trust * errors.error**2)
        estimate = rates.predicted + self.trust * rates.error
        distance = np.divide(-estimate, spread, out=np.full(len(spread), np.inf), where=spread > 0)
        rules = np.argsort(distance, kind="stable")[:_MOST_BINDING]
        rules = rules[distance[rules] < _NEAR]
        if not len(rules):
            return np.zeros((0, _DRAWS)), rules
        covariance = self.uncertainty.covariance(*at, self.trust, rules)
        covariance[np.diag_indices(len(rules))] += ((self.trust - self.trust**2) * errors.error**2)[rules]
        values, vectors = np.linalg.eigh(covariance)
        return vectors * np.sqrt(np.maximum(values, 0.0)) @ _draw_normal(len(rules)), rules


def is_ratio(excess: Rate) -> bool:
    """N - D <= 0 without a constant, where both are sums of probabilities."""
    signs = {coefficient > 0 for _, coefficient in excess.terms}
    return not excess.constant and excess.is_probability and len(signs) == 2


@lru_cache(maxsize=1)
def _draw_normal(size: int) -> Floats:
    """(size, n_draws), the same whenever they are needed."""
    return np.ascontiguousarray(np.random.default_rng(0).standard_normal((_DRAWS, size)).T)


def _rank(found: ObservedSolution) -> tuple[float, float]:
    """The rules first, then the cost: a value is that of the policy, but for the sign and its entropy."""
    return (0.0 if found.holds else float(found.excess.max()), -found.value)


def estimate_signal(errors: Floats, standard_errors: Floats) -> Floats:
    """(M,): the expected share of each plug-in error that is no noise, E[tau^2 / (tau^2 + SE^2)].

    All rules share tau^2, the variance of what the model is wrong by. A priori the share of noise at a
    typical rule is uniform, so that one rule alone is believed in part whatever it shows, and many are pooled
    (Strawderman, 1971). Opposite rules have opposite errors and count once.
    """
    noise = standard_errors**2
    told = noise > 0
    if not told.any():
        return np.ones_like(noise)
    _, first = np.unique(np.round(abs(errors[told]), 9), return_index=True)
    squares, variances = (part[told][first][:, None] for part in (errors**2, noise))
    shares = (np.arange(_GRID) + 0.5) / _GRID
    spread = (1 - shares) / shares / np.mean(1 / variances)  # tau^2, (_GRID,)
    total = variances + spread
    logs = -0.5 * (np.log(total) + squares / total).sum(axis=0)
    weights = np.exp(logs - logs.max())
    return (spread / (spread + noise[:, None])) @ (weights / weights.sum())


def _find_room(form: LinearForm) -> Floats:
    """(M,): half of what lies between a rule's bound and that of its opposite; infinite if it has none."""
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


def merge_rows(correction: Correction) -> Dual:
    """The dual of the observed rules over all policies that decide alike on rows of equal features: of such
    rows one remains, with the mean of what was observed."""
    dual, exact = correction.dual, correction.exact & correction.affected
    features = np.concatenate([block.features for block in dual.blocks], axis=1)
    observed = np.concatenate([block.observed for block in dual.blocks if block.observed is not None], axis=1)
    weights = np.concatenate([block.row_weights for block in dual.blocks])
    distinct, places = np.unique(features, axis=1, return_inverse=True)
    mass = np.bincount(places, weights).astype(np.float64)
    means = np.array([np.bincount(places, weights * row) / mass for row in observed])
    form, n_actions = dual.form, dual.form.base.shape[1]
    merged = replace(
        form,
        base=np.vstack([form.base, np.zeros((len(observed), n_actions))]),
        couplings=_join(form.couplings, correction.rates.couplings, exact),
    )
    block = Block(np.vstack([distinct, means]), mass)
    return Dual(merged, [block], dual.beta)


def merge_slopes(correction: Correction) -> LevelSlopes:
    """Of the rules of merged rows."""
    exact, form, seen = correction.exact & correction.affected, correction.dual.form, correction.rates.form
    predicted, observed = (LevelSlopes.of(one, form.scales) for one in (form, seen))
    couplings = _join(predicted.couplings, observed.couplings, exact)
    return LevelSlopes(couplings, np.where(exact, observed.bounds, predicted.bounds))


def _join(
    predicted: sparse.csr_array, observed: sparse.csr_array, exact: NDArray[np.bool_]
) -> sparse.csr_array:
    """Couplings with the features as predicted and, beside them, as observed, which count in exact rules."""
    parts = [scale_rows(predicted, (~exact).astype(float)), scale_rows(observed, exact.astype(float))]
    return sparse.csr_array(sparse.hstack(parts, format="csr"))
