from ._diagnosis import diagnose as diagnose
from ._frontier import (
    Frontier as Frontier,
    Lever as Lever,
    find_lever as find_lever,
    find_met_level as find_met_level,
    frontier as frontier,
)
from ._refit import counts_changes as counts_changes, refit as refit
from ._sensitivity import Sensitivity as Sensitivity, sensitivity as sensitivity
from ._solve import (
    SOLVERS as SOLVERS,
    as_solver as as_solver,
    fit_problem as fit_problem,
    make_fitter as make_fitter,
    solve as solve,
    solve_without_rules as solve_without_rules,
)
from ._stream import Stream as Stream
