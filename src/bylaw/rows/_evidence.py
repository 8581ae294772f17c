"""Evidence: the validated columns of a set of rows."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Codes, Floats, Mask, Value, as_name, as_scalar, make_visible
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language import DECISION, LABEL, Conditions, CostColumn, Groups, Source, check_options, shorten
from bylaw.rows._arrays import (
    RowIndex,
    as_columns,
    as_matrix,
    as_numbers,
    as_partial_vector,
    as_vector,
    check_alignment,
    fill_missing,
    own,
)
from bylaw.rows._groups import (
    MISSING,
    Group,
    GroupProbabilities,
    KnownGroup,
    Part,
    check_group_sizes,
    concatenate_groups,
    factorize,
    find_combination,
    find_distinct,
)

if TYPE_CHECKING:
    from bylaw.rows._margins import Margins

SUM_TOLERANCE = 1e-4  # of the sum of a row of probabilities, which should be one
ROUNDING = 1e-9  # negative probabilities this small are rounding errors
MARGIN_TOLERANCE = 0.1  # of the mean total variation between joint and separate probabilities
LEAST_WEIGHT = 1e-50  # the smallest positive weight; its inverse is the largest
REJECTED = "reject"  # the label of an earlier model's rejections
KNOWN = "known"  # given as an outcome: the cost is known at decision time, as from a price list
_NOWHERE = -2  # the code of an unknown value
_NOTHING_OBSERVED: dict[str, Any] = {
    "labels": None,
    "true_groups": {},
    "outcomes": {},
    "propensity_weights": None,
    "limits": {},
    "largest_weight": None,
}
Limits = Mapping[str, tuple[float, float]]  # {name: (smallest, largest possible value)} of costs


@dataclass(frozen=True, eq=False, repr=False)
class RowData:
    """Columns of a set of rows as read-only arrays, and the probabilities of events on each row."""

    classes: tuple[Value, ...]
    probabilities: Floats  # (n_rows, n_classes)
    groups: Mapping[Any, Group] = field(default_factory=dict)  # by attribute, or by a tuple of attributes
    joint: Mapping[str, Floats] = field(default_factory=dict)  # (n_rows, n_values, n_classes) each
    references: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # (n_rows,) codes, or (n_rows, K)
    costs: Mapping[str, Floats] = field(default_factory=dict)  # (n_rows, n_actions) each
    weights: Floats | None = None  # (n_rows,)
    index: RowIndex | None = None  # of the frames and series
    margins: Margins | None = None  # of all rows, if these are a sample of them
    options: tuple[Value, ...] = ()  # decisions that are not classes

    # Names of the fields with an entry for each row.
    per_row: ClassVar = ("probabilities", "groups", "joint", "references", "costs", "weights", "index")

    def __post_init__(self) -> None:
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, Mapping):
                object.__setattr__(self, column.name, MappingProxyType(dict(value)))

    def __reduce__(self) -> tuple[Any, ...]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {name: dict(v) if isinstance(v, MappingProxyType) else v for name, v in state.items()}
        return _restore, (type(self), plain)

    def __len__(self) -> int:
        return len(self.probabilities)

    def __repr__(self) -> str:
        parts = [f"{len(self)} rows", f"{len(self.classes)} classes"]
        parts = parts if self.classes else [parts[0], f"options {shorten(self.options)}"]
        parts += [f"{make_visible(k)}: {shorten(v)}" for k, v in self.group_values.items()]
        parts += [f"reference {name!r}" for name in self.references]
        return f"{type(self).__name__}({', '.join(parts)})"

    def with_columns(self, **columns: Any) -> Self:
        """Return a copy with some columns replaced by validated ones; the other columns are shared."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **columns)
        copy.__post_init__()
        return copy

    def rows(self, part: Part) -> Self:
        """Return a subset of the rows."""
        return self.with_columns(**{name: _take(getattr(self, name), part) for name in self.per_row})

    @property
    def row_weights(self) -> Floats:
        """The sample weights, (n_rows,); ones if no weights were given."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @property
    def group_values(self) -> Groups:
        """The values of each attribute, by its name."""
        return {name: group.values for name, group in self.groups.items() if isinstance(name, str)}

    @property
    def known_groups(self) -> dict[str, KnownGroup]:
        """The attributes whose value is known on every row, by name."""
        return {name: group for name, group in self.groups.items() if isinstance(group, KnownGroup)}

    @property
    def hidden_groups(self) -> dict[Any, GroupProbabilities]:
        """The attributes, and tuples of attributes, of which only probabilities are known, by name."""
        return {name: group for name, group in self.groups.items() if isinstance(group, GroupProbabilities)}

    def list_columns(self) -> list[Floats]:
        """Return the columns that decisions may use, and then the weights, as numbers, (n_rows,) each."""
        known = [group.codes for group in self.known_groups.values()]
        tables = [self.probabilities, *(group.probabilities for group in self.hidden_groups.values())]
        more = (*self.joint.values(), *self.costs.values(), *self.references.values())
        tables += [array.reshape(len(self), -1) for array in more]
        columns = [*known, *(column for table in tables for column in table.T), self.row_weights]
        return [np.asarray(column, dtype=np.float64) for column in columns]

    def event_probability(self, event: Conditions, rows: Part = slice(None)) -> Floats | float:
        """Return P(event | x) on the given rows, (n_rows,); 1.0 for an event without conditions."""
        conditions = dict(event)
        label = conditions.pop(LABEL, None)
        factors: list[Any] = []
        hidden: dict[str, Value] = {}
        for name, value in conditions.items():
            if name not in self.groups:
                raise EvidenceError(
                    f"a rule refers to {name!r}, which must be one of the groups {sorted(self.group_values)}",
                    Remedy("pass_groups", name),
                )
            group = self.groups[name]
            if value not in group.values:
                raise EvidenceError(
                    f"a rule refers to {name}={value!r}, but no row has it; the values are "
                    f"{list(group.values)}"
                )
            if isinstance(group, KnownGroup):
                factors.append(group.codes[rows] == group.values.index(value))
            else:
                hidden[name] = value
        return reduce(np.multiply, [*factors, self._hidden_probability(hidden, label, rows)])

    def _hidden_probability(
        self, hidden: dict[str, Value], label: Value | None, rows: Part
    ) -> Floats | float:
        """Return P(hidden attributes, label | x), (n_rows,).

        It is from one joint model of all of them, and not a product of separate probabilities.
        """
        if label is not None and label not in self._class_positions:
            raise EvidenceError(
                f"a rule refers to label={label!r}, which is not a class; the classes are "
                f"{list(self.classes)}"
            )
        position = None if label is None else self._class_positions[label]
        if not hidden:
            return 1.0 if position is None else self.probabilities[rows, position]
        if (found := find_combination(self.groups, hidden)) is None:
            raise EvidenceError(
                f"a rule refers to {' and '.join(hidden)} together, but joint probabilities are missing",
                Remedy("pass_combinations", choices=tuple(hidden)),
            )
        name, value = found
        group = self.groups[name]
        if position is None:
            assert isinstance(group, GroupProbabilities)
            return group.probabilities[rows, group.values.index(value)]
        if name not in self.joint:
            raise EvidenceError(
                f"a rule on {name!r} and the label together requires their joint probabilities "
                f"P({name}, label | x), of shape (rows, {len(group.values)}, {len(self.classes)}), since "
                f"{name!r} is not known",
                Remedy("pass_joint", str(name)),
            )
        return self.joint[name][rows, group.values.index(value), position]

    @cached_property
    def _class_positions(self) -> dict[Value, int]:
        return {label: place for place, label in enumerate(self.classes)}

    @cached_property
    def _decision_positions(self) -> dict[Value, int]:
        return {action: place for place, action in enumerate((*self.classes, *self.options))}

    def frequency(self, event: Conditions) -> float:
        """Return P(event), the weighted mean over all rows."""
        here = self.event_probability(event)
        if self.margins is not None:
            return self.margins.frequency(event)
        return float(np.average(here, weights=self.weights))

    def count_effective(self, event: Conditions) -> float:
        """Return the effective number of rows (Kish) in an event."""
        if self.margins is not None:
            return self.margins.count_effective(event)
        chance = np.asarray(self.event_probability(event), dtype=np.float64)
        return count_effective(self.row_weights, chance)

    def check_group_sizes(self, names: Container[str]) -> None:
        """Raise an `EvidenceError` if a known group in `names` has too many values to compare."""
        for name, group in self.known_groups.items():
            if name in names and len(group.values):
                if self.margins is None:
                    counts = np.bincount(group.codes, minlength=len(group.values))
                else:
                    counts = self.margins.count_values(name)
                check_group_sizes(group.values, counts, f"groups[{name!r}]")

    def column(self, source: Source, rows: Part = slice(None)) -> Floats:
        """Return a column that is not a probability of the model, (n_rows,).

        It is the cost of one action, or the probability that an earlier model takes a decision.
        """
        if isinstance(source, CostColumn):
            return self.costs[source.name][rows, source.item]
        answers = self.references[source.name]
        position = self._decision_positions.get(
            source.item, _NOWHERE
        )  # unknown if the earlier model never takes this option
        if answers.ndim == 1 or position == _NOWHERE:
            return answers[rows] == position if answers.ndim == 1 else np.zeros(len(answers[rows]))
        return answers[rows, position]

    def weigh_cost(self, event: Conditions, source: CostColumn, costs: Floats) -> Floats:
        """Return P(event | x) times the cost of one action, (n_rows,); `costs` (n_rows,) are the costs."""
        del source
        return self.event_probability(event) * costs

    def vector(self, column: Any, what: str) -> NDArray[Any]:
        """Return a column as an array, (n_rows,); raise an `EvidenceError` if its length differs."""
        vector = as_vector(column, what)
        self.check_length(len(vector), what)
        return vector

    def check_length(self, length: int, what: str) -> None:
        """Raise an `EvidenceError` unless `length` is the number of rows."""
        if length != len(self):
            first = "probabilities" if self.classes else "costs"
            raise EvidenceError(
                f"{what} has {length} rows, but {first} has {len(self)}; pass columns of the same length"
            )


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Evidence(RowData):
    """Rows with their columns, validated and read-only.

    Some columns are known at decision time, and policies use only these. Others were observed later:
    `labels`, `true_groups`, `outcomes`. Arrays are copied, unless they are read-only already.

    Parameters
    ----------
    probabilities : array or frame of shape (n_rows, n_classes), optional
        P(label | x). Each row must sum to one within 1e-4. Leave it out if there are only `options`, no
        classes.
    classes : list, optional
        the labels in the order of the columns; by default the frame's columns, or range(n_classes).
    groups : dict or frame, optional
        by attribute, either one value per row, (n_rows,), if it is known, or a frame or dict with one column
        of P(value | x) per value if it is unknown. A frame serves as a dict of known attributes. For rules on
        several unknown attributes together, use a tuple of names with a dict of columns for tuples of values:
        {("sex", "race"): {("F", "black"): ..., ...}}.
    joint : dict, optional
        by unknown attribute, P(value, label | x), an array of shape (n_rows, n_values, n_classes).
    references : dict or frame, optional
        by earlier model, its labels, (n_rows,), or its probabilities, (n_rows, n_classes). Rows that it
        rejected ("reject") count as disagreement. With `options`, its decisions, or their probabilities,
        (n_rows, n_classes + n_options).
    costs : dict, optional
        by name in `custom(name)`, an array of shape (n_rows, n_actions): one column per class, then one for
        "reject" or for each option.
    weights : array of shape (n_rows,), optional
        sample weights, not negative; ones by default.
    normalize : bool
        divide each row of probabilities by its sum instead of raising an error. This also applies to groups,
        joint and references.
    options : list, optional
        the decisions that are not classes, such as models to call. If there are classes too,
        `Problem(decisions=)` names the options, and they are needed here only if an earlier model took them.
        Without classes, they are all possible decisions, and every cost must have a column for each.
    labels : array of shape (n_rows,), optional
        observed labels; values may be missing.
    true_groups : dict or frame, optional
        by attribute, its observed values, (n_rows,); values may be missing.
    outcomes : dict, optional
        by custom cost, its observed values, (n_rows, n_actions), NaN where missing; or "known" if the cost
        does not depend on what is observed later.
    propensity_weights : array of shape (n_rows,), optional
        1 / P(observed | x), if labels or groups are missing on some rows.
    limits : dict, optional
        by custom cost, its smallest and largest possible value.
    largest_weight : float, optional
        the largest possible sample weight.

    Raises
    ------
    EvidenceError
        if a column has missing or impossible values, another number of rows, or a pandas index that
        differs from the index of another column.

    Examples
    --------
    >>> evidence = Evidence([[0.7, 0.3], [0.2, 0.8]], classes=["deny", "approve"], groups={"sex": ["F", "M"]})
    >>> evidence
    Evidence(2 rows, 2 classes, sex: ['F', 'M'])
    >>> evidence.event_probability((("label", "approve"),))
    array([0.3, 0.8])

    Which model to call, without classes:

    >>> Evidence(costs={"wrong": [[0.4, 0.1]], "usd": [[0.001, 0.02]]}, options=["small", "large"])
    Evidence(1 rows, options ['small', 'large'])

    With a label that was observed, and one that is missing:

    >>> Evidence([[0.7, 0.3], [0.2, 0.8]], labels=[0, None]).labels
    array([ 0, -1])
    """

    labels: Codes | None = None  # (n_rows,)
    true_groups: Mapping[str, KnownGroup] = field(default_factory=dict)  # codes are -1 where missing
    # (n_rows, n_actions) each, NaN where missing
    outcomes: Mapping[str, Floats | str] = field(default_factory=dict)
    propensity_weights: Floats | None = None  # (n_rows,), NaN where missing
    limits: Limits = field(default_factory=dict)
    largest_weight: float | None = None

    per_row: ClassVar = (*RowData.per_row, "labels", "true_groups", "outcomes", "propensity_weights")

    def __init__(
        self,
        probabilities: Any = None,
        *,
        classes: Sequence[Any] | None = None,
        groups: Any = None,
        joint: Mapping[str, Any] | None = None,
        references: Any = None,
        costs: Mapping[str, Any] | None = None,
        weights: Any = None,
        normalize: bool = False,
        options: Sequence[Any] | None = None,
        labels: Any = None,
        true_groups: Any = None,
        outcomes: Mapping[str, Any] | None = None,
        propensity_weights: Any = None,
        limits: Limits | None = None,
        largest_weight: float | None = None,
    ) -> None:
        names, matrix = _read_probabilities(probabilities, classes, options, costs, normalize)
        actions = _read_options(options, names)
        groups, joint = _name_columns(groups, "groups"), _name_columns(joint, "joint")
        references, costs = _name_columns(references, "references"), _name_columns(costs, "costs")
        named = {"groups": groups, "joint": joint, "references": references, "costs": costs}
        index = check_alignment({"probabilities": probabilities, **named, "weights": weights})
        checker = _Checker(RowData(names, matrix, options=actions), normalize)
        known = _add_margins({name: checker.group(name, column) for name, column in groups.items()})
        self.__dict__.update(_NOTHING_OBSERVED)
        super().__init__(
            classes=names,
            probabilities=matrix,
            groups=known,
            joint={name: checker.joint(name, array, known.get(name)) for name, array in joint.items()},
            references={name: checker.reference(name, column) for name, column in references.items()},
            costs={name: checker.cost(name, array) for name, array in costs.items()},
            weights=None if weights is None else checker.weights(weights),
            index=index,
            options=actions,
        )
        observed = self.with_observed(
            labels=labels,
            true_groups=true_groups,
            outcomes=outcomes,
            propensity_weights=propensity_weights,
            limits=limits,
            largest_weight=largest_weight,
        )
        self.__dict__.update(observed.__dict__)

    def with_observed(
        self,
        *,
        labels: Any = None,
        true_groups: Any = None,
        outcomes: Mapping[str, Any] | None = None,
        propensity_weights: Any = None,
        limits: Limits | None = None,
        largest_weight: float | None = None,
    ) -> Self:
        """Return these rows with additional observed columns; the parameters are those of `Evidence`.

        Raises
        ------
        EvidenceError
            if a column does not fit the rows.
        OptionError
            if these rows have the column already.
        """
        given = {
            "labels": labels,
            "true_groups": true_groups,
            "outcomes": outcomes,
            "propensity_weights": propensity_weights,
            "limits": limits,
            "largest_weight": largest_weight,
        }
        given = {name: column for name, column in given.items() if column is not None}
        for name in given:
            if name in ("true_groups", "outcomes"):
                given[name] = as_columns(given[name], name)
            old = getattr(self, name)
            twice = old.keys() & given[name].keys() if isinstance(old, Mapping) else old is not None
            if twice:
                raise OptionError(
                    f"{name} must be given once, got it in the Evidence and as an argument: leave one out"
                )
        if not given:
            return self
        checker = _Checker(self, normalize=False)
        aligned = {name: column for name, column in given.items() if name in self.per_row}
        columns = {**given, "index": check_alignment(aligned, self.index)}
        for name, column in given.items():
            if name in ("labels", "propensity_weights"):
                columns[name] = getattr(checker, name)(column)
            elif name in ("true_groups", "outcomes"):
                check = checker.true_group if name == "true_groups" else checker.outcome
                columns[name] = {one: check(one, values) for one, values in column.items()}
            if isinstance(old := getattr(self, name), Mapping):
                columns[name] = {**old, **columns[name]}
        observed = self.with_columns(**columns)
        if propensity_weights is not None:
            masks = observed.find_observed()
            if not masks:
                raise OptionError(
                    "propensity_weights has no effect: no label or group is missing; leave it out"
                )
            check_propensity_weights(columns["propensity_weights"], masks)
        return observed

    def without_observed(self) -> Self:
        """Return these rows without observed columns, with only those that are known at decision time."""
        return self.with_columns(**_NOTHING_OBSERVED)

    @property
    def has_observed(self) -> bool:
        """Whether labels or true groups were given, even if all their values are missing."""
        return self.labels is not None or bool(self.true_groups)

    def find_observed(self, taken: Floats | None = None) -> dict[str, Mask]:
        """Return masks of the rows, (n_rows,), that have an observed label, group or cost.

        Only columns with both observed and missing values have a mask.

        Parameters
        ----------
        taken : array of shape (n_rows, n_actions), optional
            one-hot, the decisions that were taken; without it, a cost counts as missing if that of any action
            is.
        """
        masks = {} if self.labels is None else {LABEL: self.labels >= 0}
        masks |= {name: group.codes >= 0 for name, group in self.true_groups.items()}
        for name, cost in self.outcomes.items():
            if not isinstance(cost, str):
                masks[name_cost(name)] = ~_find_gaps(cost, taken)
        return {name: mask for name, mask in masks.items() if mask.any() and not mask.all()}

    def fill_outcomes(self, taken: Floats | None = None) -> dict[str, Floats | str]:
        """Return the observed costs by name, with missing values replaced by arbitrary numbers."""
        filled: dict[str, Floats | str] = {}
        for name, cost in self.outcomes.items():
            if isinstance(cost, str):
                filled[name] = cost
                continue
            missing = _find_gaps(cost, taken)[:, None] | np.isnan(cost)
            if not missing.all():
                filled[name] = own(np.where(missing, cost[~missing][0], cost), None)
        return filled

    @classmethod
    def without_rows(cls, classes: Sequence[Any], groups: dict[Any, Group], **columns: Any) -> Evidence:
        """Return evidence with zero rows that describes the columns of rows that are not in memory."""
        labels, matrix = (), np.empty((0, 0))
        if classes or not columns.get("options"):
            labels, matrix = check_classes(classes, None, np.empty((0, len(classes))))
        described = object.__new__(cls)
        described.__dict__.update(_NOTHING_OBSERVED)
        RowData.__init__(described, labels, matrix, _add_margins(groups), **columns)
        return described


def _take(column: Any, part: Part) -> Any:
    """Return a subset of the rows of a column: an array, a group, an index, or a mapping of these."""
    if isinstance(column, Mapping):
        return {name: _take(one, part) for name, one in column.items()}
    if column is None or isinstance(column, str):
        return column
    return column[part] if isinstance(column, np.ndarray) else column.rows(part)


def _stack(parts: Sequence[Any]) -> Any:
    """Return the rows of all parts of a column, which are arrays, groups, or mappings of these."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _stack([part[name] for part in parts]) for name in first}
    if first is None or isinstance(first, str):
        return first
    return np.concatenate(parts) if isinstance(first, np.ndarray) else concatenate_groups(parts)


def _read_probabilities(
    probabilities: Any,
    classes: Sequence[Any] | None,
    options: Sequence[Any] | None,
    costs: Mapping[str, Any] | None,
    normalize: bool,
) -> tuple[tuple[Value, ...], Floats]:
    """Return the classes and their probabilities, (n_rows, n_classes); both empty for options only."""
    if probabilities is not None:
        matrix, names = as_matrix(probabilities, "probabilities")
        labels, matrix = check_classes(classes, names, matrix)
        return labels, own(check_probabilities(matrix, "probabilities", normalize), probabilities)
    if options is None:
        raise EvidenceError(
            "probabilities or options must be given: pass probabilities, one column per class, or "
            "options=[...] and their costs, costs={name: an array of shape (rows, options)}"
        )
    if classes:
        raise EvidenceError(
            f"probabilities must be given for the classes {list(classes)}; pass one column per class"
        )
    if not costs:
        raise EvidenceError(
            "costs must be given if there are options but no classes: pass costs={name: an array of shape "
            "(rows, options)}"
        )
    name, first = next(iter(costs.items()))
    return (), own(np.empty((len(as_matrix(first, f"costs[{name!r}]")[0]), 0)), None)


def _read_options(options: Sequence[Any] | None, classes: tuple[Value, ...]) -> tuple[Value, ...]:
    if options is None:
        return ()
    if isinstance(options, str):
        raise EvidenceError(f"options must be a list of names, got the text {options!r}")
    named = tuple(as_scalar(option, "an option", EvidenceError) for option in options)
    check_options(named, classes, EvidenceError)
    if len(classes) + len(named) < 2:
        raise EvidenceError(f"options must have two or more names if there are no classes, got {list(named)}")
    return named


def _name_columns(columns: Any, what: str) -> dict[Any, Any]:
    """Return columns by validated names, which are strings or tuples of strings."""

    def as_plain(name: Any) -> Any:
        if isinstance(name, tuple):
            return tuple(map(as_plain, name))
        return as_name(name, f"a name in {what}", EvidenceError)

    return {as_plain(name): column for name, column in as_columns(columns, what).items()}


def _restore(cls: type[Any], state: dict[str, Any]) -> Any:
    restored = object.__new__(cls)
    restored.__dict__.update(state)
    restored.__post_init__()
    return restored


def _add_margins(groups: dict[Any, Group]) -> dict[Any, Group]:
    """Add the single attributes of groups that have only joint probabilities of several attributes."""
    for names, group in [item for item in groups.items() if isinstance(item[0], tuple)]:
        assert isinstance(group, GroupProbabilities)
        for place, name in enumerate(names):
            if name not in groups:
                groups[name] = group.margin(place)
    return groups


@dataclass(frozen=True)
class _Checker:
    """A validator of columns against the classes and the number of rows, with one method per column."""

    rows: RowData
    normalize: bool

    def group(self, name: Any, column: Any) -> Group:
        what = f"groups[{name!r}]"
        if isinstance(column, KnownGroup):
            self.rows.check_length(len(column.codes), what)
            return column
        if name in (LABEL, DECISION):
            raise EvidenceError(f"{what}: a group must not be named {name!r}; give it another name")
        if isinstance(name, tuple):
            if not isinstance(column, Mapping) or not all(
                isinstance(value, tuple) and len(value) == len(name) for value in column
            ):
                raise EvidenceError(
                    f"{what} must be a dict from tuples of values to columns of probabilities"
                )
        elif not isinstance(column, Mapping) and len(getattr(column, "shape", (0,))) != 2:
            return factorize(self.rows.vector(column, what), what)
        matrix, names = self._matrix(column, what)
        names = list(column) if isinstance(name, tuple) else names
        if names is None:
            raise EvidenceError(
                f"{what} must have named columns, got an array of shape {matrix.shape}; pass a frame or a "
                "dict {value: probabilities}, or one value per row"
            )

        def as_value(value: Any) -> Any:
            if isinstance(name, tuple):
                return tuple(as_scalar(part, f"a value of {what}", EvidenceError) for part in value)
            return as_scalar(value, f"a value of {what}", EvidenceError)

        probabilities = own(check_probabilities(matrix, what, self.normalize), column)
        return GroupProbabilities(tuple(map(as_value, names)), probabilities)

    def joint(self, name: str, array: Any, group: Group | None) -> Floats:
        what, classes = f"joint[{name!r}]", self.rows.classes
        if not isinstance(group, GroupProbabilities):
            raise EvidenceError(
                f"{what} requires groups[{name!r}] as probabilities; if this group is known, leave joint out"
            )
        if not classes:
            raise EvidenceError(f"{what} must be left out if there are no classes")
        joint = np.asarray(array, dtype=np.float64)
        wanted = (len(self.rows), len(group.values), len(classes))
        if joint.shape != wanted:
            raise EvidenceError(f"{what} must have shape {wanted} (rows, values, classes), got {joint.shape}")
        joint = check_probabilities(joint.reshape(wanted[0], -1), what, self.normalize).reshape(wanted)
        for axis, marginal, other in (
            (1, self.rows.probabilities, "probabilities"),
            (2, group.probabilities, name),
        ):
            distance = np.abs(joint.sum(axis=axis) - marginal).sum(axis=1).mean() / 2
            if distance > MARGIN_TOLERANCE:
                raise EvidenceError(
                    f"{what} must add up to the {other} given with it, got a mean distance of {distance:.2f} "
                    f"(tolerance {MARGIN_TOLERANCE:g}); check that its rows, values {list(group.values)} and "
                    f"classes {list(classes)} are in the same order"
                )
        return own(joint, array)

    def reference(self, name: str, column: Any) -> NDArray[Any]:
        what, options = f"references[{name!r}]", self.rows.options
        actions = (*self.rows.classes, *options)
        if len(getattr(column, "shape", (0,))) == 2:
            matrix, names = self._matrix(column, what)
            if matrix.shape[1] != len(actions):
                of = "decisions" if options else "classes"
                raise EvidenceError(
                    f"{what} must have one column for each of {len(actions)} {of}, got {matrix.shape[1]}"
                )
            ordered = columns_by_name(matrix, names, actions)
            return own(check_probabilities(ordered, what, self.normalize), column)
        vector = self.rows.vector(column, what)
        # A rejection agrees with no action, unless "reject" is an action.
        positions = {REJECTED: -1} | {action: i for i, action in enumerate(actions)}
        if vector.dtype.kind in "UO":  # in a column with "reject", numbers are text
            positions = {
                str(label): i for label, i in positions.items() if isinstance(label, int)
            } | positions
        otherwise = "" if options else ". If it is another decision, pass options=[...]"
        return own(encode_values(vector, positions, what, otherwise), None)

    def cost(self, name: str, array: Any) -> Floats:
        matrix, names = as_matrix(array, f"costs[{name!r}]")
        matrix, actions = check_cost(matrix, name, len(self.rows)), (*self.rows.classes, *self.rows.options)
        if self.rows.options and matrix.shape[1] != len(actions):
            raise EvidenceError(
                f"costs[{name!r}] must have one column for each of {list(actions)}, got {matrix.shape[1]}"
            )
        return own(columns_by_name(matrix, names, actions) if self.rows.options else matrix, array)

    def weights(self, weights: Any) -> Floats:
        vector = as_numbers(weights, "weights")
        self.rows.check_length(len(vector), "weights")
        if not np.isfinite(vector).all() or (vector < 0).any():
            raise EvidenceError(
                "weights must be finite and not negative; correct them or leave out these rows"
            )
        if not vector.any():
            raise EvidenceError("at least one of the weights must be positive, got only zeros")
        return own(check_sizes(vector, "weights"), weights)

    def labels(self, labels: Any) -> Codes:
        vector, missing = self._partial_vector(labels, "labels")
        if missing.all():
            return np.full(len(vector), MISSING)
        if not self.rows.classes:
            raise EvidenceError(
                f"labels must be left out if there are only options, {list(self.rows.options)}; pass their "
                "observed costs as outcomes={name: an array of shape (rows, options)}"
            )
        positions = {label: i for i, label in enumerate(self.rows.classes)}
        codes = encode_values(fill_missing(vector, missing), positions, "labels")
        return own(np.where(missing, MISSING, codes), None)

    def true_group(self, name: str, column: Any) -> KnownGroup:
        what = f"true_groups[{name!r}]"
        if isinstance(column, Mapping) or len(getattr(column, "shape", (0,))) == 2:
            raise EvidenceError(f"{what} must have one value per row, got several columns")
        if isinstance(column, KnownGroup):
            self.rows.check_length(len(column.codes), what)
            return align_true_group(name, column, self.rows.groups)
        vector, missing = self._partial_vector(column, what)
        if missing.all():
            return KnownGroup((), np.full(len(vector), MISSING))
        group = factorize(fill_missing(vector, missing), what)
        group = KnownGroup(group.values, np.where(missing, MISSING, group.codes))
        return align_true_group(name, group, self.rows.groups)

    def outcome(self, name: str, cost: Any) -> Floats | str:
        what = f"outcomes[{name!r}]"
        if isinstance(cost, str):
            if cost != KNOWN:
                raise OptionError(
                    f"{what} must be an array of shape (rows, actions), or {KNOWN!r} if the cost does not "
                    f"depend on the outcome, got {cost!r}"
                )
            return KNOWN
        masked = isinstance(cost, np.ma.MaskedArray)
        matrix = as_matrix(np.ma.filled(cost.astype(np.float64), np.nan) if masked else cost, what)[0]
        if matrix.ndim != 2 or len(matrix) != len(self.rows):
            raise EvidenceError(
                f"{what} must have shape (rows, actions) with {len(self.rows)} rows, got {matrix.shape}"
            )
        if np.isinf(matrix).any():
            raise EvidenceError(f"{what} must be finite, or NaN where it is missing, got infinite values")
        return own(matrix, cost)

    def propensity_weights(self, weights: Any) -> Floats:
        column, missing = self._partial_vector(weights, "propensity_weights")
        try:
            return own(np.where(missing, np.nan, column).astype(np.float64), None)
        except (TypeError, ValueError):
            raise EvidenceError(f"propensity_weights must be numbers, got {column.dtype}") from None

    def _matrix(self, columns: Any, what: str) -> tuple[Floats, list[Any] | None]:
        matrix, names = as_matrix(columns, what)
        self.rows.check_length(len(matrix), what)
        return matrix, names

    def _partial_vector(self, column: Any, what: str) -> tuple[NDArray[Any], Mask]:
        vector, missing = as_partial_vector(column, what)
        self.rows.check_length(len(vector), what)
        return vector, missing


def align_true_group(name: str, group: KnownGroup, groups: Mapping[Any, Group]) -> KnownGroup:
    """Return an attribute's observed values, encoded in the order of the values in `groups`.

    Raise an `EvidenceError` if they contradict `groups`.
    """
    what = f"true_groups[{name!r}]"
    if name not in groups or not (group.codes >= 0).any():
        return group
    if unknown := set(group.values) - set(values := groups[name].values):
        raise EvidenceError(
            f"{what} has values without probabilities: {sorted(map(str, unknown))}; the groups have "
            f"probabilities of {list(values)}"
        )
    aligned, known = group.with_values(values), groups[name]
    if isinstance(known, KnownGroup):
        wrong = (aligned.codes != known.codes) & (aligned.codes >= 0)
        if wrong.any():
            raise EvidenceError(
                f"{what} must equal groups[{name!r}], which is known at decision time, but differs on "
                f"{int(wrong.sum()):,} rows; leave it out, or rename one of them"
            )
    return aligned


def check_propensity_weights(weights: Floats, masks: Mapping[str, Mask]) -> Floats:
    """Return the propensity weights, with ones on rows where no column in `masks` was observed.

    Raise an `EvidenceError` if another weight is not finite and positive.
    """
    observed = np.logical_or.reduce(list(masks.values()))
    filled = np.where(observed, weights, 1.0)
    if not np.isfinite(filled).all() or (filled <= 0).any():
        raise EvidenceError(
            "propensity_weights must be finite and positive on each row with an observed label or group that "
            "is missing on other rows; pass 1 / P(observed | x)"
        )
    return check_sizes(filled, "propensity_weights")


def _find_gaps(cost: Floats, taken: Floats | None) -> Mask:
    """Return a mask of rows, (n_rows,), whose cost is missing for a taken action, or else for any action."""
    gaps = np.isnan(cost)
    if taken is not None and taken.shape == cost.shape:
        gaps = gaps & (taken > 0)
    return np.asarray(gaps.any(axis=1))


def name_cost(name: str) -> str:
    """Return the name of the observed cost `custom(name)` among the names of labels and groups."""
    return f"custom({name!r})"


def count_effective(weights: Floats, chance: Floats | float = 1.0) -> float:
    """Return the effective sample size (Kish), (sum w p)^2 / sum w^2 p, for probabilities p of rows."""
    mass, squares = (weights * chance).sum(), (weights**2 * chance).sum()
    return float(mass**2 / squares) if squares else 0.0


def check_sizes(weights: Floats, what: str) -> Floats:
    """Return the weights unchanged.

    Raise an `EvidenceError` if positive ones are so small or large that sums of their squares would underflow
    or overflow.
    """
    positive = weights[weights > 0]
    if positive.min() < LEAST_WEIGHT or positive.max() > 1 / LEAST_WEIGHT:
        raise EvidenceError(
            f"{what} must be zero, or from {LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}, so that their squares "
            f"do not overflow, got {positive.min():.3g} to {positive.max():.3g}; divide them by their mean, "
            "as only their ratios matter"
        )
    return weights


def encode_values(
    vector: NDArray[Any], positions: Mapping[Any, int], what: str, otherwise: str = ""
) -> NDArray[np.int64]:
    """Return each row's position by its value, (n_rows,); raise an error if a value has no position."""
    labels, places = find_distinct(vector) if vector.dtype.kind in "iub" else (vector, None)
    codes = np.array([positions.get(label, _NOWHERE) for label in labels.tolist()], dtype=np.int64)
    codes = codes if places is None else codes.take(places)
    if (nowhere := codes == _NOWHERE).any():
        row = int(nowhere.argmax())
        raise EvidenceError(
            f"{what}: {vector.tolist()[row]!r} in row {row} is not a class; the classes are "
            f"{[label for label, code in positions.items() if code >= 0]}{otherwise}"
        )
    return codes


def concatenate(parts: Sequence[Evidence]) -> Evidence:
    """Return the rows of several evidences with the same columns, one after the other."""
    first = parts[0]
    names = [name for name in first.per_row if name != "index"]
    fixed = ("classes", "options", "limits", "largest_weight")
    for part in parts:
        alike = all(_find_kind(getattr(part, name)) == _find_kind(getattr(first, name)) for name in names)
        if not alike or any(getattr(part, name) != getattr(first, name) for name in fixed):
            raise EvidenceError(
                f"batches must have the same classes and columns, got {first} and then {part}"
            )
    columns = {name: _stack([getattr(part, name) for part in parts]) for name in names}
    return first.with_columns(index=None, **columns)


def _find_kind(column: Any) -> Any:
    """Return what all parts of a column must share: names, values of unknown groups, and widths."""
    if isinstance(column, Mapping):
        return [(name, _find_kind(one)) for name, one in column.items()]
    if isinstance(column, np.ndarray):
        return column.shape[1:]
    return type(column) if isinstance(column, KnownGroup) else getattr(column, "values", column)


def as_evidence(evidence: Any) -> Evidence:
    """Return the argument; raise an `EvidenceError` if it is not `Evidence`."""
    if not isinstance(evidence, Evidence):
        raise EvidenceError(
            f"rows must be passed as Evidence(probabilities, ...), got {type(evidence).__name__}"
        )
    return evidence


def check_cost(matrix: Floats, name: str, n_rows: int) -> Floats:
    """Return a matrix of finite costs, (n_rows, n_actions); raise an `EvidenceError` for any other."""
    if matrix.ndim != 2 or len(matrix) != n_rows:
        raise EvidenceError(
            f"costs[{name!r}] must have shape (rows, actions) with {n_rows} rows, got {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise EvidenceError(f"costs[{name!r}] must be finite, got infinite or missing values; fill them in")
    return matrix


def check_classes(
    classes: Sequence[Any] | None, names: list[str] | None, matrix: Floats
) -> tuple[tuple[Value, ...], Floats]:
    """Return the classes, and the columns in their order; raise an `EvidenceError` if they do not match."""
    if matrix.ndim != 2:
        hint = (
            "; for scores p of a positive class pass np.column_stack([1 - p, p])" if matrix.ndim == 1 else ""
        )
        raise EvidenceError(f"probabilities must have shape (rows, classes), got {matrix.shape}{hint}")
    if classes is None:
        classes = names if names is not None else range(matrix.shape[1])
    labels = tuple(as_scalar(label, "a class", EvidenceError) for label in classes)
    if len(labels) != matrix.shape[1]:
        raise EvidenceError(
            f"probabilities must have one column for each of {len(labels)} classes, got {matrix.shape[1]}"
        )
    if len(set(map(str, labels))) != len(labels) or len(set(labels)) != len(labels):
        raise EvidenceError(
            f"the classes must be all different, also when written as text, got {list(labels)}"
        )
    if len(labels) < 2:
        raise EvidenceError("probabilities must have two or more classes, got one; pass one column per class")
    return labels, columns_by_name(matrix, names, labels)


def columns_by_name(matrix: Floats, names: list[str] | None, labels: tuple[Value, ...]) -> Floats:
    """Return the columns of `matrix` in the order of `labels`.

    Columns with the same names as the labels are sorted by name; any others keep their order.
    """
    wanted = [str(label) for label in labels]
    if names is None or names == wanted or set(map(str, names)) != set(wanted):
        return matrix
    return matrix[:, [list(map(str, names)).index(name) for name in wanted]]


def check_probabilities(matrix: Floats, what: str, normalize: bool) -> Floats:
    """Return a validated matrix of probabilities, (n_rows, n_columns), whose rows sum to one.

    With `normalize`, divide each row by its sum. Raise an `EvidenceError` for values that are not
    probabilities.
    """
    if not matrix.size:
        raise EvidenceError(f"{what} is empty; pass at least one row")
    low, high = matrix.min(), matrix.max()
    if -ROUNDING <= low < 0:
        matrix, low = np.maximum(matrix, 0.0), 0.0
    if not np.isfinite(low + high):
        row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
        raise EvidenceError(f"{what} has a value that is not finite in row {row}; fill it in or drop the row")
    if low < 0 or (high > 1 + SUM_TOLERANCE and not normalize):
        row = int(np.argmax((matrix.min(axis=1) < 0) | (matrix.max(axis=1) > 1 + SUM_TOLERANCE)))
        raise EvidenceError(
            f"{what} has values outside [0, 1], such as row {row}: {matrix[row].round(4).tolist()}; "
            "if these are logits, apply softmax first"
        )
    if normalize:
        sums = matrix.sum(axis=1)  # unlike the product below, the same in any batch
        if not sums.all():
            raise EvidenceError(
                f"{what} must not be all zeros in a row to be normalized, got zeros in row "
                f"{int(np.argmin(sums))}"
            )
        return matrix / sums[:, None]
    sums = matrix @ np.ones(matrix.shape[1])
    off = np.abs(sums - 1)
    if off.max() > SUM_TOLERANCE:
        row = int(off.argmax())
        raise EvidenceError(
            f"{what}: row {row} sums to {sums[row]:.6g}, not to one (tolerance {SUM_TOLERANCE:g})",
            Remedy("normalize"),
        )
    return matrix
