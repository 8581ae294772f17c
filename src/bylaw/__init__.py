"""bylaw makes any trained classifier obey system-level rules, without retraining it."""

from typing import TYPE_CHECKING, Any

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
from bylaw.solution import Guarantee, Solution, Status, Step
from bylaw.solve import solve
from bylaw.stream import Stream
from bylaw.tables import Columns

if TYPE_CHECKING:
    from bylaw.estimator import ConstrainedClassifier

__version__ = "0.1.0"

__all__ = [
    "BylawError",
    "Columns",
    "ConstrainedClassifier",
    "ConvergenceWarning",
    "Evidence",
    "EvidenceError",
    "Explanation",
    "Guarantee",
    "GuaranteeWarning",
    "InfeasibleRulesError",
    "OptionError",
    "Policy",
    "PolicyFileError",
    "Problem",
    "RuleError",
    "RuleSyntaxError",
    "Solution",
    "Status",
    "Step",
    "Stream",
    "accepted",
    "cost",
    "coverage_parity",
    "custom",
    "demographic_parity",
    "disagreement",
    "disparate_impact",
    "equal_opportunity",
    "equalized_odds",
    "error",
    "error_parity",
    "explain",
    "miscoverage",
    "omits",
    "parse",
    "rejected",
    "rejection_parity",
    "selected",
    "size",
    "solve",
]


def __getattr__(name: str) -> Any:
    """What needs an optional library is imported when it is asked for."""
    if name == "ConstrainedClassifier":
        from bylaw.estimator import ConstrainedClassifier

        return ConstrainedClassifier
    raise AttributeError(f"module 'bylaw' has no attribute {name!r}")
