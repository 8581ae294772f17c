"""Checks of the columns that are passed with X, such as labels and groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, _is_arraylike, _num_samples, check_is_fitted, column_or_1d

from bylaw._base import Floats, Value
from bylaw.errors import EvidenceError, OptionError
from bylaw.estimators._sklearn_contract import is_frozen
from bylaw.language import Atom, Problem
from bylaw.rows import (
    MISSING,
    REJECTED,
    KnownGroup,
    as_columns,
    as_numbers,
    as_partial_vector,
    as_vector,
    concatenate_groups,
    factorize,
    fill_missing,
    is_frame,
    select_columns,
)

RowIndices = NDArray[np.intp]


@dataclass(frozen=True)
class FitRows:
    """The columns of the rows that `fit` gets; a missing label or group has the code `MISSING`."""

    X: Any
    codes: NDArray[np.int64] | None  # (n_rows,): the index of each label in the classes
    groups: Mapping[str, KnownGroup]
    references: Mapping[str, NDArray[Any]]
    weights: Floats | None = None
    propensity_weights: Floats | None = None  # (n_rows,): 1 / P(observed | x)

    def __len__(self) -> int:
        return _num_samples(self.X)

    @property
    def incomplete(self) -> bool:
        """True if a label or a group is missing on some rows and observed on others."""
        columns = [*([] if self.codes is None else [self.codes]), *(g.codes for g in self.groups.values())]
        return any(0 < (codes >= 0).mean() < 1 for codes in columns)

    def select(self, rows: RowIndices) -> FitRows:
        """Return the rows with these indices."""
        columns: Any = (self.codes, self.weights, self.propensity_weights)
        codes, weights, propensity_weights = (None if column is None else column[rows] for column in columns)
        return FitRows(
            _safe_indexing(self.X, rows),
            codes,
            {name: group.rows(rows) for name, group in self.groups.items()},
            {name: column[rows] for name, column in self.references.items()},
            weights,
            propensity_weights,
        )

    def append(self, more: FitRows) -> FitRows:
        """Return these rows followed by unlabeled rows, whose unknown groups may be missing."""
        groups = {}
        for name in dict.fromkeys([*self.groups, *more.groups]):
            known = self.groups.get(name) or more.groups[name]
            parts = [
                rows.groups.get(name) or KnownGroup(known.values, np.full(len(rows), MISSING))
                for rows in (self, more)
            ]
            groups[name] = concatenate_groups(parts)
        codes, weights = self.codes, self.propensity_weights
        return FitRows(
            stack_rows(self.X, more.X),
            None if codes is None else np.concatenate([codes, np.full(len(more), MISSING)]),
            groups,
            {n: np.concatenate([column, more.references[n]]) for n, column in self.references.items()},
            propensity_weights=None if weights is None else np.concatenate([weights, np.ones(len(more))]),
        )


def stack_rows(X: Any, more: Any) -> Any:
    """Concatenate two tables of rows in a container of the same type."""
    if sparse.issparse(X) or sparse.issparse(more):
        return sparse.vstack([X, more], format="csr")
    first, second = (nw.from_native(rows, pass_through=True) for rows in (X, more))
    frames = [isinstance(frame, nw.DataFrame) for frame in (first, second)]
    if all(frames) and first.implementation is second.implementation:
        return nw.concat([first, second.select(first.columns)]).to_native()
    if any(frames):
        raise EvidenceError(
            f"unlabelled must be of the same type as X, {type(X).__name__}, got {type(more).__name__}"
        )
    return np.concatenate([np.asarray(X), np.asarray(more)])


def check_row_parameters(
    X: Any, weights: Any, sources: Mapping[str, Any], params: Mapping[str, Any], cv: Any
) -> None:
    """Raise an error if an argument has one value per row of X, but no values for the unlabeled rows."""
    append = "append the rows to X instead, with missing labels in y"
    if weights is not None:
        raise OptionError(f"sample_weight has no weights for the unlabeled rows: {append}")
    if labels := [name for name, source in sources.items() if not is_model(source)]:
        raise OptionError(
            f"reference {labels[0]!r} has no labels for the unlabeled rows: pass the fitted model or {append}"
        )
    n_rows = _num_samples(X)
    if aligned := [n for n, v in params.items() if _is_arraylike(v) and _num_samples(v) == n_rows]:
        raise OptionError(f"the argument {aligned[0]!r} has no values for the unlabeled rows: {append}")
    if cv is not None and not isinstance(cv, int | float | np.number) and not hasattr(cv, "split"):
        raise OptionError(f"cv must also list the unlabeled rows, got a list of rows of X only: {append}")


def check_row_count(column: Any, X: Any, name: str) -> None:
    """Raise an error unless a column has one value for each row of X."""
    if len(column) != (n_rows := _num_samples(X)):
        raise EvidenceError(f"{name} has {len(column)} rows, but X has {n_rows}")


def read_labels(model: Any, X: Any, y: Any) -> tuple[NDArray[np.int64] | None, NDArray[Any]]:
    """Return the codes of the labels, (n_rows,), and the classes, (n_classes,).

    A code is the index of the label in the classes. The codes are None if there are no labels, which only a
    frozen model allows.
    """
    if is_frozen(model):
        check_is_fitted(model)
    if y is None:
        if not is_frozen(model):
            raise OptionError(
                "ConstrainedClassifier requires y to be passed, but the target y is None: pass labels to "
                "train the estimator, or wrap a trained estimator with predict_proba in FrozenEstimator"
            )
        return None, np.asarray(model.classes_)
    vector, missing = as_partial_vector(column_or_1d(y) if len(getattr(y, "shape", (0,))) == 2 else y, "y")
    check_row_count(vector, X, "y")
    if missing.all() and is_frozen(model):
        return None, np.asarray(model.classes_)
    if missing.any() and not missing.all():
        labels = vector[~missing]
        types = {type(label) for label in labels.tolist()}  # numbers beside None are objects
        labels = _check_y(np.array(labels.tolist()) if types in ({int}, {bool}) else labels)
    else:
        labels, missing = _check_y(y), np.zeros(len(vector), dtype=bool)
    labels = as_vector(labels, "y") if labels.dtype.kind == "O" else labels
    check_classification_targets(labels)
    present = np.unique(labels)
    classes = np.asarray(model.classes_) if is_frozen(model) else present
    if unknown := set(present.tolist()) - set(classes.tolist()):
        raise EvidenceError(
            f"y must have labels that the frozen estimator was trained on, {classes.tolist()}, got "
            f"{sorted(map(str, unknown))}: leave out these rows, or pass another estimator"
        )
    if len(classes) < 2:
        raise EvidenceError(f"y must have at least two classes, got one class, {classes.tolist()}")
    order = np.argsort(classes)
    codes = np.full(len(missing), MISSING)
    codes[~missing] = order[np.searchsorted(classes, labels, sorter=order)]
    return codes, classes


def list_atoms(
    problem: Problem, classes: tuple[Value, ...], groups: Mapping[str, tuple[Value, ...]]
) -> list[tuple[Atom, bool]]:
    """Return the atoms of the objective and of all rules, in pairs (atom, True if it refers to labels).

    An atom is a single rate, such as error(). Raise an error if one names an unknown label or group.
    """
    space = problem.action_space(classes)
    rates = [problem.minimize, *(one.rule.excess for one in problem.expand(classes, groups, space.options))]
    return [(atom, atom.needs_label(space)) for rate in rates for atom, _ in rate.terms]


def read_groups(
    sensitive_features: Any,
    names: Sequence[str],
    X: Any,
    hidden: Collection[str] = (),
    argument: str = "sensitive_features",
) -> dict[str, KnownGroup]:
    """Return the columns of groups with these names.

    An attribute in `hidden` may be left out or have missing values; a column without any value counts as left
    out.
    """
    if isinstance(sensitive_features, str):
        raise EvidenceError(f"{argument} must be a column, got the text {sensitive_features!r}")
    name = getattr(sensitive_features, "name", None)
    if isinstance(name, str) and names and name not in names:
        raise EvidenceError(
            f"{argument} must have the name of an attribute, {list(names)}, got {name!r}; rename it"
        )
    groups = {}
    for name, column in select_columns(sensitive_features, names, argument).items():
        what = f"{argument}[{name!r}]"
        vector, missing = as_partial_vector(column, what)
        check_row_count(vector, X, what)
        if name not in hidden:
            vector = as_vector(column, what)
        if not missing.all():
            group = factorize(fill_missing(vector, missing), what)
            groups[name] = KnownGroup(group.values, np.where(missing, MISSING, group.codes))
    if absent := [name for name in names if name not in groups and name not in hidden]:
        named = isinstance(sensitive_features, Mapping) or is_frame(sensitive_features)
        given = f", got {list(as_columns(sensitive_features, argument))}" if named else ""
        raise EvidenceError(
            f"{argument} must have {absent}, to which the rules refer{given}: pass "
            f"{'this column' if len(absent) == 1 else 'these columns'}, or fit with a group_estimator that "
            "predicts the groups from X"
        )
    return groups


def read_weights(sample_weight: Any, X: Any) -> Floats:
    """Return sample weights as an array; raise unless they are finite, not negative and not all zero."""
    weights = as_numbers(sample_weight, "sample_weight")
    check_row_count(weights, X, "sample_weight")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise EvidenceError("sample_weight must be finite, not negative, and not all zero")
    return weights


def read_propensity_weights(propensity_weights: Any, X: Any) -> Floats | None:
    """Return the weights 1 / P(observed | x), (n_rows,); nan on rows where they are missing."""
    if propensity_weights is None:
        return None
    column, missing = as_partial_vector(propensity_weights, "propensity_weights")
    check_row_count(column, X, "propensity_weights")
    try:
        return np.where(missing, np.nan, column).astype(np.float64)
    except (TypeError, ValueError):
        raise EvidenceError(f"propensity_weights must be numbers, got {column.dtype}") from None


def select_references(reference: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return a fitted model or a column of labels for each name of an earlier model in the rules."""
    if not is_model(reference):
        return select_columns(reference, names, "reference")
    if len(names) > 1:
        raise EvidenceError(
            f"reference must be a dict {{name: model}} for the earlier models {list(names)}, got one model"
        )
    return dict.fromkeys(names, reference)


def is_model(source: Any) -> bool:
    """Return True if a reference is a fitted model, and False if it is a column of labels."""
    if isinstance(source, type):
        raise OptionError(f"reference must be a fitted model or its labels, got the class {source.__name__}")
    return hasattr(source, "predict") or hasattr(source, "predict_set")


def read_references(
    sources: Mapping[str, Any],
    names: Sequence[str],
    X: Any,
    sensitive_features: Any,
    attributes: Sequence[str],
) -> dict[str, NDArray[Any]]:
    """Return the labels (n_rows,) of each earlier model, by its name.

    The sources are columns of labels, or fitted models that predict the labels.
    """
    if not (isinstance(sensitive_features, Mapping) or is_frame(sensitive_features)):
        sensitive_features = select_columns(sensitive_features, attributes, "sensitive_features")
    columns = {}
    for name in names:
        source, what = sources.get(name), f"reference {name!r}"
        if source is None:
            raise EvidenceError(
                f"reference must have the labels of the earlier model {name!r}, which the rules use: pass "
                "its labels on these rows, or pass the fitted model as reference to fit"
            )
        labels = _predict_reference(source, X, sensitive_features) if is_model(source) else source
        columns[name] = as_vector(labels, what)
        check_row_count(columns[name], X, what)
    return columns


def _predict_reference(model: Any, X: Any, sensitive_features: Any) -> NDArray[Any]:
    """Return the labels that an earlier model predicts, (n_rows,).

    If the model is a constrained classifier, its rejections become `REJECTED`.
    """
    if not hasattr(model, "predict"):
        raise OptionError(
            "reference must be a model that predicts one label per row, got one that predicts sets of labels"
        )
    takes_groups = "sensitive_features" in signature(model.predict).parameters
    labels = model.predict(X, **({"sensitive_features": sensitive_features} if takes_groups else {}))
    rejections = list(getattr(model, "actions_", ()))[len(getattr(model, "classes_", ())) :]
    if not rejections:
        return labels
    others = np.array([label in rejections for label in labels.tolist()], dtype=bool)
    return np.where(others, REJECTED, labels.astype(object))
