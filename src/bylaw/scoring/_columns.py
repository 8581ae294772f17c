"""Which column of a table holds what, checked against what a policy reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bylaw._base import Value, as_scalar
from bylaw.errors import OptionError
from bylaw.language import LABEL, ActionSpace
from bylaw.program import FeatureMap
from bylaw.rows import Columns, find_combination

ReferenceForm = Literal["labels", "probabilities"]
NORMALIZED = "an export takes probabilities as they are: divide them by their sum in the table"


def check_columns(feature_map: FeatureMap, columns: Columns) -> None:
    """Raise an `OptionError` unless the columns are those that the features read."""
    if columns.normalize:
        raise OptionError(NORMALIZED)
    _check_actions(feature_map.action_space, columns)
    for name, fitted in feature_map.attributes.items():
        if isinstance(columns.groups[find_model(columns, name)], str) != fitted.known:
            was = "values" if fitted.known else "probabilities"
            wanted = "one column" if fitted.known else "a dict {value: column of probabilities}"
            raise OptionError(f"the policy was fitted with {was} of {name!r}; pass {wanted}, as then")
        if not fitted.known and set(values := list_values(columns, name)) != set(fitted.values):
            raise OptionError(
                f"{name} has columns for {list(values)}; pass one for each value that the policy knows, "
                f"{list(fitted.values)}"
            )
    for name in feature_map.reference_names:
        _check_reference(name, feature_map.action_space, columns)
    actions = feature_map.action_space.actions
    for name in feature_map.cost_names:
        if len(columns.costs.get(name, ())) != len(actions):
            raise OptionError(
                f"a rule refers to custom({name!r}); state which columns hold it, one for each action of "
                f"{list(actions)}: Columns(costs={{{name!r}: [...]}})"
            )


def _check_actions(space: ActionSpace, columns: Columns) -> None:
    classes = columns.probabilities if columns.classes is None else columns.classes
    wanted = list(space.classes)
    if [as_scalar(label, "a class") for label in classes] != wanted:
        raise OptionError(
            f"the policy decides among the classes {wanted}, in this order; the columns are of "
            f"{list(classes)}. Pass Columns(probabilities=[one column each], classes={wanted})"
        )
    if columns.complement is None and len(columns.probabilities) != len(wanted):
        raise OptionError(f"probabilities takes one column for each class of {wanted}")
    if columns.options and list_answers(space, columns) != (*space.classes, *space.options):
        raise OptionError(
            f"the policy decides among the options {list(space.options)}, in this order; the columns are of "
            f"{list(columns.options)}"
        )


def _check_reference(name: str, space: ActionSpace, columns: Columns) -> None:
    roles = columns.references.get(name)
    if roles is None:
        raise OptionError(
            f"a rule refers to {name!r}; state which column holds its labels: "
            f"Columns(references={{{name!r}: ...}})"
        )
    if isinstance(roles, str):
        return
    if space.named_options and not columns.options:
        raise OptionError(
            f"references[{name!r}] takes one column of decisions; or one column for each of "
            f"{list(space.actions)}, with Columns(options={list(space.options)})"
        )
    if len(roles) != len(list_answers(space, columns)):
        raise OptionError(f"references[{name!r}] takes one column of labels, or one column per class")


def list_answers(space: ActionSpace, columns: Columns) -> tuple[Value, ...]:
    """Return what the columns of an earlier model's probabilities are about: classes, then options."""
    return (*space.classes, *(as_scalar(option, "an option") for option in columns.options))


def list_values(columns: Columns, name: Any) -> tuple[Any, ...]:
    """Return the values of an unknown attribute in the order of its columns; of several, tuples."""
    model = find_model(columns, name)
    values: tuple[Any, ...] = tuple(
        tuple(as_scalar(v, f"a value of {name}") for v in value)
        if isinstance(value, tuple)
        else as_scalar(value, name)
        for value in columns.groups[model]
    )
    return values if model == name else tuple(dict.fromkeys(value[model.index(name)] for value in values))


def find_model(columns: Columns, name: Any) -> Any:
    """Return the attribute itself, or the attributes of which only combinations are known."""
    if name in columns.groups:
        return name
    for names in columns.groups:
        if isinstance(names, tuple) and name in names:
            return names
    raise OptionError(
        f"the policy needs {name!r} to decide; state which columns hold it: Columns(groups={{{name!r}: ...}})"
    )


def find_combined(columns: Columns, hidden: Mapping[str, Value]) -> tuple[Any, Any]:
    """Return the model of these unknown attributes, and their value in it."""
    if (found := find_combination(columns.groups, hidden)) is not None:
        return found
    raise OptionError(
        f"a rule refers to {' and '.join(hidden)} together, of which only probabilities are known: pass "
        f"the columns of their combinations, Columns(groups={{{tuple(hidden)!r}: "
        f"{{{tuple(hidden.values())!r}: a column, ...}}}})"
    )


def default_columns(
    feature_map: FeatureMap, references: Mapping[str, ReferenceForm] | None = None
) -> Columns:
    """Return a column for everything that the policy may read, named after it."""
    space = feature_map.action_space
    forms = dict.fromkeys(feature_map.reference_names, "labels") | dict(references or {})
    for name, form in forms.items():
        if name not in feature_map.reference_names:
            raise OptionError(f"no rule refers to an earlier model {name!r}; leave it out of references=")
        if form not in ("labels", "probabilities"):
            raise OptionError(f"references[{name!r}] must be 'labels' or 'probabilities', not {form!r}")
    for feature in feature_map.features:
        hidden = [n for n, _ in feature.event if n != LABEL and not feature_map.attributes[n].known]
        if len(hidden) > 1:
            raise OptionError(
                f"a rule refers to {' and '.join(hidden)} together, of which only probabilities are known: "
                "use to_sql or to_python, with Columns(groups=...) of their combinations"
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
    """Return the name of one column."""
    if part == "probabilities" and columns.complement is not None:
        return columns.probabilities[0]
    roles: Any = columns.probabilities if part == "probabilities" else getattr(columns, part)[name]
    for i in place:
        roles = list(roles.values() if isinstance(roles, Mapping) else roles)[i]
    return roles


def is_complement(columns: Columns, part: str, place: Sequence[int]) -> bool:
    """Return whether a cell is one less its column, as with one column for two classes."""
    return part == "probabilities" and list(place) == [columns.complement]
