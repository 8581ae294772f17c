"""Refits of one problem on one set of rows: corrected for what was seen, tightened by margins."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.errors import ConvergenceWarning
from bylaw.fitting.bias_correction import (
    CompiledOutcomes,
    CorrectedSolution,
    Resolve,
    correct_bounds,
    enforce_rules,
    find_affordable_margins,
    start_correction,
)
from bylaw.formulation.dual import Dual
from bylaw.formulation.row_rates import standard_error
from bylaw.formulation.solution import Guarantee, Solution
from bylaw.language.problem import Problem
from bylaw.policy.fingerprint import Fingerprint, make_fingerprint
from bylaw.policy.policy import Policy, compute_probabilities


@dataclass(frozen=True)
class Refitter:
    """A problem on its rows, as compiled and as observed, and the way to solve it."""

    problem: Problem
    evidence: Evidence
    dual: Dual  # with the bounds as stated
    seen: CompiledOutcomes
    resolve: Resolve

    def start(self, first: Solution) -> CorrectedSolution | None:
        """The first answer; None if the rules conflict, on what was seen too."""
        return start_correction(self.dual, first, self.seen, self.resolve)

    def correct(self, begin: CorrectedSolution, margin: float) -> CorrectedSolution:
        """The rules held on what was seen, with a margin of so many standard errors, as far as they can be
        afforded."""
        margins = np.zeros(self.dual.n_rules)
        if margin:
            margins = find_affordable_margins(begin, margin * self.standard_errors(begin), self.resolve)
        found = enforce_rules(self.dual, self.tighten(begin, margins), self.seen, margins, self.resolve)
        self._warn_if_missed(found)
        return found

    def tighten(self, begin: CorrectedSolution, margins: Floats) -> CorrectedSolution:
        """The rules held on what was seen, with margins (M,)."""
        return correct_bounds(self.dual, begin, self.seen, margins, self.resolve)

    def standard_errors(self, found: CorrectedSolution) -> Floats:
        """(M,): of each rule's rate on these rows, in the compiled form's units."""
        probabilities = self.probabilities(found, self.evidence)
        errors = [self._standard_error(j, probabilities) for j in range(self.dual.n_rules)]
        return np.array(errors) / self.dual.form.scales

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return make_fingerprint(block.features for block in self.dual.blocks)

    def policy(self, found: CorrectedSolution) -> Policy:
        form, guarantee = self.dual.form, make_guarantee(found.dual, found.solution)
        tightened = found.shift * form.scales
        return Policy.from_solution(
            self.problem, form, found.solution, guarantee, tightened, (self.fingerprint,)
        )

    def probabilities(self, found: CorrectedSolution, evidence: Evidence) -> Floats:
        """(n_rows, n_actions)."""
        form, beta = self.dual.form, self.dual.beta
        matrix = form.score_matrix(found.solution.multipliers)
        return compute_probabilities(form.feature_map, matrix, beta, evidence).T

    def _standard_error(self, j: int, probabilities: Floats) -> float:
        """Of rule j, in its own unit."""
        rows = self.seen.evidence if self.seen.rules[j] else self.evidence
        return standard_error(self.seen.rates[j], rows, probabilities, self.dual.form.action_space)

    def _warn_if_missed(self, found: CorrectedSolution) -> None:
        excess = found.excess * self.dual.form.scales
        worst = int(np.argmax(excess))
        if excess[worst] <= self._standard_error(worst, self.probabilities(found, self.evidence)):
            return
        warnings.warn(
            f"the observed rates of these rows do not satisfy every rule: {self.dual.form.names[worst]!r} is "
            f"missed by {excess[worst]:.3g}, more than a standard error. The model tells too little about "
            "it; loosen the rule, merge small groups, or give better probabilities",
            ConvergenceWarning,
            stacklevel=5,
        )


def make_policy(problem: Problem, dual: Dual, solution: Solution, tightened: Floats) -> Policy:
    """`tightened` (M,) in the rules' own units."""
    rows = make_fingerprint(block.features for block in dual.blocks)
    return Policy.from_solution(
        problem, dual.form, solution, make_guarantee(dual, solution), tightened, (rows,)
    )


def make_guarantee(dual: Dual, solution: Solution, norms: tuple[float, float] | None = None) -> Guarantee:
    """`norms` are E||C(x)|| and E||C(x)||^2, where they are known without a pass over the rows."""
    mean_norm, sigma2 = (dual.mean_norm, dual.sigma2) if norms is None else norms
    return Guarantee(
        gradient_mapping=solution.gradient_mapping,
        multiplier_norm=float(np.linalg.norm(solution.multipliers)),
        alpha=dual.loss_unit,
        beta=dual.beta,
        sigma=math.sqrt(sigma2),
        smoothness=2 * dual.beta * sigma2,
        mean_norm=mean_norm,
        entropy=dual.form.action_space.entropy,
    )
