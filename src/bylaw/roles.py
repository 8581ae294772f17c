"""Which column of a table is what: as its owner says, or as its name makes obvious."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bylaw.algebra import Value
from bylaw.errors import EvidenceError
from bylaw.problem import Problem
from bylaw.tables import Columns

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
            names = [*roles.needed, *roles.true_groups.values(), *(n for n in (roles.label, roles.id) if n)]
            if not all(isinstance(name, str) for name in names) or not isinstance(known["classes"], list):
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


def find_roles(said: Mapping[str, Any], names: Sequence[str], problem: Problem) -> Roles:
    """The roles of a table's columns for a problem, from what was said and what is obvious.

    Raises
    ------
    EvidenceError
        that names the role that no column has.
    """
    return _Finder(said, names, problem).roles()


class _Finder:
    def __init__(self, said: Mapping[str, Any], names: Sequence[str], problem: Problem) -> None:
        self.said, self.names, self.problem = said, list(names), problem
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
                    f"of columns. The table has {self.names}"
                )
            said = fitting[0]
            self.guessed.append(f"probabilities are the columns {said}")
        stars = self._stars(said, "probabilities")
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
        found: dict[str, Any] = {name: self._column(column, name) for name, column in known.items()}
        found |= {name: self._stars(columns, name) for name, columns in unknown.items()}
        for name in self.problem.attributes:
            if name in found:
                continue
            if len(matching := self._matching(f"{name}_*")) > 1:
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
        if not isinstance(pattern, str):
            return [[self._column(column, f"joint.{name}") for column in row] for row in pattern]
        if name not in groups or isinstance(groups[name], str):
            raise EvidenceError(f"joint.{name} goes with group_probabilities.{name}")
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
        return self._in_order(self._stars(said, f"references.{name}"), classes, f"references.{name}")

    def _cost(self, name: str, classes: Sequence[Value]) -> list[str]:
        said = named(self.said.get("costs")).get(name, f"{name}_*")
        if name not in named(self.said.get("costs")):
            self.guessed.append(f"the cost {name!r} is {said}")
        actions = self.problem.decisions_over(tuple(classes)).actions
        return self._in_order(self._stars(said, f"costs.{name}"), actions, f"costs.{name}")

    def _in_order(self, stars: Mapping[Value, str], wanted: Sequence[Value], role: str) -> list[str]:
        """Columns by what their star stands for; a list of columns is in order already."""
        if set(stars) == set(stars.values()) and len(stars) == len(wanted):
            return list(stars.values())
        missing = [value for value in wanted if value not in stars]
        if missing:
            raise EvidenceError(f"{role} has no column for {missing[0]!r}; it has {list(stars.values())}")
        return [stars[value] for value in wanted]

    def _single(self, role: str) -> str | None:
        said = self.said.get(role)
        if said is not None:
            return self._column(said, role)
        found = [name for name in _OBVIOUS[role] if name in self.names]
        if len(found) != 1:
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
        first, last = pattern.split("*")
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


def values_of(texts: Sequence[str]) -> list[Value]:
    """Whole numbers or truth values where all texts are, and otherwise the texts."""
    if all(text.lstrip("-").isdecimal() and str(int(text)) == text for text in texts):
        return [int(text) for text in texts]
    truth = {"true": True, "false": False}
    if texts and all(text.lower() in truth for text in texts):
        return [truth[text.lower()] for text in texts]
    return list(texts)
