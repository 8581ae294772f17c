"""What callers pass along with X: labels, groups, weights, earlier models. Checked against the rows of X."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, _num_samples, check_is_fitted, column_or_1d

from bylaw._base.typing import Floats, Value
from bylaw.errors import EvidenceError, OptionError
from bylaw.estimators.cross_fitting import is_frozen
from bylaw.rows.arrays import (
    as_columns,
    as_numbers,
    as_partial_vector,
    as_vector,
    fill_missing,
    is_frame,
    select_columns,
)
from bylaw.rows.evidence import REJECTED
from bylaw.rows.groups import KnownGroup, PartlyKnownGroup, check_group_sizes, factorize


def check_row_count(column: NDArray[Any], X: Any, what: str) -> None:
    if len(column) != (n_rows := _num_samples(X)):
        raise EvidenceError(f"{what} has {len(column)} rows, but X has {n_rows}")


def check_two_dimensional(X: Any) -> None:
    if len(shape := getattr(X, "shape", (0, 0))) == 1:
        raise EvidenceError(
            f"X must have rows and columns, not the shape {shape}. Reshape your data: X.reshape(-1, 1) if it "
            "is one feature, X.reshape(1, -1) or X.iloc[[0]] if it is one row"
        )


def read_labels(
    model: Any, X: Any, y: Any
) -> tuple[NDArray[Any] | None, NDArray[Any], NDArray[np.bool_] | None]:
    """The labels, if there are any; the classes, of which a frozen model has its own; and which rows show
    their label, unless all do."""
    if is_frozen(model):
        check_is_fitted(model)
    if y is None:
        if not is_frozen(model):
            raise OptionError(
                "ConstrainedClassifier requires y to be passed, but the target y is None: labels train the "
                "estimator. Without labels, wrap a trained estimator with predict_proba in FrozenEstimator"
            )
        return None, np.asarray(model.classes_), None
    labels, seen = _split_missing(y)
    check_row_count(labels, X, "y")
    if seen is not None and not seen.any() and is_frozen(model):
        return None, np.asarray(model.classes_), None
    if seen is None or not seen.any():
        labels, seen = _check_labels(y), None
    else:
        shown = _check_labels(_drop_objects(labels[seen]))
        labels = np.full(len(seen), shown[0], dtype=shown.dtype)
        labels[seen] = shown
    check_classification_targets(labels)
    present = np.unique(labels)
    classes = np.asarray(model.classes_) if is_frozen(model) else present
    if unknown := set(present.tolist()) - set(classes.tolist()):
        raise EvidenceError(
            f"y has labels that the frozen estimator does not know: {sorted(map(str, unknown))}; it knows "
            f"{classes.tolist()}"
        )
    if len(classes) < 2:
        raise EvidenceError(f"y has one class, {classes.tolist()}; there is nothing to decide")
    return labels, classes, seen


def _split_missing(y: Any) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """One column, and where it is not missing; None if it is nowhere."""
    flat = column_or_1d(y) if len(getattr(y, "shape", (0,))) == 2 else y
    vector, missing = as_partial_vector(flat, "y")
    return vector, ~missing if missing.any() else None


def _drop_objects(labels: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers or truth values that stood beside None or NA, as an array of such."""
    kinds = {type(label) for label in labels.tolist()}
    return np.array(labels.tolist()) if kinds in ({int}, {bool}) else labels


def _check_labels(y: Any) -> NDArray[Any]:
    labels = _check_y(y)
    if labels.dtype.kind != "O":
        return labels
    return as_vector(labels, "y")


def encode_labels(labels: NDArray[Any] | None, classes: NDArray[Any]) -> NDArray[np.int64] | None:
    """Each label's position among the classes, which may be in any order."""
    if labels is None:
        return None
    order = np.argsort(classes)
    return order[np.searchsorted(classes, labels, sorter=order)]


def choose_reject_label(classes: NDArray[Any] | None) -> Value:
    """The default label of a rejection: "reject" for text; for numbers -1, or one less than the least."""
    if classes is None or classes.dtype.kind not in "iuf":
        return "reject"
    least = classes.min().item()
    return type(least)(min(-1, least - 1))


def make_action_array(actions: Sequence[Value]) -> NDArray[Any]:
    """Actions of one type as an array of it, of several types as objects."""
    return np.array(actions, dtype=object if len({type(action) for action in actions}) > 1 else None)


def read_groups(sensitive_features: Any, names: Sequence[str], X: Any) -> dict[str, KnownGroup]:
    """The columns of these names, which are those that the rules refer to."""
    groups = read_partial_groups(sensitive_features, names, X, ())
    return {name: found.group for name, found in groups.items()}


def read_partial_groups(
    sensitive_features: Any,
    names: Sequence[str],
    X: Any,
    hidden: Collection[str],
    called: str = "sensitive_features",
) -> dict[str, PartlyKnownGroup]:
    """The columns of these names; of those that are hidden when a decision is made, values may be missing,
    and a column without any counts as not passed."""
    if isinstance(sensitive_features, str):
        raise EvidenceError(f"{called} is the text {sensitive_features!r}; pass the column itself")
    name = getattr(sensitive_features, "name", None)
    if isinstance(name, str) and names and name not in names:
        raise EvidenceError(f"{called} is named {name!r}, and the rules refer to {list(names)}; rename it")
    columns = select_columns(sensitive_features, names, called)
    groups = {}
    for name, column in columns.items():
        what = f"{called}[{name!r}]"
        vector, missing = as_partial_vector(column, what)
        check_row_count(vector, X, what)
        if name not in hidden:
            vector = as_vector(column, what)
        if not missing.all():
            groups[name] = PartlyKnownGroup(factorize(fill_missing(vector, missing), what), ~missing)
    return groups


def check_compared_groups(groups: Mapping[str, PartlyKnownGroup], compared: Collection[str]) -> None:
    """Refuse columns with more values than can be compared, before any model is trained."""
    for name, found in groups.items():
        if name in compared:
            counts = np.bincount(found.group.codes[found.seen], minlength=len(found.group.values))
            check_group_sizes(found.group.values, counts, f"sensitive_features[{name!r}]")


def check_groups_known(attributes: Sequence[str], found: Collection[str], sensitive_features: Any) -> None:
    missing = [name for name in attributes if name not in found]
    if missing:
        named = isinstance(sensitive_features, Mapping) or is_frame(sensitive_features)
        given = list(as_columns(sensitive_features, "sensitive_features")) if named else []
        has = f" (it has {given})" if given else ""
        raise EvidenceError(
            f"the rules refer to {missing}, which must be known to decide: pass sensitive_features with "
            f"{'this column' if len(missing) == 1 else 'these columns'}{has}, "
            "or fit with a group_estimator, which predicts them from X"
        )


def read_weights(sample_weight: Any, X: Any) -> Floats:
    weights = as_numbers(sample_weight, "sample_weight")
    check_row_count(weights, X, "sample_weight")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise EvidenceError("sample_weight must be finite, not negative, and not all zero")
    return weights


def read_propensity_weights(propensity_weights: Any, X: Any) -> Floats | None:
    """1 / P(seen | x), which may be missing on rows that show nothing; `observe` checks the others."""
    if propensity_weights is None:
        return None
    column, missing = as_partial_vector(propensity_weights, "propensity_weights")
    check_row_count(column, X, "propensity_weights")
    try:
        return np.where(missing, np.nan, column).astype(np.float64)
    except (TypeError, ValueError):
        raise EvidenceError(f"propensity_weights must be numbers, not {column.dtype}") from None


def select_references(reference: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Earlier models or columns of their labels, by the names that the rules use."""
    if not _is_model(reference):
        return select_columns(reference, names, "reference")
    if len(names) > 1:
        raise EvidenceError(
            f"reference is one model, and the rules compare with {list(names)}; pass a dict {{name: model}}"
        )
    return dict.fromkeys(names, reference)


def select_models(references: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the references that are models, not labels."""
    return {name: source for name, source in references.items() if _is_model(source)}


def _is_model(source: Any) -> bool:
    if isinstance(source, type):
        raise OptionError(f"reference is the class {source.__name__}; pass a fitted model, or its labels")
    return hasattr(source, "predict") or hasattr(source, "predict_set")


def read_references(
    sources: Mapping[str, Any],
    names: Sequence[str],
    X: Any,
    sensitive_features: Any,
    attributes: Sequence[str],
) -> dict[str, NDArray[Any]]:
    """Each earlier model's labels of these rows: as given, or predicted now, with the groups by name."""
    if not (isinstance(sensitive_features, Mapping) or is_frame(sensitive_features)):
        sensitive_features = select_columns(sensitive_features, attributes, "sensitive_features")
    columns = {}
    for name in names:
        source, what = sources.get(name), f"reference {name!r}"
        if source is None:
            raise EvidenceError(
                f"the rules compare with {name!r}: pass reference= its labels of these rows, or fit with the "
                "fitted model itself as reference"
            )
        labels = _predict_reference(source, X, sensitive_features) if _is_model(source) else source
        columns[name] = as_vector(labels, what)
        check_row_count(columns[name], X, what)
    return columns


def _predict_reference(model: Any, X: Any, sensitive_features: Any) -> NDArray[Any]:
    """Its labels. An earlier constrained classifier may need the groups, and may have rejected or chosen an
    option: nothing agrees with that."""
    if not hasattr(model, "predict"):
        raise OptionError("the reference decides on sets of labels, and rules compare with single labels")
    takes_groups = "sensitive_features" in signature(model.predict).parameters
    labels = model.predict(X, **({"sensitive_features": sensitive_features} if takes_groups else {}))
    rejections = list(getattr(model, "actions_", ()))[len(getattr(model, "classes_", ())) :]
    if not rejections:
        return labels
    others = np.array([label in rejections for label in labels.tolist()], dtype=bool)
    return np.where(others, REJECTED, labels.astype(object))
