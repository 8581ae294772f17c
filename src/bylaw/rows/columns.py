"""Frames and Arrow batches -> evidence, by the roles of their columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from bylaw._base.typing import Value
from bylaw.errors import EvidenceError, Remedy
from bylaw.rows.evidence import Evidence
from bylaw.rows.groups import factorize_arrow


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
        the column of true labels, which fits and audits read.
    true_groups : dict
        for each unknown attribute, the column of its observed values, likewise.
    id : str, optional
        the column of ids, by which decisions are sampled.
    propensity_weights : str, optional
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
    propensity_weights: str | None = None
    options: Sequence[Any] = ()
    positive: Any = None

    @property
    def complement(self) -> int | None:
        """If one column holds the scores of two classes, the position of the other class; otherwise None."""
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
        return _list_names(
            self.probabilities, self.groups, self.joint, self.references, self.costs, self.weights
        )

    @property
    def outcomes(self) -> list[str]:
        """The columns of what was observed, each once."""
        return _list_names(self.label, self.true_groups, self.propensity_weights)

    @property
    def numbers(self) -> list[str]:
        """The columns that hold numbers, each once."""
        matrices = [
            one for one in (*self.groups.values(), *self.references.values()) if not isinstance(one, str)
        ]
        return _list_names(
            self.probabilities, matrices, self.joint, self.costs, self.weights, self.propensity_weights
        )

    def list_values(self, groups: Mapping[str, Sequence[Value]] | None = None) -> dict[str, Sequence[Value]]:
        """Return the columns of labels and groups, with the values that they may have, as far as these are
        known. `groups` has those of groups."""
        hidden = {name: tuple(one) for name, one in self.groups.items() if not isinstance(one, str)}
        known = {**hidden, **(groups or {})}
        columns = {**self.groups, **self.true_groups}
        values = {one: known.get(name, ()) for name, one in columns.items() if isinstance(one, str)}
        answers = [*(self.classes or ()), *self.options]
        values |= {one: answers for one in self.references.values() if isinstance(one, str)}
        return values if self.label is None else {**values, self.label: list(self.classes or ())}

    def restrict(self, attributes: Sequence[str], references: Sequence[str], costs: Sequence[str]) -> Columns:
        """Return these columns without groups, earlier models and costs other than those named."""

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

    def without_observed(self) -> Columns:
        """Return these columns without true labels and groups, and their inverse propensity weights."""
        return replace(self, label=None, true_groups={}, propensity_weights=None)

    def without_outcomes(self) -> Columns:
        """Return the columns that a decision needs: neither observed ones nor weights."""
        return replace(self.without_observed(), weights=None)

    def keep_observed(self, names: Collection[str]) -> Columns:
        """Return these columns without observed ones that are not among `names`."""
        return replace(
            self,
            label=self.label if self.label in names else None,
            true_groups={name: column for name, column in self.true_groups.items() if column in names},
            propensity_weights=self.propensity_weights if self.propensity_weights in names else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; those of groups are kept beside their columns, since keys of JSON are text."""
        plain = {**asdict(self), "options": list(self.options)}
        absent = [name for name in ("propensity_weights", "options") if not plain[name]]
        for name in [*absent, *(["positive"] if self.positive is None else [])]:
            del plain[name]  # files without them are as they always were
        plain["groups"] = {
            name: one if isinstance(one, str) else [[value, column] for value, column in one.items()]
            for name, one in self.groups.items()
        }
        return plain

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Columns:
        """Return the columns on a policy's card; raise an error if they make no sense."""
        try:
            known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
            known["groups"] = {
                name: one if isinstance(one, str) else dict(one) for name, one in known["groups"].items()
            }
            known["true_groups"] = dict(content["true_groups"].items())
            columns = cls(**{**known, "label": content["label"], "id": content["id"]})
            names = [*columns.needed, *columns.outcomes, *([] if columns.id is None else [columns.id])]
            lists = [known["probabilities"], known["classes"]]
            lists = lists if any(lists) or "options" not in known else [known["options"]]
            maps = [known["joint"], known["references"], known["costs"]]
            if not (
                all(isinstance(name, str) for name in names)
                and all(isinstance(value, list) and value for value in lists)
                and all(isinstance(value, dict) for value in maps)
            ):
                raise TypeError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise EvidenceError("the policy does not state which columns it reads", Remedy("refit")) from None
        return columns

    def restate(self, names: Sequence[str]) -> dict[str, Any]:
        """Return columns by role, as an owner of another table with these columns would state them."""
        singles = {"label": self.label, "weight": self.weights, "id": self.id}
        singles["propensity_weights"] = self.propensity_weights
        return {
            "probabilities": list(self.probabilities),
            "classes": self.classes,
            "positive": self.positive,
            "groups": {name: one for name, one in self.groups.items() if isinstance(one, str)},
            "group_probabilities": {n: one for n, one in self.groups.items() if not isinstance(one, str)},
            "true_groups": {name: column for name, column in self.true_groups.items() if column in names},
            "joint": self.joint,
            "references": self.references,
            "costs": self.costs,
            "normalize": self.normalize,
            **{role: name for role, name in singles.items() if name in names},
        }

    def evidence(self, table: Any) -> Evidence:
        """Return the rows of a frame, of an Arrow table or of an Arrow record batch."""
        columns = self._read(table)

        def stack(names: Sequence[str]) -> np.ndarray:
            """Return columns (n_rows, n_columns), one after the other in memory, as passes read them."""
            stacked = np.stack([columns[name].to_numpy() for name in names])
            stacked.flags.writeable = False  # evidence shares what no one can write to
            return stacked.T

        def read_group(one: Any) -> Any:
            if not isinstance(one, str):
                return {value: columns[name] for value, name in one.items()}
            column = columns[one]
            native = column.to_native() if isinstance(column, nw.Series) else column
            found = factorize_arrow(native, f"groups[{one!r}]")
            return column if found is None else found

        probabilities = stack(self.probabilities) if self.probabilities else None
        if probabilities is not None and self.complement is not None:
            scores = probabilities[:, 0].astype(np.float64)
            pair = np.stack([1 - scores, scores] if self.complement == 0 else [scores, 1 - scores])
            pair.flags.writeable = False
            probabilities = pair.T
        return Evidence(
            probabilities,
            classes=list(self.probabilities) if self.classes is None else self.classes,
            groups={name: read_group(one) for name, one in self.groups.items()},
            joint={name: np.stack([stack(row) for row in rows], axis=1) for name, rows in self.joint.items()},
            references={
                name: columns[one] if isinstance(one, str) else stack(one)
                for name, one in self.references.items()
            },
            costs={name: stack(names) for name, names in self.costs.items()},
            weights=None if self.weights is None else columns[self.weights],
            normalize=self.normalize,
            options=self.options or None,
            labels=None if self.label is None else columns[self.label],
            true_groups={name: columns[one] for name, one in self.true_groups.items()} or None,
            propensity_weights=None if self.propensity_weights is None else columns[self.propensity_weights],
        )

    def _read(self, table: Any) -> dict[str, Any]:
        """Return the columns of evidence by name; raise an error that names the first that is missing."""
        if type(table).__module__.partition(".")[0] == "pyarrow":  # a frame would take a while to make
            import pyarrow

            whole = isinstance(table, pyarrow.Table)
            frame, names = table if whole else pyarrow.Table.from_batches([table]), table.schema.names
        else:
            frame = nw.from_native(table, pass_through=True)
            if not isinstance(frame, nw.DataFrame):
                raise EvidenceError(
                    f"a table is a frame or an Arrow batch in memory, not {type(table).__name__}"
                )
            names = frame.columns
        wanted = dict.fromkeys([*self.needed, *self.outcomes])
        if missing := [name for name in wanted if name not in names]:
            raise EvidenceError(f"the table has no column {missing[0]!r}; it has {list(names)}")
        return {name: frame[name] for name in wanted}


def _list_names(*values: Any) -> list[str]:
    """Return the column names in nested lists and dicts, each once."""

    def visit(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif value is not None:
            for item in value.values() if isinstance(value, Mapping) else value:
                yield from visit(item)

    return list(dict.fromkeys(visit(values)))
