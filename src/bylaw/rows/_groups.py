"""Groups of rows: attributes with known values, or with probabilities of their values."""

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
_NARROW = 2**12  # integers in a range up to this are counted rather than sorted, which is faster
# (number of values, rows): a column with more values than this must have so many rows per value (median).
_LEAST_ROWS = ((5000, math.inf), (500, 20), (20, 5))


@dataclass(frozen=True)
class KnownGroup:
    """An attribute whose value is known on every row, or was observed on some of the rows."""

    values: tuple[Value, ...]
    codes: NDArray[np.int64]  # (n_rows,) positions in `values`; `MISSING` if not observed
    known: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.codes.flags.writeable = False

    def rows(self, part: Part) -> KnownGroup:
        """Return the group on a subset of the rows."""
        return KnownGroup(self.values, self.codes[part])

    def seen(self) -> KnownGroup:
        """Return the group without the values that occur on no row."""
        present = np.unique(self.codes[self.codes >= 0])
        values = tuple(self.values[i] for i in present)
        return KnownGroup(values, np.where(self.codes < 0, MISSING, np.searchsorted(present, self.codes)))

    def with_values(self, values: tuple[Value, ...]) -> KnownGroup:
        """Return the group with codes that are positions in `values`, which must include its values."""
        positions = np.array(
            [*(values.index(value) for value in self.values), MISSING]
        )  # the last entry is for code -1
        return self if values == self.values else KnownGroup(values, positions[self.codes])


@dataclass(frozen=True)
class GroupProbabilities:
    """An attribute whose values are unknown, with their probabilities on each row."""

    values: tuple[Any, ...]  # tuples of values if there are several attributes
    probabilities: Floats  # (n_rows, n_values)
    known: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.probabilities.flags.writeable = False

    def rows(self, part: Part) -> GroupProbabilities:
        """Return the group on a subset of the rows."""
        return GroupProbabilities(self.values, self.probabilities[part])

    def margin(self, place: int) -> GroupProbabilities:
        """Return the probabilities of one attribute of a group of several, by its position."""
        values = tuple(dict.fromkeys(value[place] for value in self.values))
        columns = [[value[place] == here for value in self.values] for here in values]
        return GroupProbabilities(values, self.probabilities @ np.array(columns, dtype=np.float64).T)


Group = KnownGroup | GroupProbabilities


def find_distinct(vector: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the sorted distinct integers or booleans of a vector, and each row's position in them."""
    low, high = (int(vector.min()), int(vector.max())) if len(vector) else (0, _NARROW)
    if high - low >= _NARROW or high > np.iinfo(np.int64).max:
        values, places = np.unique(vector, return_inverse=True)
        return values, places.astype(np.int64, copy=False)
    # Integers that lie close together are counted, which is faster than sorting.
    offsets = vector.astype(np.int64) - low
    present = np.bincount(offsets, minlength=1) > 0
    values = (np.flatnonzero(present) + low).astype(vector.dtype)
    return values, offsets if present.all() else (np.cumsum(present) - 1).take(offsets)


def check_group_sizes(values: Sequence[Value], counts: NDArray[Any], what: str) -> None:
    """Raise an `EvidenceError` if a column has too many values to compare as groups.

    Such a column may be a number or an id that was passed by mistake. The limit depends on the median of
    `counts` (n_values,), the number of rows of each value: many groups are accepted if they have many rows
    each, and so are few groups with few rows.
    """
    typical = math.floor(np.median(counts)) if len(counts) else 0
    needed = next((rows for many, rows in _LEAST_ROWS if len(values) > many), 0)
    if typical >= needed:
        return
    each = "1 row" if typical == 1 else f"{typical:,} rows"
    found = f"half of them on {each} or fewer" if counts.max() > typical else f"each on {each}"
    most = f"at most {_LEAST_ROWS[0][0]:,} are allowed"
    limit = most if needed == math.inf else f"{needed} rows each would suffice"
    number = isinstance(values[0], int | float)
    advice = (
        "a number, divide it into a few bins: np.digitize(column, np.quantile(column, [0.2, 0.4, 0.6, 0.8]))"
        if number
        else "text with many rare values, merge these: column.where(column.map("
        "column.value_counts()) >= 20, 'other')"
    )
    raise EvidenceError(
        f"{what} has {len(values):,} different values on {int(counts.sum()):,} rows, {found}; these are too "
        f"many ({limit}) to compare as groups. If it is an id, name another column in the rules. If it is "
        f"{advice}"
    )


def factorize(vector: NDArray[Any], what: str) -> KnownGroup:
    """Return a vector as a group: its sorted distinct values, and each row's position in them."""
    if vector.dtype.kind in "iub":
        numbers, codes = find_distinct(vector)
        return KnownGroup(tuple(numbers.tolist()), codes)
    rows = vector.tolist()
    try:
        found = [as_scalar(value, f"a value of {what}") for value in dict.fromkeys(rows)]
    except (TypeError, RuleError) as problem:
        raise EvidenceError(f"the values of {what} must be text or numbers: {problem}") from None
    check_length(max((len(value) for value in found if isinstance(value, str)), default=0), what)
    try:
        values = tuple(sorted(found))  # type: ignore[type-var]
    except TypeError:
        raise EvidenceError(
            f"the values of {what} must have one type, got {found[:5]}; convert them to one type"
        ) from None
    positions = {value: i for i, value in enumerate(values)}
    codes = np.fromiter(map(positions.__getitem__, rows), dtype=np.int64, count=len(rows))
    return KnownGroup(values, codes)


def factorize_arrow(column: Any, what: str) -> KnownGroup | None:
    """Return an Arrow column of text as a group; None for any other column."""
    type_name = str(getattr(column, "type", ""))
    if type_name not in _ARROW_TEXTS and not type_name.startswith(_ARROW_DICTIONARIES):
        return None
    whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    encoded = whole if type_name.startswith("dictionary") else whole.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if encoded.null_count or None in texts:
        return None  # the caller reads it as a vector, which finds missing values
    group = factorize(np.array(texts, dtype=object), what)
    codes = group.codes[encoded.indices.to_numpy(zero_copy_only=False)]
    found = KnownGroup(group.values, codes)
    return found if np.bincount(codes, minlength=len(texts)).all() else found.seen()


def concatenate_groups(parts: Sequence[Any]) -> Group:
    """Return one group on the rows of all parts, one part after the other."""
    if isinstance(parts[0], GroupProbabilities):
        return GroupProbabilities(parts[0].values, np.concatenate([part.probabilities for part in parts]))
    values = tuple(sorted({value for part in parts for value in part.values}))
    return KnownGroup(values, np.concatenate([part.with_values(values).codes for part in parts]))


def find_combination(names: Iterable[Any], hidden: Mapping[str, Value]) -> tuple[Any, Any] | None:
    """Return the name in `names` that describes the unknown attributes jointly, and their value in it.

    `hidden` has the value of each unknown attribute. A name is an attribute, or a tuple of attributes with
    values that are tuples. Return None if no name has just these attributes.
    """
    if len(hidden) == 1:
        return next(iter(hidden.items()))
    for name in names:
        if isinstance(name, tuple) and set(name) == set(hidden):
            return name, tuple(hidden[attribute] for attribute in name)
    return None
