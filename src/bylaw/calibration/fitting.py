"""Fits of calibration maps: penalised maximum likelihood, which is convex for every method.

The numbers of a map (bias, weights, bends) are linear in a few free parameters, theta; which ones is all that
tells the methods apart. Minimised is

    sum_i w_i (log sum_k exp score_ik - score_i,y_i) + 1/2 sum_j ridge_j (theta_j - centre_j)^2,

by L-BFGS-B with analytic gradients. Logarithms are tempered first, that is divided by the best temperature,
so that all parameters are of order one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from bylaw._base.typing import Floats
from bylaw.calibration.maps import CalibrationMap, Method, find_floor, take_logs

_LEAST_SLOPE = 0.02  # of a monotone map in tempered logarithms: the order of rows is kept
_MOST_KNOTS = 8
_SHORTEST = 0.01  # way between two knots
_LOW = 0.02  # share of rows below which a slope is hardly seen
_ROWS_PER_KNOT = 60  # of the rarest class
_RIDGE_BIAS, _RIDGE_SLOPE, _RIDGE_OFF = 0.1, 1.0, 20.0
_RIDGE_GROUP = 4.0  # of a group's parameters towards those of all rows
_MOST_STEPS = 200
_FEW = 2000  # rows that show how the objective curves


@dataclass(frozen=True)
class Sample:
    """Rows with an observed cell each."""

    logs: Floats  # (K, n_rows): log max(p, floor)
    codes: NDArray[np.int64]  # (n_rows,): the cell that was observed
    weights: Floats  # (n_rows,), with mean one
    floor: float

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
        """(n_rows,): log loss of scores (K, n_rows)."""
        peak = scores.max(axis=0)
        total = np.log(np.exp(scores - peak).sum(axis=0)) + peak
        return total - scores[self.codes, np.arange(len(self))]


def make_sample(probabilities: Floats, codes: NDArray[np.int64], weights: Floats) -> Sample:
    """Rows of probabilities (n_rows, K); all codes are cells, and some weight is positive."""
    floor = find_floor(probabilities)
    return Sample(take_logs(probabilities, floor), codes, weights / weights.mean(), floor)


@dataclass(frozen=True)
class Design:
    """Which maps a method chooses from: numbers = basis @ theta, for theta within bounds."""

    method: Method
    n_cells: int
    knots: Floats  # (K, H), in tempered logarithms
    basis: sparse.csr_array  # (K + K * K + K * H, n_free)
    centre: Floats  # (n_free,)
    ridge: Floats  # (n_free,)
    lower: Floats  # (n_free,)
    diagonal: bool  # each score depends on its own cell alone

    def split(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """bias (K,), weights (K, K), bends (K, H)."""
        K = self.n_cells
        numbers = self.basis @ theta
        return numbers[:K], numbers[K : K + K * K].reshape(K, K), numbers[K + K * K :].reshape(K, -1)

    def join(self, bias: Floats, weights: Floats, bends: Floats) -> Floats:
        """The transpose of `split`: gradients (n_free,) from those of bias, weights and bends."""
        return self.basis.T @ np.concatenate([bias, weights.ravel(), bends.ravel()])

    def scores(self, theta: Floats, logs: Floats, hinges: Floats) -> Floats:
        """(K, n_rows), of tempered logarithms (K, n_rows) and their hinges (K, H, n_rows)."""
        bias, weights, bends = self.split(theta)
        scores = np.diag(weights)[:, None] * logs if self.diagonal else weights @ logs
        scores += bias[:, None]
        return scores + (bends[:, None, :] @ hinges)[:, 0] if hinges.size else scores

    def hinges(self, logs: Floats) -> Floats:
        """(K, H, n_rows)."""
        return np.maximum(logs[:, None, :] - self.knots[:, :, None], 0.0)


@dataclass(frozen=True)
class FittedMap:
    """A map, and the parameters by which it was found."""

    design: Design
    slope: float  # of the tempered logarithms: one over the temperature
    theta: Floats

    def scores(self, sample: Sample) -> Floats:
        """(K, n_rows)."""
        tempered = self.slope * sample.logs
        return self.design.scores(self.theta, tempered, self.design.hinges(tempered))

    def make_map(self, floor: float) -> CalibrationMap:
        """In logarithms that are not tempered."""
        bias, weights, bends = self.design.split(self.theta)
        knots = self.design.knots / self.slope
        method = self.design.method
        return CalibrationMap(method, floor, bias, weights * self.slope, knots, bends * self.slope)


def fit_slope(sample: Sample) -> float:
    """One over the temperature of least log loss, by Newton's method on its convex loss."""
    slope = 1.0 / max(float(np.std(sample.logs)), 1e-3)
    own = sample.logs[sample.codes, np.arange(len(sample))]
    for _ in range(100):
        scores = slope * sample.logs
        scores -= scores.max(axis=0)
        shares = np.exp(scores)
        shares /= shares.sum(axis=0)
        mean = (shares * sample.logs).sum(axis=0)
        gradient = float(sample.weights @ (mean - own))
        curvature = float(sample.weights @ ((shares * sample.logs**2).sum(axis=0) - mean**2))
        # Towards no information where the rows show none: a slope stays positive.
        step = gradient / max(curvature, 1e-12)
        moved = min(max(slope - step, slope / 4), slope * 4)
        if abs(moved - slope) <= 1e-10 * slope or moved < 1e-6:
            return max(moved, 1e-6)
        slope = moved
    return slope


def fit_map(sample: Sample, design: Design, slope: float, begin: Floats | None = None) -> FittedMap:
    """The map of least penalised log loss."""
    tempered = slope * sample.logs
    hinges = design.hinges(tempered)

    start = np.maximum(design.centre if begin is None else begin, design.lower)
    scale = 1 / np.sqrt(estimate_curvature(start, sample, design, tempered, hinges))

    def objective(scaled: Floats) -> tuple[float, Floats]:
        value, gradient = evaluate(scale * scaled, sample, design, tempered, hinges)
        return value, scale * gradient

    found = optimize.minimize(
        objective,
        start / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(design.lower / scale),  # type: ignore[arg-type]
        options={"maxiter": _MOST_STEPS, "ftol": 1e-9, "gtol": 1e-6, "maxcor": 20},
    )
    return FittedMap(design, slope, np.maximum(scale * found.x, design.lower))


def estimate_curvature(
    theta: Floats, sample: Sample, design: Design, tempered: Floats, hinges: Floats
) -> Floats:
    """(n_free,): about the diagonal of the objective's Hessian, from at most a few thousand rows."""
    few = slice(None, None, max(len(sample) // _FEW, 1))
    tempered, hinges = tempered[:, few], hinges[:, :, few]
    scores = design.scores(theta, tempered, hinges)
    shares = np.exp(scores - scores.max(axis=0))
    shares /= shares.sum(axis=0)
    spread = sample.weights[few] * shares * (1 - shares) / tempered.shape[1]  # (K, n_rows)
    if design.diagonal:
        ones = np.ones_like(tempered)
        features = np.concatenate([ones[:, None], tempered[:, None], hinges], axis=1)  # (K, 2 + H, n_rows)
        gram = (features * spread[:, None]) @ features.swapaxes(1, 2)
        parts = zip(*(design.split(unit) for unit in np.eye(len(theta))), strict=True)
        bias, weights, bends = map(np.array, parts)
        factors = np.concatenate([bias[:, :, None], np.diagonal(weights, 0, 1, 2)[:, :, None], bends], axis=2)
        diagonal = np.einsum("jka,kab,jkb->j", factors, gram, factors, optimize=True)
    else:
        bends = np.zeros((design.n_cells, 0))
        diagonal = design.join(spread.sum(axis=1), spread @ (tempered**2).T, bends)
    return diagonal + (design.ridge + 1.0) / len(sample)


def evaluate(
    theta: Floats, sample: Sample, design: Design, tempered: Floats, hinges: Floats
) -> tuple[float, Floats]:
    """The objective for a mean of the rows, and its gradient (n_free,)."""
    n_rows = len(sample)
    scores = design.scores(theta, tempered, hinges)
    peak = scores.max(axis=0)
    own = scores[sample.codes, np.arange(n_rows)] - peak
    np.exp(np.subtract(scores, peak, out=scores), out=scores)
    total = scores.sum(axis=0)
    value = float(sample.weights @ (np.log(total) - own))
    scores *= sample.weights / total
    scores[sample.codes, np.arange(n_rows)] -= sample.weights
    weights = np.diag(np.einsum("kn,kn->k", scores, tempered)) if design.diagonal else scores @ tempered.T
    bends = (hinges @ scores[:, :, None])[:, :, 0]
    away = theta - design.centre
    value += 0.5 * float(design.ridge @ away**2)
    gradient = design.join(scores.sum(axis=1), weights, bends) + design.ridge * away
    return value / n_rows, gradient / n_rows


def make_design(method: Method, sample: Sample, slope: float) -> Design:
    """The maps of a method, with knots where these rows are."""
    K = sample.n_cells
    knots = place_knots(sample, slope) if method == "isotonic" else np.zeros((K, 0))
    own = K + (K + 1) * np.arange(K)  # places of the diagonal of the weights among the numbers
    if method == "temperature":  # one slope for all cells
        basis = sparse.csr_array((np.ones(K), (own, np.zeros(K, dtype=int))), shape=(K + K * K, 1))
        return Design(
            method, K, knots, basis, np.ones(1), np.zeros(1), np.full(1, _LEAST_SLOPE), diagonal=True
        )
    columns = [_Columns([np.arange(K)], 0.0, _RIDGE_BIAS, -np.inf)]
    if method == "dirichlet":
        others = np.setdiff1d(np.arange(K, K + K * K), own)
        columns.append(_Columns([own], 1.0, _RIDGE_SLOPE, -np.inf))
        columns.append(_Columns([others], 0.0, _RIDGE_OFF, -np.inf))
    elif method == "vector":
        columns.append(_Columns([own], 1.0, _RIDGE_SLOPE, _LEAST_SLOPE))
    else:
        columns += _list_segments(own, knots, np.quantile(slope * sample.logs, _LOW, axis=1))

    def spread(name: str) -> Floats:
        parts = [np.broadcast_to(getattr(part, name), len(part.places[0])) for part in columns]
        return np.concatenate(parts)

    basis = sparse.hstack([part.matrix(K + K * K + knots.size) for part in columns], format="csr")
    terms = spread("centre"), spread("ridge"), spread("lower")
    return Design(method, K, knots, sparse.csr_array(basis), *terms, diagonal=method != "dirichlet")


def _list_segments(own: NDArray[np.int64], knots: Floats, lowest: Floats) -> list[_Columns]:
    """A slope for each cell between each two knots; a bend is the difference of two."""
    K, H = knots.shape
    ends = np.column_stack([np.minimum(lowest, knots[:, 0]), knots, np.zeros(K)])
    lengths = np.clip(np.diff(ends), _SHORTEST, 1.0)
    bends = K + K * K + np.arange(K * H).reshape(K, H)
    rising = [own, *bends.T]
    return [
        _Columns(
            [rising[h], *rising[h + 1 : h + 2]],
            1.0,
            _RIDGE_SLOPE * lengths[:, h] ** 2,  # what counts is what a slope adds to a score
            _LEAST_SLOPE,
        )
        for h in range(H + 1)
    ]


class _Columns(NamedTuple):
    """Free parameters of one kind."""

    places: Sequence[
        NDArray[np.int64]
    ]  # the numbers of a map to which they are added; then, those from which
    centre: float
    ridge: Floats | float
    lower: float

    def matrix(self, n_numbers: int) -> sparse.csr_array:
        count = len(self.places[0])
        total = sparse.csr_array((n_numbers, count))
        for place, factor in zip(self.places, (1.0, -1.0), strict=False):
            entries = (np.full(count, factor), (place, np.arange(count)))
            total = total + sparse.csr_array(entries, shape=(n_numbers, count))
        return total


def shrink_towards(design: Design, theta: Floats) -> Design:
    """The same maps, of which those near this one are preferred: for the rows of one group."""
    return replace(design, centre=theta, ridge=_RIDGE_GROUP * np.where(design.ridge > 0, design.ridge, 1.0))


def place_knots(sample: Sample, slope: float) -> Floats:
    """(K, H): quantiles of each cell's tempered logarithms, half of them among the rows of that cell."""
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
