"""What a fitted classifier says of rows whose labels and groups are seen: scores, violations, reasons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from bylaw._base.typing import Floats
from bylaw.auditing.audit import Audit, audit
from bylaw.data.arrays import check_alignment
from bylaw.data.evidence import Evidence
from bylaw.data.groups import KnownGroup
from bylaw.data.outcomes import Limits, ObservedRows, observe
from bylaw.errors import EvidenceError
from bylaw.estimators.fit_inputs import groups_of, weights_of
from bylaw.formulation.row_rates import has_rows
from bylaw.language.expressions import Rate
from bylaw.language.problem import Problem
from bylaw.policy.explanation import Explanation, explain
from bylaw.policy.policy import Policy


class Judgement:
    """The part of `ConstrainedClassifier` that judges, and changes nothing."""

    policy_: Policy
    _evidence: Callable[..., Evidence]

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
    ) -> float:
        """One minus the observed cost (what is minimised), with the draws integrated out: the expected
        accuracy for `error()`, in which a rejection is no error; coverage for `miscoverage()`. It compares
        models under the same rules, not rules: a larger budget of rejections always scores better."""
        probabilities, seen = self._observe(X, y, sensitive_features, reference, sample_weight)
        return 1.0 - self.policy_.expected(self.policy_.problem.minimize, seen, probabilities=probabilities)

    def expected(
        self,
        rate: Rate | str,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
    ) -> float:
        """A rate, or its text, as observed on these rows, with the draws integrated out. Where labels or
        groups are not given, the models' probabilities stand in for them."""
        asked = Problem(rate)
        probabilities, seen = self._observe(X, y, sensitive_features, reference, sample_weight, asked)
        return self.policy_.expected(asked.minimize, seen, probabilities=probabilities)

    def violations(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
    ) -> dict[str, float]:
        """For each rule by name, its observed rate minus its bound: above zero, these rows break it; nan
        where they have nobody to judge it by."""
        probabilities, seen = self._observe(X, y, sensitive_features, reference, sample_weight)
        rules = [found.rule for found in self.policy_.problem.expand(seen.classes, seen.group_values)]
        if unseen := [name for name in seen.hidden_groups if isinstance(name, str)]:
            raise EvidenceError(f"to judge the rules, pass sensitive_features with the true {unseen}")
        space = self.policy_.action_space
        if y is None and any(a.needs_label(space) for rule in rules for a in rule.atoms()):
            raise EvidenceError("some of the rules speak of labels: to judge them, pass y")
        return {
            str(rule): self.policy_.expected(rule.excess, seen, probabilities=probabilities)
            if has_rows(rule.excess, seen)
            else math.nan
            for rule in rules
        }

    def audit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        reference: Any = None,
        sample_weight: Any = None,
        rules: Any = None,
        decisions: Any = None,
        limits: Limits | None = None,
        largest_weight: float | None = None,
        confidence: float = 0.95,
        method: Literal["betting", "hoeffding_bentkus", "clopper_pearson"] = "betting",
        fitted_rows: Literal["refuse", "estimate"] = "refuse",
    ) -> Audit:
        """What held-out rows say of the rules, with bounds, p-values and verdicts; see `bylaw.audit`."""
        asked = None if rules is None else Problem(self.policy_.problem.minimize, rules)
        evidence, groups = self._outcome(X, y, sensitive_features, reference, sample_weight, asked)
        return audit(
            self.policy_,
            evidence,
            labels=y,
            groups=groups,
            rules=rules,
            decisions=decisions,
            limits=limits,
            largest_weight=largest_weight,
            confidence=confidence,
            method=method,
            fitted_rows=fitted_rows,
        )

    def explain(self, X: Any, *, sensitive_features: Any = None, reference: Any = None) -> Explanation:
        """For each row, how each rule pulls at each action; the pulls add up to the score."""
        evidence = self._evidence(X, sensitive_features, reference)
        return explain(self.policy_, evidence)

    def _observe(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        reference: Any,
        weights: Any,
        asked: Problem | None = None,
    ) -> tuple[Floats, ObservedRows]:
        """The probabilities on these rows, and the rows as they turned out, with what else is asked about."""
        evidence, groups = self._outcome(X, y, sensitive_features, reference, weights, asked)
        return self.policy_.probabilities(evidence), observe(evidence, y, groups)

    def _outcome(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        reference: Any,
        weights: Any,
        asked: Problem | None,
    ) -> tuple[Evidence, dict[str, KnownGroup]]:
        """What is known of these rows at decision time, and the true groups."""
        check_alignment({"X": X, "y": y})
        stated = self.policy_.problem
        asked = asked or stated
        evidence = self._evidence(X, sensitive_features, reference, asked.references)
        names = list(dict.fromkeys((*stated.attributes, *asked.attributes)))
        if weights is not None:
            evidence = evidence.with_columns(weights=weights_of(weights, X))
        return evidence, groups_of(sensitive_features, names, X)
