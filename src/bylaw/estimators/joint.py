"""One model of several columns together, such as a group and the label: P(s, y | x)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted

from bylaw._base.typing import Floats
from bylaw.data.arrays import as_columns, as_vector, is_frame
from bylaw.data.groups import factorize
from bylaw.errors import EvidenceError
from bylaw.estimators.cross_fitting import fresh, with_probabilities


class JointClassifier(MetaEstimatorMixin, BaseEstimator):
    """A classifier of the combinations of several columns: never a product of marginals.

    Parameters
    ----------
    estimator
        a classifier; with a `decision_function` only, it is calibrated first.

    Attributes
    ----------
    estimator_
        fitted on one class per combination.
    values_
        for each column its values, sorted.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, columns: Any, **params: Any) -> Self:
        """`columns`: a frame or a dict of columns, or an array (n_rows, n_columns)."""
        codes, self.values_ = cells_of(columns)
        self.shape_ = tuple(map(len, self.values_))
        self.estimator_ = fresh(with_probabilities(self.estimator, "estimator")).fit(X, codes, **params)
        return self

    def predict_joint(self, X: Any) -> Floats:
        """(n_rows, n_values of the first column, of the second, ...); zero where the fit saw nothing."""
        check_is_fitted(self)
        return spread(self.estimator_.predict_proba(X), self.estimator_.classes_, self.shape_)

    def predict_proba(self, X: Any) -> list[Floats]:
        """Each column by itself, (n_rows, n_values) each."""
        joint = self.predict_joint(X)
        axes = range(1, joint.ndim)
        return [joint.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]


def cells_of(columns: Any) -> tuple[NDArray[np.int64], tuple[tuple[Any, ...], ...]]:
    """Each row's combination as one number, and the values of each column."""
    if isinstance(columns, dict) or is_frame(columns):
        named = as_columns(columns, "columns")
    else:
        array = np.asarray(columns, dtype=object)
        if array.ndim != 2:
            raise EvidenceError(f"columns must have shape (rows, columns), not {array.shape}")
        named = {str(i): array[:, i] for i in range(array.shape[1])}
    groups = [factorize(as_vector(column, f"column {name!r}"), name) for name, column in named.items()]
    if len({len(group.codes) for group in groups}) != 1:
        raise EvidenceError("the columns must be at least one, and of the same length")
    shape = tuple(len(group.values) for group in groups)
    codes = np.ravel_multi_index([group.codes for group in groups], shape)
    return codes, tuple(group.values for group in groups)


def spread(probabilities: Floats, cells: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
    """Probabilities of the cells that a model knows, among all of them, (n_rows, *shape)."""
    full = np.zeros((len(probabilities), int(np.prod(shape))))
    full[:, cells] = probabilities
    return full.reshape(-1, *shape)
