"""Models of groups that are unknown when a decision is made: P(group | x) and P(group, label | x)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from bylaw._base import Floats, Value
from bylaw.errors import EvidenceError, OptionError
from bylaw.estimators._inputs import list_atoms
from bylaw.estimators._joint import JointClassifier, expand_cells
from bylaw.estimators._sklearn_contract import ensure_probabilities, is_frozen
from bylaw.language import LABEL, Problem
from bylaw.program import admit_values
from bylaw.rows import MISSING, KnownGroup

Names = tuple[str, ...]  # attributes that are modeled together


@dataclass(frozen=True)
class HiddenGroup:
    """Model of the joint distribution of attributes that are unknown at decision time.

    The model may be conditional on known attributes, and include the label if a rule refers to both. A cell
    is a combination of values of all these columns.
    """

    values: Mapping[str, tuple[Value, ...]]  # {unknown attribute: its values}
    given: Mapping[str, tuple[Value, ...]]  # {known attribute in the same rules: its values}
    classes: tuple[Value, ...] | None  # the classes if the model includes the label, else None
    product: bool  # True if label and group are assumed to be independent given x
    model: Any  # a classifier of cells, not fitted unless it is frozen
    route: Any  # its key in the dict of group estimators; None if there is no dict
    frequencies: Floats  # (*shape): counts of rows, used where the model predicts probability zero

    @property
    def names(self) -> Names:
        return tuple(self.values)

    @property
    def key(self) -> Any:
        """The name of the attribute, or a tuple of names if there are several."""
        return self.names[0] if len(self.names) == 1 else self.names

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = tuple(map(len, (*self.given.values(), *self.values.values())))
        return sizes if self.classes is None else (*sizes, len(self.classes))

    def encode_cells(self, groups: Mapping[str, KnownGroup], label_codes: Any) -> NDArray[np.int64]:
        """Return the index of the cell of each row, (n_rows,); `MISSING` if one of its values is missing."""
        named = {**self.given, **self.values}
        codes = [admit_values(name, groups[name], values).codes for name, values in named.items()]
        codes = [*codes, label_codes] if self.classes else codes
        missing = np.logical_or.reduce([column < 0 for column in codes])
        cells = np.ravel_multi_index([np.maximum(column, 0) for column in codes], self.shape)
        return np.where(missing, MISSING, cells)

    def predict(self, model: Any, X: Any) -> Floats:
        """Return the probabilities of all cells for each row, (n_rows, *shape), by the fitted `model`."""
        if not is_frozen(self.model):
            return expand_cells(model.predict_proba(X), model.classes_, self.shape)
        if hasattr(model, "predict_joint"):
            labels = () if self.classes is None else (self.classes,)
            if model.values_ == (*self.values.values(), *labels):
                return model.predict_joint(X)
        elif len(self.shape) == 1:
            positions = [self.values[self.key].index(value) for value in np.asarray(model.classes_).tolist()]
            return expand_cells(model.predict_proba(X), np.array(positions), self.shape)
        raise OptionError(
            f"the frozen group_estimator for {' x '.join(self.names)} must be a JointClassifier fitted on "
            f"{' and '.join([*self.names, LABEL] if self.classes else self.names)} together, in this order"
        )

    def make_columns(
        self, cells: Floats, probabilities: Floats, groups: Mapping[str, KnownGroup]
    ) -> tuple[dict[Any, Any], dict[Any, Floats]]:
        """Return the arguments `groups` and `joint` of `Evidence` for the unknown attributes.

        P(s, y | x) = P(s | x, y) P(y | x): the first factor is from `cells` (n_rows, *shape), predicted by
        the group model, and the second from `probabilities` (n_rows, n_classes), predicted by the classifier.
        So the joint probabilities add up to those of the classifier.
        """
        known = [admit_values(name, groups[name], values).codes for name, values in self.given.items()]
        n_rows, depth = len(cells), 1 if self.classes is None else len(self.classes)
        overall = self.frequencies[tuple(known)] if known else self.frequencies[None]
        cells = cells[(np.arange(n_rows), *known)].reshape(n_rows, -1, depth)
        overall = _normalize_groups(overall.reshape(len(overall), -1, depth), 1 / cells.shape[1])
        shares = _normalize_groups(cells, overall)
        joint = {}
        if self.classes is not None or self.product:
            joint[self.key] = shares * probabilities[:, None, :]
        group = joint[self.key].sum(axis=2) if joint else shares[:, :, 0]
        several = itertools.product(*self.values.values())  # combinations, in the order of the cells
        values = self.values[self.key] if len(self.values) == 1 else several
        return {self.key: dict(zip(values, group.T, strict=True))}, joint


def _normalize_groups(cells: Floats, otherwise: Floats | float) -> Floats:
    """Divide cells by their sum over groups (axis 1); where the sum is zero, return `otherwise`."""
    total = cells.sum(axis=1, keepdims=True)
    return np.where(total > 0, cells / np.where(total > 0, total, 1.0), otherwise)


def make_hidden_groups(
    estimators: Any,
    problem: Problem,
    classes: tuple[Value, ...],
    groups: Mapping[str, KnownGroup],
    label_codes: NDArray[np.int64] | None,
    product: bool,
) -> tuple[HiddenGroup, ...]:
    """Return one model for each combination of unknown attributes that a rule refers to."""
    hidden = find_hidden_names(estimators, problem)
    values = {name: _find_values(name, estimators, groups) for name in hidden}
    known = {name: group.values for name, group in groups.items() if name not in hidden}
    labelled: dict[Names, bool] = {}
    given: dict[Names, dict[str, None]] = {}
    for atom, needs_label in list_atoms(problem, classes, {**known, **values}):
        named = dict(atom.conditions)
        if names := tuple(name for name in hidden if name in named):
            labelled[names] = labelled.get(names, False) or needs_label
            given.setdefault(names, {}).update(dict.fromkeys(name for name in named if name in known))
    models = []
    for names, with_label in labelled.items():
        route, model = _find_model(estimators, names)
        if isinstance(model, JointClassifier):  # its combinations are encoded as cells here
            model = model.estimator
        model = ensure_probabilities(model, f"the group_estimator for {' x '.join(names)}")
        group = HiddenGroup(
            values={name: values[name] for name in names},
            given={} if is_frozen(model) else {name: known[name] for name in given[names]},
            classes=classes if with_label and not product else None,
            product=with_label and product,
            model=model,
            route=route,
            frequencies=np.ones(1),
        )
        counts = np.ones(group.shape)
        if group.classes is not None and label_codes is None:
            if not is_frozen(model):
                raise EvidenceError(
                    f"y is missing, and a rule refers to {' x '.join(names)} and the label together: pass y "
                    "to train a model of both, or joint='product' if they are independent given X"
                )
        elif all(name in groups for name in names):
            cells = group.encode_cells(groups, label_codes)
            counts = np.bincount(cells[cells >= 0], minlength=counts.size).reshape(group.shape).astype(float)
        models.append(replace(group, frequencies=counts))
    if models and product and not any(group.product for group in models):
        raise OptionError(
            "joint='product' has no effect if no rule refers to an unknown group and the label together: "
            "leave out joint"
        )
    used = [group.route for group in models]
    unused = [key for key in estimators if key not in used] if isinstance(estimators, Mapping) else []
    if models and unused:
        needed = [group.key for group in models]
        raise OptionError(
            f"group_estimator must have models for {needed} only, got others for {unused}, which no rule "
            "uses: leave these out. If a rule refers to several attributes together, pass one model with a "
            "tuple of their names as its key"
        )
    return tuple(models)


def find_hidden_names(estimators: Any, problem: Problem) -> list[str]:
    """Return the names of the attributes that are unknown at decision time."""
    if not isinstance(estimators, Mapping):
        return list(problem.attributes)
    names = [name for key in estimators for name in (key if isinstance(key, tuple) else (key,))]
    if unknown := set(names) - set(problem.attributes):
        raise OptionError(
            f"group_estimator must have models for attributes in the rules, {list(problem.attributes)}, got "
            f"one for {sorted(unknown)}: leave it out"
        )
    return list(dict.fromkeys(names))


def _find_values(name: str, estimators: Any, groups: Mapping[str, KnownGroup]) -> tuple[Value, ...]:
    """Return the values of an attribute: those of its frozen model, or else those of the rows."""
    key, model = _find_model(estimators, (name,))
    if is_frozen(model):
        check_is_fitted(model)
        place = key.index(name) if isinstance(key, tuple) else 0
        return tuple(
            model.values_[place] if hasattr(model, "values_") else np.asarray(model.classes_).tolist()
        )
    if name in groups:
        return groups[name].values
    raise EvidenceError(
        f"sensitive_features must have the column {name!r}, to which the rules refer: pass it to fit, to "
        "train the model of this group"
    )


def _find_model(estimators: Any, names: Names) -> tuple[Any, Any]:
    """Return the model of these attributes and its key in the dict `estimators`.

    If `estimators` is one model for all attributes, the key is None.
    """
    if not isinstance(estimators, Mapping):
        return None, estimators
    tuples = [key for key in estimators if isinstance(key, tuple) and set(names) <= set(key)]
    for key in (names, *names, *tuples):
        if key in estimators:
            return key, estimators[key]
    raise OptionError(
        f"group_estimator must have a model for {' x '.join(names)}, got models for {list(estimators)}"
    )
