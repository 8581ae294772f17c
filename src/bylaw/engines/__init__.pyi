from ._databases import DatabaseScan as DatabaseScan, SurveyedTable as SurveyedTable
from ._engine import PULL as PULL
from ._files import TableFiles as TableFiles
from ._scan import (
    MEMORY_FACTOR as MEMORY_FACTOR,
    VALUE_BYTES as VALUE_BYTES,
    Scan as Scan,
    SurveyedRows as SurveyedRows,
    Watcher as Watcher,
    attach_observed as attach_observed,
    count_most_values as count_most_values,
    find_memory as find_memory,
    read_rows as read_rows,
    scan as scan,
)
