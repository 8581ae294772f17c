"""Which column holds what, checked against what a policy needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from bylaw._base.typing import Value
from bylaw._base.validation import as_scalar
from bylaw.errors import OptionError
from bylaw.language.expressions import LABEL
from bylaw.program.linear_form import Attribute, FeatureMap
from bylaw.rows.columns import Columns
from bylaw.rows.groups import find_combination

ReferenceForm = Literal["labels", "probabilities"]
NORMALIZED = "an export takes probabilities as they are: divide them by their sum in the table"


class Layout:
    """The columns that a policy reads; an `OptionError` names what is missing."""

    def __init__(self, feature_map: FeatureMap, columns: Columns) -> None:
        if columns.normalize:
            raise OptionError(NORMALIZED)
        self.feature_map = feature_map
        self.columns = columns
        self.references = feature_map.reference_names
        self.costs = feature_map.cost_names
        self._check_classes()
        for name, attribute in feature_map.attributes.items():
            self._check_group(name, attribute)
        for name in self.references:
            self._check_reference(name)
        for name in self.costs:
            self._check_cost(name)

    def has_labels(self, reference: str) -> bool:
        """Return whether an earlier model comes as one column of labels, not as probabilities."""
        return isinstance(self.columns.references[reference], str)

    def list_values(self, name: Any) -> tuple[Any, ...]:
        """Return the values of an unknown attribute in the order of its columns; of several, tuples."""
        model = self.find_model(name)
        values = tuple(_as_plain_value(value, name) for value in self.columns.groups[model])
        if model == name:
            return values
        return tuple(dict.fromkeys(value[model.index(name)] for value in values))

    def find_model(self, name: Any) -> Any:
        """Return the attribute itself, or the attributes of which only combinations are known."""
        if name in self.columns.groups:
            return name
        found = [names for names in self.columns.groups if isinstance(names, tuple) and name in names]
        if not found:
            raise OptionError(
                f"the policy needs {name!r} to decide; state which columns hold it: "
                f"Columns(groups={{{name!r}: ...}})"
            )
        return found[0]

    def find_combined(self, hidden: Mapping[str, Value]) -> tuple[Any, Any]:
        """Return the model of these unknown attributes, and their value in it."""
        if (found := find_combination(self.columns.groups, hidden)) is not None:
            return found
        raise OptionError(
            f"a rule refers to {' and '.join(hidden)} together, of which only probabilities are known: pass "
            f"the columns of their combinations, Columns(groups={{{tuple(hidden)!r}: "
            f"{{{tuple(hidden.values())!r}: a column, ...}}}})"
        )

    def check_joint(self, name: Any) -> None:
        """Raise unless there are columns of P(name, label | x)."""
        classes = self.feature_map.action_space.classes
        shape = (len(self.list_values(name)), len(classes))
        rows = self.columns.joint.get(name)
        if rows is None or (len(rows), *{len(row) for row in rows}) != shape:
            raise OptionError(
                f"a rule on {name!r} and the label together, with unknown {name!r}, needs the columns of "
                f"P({name}, label | x): Columns(joint={{{name!r}: ...}}), {shape[0]} rows of {shape[1]} each"
            )

    @property
    def reference_columns(self) -> tuple[Value, ...]:
        """What the columns of an earlier model's probabilities stand for: classes, then options."""
        options = [as_scalar(option, "an option") for option in self.columns.options]
        return (*self.feature_map.action_space.classes, *options)

    def _check_classes(self) -> None:
        classes = self.columns.probabilities if self.columns.classes is None else self.columns.classes
        wanted = self.feature_map.action_space.classes
        if tuple(as_scalar(label, "a class") for label in classes) != wanted:
            raise OptionError(
                f"the policy decides among the classes {list(wanted)}, in this order; the columns are of "
                f"{list(classes)}. Pass Columns(probabilities=[one column each], classes={list(wanted)})"
            )
        if self.columns.complement is None and len(self.columns.probabilities) != len(wanted):
            raise OptionError(f"probabilities takes one column for each class of {list(wanted)}")
        options = self.feature_map.action_space.options
        if self.columns.options and self.reference_columns[len(wanted) :] != options:
            raise OptionError(
                f"the policy decides among the options {list(options)}, in this order; the columns are of "
                f"{list(self.columns.options)}"
            )

    def _check_group(self, name: str, fitted: Attribute) -> None:
        model = self.find_model(name)
        if isinstance(self.columns.groups[model], str) != fitted.known:
            was = "values" if fitted.known else "probabilities"
            wanted = "one column" if fitted.known else "a dict {value: column of probabilities}"
            raise OptionError(f"the policy was fitted with {was} of {name!r}; pass {wanted}, as then")
        if not fitted.known and set(self.list_values(name)) != set(fitted.values):
            raise OptionError(
                f"{name} has columns for {list(self.list_values(name))}; pass one for each value that the "
                f"policy knows, {list(fitted.values)}"
            )

    def _check_reference(self, name: str) -> None:
        roles = self.columns.references.get(name)
        if roles is None:
            raise OptionError(
                f"a rule refers to {name!r}; state which column holds its labels: "
                f"Columns(references={{{name!r}: ...}})"
            )
        space = self.feature_map.action_space
        if isinstance(roles, str):
            return
        if space.named_options and not self.columns.options:
            raise OptionError(
                f"references[{name!r}] takes one column of decisions; or one column for each of "
                f"{list(space.actions)}, with Columns(options={list(space.options)})"
            )
        if len(roles) != len(self.reference_columns):
            raise OptionError(f"references[{name!r}] takes one column of labels, or one column per class")

    def _check_cost(self, name: str) -> None:
        actions = self.feature_map.action_space.actions
        if len(self.columns.costs.get(name, ())) != len(actions):
            raise OptionError(
                f"a rule refers to custom({name!r}); state which columns hold it, one for each action of "
                f"{list(actions)}: Columns(costs={{{name!r}: [...]}})"
            )


def default_columns(
    feature_map: FeatureMap, references: Mapping[str, ReferenceForm] | None = None
) -> Columns:
    """Return a column for everything that the policy may read, named after it."""
    space = feature_map.action_space
    classes, options = space.classes, space.named_options
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
    hidden_names = [name for name, attribute in feature_map.attributes.items() if not attribute.known]
    return Columns(
        probabilities=[str(label) for label in classes],
        classes=classes,
        groups={
            name: name if a.known else {value: f"{name}={value}" for value in a.values}
            for name, a in feature_map.attributes.items()
        },
        joint={
            name: [
                [f"{name}={v}, label={label}" for label in classes]
                for v in feature_map.attributes[name].values
            ]
            for name in hidden_names
        },
        references={
            name: name if form == "labels" else [f"{name}: {label}" for label in (*classes, *options)]
            for name, form in forms.items()
        },
        costs={
            name: [f"{name}: {a}" for a in feature_map.action_space.actions]
            for name in feature_map.cost_names
        },
        options=options,
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


def _as_plain_value(value: Any, name: Any) -> Any:
    return (
        tuple(as_scalar(v, f"a value of {name}") for v in value)
        if isinstance(value, tuple)
        else as_scalar(value, name)
    )
