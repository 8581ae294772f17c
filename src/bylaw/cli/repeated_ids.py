"""Ids that are in several rows, which would share one draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray

from bylaw.data.arrays import as_vector
from bylaw.data.table_files import TableFile
from bylaw.errors import OptionError
from bylaw.policy.sampling import hash_ids

_MOST_KEYS = 2**25  # in memory at once
_HELP = "give each row an id of its own, or pass --repeated-ids if such rows shall share their draw"


class IdOrder:
    """Whether ids rise from row to row, as most do: then none is there twice, and nothing is kept."""

    def __init__(self) -> None:
        self.rises, self.last, self.rows = True, None, 0

    def add(self, ids: Any) -> None:
        """The next ids, an Arrow array."""
        self.rows += len(ids)
        if not self.rises or not len(ids):
            return
        values = ids.cast(ids.type.value_type) if pyarrow.types.is_dictionary(ids.type) else ids
        first, last = values[0].as_py(), values[-1].as_py()
        follows = self.last is None or (type(first) is type(self.last) and first > self.last)
        self.rises, self.last = follows and first is not None and _rises(values), last


def _rises(values: Any) -> bool:
    """Whether each value of an Arrow array is above the one before."""
    call = pyarrow.compute.call_function
    above = call("greater", [values[1:], values[:-1]])
    return len(above) == 0 or (not above.null_count and bool(call("all", [above]).as_py()))


def refuse_repeated(files: Sequence[TableFile], column: str, n_rows: int) -> None:
    """An error that names an id that is in several rows of these files, if there is one. As many passes over
    the ids as it takes to hold a part of their hashes in memory."""
    n_parts = max(-(-n_rows // _MOST_KEYS), 1)
    for part in range(n_parts):
        chosen = [keys[keys % np.uint64(n_parts) == part] for _, keys in _read_keys(files, column)]
        keys = np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.uint64)
        twice = keys[1:][keys[1:] == keys[:-1]]
        if len(twice):
            raise OptionError(f"{_name_id(files, column, twice[0])}; {_HELP}")


def check_ids(ids: Any) -> None:
    """The same of ids in memory."""
    vector = as_vector(ids, "ids")
    keys = np.sort(_hash(vector))
    twice = keys[1:][keys[1:] == keys[:-1]]
    if len(twice):
        value = vector[_hash(vector) == twice[0]].tolist()[0]
        raise OptionError(f"the id {value!r} is in several rows; give each row an id of its own")


def _read_keys(files: Sequence[TableFile], column: str) -> Iterator[tuple[Any, NDArray[np.uint64]]]:
    for file in files:
        for batch in file.batches([column]):
            if len(batch):
                yield batch.column(column), _hash(as_vector(batch.column(column), "ids"))


def _hash(ids: NDArray[Any]) -> NDArray[np.uint64]:
    return hash_ids(ids, "", "")[:, 0]


def _name_id(files: Sequence[TableFile], column: str, key: np.uint64) -> str:
    """In words: the id, and how often it is there."""
    count, value = 0, None
    for ids, keys in _read_keys(files, column):
        here = np.flatnonzero(keys == key)
        count += len(here)
        value = ids[int(here[0])].as_py() if value is None and len(here) else value
    return f"the id {value!r} in the column {column!r} is that of {count:,} rows"
