"""Columns from anywhere: NumPy, lists, and any frame or series that narwhals reads."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from bylaw.errors import EvidenceError, OptionError


def _native(values: Any, what: str) -> Any:
    """Frames and series behind narwhals' interface, anything else as it is."""
    try:
        return nw.from_native(values, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as problem:
        raise EvidenceError(f"{what} has several columns of the same name: {problem}") from None


def as_vector(values: Any, what: str) -> NDArray[Any]:
    """One column, (n_rows,), with no missing values."""
    column, missing = as_partial_vector(values, what)
    if missing.any():
        raise EvidenceError(
            f"{what} has {int(missing.sum())} missing values, the first in row {int(missing.argmax())}; "
            "fill them in or drop those rows"
        )
    return column


def as_partial_vector(values: Any, what: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One column, (n_rows,), and where its value is missing: None, NaN, NaT, NA, null, or masked."""
    series = _native(values, what)
    if isinstance(series, nw.LazyFrame):
        raise EvidenceError(f"{what} is a lazy frame; collect it first")
    if isinstance(series, nw.Series):
        missing = series.is_null().to_numpy()
        column = series.to_numpy()
    else:
        column = np.asarray(values)
        if column.dtype.kind == "U" and isinstance(values, list | tuple):
            column = np.asarray(values, dtype=object)  # NumPy would spell 1 as "1"
        missing = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else False
    if column.ndim != 1:
        raise EvidenceError(f"{what} must be one column of values, not an array of shape {column.shape}")
    return column, missing | _missing(column)


def fill_missing(column: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """The column with some value that is not missing in place of those that are; one at least is not."""
    if not missing.any():
        return column
    filled = column.copy()
    filled[missing] = column[~missing][0]
    return filled


def _missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "mM":
        return np.isnat(column)
    if column.dtype.kind != "O":
        return np.zeros(column.shape, bool)
    return np.array([_is_missing(value) for value in column], bool)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    unequal = value != value
    return bool(unequal) if isinstance(unequal, bool | np.bool_) else type(value).__name__ == "NAType"


def as_numbers(values: Any, what: str) -> NDArray[np.float64]:
    """One column of numbers, (n_rows,)."""
    return _floats(as_vector(values, what), what)


def as_matrix(values: Any, what: str) -> tuple[NDArray[np.float64], list[str] | None]:
    """Numbers (n_rows, n_columns), and the columns' names where the input has them."""
    if isinstance(values, Mapping):
        columns = [as_numbers(column, f"{what}[{name!r}]") for name, column in values.items()]
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise EvidenceError(f"{what}: the columns have different lengths {sorted(lengths)}")
        return np.column_stack(columns), list(values)
    frame = _native(values, what)
    if isinstance(frame, nw.LazyFrame):
        raise EvidenceError(f"{what} is a lazy frame; collect it first")
    if isinstance(frame, nw.DataFrame):
        return _floats(frame.to_numpy(), what), list(frame.columns)
    return _floats(np.asarray(values), what), None


def _floats(array: NDArray[Any], what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise EvidenceError(f"{what} must be numbers, not {array.dtype}") from None


def own(array: NDArray[Any], source: Any) -> NDArray[Any]:
    """The array, read-only and not aliased: a copy, unless it is new or no one can write to it."""
    if array.flags.writeable:
        shared = array is source or array.base is not None
    else:
        base = array.base
        while isinstance(base, np.ndarray) and not base.flags.writeable:
            base = base.base
        shared = isinstance(base, np.ndarray)
    kept = array.copy() if shared else array
    kept.flags.writeable = False
    return kept


def as_columns(columns: Any, what: str) -> Mapping[str, Any]:
    """Named columns: a dict, or the columns of a frame."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        return columns
    frame = _native(columns, what)
    if isinstance(frame, nw.DataFrame):
        return {name: frame[name].to_native() for name in frame.columns}
    raise EvidenceError(f"{what} takes a dict {{name: column}} or a frame, not {type(columns).__name__}")


def select_columns(columns: Any, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """Those of the columns that bear one of these names; a single column without a name is the only
    one it can be."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping) or is_frame(columns):
        return {name: column for name, column in as_columns(columns, what).items() if name in names}
    shape = getattr(columns, "shape", (0,))
    if len(shape) == 2 and shape[1] != 1:
        raise EvidenceError(
            f"{what} has {shape[1]} columns without names; pass a frame or a dict {{name: column}}"
        )
    column = columns[:, 0] if len(shape) == 2 else columns
    name = getattr(columns, "name", None)
    if name not in names:
        if len(names) > 1:
            raise EvidenceError(
                f"{what} is one column, and the rules refer to {list(names)}; pass a frame with columns of "
                "these names, or a dict"
            )
        name = names[0] if names else None
    return {} if name is None else {name: column}


def get_index(column: Any) -> Any:
    """The index of a frame or series that has one, or None."""
    native = _native(column, "a column")
    return nw.maybe_get_index(native) if isinstance(native, nw.DataFrame | nw.Series) else None


def check_alignment(columns: Mapping[str, Any]) -> None:
    """Rows are matched by position. Two indexes with the same labels in another order are a
    sign that the caller meant otherwise."""
    found = [(name, index) for name, column in columns.items() if (index := get_index(column)) is not None]
    for name, index in found[1:]:
        check_index(index, name, found[0][1], found[0][0])


def check_index(index: Any, name: str, first: Any, first_name: str) -> None:
    """An index, or None, against another."""
    if index is None or first is None or len(index) != len(first) or index.equals(first):
        return
    if set(index) == set(first):
        raise EvidenceError(
            f"{name!r} has the same index as {first_name!r} in another order, and rows are matched by "
            "position; align them first, for instance with .loc[other.index]"
        )


def make_frame(columns: Mapping[str, Any], like: Any = None) -> Any:
    """A frame of the library of `like`, or else of the first installed of pandas, polars, pyarrow."""
    native = nw.from_native(like, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame | nw.Series):
        return nw.from_dict(dict(columns), backend=native.implementation).to_native()
    for backend in ("pandas", "polars", "pyarrow"):
        if importlib.util.find_spec(backend):
            return nw.from_dict(dict(columns), backend=backend).to_native()
    raise OptionError("a frame needs pandas, polars or pyarrow; install one of them")


def is_frame(values: Any) -> bool:
    return isinstance(nw.from_native(values, pass_through=True), nw.DataFrame)
