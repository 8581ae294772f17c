"""Evidence: the validated columns of one set of rows."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Codes, Floats, Mask, Value
from bylaw._base.validation import as_name, as_scalar, make_visible
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language.action_space import check_options
from bylaw.language.expressions import DECISION, LABEL, Conditions, CostColumn, Groups, Source, shorten
from bylaw.rows.arrays import (
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
from bylaw.rows.groups import (
    MISSING,
    Group,
    GroupProbabilities,
    KnownGroup,
    Part,
    PartlyKnownGroup,
    check_group_sizes,
    concatenate_groups,
    factorize,
    find_combination,
    find_distinct,
)
from bylaw.rows.probabilities import check_classes, check_probabilities, columns_by_name

if TYPE_CHECKING:
    from bylaw.rows.margins import Margins

MARGIN_TOLERANCE = 0.1  # mean total variation between a joint's margins and the same from another model
LEAST_WEIGHT = 1e-50  # of a row that counts; its inverse is the most
REJECTED = "reject"  # the label of an earlier model's rejections
KNOWN = "known"  # in place of an outcome: a cost that does not depend on what turns out, such as a price list
_AGREES_WITH_NOTHING = -1
_NOWHERE = -2
_NOTHING_OBSERVED: dict[str, Any] = {
    "labels": None,
    "true_groups": {},
    "outcomes": {},
    "propensity_weights": None,
    "limits": {},
    "largest_weight": None,
}
Limits = Mapping[str, tuple[float, float]]  # the least and the most of costs, by name


@dataclass(frozen=True, eq=False, repr=False)
class RowData:
    """Columns of one set of rows, and the probability of any event on each. Arrays are read-only."""

    classes: tuple[Value, ...]
    probabilities: Floats  # (n_rows, n_classes)
    groups: Mapping[Any, Group] = field(default_factory=dict)  # by attribute, or by a tuple of them
    joint: Mapping[str, Floats] = field(default_factory=dict)  # (n_rows, n_values, n_classes) each
    references: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # (n_rows,) codes, or (n_rows, K)
    costs: Mapping[str, Floats] = field(default_factory=dict)  # (n_rows, n_actions) each
    weights: Floats | None = None  # (n_rows,)
    index: RowIndex | None = None  # of frames and series that have one
    margins: Margins | None = None  # of all rows, where these are a sample of many more
    options: tuple[Value, ...] = ()  # decisions that are no classes

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
        """A copy with some validated columns exchanged, sharing the others."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **columns)
        copy.__post_init__()
        return copy

    def rows(self, part: Part) -> Self:
        """Some of the rows."""
        return self.with_columns(
            probabilities=self.probabilities[part],
            groups={name: group.rows(part) for name, group in self.groups.items()},
            joint={name: array[part] for name, array in self.joint.items()},
            references={name: array[part] for name, array in self.references.items()},
            costs={name: array[part] for name, array in self.costs.items()},
            weights=None if self.weights is None else self.weights[part],
            index=None if self.index is None else self.index.rows(part),
        )

    @property
    def row_weights(self) -> Floats:
        """(n_rows,): ones, if there are no weights."""
        return np.ones(len(self)) if self.weights is None else self.weights

    @property
    def group_values(self) -> Groups:
        return {name: group.values for name, group in self.groups.items() if isinstance(name, str)}

    @property
    def known_groups(self) -> dict[str, KnownGroup]:
        """Attributes whose value is known for every row."""
        return {name: group for name, group in self.groups.items() if isinstance(group, KnownGroup)}

    @property
    def hidden_groups(self) -> dict[Any, GroupProbabilities]:
        """Attributes, and tuples of them, of which there are only probabilities."""
        return {name: group for name, group in self.groups.items() if isinstance(group, GroupProbabilities)}

    def list_columns(self) -> list[Floats]:
        """All that is known of the rows, as numbers, (n_rows,) each."""
        known = [group.codes for group in self.known_groups.values()]
        tables = [self.probabilities, *(group.probabilities for group in self.hidden_groups.values())]
        tables += [array.reshape(len(self), -1) for array in (*self.joint.values(), *self.costs.values())]
        tables += [array.reshape(len(self), -1) for array in self.references.values()]
        columns = [*known, *(column for table in tables for column in table.T), self.row_weights]
        return [np.asarray(column, dtype=np.float64) for column in columns]

    def event_probability(self, event: Conditions, rows: Part = slice(None)) -> Floats | float:
        """P(event | x) on these rows, (n_rows,); 1.0 for the event that always holds."""
        conditions = dict(event)
        factors: list[Any] = []
        hidden: dict[str, Value] = {}
        for name in [name for name in conditions if name != LABEL]:
            group = self._find_group(name, conditions[name])
            if isinstance(group, KnownGroup):
                factors.append(group.codes[rows] == group.values.index(conditions[name]))
            else:
                hidden[name] = conditions[name]
        factors.append(self._hidden_probability(hidden, conditions.get(LABEL), rows))
        return reduce(np.multiply, factors)

    def frequency(self, event: Conditions) -> float:
        """P(event) on all rows."""
        here = self.event_probability(event)
        if self.margins is not None:
            return self.margins.frequency(event)
        return float(np.average(here, weights=self.weights))

    def count_effective(self, event: Conditions) -> float:
        """The effective number of rows of an event."""
        if self.margins is not None:
            return self.margins.count_effective(event)
        chance = np.asarray(self.event_probability(event), dtype=np.float64)
        return count_effective(self.row_weights, chance)

    def check_group_sizes(self, names: Container[str]) -> None:
        """Refuse those of the known groups that have more values than can be compared."""
        for name, group in self.known_groups.items():
            if name in names and len(group.values):
                if self.margins is None:
                    counts = np.bincount(group.codes, minlength=len(group.values))
                else:
                    counts = self.margins.count_values(name)
                check_group_sizes(group.values, counts, f"groups[{name!r}]")

    def column(self, source: Source, rows: Part = slice(None)) -> Floats:
        """A reference's 1{old model says item}, or one column of a cost, (n_rows,)."""
        if isinstance(source, CostColumn):
            return self.costs[source.name][rows, source.item]
        answers = self.references[source.name]
        position = self._decision_positions.get(source.item, _NOWHERE)  # an option that these rows never name
        if answers.ndim == 1 or position == _NOWHERE:
            return answers[rows] == position if answers.ndim == 1 else np.zeros(len(answers[rows]))
        return answers[rows, position]

    def weigh_cost(self, event: Conditions, source: CostColumn, costs: Floats) -> Floats:
        """(n_rows,): what one action costs where the event holds; `costs` (n_rows,) are those of `source`."""
        del source
        return self.event_probability(event) * costs

    def _hidden_probability(
        self, hidden: dict[str, Value], label: Value | None, rows: Part
    ) -> Floats | float:
        """P(hidden attributes, label | x): a model of all of them together, never a product."""
        position = None if label is None else self._class_position(label)
        if not hidden:
            return 1.0 if position is None else self.probabilities[rows, position]
        name, value = self._together(hidden)
        group = self.groups[name]
        if position is None:
            assert isinstance(group, GroupProbabilities)
            return group.probabilities[rows, group.values.index(value)]
        if name not in self.joint:
            raise EvidenceError(
                f"a rule on {name!r} and the label together, with unknown {name!r}, needs joint "
                f"probabilities P({name}, label | x) of shape (rows, {len(group.values)}, "
                f"{len(self.classes)})",
                Remedy("pass_joint", str(name)),
            )
        return self.joint[name][rows, group.values.index(value), position]

    def _together(self, hidden: dict[str, Value]) -> tuple[Any, Any]:
        """The model of these unknown attributes, and their value in it."""
        if (found := find_combination(self.groups, hidden)) is not None:
            return found
        raise EvidenceError(
            f"a rule refers to {' and '.join(hidden)} together, of which only probabilities are given",
            Remedy("pass_combinations", choices=tuple(hidden)),
        )

    def _find_group(self, name: str, value: Value) -> KnownGroup | GroupProbabilities:
        if name not in self.groups:
            raise EvidenceError(
                f"a rule refers to {name!r}, but there is no such group column among "
                f"{sorted(self.group_values)}",
                Remedy("pass_groups", name),
            )
        group = self.groups[name]
        if value not in group.values:
            raise EvidenceError(
                f"a rule refers to {name}={value!r}, but no row has it; the values are {list(group.values)}"
            )
        return group

    def _class_position(self, label: Value) -> int:
        if label not in self._class_positions:
            raise EvidenceError(
                f"a rule refers to label={label!r}, which is no class; the classes are {list(self.classes)}"
            )
        return self._class_positions[label]

    @cached_property
    def _class_positions(self) -> dict[Value, int]:
        return {label: place for place, label in enumerate(self.classes)}

    @cached_property
    def _decision_positions(self) -> dict[Value, int]:
        """Of the decisions of earlier models: classes, then options."""
        return {action: place for place, action in enumerate((*self.classes, *self.options))}

    def vector(self, column: Any, what: str) -> NDArray[Any]:
        """One value per row, (n_rows,)."""
        vector = as_vector(column, what)
        self.check_length(len(vector), what)
        return vector

    def check_length(self, length: int, what: str) -> None:
        check_length(length, len(self), what, "probabilities" if self.classes else "costs")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Evidence(RowData):
    """Rows: what is known of each when it is decided, and what was observed of it. Validated, then frozen.

    Arrays are copied and read-only. A large array that is read-only already is shared instead of copied.
    A policy decides by the columns that exist at decision time, and never reads the observed ones.

    Parameters
    ----------
    probabilities : array or frame of shape (n_rows, n_classes), optional
        P(label | x). Rows sum to one within 1e-4. Left out where there are no labels, only `options`.
    classes : list, optional
        the labels in the order of the columns; by default range(n_classes), or the frame's columns.
    groups : dict or frame, optional
        for each attribute either one value per row, (n_rows,) (known), or a frame or dict with one
        column of P(value | x) per value (unknown). A frame serves as a dict of known attributes.
        For rules on several unknown attributes together, a tuple of names with a dict of
        columns for tuples of values: {("sex", "race"): {("F", "black"): ..., ...}}.
    joint : dict, optional
        for an unknown attribute, P(value, label | x), an array of shape (n_rows, n_values, n_classes).
    references : dict or frame, optional
        for each earlier model its labels, (n_rows,), or its probabilities, (n_rows, n_classes). Where it
        rejected ("reject"), nothing agrees with it. With `options`, its decisions, or their probabilities,
        (n_rows, n_classes + n_options).
    costs : dict, optional
        arrays of shape (n_rows, n_actions) for `custom(name)`: one column per class, then one for "reject" or
        for each option.
    weights : array of shape (n_rows,), optional
        sample weights, not negative; by default one per row.
    normalize : bool
        divide each row of probabilities by its sum instead of refusing it, also those of groups, joint and
        references.
    options : list, optional
        the decisions that are no classes, such as models to call. With probabilities they stand beside the
        classes, and need to be named here only where an earlier model took them; `Problem(decisions=)` names
        them otherwise. Without, they are all decisions that there are, and every cost has a column for each.

    Raises
    ------
    EvidenceError
        if a column has missing or impossible values, another number of rows, or an index of pandas that
        differs from that of another.

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
    true_groups: Mapping[str, KnownGroup] = field(default_factory=dict)  # with codes -1 where missing
    outcomes: Mapping[str, Floats | str] = field(
        default_factory=dict
    )  # (n_rows, n_actions), NaN where missing
    propensity_weights: Floats | None = None  # (n_rows,), NaN where missing
    limits: Limits = field(default_factory=dict)
    largest_weight: float | None = None

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
        checker = _Checker(names, matrix, normalize, actions)
        known = checker.add_margins({name: checker.group(name, column) for name, column in groups.items()})
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
        """Return these rows with further observed columns; the parameters are those of `Evidence`.

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
        aligned = {name: column for name, column in given.items() if name not in ("limits", "largest_weight")}
        index = check_alignment(aligned, self.index)
        checker = _Checker(self.classes, self.probabilities, normalize=False, options=self.options)
        columns: dict[str, Any] = {"index": index}
        for name, column in given.items():
            if name == "labels":
                columns[name] = checker.labels(column)
            elif name == "true_groups":
                groups = {one: checker.true_group(one, values, self.groups) for one, values in column.items()}
                columns[name] = {**self.true_groups, **groups}
            elif name == "outcomes":
                costs = {one: checker.outcome(one, cost) for one, cost in column.items()}
                columns[name] = {**self.outcomes, **costs}
            elif name == "propensity_weights":
                columns[name] = checker.propensity_weights(column)
            else:
                columns[name] = {**self.limits, **column} if name == "limits" else column
        observed = self.with_columns(**columns)
        if propensity_weights is not None:
            masks = observed.find_observed()
            if not masks:
                raise OptionError(
                    "propensity_weights has no effect: no label or group is missing. Leave it out"
                )
            check_propensity_weights(columns["propensity_weights"], masks)
        return observed

    def without_observed(self) -> Self:
        """Return these rows with the columns that are known at decision time alone."""
        return self.with_columns(**_NOTHING_OBSERVED)

    @property
    def has_observed(self) -> bool:
        """Whether labels or true groups were given, even if all of them are missing."""
        return self.labels is not None or bool(self.true_groups)

    def find_observed(self, taken: Floats | None = None) -> dict[str, Mask]:
        """Return where labels, groups and costs were observed, (n_rows,), for those missing on some rows.

        Parameters
        ----------
        taken : array of shape (n_rows, n_actions), optional
            one-hot, the decisions that were taken: outcomes of other decisions may be missing.
        """
        masks = {} if self.labels is None else {LABEL: self.labels >= 0}
        masks |= {name: group.codes >= 0 for name, group in self.true_groups.items()}
        for name, cost in self.outcomes.items():
            if not isinstance(cost, str):
                masks[name_cost(name)] = ~_find_gaps(cost, taken)
        return {name: mask for name, mask in masks.items() if mask.any() and not mask.all()}

    def fill_outcomes(self, taken: Floats | None = None) -> dict[str, Floats | str]:
        """Return the costs that were observed on some rows, with any number where they are missing."""
        filled: dict[str, Floats | str] = {}
        for name, cost in self.outcomes.items():
            if isinstance(cost, str):
                filled[name] = cost
                continue
            missing = _find_gaps(cost, taken)[:, None] | np.isnan(cost)
            if not missing.all():
                filled[name] = own(np.where(missing, cost[~missing][0], cost), None)
        return filled

    def rows(self, part: Part) -> Self:
        """Some of the rows."""
        weights = self.propensity_weights
        return (
            super()
            .rows(part)
            .with_columns(
                labels=None if self.labels is None else self.labels[part],
                true_groups={name: group.rows(part) for name, group in self.true_groups.items()},
                outcomes={n: c if isinstance(c, str) else c[part] for n, c in self.outcomes.items()},
                propensity_weights=None if weights is None else weights[part],
            )
        )

    @classmethod
    def without_rows(cls, classes: Sequence[Any], groups: dict[Any, Group], **columns: Any) -> Evidence:
        """What there is to know of rows that are all elsewhere."""
        labels, matrix = (), np.empty((0, 0))
        if classes or not columns.get("options"):
            labels, matrix = check_classes(classes, None, np.empty((0, len(classes))))
        described, checker = object.__new__(cls), _Checker(labels, matrix, normalize=False)
        described.__dict__.update(_NOTHING_OBSERVED)
        RowData.__init__(described, labels, matrix, checker.add_margins(groups), **columns)
        return described


def _read_probabilities(
    probabilities: Any,
    classes: Sequence[Any] | None,
    options: Sequence[Any] | None,
    costs: Mapping[str, Any] | None,
    normalize: bool,
) -> tuple[tuple[Value, ...], Floats]:
    """The labels and their probabilities, (n_rows, n_labels); where there are only options, none of them."""
    if probabilities is not None:
        matrix, names = as_matrix(probabilities, "probabilities")
        labels, matrix = check_classes(classes, names, matrix)
        return labels, own(check_probabilities(matrix, "probabilities", normalize), probabilities)
    if options is None:
        raise EvidenceError(
            "there is nothing to decide among: pass probabilities, one column per class, or options=[...] "
            "and what each costs, costs={name: an array of shape (rows, options)}"
        )
    if classes:
        raise EvidenceError(f"the classes {list(classes)} need probabilities, one column each")
    if not costs:
        raise EvidenceError(
            "options without classes differ by what they cost alone: pass costs={name: an array of shape "
            "(rows, options)}"
        )
    name, first = next(iter(costs.items()))
    return (), own(np.empty((len(as_matrix(first, f"costs[{name!r}]")[0]), 0)), None)


def _read_options(options: Sequence[Any] | None, classes: tuple[Value, ...]) -> tuple[Value, ...]:
    if options is None:
        return ()
    if isinstance(options, str):
        raise EvidenceError(f"options is a list of names, not the text {options!r}")
    named = tuple(as_scalar(option, "an option", EvidenceError) for option in options)
    check_options(named, classes, EvidenceError)
    if len(classes) + len(named) < 2:
        raise EvidenceError(f"the options are {list(named)}, so there is nothing to decide; name two or more")
    return named


def _name_columns(columns: Any, what: str) -> dict[Any, Any]:
    """Columns by plain names, or by tuples of them."""
    return {_as_plain_name(name, what): column for name, column in as_columns(columns, what).items()}


def _as_plain_name(name: Any, what: str) -> Any:
    if isinstance(name, tuple):
        return tuple(_as_plain_name(part, what) for part in name)
    return as_name(name, f"a name in {what}", EvidenceError)


def _restore(cls: type[Any], state: dict[str, Any]) -> Any:
    restored = object.__new__(cls)
    restored.__dict__.update(state)
    restored.__post_init__()
    return restored


@dataclass(frozen=True)
class _Checker:
    """Validation against the rows of the probabilities, one method per kind of column."""

    classes: tuple[Value, ...]
    probabilities: Floats
    normalize: bool
    options: tuple[Value, ...] = ()

    def check_length(self, length: int, what: str) -> None:
        check_length(length, len(self.probabilities), what, "probabilities" if self.classes else "costs")

    def group(self, name: Any, column: Any) -> Group:
        what = f"groups[{name!r}]"
        if isinstance(column, KnownGroup):
            self.check_length(len(column.codes), what)
            return column
        if isinstance(name, tuple):
            return self._combination(name, column, what)
        if name in (LABEL, DECISION):
            raise EvidenceError(f"{what}: a group is named by a string other than {name!r}")
        if isinstance(column, Mapping) or len(getattr(column, "shape", (0,))) == 2:
            matrix, names = as_matrix(column, what)
            if names is None:
                raise EvidenceError(
                    f"{what} is an array of shape {matrix.shape} without names; pass a frame or a dict "
                    "{value: probabilities}, or one value per row"
                )
            self.check_length(len(matrix), what)
            values = tuple(as_scalar(value, f"a value of {what}", EvidenceError) for value in names)
            return GroupProbabilities(values, own(check_probabilities(matrix, what, self.normalize), column))
        vector = as_vector(column, what)
        self.check_length(len(vector), what)
        return factorize(vector, what)

    def _combination(self, name: tuple, column: Any, what: str) -> GroupProbabilities:
        if not isinstance(column, Mapping) or not all(
            isinstance(value, tuple) and len(value) == len(name) for value in column
        ):
            raise EvidenceError(f"{what} takes a dict from tuples of values to columns of probabilities")
        self.check_length(len(matrix := as_matrix(column, what)[0]), what)
        values = tuple(
            tuple(as_scalar(v, f"a value of {what}", EvidenceError) for v in value) for value in column
        )
        return GroupProbabilities(values, own(check_probabilities(matrix, what, self.normalize), column))

    def add_margins(self, groups: dict[Any, Group]) -> dict[Any, Group]:
        """Attributes that are only known together: also each by itself."""
        for names, group in [item for item in groups.items() if isinstance(item[0], tuple)]:
            assert isinstance(group, GroupProbabilities)
            for place, name in enumerate(names):
                if name not in groups:
                    groups[name] = group.margin(place)
        return groups

    def joint(self, name: str, array: Any, group: Group | None) -> Floats:
        what = f"joint[{name!r}]"
        if not isinstance(group, GroupProbabilities):
            raise EvidenceError(
                f"{what} goes with groups[{name!r}] given as probabilities; a known group needs no joint"
            )
        if not self.classes:
            raise EvidenceError(f"{what} is about labels, and there are no classes: leave it out")
        joint = np.asarray(array, dtype=np.float64)
        n_rows = len(self.probabilities)
        wanted = (n_rows, len(group.values), len(self.classes))
        if joint.shape != wanted:
            raise EvidenceError(f"{what} must have shape {wanted} (rows, values, classes), not {joint.shape}")
        joint = check_probabilities(joint.reshape(n_rows, -1), what, self.normalize).reshape(wanted)
        for axis, marginal, other in (
            (1, self.probabilities, "probabilities"),
            (2, group.probabilities, name),
        ):
            distance = np.abs(joint.sum(axis=axis) - marginal).sum(axis=1).mean() / 2
            if distance > MARGIN_TOLERANCE:
                raise EvidenceError(
                    f"{what} does not add up to the {other} given beside it (mean distance {distance:.2f}, "
                    f"tolerance {MARGIN_TOLERANCE:g}); are its rows, values {list(group.values)} and classes "
                    f"{list(self.classes)} in the same order?"
                )
        return own(joint, array)

    def reference(self, name: str, column: Any) -> NDArray[Any]:
        what = f"references[{name!r}]"
        if len(getattr(column, "shape", (0,))) == 2:
            matrix, names = as_matrix(column, what)
            self.check_length(len(matrix), what)
            if matrix.shape[1] != len(actions := (*self.classes, *self.options)):
                of = "decisions" if self.options else "classes"
                raise EvidenceError(f"{what} has {matrix.shape[1]} columns for {len(actions)} {of}")
            ordered = columns_by_name(matrix, names, actions)
            return own(check_probabilities(ordered, what, self.normalize), column)
        vector = as_vector(column, what)
        self.check_length(len(vector), what)
        actions = (*self.classes, *self.options)
        positions = {REJECTED: _AGREES_WITH_NOTHING} | {action: i for i, action in enumerate(actions)}
        if vector.dtype.kind in "UO":  # a column that says "reject" has numbers as text
            positions = {
                str(label): i for label, i in positions.items() if isinstance(label, int)
            } | positions
        otherwise = "" if self.options else ". Name decisions that are no classes: options=[...]"
        return own(encode_values(vector, positions, what, otherwise), None)

    def cost(self, name: str, array: Any) -> Floats:
        matrix, names = as_matrix(array, f"costs[{name!r}]")
        matrix = check_cost(matrix, name, len(self.probabilities))
        actions = (*self.classes, *self.options)
        if self.options and matrix.shape[1] != len(actions):
            raise EvidenceError(
                f"costs[{name!r}] has {matrix.shape[1]} columns; it needs one for each of {list(actions)}"
            )
        return own(columns_by_name(matrix, names, actions) if self.options else matrix, array)

    def weights(self, weights: Any) -> Floats:
        vector = as_numbers(weights, "weights")
        self.check_length(len(vector), "weights")
        if not np.isfinite(vector).all() or (vector < 0).any():
            raise EvidenceError("weights must be finite and not negative")
        if not vector.any():
            raise EvidenceError("all weights are zero; there is nothing to learn from")
        return own(check_sizes(vector, "weights"), weights)

    def labels(self, labels: Any) -> Codes:
        vector, missing = self._partial_vector(labels, "labels")
        if missing.all():
            return np.full(len(vector), MISSING)
        if not self.classes:
            raise EvidenceError(
                f"labels: there are no classes, only the options {list(self.options)}; what these turned out "
                "to cost is passed as outcomes={name: an array of shape (rows, options)}"
            )
        positions = {label: i for i, label in enumerate(self.classes)}
        codes = encode_values(fill_missing(vector, missing), positions, "labels")
        return own(np.where(missing, MISSING, codes), None)

    def true_group(self, name: str, column: Any, groups: Mapping[Any, Group]) -> KnownGroup:
        what = f"true_groups[{name!r}]"
        if isinstance(column, Mapping) or len(getattr(column, "shape", (0,))) == 2:
            raise EvidenceError(f"{what} must be what was seen, one value per row")
        column = column.with_missing if isinstance(column, PartlyKnownGroup) else column
        if isinstance(column, KnownGroup):
            self.check_length(len(column.codes), what)
            return align_true_group(name, column, groups)
        vector, missing = self._partial_vector(column, what)
        if missing.all():
            return KnownGroup((), np.full(len(vector), MISSING))
        group = factorize(fill_missing(vector, missing), what)
        return align_true_group(
            name, KnownGroup(group.values, np.where(missing, MISSING, group.codes)), groups
        )

    def outcome(self, name: str, cost: Any) -> Floats | str:
        what = f"outcomes[{name!r}]"
        if isinstance(cost, str):
            if cost != KNOWN:
                raise OptionError(
                    f"{what} takes an array of shape (rows, actions), or {KNOWN!r} where the cost does not "
                    f"depend on what turns out, not {cost!r}"
                )
            return KNOWN
        masked = (
            np.ma.filled(cost.astype(np.float64), np.nan) if isinstance(cost, np.ma.MaskedArray) else cost
        )
        matrix = as_matrix(masked, what)[0]
        n_rows = len(self.probabilities)
        if matrix.ndim != 2 or len(matrix) != n_rows:
            raise EvidenceError(
                f"{what} must have shape (rows, actions) with {n_rows} rows, not {matrix.shape}"
            )
        if np.isinf(matrix).any():
            raise EvidenceError(f"{what} must be finite, or missing (NaN) where it is not known")
        return own(matrix, cost)

    def propensity_weights(self, weights: Any) -> Floats:
        column, missing = self._partial_vector(weights, "propensity_weights")
        try:
            return own(np.where(missing, np.nan, column).astype(np.float64), None)
        except (TypeError, ValueError):
            raise EvidenceError(f"propensity_weights must be numbers, not {column.dtype}") from None

    def _partial_vector(self, column: Any, what: str) -> tuple[NDArray[Any], Mask]:
        vector, missing = as_partial_vector(column, what)
        self.check_length(len(vector), what)
        return vector, missing


def align_true_group(name: str, group: KnownGroup, groups: Mapping[Any, Group]) -> KnownGroup:
    """Return a group's true values in the order of its probabilities; raise if they contradict `groups`."""
    what = f"true_groups[{name!r}]"
    if name not in groups or not (group.codes >= 0).any():
        return group
    if unknown := set(group.values) - set(values := groups[name].values):
        raise EvidenceError(
            f"{what} has values without probabilities: {sorted(map(str, unknown))}; there are "
            f"probabilities of {list(values)}"
        )
    aligned, known = group.with_values(values), groups[name]
    if isinstance(known, KnownGroup):
        wrong = (aligned.codes != known.codes) & (aligned.codes >= 0)
        if wrong.any():
            raise EvidenceError(
                f"{what} differs on {int(wrong.sum()):,} rows from the group by which decisions are made; "
                "leave it out, or give the other one another name"
            )
    return aligned


def check_propensity_weights(weights: Floats, masks: Mapping[str, Mask]) -> Floats:
    """Return the weights of rows that show what others lack, and ones; raise if they are not positive."""
    observed = np.logical_or.reduce(list(masks.values()))
    filled = np.where(observed, weights, 1.0)
    if not np.isfinite(filled).all() or (filled <= 0).any():
        raise EvidenceError(
            "propensity_weights must be finite and positive on every row that shows a label or a group which "
            "others lack: 1 / P(seen | x)"
        )
    return check_sizes(filled, "propensity_weights")


def _find_gaps(cost: Floats, taken: Floats | None) -> Mask:
    """Return the rows, (n_rows,), whose cost is missing for a decision that counts."""
    gaps = np.isnan(cost)
    if taken is not None and taken.shape == cost.shape:
        gaps = gaps & (taken > 0)
    return np.asarray(gaps.any(axis=1))


def name_cost(name: str) -> str:
    """Return the name of the cost in `custom(name)` among the attributes that rows show."""
    return f"custom({name!r})"


def count_effective(weights: Floats, chance: Floats | float = 1.0) -> float:
    """The effective sample size (Kish): (sum of w p)^2 / sum of w^2 p, for rows that belong with chance p."""
    mass, squares = (weights * chance).sum(), (weights**2 * chance).sum()
    return float(mass**2 / squares) if squares else 0.0


def check_sizes(weights: Floats, what: str) -> Floats:
    """Weights, some of them positive, whose sums and squares are numbers."""
    positive = weights[weights > 0]
    if positive.min() < LEAST_WEIGHT or positive.max() > 1 / LEAST_WEIGHT:
        raise EvidenceError(
            f"{what} must be zero, or from {LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}, so that their sums and "
            f"squares are numbers; these go from {positive.min():.3g} to {positive.max():.3g}. Only their "
            "ratios count: divide them by their mean"
        )
    return weights


def encode_values(
    vector: NDArray[Any], positions: Mapping[Any, int], what: str, otherwise: str = ""
) -> NDArray[np.int64]:
    """Each row's position; of numbers, every one is looked up once."""
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


def check_length(length: int, n_rows: int, what: str, first: str = "probabilities") -> None:
    if length != n_rows:
        raise EvidenceError(f"{what} has {length} rows, but {first} has {n_rows}")


def concatenate(parts: Sequence[Evidence]) -> Evidence:
    """All the rows of several evidences with the same columns."""
    first = parts[0]
    for part in parts:
        decisions = (part.classes, part.options)
        if decisions != (first.classes, first.options) or _columns_of(part) != _columns_of(first):
            raise EvidenceError(
                f"batches must have the same classes and columns: {first} came first, and then {part}"
            )

    def stacked(kind: str) -> dict[str, NDArray[Any]]:
        return {
            name: np.concatenate([getattr(p, kind)[name] for p in parts]) for name in getattr(first, kind)
        }

    def joined(kind: str) -> NDArray[Any] | None:
        arrays = [getattr(part, kind) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    def stacked_groups(kind: str) -> dict[Any, Any]:
        return {
            name: concatenate_groups([getattr(part, kind)[name] for part in parts])
            for name in getattr(first, kind)
        }

    outcomes = {
        name: KNOWN if isinstance(cost, str) else np.concatenate([part.outcomes[name] for part in parts])
        for name, cost in first.outcomes.items()
    }
    return first.with_columns(
        probabilities=np.concatenate([part.probabilities for part in parts]),
        groups=stacked_groups("groups"),
        joint=stacked("joint"),
        references=stacked("references"),
        costs=stacked("costs"),
        weights=joined("weights"),
        index=None,
        labels=joined("labels"),
        true_groups=stacked_groups("true_groups"),
        outcomes=outcomes,
        propensity_weights=joined("propensity_weights"),
    )


def _columns_of(evidence: Evidence) -> list[Any]:
    known = [(name, group.known) for name, group in evidence.groups.items()]
    hidden = [group.values for group in evidence.hidden_groups.values()]
    present = [evidence.weights is None, evidence.labels is None, evidence.propensity_weights is None]
    tables = (evidence.joint, evidence.references, evidence.costs, evidence.true_groups)
    exact = [(name, isinstance(cost, str)) for name, cost in evidence.outcomes.items()]
    return [known, hidden, *map(list, tables), exact, present, evidence.limits, evidence.largest_weight]


def as_evidence(evidence: Any) -> Evidence:
    if not isinstance(evidence, Evidence):
        raise EvidenceError(
            f"rows are passed as Evidence(probabilities, ...), not as {type(evidence).__name__}"
        )
    return evidence


def check_cost(matrix: Floats, name: str, n_rows: int) -> Floats:
    """A cost array, (n_rows, n_actions), from the caller or from the caller's function."""
    if matrix.ndim != 2 or len(matrix) != n_rows:
        raise EvidenceError(
            f"costs[{name!r}] must have shape (rows, actions) with {n_rows} rows, not {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise EvidenceError(f"costs[{name!r}] must be finite")
    return matrix
