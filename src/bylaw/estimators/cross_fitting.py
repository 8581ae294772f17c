"""Probabilities of rows that a model was not trained on: by folds, by one split, or from a frozen model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError, OptionError
from bylaw.language.expressions import shorten

Rows = NDArray[np.intp]
Splits = Sequence[tuple[Rows, Rows]]  # rows to train on, rows to predict


def with_probabilities(estimator: Any, what: str) -> Any:
    """The classifier itself, or calibrated first where it only has a decision function."""
    if hasattr(estimator, "predict_proba"):
        return estimator
    if hasattr(estimator, "decision_function"):
        return CalibratedClassifierCV(estimator)
    raise OptionError(
        f"{what} must be a classifier with predict_proba or decision_function, not {estimator!r}"
    )


def fresh(estimator: Any) -> Any:
    """An unfitted copy."""
    return clone(estimator)


def is_frozen(estimator: Any) -> bool:
    return isinstance(estimator, FrozenEstimator)


def splits_of(
    cv: Any, X: Any, labels: NDArray[Any] | None, random_state: Any, params: Mapping[str, Any]
) -> list[tuple[Rows, Rows]]:
    """Folds (a whole number or a splitter), or one split (the fraction to predict); with the same shares
    of labels where these are known."""
    if isinstance(cv, Real) and not isinstance(cv, Integral):
        if not 0 < float(cv) < 1:
            raise OptionError(f"cv as a fraction must be between 0 and 1, not {cv!r}")
        _check_counts(labels, 2, f"cv={cv!r}")
        split = ShuffleSplit if labels is None else StratifiedShuffleSplit
        splitter: Any = split(1, test_size=float(cv), random_state=random_state)
    elif isinstance(cv, Integral):
        if cv < 2:
            raise OptionError(f"cv must be at least 2 folds, or a fraction such as 0.5, not {cv!r}")
        _check_counts(labels, int(cv), f"cv={cv!r}")
        fold = KFold if labels is None else StratifiedKFold
        splitter = fold(int(cv), shuffle=True, random_state=random_state)
    else:
        splitter = check_cv(cv, labels, classifier=True)
    found = [(_positions(train), _positions(test)) for train, test in splitter.split(X, labels, **params)]
    _check_splits(found, cv)
    return found


def _positions(rows: Any) -> Rows:
    rows = np.asarray(rows)
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def _check_splits(splits: Splits, cv: Any) -> None:
    if not splits:
        raise OptionError(f"cv={cv!r} gives no splits")
    predicted = np.concatenate([test for _, test in splits])
    if len(np.unique(predicted)) < len(predicted):
        raise OptionError(f"cv={cv!r} predicts some rows several times; its test parts must not overlap")
    if any(np.isin(test, train).any() for train, test in splits):
        raise OptionError(f"cv={cv!r} predicts rows that it trains on")


def _check_counts(labels: NDArray[Any] | None, least: int, cv: str) -> None:
    if labels is None:
        return
    present, counts = np.unique(labels, return_counts=True)
    if (rare := counts < least).any():
        raise EvidenceError(
            f"with {cv} every class needs at least {least} rows, and {shorten(present[rare].tolist())} "
            f"has {int(counts[rare].min())}: add rows, merge or drop the class, or lower cv"
        )


def out_of_sample(
    model: Any, X: Any, target: Any, splits: Splits, *, params: Mapping[str, Any], n_jobs: int | None
) -> list[tuple[Floats, Any]]:
    """For each split, probabilities (n_predicted, n_classes) of the rows it predicts, and the classes
    that the model has seen."""
    parallel: Any = Parallel(n_jobs=n_jobs)
    return parallel(
        delayed(_fit_and_predict)(fresh(model), X, target, train, test, params) for train, test in splits
    )


def _fit_and_predict(
    model: Any, X: Any, target: Any, train: Rows, test: Rows, params: Mapping[str, Any]
) -> tuple[Floats, Any]:
    own = _check_method_params(X, params=dict(params), indices=train)
    model.fit(_safe_indexing(X, train), _safe_indexing(target, train), **own)
    return model.predict_proba(_safe_indexing(X, test)), model.classes_


def aligned(probabilities: Any, present: Any, classes: Any, what: str) -> Floats:
    """Columns in the order of `classes`; every class must be there."""
    places = {label: i for i, label in enumerate(np.asarray(present).tolist())}
    wanted = np.asarray(classes).tolist()
    if missing := [label for label in wanted if label not in places]:
        raise EvidenceError(
            f"{what} knows nothing of {shorten(missing)}: it has too few rows. Add rows, merge it with "
            "another, or pass a smaller cv"
        )
    return np.asarray(probabilities, dtype=np.float64)[:, [places[label] for label in wanted]]
