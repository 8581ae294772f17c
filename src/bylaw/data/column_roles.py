"""Which column of a table is what: as its owner says, or as its name makes obvious."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bylaw._base.typing import Value
from bylaw.data.columns import Columns
from bylaw.data.text_values import spelled, values_of
from bylaw.errors import EvidenceError
from bylaw.language.problem import Problem

ROLES = (
    "probabilities",
    "classes",
    "groups",
    "group_probabilities",
    "true_groups",
    "joint",
    "references",
    "costs",
    "label",
    "weight",
    "id",
    "normalize",
)
_OBVIOUS = {
    "probabilities": ("p_*", "prob_*", "proba_*", "probability_*"),
    "label": ("label", "y", "target", "outcome"),
    "weight": ("weight", "weights", "sample_weight"),
    "id": ("id",),
}
_SHOWN = 12  # columns or classes in a remark


@dataclass(frozen=True)
class Roles:
    """The columns that a policy reads, and those that only a fit or an audit reads."""

    columns: Columns
    label: str | None = None
    id: str | None = None
    true_groups: Mapping[str, str] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()  # what was not said, in words

    @property
    def needed(self) -> list[str]:
        """The columns of evidence, each once."""
        columns = self.columns
        nested = [columns.probabilities, columns.groups, columns.joint, columns.references, columns.costs]
        return list(dict.fromkeys(_leaves([*nested, columns.weights])))

    @property
    def numbers(self) -> list[str]:
        """Columns that hold numbers."""
        columns = self.columns
        unknown = [names for names in columns.groups.values() if not isinstance(names, str)]
        models = [names for names in columns.references.values() if not isinstance(names, str)]
        nested = [columns.probabilities, unknown, columns.joint, models, columns.costs, columns.weights]
        return list(dict.fromkeys(_leaves(nested)))

    def values(self, groups: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
        """Columns that hold labels or groups, and the values that they may have: `groups` has those known."""
        columns = self.columns
        unknown = {a: tuple(n) for a, n in columns.groups.items() if not isinstance(n, str)}
        groups = {**unknown, **groups}
        found = {n: groups.get(a, ()) for a, n in columns.groups.items() if isinstance(n, str)}
        found |= {n: groups.get(a, ()) for a, n in self.true_groups.items()}
        labels = [n for n in (self.label, *columns.references.values()) if isinstance(n, str)]
        return found | dict.fromkeys(labels, columns.classes or ())

    def deciding(self) -> Roles:
        """Those that a decision needs: without the truth, and without weights."""
        return replace(self, columns=replace(self.columns, weights=None), label=None, true_groups={})

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the values of groups are kept beside their columns, since JSON has text keys only."""
        plain = {
            **asdict(self.columns),
            "label": self.label,
            "id": self.id,
            "true_groups": dict(self.true_groups),
        }
        plain["groups"] = {
            name: columns
            if isinstance(columns, str)
            else [[value, column] for value, column in columns.items()]
            for name, columns in self.columns.groups.items()
        }
        return plain

    def said(self, names: Sequence[str]) -> dict[str, Any]:
        """As an owner of another table with these columns would say it, for `find_roles`."""
        columns = self.columns
        singles = {"label": self.label, "weight": columns.weights, "id": self.id}
        return {
            "probabilities": list(columns.probabilities),
            "classes": columns.classes,
            "groups": {name: found for name, found in columns.groups.items() if isinstance(found, str)},
            "group_probabilities": {
                n: found for n, found in columns.groups.items() if not isinstance(found, str)
            },
            "true_groups": {name: column for name, column in self.true_groups.items() if column in names},
            "joint": columns.joint,
            "references": columns.references,
            "costs": columns.costs,
            "normalize": columns.normalize,
            **{role: name for role, name in singles.items() if name in names},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Roles:
        """Of a policy's card, which may be anybody's."""
        try:
            known = {name: content[name] for name in Columns.__dataclass_fields__ if name in content}
            known["groups"] = {
                name: columns if isinstance(columns, str) else dict(columns)
                for name, columns in known["groups"].items()
            }
            roles = cls(
                Columns(**known), content["label"], content["id"], dict(content["true_groups"].items())
            )
            names = [*roles.needed, *roles.true_groups.values()]
            names += [name for name in (roles.label, roles.id) if name is not None]
            lists = [known["probabilities"], known["classes"]]
            maps = [known["joint"], known["references"], known["costs"]]
            if not (
                all(isinstance(name, str) for name in names)
                and all(isinstance(value, list) and value for value in lists)
                and all(isinstance(value, dict) for value in maps)
            ):
                raise TypeError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise EvidenceError(
                "the policy does not say which columns it reads; say so: probabilities = ..., groups = ..."
            ) from None
        return roles


def _leaves(value: Any) -> Iterator[str]:
    """The column names in nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif value is not None and not isinstance(value, str):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)


def find_roles(
    said: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str] = ()
) -> Roles:
    """The roles of a table's columns for a problem, from what was said and what is obvious; those `without`
    which it is fine are not looked for.

    Raises
    ------
    EvidenceError
        that names the role that no column has.
    """
    return _Finder(said, names, problem, without).roles()


class _Finder:
    def __init__(
        self, said: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str]
    ) -> None:
        self.said, self.names, self.problem, self.without = said, list(names), problem, without
        self.guessed: list[str] = []

    def roles(self) -> Roles:
        self._check_used("references", self.problem.references)
        self._check_used("costs", self.problem.arrays)
        probabilities, classes = self._classes()
        groups = self._groups()
        columns = Columns(
            probabilities=probabilities,
            classes=classes,
            groups=groups,
            joint={name: self._joint(name, groups, classes) for name in named(self.said.get("joint"))},
            references={name: self._reference(name, classes) for name in self.problem.references},
            costs={name: self._cost(name, classes) for name in self.problem.arrays},
            weights=self._single("weight"),
            normalize=bool(self.said.get("normalize")),
        )
        true_groups = self._true_groups(groups)
        return Roles(columns, self._single("label"), self._single("id"), true_groups, tuple(self.guessed))

    def _check_used(self, role: str, known: Sequence[str]) -> None:
        for name in named(self.said.get(role)):
            if name not in known:
                raise EvidenceError(f"{role}.{name}: no rule speaks of {name!r}; they speak of {list(known)}")

    def _classes(self) -> tuple[list[str], list[Value]]:
        said = self.said.get("probabilities")
        if said is None:
            fitting = [p for p in _OBVIOUS["probabilities"] if len(self._matching(p)) > 1]
            if len(fitting) != 1:
                raise EvidenceError(
                    'which columns hold the model\'s probabilities? Say so: probabilities = "p_*" or a list '
                    "of columns, one for each class (with two classes, the other one is 1 less the first). "
                    f"The table has {self.names}"
                )
            said = fitting[0]
            shown = list(self._matching(said).values())
            more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            self.guessed.append(f"probabilities are {said}: the columns {', '.join(shown[:_SHOWN])}{more}")
        stars = self._stars(said, "probabilities")
        if len(stars) < 2:
            raise EvidenceError("probabilities: there must be a column for each of two classes or more")
        classes = list(self.said.get("classes") or stars)
        if len(classes) != len(stars):
            raise EvidenceError(
                f"there are {len(classes)} classes, but {len(stars)} columns of probabilities"
            )
        if not isinstance(said, str):
            return list(stars.values()), classes
        by_name = {str(value): column for value, column in stars.items()}
        if {str(label) for label in classes} != set(by_name):
            raise EvidenceError(
                f"the columns {said} are named after {list(by_name)}, but the classes are {classes}: give "
                "the columns as a list, in the order of the classes"
            )
        return [by_name[str(label)] for label in classes], classes

    def _groups(self) -> dict[str, Any]:
        """Each attribute's column of values, or its columns of probabilities."""
        known, unknown = named(self.said.get("groups")), named(self.said.get("group_probabilities"))
        if both := [name for name in known if name in unknown]:
            raise EvidenceError(
                f"{both[0]} stands in groups and in group_probabilities: is it known when a decision is made?"
            )
        found: dict[str, Any] = {name: self._column(column, name) for name, column in known.items()}
        found |= {name: self._stars(columns, name) for name, columns in unknown.items()}
        for name in self.problem.attributes:
            if name in found:
                continue
            matching = self._matching(f"{name}_*")
            if len(matching) > 1 and name in self.names:
                raise EvidenceError(
                    f"is {name} the column {name}, or known only by its probabilities {name}_*? Say "
                    f'groups = ["{name}"] or group_probabilities = {{ {name} = "{name}_*" }}; on the command '
                    f"line, --group {name} or --group-probabilities '{name}={name}_*'"
                )
            if len(matching) > 1:
                found[name] = matching
                self.guessed.append(f"{name} is known by its probabilities {name}_*")
            elif name in self.names:
                found[name] = name
                self.guessed.append(f"{name} is the column {name}")
            else:
                raise EvidenceError(
                    f"a rule speaks of {name!r}, but there is no column {name!r} and there are no columns "
                    f'{name}_*: say groups = {{{name} = "its column"}}. The table has {self.names}'
                )
        return found

    def _true_groups(self, groups: Mapping[str, Any]) -> dict[str, str]:
        """Where a group is known by probabilities only, the column of what was seen."""
        found = {
            name: self._column(column, name) for name, column in named(self.said.get("true_groups")).items()
        }
        if idle := [name for name in found if isinstance(groups.get(name, ""), str)]:
            raise EvidenceError(f"true_groups.{idle[0]} goes with group_probabilities.{idle[0]}")
        for name, columns in groups.items():
            if not isinstance(columns, str) and name not in found and name in self.names:
                found[name] = name
                self.guessed.append(f"the true {name}, where it is needed, is the column {name}")
        return found

    def _joint(self, name: str, groups: Mapping[str, Any], classes: Sequence[Value]) -> list[list[str]]:
        """A pattern with two stars, for the value and for the class."""
        pattern = named(self.said["joint"])[name]
        if name not in groups or isinstance(groups[name], str):
            raise EvidenceError(f"joint.{name} goes with group_probabilities.{name}")
        if not isinstance(pattern, str):
            if [len(row) for row in pattern] != [len(classes)] * len(groups[name]):
                raise EvidenceError(
                    f"joint.{name} must have {len(groups[name])} lists, one for each of "
                    f"{list(groups[name])}, of {len(classes)} columns each"
                )
            return [[self._column(column, f"joint.{name}") for column in row] for row in pattern]
        if pattern.count("*") != 2:
            raise EvidenceError(f"joint.{name} must be a pattern with two stars, value and class: 'j_*_*'")
        first, middle, last = pattern.split("*")
        rows = [[f"{first}{value}{middle}{label}{last}" for label in classes] for value in groups[name]]
        return [[self._column(column, f"joint.{name}") for column in row] for row in rows]

    def _reference(self, name: str, classes: Sequence[Value]) -> Any:
        """One column of labels, or one of probabilities for each class."""
        said = named(self.said.get("references")).get(name)
        if said is None:
            if name not in self.names and len(self._matching(f"{name}_*")) < 2:
                raise EvidenceError(
                    f"a rule speaks of the earlier model {name!r}, but there is no column {name!r} and there "
                    f"are no columns {name}_*: say references = {{{name} = 'its column'}}. The table has "
                    f"{self.names}"
                )
            said = name if name in self.names else f"{name}_*"
            self.guessed.append(f"the earlier model {name!r} is {said}")
        if isinstance(said, str) and "*" not in said:
            return self._column(said, f"references.{name}")
        return self._in_order(said, classes, f"references.{name}")

    def _cost(self, name: str, classes: Sequence[Value]) -> list[str]:
        said = named(self.said.get("costs")).get(name, f"{name}_*")
        if name not in named(self.said.get("costs")):
            self.guessed.append(f"the cost {name!r} is {said}")
        actions = self.problem.action_space(tuple(classes)).actions
        return self._in_order(said, actions, f"costs.{name}")

    def _in_order(self, said: Any, wanted: Sequence[Value], role: str) -> list[str]:
        """Columns by what they stand for, as it is spelled; a list of columns is in order already."""
        if not isinstance(said, str | Mapping):
            if len(said) != len(wanted):
                raise EvidenceError(f"{role} must have {len(wanted)} columns, in the order {list(wanted)}")
            return [self._column(name, role) for name in said]
        stars = {spelled(value): column for value, column in self._stars(said, role).items()}
        missing = [value for value in wanted if spelled(value) not in stars]
        if missing:
            raise EvidenceError(f"{role} has no column for {missing[0]!r}; it has {list(stars.values())}")
        return [stars[spelled(value)] for value in wanted]

    def _single(self, role: str) -> str | None:
        said = self.said.get(role)
        if role in self.without:
            return None
        if said is not None:
            return self._column(said, role)
        found = [name for name in _OBVIOUS[role] if name in self.names]
        if len(found) > 1:
            raise EvidenceError(
                f'which column is the {role}, {" or ".join(found)}? Say {role} = "{found[0]}", or '
                f"--{role} {found[0]}"
            )
        if not found:
            return None
        self.guessed.append(f"{role} is the column {found[0]}")
        return found[0]

    def _column(self, name: Any, role: str) -> str:
        if name not in self.names:
            raise EvidenceError(f"{role}: the table has no column {name!r}; it has {self.names}")
        return name

    def _stars(self, said: Any, role: str) -> dict[Value, str]:
        """What each column stands for: the text at the star of a pattern, or else its own name."""
        if isinstance(said, Mapping):
            return {value: self._column(column, role) for value, column in said.items()}
        if isinstance(said, str):
            found = self._matching(said) if said.count("*") == 1 else {}
            if len(found) < 2:
                raise EvidenceError(
                    f"{role}: {said!r} must be a pattern with one star that two or more columns match; the "
                    f"table has {self.names}"
                )
            return found
        return {self._column(name, role): name for name in said}

    def _matching(self, pattern: str) -> dict[Value, str]:
        first, _, last = pattern.rpartition("*")  # the name of a group may have a star, too
        matching = [
            name
            for name in self.names
            if name.startswith(first) and name.endswith(last) and len(name) > len(first) + len(last)
        ]
        parts = [name[len(first) : len(name) - len(last)] for name in matching]
        return dict(zip(values_of(parts), matching, strict=True))


def named(said: Any) -> dict[str, Any]:
    """{name: column} of a name, of a list of names, or of a table."""
    if isinstance(said, str):
        return {said: said}
    return dict(said) if isinstance(said, Mapping) else {name: name for name in said or ()}
