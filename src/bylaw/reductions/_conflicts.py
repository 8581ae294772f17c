"""Diagnosis of infeasible rules: the rules in conflict, the level that each can reach, the least relaxation.

All programs are linear programs over mixtures of policies, solved exactly by column generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats, check_positive
from bylaw.errors import InfeasibleRulesError, RuleError
from bylaw.language import LABEL, Problem, Statement, format_conditions
from bylaw.program import Block, Dual, LevelSlopes, LinearForm, Solution, Status, scale_rows
from bylaw.reductions._observe import FEW_ROWS, Correction
from bylaw.rows import Evidence
from bylaw.solvers import GAP, ROUNDING, ColumnGeneration, MixtureBounds, MixtureProgram
from bylaw.view import Card, Table, bar, code, status

_LEVEL_PRECISION = 1e-4  # precision of the level that a ratio can reach
_FARTHEST = 1e4  # the largest change of a level that is tried
_GAP_OF_SUMS = 1e-4  # relative precision of the total relaxation


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Whether the rules can be satisfied together on some rows and, if not, which changes would help.

    Made by `diagnose`. All numbers are in the units of the rules as they are written. They refer to the rates
    that the probabilities of the evidence predict or, if labels or groups were given, to the observed rates.
    """

    feasible: bool
    conflict: tuple[str, ...] = ()
    """The names of conflicting rules. If any one of them is removed, the others can be satisfied together."""
    least: Mapping[str, float] = field(default_factory=dict)
    """For each conflicting rule, the value of its rate that is nearest to its bound while the other rules
    of the conflict are satisfied: the least value for `rate <= x`, the greatest for `rate >= x`. For a rule
    with several rates, all rates are moved to the left and all numbers to the right: for a >= 0.8 * b + 0.1,
    it is the greatest a - 0.8 * b, to be compared with 0.1. For a rule on a ratio, such as a >= 0.8 * b or a
    rate given a decision, it is the level at which the rule can be satisfied, to 1e-4, if such a level
    exists."""
    violations: Mapping[str, float] = field(default_factory=dict)
    """For each conflicting rule, its least violation while the other rules of the conflict are satisfied."""
    relaxation: Mapping[str, float] = field(default_factory=dict)
    """The smallest change after which all rules of the problem can be satisfied: by how much to loosen each
    statement, as it is written. One number applies to all single rules of a band or a family: it raises tol,
    or lowers the ratio of disparate_impact. If no level of a ratio is loose enough, the amount is added to
    the larger side of the rule."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """The level of each statement after the relaxation, for statements with a single level in the unit of
    the relaxation."""
    least_relaxation: float = 0.0
    """A lower bound on the total cost of a relaxation, the sum of its amounts times their costs. `relaxation`
    costs about 1e-4 of it more at most, or somewhat more for many rules."""
    small_cells: Mapping[str, float] = field(default_factory=dict)
    """Conditions in the rules that fewer than 20 rows are expected to meet, with that number of rows."""
    multipliers: Mapping[str, float] = field(default_factory=dict)
    """The proof of the conflict (a Farkas certificate): weights of the conflicting rules, with sum one. Under
    any policy, the weighted mean of the rules' violations is at least `least_violation`."""
    least_violation: float = 0.0
    """Under any policy, at least one conflicting rule is violated by this amount or more."""
    slack: float = 0.0
    """If the rules can be satisfied: the largest amount by which one policy satisfies all of them (Slater's
    condition requires it to be positive). It is in the unit of the solver: shares of rows, and costs relative
    to their size. It is infinite without rules, and zero for observed rates, for which it is not measured.
    `policy.guarantee.most_slack` is an upper bound on it."""
    observed: bool = False
    """Whether the numbers refer to the rates of observed labels and groups."""
    missed: Mapping[str, float] = field(default_factory=dict)
    """The rules on observed rates that the policy of `solve` violates although no conflict is proved, and the
    sizes of the violations. The scores predict these rates too poorly."""
    remark: str = ""
    """A sentence that names the rates to which the numbers refer, if labels or groups were given."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _make_card(self).to_html()

    def _lines(self) -> Iterator[str]:
        seen = ", for observed rates" if self.observed else ""
        if self.missed:
            yield f"found no policy that satisfies all rules{seen}; the best one violates these:"
            yield from _aligned({name: f"violated by {miss:.3g}" for name, miss in self.missed.items()})
            yield "Loosen these rules, merge small groups, or use better probabilities."
        elif self.feasible:
            by = f", with a slack of {self.slack:.3g}" if 0 < self.slack < math.inf else ""
            yield f"the rules can be satisfied together on these rows{seen}{by}."
        else:
            yield (
                f"the rules conflict on these rows{seen}: any policy violates at least one of these by "
                f"{self.least_violation:.3g} or more."
            )
            reach = (
                "can reach {:.4g} while the other listed rules are satisfied"
                if len(self.conflict) > 1
                else "can reach {:.4g}"
            )
            yield from _aligned({name: reach.format(self.least[name]) for name in self.conflict})
            yield (
                "Loosening one of them to that value resolves this conflict; rules that are not listed may "
                "then conflict. The smallest change after which all rules of the problem can be satisfied:"
            )
            yield from _aligned({name: f"loosened by {slack:.4g}" for name, slack in self.relaxation.items()})
        if self.remark:
            yield self.remark
        if self.small_cells:
            yield "Too few rows meet these conditions (add rows, merge groups, or change the rules):"
            yield from _aligned({cell: f"{count:.3g} rows" for cell, count in self.small_cells.items()})


def _aligned(remarks: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, remarks), default=0)
    return (f"  {name:{width}}   {remark}" for name, remark in remarks.items())


def measure_slack(dual: Dual) -> float:
    """Return the largest distance, in solver units, that a policy can keep from all bounds; at least zero."""
    if not dual.n_rules:
        return math.inf
    analysis = _ConflictAnalysis(dual, None)
    return max(-analysis.solve(_worst(np.arange(dual.n_rules), dual.n_rules), _settled).upper, 0.0)


def examine(
    dual: Dual,
    problem: Problem,
    evidence: Evidence,
    *,
    costs: Mapping[Any, float] | None = None,
    multipliers: Floats | None = None,
    slopes: LevelSlopes | None = None,
) -> Diagnosis:
    """Diagnose whether the rules of a dual conflict, and how.

    The `multipliers` of a solver, (M,), make this faster. `slopes` states how the rules depend on their
    levels; by default, it is computed from the dual.
    """
    prices = np.ones(len(problem.rules))  # cost of loosening each statement by one
    for key, cost in (costs or {}).items():
        prices[problem.find(key)] = check_positive(cost, f"relaxation_costs[{str(key)!r}]")
    cells = list_small_cells(dual.form, evidence)
    healthy = Diagnosis(feasible=True, small_cells=cells)
    if not dual.n_rules:
        return healthy
    analysis = _ConflictAnalysis(dual, multipliers)
    proof = analysis.prove_conflict(np.arange(dual.n_rules), multipliers)
    if proof is None:
        return healthy
    cheapest, unit = _relaxation(dual, prices)
    relaxed = analysis.solve(cheapest, lambda a: a.within(_GAP_OF_SUMS * a.upper), proof)
    conflict, proof = analysis.reduce_conflict(analysis.choose_shorter(proof, relaxed.multipliers))
    scales, names = dual.form.scales, dual.form.names
    slopes = slopes or LevelSlopes.of(dual.form, scales)
    reached = {names[j]: _find_reach(analysis, int(j), conflict, slopes) for j in conflict}
    relaxation, levels = _find_slacks(dual, relaxed.violations, slopes)
    weight = proof.multipliers / scales
    return replace(
        healthy,
        feasible=False,
        conflict=tuple(names[j] for j in conflict),
        least={name: level for name, (level, _) in reached.items()},
        violations={name: miss for name, (_, miss) in reached.items()},
        relaxation=relaxation,
        levels=levels,
        least_relaxation=max(relaxed.lower, 0.0) * unit,
        multipliers={names[j]: float(weight[j] / weight.sum()) for j in conflict},
        least_violation=float(proof.lower / weight.sum()),
    )


def _find_reach(
    analysis: _ConflictAnalysis, place: int, conflict: NDArray[np.int64], slopes: LevelSlopes
) -> tuple[float, float]:
    """Return the level that a rule can reach while the other rules are satisfied, and its distance.

    For a rule on a ratio, both are in the unit of the ratio if some level can be reached.
    """
    dual, rule = analysis.dual, analysis.dual.form.rules[place].rule
    if rule.is_about_ratio:
        shift, _ = _search_shift(
            dual, np.array([place]), slopes, lambda moved: moved.min_violation(place, conflict) <= ROUNDING
        )
        if math.isfinite(shift):
            return rule.level + rule.loosening * shift, shift
    miss = float(analysis.min_violation(place, conflict) * dual.form.scales[place])
    return rule.bound + rule.loosening * miss, miss


def list_small_cells(form: LinearForm, evidence: Evidence) -> dict[str, float]:
    """Return the conditions in rules that too few rows meet, with the effective number of these rows."""
    atoms = [atom for found in form.rules for atom in found.rule.atoms()]
    events = dict.fromkeys(atom.conditions for atom in atoms if atom.conditions)
    counts = {
        format_conditions(sorted(event, key=lambda one: one[0] == LABEL)): evidence.count_effective(event)
        for event in events  # groups first, then the label
    }
    return {
        event: counts[event] for event in sorted(counts, key=counts.__getitem__) if counts[event] < FEW_ROWS
    }


def _worst(rules: NDArray[np.int64], n_rules: int) -> MixtureProgram:
    """Return the linear program that minimizes the largest violation among these rules."""
    one = sparse.csr_array(np.ones((len(rules), 1)))
    return MixtureProgram(rules, np.zeros(n_rules), np.ones(1), one, least_slack=-math.inf)


def _relaxation(dual: Dual, prices: Floats) -> tuple[MixtureProgram, float]:
    """Return the linear program of the cheapest relaxation, and the unit of its cost."""
    which, scales = dual.form.places, dual.form.scales
    units = np.zeros(len(prices))
    np.maximum.at(units, which, scales)
    rules = np.arange(dual.n_rules)
    loosening = sparse.csr_array((units[which] / scales, (rules, which)), shape=(len(rules), len(prices)))
    price = prices * np.where(units > 0, units, 1.0)
    unit = float(price.min())
    return MixtureProgram(rules, np.zeros(dual.n_rules), price / unit, loosening), unit


def _find_slacks(
    dual: Dual, violations: Floats, slopes: LevelSlopes
) -> tuple[dict[str, float], dict[str, float]]:
    """Return by how much to loosen each statement for these violations, (M,), and its level after that.

    A statement on ratios is loosened until all rules can be satisfied, given the slacks of the others. Levels
    are returned only if they have the unit of the slack.
    """
    form, every = dual.form, np.arange(dual.n_rules)
    misses = violations * form.scales
    loosened = dual.with_bounds(form.bounds + np.maximum(violations, 0.0))
    slacks, levels = dict[str, float](), dict[str, float]()
    for place in dict.fromkeys(form.places[misses > ROUNDING].tolist()):
        own = np.flatnonzero(form.places == place)
        found = form.rules[own[0]]
        statement = found.statement
        slack, in_levels = float(misses[own].max()), not found.rule.right.terms
        if found.rule.is_about_ratio:
            kept = np.where(form.places == place, form.bounds, loosened.form.bounds)
            shift, moved = _search_shift(
                loosened.with_bounds(kept), own, slopes, lambda moved: moved.prove_conflict(every) is None
            )
            if in_levels := math.isfinite(shift):
                slack, loosened = shift, moved
        slacks[str(statement)] = slack
        if in_levels and (level := _find_level(statement)) is not None:
            levels[str(statement)] = level + statement.loosening * slack
    return slacks, levels


def _find_level(statement: Statement) -> float | None:
    """Return the level of a statement, or None if it does not have exactly one."""
    try:
        level = statement.level
    except RuleError:
        return None
    return None if isinstance(level, tuple) else level


def _search_shift(
    dual: Dual,
    rules: NDArray[np.int64],
    slopes: LevelSlopes,
    holds: Callable[[_ConflictAnalysis], bool],
) -> tuple[float, Dual]:
    """Return by how much to loosen the levels of these ratio rules until `holds`, and the dual after that.

    The amount is infinity if loosening does not help.
    """
    stated = [dual.form.rules[j].rule for j in rules]
    ways = np.zeros(dual.n_rules)
    ways[rules] = [rule.loosening for rule in stated]

    def move(shift: float) -> Dual:
        return dual.with_form(slopes.move(dual.form, shift * ways))

    near, far = 0.0, max(1.0, *(abs(rule.level) for rule in stated))
    while not holds(_ConflictAnalysis(move(far), None)):
        near, far = far, 4 * far
        if far > _FARTHEST:
            return math.inf, dual
    while far - near > _LEVEL_PRECISION:
        middle = (near + far) / 2
        near, far = (near, middle) if holds(_ConflictAnalysis(move(middle), None)) else (middle, far)
    return far, move(far)


def _settled(answer: MixtureBounds) -> bool:
    return answer.within(GAP * (1 + abs(answer.upper)))


def _sign_known(answer: MixtureBounds) -> bool:
    """Return whether a conflict is proved, or excluded up to rounding errors."""
    return answer.lower > ROUNDING or answer.upper <= ROUNDING


class _ConflictAnalysis(ColumnGeneration):
    """A solver of linear programs about conflicts, which reuses the policies that it has generated."""

    def prove_conflict(self, rules: NDArray[np.int64], multipliers: Floats | None = None) -> Floats | None:
        """Return multipliers, (M,), that prove that these rules conflict, or None if they do not conflict."""
        if not len(rules):
            return None
        if multipliers is not None and not multipliers[rules].any():
            multipliers = None
        answer = self.solve(_worst(rules, self.dual.n_rules), _sign_known, multipliers)
        return answer.multipliers if answer.lower > ROUNDING else None

    def choose_shorter(self, proof: Floats, other: Floats) -> Floats:
        """Return `other`, (M,), if it proves a conflict of fewer rules than `proof`, else `proof`."""
        few = np.count_nonzero(other) < np.count_nonzero(proof)
        return other if few and other @ self.add_best_response(other) > ROUNDING * other.sum() else proof

    def reduce_conflict(self, proof: Floats) -> tuple[NDArray[np.int64], MixtureBounds]:
        """Return a minimal set of conflicting rules, and the best proof of their conflict.

        Rules are dropped, starting with the smallest multiplier, as long as the others still conflict.
        """
        needed: set[int] = set()
        while len(needed) < np.count_nonzero(proof):
            weakest = min((int(j) for j in np.flatnonzero(proof) if j not in needed), key=proof.__getitem__)
            without = np.where(np.arange(len(proof)) == weakest, 0.0, proof)
            shorter = self.prove_conflict(np.flatnonzero(without), without)
            if shorter is None:
                needed.add(weakest)
            else:
                proof = shorter
        conflict = np.flatnonzero(proof)
        return conflict, self.solve(_worst(conflict, len(proof)), _settled, proof)

    def min_violation(self, rule: int, conflict: NDArray[np.int64]) -> float:
        """Return the least violation of one rule while the others of the conflict are satisfied."""
        others = conflict[conflict != rule]
        goal = np.eye(1, self.dual.n_rules, rule)[0]
        nothing = sparse.csr_array((len(others), 0))
        program = MixtureProgram(others, goal, np.zeros(0), nothing, allowed=ROUNDING)
        return max(self.solve(program, _settled).upper, 0.0)


def find_conflict(
    correction: Correction, costs: Mapping[Any, float] | None = None
) -> InfeasibleRulesError | None:
    """Return an error if no policy satisfies the rules for observed or for predicted rates, else None."""
    problem, evidence, dual = correction.facts.problem, correction.facts.evidence, correction.dual
    if dual.source is None:  # the proof needs all rows in memory
        slopes = _merge_slopes(correction)
        diagnosis = examine(_merge_rows(correction), problem, evidence, costs=costs, slopes=slopes)
        if not diagnosis.feasible:
            few = "" if correction.facts.exact.all() else "; rules about few rows use predicted rates"
            remark = f"The numbers are observed rates of the fitted rows{few}."
            return InfeasibleRulesError(replace(diagnosis, observed=True, remark=remark))
    solution = correction.facts.run(dual, correction.facts.begin)
    if solution.status not in (Status.INFEASIBLE, Status.MAX_STEPS, Status.STALLED):
        return None
    diagnosis = diagnose_solution(problem, evidence, dual, solution, correction.tol, costs)
    remark = "The numbers are predicted rates. For observed rates, a smaller or larger change may be needed."
    return None if diagnosis is None else InfeasibleRulesError(replace(diagnosis, remark=remark))


def diagnose_solution(
    problem: Problem,
    evidence: Evidence,
    dual: Dual,
    solution: Solution,
    tol: float,
    costs: Mapping[Any, float] | None = None,
) -> Diagnosis | None:
    """Diagnose the rules if a solution may prove that they conflict; return None if they do not conflict.

    A conflict that is not larger than rounding errors does not count.
    """
    missed = -float(dual.value_and_gradient(solution.multipliers)[1].min(initial=0.0)) > tol
    if not (missed or solution.status is Status.INFEASIBLE):
        return None
    diagnosis = examine(dual, problem, evidence, costs=costs, multipliers=solution.multipliers)
    return None if diagnosis.feasible else diagnosis


def _merge_rows(correction: Correction) -> Dual:
    """Return the dual of the observed rules, which can prove that these rules conflict.

    Rows with equal features always get the same decision, so they are merged into one row with the mean of
    their observed features.
    """
    dual, exact = correction.dual, correction.facts.exact & correction.facts.affected
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


def _merge_slopes(correction: Correction) -> LevelSlopes:
    """Return how much the rules on merged rows change per unit of the levels of their ratios."""
    exact, form, seen = (
        correction.facts.exact & correction.facts.affected,
        correction.dual.form,
        correction.rates.form,
    )
    predicted, observed = (LevelSlopes.of(one, form.scales) for one in (form, seen))
    couplings = _join(predicted.couplings, observed.couplings, exact)
    return LevelSlopes(couplings, np.where(exact, observed.bounds, predicted.bounds))


def _join(
    predicted: sparse.csr_array, observed: sparse.csr_array, exact: NDArray[np.bool_]
) -> sparse.csr_array:
    """Return couplings that use observed features for exact rules and predicted features for the others."""
    parts = [scale_rows(predicted, (~exact).astype(float)), scale_rows(observed, exact.astype(float))]
    return sparse.csr_array(sparse.hstack(parts, format="csr"))


def _make_card(diagnosis: Diagnosis) -> Card:
    """Return a diagnosis as a card, with the smallest change that resolves a conflict."""
    few_rows = [[cell, f"{count:.3g}"] for cell, count in diagnosis.small_cells.items()]
    small = Table(("too few rows to judge", "rows"), few_rows, numbers=(1,)) if few_rows else None
    if diagnosis.feasible:
        room = f", with a slack of {diagnosis.slack:.3g}" if 0 < diagnosis.slack < math.inf else ""
        return Card(status(f"the rules can be satisfied together on these rows{room}", "good"), [small])
    violation = f"{diagnosis.least_violation:.3g} or more"
    most = max(diagnosis.violations.values(), default=0.0)
    conflict = [
        [code(rule), f"{diagnosis.least[rule]:.4g}", f"{distance:.4g}", bar(distance, most)]
        for rule in diagnosis.conflict
        for distance in [diagnosis.violations[rule]]
    ]
    changes = [[code(rule), f"{amount:.4g}"] for rule, amount in diagnosis.relaxation.items()]
    return Card(
        status(f"the rules conflict: any policy violates one of these by {violation}", "bad"),
        [
            Table(("conflicting rule", "can reach", "violated by", ""), conflict, numbers=(1, 2)),
            Table(("the smallest change that resolves the conflict", "loosen by"), changes, numbers=(1,)),
            small,
        ],
        remarks=[diagnosis.remark] if diagnosis.remark else [],
    )
