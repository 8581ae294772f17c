"""Frames and Arrow batches -> evidence, by the roles of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from bylaw.data.evidence import Evidence
from bylaw.data.groups import factorize_arrow
from bylaw.errors import EvidenceError


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a table.

    Parameters
    ----------
    probabilities : list of str
        the columns of P(label | x), in the order of the classes; none where there are only options. Of two
        classes, one column may do: that of `positive`.
    classes : list, optional
        the labels; default the columns' names.
    groups : dict
        for each attribute, its column of values; or, unknown, a dict {value: column of P(value | x)}.
    joint : dict
        for each unknown attribute, one row of columns per value, one column per class.
    references : dict
        for each earlier model, the column of its labels, or one column per class and option.
    costs : dict
        for each custom cost, one column per action.
    options : list
        the decisions that are no classes, as in `Evidence(options=)`.
    positive : optional
        of two classes with one column of probabilities, the class whose they are; by default the second.
    weights : str, optional
        a column.
    normalize : bool
        divide each row of probabilities by its sum, where they were rounded.
    label : str, optional
        the column of true labels. Evidence has none: fits and audits read it from rows that were scanned.
    true_groups : dict
        for each unknown attribute, the column of its observed values, likewise.
    id : str, optional
        the column of ids, by which decisions are sampled.
    seen_weights : str, optional
        where labels or groups are missing, the column of 1 / P(seen | x).

    Examples
    --------
    >>> import pandas
    >>> table = pandas.DataFrame({"no": [0.7, 0.2], "yes": [0.3, 0.8], "sex": ["F", "M"]})
    >>> Columns(["no", "yes"], groups={"sex": "sex"}).evidence(table)
    Evidence(2 rows, 2 classes, sex: ['F', 'M'])

    One column of scores, for two classes:

    >>> Columns(["yes"], classes=["no", "yes"]).evidence(table).probabilities.tolist()
    [[0.7, 0.3], [0.19999999999999996, 0.8]]
    """

    probabilities: Sequence[str] = ()
    classes: Sequence[Any] | None = None
    groups: Mapping[str, Any] = field(default_factory=dict)
    joint: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    references: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    weights: str | None = None
    normalize: bool = False
    label: str | None = None
    true_groups: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None
    seen_weights: str | None = None
    options: Sequence[Any] = ()
    positive: Any = None

    @property
    def complement(self) -> int | None:
        """Where one column is that of two classes: the position of the other class, whose probability is one
        less the column."""
        if len(self.probabilities) != 1 or self.classes is None or len(self.classes) != 2:
            return None
        if self.positive is None:
            return 0
        if self.positive not in self.classes:
            raise EvidenceError(f"positive={self.positive!r} is none of the classes {list(self.classes)}")
        return 1 - list(self.classes).index(self.positive)

    @property
    def needed(self) -> list[str]:
        """The columns of evidence, each once."""
        nested = [self.probabilities, self.groups, self.joint, self.references, self.costs, self.weights]
        return list(dict.fromkeys(list_names(nested)))

    @property
    def outcomes(self) -> list[str]:
        """The columns of what was observed, each once."""
        return list(dict.fromkeys(list_names([self.label, self.true_groups, self.seen_weights])))

    def restrict(self, attributes: Sequence[str], references: Sequence[str], costs: Sequence[str]) -> Columns:
        """Without groups, earlier models and costs other than these."""

        def keep(name: Any) -> bool:
            return any(part in attributes for part in (name if isinstance(name, tuple) else (name,)))

        return replace(
            self,
            groups={name: roles for name, roles in self.groups.items() if keep(name)},
            joint={name: rows for name, rows in self.joint.items() if keep(name)},
            references={name: roles for name, roles in self.references.items() if name in references},
            costs={name: names for name, names in self.costs.items() if name in costs},
            true_groups={name: column for name, column in self.true_groups.items() if keep(name)},
        )

    def without_outcomes(self) -> Columns:
        """Those that a decision needs: neither true labels and groups, nor weights."""
        return replace(self, weights=None, label=None, true_groups={}, seen_weights=None)

    def evidence(self, table: Any) -> Evidence:
        """The rows of a frame, of an Arrow table or of an Arrow record batch."""
        frame = _frame(table)
        return Evidence(
            self._scores(frame) if self.probabilities else None,
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
            options=self.options or None,
        )

    def _scores(self, frame: Any) -> np.ndarray:
        """P(label | x), (n_rows, n_classes)."""
        given = self._matrix(frame, self.probabilities)
        if self.complement is None:
            return given
        column = given[:, 0].astype(np.float64)
        pair = np.stack([1 - column, column] if self.complement == 0 else [column, 1 - column])
        pair.flags.writeable = False
        return pair.T

    def _group(self, frame: Any, roles: Any) -> Any:
        if isinstance(roles, str):
            column = self._column(frame, roles)
            native = column.to_native() if isinstance(column, nw.Series) else column
            found = factorize_arrow(native, f"groups[{roles!r}]")
            return column if found is None else found
        return {value: self._column(frame, name) for value, name in roles.items()}

    def _joint(self, frame: Any, rows: Sequence[Sequence[str]]) -> np.ndarray:
        return np.stack([self._matrix(frame, names) for names in rows], axis=1)

    def _matrix(self, frame: Any, names: Sequence[str]) -> np.ndarray:
        """Column by column in memory, as passes over rows read it."""
        stacked = np.stack([self._column(frame, name).to_numpy() for name in names])
        stacked.flags.writeable = False  # evidence shares what no one can write to
        return stacked.T

    def _column(self, frame: Any, name: str) -> Any:
        if name not in frame.columns:
            raise EvidenceError(f"the table has no column {name!r}; it has {list(frame.columns)}")
        return frame[name]


def list_names(value: Any) -> Iterator[str]:
    """The column names in nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif value is not None:
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from list_names(item)


def _frame(table: Any) -> Any:
    """Columns by name."""
    if type(table).__module__.partition(".")[0] == "pyarrow":
        return _ArrowColumns(table)
    frame = nw.from_native(table, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        raise EvidenceError(f"a table is a frame or an Arrow batch in memory, not {type(table).__name__}")
    return frame


class _ArrowColumns:
    """An Arrow table or record batch, of which a frame would take a while to make."""

    def __init__(self, table: Any) -> None:
        import pyarrow

        whole = isinstance(table, pyarrow.Table)
        self.table = table if whole else pyarrow.Table.from_batches([table])

    @property
    def columns(self) -> list[str]:
        return self.table.schema.names

    def __getitem__(self, name: str) -> Any:
        return self.table.column(name)
