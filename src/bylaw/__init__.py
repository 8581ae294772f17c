"""bylaw makes any trained classifier satisfy system-level rules, without retraining it.

Names are imported when they are first used, so that `import bylaw` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bylaw._base.runtime import show_versions
    from bylaw.engines.scan import Scan, scan
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
    from bylaw.estimators.constrained_classifier import ConstrainedClassifier
    from bylaw.fitting.diagnosis import diagnose
    from bylaw.fitting.frontier import Frontier, frontier
    from bylaw.fitting.refit import refit
    from bylaw.fitting.sensitivity import Sensitivity, sensitivity
    from bylaw.fitting.solve import solve
    from bylaw.fitting.stream import Stream
    from bylaw.language.expressions import worst
    from bylaw.language.families import (
        coverage_parity,
        demographic_parity,
        disparate_impact,
        equal_opportunity,
        equalized_odds,
        error_parity,
        predictive_parity,
        rejection_parity,
    )
    from bylaw.language.parser import parse
    from bylaw.language.problem import Problem
    from bylaw.language.rates import (
        accepted,
        balanced_error,
        cost,
        custom,
        disagreement,
        error,
        f1,
        g_mean,
        miscoverage,
        omits,
        precision,
        recall,
        rejected,
        selected,
        size,
    )
    from bylaw.policy.explanation import Explanation, explain
    from bylaw.policy.policy import Policy
    from bylaw.program.solution import Certificate, Guarantee, Solution, Status, Step
    from bylaw.reductions import Diagnosis
    from bylaw.rows.columns import Columns
    from bylaw.rows.evidence import Evidence
    from bylaw.testing import Audit, Monitor, RuleAudit, RuleWatch, Verdict, Watch, audit

__version__ = "0.2.0"

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
    "InfeasibleRulesError",
    "Monitor",
    "OptionError",
    "Policy",
    "PolicyFileError",
    "Problem",
    "RuleAudit",
    "RuleError",
    "RuleSyntaxError",
    "RuleWatch",
    "Scan",
    "Sensitivity",
    "Solution",
    "Status",
    "Step",
    "Stream",
    "UncertifiedError",
    "Verdict",
    "Watch",
    "accepted",
    "audit",
    "balanced_error",
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
    "f1",
    "frontier",
    "g_mean",
    "miscoverage",
    "omits",
    "parse",
    "precision",
    "predictive_parity",
    "recall",
    "refit",
    "rejected",
    "rejection_parity",
    "scan",
    "selected",
    "sensitivity",
    "show_versions",
    "size",
    "solve",
    "worst",
]

_MODULES = {
    "bylaw._base.runtime": "show_versions",
    "bylaw.engines.scan": "Scan scan",
    "bylaw.rows.columns": "Columns",
    "bylaw.rows.evidence": "Evidence",
    "bylaw.errors": (
        "BylawError ConvergenceWarning EvidenceError GuaranteeWarning InfeasibleRulesError "
        "OptionError PolicyFileError RuleError RuleSyntaxError UncertifiedError"
    ),
    "bylaw.estimators.constrained_classifier": "ConstrainedClassifier",
    "bylaw.reductions._conflicts": "Diagnosis",
    "bylaw.fitting.diagnosis": "diagnose",
    "bylaw.fitting.frontier": "Frontier frontier",
    "bylaw.fitting.refit": "refit",
    "bylaw.fitting.sensitivity": "Sensitivity sensitivity",
    "bylaw.fitting.solve": "solve",
    "bylaw.fitting.stream": "Stream",
    "bylaw.program.solution": "Certificate Guarantee Solution Status Step",
    "bylaw.language.families": (
        "coverage_parity demographic_parity disparate_impact equal_opportunity equalized_odds "
        "error_parity predictive_parity rejection_parity"
    ),
    "bylaw.language.parser": "parse",
    "bylaw.language.problem": "Problem",
    "bylaw.language.rates": (
        "accepted balanced_error cost custom disagreement error f1 g_mean miscoverage omits precision "
        "recall rejected selected size"
    ),
    "bylaw.language.expressions": "worst",
    "bylaw.policy.explanation": "Explanation explain",
    "bylaw.policy.policy": "Policy",
    "bylaw.testing": "Audit Monitor RuleAudit RuleWatch Verdict Watch audit",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bylaw' has no attribute {name!r}")
    try:
        found = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name != "sklearn":
            raise
        from bylaw.errors import install_extra

        raise ImportError(f"{name} needs scikit-learn; install it with: {install_extra('sklearn')}") from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
