"""Calibration of a policy's probabilities of labels, and of groups that are only known as probabilities.

Candidate methods are cross-fitted and compared by held-out log loss. A temperature is used if it is better
than no calibration by one standard error of the paired difference. Another method is used if it is
significantly better than that: the simplest within one standard error of the best. One map for each value of
a known attribute replaces the map of all rows if its gain is significant. Nothing is random: folds follow
from the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Node, Value, check_choice, make_visible
from bylaw.calibration._maps import (
    METHODS,
    CalibrationMap,
    FittedMap,
    Method,
    Sample,
    fit_level,
    fit_map,
    fit_slope,
    make_design,
    make_sample,
    shrink_towards,
)
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language import LABEL
from bylaw.rows import Evidence, GroupProbabilities, KnownGroup, Part, observe

Codes = NDArray[np.int64]
FEWEST_ROWS = 100  # with fewer rows, "auto" fits no map
GROUP_ROWS = 300  # a group with fewer rows gets the map of all rows
_FOLDS = 4
_COMPARED = 60_000  # the most rows times cells on which methods are compared
_FITTED = 600_000  # the most rows times cells on which the best map is fitted
_LARGEST_MATRIX = 12  # the most cells for a full matrix of weights
_ROWS_PER_WEIGHT = 50  # the fewest rows for each entry of that matrix
_SIGNIFICANT = 2.0  # standard errors by which a map with a bias, or maps for groups, must be better


class Selected(NamedTuple):
    """The calibration map of all rows, and those of some values of one known attribute."""

    pooled: CalibrationMap | None  # the map of all rows
    by: str | None = None  # the known attribute
    maps: Mapping[int, CalibrationMap] = {}  # {code of a value: its map}


def select_maps(
    probabilities: Floats, codes: Codes, weights: Floats, known: Mapping[str, Codes], method: str = "auto"
) -> Selected:
    """Return the best calibration map, or maps, for probabilities (n_rows, K) of labels or groups.

    `codes` (n_rows,) are the observed cells (labels or group values), -1 if missing, and `known` has the
    codes of the attributes whose values may have maps of their own. The method is "auto" or one of `METHODS`.
    With "auto", the result has no map if none improves the probabilities.
    """
    seen = np.flatnonzero((codes >= 0) & (weights > 0))
    if len(seen) < (FEWEST_ROWS if method == "auto" else 2) or len(np.unique(codes[seen])) < 2:
        return Selected(None)
    K = probabilities.shape[1]
    rows = _thin(seen, _FITTED // K)
    sample = make_sample(probabilities[rows], codes[rows], weights[rows])
    groups = {name: column[rows] for name, column in known.items()}
    few = _thin(np.arange(len(rows)), _COMPARED // K)
    comparison = Comparison(sample.rows(few))
    chosen: Any = method
    if method == "auto":
        # A full matrix of weights needs many rows, and is the same as a vector for two cells.
        full = 2 < K <= _LARGEST_MATRIX and len(sample) >= _ROWS_PER_WEIGHT * K * K
        chosen = comparison.choose(tuple(one for one in METHODS if full or one != "dirichlet"))
    # Groups differ at least in their biases, which a temperature cannot correct.
    for_groups = "vector" if method == "auto" and chosen in (None, "temperature") else chosen
    by = comparison.choose_groups(chosen, for_groups, {name: column[few] for name, column in groups.items()})
    if by is None:
        return Selected(None if chosen is None else comparison.fit(sample, chosen).make_map(sample.floor))
    pooled = comparison.fit(sample, for_groups)
    fits = {code: _fit_group(sample, own, pooled) for code, own in _list_groups(groups[by])}
    maps = {code: fitted.make_map(sample.floor) for code, fitted in fits.items()}
    return Selected(pooled.make_map(sample.floor), by, maps)


def _thin(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """Return at most `most` of the rows, evenly spaced."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def _fit_group(sample: Sample, rows: NDArray[np.intp], pooled: FittedMap) -> FittedMap:
    """Fit a map on the rows of one group, shrunk towards the map of all rows."""
    return fit_map(sample.rows(rows), shrink_towards(pooled.design, pooled.theta), pooled.slope, pooled.theta)


def _list_groups(groups: Codes) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the code and the rows of each group with enough rows for a map of its own."""
    found = [(int(code), np.flatnonzero(groups == code)) for code in np.unique(groups[groups >= 0])]
    return [(code, rows) for code, rows in found if len(rows) >= GROUP_ROWS]


@dataclass(frozen=True)
class Comparison:
    """Calibration methods that are compared by cross-validation on one sample."""

    sample: Sample
    _fits: dict[Method, list[FittedMap]] = field(default_factory=dict)
    _losses: dict[Method, Floats] = field(default_factory=dict)

    @cached_property
    def folds(self) -> Codes:
        """Fold of each row, (n_rows,), stratified by the observed cell, in the order of the rows."""
        order = np.argsort(self.sample.codes, kind="stable")
        folds = np.empty(len(self.sample), dtype=np.int64)
        folds[order] = np.arange(len(order)) % _FOLDS
        return folds

    @cached_property
    def _level(self) -> tuple[float, Floats]:
        """The common slope and the biases from which methods other than a temperature start."""
        return fit_level(self.sample)

    def fit(self, sample: Sample, method: Method) -> FittedMap:
        """Fit a method on a sample that contains the rows of this comparison."""
        slope, bias = (fit_slope(self.sample), 0.0) if method == "temperature" else self._level
        return fit_map(sample, make_design(method, sample, slope, bias), slope)

    def cross_fit(self, method: Method) -> list[FittedMap]:
        """Return the fitted map of a method for each fold, fitted without the rows of the fold."""
        if method not in self._fits:
            whole = self.fit(self.sample, method)
            outside = [self.sample.rows(np.flatnonzero(self.folds != fold)) for fold in range(_FOLDS)]
            self._fits[method] = [fit_map(part, whole.design, whole.slope, whole.theta) for part in outside]
        return self._fits[method]

    def losses(self, method: Method | None) -> Floats:
        """Return the held-out log loss of each row, (n_rows,), with a method; with None, without a map."""
        if method is None:
            return self.sample.losses(self.sample.logs)
        if method not in self._losses:
            losses = self._losses[method] = np.empty(len(self.sample))
            for fold, fitted in enumerate(self.cross_fit(method)):
                rows = np.flatnonzero(self.folds == fold)
                losses[rows] = fitted.losses(self.sample.rows(rows))
        return self._losses[method]

    def group_losses(self, method: Method, groups: Codes) -> Floats:
        """Return the held-out log loss of each row, (n_rows,), with a map for each large enough group."""
        losses = self.losses(method).copy()
        for _, members in _list_groups(groups):
            for fold, pooled in enumerate(self.cross_fit(method)):
                inside = self.folds[members] == fold
                fitted = _fit_group(self.sample, members[~inside], pooled)
                losses[members[inside]] = fitted.losses(self.sample.rows(members[inside]))
        return losses

    def gain(self, losses: Floats, other: Floats) -> tuple[float, float]:
        """Return the mean of `losses - other` and its standard error; it is positive if `other` is better."""
        weights = self.sample.weights / self.sample.weights.sum()
        difference = losses - other
        mean = float(weights @ difference)
        return mean, math.sqrt(float(weights**2 @ (difference - mean) ** 2))

    def choose(self, methods: tuple[Method, ...]) -> Method | None:
        """Return the best method, or None if no map is better.

        A temperature changes no decision that compares two probabilities, so it is chosen if it is better by
        one standard error. A method that can change such decisions must be significantly better than that,
        because a map that fits noise makes decisions worse. If several methods are, the simplest within one
        standard error of the best is chosen.
        """
        mean, error = self.gain(self.losses(None), self.losses("temperature"))
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
        raise AssertionError("the best method must be within its own standard error")

    def choose_groups(self, pooled: Method | None, method: Method, groups: Mapping[str, Codes]) -> str | None:
        """Return the attribute for whose values separate maps of this method reduce the loss most.

        Return None if the gain over the `pooled` method is not significant for any attribute.
        """
        found, best, least = None, self.losses(pooled), _SIGNIFICANT
        for name, codes in groups.items():
            if len(_list_groups(codes)) < 2:
                continue
            losses = self.group_losses(method, codes)
            mean, error = self.gain(best, losses)
            if mean > least * error:
                found, best, least = name, losses, 0.0
        return found


Calibrate = Literal["auto", "none", "temperature", "vector", "isotonic", "dirichlet"]
CHOICES: tuple[str, ...] = ("auto", "none", *METHODS)


class GroupMap(NamedTuple):
    """The calibration map of a hidden group, or of its combinations with the labels."""

    values: tuple[Value, ...]  # of the group, in the order of the cells
    map: CalibrationMap

    def apply(self, cells: Floats, values: tuple[Value, ...]) -> Floats:
        """Calibrate the probabilities of group values, or of their combinations with labels.

        `cells` are (n_rows, S) or (n_rows, S, K), with the S group values in the order of `values`.
        """
        order, calibrated = [values.index(value) for value in self.values], np.empty(cells.shape)
        own = np.ascontiguousarray(cells[:, order])
        calibrated[:, order] = self.map.apply(own.reshape(len(cells), -1)).reshape(own.shape)
        return calibrated


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """The calibration of a model's probabilities by maps that were fitted on rows with observed values.

    `solve(..., calibrate="auto")` fits it, and the policy applies it to all rows before it decides.

    Attributes
    ----------
    classes : tuple
        The labels.
    labels : CalibrationMap or None
        The map of P(label | x).
    by : str or None
        A known attribute, if some of its values have maps of their own for P(label | x).
    by_value : dict
        {value: CalibrationMap} for these values; other values have the map of all rows.
    groups : dict
        {attribute: GroupMap} for P(attribute | x), for attributes that are only known as probabilities.
    joint : dict
        {attribute: GroupMap} for P(attribute, label | x), over values times classes.

    References
    ----------
    Guo et al. (2017), On calibration of modern neural networks, ICML. Kull et al. (2019), Beyond temperature
    scaling, NeurIPS. Zadrozny and Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates, KDD.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence
    >>> rng = np.random.default_rng(0)
    >>> logit = rng.normal(size=4000)
    >>> label = (rng.random(4000) < 1 / (1 + np.exp(-logit))).astype(int)
    >>> sharp = 1 / (1 + np.exp(-5 * logit))
    >>> evidence = Evidence(np.column_stack([1 - sharp, sharp]), labels=label)
    >>> calibration = fit_calibration(evidence)
    >>> calibration
    Calibration(labels: temperature)
    >>> near = calibration.apply(evidence).probabilities[:, 1] - 1 / (1 + np.exp(-logit))
    >>> bool(np.abs(near).max() < 0.02)
    True
    """

    classes: tuple[Value, ...]
    labels: CalibrationMap | None = None
    by: str | None = None
    by_value: Mapping[Value, CalibrationMap] = field(default_factory=dict)
    groups: Mapping[str, GroupMap] = field(default_factory=dict)
    joint: Mapping[str, GroupMap] = field(default_factory=dict)

    def apply(self, evidence: Evidence) -> CalibratedEvidence:
        """Return the rows with calibrated probabilities.

        Rows to which this calibration was applied are returned unchanged. If another calibration was applied,
        this one replaces it.

        Parameters
        ----------
        evidence : Evidence
            Rows with the model's own probabilities.

        Returns
        -------
        CalibratedEvidence
            The calibrated rows; the attribute `raw` is the evidence that was given.

        Raises
        ------
        EvidenceError
            If the evidence has other classes, or lacks the attribute whose values have maps of their own.
        """
        if isinstance(evidence, CalibratedEvidence):
            if evidence.calibration is self:
                return evidence
            evidence = evidence.raw
        if evidence.classes != self.classes:
            raise EvidenceError(
                f"evidence must have the classes of the policy in the same order, {list(self.classes)}, "
                f"got {list(evidence.classes)}"
            )
        probabilities = self._calibrate_labels(evidence)
        groups = {
            name: GroupProbabilities(group.values, self.groups[name].apply(group.probabilities, group.values))
            for name, group in evidence.hidden_groups.items()
            if name in self.groups and set(group.values) == set(self.groups[name].values)
        }
        joint = {
            name: self._calibrate_joint(name, evidence, array, probabilities)
            for name, array in evidence.joint.items()
        }
        for array in (probabilities, *joint.values()):
            array.flags.writeable = False
        calibrated = object.__new__(CalibratedEvidence)
        columns = {"probabilities": probabilities, "groups": {**evidence.groups, **groups}, "joint": joint}
        calibrated.__dict__.update(vars(evidence), **columns, raw=evidence, calibration=self)
        calibrated.__post_init__()
        return calibrated

    def _calibrate_labels(self, evidence: Evidence) -> Floats:
        """Return the calibrated P(label | x), (n_rows, K)."""
        if self.labels is None:
            return evidence.probabilities
        calibrated = self.labels.apply(evidence.probabilities)
        if self.by is None:
            return calibrated
        group = evidence.groups.get(self.by)
        if not isinstance(group, KnownGroup):
            raise EvidenceError(
                f"evidence must have the groups {self.by!r}, for whose values probabilities are calibrated",
                Remedy("pass_groups", self.by),
            )
        for code, value in enumerate(group.values):
            if value in self.by_value and len(rows := np.flatnonzero(group.codes == code)):
                calibrated[rows] = self.by_value[value].apply(evidence.probabilities[rows])
        return calibrated

    def _calibrate_joint(self, name: str, evidence: Evidence, joint: Floats, labels: Floats) -> Floats:
        """Return the calibrated P(group value s, label y | x), (n_rows, S, K).

        Its sum over group values is the calibrated P(y | x).
        """
        found = self.joint.get(name)
        if found is None and self.labels is None:
            return joint
        values = evidence.groups[name].values
        if found is not None and set(values) == set(found.values):
            joint = found.apply(joint, values)
        total = np.add.reduce(joint, axis=1, keepdims=True)  # value by value, the same in any batch
        shares = np.where(total > 0, joint / np.where(total > 0, total, 1.0), 1 / len(values))
        return shares * labels[:, None, :]

    def describe(self) -> str:
        """Return a short text with the calibrated probabilities and methods, such as "labels: vector"."""
        parts = []
        if self.labels is not None:
            methods = dict.fromkeys(found.method for found in (*self.by_value.values(), self.labels))
            parts.append(f"labels: {', '.join(methods)}{f' by {self.by}' if self.by else ''}")
        parts += [f"{name}: {found.map.method}" for name, found in self.groups.items()]
        parts += [f"{name} and label: {found.map.method}" for name, found in self.joint.items()]
        return make_visible(", ".join(parts))

    def __repr__(self) -> str:
        return f"Calibration({self.describe()})"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "labels": self.labels and self.labels.to_dict(),
            "by": self.by,
            "by_value": [{"value": value, **found.to_dict()} for value, found in self.by_value.items()],
            **{
                kind: {name: {"values": list(one.values), **one.map.to_dict()} for name, one in maps.items()}
                for kind, maps in (("groups", self.groups), ("joint", self.joint))
            },
        }

    @classmethod
    def from_node(cls, node: Node, classes: tuple[Value, ...], groups: Mapping[str, Any]) -> Calibration:
        """Read and check a calibration that `to_dict` wrote to a file.

        Parameters
        ----------
        node : Node
            The part of the file with the calibration.
        classes : tuple
            The labels of the policy.
        groups : dict
            The attributes that the policy reads, each with `values` and `known`.
        """
        K = len(classes)
        known = [name for name, group in groups.items() if group.known]
        by = node["by"].one_of([None, *known])
        labels = None if node["labels"].value is None else CalibrationMap.from_node(node["labels"], K)
        parts = node["by_value"].list()
        if (by is None and parts) or (by is not None and labels is None):
            node["by"].fail("an attribute if by_value has maps, and null if labels is null")
        read = {
            part["value"].one_of(groups[str(by)].values): CalibrationMap.from_node(part, K) for part in parts
        }
        if labels is not None and any(found.floor != labels.floor for found in read.values()):
            node["by_value"].fail("maps with the same floor as the map of all rows")
        return cls(
            classes=classes,
            labels=labels,
            by=by,
            by_value=read,
            groups=_read_group_maps(node["groups"], groups, 1),
            joint=_read_group_maps(node["joint"], groups, K),
        )


def _read_group_maps(node: Node, groups: Mapping[str, Any], depth: int) -> dict[str, GroupMap]:
    found = {}
    for name, item in node.items():
        if name not in groups or groups[name].known:
            item.fail("a map of an attribute for which the policy has only probabilities")
        values = tuple(value.one_of(groups[name].values) for value in item["values"].list())
        if sorted(map(str, values)) != sorted(map(str, groups[name].values)):
            item["values"].fail(f"all values of {name}")
        found[name] = GroupMap(values, CalibrationMap.from_node(item, len(values) * depth))
    return found


@dataclass(frozen=True, eq=False, repr=False, init=False)
class CalibratedEvidence(Evidence):
    """Evidence with calibrated probabilities, made by `Calibration.apply`."""

    raw: Evidence  # with the model's own probabilities
    calibration: Calibration

    def rows(self, part: Part) -> Self:
        """Return the rows of this part, such as an array of positions."""
        return super().rows(part).with_columns(raw=self.raw.rows(part))

    def with_observed(self, **columns: Any) -> Self:
        """Return these rows with further observed columns."""
        return super().with_observed(**columns).with_columns(raw=self.raw.with_observed(**columns))

    def without_observed(self) -> Self:
        """Return these rows with only the columns that are known at decision time."""
        return super().without_observed().with_columns(raw=self.raw.without_observed())


def fit_calibration(
    evidence: Evidence, method: Calibrate | None = "auto", attributes: Sequence[str] | None = None
) -> Calibration | None:
    """Fit a calibration of these rows' probabilities to the observed labels and groups.

    Parameters
    ----------
    evidence : Evidence
        Rows with the model's own probabilities and with observed labels or groups, on which the model was not
        trained.
    method : "auto", "none", "temperature", "vector", "isotonic" or "dirichlet"
        The method. "auto" compares all of them, and no calibration, by cross-validated log loss.
    attributes : sequence of str, optional
        The groups that rules refer to. Only their probabilities are calibrated; if their values are known,
        each value may have a map of its own for the labels if that is significantly better. By default, the
        probabilities of all observed groups are calibrated.

    Returns
    -------
    Calibration or None
        None if no calibration improves the probabilities.

    Raises
    ------
    OptionError
        If `method` is unknown, or no labels or groups were observed.
    EvidenceError
        If too few values were observed for a method other than "auto".

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.random(2000)  # calibrated already
    >>> label = (rng.random(2000) < chance).astype(int)
    >>> print(fit_calibration(Evidence(np.column_stack([1 - chance, chance]), labels=label)))
    None
    """
    if method is None or check_choice(method, "calibrate", CHOICES) == "none":
        return None
    if not evidence.has_observed:
        raise OptionError(
            f"evidence must have observed labels or groups for calibrate={method!r}, got neither",
            Remedy("pass_labels"),
        )
    if isinstance(evidence, CalibratedEvidence):
        evidence = evidence.raw
    seen = observe(evidence)
    weights = evidence.row_weights
    if seen.partly is not None and seen.partly.weights is not None:
        weights = weights * seen.partly.weights
    # Codes of what was observed, (n_rows,); -1 if missing.
    observed: dict[str, Codes] = {name: group.codes for name, group in seen.known_groups.items()}
    if evidence.labels is not None:
        observed[LABEL] = seen.probabilities.argmax(axis=1)
    if seen.partly is not None:
        partly: dict[str, Any] = {name: group.codes for name, group in seen.partly.groups.items()}
        partly[LABEL] = seen.partly.codes
        observed |= {name: np.where(shown, partly[name], -1) for name, shown in seen.seen.items()}
    # Groups whose probabilities are given for combinations are not calibrated.
    together = {name for names in evidence.groups if isinstance(names, tuple) for name in names}
    hidden = [name for name in evidence.hidden_groups if name in observed and name not in together]
    groups = {name: observed[name] for name in hidden if attributes is None or name in attributes}
    labels = observed.get(LABEL)
    named = {"labels": labels, **{f"groups[{name!r}]": codes for name, codes in groups.items()}}
    for what, codes in named.items() if method != "auto" else ():
        if codes is not None and len(np.unique(codes[codes >= 0])) < 2:
            raise EvidenceError(
                f"{what} must have at least two different values for calibrate={method!r}, got fewer: leave "
                "out calibrate, or pass more rows"
            )
    return _fit(evidence, labels, groups, weights, method, attributes or ())


def _fit(
    evidence: Evidence,
    labels: Codes | None,
    groups: Mapping[str, Codes],
    weights: Floats,
    method: str,
    by: Sequence[str],
) -> Calibration | None:
    """Fit a calibration to observed labels and groups, given as codes that are -1 if missing."""
    n_rows, K = len(evidence), len(evidence.classes)
    known = {name: group.codes for name, group in evidence.known_groups.items() if name in by}
    chosen = Selected(None)
    if labels is not None:
        chosen = select_maps(evidence.probabilities, labels, weights, known, method)
    group_maps, joint_maps = {}, {}
    for name, codes in groups.items():
        hidden = evidence.hidden_groups[name]
        found = select_maps(hidden.probabilities, codes, weights, {}, method).pooled
        if found is not None:
            group_maps[name] = GroupMap(hidden.values, found)
        if name in evidence.joint and labels is not None:
            cells = np.where((codes >= 0) & (labels >= 0), codes * K + labels, -1)
            flat = evidence.joint[name].reshape(n_rows, -1)
            found = select_maps(flat, cells, weights, {}, method).pooled
            if found is not None:
                joint_maps[name] = GroupMap(hidden.values, found)
    if chosen.pooled is None and not group_maps and not joint_maps:
        return None
    values = () if chosen.by is None else evidence.groups[chosen.by].values
    by_value = {values[code]: found for code, found in chosen.maps.items()}
    return Calibration(evidence.classes, chosen.pooled, chosen.by, by_value, group_maps, joint_maps)
