"""Cross-fitting: predict rows that a model was not trained on, by folds or by one split."""

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

RowIndices = NDArray[np.intp]
Splits = Sequence[tuple[RowIndices, RowIndices]]  # rows to train on, rows to predict


def ensure_probabilities(estimator: Any, what: str) -> Any:
    """Return the classifier, calibrated if it only has a decision function."""
    if hasattr(estimator, "predict_proba"):
        return estimator
    if hasattr(estimator, "decision_function"):
        return CalibratedClassifierCV(estimator)
    raise OptionError(
        f"{what} must be a classifier with predict_proba or decision_function, got {estimator!r}"
    )


def clone_unfitted(estimator: Any) -> Any:
    """Return an unfitted copy of one estimator; `clone` is annotated for collections, too."""
    return clone(estimator)


def is_frozen(estimator: Any) -> bool:
    """Return whether an estimator is not to be trained again."""
    return isinstance(estimator, FrozenEstimator)


def is_fraction(cv: Any) -> bool:
    """Return whether `cv` is the fraction of the rows to predict, in one split."""
    return isinstance(cv, Real) and not isinstance(cv, Integral)


def make_splits(
    cv: Any,
    X: Any,
    labels: NDArray[Any] | None,
    random_state: Any,
    params: Mapping[str, Any],
    labeled: NDArray[np.bool_] | None = None,
) -> list[tuple[RowIndices, RowIndices]]:
    """Return folds (`cv` is a number or a splitter), or one split (a fraction), stratified by the labels.

    `labeled` are the rows with a label, unless all have one. Each unlabeled row is predicted by the model of
    one fold, as each labeled row is, so that the errors on labeled rows represent those on all. One split
    trains on labeled rows only.
    """
    splitter = _make_splitter(cv, labels if labeled is None else labels[labeled], random_state)  # type: ignore[index]
    strata: Any = labels
    if labeled is not None:
        strata = np.unique(labels, return_inverse=True)[1]  # type: ignore[call-overload]
        if (~labeled).sum() >= 100:  # enough unlabeled rows for a stratum of their own
            strata = np.where(labeled, strata, -1)
    splits = [(_as_indices(train), _as_indices(test)) for train, test in splitter.split(X, strata, **params)]
    if not splits:
        raise OptionError(f"cv={cv!r} gives no splits")
    predicted = np.concatenate([test for _, test in splits])
    if len(np.unique(predicted)) < len(predicted):
        raise OptionError(f"cv={cv!r} predicts some rows several times; its test parts must not overlap")
    if any(np.isin(test, train).any() for train, test in splits):
        raise OptionError(f"cv={cv!r} predicts rows that it trains on")
    if labeled is not None and is_fraction(cv):
        train, test = splits[0]
        splits = [(train[labeled[train]], np.sort(np.concatenate([test, train[~labeled[train]]])))]
    return splits


def _make_splitter(cv: Any, labels: NDArray[Any] | None, random_state: Any) -> Any:
    stated = cv
    if cv is None:  # five folds, or as many as the rarest class has rows
        rarest = 5 if labels is None else int(np.unique(labels, return_counts=True)[1].min())
        cv = max(2, min(5, rarest))
    if is_fraction(cv):
        if not 0 < float(cv) < 1:
            raise OptionError(f"cv as a fraction must be between 0 and 1, got {cv!r}")
        _check_class_counts(labels, 2, f"cv={cv!r}")
        split = ShuffleSplit if labels is None else StratifiedShuffleSplit
        return split(1, test_size=float(cv), random_state=random_state)
    if isinstance(cv, Integral):
        if cv < 2:
            raise OptionError(f"cv must be at least 2 folds, or a fraction such as 0.5, got {cv!r}")
        _check_class_counts(labels, int(cv), f"cv={stated!r}")
        fold = KFold if labels is None else StratifiedKFold
        return fold(int(cv), shuffle=True, random_state=random_state)
    try:
        return check_cv(cv, labels, classifier=True)
    except ValueError:
        raise OptionError(
            f"cv must be a number of folds, a fraction such as 0.5, or a splitter, got {cv!r}"
        ) from None


def _as_indices(rows: Any) -> RowIndices:
    rows = np.asarray(rows)
    return np.flatnonzero(rows) if rows.dtype == bool else rows


def _check_class_counts(labels: NDArray[Any] | None, least: int, cv: str) -> None:
    if labels is None:
        return
    present, counts = np.unique(labels, return_counts=True)
    if (rare := counts < least).any():
        lower = "lower cv, " if least > 2 else ""
        raise EvidenceError(
            f"with {cv} every class needs at least {least} rows, and {shorten(present[rare].tolist())} "
            f"has {int(counts[rare].min())}: add rows, {lower}or merge or drop the class"
        )


def split_held_out(n_rows: int, fraction: float, rng: np.random.Generator) -> tuple[RowIndices, RowIndices]:
    """Return the rows that choose the policy and those that certify it, at random."""
    n_held_out = round(fraction * n_rows)
    if not 0 < n_held_out < n_rows:
        raise OptionError(
            f"held_out={fraction} of {n_rows} rows leaves none for one of the two parts: pass more rows, or "
            "another fraction"
        )
    order = rng.permutation(n_rows)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def predict_out_of_fold(
    model: Any, X: Any, target: Any, splits: Splits, *, params: Mapping[str, Any], n_jobs: int | None
) -> list[tuple[Floats, Any]]:
    """Return for each split the predicted probabilities, and the classes of its training rows."""
    parallel: Any = Parallel(n_jobs=n_jobs)
    return parallel(
        delayed(_fit_and_predict)(clone_unfitted(model), X, target, train, test, params)
        for train, test in splits
    )


def _fit_and_predict(
    model: Any, X: Any, target: Any, train: RowIndices, test: RowIndices, params: Mapping[str, Any]
) -> tuple[Floats, Any]:
    own = _check_method_params(X, params=dict(params), indices=train)
    model.fit(_safe_indexing(X, train), _safe_indexing(target, train), **own)
    return model.predict_proba(_safe_indexing(X, test)), model.classes_


def align_columns(probabilities: Any, present: Any, classes: Any, what: str) -> Floats:
    """Return columns in the order of `classes`, which must all be among those present."""
    positions = {label: i for i, label in enumerate(np.asarray(present).tolist())}
    wanted = np.asarray(classes).tolist()
    if missing := [label for label in wanted if label not in positions]:
        raise EvidenceError(
            f"{what} was trained without any row of {shorten(missing)}: add rows, merge it with another "
            "class, or pass a smaller cv"
        )
    return np.asarray(probabilities, dtype=np.float64)[:, [positions[label] for label in wanted]]
