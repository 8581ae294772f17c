"""bylaw makes any trained classifier obey system-level rules, without retraining it."""

from typing import TYPE_CHECKING, Any

from bylaw.auditing.audit import Audit, RuleAudit, Verdict, audit
from bylaw.data.columns import Columns
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import HeldOut
from bylaw.errors import (
    BylawError,
    ConvergenceWarning,
    EvidenceError,
    GuaranteeWarning,
    InfeasibleRulesError,
    OptionError,
    PolicyFileError,
    RuleError,
    RuleSyntaxError,
    UncertifiedError,
)
from bylaw.fitting.diagnosis import Diagnosis, diagnose
from bylaw.fitting.frontier import Frontier, frontier
from bylaw.fitting.sensitivity import Sensitivity, sensitivity
from bylaw.fitting.solve import solve
from bylaw.fitting.stream import Stream
from bylaw.formulation.solution import Certificate, Guarantee, Solution, Status, Step
from bylaw.language.families import (
    coverage_parity,
    demographic_parity,
    disparate_impact,
    equal_opportunity,
    equalized_odds,
    error_parity,
    rejection_parity,
)
from bylaw.language.parser import parse
from bylaw.language.problem import Problem
from bylaw.language.rates import (
    accepted,
    cost,
    custom,
    disagreement,
    error,
    miscoverage,
    omits,
    rejected,
    selected,
    size,
)
from bylaw.policy.explanation import Explanation, explain
from bylaw.policy.policy import Policy

if TYPE_CHECKING:
    from bylaw.estimators.constrained_classifier import ConstrainedClassifier

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "BylawError",
    "Certificate",
    "Columns",
    "ConstrainedClassifier",
    "ConvergenceWarning",
    "Diagnosis",
    "Evidence",
    "EvidenceError",
    "Explanation",
    "Frontier",
    "Guarantee",
    "GuaranteeWarning",
    "HeldOut",
    "InfeasibleRulesError",
    "OptionError",
    "Policy",
    "PolicyFileError",
    "Problem",
    "RuleAudit",
    "RuleError",
    "RuleSyntaxError",
    "Sensitivity",
    "Solution",
    "Status",
    "Step",
    "Stream",
    "UncertifiedError",
    "Verdict",
    "accepted",
    "audit",
    "cost",
    "coverage_parity",
    "custom",
    "demographic_parity",
    "diagnose",
    "disagreement",
    "disparate_impact",
    "equal_opportunity",
    "equalized_odds",
    "error",
    "error_parity",
    "explain",
    "frontier",
    "miscoverage",
    "omits",
    "parse",
    "rejected",
    "rejection_parity",
    "selected",
    "sensitivity",
    "size",
    "solve",
]


def __getattr__(name: str) -> Any:
    """What needs an optional library is imported when it is asked for."""
    if name == "ConstrainedClassifier":
        try:
            from bylaw.estimators.constrained_classifier import ConstrainedClassifier
        except ModuleNotFoundError as missing:
            if missing.name != "sklearn":
                raise
            raise ImportError("ConstrainedClassifier needs scikit-learn: install bylaw[sklearn]") from None
        return ConstrainedClassifier
    raise AttributeError(f"module 'bylaw' has no attribute {name!r}")
