"""The roles of the columns of a table, given or inferred from names, and evidence from these columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from bylaw._base import Value
from bylaw.errors import EvidenceError, Remedy
from bylaw.language import CHANGED, Problem
from bylaw.rows._evidence import Evidence
from bylaw.rows._groups import factorize_arrow
from bylaw.rows._text_values import format_value, match_value, parse_values

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
_OBVIOUS = {  # names of columns that are guessed, by role
    "probabilities": ("p_*", "prob_*", "proba_*", "probability_*"),
    "positive": ("score", "probability", "proba", "prob", "p"),  # one column of scores
    "label": ("label", "y", "target", "outcome"),
    "weight": ("weight", "weights", "sample_weight"),
    "propensity_weights": (),  # never guessed
    "id": ("id",),
}
OBVIOUS_LABELS = _OBVIOUS["label"]


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a table.

    Parameters
    ----------
    probabilities : list of str
        the columns of P(label | x), in the order of the classes; empty if there are only options. For two
        classes, one column is enough, with the probability of the class `positive`.
    classes : list, optional
        the labels; by default the names of these columns.
    groups : dict
        by attribute, the column of its values; or, if it is unknown, a dict {value: column of P(value | x)}.
    joint : dict
        by unknown attribute, a list of columns for each value, with one column of P(value, label | x) per
        class.
    references : dict
        by earlier model, the column of its labels, or a list with one column per class and option.
    costs : dict
        by custom cost, a list with one column per action.
    options : list
        the decisions that are not classes, as in `Evidence(options=)`.
    positive : optional
        the class that a single column of probabilities belongs to; by default the second of two.
    weights : str, optional
        the column of sample weights.
    normalize : bool
        divide each row of probabilities by its sum, for example if they were rounded.
    label : str, optional
        the column of observed labels, which `solve` and audits read.
    true_groups : dict
        by unknown attribute, the column of its observed values, which `solve` and audits read.
    id : str, optional
        the column of row ids, from which randomized decisions are drawn.
    propensity_weights : str, optional
        the column of 1 / P(observed | x), if labels or groups are missing on some rows.

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
        """For one column of scores of two classes, the position of the other class; otherwise None."""
        if len(self.probabilities) != 1 or self.classes is None or len(self.classes) != 2:
            return None
        if self.positive is None:
            return 0
        if self.positive not in self.classes:
            raise EvidenceError(
                f"positive must be one of the classes {list(self.classes)}, got {self.positive!r}"
            )
        return 1 - list(self.classes).index(self.positive)

    @property
    def needed(self) -> list[str]:
        """The names of the columns that `Evidence` needs, without observed ones."""
        return _list_names(
            self.probabilities, self.groups, self.joint, self.references, self.costs, self.weights
        )

    @property
    def names(self) -> list[str]:
        """The names of all columns with a role other than `id`, without duplicates."""
        return list(dict.fromkeys([*self.needed, *self.outcomes]))

    @property
    def outcomes(self) -> list[str]:
        """The names of the columns of observed labels and groups, and of their propensity weights."""
        return _list_names(self.label, self.true_groups, self.propensity_weights)

    @property
    def numbers(self) -> list[str]:
        """The names of the columns that hold numbers."""
        matrices = [
            one for one in (*self.groups.values(), *self.references.values()) if not isinstance(one, str)
        ]
        return _list_names(
            self.probabilities, matrices, self.joint, self.costs, self.weights, self.propensity_weights
        )

    def list_values(self, groups: Mapping[str, Sequence[Value]] | None = None) -> dict[str, Sequence[Value]]:
        """Return the possible values of each column of labels or groups; none if they are unknown.

        `groups` has known values of attributes.
        """
        hidden = {name: tuple(one) for name, one in self.groups.items() if not isinstance(one, str)}
        known = {**hidden, **(groups or {})}
        columns = {**self.groups, **self.true_groups}
        values = {one: known.get(name, ()) for name, one in columns.items() if isinstance(one, str)}
        answers = [*(self.classes or ()), *self.options]
        values |= {one: answers for one in self.references.values() if isinstance(one, str)}
        return values if self.label is None else {**values, self.label: list(self.classes or ())}

    def restrict(self, attributes: Sequence[str], references: Sequence[str], costs: Sequence[str]) -> Columns:
        """Return these columns with only the given attributes, earlier models and costs."""

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
        """Return these columns without observed labels, observed groups and propensity weights."""
        return replace(self, label=None, true_groups={}, propensity_weights=None)

    def without_outcomes(self) -> Columns:
        """Return the columns that a decision needs: without observed columns and weights."""
        return replace(self.without_observed(), weights=None)

    def keep_observed(self, names: Collection[str]) -> Columns:
        """Return these columns without the observed ones whose names are not in `names`."""
        return replace(
            self,
            label=self.label if self.label in names else None,
            true_groups={name: column for name, column in self.true_groups.items() if column in names},
            propensity_weights=self.propensity_weights if self.propensity_weights in names else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as plain values for JSON.

        Groups become lists of pairs, since keys of JSON objects must be text.
        """
        plain = {**asdict(self), "options": list(self.options)}
        for name in ("propensity_weights", "options", "positive"):
            if plain[name] is None or plain[name] == []:
                del plain[name]  # so that files without them do not change
        plain["groups"] = {
            name: one if isinstance(one, str) else [[value, column] for value, column in one.items()]
            for name, one in self.groups.items()
        }
        return plain

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Columns:
        """Return the columns that `to_dict` wrote; raise an `EvidenceError` if they are invalid."""
        try:
            known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
            known["groups"] = {
                name: one if isinstance(one, str) else dict(one) for name, one in known["groups"].items()
            }
            known["true_groups"] = dict(content["true_groups"].items())
            columns = cls(**{**known, "label": content["label"], "id": content["id"]})
            names = [*columns.names, *([] if columns.id is None else [columns.id])]
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
            raise EvidenceError(
                "the policy file must name the columns that it reads, got none or invalid ones",
                Remedy("refit"),
            ) from None
        return columns

    def restate(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns by role, as arguments of `find_columns`, for another table.

        Observed columns, weights and ids are left out if they are not in `names`, the columns of that table.
        """
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
        """Return the rows of a frame, an Arrow table or an Arrow record batch as evidence."""
        columns = self._read(table)

        def stack(names: Sequence[str]) -> np.ndarray:
            """Return columns (n_rows, n_columns), one after the other in memory, as passes read them."""
            stacked = np.stack([columns[name].to_numpy() for name in names])
            stacked.flags.writeable = False  # so that evidence need not copy it
            return stacked.T

        def read_group(one: Any) -> Any:
            if not isinstance(one, str):
                return {value: columns[name] for value, name in one.items()}
            column = columns[one]
            native = column.to_native() if isinstance(column, nw.Series) else column
            found = factorize_arrow(native, f"groups[{one!r}]")
            return column if found is None else found

        def read(one: str | None) -> Any:
            return None if one is None else columns[one]

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
            weights=read(self.weights),
            normalize=self.normalize,
            options=self.options or None,
            labels=read(self.label),
            true_groups={name: columns[one] for name, one in self.true_groups.items()} or None,
            propensity_weights=read(self.propensity_weights),
        )

    def _read(self, table: Any) -> dict[str, Any]:
        """Return the columns of a table by name; raise an `EvidenceError` if one of them is missing."""
        if type(table).__module__.partition(".")[0] == "pyarrow":  # converting it to a frame would be slow
            import pyarrow

            whole = isinstance(table, pyarrow.Table)
            frame, names = table if whole else pyarrow.Table.from_batches([table]), table.schema.names
        else:
            frame = nw.from_native(table, pass_through=True)
            if not isinstance(frame, nw.DataFrame):
                raise EvidenceError(
                    f"a table must be a frame or an Arrow batch in memory, got {type(table).__name__}"
                )
            names = frame.columns
        if missing := [name for name in self.names if name not in names]:
            raise EvidenceError(f"the table has no column {missing[0]!r}; it has {list(names)}")
        return {name: frame[name] for name in self.names}


def find_columns(
    stated: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str] = ()
) -> tuple[Columns, list[str]]:
    """Return the columns of a table that the rules of a problem need, and a list of the guesses made.

    Parameters
    ----------
    stated : dict
        the columns given by the caller, by role in `ROLES`. They take precedence over obvious names.
    names : list of str
        all columns of the table.
    problem : Problem
    without : list of str
        roles that are not guessed.

    Raises
    ------
    EvidenceError
        with a remedy, if no column or several columns may have a role.
    """
    finder = _Finder(stated, names, problem, without)
    return finder.find(), finder.guessed


def order_columns(stated: Any, names: Sequence[str], wanted: Sequence[Value], role: str) -> list[str]:
    """Return a column name for each value in `wanted`, from a pattern with a star, a dict, or a list."""
    return _Finder({}, names, Problem("error()")).order(stated, wanted, role)


def as_mapping(stated: Any) -> dict[str, Any]:
    """Return the argument, a name, a list of names, or a dict, as a dict {name: column}."""
    if isinstance(stated, str):
        return {stated: stated}
    return dict(stated) if isinstance(stated, Mapping) else {name: name for name in stated or ()}


class _Finder:
    """A search for the columns of a table by role, which records its guesses."""

    def __init__(
        self, stated: Mapping[str, Any], names: Sequence[str], problem: Problem, without: Sequence[str] = ()
    ) -> None:
        self.stated, self.names, self.problem, self.without = stated, list(names), problem, without
        self.guessed: list[str] = []

    def find(self) -> Columns:
        """Return the columns of all roles."""
        for role, known in (("references", self.problem.references), ("costs", self.problem.arrays)):
            for name in as_mapping(self.stated.get(role)):
                if name not in known:
                    raise EvidenceError(
                        f"{role}.{name} must be a name that rules refer to, one of {list(known)}"
                    )
        probabilities, classes = self.find_classes()
        positive = None
        if len(probabilities) == 1:  # the class is given as a value or as its text
            stated = self.stated["positive"]
            positive = next((value for value in classes if value == stated), None)
            positive = match_value(str(stated), classes) if positive is None else positive
            if positive is None:
                raise EvidenceError(f"positive must be one of the classes {list(classes)}, got {stated!r}")
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
            positive=positive,
        )

    def find_classes(self) -> tuple[list[str], list[Value]]:
        """Return the columns of probabilities, and their classes; both empty if there are only options."""
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
                    f"the columns of the model's probabilities must be given, one per class, or for two "
                    "classes one "
                    f"column and the name of its class; the table has {self.names}",
                    Remedy("choose_probabilities"),
                )
            stated = obvious[0]
            shown = list(self.match(stated).values())
            more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""  # a message has one line
            self.guessed.append(f"probabilities are {stated}: the columns {', '.join(shown[:12])}{more}")
        stars = self.expand(stated, "probabilities")
        if len(stars) < 2:
            raise EvidenceError("probabilities must have two or more columns, one per class")
        classes = list(self.stated.get("classes") or stars)
        if len(classes) != len(stars):
            raise EvidenceError(
                f"probabilities must have one column for each of {len(classes)} classes, got {len(stars)}"
            )
        if not isinstance(stated, str):
            return list(stars.values()), classes
        by_name = {str(value): column for value, column in stars.items()}
        if {str(label) for label in classes} != set(by_name):
            raise EvidenceError(
                f"the columns {stated} must be named after the classes {classes}, got {list(by_name)}",
                Remedy("list_columns"),
            )
        return [by_name[str(label)] for label in classes], classes

    def find_two_classes(self, stated: Any) -> tuple[list[str], list[Value]]:
        """Return a list with the column of scores, and the two classes."""
        positive = self.stated["positive"]
        if stated is None:
            patterns = [pattern.replace("*", str(positive)) for pattern in _OBVIOUS["probabilities"]]
            found = [name for name in (*_OBVIOUS["positive"], *patterns) if name in self.names]
            if len(found) != 1:
                raise EvidenceError(
                    f"the column of the scores of {positive!r} must be given; the table has {self.names}",
                    Remedy("choose_scores"),
                )
            self.guessed.append(f"the probability of {positive!r} is the column {found[0]}")
            stated = found
        columns = [stated] if isinstance(stated, str) else list(stated)
        if len(columns) != 1 or "*" in columns[0]:
            raise EvidenceError(
                f"probabilities must be one column with the scores of the class {positive!r}, got {stated}"
            )
        classes: list[Value] = list(self.stated.get("classes") or ())
        if len(classes) != 2:
            raise EvidenceError(
                f"classes must name two classes, {positive!r} and another, if there is one column of scores"
                + (f", got {classes}" if classes else ""),
                Remedy("name_classes", str(positive)),
            )
        return [self.check(columns[0], "probabilities")], classes

    def find_groups(self) -> dict[str, Any]:
        """Return each attribute's column of values, or its columns of probabilities."""
        known = as_mapping(self.stated.get("groups"))
        unknown = as_mapping(self.stated.get("group_probabilities"))
        if both := [name for name in known if name in unknown]:
            raise EvidenceError(
                f"{both[0]} must be either in groups, if it is known at decision time, or in "
                "group_probabilities"
            )
        found: dict[str, Any] = {name: self.check(column, name) for name, column in known.items()}
        found |= {name: self.expand(columns, name) for name, columns in unknown.items()}
        for name in [name for name in self.problem.attributes if name not in found]:
            matching = self.match(f"{name}_*")
            if len(matching) > 1 and name in self.names:
                raise EvidenceError(
                    f"{name} must be either a column or probabilities {name}_*, but the table has both",
                    Remedy("choose_group", name),
                )
            single = self.guess(name, f"a rule refers to {name!r}", Remedy("pass_groups", name))
            known = "the column" if single else "known by its probabilities"
            self.guessed.append(f"{name} is {known} {name}{'' if single else '_*'}")
            found[name] = name if single else matching
        return found

    def guess(self, name: str, reason: str, remedy: Remedy) -> bool:
        """Return True if the table has a column `name`, and False if it has columns `name`_*.

        Raise an `EvidenceError` if it has neither.
        """
        if name not in self.names and len(self.match(f"{name}_*")) < 2:
            raise EvidenceError(
                f"{reason}, but the table has neither a column {name!r} nor columns {name}_*; it has "
                f"{self.names}",
                remedy,
            )
        return name in self.names

    def find_true_groups(self, groups: Mapping[str, Any]) -> dict[str, str]:
        """Return the columns of observed values of the attributes that have columns of probabilities."""
        stated = as_mapping(self.stated.get("true_groups"))
        found = {name: self.check(column, name) for name, column in stated.items()}
        if idle := [name for name in found if isinstance(groups.get(name, ""), str)]:
            raise EvidenceError(f"true_groups.{idle[0]} requires group_probabilities.{idle[0]}")
        for name, columns in groups.items():
            if not isinstance(columns, str) and name not in found and name in self.names:
                found[name] = name
                self.guessed.append(f"the observed {name} is the column {name}")
        return found

    def find_joint(
        self, name: str, stated: Any, groups: Mapping[str, Any], classes: Sequence[Value]
    ) -> list[list[str]]:
        """Return the columns of joint probabilities: for each value, a list with one column per class.

        `stated` has such lists, or is a pattern with two stars, for the value and the class.
        """
        if name not in groups or isinstance(groups[name], str):
            raise EvidenceError(f"joint.{name} requires group_probabilities.{name}")
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
        """Return an earlier model's column of labels, or its columns of probabilities, one per class."""
        stated = as_mapping(self.stated.get("references")).get(name)
        if stated is None:
            reason = f"a rule refers to the earlier model {name!r}"
            stated = name if self.guess(name, reason, Remedy("pass_reference", name)) else f"{name}_*"
            self.guessed.append(f"the earlier model {name!r} is {stated}")
        if isinstance(stated, str) and "*" not in stated:
            return self.check(stated, f"references.{name}")
        return self.order(stated, classes, f"references.{name}")

    def find_cost(self, name: str, classes: Sequence[Value]) -> list[str]:
        """Return the columns of a custom cost, one per action."""
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
        """Return the column of a role that only one column can have; None if the table has no such column."""
        stated = self.stated.get(role)
        if role in self.without:
            return None
        if stated is not None:
            return self.check(stated, role)
        found = [name for name in _OBVIOUS[role] if name in self.names]
        if len(found) > 1:
            raise EvidenceError(
                f"the column of the {role} must be chosen from {' and '.join(found)}",
                Remedy("choose_column", role, tuple(found)),
            )
        if not found:
            return None
        self.guessed.append(f"{role} is the column {found[0]}")
        return found[0]

    def order(self, stated: Any, wanted: Sequence[Value], role: str) -> list[str]:
        """Return columns in the order of the values in `wanted`; a list must be in this order already."""
        if not isinstance(stated, str | Mapping):
            if len(stated) != len(wanted):
                raise EvidenceError(f"{role} must have {len(wanted)} columns, in the order {list(wanted)}")
            return [self.check(name, role) for name in stated]
        stars = {format_value(value): column for value, column in self.expand(stated, role).items()}
        missing = [value for value in wanted if format_value(value) not in stars]
        if missing:
            raise EvidenceError(f"{role} must have a column for {missing[0]!r}, got {list(stars.values())}")
        return [stars[format_value(value)] for value in wanted]

    def check(self, name: Any, role: str) -> str:
        """Return the name of a column; raise an `EvidenceError` if the table has no such column."""
        if name not in self.names:
            raise EvidenceError(f"{role}: the table has no column {name!r}; it has {self.names}")
        return name

    def expand(self, stated: Any, role: str) -> dict[Value, str]:
        """Return columns by the value that each stands for: its text at a pattern's star, or its name."""
        if isinstance(stated, Mapping):
            return {value: self.check(column, role) for value, column in stated.items()}
        if not isinstance(stated, str):
            return {self.check(name, role): name for name in stated}
        if role == "probabilities" and stated in self.names:
            raise EvidenceError(
                f"the class to which the scores in {stated!r} belong must be given",
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
        """Return the columns that match a pattern with a star, by the value that the star matches."""
        first, _, last = pattern.rpartition("*")  # earlier stars are part of a group's name
        matching = [
            name
            for name in self.names
            if name.startswith(first) and name.endswith(last) and len(name) > len(first) + len(last)
        ]
        parts = [name[len(first) : len(name) - len(last)] for name in matching]
        return dict(zip(parse_values(parts), matching, strict=True))


def _list_names(*values: Any) -> list[str]:
    """Return the column names in nested lists and dicts, without duplicates."""

    def visit(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif value is not None:
            for item in value.values() if isinstance(value, Mapping) else value:
                yield from visit(item)

    return list(dict.fromkeys(visit(values)))
