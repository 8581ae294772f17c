"""Calibration maps: from a row's distribution over K cells to a calibrated one.

All maps have one shape, which is easily saved and easily run elsewhere: with x_k = log max(p_k, floor),

    score_k = bias_k + sum_l weights_kl x_l + sum_h bends_kh max(0, x_k - knots_kh),

and the calibrated probabilities are the softmax of the scores. Temperature scaling is weights = I / T, vector
scaling a diagonal matrix and a bias, Dirichlet calibration a full matrix and a bias, and a monotone map a
diagonal matrix, a bias and bends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bylaw._base.json_reader import BadValueError, Node
from bylaw._base.typing import Floats
from bylaw.rows.arrays import own

Method = Literal["temperature", "vector", "dirichlet", "isotonic"]
METHODS: tuple[Method, ...] = ("temperature", "vector", "isotonic", "dirichlet")
SMALLEST_FLOOR = 1e-100  # as in exports: databases refuse products that underflow
LOWEST_LOG = -30.0  # of a calibrated probability relative to the largest: none is ever 0 or 1
# Matrix products of different shapes round differently: rows go in tiles of one width, so that
# a row's answer is the same, to the last bit, in any batch.
_TILE = 2048


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """From probabilities of K cells to calibrated ones. H bends for each cell; none but in monotone maps.

    Attributes
    ----------
    method : str
        by which it was fitted; "none" for the map that changes nothing but clips at the floor.
    floor : float
        smaller probabilities count as this one.
    bias : array of shape (K,)
    weights : array of shape (K, K)
        of the logarithms of the probabilities, in each score.
    knots, bends : arrays of shape (K, H)
        where the slope in a cell's own logarithm changes, and by how much.

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

    @property
    def n_cells(self) -> int:
        return len(self.bias)

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether each score depends on its own cell alone."""
        return not (self.weights - np.diag(np.diag(self.weights))).any()

    def apply(self, probabilities: Floats) -> Floats:
        """Calibrated probabilities.

        Parameters
        ----------
        probabilities : array of shape (n_rows, K)

        Returns
        -------
        array of shape (n_rows, K)
            never zero; the same for a row in any batch.
        """
        calibrated = np.empty(probabilities.shape)
        logs = np.zeros((self.n_cells, _TILE))
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
        """(K, n_rows), of logarithms (K, n_rows)."""
        scores = np.diag(self.weights)[:, None] * logs if self.is_diagonal else self.weights @ logs
        scores += self.bias[:, None]
        for knots, bends in zip(self.knots.T, self.bends.T, strict=True):
            scores += bends[:, None] * np.maximum(logs - knots[:, None], 0.0)
        return scores

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; floats read back to the last bit."""
        arrays = {name: getattr(self, name).tolist() for name in ("bias", "weights", "knots", "bends")}
        return {"method": self.method, "floor": self.floor, **arrays}

    @classmethod
    def from_node(cls, node: Node, n_cells: int) -> CalibrationMap:
        """Read what `to_dict` wrote, with trust in nothing."""
        rows = node["knots"].list()
        n_bends = len(rows[0].list()) if rows else 0
        floor = node["floor"].positive()
        if not SMALLEST_FLOOR <= floor < 1:
            node["floor"].fail(f"a number from {SMALLEST_FLOOR:g} to 1")
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
                raise BadValueError(f"{node.place} has numbers that are too large")
        return read


def make_identity(n_cells: int, floor: float) -> CalibrationMap:
    """The map that changes nothing but clips at the floor."""
    return CalibrationMap("none", floor, np.zeros(n_cells), np.eye(n_cells))


def take_logs(probabilities: Floats, floor: float) -> Floats:
    """log max(p, floor), (K, n_rows), of probabilities (n_rows, K)."""
    return np.log(np.maximum(probabilities.T, floor))


def find_floor(probabilities: Floats) -> float:
    """Half of the smallest probability that is not zero: what lies below was never seen."""
    positive = probabilities[probabilities > 0]
    least = float(positive.min()) / 2 if positive.size else SMALLEST_FLOOR
    return min(max(least, SMALLEST_FLOOR), 0.5 / probabilities.shape[1])
