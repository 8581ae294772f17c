"""bylaw makes any trained classifier obey system-level rules, without retraining it."""

from typing import TYPE_CHECKING, Any

from bylaw.audit import Audit, RuleAudit, Verdict, audit
from bylaw.certified import HeldOut
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
from bylaw.evidence import Evidence
from bylaw.explanation import Explanation, explain
from bylaw.families import (
    coverage_parity,
    demographic_parity,
    disparate_impact,
    equal_opportunity,
    equalized_odds,
    error_parity,
    rejection_parity,
)
from bylaw.feasibility import Diagnosis, diagnose
from bylaw.frontier import Frontier, frontier
from bylaw.grammar import parse
from bylaw.policy import Policy
from bylaw.problem import Problem
from bylaw.rates import (
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
from bylaw.sensitivity import Sensitivity, sensitivity
from bylaw.solution import Certificate, Guarantee, Solution, Status, Step
from bylaw.solve import solve
from bylaw.stream import Stream
from bylaw.tables import Columns

if TYPE_CHECKING:
    from bylaw.estimator import ConstrainedClassifier

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
            from bylaw.estimator import ConstrainedClassifier
        except ModuleNotFoundError as missing:
            if missing.name != "sklearn":
                raise
            raise ImportError("ConstrainedClassifier needs scikit-learn: install bylaw[sklearn]") from None
        return ConstrainedClassifier
    raise AttributeError(f"module 'bylaw' has no attribute {name!r}")
