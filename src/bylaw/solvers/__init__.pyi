from ._column_generation import (
    GAP as GAP,
    ROUNDING as ROUNDING,
    ColumnGeneration as ColumnGeneration,
    MixtureBounds as MixtureBounds,
    MixtureProgram as MixtureProgram,
)
from ._full_batch import (
    BETA_GROWTH as BETA_GROWTH,
    FullBatch as FullBatch,
    Solver as Solver,
    WarmFullBatch as WarmFullBatch,
    resolve_beta as resolve_beta,
    take_newton_step as take_newton_step,
)
from ._linear_program import LinearProgram as LinearProgram
from ._screening import ScreenedRows as ScreenedRows, screen_rows as screen_rows
from ._separable import find_separate_rules as find_separate_rules
from ._shifts import (
    NEGLIGIBLE as NEGLIGIBLE,
    ObservedSolution as ObservedSolution,
    ShiftedRules as ShiftedRules,
)
from ._stochastic import (
    ACSA as ACSA,
    SGD as SGD,
    SGD3 as SGD3,
    Optimizer as Optimizer,
    Oracle as Oracle,
    SampledRows as SampledRows,
    Stochastic as Stochastic,
    compute_theory_beta as compute_theory_beta,
)
from ._stochastic_newton import (
    OPTIMIZERS as OPTIMIZERS,
    TILE_ROWS as TILE_ROWS,
    NewtonState as NewtonState,
    StochasticNewton as StochasticNewton,
)
