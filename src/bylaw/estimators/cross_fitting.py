"""Cross-fitting: probabilities of rows that a model was not trained on, by folds or by one split."""

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
DEFAULT_FOLDS = 5
_STRATUM = 100  # fewer rows without labels are spread by chance


def ensure_probabilities(estimator: Any, what: str) -> Any:
    """The classifier itself, or calibrated first where it only has a decision function."""
    if hasattr(estimator, "predict_proba"):
        return estimator
    if hasattr(estimator, "decision_function"):
        return CalibratedClassifierCV(estimator)
    raise OptionError(
        f"{what} must be a classifier with predict_proba or decision_function, not {estimator!r}"
    )


def clone_unfitted(estimator: Any) -> Any:
    """`sklearn.base.clone`, of one estimator."""
    return clone(estimator)


def is_frozen(estimator: Any) -> bool:
    return isinstance(estimator, FrozenEstimator)


def is_fraction(cv: Any) -> bool:
    """Whether `cv` asks for one split, by the fraction of the rows to predict."""
    return isinstance(cv, Real) and not isinstance(cv, Integral)


def make_splits(
    cv: Any,
    X: Any,
    labels: NDArray[Any] | None,
    random_state: Any,
    params: Mapping[str, Any],
    labelled: NDArray[np.bool_] | None = None,
) -> list[tuple[RowIndices, RowIndices]]:
    """Folds (a whole number or a splitter), or one split (the fraction to predict), stratified by the
    labels where these are known. `labelled` are the rows that show theirs, unless all do.

    Each unlabelled row is predicted by the model of one fold, as each labelled row is: only then do the
    errors of the labelled rows tell those of all. One split trains on labelled rows alone.
    """
    splitter = _make_splitter(cv, labels if labelled is None else labels[labelled], random_state)  # type: ignore[index]
    strata = labels if labelled is None else _stratify(labels, labelled)
    splits = [(_as_indices(train), _as_indices(test)) for train, test in splitter.split(X, strata, **params)]
    _check_splits(splits, cv)
    if labelled is not None and is_fraction(cv):
        train, test = splits[0]
        splits = [(train[labelled[train]], np.sort(np.concatenate([test, train[~labelled[train]]])))]
    return splits


def _stratify(labels: Any, labelled: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Positions of the labels, and -1 for rows without one, if these suffice for a stratum of their own."""
    codes = np.unique(labels, return_inverse=True)[1]
    return codes if (~labelled).sum() < _STRATUM else np.where(labelled, codes, -1)


def _make_splitter(cv: Any, labels: NDArray[Any] | None, random_state: Any) -> Any:
    stated, cv = cv, _choose_folds(labels) if cv is None else cv
    if is_fraction(cv):
        if not 0 < float(cv) < 1:
            raise OptionError(f"cv as a fraction must be between 0 and 1, not {cv!r}")
        _check_class_counts(labels, 2, f"cv={cv!r}")
        split = ShuffleSplit if labels is None else StratifiedShuffleSplit
        return split(1, test_size=float(cv), random_state=random_state)
    if isinstance(cv, Integral):
        if cv < 2:
            raise OptionError(f"cv must be at least 2 folds, or a fraction such as 0.5, not {cv!r}")
        _check_class_counts(labels, int(cv), f"cv={stated!r}")
        fold = KFold if labels is None else StratifiedKFold
        return fold(int(cv), shuffle=True, random_state=random_state)
    try:
        return check_cv(cv, labels, classifier=True)
    except ValueError:
        raise OptionError(
            f"cv must be a number of folds, a fraction such as 0.5, or a splitter, not {cv!r}"
        ) from None


def _choose_folds(labels: NDArray[Any] | None) -> int:
    """Five, or as many as the rarest class has rows; at least two."""
    rarest = DEFAULT_FOLDS if labels is None else int(np.unique(labels, return_counts=True)[1].min())
    return max(2, min(DEFAULT_FOLDS, rarest))


def _as_indices(rows: Any) -> RowIndices:
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
    """The rows that choose the policy and those that certify it, at random."""
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
    """For each split, out-of-fold probabilities (n_predicted, n_classes) of the rows it predicts, and the
    classes that the model was trained on."""
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
    """Columns in the order of `classes`; each must be among those present."""
    positions = {label: i for i, label in enumerate(np.asarray(present).tolist())}
    wanted = np.asarray(classes).tolist()
    if missing := [label for label in wanted if label not in positions]:
        raise EvidenceError(
            f"{what} was trained without any row of {shorten(missing)}: add rows, merge it with another "
            "class, or pass a smaller cv"
        )
    return np.asarray(probabilities, dtype=np.float64)[:, [positions[label] for label in wanted]]
