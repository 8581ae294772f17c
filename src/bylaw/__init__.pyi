from ._base import (
    show_versions as show_versions,
)
from .engines import (
    Scan as Scan,
    scan as scan,
)
from .errors import (
    BylawError as BylawError,
    ConvergenceWarning as ConvergenceWarning,
    EvidenceError as EvidenceError,
    GuaranteeWarning as GuaranteeWarning,
    InfeasibleRulesError as InfeasibleRulesError,
    OptionError as OptionError,
    PolicyFileError as PolicyFileError,
    RuleError as RuleError,
    RuleSyntaxError as RuleSyntaxError,
    UncertifiedError as UncertifiedError,
)
from .estimators import (
    ConstrainedClassifier as ConstrainedClassifier,
)
from .fitting import (
    Frontier as Frontier,
    Sensitivity as Sensitivity,
    Stream as Stream,
    diagnose as diagnose,
    frontier as frontier,
    refit as refit,
    sensitivity as sensitivity,
    solve as solve,
)
from .language import (
    Problem as Problem,
    accepted as accepted,
    balanced_error as balanced_error,
    cost as cost,
    coverage_parity as coverage_parity,
    custom as custom,
    demographic_parity as demographic_parity,
    disagreement as disagreement,
    disparate_impact as disparate_impact,
    equal_opportunity as equal_opportunity,
    equalized_odds as equalized_odds,
    error as error,
    error_parity as error_parity,
    f1 as f1,
    g_mean as g_mean,
    miscoverage as miscoverage,
    omits as omits,
    parse as parse,
    precision as precision,
    predictive_parity as predictive_parity,
    recall as recall,
    rejected as rejected,
    rejection_parity as rejection_parity,
    selected as selected,
    size as size,
    worst as worst,
)
from .policy import (
    Explanation as Explanation,
    Policy as Policy,
    explain as explain,
)
from .program import (
    Certificate as Certificate,
    Guarantee as Guarantee,
    Solution as Solution,
    Status as Status,
    Step as Step,
)
from .reductions import (
    Diagnosis as Diagnosis,
)
from .rows import (
    Columns as Columns,
    Evidence as Evidence,
)
from .testing import (
    Audit as Audit,
    Monitor as Monitor,
    RuleAudit as RuleAudit,
    RuleWatch as RuleWatch,
    Verdict as Verdict,
    Watch as Watch,
    audit as audit,
)

__version__: str
