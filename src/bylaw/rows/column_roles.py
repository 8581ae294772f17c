"""Find out which column of a table is what: as its owner states, or as its name makes obvious."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bylaw._base.typing import Value
from bylaw.errors import EvidenceError, Remedy
from bylaw.language.expressions import CHANGED
from bylaw.language.problem import Problem
from bylaw.rows.columns import Columns
from bylaw.rows.text_values import format_value, match_value, parse_values

ROLES = (
    "probabilities",
    "positive",
    "classes",
    "groups",
    "group_probabilities",
    "true_groups",
    "joint",
    "references",
    "costs",
    "label",
    "weight",
    "propensity_weights",
    "id",
    "normalize",
)
_OBVIOUS = {
    "probabilities": ("p_*", "prob_*", "proba_*", "probability_*"),
    "positive": ("score", "probability", "proba", "prob", "p"),  # one column for two classes
    "label": ("label", "y", "target", "outcome"),
    "weight": ("weight", "weights", "sample_weight"),
    "propensity_weights": (),  # never obvious
    "id": ("id",),
}
OBVIOUS_LABELS = _OBVIOUS["label"]
MAX_SHOWN = 12  # columns in a remark, which is one line


def find_columns(
    stated: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """Return the columns of a table for a problem, from what is stated and what is obvious.

    Parameters
    ----------
    stated : dict
        columns by role, of `ROLES`; they go before what is obvious.
    names : sequence of str
        the columns of the table.
    problem : Problem
        whose rules tell which groups, earlier models and costs are needed.
    without : sequence of str, optional
        roles that are not looked for.

    Returns
    -------
    columns : Columns
    guessed : list of str
        what was not stated, in words.

    Raises
    ------
    EvidenceError
        that names the role that no column has, or several may have; its remedy tells what to state.
    """
    finder = _Finder(stated, names, problem, without)
    return finder.find(), finder.guessed


def order_columns(stated: Any, names: Sequence[str], wanted: Sequence[Value], role: str) -> list[str]:
    """Return one column for each wanted value, by a pattern with a star, or as a list in their order."""
    return _Finder({}, names, Problem("error()")).order(stated, wanted, role)


def as_mapping(stated: Any) -> dict[str, Any]:
    """Return {name: column} of a name, a list of names, or a table."""
    if isinstance(stated, str):
        return {stated: stated}
    return dict(stated) if isinstance(stated, Mapping) else {name: name for name in stated or ()}


class _Finder:
    """Finds columns by role among the names of a table, and notes what it guesses."""

    def __init__(
        self, stated: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str] = ()
    ) -> None:
        self.stated, self.names, self.problem, self.without = stated, list(names), problem, without
        self.guessed: list[str] = []

    def find(self) -> Columns:
        """Return all columns."""
        for role, known in (("references", self.problem.references), ("costs", self.problem.arrays)):
            for name in as_mapping(self.stated.get(role)):
                if name not in known:
                    raise EvidenceError(
                        f"{role}.{name}: no rule refers to {name!r}; they refer to {list(known)}"
                    )
        probabilities, classes = self.find_classes()
        options = self.problem.list_options(tuple(classes))
        groups = self.find_groups()
        return Columns(
            probabilities=probabilities,
            classes=classes,
            groups=groups,
            joint={
                name: self.find_joint(name, one, groups, classes)
                for name, one in as_mapping(self.stated.get("joint")).items()
            },
            references={
                name: self.find_reference(name, [*classes, *options]) for name in self.problem.references
            },
            costs={name: self.find_cost(name, classes) for name in self.problem.arrays},
            weights=self.find_single("weight"),
            normalize=bool(self.stated.get("normalize")),
            true_groups=self.find_true_groups(groups),
            label=self.find_single("label") if classes or self.stated.get("label") else None,
            id=self.find_single("id"),
            propensity_weights=self.find_single("propensity_weights"),
            options=options,
            positive=self.match_positive(classes) if len(probabilities) == 1 else None,
        )

    def find_classes(self) -> tuple[list[str], list[Value]]:
        """Return the columns of probabilities, and their classes; none if all decisions are options."""
        stated = self.stated.get("probabilities")
        obvious = [p for p in _OBVIOUS["probabilities"] if len(self.match(p)) > 1]
        listed = not isinstance(self.problem.decisions, str) and not self.stated.get("classes")
        if listed and not stated and (stated is not None or not obvious):
            return [], []
        if self.stated.get("positive") is not None:
            return self.find_two_classes(stated)
        if stated is None:
            if len(obvious) != 1:
                raise EvidenceError(
                    f"which columns hold the model's probabilities, among {self.names}? There must be one "
                    "for each class; or, of two classes, one column and the name of its class",
                    Remedy("choose_probabilities"),
                )
            stated = obvious[0]
            shown = list(self.match(stated).values())
            more = f" and {len(shown) - MAX_SHOWN} more" if len(shown) > MAX_SHOWN else ""
            self.guessed.append(
                f"probabilities are {stated}: the columns {', '.join(shown[:MAX_SHOWN])}{more}"
            )
        stars = self.expand(stated, "probabilities")
        if len(stars) < 2:
            raise EvidenceError("probabilities: there must be a column for each of two classes or more")
        classes = list(self.stated.get("classes") or stars)
        if len(classes) != len(stars):
            raise EvidenceError(
                f"there are {len(classes)} classes, but {len(stars)} columns of probabilities"
            )
        if not isinstance(stated, str):
            return list(stars.values()), classes
        by_name = {str(value): column for value, column in stars.items()}
        if {str(label) for label in classes} != set(by_name):
            raise EvidenceError(
                f"the columns {stated} are named after {list(by_name)}, but the classes are {classes}",
                Remedy("list_columns"),
            )
        return [by_name[str(label)] for label in classes], classes

    def find_two_classes(self, stated: Any) -> tuple[list[str], list[Value]]:
        """Return the one column of scores, and two classes that are stated."""
        positive = self.stated["positive"]
        if stated is None:
            patterns = [pattern.replace("*", str(positive)) for pattern in _OBVIOUS["probabilities"]]
            found = [name for name in (*_OBVIOUS["positive"], *patterns) if name in self.names]
            if len(found) != 1:
                raise EvidenceError(
                    f"which column holds the scores of {positive!r}, among {self.names}?",
                    Remedy("choose_scores"),
                )
            self.guessed.append(f"the probability of {positive!r} is the column {found[0]}")
            stated = found
        columns = [stated] if isinstance(stated, str) else list(stated)
        if len(columns) != 1 or "*" in columns[0]:
            raise EvidenceError(
                f"positive={positive!r} goes with one column of scores, that of this class, not with {stated}"
            )
        classes: list[Value] = list(self.stated.get("classes") or ())
        if len(classes) != 2:
            raise EvidenceError(
                f"what is the class beside {positive!r} called? There are two, where one column holds scores"
                + (f", not {classes}" if classes else ""),
                Remedy("name_classes", str(positive)),
            )
        return [self.check(columns[0], "probabilities")], classes

    def match_positive(self, classes: Sequence[Value]) -> Value:
        """Return the class that is stated as text or as itself."""
        positive = self.stated["positive"]
        found = next((value for value in classes if value == positive), None)
        found = match_value(str(positive), classes) if found is None else found
        if found is None:
            raise EvidenceError(f"positive={positive!r} is none of the classes {list(classes)}")
        return found

    def find_groups(self) -> dict[str, Any]:
        """Return each attribute's column of values, or its columns of probabilities."""
        known = as_mapping(self.stated.get("groups"))
        unknown = as_mapping(self.stated.get("group_probabilities"))
        if both := [name for name in known if name in unknown]:
            raise EvidenceError(
                f"{both[0]} is in groups and in group_probabilities: is it known when a decision is made?"
            )
        found: dict[str, Any] = {name: self.check(column, name) for name, column in known.items()}
        found |= {name: self.expand(columns, name) for name, columns in unknown.items()}
        return found | {name: self.guess_group(name) for name in self.problem.attributes if name not in found}

    def guess_group(self, name: str) -> str | dict[Value, str]:
        """Return the column of this name, or those that begin with it."""
        matching, known = self.match(f"{name}_*"), name in self.names
        if len(matching) > 1 and known:
            raise EvidenceError(
                f"is {name} the column {name}, or known only by its probabilities {name}_*?",
                Remedy("choose_group", name),
            )
        if len(matching) < 2 and not known:
            raise EvidenceError(
                f"a rule refers to {name!r}, but there is no column {name!r} and there are no columns "
                f"{name}_* among {self.names}",
                Remedy("pass_groups", name),
            )
        self.guessed.append(
            f"{name} is the column {name}" if known else f"{name} is known by its probabilities {name}_*"
        )
        return name if known else matching

    def find_true_groups(self, groups: Mapping[str, Any]) -> dict[str, str]:
        """Return the columns of observed values of groups that are known by probabilities."""
        stated = as_mapping(self.stated.get("true_groups"))
        found = {name: self.check(column, name) for name, column in stated.items()}
        if idle := [name for name in found if isinstance(groups.get(name, ""), str)]:
            raise EvidenceError(f"true_groups.{idle[0]} goes with group_probabilities.{idle[0]}")
        for name, columns in groups.items():
            if not isinstance(columns, str) and name not in found and name in self.names:
                found[name] = name
                self.guessed.append(f"the true {name}, where it is needed, is the column {name}")
        return found

    def find_joint(
        self, name: str, stated: Any, groups: Mapping[str, Any], classes: Sequence[Value]
    ) -> list[list[str]]:
        """Return a row of columns for each value, as stated or by a pattern with stars: value and class."""
        if name not in groups or isinstance(groups[name], str):
            raise EvidenceError(f"joint.{name} goes with group_probabilities.{name}")
        if isinstance(stated, str):
            if stated.count("*") != 2:
                raise EvidenceError(
                    f"joint.{name} must be a pattern with two stars, value and class: 'j_*_*'"
                )
            first, middle, last = stated.split("*")
            stated = [[f"{first}{value}{middle}{label}{last}" for label in classes] for value in groups[name]]
        if [len(row) for row in stated] != [len(classes)] * len(groups[name]):
            raise EvidenceError(
                f"joint.{name} must have {len(groups[name])} lists, one for each of "
                f"{list(groups[name])}, of {len(classes)} columns each"
            )
        return [[self.check(column, f"joint.{name}") for column in row] for row in stated]

    def find_reference(self, name: str, classes: Sequence[Value]) -> Any:
        """Return an earlier model's column of labels, or a column of probabilities for each class."""
        stated = as_mapping(self.stated.get("references")).get(name)
        if stated is None:
            if name not in self.names and len(self.match(f"{name}_*")) < 2:
                raise EvidenceError(
                    f"a rule refers to the earlier model {name!r}, but there is no column {name!r} and there "
                    f"are no columns {name}_* among {self.names}",
                    Remedy("pass_reference", name),
                )
            stated = name if name in self.names else f"{name}_*"
            self.guessed.append(f"the earlier model {name!r} is {stated}")
        if isinstance(stated, str) and "*" not in stated:
            return self.check(stated, f"references.{name}")
        return self.order(stated, classes, f"references.{name}")

    def find_cost(self, name: str, classes: Sequence[Value]) -> list[str]:
        """Return a column of a cost for each action."""
        stated = as_mapping(self.stated.get("costs")).get(name)
        if stated is None:
            stated = f"{name}_*"
            if len(self.match(stated)) < 2:
                raise EvidenceError(
                    f"a rule refers to custom({name!r}), but there are no columns {stated} among "
                    f"{self.names}",
                    Remedy("pass_changes" if name == CHANGED else "pass_costs", name),
                )
            self.guessed.append(f"the cost {name!r} is {stated}")
        actions = self.problem.action_space(tuple(classes)).actions
        return self.order(stated, actions, f"costs.{name}")

    def find_single(self, role: str) -> str | None:
        """Return the column of a role that one column has, if there is one."""
        stated = self.stated.get(role)
        if role in self.without:
            return None
        if stated is not None:
            return self.check(stated, role)
        found = [name for name in _OBVIOUS[role] if name in self.names]
        if len(found) > 1:
            raise EvidenceError(
                f"which column is the {role}, {' or '.join(found)}?",
                Remedy("choose_column", role, tuple(found)),
            )
        if not found:
            return None
        self.guessed.append(f"{role} is the column {found[0]}")
        return found[0]

    def order(self, stated: Any, wanted: Sequence[Value], role: str) -> list[str]:
        """Return columns in the order of the values that they stand for; a list is in order already."""
        if not isinstance(stated, str | Mapping):
            if len(stated) != len(wanted):
                raise EvidenceError(f"{role} must have {len(wanted)} columns, in the order {list(wanted)}")
            return [self.check(name, role) for name in stated]
        stars = {format_value(value): column for value, column in self.expand(stated, role).items()}
        missing = [value for value in wanted if format_value(value) not in stars]
        if missing:
            raise EvidenceError(f"{role} has no column for {missing[0]!r}; it has {list(stars.values())}")
        return [stars[format_value(value)] for value in wanted]

    def check(self, name: Any, role: str) -> str:
        """Return the name of a column, or raise if the table has no such column."""
        if name not in self.names:
            raise EvidenceError(f"{role}: the table has no column {name!r}; it has {self.names}")
        return name

    def expand(self, stated: Any, role: str) -> dict[Value, str]:
        """Return columns by what they stand for: the text at the star of a pattern, or else their names."""
        if isinstance(stated, Mapping):
            return {value: self.check(column, role) for value, column in stated.items()}
        if not isinstance(stated, str):
            return {self.check(name, role): name for name in stated}
        if role == "probabilities" and stated in self.names:
            raise EvidenceError(
                f"{stated!r} is one column of scores: of two classes, which is it the probability of?",
                Remedy("choose_positive"),
            )
        found = self.match(stated) if stated.count("*") == 1 else {}
        if len(found) < 2:
            raise EvidenceError(
                f"{role}: {stated!r} must be a pattern with one star that two or more columns match; the "
                f"table has {self.names}"
            )
        return found

    def match(self, pattern: str) -> dict[Value, str]:
        """Return the columns that match a pattern, by what is at its star."""
        first, _, last = pattern.rpartition("*")  # the name of a group may have a star, too
        matching = [
            name
            for name in self.names
            if name.startswith(first) and name.endswith(last) and len(name) > len(first) + len(last)
        ]
        parts = [name[len(first) : len(name) - len(last)] for name in matching]
        return dict(zip(parse_values(parts), matching, strict=True))
