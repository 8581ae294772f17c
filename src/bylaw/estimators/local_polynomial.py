"""The local polynomial estimator of P(Y = y | x) (section 3.2 of the paper), for few features.

At each point x a polynomial in X_i - x is fitted to 1{Y_i = y} by least squares with weights
K((X_i - x) / h); its value at zero is the estimate. All classes share the weights, so one
against all costs one solve per point, and the estimates add up to one by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import KDTree
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bylaw._base.typing import Floats
from bylaw._base.validation import check_positive
from bylaw.errors import EvidenceError, OptionError

# Kernels of the distance in bandwidths, and where they end.
KERNELS: Mapping[str, tuple[Callable[[Floats], Floats], float]] = {
    "rectangular": (np.ones_like, 1.0),
    "triangular": (lambda u: 1 - u, 1.0),
    "epanechnikov": (lambda u: 1 - u**2, 1.0),
    "biweight": (lambda u: (1 - u**2) ** 2, 1.0),
    "tricube": (lambda u: (1 - u**3) ** 3, 1.0),
    "gaussian": (lambda u: np.exp(-(u**2) / 2), 6.0),
}
_PAIRS = 50_000  # of a point and a neighbour, at once: they stay in a core's cache
_SINGULAR = 1e-9  # relative to the largest eigenvalue
_BANDWIDTHS = 12
_PILOT_ROWS = 200  # that show how far neighbours are
_LOO_ROWS = (200, 1000)  # that judge a bandwidth, at least and at most
_LOO_PAIRS = 2e7  # of such a row and another


class LocalPolynomialClassifier(ClassifierMixin, BaseEstimator):
    """P(Y = y | x) by local polynomials. Distances are Euclidean: bring features to one scale first.

    Parameters
    ----------
    degree
        of the polynomial: 0 averages, 1 is local linear regression, and so on.
    bandwidth
        h, in the units of the features; "cv" takes the one with the least squared error when each
        row is predicted without itself.
    kernel
        "epanechnikov", "rectangular", "triangular", "biweight", "tricube" or "gaussian".

    Attributes
    ----------
    bandwidth_
        the one in use.
    bandwidths_, errors_
        with "cv", those tried, and the squared error of each.
    """

    def __init__(
        self, *, degree: int = 1, bandwidth: float | str = "cv", kernel: str = "epanechnikov"
    ) -> None:
        self.degree = degree
        self.bandwidth = bandwidth
        self.kernel = kernel

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self._check_options()
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise EvidenceError("the classifier needs samples of at least 2 classes, and y has one class")
        weights = _check_sample_weight(sample_weight, X)
        kept = weights > 0
        self._X, self._weights = X[kept], weights[kept]
        self._indicators = np.eye(len(self.classes_))[codes[kept]]
        self.frequencies_ = np.average(self._indicators, axis=0, weights=self._weights)
        self._basis = _Basis(X.shape[1], self.degree)
        self._tree = KDTree(self._X)
        self.bandwidth_ = self._best_bandwidth() if self.bandwidth == "cv" else float(self.bandwidth)
        return self

    def _check_options(self) -> None:
        if not isinstance(self.degree, Integral) or self.degree < 0:
            raise OptionError(f"degree must be a whole number, zero or more, not {self.degree!r}")
        if self.kernel not in KERNELS:
            raise OptionError(f"kernel must be one of {list(KERNELS)}, not {self.kernel!r}")
        if self.bandwidth != "cv":
            check_positive(self.bandwidth, "bandwidth")

    def predict_proba(self, X: Any) -> Floats:
        """(n_rows, n_classes). Where the local fit is not unique, that of least norm, and the classes'
        frequencies where no row is near (the paper has zero for both)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        parts = [self._estimate(smoother) for smoother, _ in self._smoothers(X, self.bandwidth_)]
        return np.concatenate(parts)

    def predict(self, X: Any) -> NDArray[Any]:
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _estimate(self, smoother: sparse.csr_array) -> Floats:
        return self._as_probabilities(np.asarray(smoother @ self._indicators))

    def _as_probabilities(self, estimates: Floats) -> Floats:
        clipped = np.clip(estimates, 0.0, 1.0)
        total = clipped.sum(axis=1, keepdims=True)
        return np.where(total > 0, clipped / np.where(total > 0, total, 1.0), self.frequencies_)

    def _smoothers(self, X: Floats, bandwidth: float) -> Iterator[tuple[sparse.csr_array, slice]]:
        """Linear smoothers L of some rows at a time, with estimates = L @ indicators."""
        counts = self._tree.query_radius(X, KERNELS[self.kernel][1] * bandwidth, count_only=True)
        start = 0
        while start < len(X):
            stop = start + max(1, int(np.searchsorted(np.cumsum(counts[start : start + _PAIRS]), _PAIRS)))
            yield self._smoother(X[start:stop], bandwidth), slice(start, stop)
            start = stop

    def _smoother(self, X: Floats, bandwidth: float) -> sparse.csr_array:
        kernel, end = KERNELS[self.kernel]
        near, far = self._tree.query_radius(X, end * bandwidth, return_distance=True)
        counts = np.array([len(found) for found in near])
        columns = np.concatenate(near)
        weights = kernel(np.concatenate(far) / bandwidth) * self._weights[columns]
        offsets = (self._X[columns] - np.repeat(X, counts, axis=0)).T / bandwidth
        monomials = self._basis.evaluate(offsets)
        moments = np.stack([_sums(weights * monomial, counts) for monomial in monomials], axis=1)
        at_zero = _at_zero(moments[:, self._basis.products])
        values = sum(np.repeat(at_zero[:, m], counts) * monomials[m] for m in range(at_zero.shape[1]))
        ends = np.concatenate([[0], np.cumsum(counts)])
        return sparse.csr_array((weights * values, columns, ends), shape=(len(X), len(self._X)))

    def _best_bandwidth(self) -> float:
        """Each row is predicted without itself, exactly: (estimate - L_ii y_i) / (1 - L_ii)."""
        rng = np.random.default_rng(0)
        count = int(np.clip(_LOO_PAIRS / len(self._X), *_LOO_ROWS))
        judges = np.sort(rng.permutation(len(self._X))[:count])
        self.bandwidths_ = self._candidates(rng)
        self.errors_ = np.array([self._error_without_itself(h, judges) for h in self.bandwidths_])
        return float(self.bandwidths_[int(np.argmin(self.errors_))])

    def _candidates(self, rng: np.random.Generator) -> Floats:
        """From just enough neighbours for the polynomial to all the rows."""
        rows = rng.permutation(len(self._X))[:_PILOT_ROWS]
        fewest = min(2 * self._basis.n_terms + 1, len(self._X))
        distances = self._tree.query(self._X[rows], fewest)[0][:, -1]
        widest = float(np.ptp(self._X, axis=0).max()) or 1.0
        narrowest = min(float(np.median(distances)) or widest / 100, widest)
        return np.geomspace(narrowest, 2 * widest, _BANDWIDTHS) / KERNELS[self.kernel][1]

    def _error_without_itself(self, bandwidth: float, judges: NDArray[np.intp]) -> float:
        total = 0.0
        for smoother, rows in self._smoothers(self._X[judges], bandwidth):
            here = judges[rows]
            own = np.asarray(smoother[np.arange(len(here)), here]).reshape(-1, 1)
            truth = self._indicators[here]
            alone = own > 1 - _SINGULAR  # nobody else near: the frequencies are the estimate
            without = (smoother @ self._indicators - own * truth) / np.where(alone, 1.0, 1 - own)
            estimates = self._as_probabilities(np.where(alone, 0.0, without))
            total += float(self._weights[here] @ ((estimates - truth) ** 2).sum(axis=1))
        return total / float(self._weights[judges].sum())


class _Basis:
    """The monomials up to twice the degree, each made of an earlier one times a coordinate."""

    def __init__(self, n_features: int, degree: int) -> None:
        factors = [
            chosen
            for total in range(2 * degree + 1)
            for chosen in itertools.combinations_with_replacement(range(n_features), total)
        ]
        place = {chosen: i for i, chosen in enumerate(factors)}
        self.steps = [(place[chosen[:-1]], chosen[-1]) for chosen in factors[1:]]
        terms = [chosen for chosen in factors if len(chosen) <= degree]
        self.n_terms = len(terms)
        # (n_terms, n_terms): where the product of two terms stands among the monomials.
        self.products = np.array([[place[tuple(sorted(a + b))] for b in terms] for a in terms])

    def evaluate(self, offsets: Floats) -> list[Floats]:
        """Each monomial, (n_pairs,), of offsets (n_features, n_pairs)."""
        values = [np.ones(offsets.shape[1])]
        for earlier, coordinate in self.steps:
            values.append(values[earlier] * offsets[coordinate])
        return values


def _sums(values: Floats, counts: NDArray[np.int64]) -> Floats:
    """Sums over consecutive runs of values, some of which may be empty."""
    filled = counts > 0
    totals = np.zeros(len(counts))
    if filled.any():
        totals[filled] = np.add.reduceat(values, np.cumsum(counts[filled]) - counts[filled])
    return totals


def _at_zero(equations: Floats) -> Floats:
    """For each symmetric matrix A the first row of its inverse; where it has none, of its pseudo-inverse."""
    values, vectors = np.linalg.eigh(equations)
    regular = values > _SINGULAR * np.maximum(values[:, -1:], np.finfo(float).tiny)
    inverse = np.where(regular, 1 / np.where(regular, values, 1.0), 0.0)
    return np.einsum("qme,qe->qm", vectors, inverse * vectors[:, 0, :])
