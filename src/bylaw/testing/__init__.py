"""Tests of rules on rows: audits, certificates and monitors. No solver is needed."""

from bylaw.testing._audit import RANDOM, Audit, audit, compute_random_share, warn_of_copies
from bylaw.testing._audit_formatting import describe_bounds, describe_cost, describe_need
from bylaw.testing._comparison import Comparison, compare_policies
from bylaw.testing._confidence_bounds import METHODS
from bylaw.testing._costs import (
    Costs,
    add_changes,
    compare_costs,
    compare_scanned_costs,
    find_predicted_costs,
    find_without_rules,
    format_referred,
    is_observed,
    list_costs,
    measure_referred,
)
from bylaw.testing._hypotheses import (
    MOST_ROWS,
    NEVER,
    DecidedRows,
    HypothesisTest,
    Untestable,
    check_limits,
    check_weight,
)
from bylaw.testing._monitor import Monitor
from bylaw.testing._monitor_formatting import format_headline, format_interval, format_terms, sort_rules
from bylaw.testing._reliability import (
    CLOSE,
    NOTABLE,
    Reliability,
    ReliabilityBin,
    bin_confidence,
    choose_shown_lines,
    compute_reliability,
)
from bylaw.testing._rule_watch import RuleWatch, Watch
from bylaw.testing._verdicts import (
    TOLERANCE,
    RuleAudit,
    Verdict,
    describe_rule,
    find_worst,
    hide_numbers,
    is_out_of_reach,
    judge_estimate,
    list_hidden_rules,
)

__all__ = [
    "CLOSE",
    "METHODS",
    "MOST_ROWS",
    "NEVER",
    "NOTABLE",
    "RANDOM",
    "TOLERANCE",
    "Audit",
    "Comparison",
    "Costs",
    "DecidedRows",
    "HypothesisTest",
    "Monitor",
    "Reliability",
    "ReliabilityBin",
    "RuleAudit",
    "RuleWatch",
    "Untestable",
    "Verdict",
    "Watch",
    "add_changes",
    "audit",
    "bin_confidence",
    "check_limits",
    "check_weight",
    "choose_shown_lines",
    "compare_costs",
    "compare_policies",
    "compare_scanned_costs",
    "compute_random_share",
    "compute_reliability",
    "describe_bounds",
    "describe_cost",
    "describe_need",
    "describe_rule",
    "find_predicted_costs",
    "find_without_rules",
    "find_worst",
    "format_headline",
    "format_interval",
    "format_referred",
    "format_terms",
    "hide_numbers",
    "is_observed",
    "is_out_of_reach",
    "judge_estimate",
    "list_costs",
    "list_hidden_rules",
    "measure_referred",
    "sort_rules",
    "warn_of_copies",
]
