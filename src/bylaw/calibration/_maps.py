"""Calibration maps, which convert a row's distribution over K cells to a calibrated one, and their fits.

All maps have the same form, which is easy to save and export: with x_k = log max(p_k, floor),

    score_k = bias_k + sum_l weights_kl x_l + sum_h bends_kh max(0, x_k - knots_kh),

and the calibrated probabilities are the softmax of the scores. Temperature scaling is weights = I / T, vector
scaling a diagonal matrix and a bias, Dirichlet calibration a full matrix and a bias, and a monotone map
("isotonic") a diagonal matrix, a bias and bends.

The numbers of a map (bias, weights, bends) are linear in a few free parameters, theta; the methods differ
only in these. Fits minimize

    sum_i w_i (log sum_k exp score_ik - score_i,y_i) + 1/2 sum_j ridge_j (theta_j - center_j)^2,

which is convex, by Newton's method. Logarithms are first tempered, that is multiplied by the best common
slope, so that all parameters are of order one; biases start at those that fit best with that slope.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, sparse

from bylaw._base import BadValueError, Floats, Node
from bylaw.rows import own

Method = Literal["temperature", "vector", "dirichlet", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "vector", "isotonic", "dirichlet")
SMALLEST_FLOOR = 1e-100  # as in exports, because some databases raise an error on underflow
LOWEST_LOG = -30.0  # least log of a calibrated probability relative to the largest, so that none is 0
# Matrix products of different shapes round differently: rows go in tiles of one width, so that
# a row's answer is the same, to the last bit, in any batch.
_TILE = 2048


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """A map from probabilities of K cells (labels or group values) to calibrated ones.

    Attributes
    ----------
    method : str
        The method of the fit; "none" for the map that only clips at the floor.
    floor : float
        The smallest probability; smaller ones are replaced by it.
    bias : array of shape (K,)
        The constant in each score.
    weights : array of shape (K, K)
        The weights of the logarithms of the probabilities in each score.
    knots, bends : arrays of shape (K, H)
        The points where the slope in a cell's own logarithm changes, and by how much; H is the number of
        bends, zero except in monotone maps.

    Examples
    --------
    >>> import numpy as np
    >>> halved = CalibrationMap("temperature", 1e-9, np.zeros(2), np.eye(2) / 2)
    >>> halved.apply(np.array([[0.9, 0.1]])).round(4)  # the log-odds of 9 to 1 become those of 3 to 1
    array([[0.75, 0.25]])
    """

    method: str
    floor: float
    bias: Floats
    weights: Floats
    knots: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    bends: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        for name in ("bias", "weights", "knots", "bends"):
            array = np.asarray(getattr(self, name), dtype=np.float64)
            array = array if array.size else np.zeros((len(self.bias), 0))
            object.__setattr__(self, name, own(array, array))

    def apply(self, probabilities: Floats) -> Floats:
        """Return calibrated probabilities.

        Parameters
        ----------
        probabilities : array of shape (n_rows, K)
            The probabilities to calibrate.

        Returns
        -------
        array of shape (n_rows, K)
            Calibrated probabilities, never zero. The result for a row does not depend on the other rows.
        """
        calibrated = np.empty(probabilities.shape)
        logs = np.zeros((len(self.bias), _TILE))
        for start in range(0, len(probabilities), _TILE):
            rows = slice(start, min(start + _TILE, len(probabilities)))
            width = rows.stop - start
            logs[:, :width] = take_logs(probabilities[rows], self.floor)
            scores = self.compute_scores(logs)
            scores -= scores.max(axis=0)
            np.exp(np.maximum(scores, LOWEST_LOG, out=scores), out=scores)
            scores /= scores.sum(axis=0)
            calibrated[rows] = scores[:, :width].T
        return calibrated

    def compute_scores(self, logs: Floats) -> Floats:
        """Return the scores, (K, n_rows), for log probabilities of the same shape."""
        slopes = np.diag(self.weights)
        only_own = not (self.weights - np.diag(slopes)).any()  # each score depends on its own cell
        scores = slopes[:, None] * logs if only_own else self.weights @ logs
        scores += self.bias[:, None]
        for knots, bends in zip(self.knots.T, self.bends.T, strict=True):
            scores += bends[:, None] * np.maximum(logs - knots[:, None], 0.0)
        return scores

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, from which all numbers can be restored exactly."""
        arrays = {name: getattr(self, name).tolist() for name in ("bias", "weights", "knots", "bends")}
        return {"method": self.method, "floor": self.floor, **arrays}

    @classmethod
    def from_node(cls, node: Node, n_cells: int) -> CalibrationMap:
        """Read and check a map that `to_dict` wrote to a file."""
        rows = node["knots"].list()
        n_bends = len(rows[0].list()) if rows else 0
        floor = node["floor"].positive()
        if not SMALLEST_FLOOR <= floor < 1:
            node["floor"].fail(f"at least {SMALLEST_FLOOR:g} and less than 1")
        read = cls(
            method=node["method"].one_of(("none", *METHODS)),
            floor=floor,
            bias=node["bias"].vector(n_cells),
            weights=node["weights"].matrix(n_cells, n_cells),
            knots=node["knots"].matrix(n_cells, n_bends),
            bends=node["bends"].matrix(n_cells, n_bends),
        )
        with np.errstate(over="ignore", invalid="ignore"):
            extremes = [np.full((n_cells, 1), np.log(floor)), np.zeros((n_cells, 1))]
            if not all(np.isfinite(read.compute_scores(logs)).all() for logs in extremes):
                raise BadValueError(f"the numbers of {node.place} must give finite scores")
        return read


def take_logs(probabilities: Floats, floor: float) -> Floats:
    """Return log max(p, floor), (K, n_rows), for probabilities (n_rows, K)."""
    return np.log(np.maximum(probabilities.T, floor))


_LEAST_SLOPE = 0.02  # least slope of a monotone map in tempered logarithms
_MOST_KNOTS = 8  # of each cell
_SHORTEST = 0.01  # least distance of two knots in penalties
_LOW = 0.02  # the lowest slope begins at this quantile of the logarithms
_ROWS_PER_KNOT = 60  # rows of the rarest cell for each knot
_RIDGE_BIAS, _RIDGE_SLOPE, _RIDGE_OFF = 0.1, 1.0, 20.0
_RIDGE_LEVEL = 1e-3  # penalty of the biases and slope in `fit_level`, so that they are unique
_RIDGE_GROUP = 4.0  # penalty of a group's parameters towards those of all rows
_MOST_STEPS = 200
_MOST_CURVED = 1000  # the most parameters for Newton's method
_PRECISION = 1e-8  # of the minimum of the loss
_NEARLY = 1e-5  # after a full Newton step that gains so little, the next one would gain about its square
_ROUNDING = 1e-13  # relative increase of the diagonal that keeps the Hessian positive definite
_SHARES = tuple(0.5**k for k in range(20))  # shares of a Newton step for the line search


@dataclass(frozen=True)
class Sample:
    """Rows with log probabilities of K cells and an observed cell each."""

    logs: Floats  # (K, n_rows): log max(p, floor)
    codes: NDArray[np.int64]  # (n_rows,): the observed cell
    weights: Floats  # (n_rows,), with mean one
    floor: float  # least probability

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_cells(self) -> int:
        return len(self.logs)

    def rows(self, part: NDArray[np.intp] | slice) -> Sample:
        weights = self.weights[part]
        return Sample(
            np.ascontiguousarray(self.logs[:, part]), self.codes[part], weights / weights.mean(), self.floor
        )

    def losses(self, scores: Floats) -> Floats:
        """Return the log loss of each row, (n_rows,), for scores (K, n_rows)."""
        peak = scores.max(axis=0)
        total = np.log(np.exp(scores - peak).sum(axis=0)) + peak
        return total - scores[self.codes, np.arange(len(self))]


def make_sample(probabilities: Floats, codes: NDArray[np.int64], weights: Floats) -> Sample:
    """Return the sample of rows with these probabilities, (n_rows, K), and observed cells.

    The floor is half of the smallest positive probability. All codes must be cells, and some weight positive.
    """
    positive = probabilities[probabilities > 0]
    least = float(positive.min()) / 2 if positive.size else SMALLEST_FLOOR
    floor = min(max(least, SMALLEST_FLOOR), 0.5 / probabilities.shape[1])
    return Sample(take_logs(probabilities, floor), codes, weights / weights.mean(), floor)


@dataclass(frozen=True)
class Design:
    """The set of maps of a method: scores = (basis @ theta) features, for theta within bounds.

    The features of a cell are one, its own logarithm and its hinges max(0, x - knot), or, for Dirichlet
    calibration, one and the logarithms of all cells.
    """

    method: Method
    n_cells: int
    knots: Floats  # (K, H), in tempered logarithms
    basis: sparse.csr_array  # (K * Q, n_free): parameters to weights of features
    center: Floats  # (n_free,): parameters without penalty
    ridge: Floats  # (n_free,): penalties
    lower: Floats  # (n_free,): lower bounds

    def features(self, logs: Floats) -> Floats:
        """Return the features, (K, Q, n_rows), of tempered logarithms (K, n_rows).

        The shape is (1, Q, n_rows) if all cells have the same features.
        """
        if self.method == "dirichlet":
            return np.concatenate([np.ones((1, logs.shape[1])), logs])[None]
        features = np.empty((len(logs), 2 + self.knots.shape[1], logs.shape[1]))
        features[:, 0], features[:, 1] = 1.0, logs
        np.maximum(logs[:, None, :] - self.knots[:, :, None], 0.0, out=features[:, 2:])
        return features

    def scores(self, theta: Floats, features: Floats) -> Floats:
        """Return the scores, (K, n_rows), of the map with parameters theta."""
        numbers = self.numbers(theta)
        return numbers @ features[0] if len(features) == 1 else (numbers[:, None] @ features)[:, 0]

    def numbers(self, theta: Floats) -> Floats:
        """Return the weight of each feature in each score, (K, Q)."""
        return (self.basis @ theta).reshape(self.n_cells, -1)


@dataclass(frozen=True)
class FittedMap:
    """A fitted map: its parameters theta, and the design that they belong to."""

    design: Design
    slope: float  # factor of the tempered logarithms: one over the temperature
    theta: Floats  # (n_free,): the parameters

    def scores(self, sample: Sample) -> Floats:
        """Return the scores of a sample, (K, n_rows)."""
        return self.design.scores(self.theta, self.design.features(self.slope * sample.logs))

    def losses(self, sample: Sample) -> Floats:
        """Return the log loss of each row of a sample, (n_rows,)."""
        return sample.losses(self.scores(sample))

    def make_map(self, floor: float) -> CalibrationMap:
        """Convert to a `CalibrationMap` of logarithms that are not tempered."""
        bias, *slopes = self.design.numbers(self.theta).T
        full = self.design.method == "dirichlet"
        weights = np.transpose(slopes) if full else np.diag(slopes[0])
        bends = np.zeros_like(self.design.knots) if full else np.transpose(slopes[1:]).reshape(len(bias), -1)
        knots = self.design.knots / self.slope
        return CalibrationMap(
            self.design.method, floor, bias, weights * self.slope, knots, bends * self.slope
        )


def fit_slope(sample: Sample) -> float:
    """Return the inverse of the temperature with the least log loss."""
    slope = 1.0 / max(float(np.std(sample.logs)), 1e-3)
    own = sample.logs[sample.codes, np.arange(len(sample))]
    for _ in range(_MOST_STEPS):
        scores = slope * sample.logs
        scores -= scores.max(axis=0)
        shares = np.exp(scores)
        shares /= shares.sum(axis=0)
        mean = (shares * sample.logs).sum(axis=0)
        gradient = float(sample.weights @ (mean - own))
        curvature = float(sample.weights @ ((shares * sample.logs**2).sum(axis=0) - mean**2))
        # The slope stays positive, even if the probabilities contain no information.
        step = gradient / max(curvature, 1e-12)
        moved = min(max(slope - step, slope / 4), slope * 4)
        if abs(moved - slope) <= 1e-10 * slope or moved < 1e-6:
            return max(moved, 1e-6)
        slope = moved
    return slope


def fit_level(sample: Sample) -> tuple[float, Floats]:
    """Fit one slope shared by all cells and one bias for each cell, (K,).

    If log-odds are far from zero, a temperature alone is not enough to match the observed frequencies.
    """
    K, spread = sample.n_cells, max(float(np.std(sample.logs - sample.logs.mean(axis=1)[:, None])), 1e-3)
    places = np.arange(2 * K).reshape(K, 2)
    entries = np.ones(2 * K), (places.T.ravel(), np.append(np.arange(K), np.full(K, K)))
    basis = sparse.csr_array(entries, shape=(2 * K, K + 1))
    counts = np.bincount(sample.codes, sample.weights, minlength=K) + 1
    # Begin with the observed frequencies at the mean of the logarithms.
    begin = np.append(np.log(counts) - sample.logs.mean(axis=1) / spread, 1.0)
    ridge, lower = np.full(K + 1, _RIDGE_LEVEL), np.append(np.full(K, -np.inf), 1e-6)
    design = Design("vector", K, np.zeros((K, 0)), basis, begin, ridge, lower)
    *bias, slope = fit_map(sample, design, 1 / spread).theta
    return float(slope / spread), np.array(bias)


def fit_map(sample: Sample, design: Design, slope: float, begin: Floats | None = None) -> FittedMap:
    """Return the map of a design with the least penalized log loss."""
    loss = Loss(sample, design, design.features(slope * sample.logs))
    start = np.maximum(design.center if begin is None else begin, design.lower)
    if len(start) <= _MOST_CURVED:
        return FittedMap(design, slope, _take_newton_steps(loss, start))
    # There are too many parameters to compute their curvature.
    bounds = optimize.Bounds(design.lower)  # type: ignore[arg-type]
    options = {"maxiter": _MOST_STEPS, "ftol": _PRECISION, "gtol": 1e-6, "maxcor": 20}
    found = optimize.minimize(
        lambda x: loss.at(x)[:2], start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return FittedMap(design, slope, np.maximum(found.x, design.lower))


def _take_newton_steps(loss: Loss, theta: Floats) -> Floats:
    """Minimize a loss by Newton's method with lower bounds, and return the parameters."""
    lower, (value, gradient, shares) = loss.design.lower, loss.at(theta)
    for _ in range(_MOST_STEPS):
        free = np.flatnonzero((theta > lower) | (gradient < 0))
        step = np.zeros_like(theta)
        hessian = loss.hessian(shares)[np.ix_(free, free)]
        step[free] = linalg.solve(hessian, gradient[free], assume_a="pos")
        decrement = float(gradient @ step)
        if decrement <= _PRECISION:
            break
        for share in _SHARES:
            moved = np.maximum(theta - share * step, lower)
            there = loss.at(moved)
            if there[0] <= value - 0.1 * float(gradient @ (theta - moved)):
                break
        else:  # no better point: the precision is limited by rounding
            break
        theta, (value, gradient, shares) = moved, there
        if share == 1 and decrement <= _NEARLY:
            break
    return theta


@dataclass(frozen=True)
class Loss:
    """The penalized log loss of a design on a sample, averaged over rows."""

    sample: Sample
    design: Design
    features: Floats  # (K or 1, Q, n_rows)

    def at(self, theta: Floats) -> tuple[float, Floats, Floats]:
        """Return the loss, its gradient (n_free,) and the calibrated probabilities (K, n_rows)."""
        sample, rows = self.sample, np.arange(len(self.sample))
        scores = self.design.scores(theta, self.features)
        scores -= scores.max(axis=0)
        own = scores[sample.codes, rows]
        np.exp(scores, out=scores)
        total = scores.sum(axis=0)
        value = float(sample.weights @ (np.log(total) - own))
        scores /= total
        excess = scores * sample.weights
        excess[sample.codes, rows] -= sample.weights
        away = theta - self.design.center
        value += 0.5 * float(self.design.ridge @ away**2)
        slopes = (self.features @ excess[:, :, None])[:, :, 0]
        gradient = self.design.basis.T @ slopes.ravel() + self.design.ridge * away
        return value / len(rows), gradient / len(rows), scores

    def hessian(self, shares: Floats) -> Floats:
        """Return the second derivatives, (n_free, n_free), at calibrated probabilities (K, n_rows)."""
        K, n_rows = shares.shape
        roots = np.sqrt(self.sample.weights)
        weighted = self.features * (shares * roots)[:, None]  # (K, Q, n_rows)
        rows = weighted.reshape(-1, n_rows)
        total = rows @ -rows.T
        spread = weighted @ (self.features * roots).swapaxes(1, 2)  # (K, Q, Q)
        blocks = total.reshape(K, -1, K, spread.shape[1])
        blocks[np.arange(K), :, np.arange(K)] += spread
        curved = self.design.basis.T @ (self.design.basis.T @ total).T
        curved[np.diag_indices_from(curved)] += self.design.ridge + _ROUNDING * (1 + np.trace(curved))
        return curved / n_rows


def make_design(method: Method, sample: Sample, slope: float, bias: Floats | float = 0.0) -> Design:
    """Return the design of a method, with knots at quantiles of this sample.

    `slope` is that of the tempered logarithms, and `bias` is the center of the biases, (K,).
    """
    K = sample.n_cells
    knots = place_knots(sample, slope) if method == "isotonic" else np.zeros((K, 0))
    n_features = 1 + K if method == "dirichlet" else 2 + knots.shape[1]
    places = np.arange(K * n_features).reshape(K, n_features)
    if method == "temperature":  # one slope for all cells
        basis = sparse.csr_array((np.ones(K), (places[:, 1], np.zeros(K, dtype=int))), shape=(2 * K, 1))
        return Design(method, K, knots, basis, np.ones(1), np.zeros(1), np.full(1, _LEAST_SLOPE))
    parameters = list[
        tuple[Any, ...]
    ]()  # for each kind: numbers of a map, signs, columns, centers, penalties, bounds

    def add(numbers: Any, at: Any, penalty: Any, least: float, others: Any = ()) -> None:
        """Add a free parameter to each of these numbers of a map, and subtract it from others."""
        n_free = sum(len(part[3]) for part in parameters)
        free = n_free + np.arange(len(numbers))
        signs = np.repeat([1.0, -1.0], [len(numbers), len(others)])
        fits = (np.broadcast_to(value, len(numbers)) for value in (at, penalty, least))
        parameters.append(
            (np.append(numbers, others), signs, np.append(free, free[: len(others)]), *map(np.asarray, fits))
        )

    add(places[:, 0], bias, _RIDGE_BIAS, -np.inf)
    if method == "dirichlet":
        own = np.diagonal(places[:, 1:])
        add(own, 1.0, _RIDGE_SLOPE, -np.inf)
        add(np.setdiff1d(places[:, 1:], own), 0.0, _RIDGE_OFF, -np.inf)
    elif method == "vector":
        add(places[:, 1], 1.0, _RIDGE_SLOPE, _LEAST_SLOPE)
    else:
        # A slope for each cell between neighboring knots; a bend is the difference of two. Slopes are
        # penalized by what they add to a score.
        lowest = np.quantile(slope * sample.logs, _LOW, axis=1)
        ends = np.column_stack([np.minimum(lowest, knots[:, 0]), knots, np.zeros(K)])
        lengths = np.clip(np.diff(ends), _SHORTEST, 1.0)
        slopes = [*places[:, 1:].T, ()]
        for h in range(len(slopes) - 1):
            add(slopes[h], 1.0, _RIDGE_SLOPE * lengths[:, h] ** 2, _LEAST_SLOPE, slopes[h + 1])
    numbers, signs, free, center, ridge, lower = map(np.concatenate, zip(*parameters, strict=True))
    basis = sparse.csr_array((signs, (numbers.astype(int), free)), shape=(places.size, len(center)))
    return Design(method, K, knots, basis, center, ridge, lower)


def shrink_towards(design: Design, theta: Floats) -> Design:
    """Return a design for a group's map, with a penalty on the distance of its parameters from theta."""
    return replace(design, center=theta, ridge=_RIDGE_GROUP * np.where(design.ridge > 0, design.ridge, 1.0))


def place_knots(sample: Sample, slope: float) -> Floats:
    """Return the knots of each cell, (K, H): quantiles of its tempered logarithms.

    The quantiles are those of all rows and of the rows of the cell, averaged with equal weight.
    """
    counts = np.bincount(sample.codes, minlength=sample.n_cells)
    n_knots = int(np.clip(counts.min() // _ROWS_PER_KNOT, 1, _MOST_KNOTS))
    levels = (np.arange(n_knots) + 1) / (n_knots + 1)
    knots = np.empty((sample.n_cells, n_knots))
    for k, logs in enumerate(slope * sample.logs):
        here = sample.codes == k
        mass = sample.weights * (1 / sample.weights.sum() + here / max(sample.weights[here].sum(), 1e-300))
        order = np.argsort(logs, kind="stable")
        heights = np.cumsum(mass[order])
        places = np.searchsorted(heights, levels * heights[-1])
        knots[k] = logs[order][np.minimum(places, len(logs) - 1)]
    return knots
