"""The local polynomial estimator of P(Y = y | x) (section 3.2 of the paper), for few features.

For each point x, a polynomial in X_i - x is fitted to 1{Y_i = y} by least squares with weights
K((X_i - x) / h), and its value at zero is the estimate. All classes share the weights, so that one linear
system per point is solved, and the estimates add up to one. The bandwidth h is chosen by leave-one-out
cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import KDTree
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bylaw._base import Floats, check_choice, check_positive, check_whole
from bylaw.errors import EvidenceError, OptionError
from bylaw.rows import check_alignment

# Kernels K(distance / h), and the value of distance / h beyond which each kernel is zero.
KERNELS: Mapping[str, tuple[Callable[[Floats], Floats], float]] = {
    "rectangular": (np.ones_like, 1.0),
    "triangular": (lambda u: 1 - u, 1.0),
    "epanechnikov": (lambda u: 1 - u**2, 1.0),
    "biweight": (lambda u: (1 - u**2) ** 2, 1.0),
    "tricube": (lambda u: (1 - u**3) ** 3, 1.0),
    "gaussian": (lambda u: np.exp(-(u**2) / 2), 6.0),
}
_SINGULAR = 1e-9  # eigenvalues below this share of the largest one count as zero


class LocalPolynomialClassifier(ClassifierMixin, BaseEstimator):
    """Local polynomial regression of P(Y = y | x) (section 3.2 of the paper), for few features.

    Distances are Euclidean: scale the features first, for instance with `StandardScaler`. The computing time
    and the number of rows that are needed grow quickly with the number of features.

    Parameters
    ----------
    degree : int, default=1
        The degree of the polynomial: 0 averages (the Nadaraya-Watson estimator), 1 is local linear
        regression, and so on.
    bandwidth : float or "cv", default="cv"
        The bandwidth h, in the units of the features. "cv" chooses the bandwidth with the least leave-one-out
        squared error on up to 1,000 of the training rows.
    kernel : str, default="epanechnikov"
        The kernel: "epanechnikov", "rectangular", "triangular", "biweight", "tricube" or "gaussian"
        (cut off at six bandwidths).

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The labels, sorted.
    frequencies_ : array of shape (n_classes,)
        The weighted frequencies of the classes.
    bandwidth_ : float
        The bandwidth in use.
    bandwidths_, errors_ : arrays of shape (n_bandwidths,)
        With "cv", the bandwidths that were tried, and the leave-one-out error of each.

    References
    ----------
    J.-Y. Audibert and A. B. Tsybakov, "Fast learning rates for plug-in classifiers", The Annals of
    Statistics 35 (2007).

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from bylaw.estimators import LocalPolynomialClassifier
    >>> X, y = make_classification(200, n_features=2, n_redundant=0, random_state=0)
    >>> model = LocalPolynomialClassifier().fit(X, y)
    >>> model.predict_proba(X).shape
    (200, 2)
    >>> bool(model.bandwidth_ == model.bandwidths_[model.errors_.argmin()])
    True
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self, *, degree: int = 1, bandwidth: float | str = "cv", kernel: str = "epanechnikov"
    ) -> None:
        self.degree = degree
        self.bandwidth = bandwidth
        self.kernel = kernel

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Store the training rows and choose the bandwidth.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Features, which must be numbers.
        y : array of shape (n_rows,)
            Labels, of at least two classes.
        sample_weight : array of shape (n_rows,), optional
            Weights of the rows. Rows of weight zero are left out.

        Returns
        -------
        LocalPolynomialClassifier
            The fitted classifier itself.

        Raises
        ------
        OptionError
            If an option is out of range.
        EvidenceError
            If y has only one class, or X, y and sample_weight have different pandas indexes.
        """
        check_alignment({"X": X, "y": y, "sample_weight": sample_weight})
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        if check_whole(self.degree, "degree") < 0:
            raise OptionError(f"degree must be a whole number, zero or more, got {self.degree!r}")
        check_choice(self.kernel, "kernel", KERNELS)
        if self.bandwidth != "cv":
            check_positive(self.bandwidth, "bandwidth")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise EvidenceError("the classifier needs samples of at least 2 classes in y, got one class")
        weights = _check_sample_weight(sample_weight, X)
        kept = weights > 0
        self._X, self._weights = X[kept], weights[kept]
        self._indicators = np.eye(len(self.classes_))[codes[kept]]
        self.frequencies_ = np.average(self._indicators, axis=0, weights=self._weights)
        # The monomials up to twice the degree, and the positions of products of two terms among them.
        self._monomials = PolynomialFeatures(2 * self.degree).fit(X[:1])
        powers = list(map(tuple, self._monomials.powers_))
        terms = [np.array(one) for one in powers if sum(one) <= self.degree]
        self._products = np.array([[powers.index(tuple(a + b)) for b in terms] for a in terms])
        self._tree = KDTree(self._X)
        self.bandwidth_ = self._choose_bandwidth() if self.bandwidth == "cv" else float(self.bandwidth)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the classes for each row.

        If the local fit is not unique, the fit of least norm is used. If no training row is near, the
        probabilities are the frequencies of the classes (the paper uses zero in both cases).

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            New rows.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Probabilities, in the order of `classes_`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        smoothers = self._iterate_smoothers(X, self.bandwidth_)
        return np.concatenate([self._as_probabilities(L @ self._indicators) for L, _ in smoothers])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            New rows.

        Returns
        -------
        array of shape (n_rows,)
            Predicted labels.
        """
        best = self.predict_proba(X).argmax(axis=1)  # raises if not fitted
        return self.classes_[best]

    def _as_probabilities(self, estimates: Floats) -> Floats:
        clipped = np.clip(estimates, 0.0, 1.0)
        total = clipped.sum(axis=1, keepdims=True)
        return np.where(total > 0, clipped / np.where(total > 0, total, 1.0), self.frequencies_)

    def _iterate_smoothers(self, X: Floats, bandwidth: float) -> Iterator[tuple[sparse.csr_array, slice]]:
        """Yield the matrix of the linear smoother for successive slices of the rows of X.

        The estimates on a slice are the matrix times the class indicators of the training rows.
        """
        counts = self._tree.query_radius(X, KERNELS[self.kernel][1] * bandwidth, count_only=True)
        # About 50,000 pairs of a point and a neighbor at once fit into the cache of a core.
        batches = np.cumsum(counts) // 50_000
        for rows in np.split(np.arange(len(X)), np.flatnonzero(np.diff(batches)) + 1):
            yield self._make_smoother(X[rows], bandwidth), slice(rows[0], rows[-1] + 1)

    def _make_smoother(self, X: Floats, bandwidth: float) -> sparse.csr_array:
        kernel, end = KERNELS[self.kernel]
        near, far = self._tree.query_radius(X, end * bandwidth, return_distance=True)
        counts = np.array([len(neighbors) for neighbors in near])
        columns, shape = np.concatenate(near), (len(X), len(self._X))
        if not len(columns):
            return sparse.csr_array(shape)
        weights = kernel(np.concatenate(far) / bandwidth) * self._weights[columns]
        offsets = (self._X[columns] - np.repeat(X, counts, axis=0)) / bandwidth
        monomials = self._monomials.transform(offsets).T
        # The normal equations of each point, from sums of products of monomials over its neighbors.
        ends = np.concatenate([[0], np.cumsum(counts)])
        sums = [sparse.csr_array((weights * m, columns, ends), shape=shape).sum(axis=1) for m in monomials]
        # The value at zero is a row of the inverse of their matrix or, if it is singular, pseudo-inverse.
        values, vectors = np.linalg.eigh(np.stack(sums, axis=1)[:, self._products])
        regular = values > _SINGULAR * np.maximum(values[:, -1:], np.finfo(float).tiny)
        inverse = np.where(regular, 1 / np.where(regular, values, 1.0), 0.0)
        at_zero = np.einsum("qme,qe->qm", vectors, inverse * vectors[:, 0, :])
        terms = zip(at_zero.T, monomials, strict=False)
        values = sum(np.repeat(share, counts) * monomial for share, monomial in terms)
        return sparse.csr_array((weights * values, columns, ends), shape=shape)

    def _choose_bandwidth(self) -> float:
        """Return the bandwidth with the least leave-one-out error on a sample of the training rows."""
        rng = np.random.default_rng(0)
        # 200 to 1,000 rows, which take 2e7 pairs with other rows at most.
        count = int(np.clip(2e7 / len(self._X), 200, 1000))
        sample = np.sort(rng.permutation(len(self._X))[:count])
        # From just enough neighbors for the polynomial, by 200 pilot rows, to all rows.
        pilot = rng.permutation(len(self._X))[:200]
        fewest = min(2 * len(self._products) + 1, len(self._X))
        distances = self._tree.query(self._X[pilot], fewest)[0][:, -1]
        widest = float(np.ptp(self._X, axis=0).max()) or 1.0
        narrowest = min(float(np.median(distances)) or widest / 100, widest)
        self.bandwidths_ = np.geomspace(narrowest, 2 * widest, 12) / KERNELS[self.kernel][1]
        self.errors_ = np.array([self._leave_one_out_error(h, sample) for h in self.bandwidths_])
        return float(self.bandwidths_[int(np.argmin(self.errors_))])

    def _leave_one_out_error(self, bandwidth: float, sample: NDArray[np.intp]) -> float:
        """Compute the mean squared error on a sample of training rows, each predicted from all other rows.

        No refit is needed: with the matrix L of the linear smoother, the leave-one-out estimate of row i is
        exactly (estimate_i - L_ii y_i) / (1 - L_ii).
        """
        total = 0.0
        for smoother, part in self._iterate_smoothers(self._X[sample], bandwidth):
            rows = sample[part]
            leverage = np.asarray(smoother[np.arange(len(rows)), rows]).reshape(-1, 1)
            truth = self._indicators[rows]
            isolated = leverage > 1 - _SINGULAR  # without neighbors, the estimate is the frequencies
            others = (smoother @ self._indicators - leverage * truth) / np.where(isolated, 1.0, 1 - leverage)
            estimates = self._as_probabilities(np.where(isolated, 0.0, others))
            total += float(self._weights[rows] @ ((estimates - truth) ** 2).sum(axis=1))
        return total / float(self._weights[sample].sum())
