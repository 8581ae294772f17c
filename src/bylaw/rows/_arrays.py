"""Conversion of lists, NumPy arrays, frames and series to arrays."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from bylaw.errors import EvidenceError, OptionError, Remedy

_NO_FRAMES = {"numpy", "builtins", "bylaw"}  # packages whose objects narwhals need not check
_NEVER_MISSING = {str, int, bool}  # types


def _native(values: Any, what: str) -> Any:
    """Wrap a frame or a series in narwhals' interface; return any other object unchanged."""
    if type(values).__module__.partition(".")[0] in _NO_FRAMES:
        return values
    try:
        return nw.from_native(values, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as problem:
        raise EvidenceError(f"{what} must have columns with different names: {problem}") from None


def as_vector(values: Any, what: str) -> NDArray[Any]:
    """Return one column as an array, (n_rows,); raise an `EvidenceError` if it has missing values."""
    column, missing = as_partial_vector(values, what)
    if missing.any():
        raise EvidenceError(
            f"{what} has {int(missing.sum())} missing values, the first in row {int(missing.argmax())}; "
            "fill them in or leave out these rows"
        )
    return column


def as_partial_vector(values: Any, what: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return one column, (n_rows,), and a mask of its missing values, (n_rows,).

    A value is missing if it is None, NaN, NaT, NA, null, or masked.
    """
    series = _native(values, what)
    if isinstance(series, nw.LazyFrame):
        raise EvidenceError(f"{what} must be in memory, got a lazy frame; call .collect() first")
    if isinstance(series, nw.Series):
        missing = series.is_null().to_numpy()
        column = series.to_numpy()
    else:
        column = np.asarray(values)
        if column.dtype.kind == "U" and isinstance(values, list | tuple):
            column = np.asarray(values, dtype=object)  # NumPy would convert 1 to "1"
        missing = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else False
    if column.ndim != 1:
        raise EvidenceError(f"{what} must be one column of values, got an array of shape {column.shape}")
    return column, missing | _find_missing(column)


def fill_missing(column: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the column with its missing values replaced by an arbitrary value that is not missing."""
    if not missing.any():
        return column
    filled = column.copy()
    filled[missing] = column[~missing][0]
    return filled


def _find_missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "mM":
        return np.isnat(column)
    if column.dtype.kind != "O" or set(map(type, column.tolist())) <= _NEVER_MISSING:
        return np.zeros(column.shape, bool)

    def is_missing(value: Any) -> bool:
        unequal = value is None or value != value
        return bool(unequal) if isinstance(unequal, bool | np.bool_) else type(value).__name__ == "NAType"

    return np.array([is_missing(value) for value in column], bool)


def as_numbers(values: Any, what: str) -> NDArray[np.float64]:
    """Return one column as an array of floats, (n_rows,)."""
    return _floats(as_vector(values, what), what)


def as_matrix(values: Any, what: str) -> tuple[NDArray[np.float64], list[str] | None]:
    """Return columns as floats, (n_rows, n_columns), and their names; None if they have no names."""
    if isinstance(values, Mapping):
        columns = [as_numbers(column, f"{what}[{name!r}]") for name, column in values.items()]
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise EvidenceError(f"{what} must have columns of the same length, got lengths {sorted(lengths)}")
        return np.column_stack(columns), list(values)
    frame = _native(values, what)
    if isinstance(frame, nw.LazyFrame):
        raise EvidenceError(f"{what} must be in memory, got a lazy frame; call .collect() first")
    if isinstance(frame, nw.DataFrame):
        return _floats(frame.to_numpy(), what), list(frame.columns)
    return _floats(np.asarray(values), what), None


def _floats(array: NDArray[Any], what: str) -> NDArray[np.float64]:
    if array.dtype.kind == "c":  # NumPy would drop the imaginary parts
        raise EvidenceError(f"{what} must be real numbers, got {array.dtype}; pass their real parts")
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise EvidenceError(f"{what} must be numbers, got {array.dtype}") from None


def own(array: NDArray[Any], source: Any) -> NDArray[Any]:
    """Return the array read-only, so that the caller cannot change it later.

    It is copied, unless it is a new array or its memory is read-only already.
    """
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
    """Return a dict of columns, or the columns of a frame, by name."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        return columns
    frame = _native(columns, what)
    if isinstance(frame, nw.DataFrame):
        return {name: frame[name].to_native() for name in frame.columns}
    raise EvidenceError(f"{what} must be a dict {{name: column}} or a frame, got {type(columns).__name__}")


def select_columns(columns: Any, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """Return the columns whose names are in `names`, as a mapping by name.

    A single column without a name gets the name in `names` if there is only one.
    """
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
                f"{what} must have the columns that the rules refer to, {list(names)}, got one column; pass "
                "a frame or a dict with these names"
            )
        name = names[0] if names else None
    return {} if name is None else {name: column}


class RowIndex(NamedTuple):
    """The index of a frame or a series, and the name of the column that has it."""

    name: str
    labels: Any  # an index of pandas or a similar library

    def rows(self, part: Any) -> RowIndex:
        """Return the index of a subset of the rows."""
        return RowIndex(self.name, self.labels[part])


def check_alignment(columns: Mapping[str, Any], known: RowIndex | None = None) -> RowIndex | None:
    """Return the index that columns of the same rows share, or None if they have no index.

    Rows are matched by position, so two indexes of the same length must be equal: another order, or other
    labels, suggest that the caller expects rows to be matched by label. Arrays and lists have no index.

    Parameters
    ----------
    columns : dict
        frames, series, arrays, or dicts of these, by the names that error messages use.
    known : RowIndex, optional
        the index of columns that were checked before.

    Raises
    ------
    EvidenceError
        if two of the indexes differ.

    Examples
    --------
    >>> import pandas
    >>> index = check_alignment({"y": [0, 1], "groups": {"sex": pandas.Series(["F", "M"], index=[7, 3])}})
    >>> index.name
    "groups['sex']"
    """
    for name, column in columns.items():
        if isinstance(column, Mapping):
            known = check_alignment({f"{name}[{key!r}]": item for key, item in column.items()}, known)
            continue
        native = _native(column, "a column")
        labels = nw.maybe_get_index(native) if isinstance(native, nw.DataFrame | nw.Series) else None
        if labels is None:
            continue
        if known is None:
            known = RowIndex(name, labels)
        elif len(labels) == len(known.labels) and not labels.equals(known.labels):
            same = set(labels) == set(known.labels)
            how = "the same labels in another order" if same else "other labels"
            raise EvidenceError(
                f"{name} and {known.name} have different indexes ({how}), and rows are matched by position",
                Remedy("align_rows", name, (known.name,)),
            )
    return known


def make_frame(columns: Mapping[str, Any], like: Any = None) -> Any:
    """Return a frame of the library of `like`, or else of the first installed of pandas, polars, pyarrow."""
    native = nw.from_native(like, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame | nw.Series):
        return nw.from_dict(dict(columns), backend=native.implementation).to_native()
    for backend in ("pandas", "polars", "pyarrow"):
        if importlib.util.find_spec(backend):
            return nw.from_dict(dict(columns), backend=backend).to_native()
    raise OptionError("returning a frame requires pandas, polars or pyarrow; install one of them")


def is_frame(values: Any) -> bool:
    """Return whether the object is a frame in memory, such as a pandas or polars DataFrame."""
    return isinstance(nw.from_native(values, pass_through=True), nw.DataFrame)
