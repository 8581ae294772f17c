"""A model of the joint distribution of several columns, such as P(group, label | x)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.utils.validation import check_is_fitted

from bylaw._base import Floats
from bylaw.errors import EvidenceError
from bylaw.estimators._sklearn_contract import clone_unfitted, ensure_probabilities
from bylaw.rows import as_columns, as_vector, check_alignment, factorize, is_frame


class JointClassifier(MetaEstimatorMixin, BaseEstimator):
    """A model of the joint distribution of several columns given x, such as P(group, label | x).

    Each combination of values is a class, so that the joint distribution is learned directly and not as a
    product of marginals. `ConstrainedClassifier` makes such a model if it needs one. To pass a fitted one,
    use `group_estimator=FrozenEstimator(joint_classifier)`.

    Parameters
    ----------
    estimator : classifier
        A classifier with `predict_proba`, or with `decision_function`, which is then calibrated by
        `CalibratedClassifierCV`.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier, with one class for each combination of values in the training rows.
    values_ : tuple of tuples
        The values of each column, sorted.
    shape_ : tuple of int
        The number of values of each column.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from bylaw.estimators import JointClassifier
    >>> X, y = make_classification(200, random_state=0)
    >>> sex = np.where(X[:, 0] > 0, "F", "M")
    >>> model = JointClassifier(LogisticRegression()).fit(X, {"sex": sex, "label": y})
    >>> model.values_
    (('F', 'M'), (0, 1))
    >>> joint = model.predict_joint(X)  # P(sex, label | x)
    >>> joint.shape
    (200, 2, 2)
    >>> bool(np.allclose(joint.sum(axis=(1, 2)), 1))
    True
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, columns: Any, **params: Any) -> Self:
        """Train the estimator on the combinations of the columns.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            The features, in a form that the estimator accepts.
        columns : frame, dict, or array of shape (n_rows, n_columns)
            The columns to predict.
        **params
            Further arguments for the `fit` of the estimator.

        Returns
        -------
        JointClassifier
            The fitted model itself.

        Raises
        ------
        EvidenceError
            If a column has missing values, or another length or pandas index than the others.
        OptionError
            If the estimator has neither `predict_proba` nor `decision_function`.
        """
        check_alignment({"X": X, "columns": columns, **params})
        if not (isinstance(columns, dict) or is_frame(columns)):
            array = np.asarray(columns, dtype=object)
            if array.ndim != 2:
                raise EvidenceError(
                    f"columns must be an array of shape (n_rows, n_columns), got the shape {array.shape}"
                )
            columns = {str(i): array[:, i] for i in range(array.shape[1])}
        named = as_columns(columns, "columns").items()
        groups = [factorize(as_vector(column, f"column {name!r}"), name) for name, column in named]
        if len({len(group.codes) for group in groups}) != 1:
            lengths = [len(group.codes) for group in groups]
            raise EvidenceError(
                f"columns must be one or more columns of the same length, got lengths {lengths}"
            )
        self.values_ = tuple(group.values for group in groups)
        self.shape_ = tuple(map(len, self.values_))
        cells = np.ravel_multi_index([group.codes for group in groups], self.shape_)
        model = ensure_probabilities(self.estimator, "estimator")
        self.estimator_ = clone_unfitted(model).fit(X, cells, **params)
        return self

    def predict_joint(self, X: Any) -> Floats:
        """Return the joint probabilities of the columns.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            New rows.

        Returns
        -------
        array of shape (n_rows, n_values of the first column, n_values of the second, ...)
            Probabilities, in the order of `values_`; zero for a combination of values that no training row
            has.
        """
        check_is_fitted(self)
        return expand_cells(self.estimator_.predict_proba(X), self.estimator_.classes_, self.shape_)

    def predict_proba(self, X: Any) -> list[Floats]:
        """Return the marginal probabilities of each column.

        Parameters
        ----------
        X : array or frame of shape (n_rows, n_features)
            New rows.

        Returns
        -------
        list of arrays of shape (n_rows, n_values)
            One array for each column, in the order of `values_`.
        """
        joint = self.predict_joint(X)
        axes = range(1, joint.ndim)
        return [joint.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]


def expand_cells(probabilities: Floats, cells: NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
    """Return probabilities of all cells (combinations of values), (n_rows, *shape).

    `probabilities` has columns for `cells` only, those in the training rows; other cells get zero.
    """
    full = np.zeros((len(probabilities), int(np.prod(shape))))
    full[:, cells] = probabilities
    return full.reshape(-1, *shape)
