"""Checks that the columns of a table match what a policy needs, and default names of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bylaw._base import Value, as_scalar
from bylaw.errors import OptionError
from bylaw.language import LABEL, ActionSpace
from bylaw.program import FeatureMap
from bylaw.rows import Columns, find_combination

ReferenceForm = Literal["labels", "probabilities"]
NORMALIZED = "an export does not normalize probabilities: divide them by their sum in the table"


def check_columns(feature_map: FeatureMap, columns: Columns) -> None:
    """Raise an `OptionError` if the columns do not match the classes, groups and costs of the policy."""
    if columns.normalize:
        raise OptionError(NORMALIZED)
    _check_actions(feature_map.action_space, columns)
    for name, fitted in feature_map.attributes.items():
        if isinstance(columns.groups[find_model(columns, name)], str) != fitted.known:
            was = "values" if fitted.known else "probabilities"
            wanted = "one column" if fitted.known else "a dict {value: column of probabilities}"
            raise OptionError(f"groups[{name!r}] must be {wanted}, because the policy was fitted with {was}")
        if not fitted.known and set(values := list_values(columns, name)) != set(fitted.values):
            raise OptionError(
                f"groups[{name!r}] must have one column for each value in the policy, "
                f"{list(fitted.values)}, got columns for {list(values)}"
            )
    for name in feature_map.reference_names:
        _check_reference(name, feature_map.action_space, columns)
    actions = feature_map.action_space.actions
    for name in feature_map.cost_names:
        if len(columns.costs.get(name, ())) != len(actions):
            raise OptionError(
                f"costs[{name!r}] must have one column for each action of {list(actions)}, because a rule "
                f"refers to custom({name!r}): pass Columns(costs={{{name!r}: [...]}})"
            )


def _check_actions(space: ActionSpace, columns: Columns) -> None:
    classes = columns.probabilities if columns.classes is None else columns.classes
    wanted = list(space.classes)
    if [as_scalar(label, "a class") for label in classes] != wanted:
        raise OptionError(
            f"probabilities must have columns for the classes {wanted}, in this order, got columns for "
            f"{list(classes)}: pass Columns(probabilities=[one column each], classes={wanted})"
        )
    if columns.complement is None and len(columns.probabilities) != len(wanted):
        raise OptionError(
            f"probabilities must have one column for each class of {wanted}, got {columns.probabilities}"
        )
    if columns.options and list_answers(space, columns) != (*space.classes, *space.options):
        raise OptionError(
            f"options must be {list(space.options)} in this order, as in the policy, got "
            f"{list(columns.options)}"
        )


def _check_reference(name: str, space: ActionSpace, columns: Columns) -> None:
    roles = columns.references.get(name)
    if roles is None:
        raise OptionError(
            f"references must have a column of labels for {name!r}, to which a rule refers: pass "
            f"Columns(references={{{name!r}: ...}})"
        )
    if isinstance(roles, str):
        return
    if space.named_options and not columns.options:
        raise OptionError(
            f"references[{name!r}] must be one column of decisions, or one column for each of "
            f"{list(space.actions)} with Columns(options={list(space.options)})"
        )
    if len(roles) != len(list_answers(space, columns)):
        raise OptionError(f"references[{name!r}] must be one column of labels, or one column per class")


def list_answers(space: ActionSpace, columns: Columns) -> tuple[Value, ...]:
    """Return the values that an earlier model's columns of probabilities refer to: classes, then options."""
    return (*space.classes, *(as_scalar(option, "an option") for option in columns.options))


def list_values(columns: Columns, name: Any) -> tuple[Any, ...]:
    """Return the values of an unknown attribute, in the order of its columns.

    If `name` is a tuple of attributes, the values are tuples.
    """
    model = find_model(columns, name)
    values: tuple[Any, ...] = tuple(
        tuple(as_scalar(v, f"a value of {name}") for v in value)
        if isinstance(value, tuple)
        else as_scalar(value, name)
        for value in columns.groups[model]
    )
    return values if model == name else tuple(dict.fromkeys(value[model.index(name)] for value in values))


def find_model(columns: Columns, name: Any) -> Any:
    """Return the key of `columns.groups` whose columns contain this attribute.

    It is the attribute itself, or a tuple of attributes if only their combinations have columns.
    """
    if name in columns.groups:
        return name
    for names in columns.groups:
        if isinstance(names, tuple) and name in names:
            return names
    raise OptionError(
        f"groups must have columns for {name!r}, which the policy reads: pass "
        f"Columns(groups={{{name!r}: ...}})"
    )


def find_combined(columns: Columns, hidden: Mapping[str, Value]) -> tuple[Any, Any]:
    """Return the key of `columns.groups` for all of these unknown attributes together.

    Also return their values in the form of this entry: a tuple if the key is a tuple.
    """
    if (found := find_combination(columns.groups, hidden)) is not None:
        return found
    raise OptionError(
        f"a rule depends jointly on {' and '.join(hidden)}, but only their probabilities are known: "
        f"pass the columns of the probabilities of their combinations, Columns(groups={{{tuple(hidden)!r}: "
        f"{{{tuple(hidden.values())!r}: a column, ...}}}})"
    )


def default_columns(
    feature_map: FeatureMap, references: Mapping[str, ReferenceForm] | None = None
) -> Columns:
    """Return `Columns` with a default name for each column that the policy may read.

    `references` has "labels" (the default) or "probabilities" for each earlier model.
    """
    space = feature_map.action_space
    forms = dict.fromkeys(feature_map.reference_names, "labels") | dict(references or {})
    for name, form in forms.items():
        if name not in feature_map.reference_names:
            raise OptionError(f"no rule refers to an earlier model {name!r}; leave it out of references=")
        if form not in ("labels", "probabilities"):
            raise OptionError(f"references[{name!r}] must be 'labels' or 'probabilities', got {form!r}")
    for feature in feature_map.features:
        hidden = [n for n, _ in feature.event if n != LABEL and not feature_map.attributes[n].known]
        if len(hidden) > 1:
            raise OptionError(
                f"a rule depends jointly on {' and '.join(hidden)}, but only their probabilities are known: "
                "use to_sql or to_python, and pass the columns of the probabilities of their combinations in "
                "Columns(groups=...)"
            )
    return Columns(
        probabilities=[str(label) for label in space.classes],
        classes=space.classes,
        groups={
            name: name if a.known else {value: f"{name}={value}" for value in a.values}
            for name, a in feature_map.attributes.items()
        },
        joint={
            name: [[f"{name}={value}, label={label}" for label in space.classes] for value in a.values]
            for name, a in feature_map.attributes.items()
            if not a.known
        },
        references={
            name: name
            if form == "labels"
            else [f"{name}: {answer}" for answer in (*space.classes, *space.named_options)]
            for name, form in forms.items()
        },
        costs={name: [f"{name}: {a}" for a in space.actions] for name in feature_map.cost_names},
        options=space.named_options,
    )


def get_column(columns: Columns, part: str, name: Any, place: Sequence[int]) -> str:
    """Return the name of a column, given its part, its name there, and its indices `place` in that part."""
    if part == "probabilities" and columns.complement is not None:
        return columns.probabilities[0]
    roles: Any = columns.probabilities if part == "probabilities" else getattr(columns, part)[name]
    for i in place:
        roles = list(roles.values() if isinstance(roles, Mapping) else roles)[i]
    return roles


def is_complement(columns: Columns, part: str, place: Sequence[int]) -> bool:
    """Return True if this probability is one minus the column of the other of two classes."""
    return part == "probabilities" and list(place) == [columns.complement]
