"""Frames and Arrow batches -> evidence, by the roles of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from bylaw.data.evidence import Evidence
from bylaw.errors import EvidenceError


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a table.

    Parameters
    ----------
    probabilities : list of str
        the columns of P(label | x), in the order of the classes.
    classes : list, optional
        the labels; default the columns' names.
    groups : dict
        for each attribute, its column of values; or, unknown, a dict {value: column of P(value | x)}.
    joint : dict
        for each unknown attribute, one row of columns per value, one column per class.
    references : dict
        for each earlier model, the column of its labels, or one column per class.
    costs : dict
        for each custom cost, one column per action.
    weights : str, optional
        a column.
    normalize : bool
        divide each row of probabilities by its sum, where they were rounded.

    Examples
    --------
    >>> import pandas
    >>> table = pandas.DataFrame({"no": [0.7, 0.2], "yes": [0.3, 0.8], "sex": ["F", "M"]})
    >>> Columns(["no", "yes"], groups={"sex": "sex"}).evidence(table)
    Evidence(2 rows, 2 classes, sex: ['F', 'M'])
    """

    probabilities: Sequence[str]
    classes: Sequence[Any] | None = None
    groups: Mapping[str, Any] = field(default_factory=dict)
    joint: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    references: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    weights: str | None = None
    normalize: bool = False

    def evidence(self, table: Any) -> Evidence:
        """The rows of a frame, of an Arrow table or of an Arrow record batch."""
        frame = _frame(table)
        return Evidence(
            self._matrix(frame, self.probabilities),
            classes=list(self.probabilities) if self.classes is None else self.classes,
            groups={name: self._group(frame, roles) for name, roles in self.groups.items()},
            joint={name: self._joint(frame, rows) for name, rows in self.joint.items()},
            references={
                name: self._column(frame, roles) if isinstance(roles, str) else self._matrix(frame, roles)
                for name, roles in self.references.items()
            },
            costs={name: self._matrix(frame, names) for name, names in self.costs.items()},
            weights=None if self.weights is None else self._column(frame, self.weights),
            normalize=self.normalize,
        )

    def _group(self, frame: nw.DataFrame[Any], roles: Any) -> Any:
        if isinstance(roles, str):
            return self._column(frame, roles)
        return {value: self._column(frame, name) for value, name in roles.items()}

    def _joint(self, frame: nw.DataFrame[Any], rows: Sequence[Sequence[str]]) -> np.ndarray:
        return np.stack([self._matrix(frame, names) for names in rows], axis=1)

    def _matrix(self, frame: nw.DataFrame[Any], names: Sequence[str]) -> np.ndarray:
        return np.column_stack([self._column(frame, name).to_numpy() for name in names])

    def _column(self, frame: nw.DataFrame[Any], name: str) -> nw.Series[Any]:
        if name not in frame.columns:
            raise EvidenceError(f"the table has no column {name!r}; it has {list(frame.columns)}")
        return frame[name]


def _frame(table: Any) -> nw.DataFrame[Any]:
    if type(table).__name__ == "RecordBatch":
        import pyarrow

        table = pyarrow.Table.from_batches([table])
    frame = nw.from_native(table, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise EvidenceError(f"a table is a frame or an Arrow batch in memory, not {type(table).__name__}")
    return frame
