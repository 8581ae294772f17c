from ._context import (
    Cell as Cell,
    Partition as Partition,
    ReportRows as ReportRows,
    list_partitions as list_partitions,
    make_partition as make_partition,
)
from ._document import Report as Report, report as report
