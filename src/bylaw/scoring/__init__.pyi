from ._columns import (
    NORMALIZED as NORMALIZED,
    ReferenceForm as ReferenceForm,
    default_columns as default_columns,
    get_column as get_column,
    is_complement as is_complement,
)
from ._printers import (
    DIALECTS as DIALECTS,
    Dialect as Dialect,
    DialectName as DialectName,
    SqlPrinter as SqlPrinter,
    TextPrinter as TextPrinter,
    get_dialect as get_dialect,
    write_comment as write_comment,
)
from ._program import (
    UNDERFLOW as UNDERFLOW,
    Cell as Cell,
    Features as Features,
    compute_probabilities as compute_probabilities,
    describe_policy as describe_policy,
    normalize as normalize,
)
from ._statement import name_results as name_results, to_sql as to_sql
from ._vectors import (
    Vector as Vector,
    apply as apply,
    case as case,
    columns_of as columns_of,
    constant as constant,
    join as join,
    linear as linear,
    read as read,
)
