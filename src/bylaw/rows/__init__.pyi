from ._arrays import (
    as_columns as as_columns,
    as_matrix as as_matrix,
    as_numbers as as_numbers,
    as_partial_vector as as_partial_vector,
    as_vector as as_vector,
    check_alignment as check_alignment,
    fill_missing as fill_missing,
    is_frame as is_frame,
    make_frame as make_frame,
    own as own,
    select_columns as select_columns,
)
from ._background_io import read_ahead as read_ahead, write_behind as write_behind
from ._columns import (
    OBVIOUS_LABELS as OBVIOUS_LABELS,
    ROLES as ROLES,
    Columns as Columns,
    as_mapping as as_mapping,
    find_columns as find_columns,
    order_columns as order_columns,
)
from ._evidence import (
    KNOWN as KNOWN,
    LEAST_WEIGHT as LEAST_WEIGHT,
    MARGIN_TOLERANCE as MARGIN_TOLERANCE,
    REJECTED as REJECTED,
    ROUNDING as ROUNDING,
    SUM_TOLERANCE as SUM_TOLERANCE,
    Evidence as Evidence,
    Limits as Limits,
    RowData as RowData,
    as_evidence as as_evidence,
    check_cost as check_cost,
    concatenate as concatenate,
    count_effective as count_effective,
    encode_values as encode_values,
    name_cost as name_cost,
)
from ._groups import (
    MISSING as MISSING,
    Group as Group,
    GroupProbabilities as GroupProbabilities,
    KnownGroup as KnownGroup,
    Part as Part,
    check_group_sizes as check_group_sizes,
    concatenate_groups as concatenate_groups,
    factorize as factorize,
    find_combination as find_combination,
)
from ._margins import Key as Key, Margins as Margins, check_cells as check_cells, list_events as list_events
from ._outcomes import ObservedRows as ObservedRows, observe as observe
from ._table_files import (
    BATCH_ROWS as BATCH_ROWS,
    FileState as FileState,
    TableFile as TableFile,
    check_unchanged as check_unchanged,
    detect_format as detect_format,
    find_files as find_files,
    find_root as find_root,
    find_suffix as find_suffix,
    is_many as is_many,
    look_at as look_at,
    name_file as name_file,
    name_table as name_table,
    open_columns as open_columns,
    open_writer as open_writer,
    parse_column as parse_column,
    read_with_delimiter as read_with_delimiter,
    would_read as would_read,
    write_table as write_table,
)
from ._text_values import match_value as match_value, parse_values as parse_values
