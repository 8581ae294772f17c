"""bylaw makes any trained classifier obey system-level rules, without retraining it."""

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

__version__ = "0.1.0"

__all__ = [
    "BylawError",
    "Columns",
    "ConvergenceWarning",
    "Evidence",
    "EvidenceError",
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
    "miscoverage",
    "omits",
    "parse",
    "rejected",
    "rejection_parity",
    "selected",
    "size",
    "solve",
]
