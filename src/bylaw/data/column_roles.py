"""Which column of a table is what: as its owner states, or as its name makes obvious."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bylaw._base.typing import Value
from bylaw.data.columns import Columns, list_names
from bylaw.data.text_values import format_value, match_value, parse_values
from bylaw.errors import EvidenceError, Remedy
from bylaw.language.expressions import CHANGED
from bylaw.language.problem import Problem

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
    "seen_weights",
    "id",
    "normalize",
)
_OBVIOUS = {
    "probabilities": ("p_*", "prob_*", "proba_*", "probability_*"),
    "positive": ("score", "probability", "proba", "prob", "p"),  # one column for two classes
    "label": ("label", "y", "target", "outcome"),
    "weight": ("weight", "weights", "sample_weight"),
    "seen_weights": (),  # never obvious
    "id": ("id",),
}
OBVIOUS_LABELS = _OBVIOUS["label"]
_SHOWN = 12  # columns or classes in a remark


@dataclass(frozen=True)
class Roles:
    """The columns that a policy, a fit or an audit reads, and which of them were guessed."""

    columns: Columns
    guessed: tuple[str, ...] = ()  # what was not stated, in words

    @property
    def label(self) -> str | None:
        return self.columns.label

    @property
    def id(self) -> str | None:
        return self.columns.id

    @property
    def true_groups(self) -> Mapping[str, str]:
        return self.columns.true_groups

    @property
    def seen_weights(self) -> str | None:
        return self.columns.seen_weights

    @property
    def needed(self) -> list[str]:
        """The columns of evidence, each once."""
        return self.columns.needed

    @property
    def numbers(self) -> list[str]:
        """Columns that hold numbers."""
        columns = self.columns
        unknown = [names for names in columns.groups.values() if not isinstance(names, str)]
        models = [names for names in columns.references.values() if not isinstance(names, str)]
        nested = [columns.probabilities, unknown, columns.joint, models, columns.costs, columns.weights]
        nested.append(columns.seen_weights)
        return list(dict.fromkeys(list_names(nested)))

    def values(self, groups: Mapping[str, Sequence[Value]]) -> dict[str, Sequence[Value]]:
        """Columns that hold labels or groups, and the values that they may have: `groups` has those known."""
        columns = self.columns
        unknown = {a: tuple(n) for a, n in columns.groups.items() if not isinstance(n, str)}
        groups = {**unknown, **groups}
        found = {n: groups.get(a, ()) for a, n in columns.groups.items() if isinstance(n, str)}
        found |= {n: groups.get(a, ()) for a, n in columns.true_groups.items()}
        answers = [*(columns.classes or ()), *columns.options]
        found |= {n: answers for n in columns.references.values() if isinstance(n, str)}
        return found | ({} if columns.label is None else {columns.label: list(columns.classes or ())})

    def without_outcomes(self) -> Roles:
        """Those that a decision needs: neither true labels and groups, nor weights."""
        return replace(self, columns=self.columns.without_outcomes())

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the values of groups are kept beside their columns, since JSON has text keys only."""
        plain = asdict(self.columns)
        plain["options"] = list(self.columns.options)
        for name in ("seen_weights", "options"):  # files without them are as they always were
            if not plain[name]:
                del plain[name]
        if plain["positive"] is None:
            del plain["positive"]
        plain["groups"] = {
            name: columns
            if isinstance(columns, str)
            else [[value, column] for value, column in columns.items()]
            for name, columns in self.columns.groups.items()
        }
        return plain

    def restate(self, names: Sequence[str]) -> dict[str, Any]:
        """As an owner of another table with these columns would state them, for `find_roles`."""
        columns = self.columns
        singles = {"label": columns.label, "weight": columns.weights, "id": columns.id}
        singles["seen_weights"] = columns.seen_weights
        return {
            "probabilities": list(columns.probabilities),
            "classes": columns.classes,
            "positive": columns.positive,
            "groups": {name: found for name, found in columns.groups.items() if isinstance(found, str)},
            "group_probabilities": {
                n: found for n, found in columns.groups.items() if not isinstance(found, str)
            },
            "true_groups": {name: column for name, column in columns.true_groups.items() if column in names},
            "joint": columns.joint,
            "references": columns.references,
            "costs": columns.costs,
            "normalize": columns.normalize,
            **{role: name for role, name in singles.items() if name in names},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Roles:
        """From a policy's card, which may come from anywhere."""
        try:
            known = {name: content[name] for name in Columns.__dataclass_fields__ if name in content}
            known["groups"] = {
                name: columns if isinstance(columns, str) else dict(columns)
                for name, columns in known["groups"].items()
            }
            columns = Columns(**{**known, "label": content["label"], "id": content["id"]})
            columns = replace(columns, true_groups=dict(content["true_groups"].items()))
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
        return cls(columns)


def find_roles(
    stated: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str] = ()
) -> Roles:
    """The roles of a table's columns for a problem, from what is stated and what is obvious.

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

    Raises
    ------
    EvidenceError
        that names the role that no column has, or several may have; its remedy tells what to state.
    """
    return _Finder(stated, names, problem, without).find()


def order_columns(stated: Any, names: Sequence[str], wanted: Sequence[Value], role: str) -> list[str]:
    """One column for each wanted value, by a pattern with a star, or as a list in their order."""
    return _Finder({}, names, Problem("error()"), ())._order(stated, wanted, role)


class _Finder:
    def __init__(
        self, stated: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str]
    ) -> None:
        self.stated, self.names, self.problem, self.without = stated, list(names), problem, without
        self.guessed: list[str] = []

    def find(self) -> Roles:
        self._check_used("references", self.problem.references)
        self._check_used("costs", self.problem.arrays)
        probabilities, classes = self._find_classes()
        options = self.problem.list_options(tuple(classes))
        groups = self._find_groups()
        joint = as_mapping(self.stated.get("joint"))
        columns = Columns(
            probabilities=probabilities,
            classes=classes,
            groups=groups,
            joint={name: self._find_joint(name, joint[name], groups, classes) for name in joint},
            references={
                name: self._find_reference(name, [*classes, *options]) for name in self.problem.references
            },
            costs={name: self._find_cost(name, classes) for name in self.problem.arrays},
            weights=self._find_single("weight"),
            normalize=bool(self.stated.get("normalize")),
            true_groups=self._find_true_groups(groups),
            label=self._find_single("label") if classes or self.stated.get("label") else None,
            id=self._find_single("id"),
            seen_weights=self._find_single("seen_weights"),
            options=options,
            positive=self._match_positive(classes) if len(probabilities) == 1 else None,
        )
        return Roles(columns, tuple(self.guessed))

    def _check_used(self, role: str, known: Sequence[str]) -> None:
        for name in as_mapping(self.stated.get(role)):
            if name not in known:
                raise EvidenceError(f"{role}.{name}: no rule refers to {name!r}; they refer to {list(known)}")

    def _find_classes(self) -> tuple[list[str], list[Value]]:
        stated = self.stated.get("probabilities")
        if self._has_no_classes(stated):
            return [], []
        if self.stated.get("positive") is not None:
            return self._find_two_classes(stated)
        if stated is None:
            stated = self._guess_probabilities()
        stars = self._expand(stated, "probabilities")
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

    def _find_two_classes(self, stated: Any) -> tuple[list[str], list[Value]]:
        """One column, of two classes that are stated."""
        positive = self.stated["positive"]
        if stated is None:
            obvious = (
                *_OBVIOUS["positive"],
                *(p.replace("*", str(positive)) for p in _OBVIOUS["probabilities"]),
            )
            found = [name for name in obvious if name in self.names]
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
        return [self._check(columns[0], "probabilities")], classes

    def _match_positive(self, classes: Sequence[Value]) -> Value:
        """The class that is stated as text or as itself."""
        positive = self.stated["positive"]
        found = next((value for value in classes if value == positive), None)
        found = match_value(str(positive), classes) if found is None else found
        if found is None:
            raise EvidenceError(f"positive={positive!r} is none of the classes {list(classes)}")
        return found

    def _has_no_classes(self, stated: Any) -> bool:
        """Whether the decisions that the problem lists are all options: no column holds probabilities."""
        if isinstance(self.problem.decisions, str) or self.stated.get("classes"):
            return False
        obvious = any(len(self._match(pattern)) > 1 for pattern in _OBVIOUS["probabilities"])
        return not stated and (stated is not None or not obvious)

    def _guess_probabilities(self) -> str:
        """The one obvious pattern that columns match."""
        fitting = [p for p in _OBVIOUS["probabilities"] if len(self._match(p)) > 1]
        if len(fitting) != 1:
            raise EvidenceError(
                f"which columns hold the model's probabilities, among {self.names}? There must be one for "
                "each class; or, of two classes, one column and the name of its class",
                Remedy("choose_probabilities"),
            )
        shown = list(self._match(fitting[0]).values())
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        self.guessed.append(f"probabilities are {fitting[0]}: the columns {', '.join(shown[:_SHOWN])}{more}")
        return fitting[0]

    def _find_groups(self) -> dict[str, Any]:
        """Each attribute's column of values, or its columns of probabilities."""
        known = as_mapping(self.stated.get("groups"))
        unknown = as_mapping(self.stated.get("group_probabilities"))
        if both := [name for name in known if name in unknown]:
            raise EvidenceError(
                f"{both[0]} is in groups and in group_probabilities: is it known when a decision is made?"
            )
        found: dict[str, Any] = {name: self._check(column, name) for name, column in known.items()}
        found |= {name: self._expand(columns, name) for name, columns in unknown.items()}
        for name in self.problem.attributes:
            if name not in found:
                found[name] = self._guess_group(name)
        return found

    def _guess_group(self, name: str) -> str | dict[Value, str]:
        """The column of this name, or those that begin with it."""
        matching = self._match(f"{name}_*")
        if len(matching) > 1 and name in self.names:
            raise EvidenceError(
                f"is {name} the column {name}, or known only by its probabilities {name}_*?",
                Remedy("choose_group", name),
            )
        if len(matching) > 1:
            self.guessed.append(f"{name} is known by its probabilities {name}_*")
            return matching
        if name not in self.names:
            raise EvidenceError(
                f"a rule refers to {name!r}, but there is no column {name!r} and there are no columns "
                f"{name}_* among {self.names}",
                Remedy("pass_groups", name),
            )
        self.guessed.append(f"{name} is the column {name}")
        return name

    def _find_true_groups(self, groups: Mapping[str, Any]) -> dict[str, str]:
        """Where a group is known by probabilities only, the column of its observed values."""
        stated = as_mapping(self.stated.get("true_groups"))
        found = {name: self._check(column, name) for name, column in stated.items()}
        if idle := [name for name in found if isinstance(groups.get(name, ""), str)]:
            raise EvidenceError(f"true_groups.{idle[0]} goes with group_probabilities.{idle[0]}")
        for name, columns in groups.items():
            if not isinstance(columns, str) and name not in found and name in self.names:
                found[name] = name
                self.guessed.append(f"the true {name}, where it is needed, is the column {name}")
        return found

    def _find_joint(
        self, name: str, stated: Any, groups: Mapping[str, Any], classes: Sequence[Value]
    ) -> list[list[str]]:
        """A pattern with two stars, for the value and for the class; or the columns themselves."""
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
        return [[self._check(column, f"joint.{name}") for column in row] for row in stated]

    def _find_reference(self, name: str, classes: Sequence[Value]) -> Any:
        """One column of labels, or one of probabilities for each class."""
        stated = as_mapping(self.stated.get("references")).get(name)
        if stated is None:
            if name not in self.names and len(self._match(f"{name}_*")) < 2:
                raise EvidenceError(
                    f"a rule refers to the earlier model {name!r}, but there is no column {name!r} and there "
                    f"are no columns {name}_* among {self.names}",
                    Remedy("pass_reference", name),
                )
            stated = name if name in self.names else f"{name}_*"
            self.guessed.append(f"the earlier model {name!r} is {stated}")
        if isinstance(stated, str) and "*" not in stated:
            return self._check(stated, f"references.{name}")
        return self._order(stated, classes, f"references.{name}")

    def _find_cost(self, name: str, classes: Sequence[Value]) -> list[str]:
        """One column for each action."""
        stated = as_mapping(self.stated.get("costs")).get(name)
        if stated is None:
            stated = f"{name}_*"
            if len(self._match(stated)) < 2:
                raise EvidenceError(
                    f"a rule refers to custom({name!r}), but there are no columns {stated} among "
                    f"{self.names}",
                    Remedy("pass_changes" if name == CHANGED else "pass_costs", name),
                )
            self.guessed.append(f"the cost {name!r} is {stated}")
        actions = self.problem.action_space(tuple(classes)).actions
        return self._order(stated, actions, f"costs.{name}")

    def _order(self, stated: Any, wanted: Sequence[Value], role: str) -> list[str]:
        """Columns by the values that they stand for; a list of columns is in order already."""
        if not isinstance(stated, str | Mapping):
            if len(stated) != len(wanted):
                raise EvidenceError(f"{role} must have {len(wanted)} columns, in the order {list(wanted)}")
            return [self._check(name, role) for name in stated]
        stars = {format_value(value): column for value, column in self._expand(stated, role).items()}
        missing = [value for value in wanted if format_value(value) not in stars]
        if missing:
            raise EvidenceError(f"{role} has no column for {missing[0]!r}; it has {list(stars.values())}")
        return [stars[format_value(value)] for value in wanted]

    def _find_single(self, role: str) -> str | None:
        stated = self.stated.get(role)
        if role in self.without:
            return None
        if stated is not None:
            return self._check(stated, role)
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

    def _check(self, name: Any, role: str) -> str:
        """A column of the table."""
        if name not in self.names:
            raise EvidenceError(f"{role}: the table has no column {name!r}; it has {self.names}")
        return name

    def _expand(self, stated: Any, role: str) -> dict[Value, str]:
        """What each column stands for: the text at the star of a pattern, or else its own name."""
        if isinstance(stated, Mapping):
            return {value: self._check(column, role) for value, column in stated.items()}
        if isinstance(stated, str):
            if role == "probabilities" and stated in self.names:
                raise EvidenceError(
                    f"{stated!r} is one column of scores: of two classes, which is it the probability of?",
                    Remedy("choose_positive"),
                )
            found = self._match(stated) if stated.count("*") == 1 else {}
            if len(found) < 2:
                raise EvidenceError(
                    f"{role}: {stated!r} must be a pattern with one star that two or more columns match; the "
                    f"table has {self.names}"
                )
            return found
        return {self._check(name, role): name for name in stated}

    def _match(self, pattern: str) -> dict[Value, str]:
        """The columns that match a pattern, by what is at its star."""
        first, _, last = pattern.rpartition("*")  # the name of a group may have a star, too
        matching = [
            name
            for name in self.names
            if name.startswith(first) and name.endswith(last) and len(name) > len(first) + len(last)
        ]
        parts = [name[len(first) : len(name) - len(last)] for name in matching]
        return dict(zip(parse_values(parts), matching, strict=True))


def as_mapping(stated: Any) -> dict[str, Any]:
    """{name: column} from a name, a list of names, or a table."""
    if isinstance(stated, str):
        return {stated: stated}
    return dict(stated) if isinstance(stated, Mapping) else {name: name for name in stated or ()}
