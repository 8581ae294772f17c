"""Which map to use: candidates are cross-fitted and compared by held-out log loss.

A temperature is used where it is better than none by one standard error (of the paired difference), another
method where it is significantly better than that: of those, the simplest within one standard error of the
best. One map for each value of a known attribute takes the place of one map for all rows where its gain is
significant. Nothing is random: folds follow from the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.calibration.fitting import (
    FittedMap,
    Sample,
    fit_level,
    fit_map,
    fit_slope,
    make_design,
    make_sample,
    shrink_towards,
)
from bylaw.calibration.maps import METHODS, CalibrationMap, Method

Codes = NDArray[np.int64]
FEWEST_ROWS = 100  # fewer choose no map
GROUP_ROWS = 300  # a group with fewer rows gets the map of all rows
_FOLDS = 4
_COMPARED = 60_000  # rows times cells that candidates are compared on
_FITTED = 600_000  # rows times cells that the chosen map is fitted on
_LARGEST_MATRIX = 12  # cells of a full matrix of weights
_ROWS_PER_WEIGHT = 50
_SIGNIFICANT = 2.0  # standard errors by which a map with a bias, or maps for groups, must be better


class Selected(NamedTuple):
    """The map of all rows, and those of some values of one known attribute."""

    pooled: CalibrationMap | None
    by: str | None = None
    maps: Mapping[int, CalibrationMap] = {}  # by the code of the value


def select_maps(
    probabilities: Floats, codes: Codes, weights: Floats, known: Mapping[str, Codes], method: str = "auto"
) -> Selected:
    """The map, or the maps, for these rows.

    Parameters
    ----------
    probabilities : array of shape (n_rows, K)
    codes : array of shape (n_rows,)
        the cell that was observed; -1 where none was.
    weights : array of shape (n_rows,)
    known : dict
        codes (n_rows,) of the attributes whose values may have maps of their own.
    method : "auto" or one of `METHODS`

    Returns
    -------
    Selected
        without maps where the probabilities are better left as they are.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logit = rng.normal(size=4000)
    >>> label = (rng.random(4000) < 1 / (1 + np.exp(-logit))).astype(int)
    >>> sharp = 1 / (1 + np.exp(-5 * logit))  # five times as sure as it should be
    >>> found = select_maps(np.column_stack([1 - sharp, sharp]), label, np.ones(4000), {})
    >>> found.pooled.method, round(1 / found.pooled.weights[0, 0])
    ('temperature', 5)
    """
    seen = np.flatnonzero((codes >= 0) & (weights > 0))
    if len(seen) < (FEWEST_ROWS if method == "auto" else 2) or len(np.unique(codes[seen])) < 2:
        return Selected(None)
    rows = _thin(seen, _FITTED // probabilities.shape[1])
    sample = make_sample(probabilities[rows], codes[rows], weights[rows])
    groups = {name: column[rows] for name, column in known.items()}
    few = _thin(np.arange(len(rows)), _COMPARED // probabilities.shape[1])
    comparison = Comparison(sample.rows(few))
    chosen: Any = comparison.choose(_list_methods(sample)) if method == "auto" else method
    # Groups differ in their levels at least, which no temperature can tell.
    for_groups = "vector" if method == "auto" and chosen in (None, "temperature") else chosen
    by = comparison.choose_groups(chosen, for_groups, {name: column[few] for name, column in groups.items()})
    if by is not None:
        return _fit_groups(sample, comparison.fit(sample, for_groups), by, groups[by])
    return Selected(None if chosen is None else comparison.fit(sample, chosen).make_map(sample.floor))


def _list_methods(sample: Sample) -> tuple[Method, ...]:
    """Those that these rows suffice for, the simplest first."""
    K = sample.n_cells
    full = K <= _LARGEST_MATRIX and len(sample) >= _ROWS_PER_WEIGHT * K * K
    return tuple(method for method in METHODS if (full and K > 2) or method != "dirichlet")


def _thin(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many of the rows, evenly spread."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def _fit_group(sample: Sample, rows: NDArray[np.intp], pooled: FittedMap) -> FittedMap:
    """On the rows of one group, shrunk towards the map of all rows."""
    return fit_map(sample.rows(rows), shrink_towards(pooled.design, pooled.theta), pooled.slope, pooled.theta)


def _fit_groups(sample: Sample, pooled: FittedMap, by: str, groups: Codes) -> Selected:
    maps = {
        code: _fit_group(sample, rows, pooled).make_map(sample.floor) for code, rows in _list_groups(groups)
    }
    return Selected(pooled.make_map(sample.floor), by, maps)


def _list_groups(groups: Codes) -> list[tuple[int, NDArray[np.intp]]]:
    """The groups with enough rows."""
    found = [(int(code), np.flatnonzero(groups == code)) for code in np.unique(groups[groups >= 0])]
    return [(code, rows) for code, rows in found if len(rows) >= GROUP_ROWS]


@dataclass(frozen=True)
class Comparison:
    """Candidates, each judged on rows that it was not fitted on."""

    sample: Sample

    @cached_property
    def folds(self) -> Codes:
        """(n_rows,): stratified by what was observed, in the order of the rows."""
        order = np.argsort(self.sample.codes, kind="stable")
        folds = np.empty(len(self.sample), dtype=np.int64)
        folds[order] = np.arange(len(order)) % _FOLDS
        return folds

    @cached_property
    def own_losses(self) -> Floats:
        """(n_rows,): of the probabilities as they are."""
        return self.sample.losses(self.sample.logs)

    @cached_property
    def _temper(self) -> tuple[float, float]:
        """The slope of a temperature, which has no bias."""
        return fit_slope(self.sample), 0.0

    @cached_property
    def _level(self) -> tuple[float, Floats]:
        """The common slope and the biases near which other methods are fitted."""
        return fit_level(self.sample)

    def fit(self, sample: Sample, method: Method) -> FittedMap:
        """Fit a method on other rows, of which these are some."""
        slope, bias = self._temper if method == "temperature" else self._level
        return fit_map(sample, make_design(method, sample, slope, bias), slope)

    @cached_property
    def _training_rows(self) -> list[Sample]:
        return [self.sample.rows(np.flatnonzero(self.folds != fold)) for fold in range(_FOLDS)]

    @cached_property
    def _fits(self) -> dict[Method, list[FittedMap]]:
        return {}

    @cached_property
    def _losses(self) -> dict[Method, Floats]:
        return {}

    def cross_fit(self, method: Method) -> list[FittedMap]:
        """One fit for each fold, without its rows."""
        if method not in self._fits:
            whole = self.fit(self.sample, method)
            self._fits[method] = [
                fit_map(part, whole.design, whole.slope, whole.theta) for part in self._training_rows
            ]
        return self._fits[method]

    def losses(self, method: Method | None) -> Floats:
        """(n_rows,): held-out log loss."""
        if method is None:
            return self.own_losses
        if method in self._losses:
            return self._losses[method]
        losses = self._losses[method] = np.empty(len(self.sample))
        for fold, fitted in enumerate(self.cross_fit(method)):
            rows = np.flatnonzero(self.folds == fold)
            part = replace(self.sample, logs=self.sample.logs[:, rows], codes=self.sample.codes[rows])
            losses[rows] = part.losses(fitted.scores(part))
        return losses

    def group_losses(self, method: Method, groups: Codes) -> Floats:
        """(n_rows,): held-out log loss with a map for each group that has enough rows."""
        losses = self.losses(method).copy()
        for _, members in _list_groups(groups):
            for fold, pooled in enumerate(self.cross_fit(method)):
                outside = self.folds[members] == fold
                fitted = _fit_group(self.sample, members[~outside], pooled)
                rows = members[outside]
                part = replace(self.sample, logs=self.sample.logs[:, rows], codes=self.sample.codes[rows])
                losses[rows] = part.losses(fitted.scores(part))
        return losses

    def gain(self, losses: Floats, other: Floats) -> tuple[float, float]:
        """By how much the other losses are lower in the mean, and the standard error of that."""
        weights = self.sample.weights / self.sample.weights.sum()
        difference = losses - other
        mean = float(weights @ difference)
        return mean, math.sqrt(float(weights**2 @ (difference - mean) ** 2))

    def choose(self, methods: tuple[Method, ...]) -> Method | None:
        """Return the best method; None for no map at all.

        A temperature changes no decision that compares two probabilities, so it is taken where it is better
        by one standard error. A method that moves such decisions must be significantly better than that: a
        map that fits noise costs decisions. Of several that are, the simplest within one standard error of
        the best is taken.
        """
        plain = self.own_losses
        mean, error = self.gain(plain, self.losses("temperature"))
        chosen: Method | None = "temperature" if mean > error else None
        moving: list[Method] = [method for method in methods if method != "temperature"]
        best = min(map(self.losses, moving), key=lambda found: float(self.sample.weights @ found))
        mean, error = self.gain(self.losses(chosen), best)
        if mean <= _SIGNIFICANT * error:
            return chosen
        for method in moving:
            mean, error = self.gain(self.losses(method), best)
            if mean <= error:
                return method
        raise AssertionError("the best is within its own standard error")

    def choose_groups(self, pooled: Method | None, method: Method, groups: Mapping[str, Codes]) -> str | None:
        """The attribute for whose values maps of this method are best; None if not significantly."""
        found, best, least = None, self.losses(pooled), _SIGNIFICANT
        for name, codes in groups.items():
            if len(_list_groups(codes)) < 2:
                continue
            losses = self.group_losses(method, codes)
            mean, error = self.gain(best, losses)
            if mean > least * error:
                found, best, least = name, losses, 0.0
        return found
