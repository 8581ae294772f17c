from ._audit import (
    RANDOM as RANDOM,
    Audit as Audit,
    audit as audit,
    compute_random_share as compute_random_share,
    warn_of_copies as warn_of_copies,
)
from ._comparison import Comparison as Comparison, compare_policies as compare_policies
from ._confidence_bounds import METHODS as METHODS
from ._costs import (
    Costs as Costs,
    add_changes as add_changes,
    compare_costs as compare_costs,
    compare_scanned_costs as compare_scanned_costs,
    find_predicted_costs as find_predicted_costs,
    find_without_rules as find_without_rules,
    format_referred as format_referred,
    is_observed as is_observed,
    list_costs as list_costs,
    measure_referred as measure_referred,
)
from ._formatting import (
    CLOSE as CLOSE,
    VERDICT_TONES as VERDICT_TONES,
    WATCH_TONES as WATCH_TONES,
    describe_cost as describe_cost,
    describe_need as describe_need,
    format_headline as format_headline,
    format_interval as format_interval,
    format_terms as format_terms,
    sort_rules as sort_rules,
)
from ._hypotheses import (
    MOST_ROWS as MOST_ROWS,
    NEVER as NEVER,
    DecidedRows as DecidedRows,
    HypothesisTest as HypothesisTest,
    Untestable as Untestable,
    check_limits as check_limits,
    check_weight as check_weight,
)
from ._monitor import Monitor as Monitor
from ._reliability import (
    NOTABLE as NOTABLE,
    Reliability as Reliability,
    ReliabilityBin as ReliabilityBin,
    bin_confidence as bin_confidence,
    choose_shown_lines as choose_shown_lines,
    compute_reliability as compute_reliability,
)
from ._verdicts import (
    TOLERANCE as TOLERANCE,
    RuleAudit as RuleAudit,
    Verdict as Verdict,
    describe_rule as describe_rule,
    find_worst as find_worst,
    hide_numbers as hide_numbers,
    is_out_of_reach as is_out_of_reach,
    judge_estimate as judge_estimate,
    list_hidden_rules as list_hidden_rules,
)
from ._watched_rule import RuleWatch as RuleWatch, Watch as Watch
