"""Reductions of problems to simpler ones, in an ordered list, with diagnoses of conflicts and warnings."""

from bylaw.reductions._conflicts import Diagnosis, examine, measure_slack
from bylaw.reductions._fitter import REDUCTIONS, Fitter, Reduction, Task
from bylaw.reductions._observe import FEW_ROWS
from bylaw.reductions._policies import make_guarantee
from bylaw.reductions._warnings import mark_vacuous_rules, warn_of_small_groups, warn_of_violations

__all__ = [
    "FEW_ROWS",
    "REDUCTIONS",
    "Diagnosis",
    "Fitter",
    "Reduction",
    "Task",
    "examine",
    "make_guarantee",
    "mark_vacuous_rules",
    "measure_slack",
    "warn_of_small_groups",
    "warn_of_violations",
]
