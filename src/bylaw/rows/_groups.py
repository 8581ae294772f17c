"""Groups of rows: known values, or probabilities of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Value, as_scalar
from bylaw.errors import EvidenceError, RuleError
from bylaw.rows._text_values import check_length

Part = slice | NDArray[np.intp]
MISSING = -1  # the code of a label or a group that was not observed
_ARROW_TEXTS = ("string", "large_string", "string_view")
_ARROW_DICTIONARIES = ("dictionary<values=string", "dictionary<values=large_string")
_NARROW = 2**12  # a range of numbers that is counted rather than sorted
_LEAST_ROWS = ((5000, math.inf), (500, 20), (20, 5))  # more values than the first need so many rows each


@dataclass(frozen=True)
class KnownGroup:
    """An attribute whose value is known for every row, or was observed on some of them."""

    values: tuple[Value, ...]
    codes: NDArray[np.int64]  # (n_rows,) positions in `values`; `MISSING` where it was not observed
    known: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.codes.flags.writeable = False

    def rows(self, part: Part) -> KnownGroup:
        """Return the group on some of the rows."""
        return KnownGroup(self.values, self.codes[part])

    def seen(self) -> KnownGroup:
        """Return the group without values that no row has."""
        present = np.unique(self.codes[self.codes >= 0])
        values = tuple(self.values[i] for i in present)
        return KnownGroup(values, np.where(self.codes < 0, MISSING, np.searchsorted(present, self.codes)))

    def with_values(self, values: tuple[Value, ...]) -> KnownGroup:
        """Return the same rows, with positions in other values, of which these are some."""
        positions = np.array([*(values.index(value) for value in self.values), MISSING])  # the last one is -1
        return self if values == self.values else KnownGroup(values, positions[self.codes])


@dataclass(frozen=True)
class GroupProbabilities:
    """An attribute that is known by probabilities of its values on each row."""

    values: tuple[Any, ...]  # tuples of values for several attributes together
    probabilities: Floats  # (n_rows, n_values)
    known: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.probabilities.flags.writeable = False

    def rows(self, part: Part) -> GroupProbabilities:
        """Return the group on some of the rows."""
        return GroupProbabilities(self.values, self.probabilities[part])

    def margin(self, place: int) -> GroupProbabilities:
        """Return the probabilities of one of several attributes that are known together."""
        values = tuple(dict.fromkeys(value[place] for value in self.values))
        columns = [[value[place] == here for value in self.values] for here in values]
        return GroupProbabilities(values, self.probabilities @ np.array(columns, dtype=np.float64).T)


Group = KnownGroup | GroupProbabilities


def find_distinct(vector: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct whole numbers or truth values of a vector, sorted, and each row's position."""
    low, high = (int(vector.min()), int(vector.max())) if len(vector) else (0, _NARROW)
    if high - low >= _NARROW or high > np.iinfo(np.int64).max:
        values, places = np.unique(vector, return_inverse=True)
        return values, places.astype(np.int64, copy=False)
    # Numbers that lie close together are counted, which is faster than to sort them.
    offsets = vector.astype(np.int64) - low
    present = np.bincount(offsets, minlength=1) > 0
    values = (np.flatnonzero(present) + low).astype(vector.dtype)
    return values, offsets if present.all() else (np.cumsum(present) - 1).take(offsets)


def check_group_sizes(values: Sequence[Value], counts: NDArray[Any], what: str) -> None:
    """Raise if a column has more values than can be compared: it may be a number or an id by mistake.

    The limit depends on the median of the rows per value, `counts` (n_values,): many groups with enough rows
    each are accepted, and so are few groups with few rows.
    """
    typical = math.floor(np.median(counts)) if len(counts) else 0
    needed = next((rows for many, rows in _LEAST_ROWS if len(values) > many), 0)
    if typical >= needed:
        return
    each = "1 row" if typical == 1 else f"{typical:,} rows"
    found = f"half of them on {each} or fewer" if counts.max() > typical else f"each on {each}"
    most = f"rules compare at most {_LEAST_ROWS[0][0]:,}"
    limit = most if needed == math.inf else f"{needed} rows each would do"
    number = isinstance(values[0], int | float)
    advice = (
        "a number, put it into a few bins: np.digitize(column, np.quantile(column, [0.2, 0.4, 0.6, 0.8]))"
        if number
        else "a text with many rare values, put these together: column.where(column.map("
        "column.value_counts()) >= 20, 'other')"
    )
    raise EvidenceError(
        f"{what} has {len(values):,} different values on {int(counts.sum()):,} rows, {found}; as groups to "
        f"be compared these are too many ({limit}). If it is an id, name another column in the rules. If it "
        f"is {advice}"
    )


def factorize(vector: NDArray[Any], what: str) -> KnownGroup:
    """Return the distinct values of a vector, sorted, with each row's position."""
    if vector.dtype.kind in "iub":
        numbers, codes = find_distinct(vector)
        return KnownGroup(tuple(numbers.tolist()), codes)
    rows = vector.tolist()
    try:
        found = [as_scalar(value, f"a value of {what}") for value in dict.fromkeys(rows)]
    except (TypeError, RuleError) as problem:
        raise EvidenceError(f"{what} has values that are not plain text or numbers: {problem}") from None
    check_length(max((len(value) for value in found if isinstance(value, str)), default=0), what)
    try:
        values = tuple(sorted(found))  # type: ignore[type-var]
    except TypeError:
        raise EvidenceError(f"{what} mixes types of values: {found[:5]}; convert them to one type") from None
    positions = {value: i for i, value in enumerate(values)}
    codes = np.fromiter(map(positions.__getitem__, rows), dtype=np.int64, count=len(rows))
    return KnownGroup(values, codes)


def factorize_arrow(column: Any, what: str) -> KnownGroup | None:
    """Return the group of an Arrow column of text, which Arrow encodes faster; None for any other column."""
    type_name = str(getattr(column, "type", ""))
    if type_name not in _ARROW_TEXTS and not type_name.startswith(_ARROW_DICTIONARIES):
        return None
    whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    encoded = whole if type_name.startswith("dictionary") else whole.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if encoded.null_count or None in texts:
        return None  # reading it as a vector shows where values are missing
    group = factorize(np.array(texts, dtype=object), what)
    codes = group.codes[encoded.indices.to_numpy(zero_copy_only=False)]
    found = KnownGroup(group.values, codes)
    return found if np.bincount(codes, minlength=len(texts)).all() else found.seen()


def concatenate_groups(parts: Sequence[Any]) -> Group:
    """Return a group on the rows of all parts."""
    if isinstance(parts[0], GroupProbabilities):
        return GroupProbabilities(parts[0].values, np.concatenate([part.probabilities for part in parts]))
    values = tuple(sorted({value for part in parts for value in part.values}))
    return KnownGroup(values, np.concatenate([part.with_values(values).codes for part in parts]))


def find_combination(names: Iterable[Any], hidden: Mapping[str, Value]) -> tuple[Any, Any] | None:
    """Return the one of these names, attributes and tuples of them, that stands for these unknown attributes
    together, and their value in it; None if none does."""
    if len(hidden) == 1:
        return next(iter(hidden.items()))
    for name in names:
        if isinstance(name, tuple) and set(name) == set(hidden):
            return name, tuple(hidden[attribute] for attribute in name)
    return None
