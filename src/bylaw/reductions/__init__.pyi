from ._conflicts import Diagnosis as Diagnosis, examine as examine, measure_slack as measure_slack
from ._fitter import REDUCTIONS as REDUCTIONS, Fitter as Fitter, Reduction as Reduction, Task as Task
from ._observe import FEW_ROWS as FEW_ROWS
from ._policies import make_guarantee as make_guarantee
from ._warnings import (
    mark_vacuous_rules as mark_vacuous_rules,
    warn_of_small_groups as warn_of_small_groups,
    warn_of_violations as warn_of_violations,
)
