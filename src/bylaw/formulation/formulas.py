"""A policy as formulas over cells of a row, which every export writes in its own language.

Each feature is a product of factors: an indicator that a cell holds some value, or a sum of cells
that hold numbers. What a row must satisfy for the policy to decide is listed beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from bylaw._base.typing import Floats, Value
from bylaw.calibration.calibration import Calibration
from bylaw.calibration.maps import CalibrationMap
from bylaw.data.columns import Columns
from bylaw.data.evidence import REJECTED
from bylaw.data.probabilities import ROUNDING, SUM_TOLERANCE
from bylaw.errors import OptionError
from bylaw.formulation.layout import Layout
from bylaw.formulation.linear_form import Feature, FeatureMap
from bylaw.language.action_space import ActionSpace
from bylaw.language.expressions import LABEL, Conditions, CostColumn, Source, format_conditions
from bylaw.language.problem import Problem

LOWEST = -ROUNDING
HIGHEST = 1 + SUM_TOLERANCE
UNDERFLOW = 1e-100  # smaller numbers count as zero: PostgreSQL refuses products that underflow


class DecisionRule(Protocol):
    """What is written of a policy: pi(a | x) = softmax(beta * features(x)' score_matrix)."""

    @property
    def problem(self) -> Problem: ...
    @property
    def feature_map(self) -> FeatureMap: ...
    @property
    def score_matrix(self) -> Floats: ...
    @property
    def beta(self) -> float: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def action_space(self) -> ActionSpace: ...
    @property
    def actions(self) -> tuple[Value, ...]: ...
    @property
    def digest(self) -> str: ...


class Cell(NamedTuple):
    """One column of the evidence: its part, the name there, and its place in the matrix of that name."""

    part: Literal["probabilities", "groups", "joint", "references", "costs"]
    name: Any  # of the attribute (a tuple for several together), the earlier model or the cost
    place: tuple[int, ...] = ()  # none where there is one value per row


class Equals(NamedTuple):
    """1 where the cell holds the value, else 0."""

    cell: Cell
    value: Value


class Total(NamedTuple):
    """The sum of some cells; mostly it is one."""

    cells: tuple[Cell, ...]


Product = tuple[Equals | Total, ...]


class Calibrated(NamedTuple):
    """Cells that together are probabilities, and the map that calibrates them."""

    cells: tuple[Cell, ...]  # in the order of the map
    otherwise: CalibrationMap
    by: Cell | None = None  # a cell of values, some of which have maps of their own
    maps: tuple[tuple[Value, CalibrationMap], ...] = ()  # with the floor of the other map


class Rescaled(NamedTuple):
    """Cells of P(s, y | x) that become P(s | x, y) times the calibrated P(y | x)."""

    cells: tuple[tuple[Cell, ...], ...]  # S rows of K, which are calibrated before
    labels: tuple[Cell, ...]  # K


@dataclass(frozen=True)
class Terms:
    """scores = features' scale. F features, A actions."""

    features: tuple[Product, ...]  # F of them; the empty product is 1
    names: tuple[str, ...]  # of the F features, for readers
    scale: Floats  # (F, A): beta * score_matrix
    known: Mapping[Cell, tuple[Value, ...]]  # cells of values, and the values that they may hold
    distributions: tuple[tuple[Cell, ...], ...]  # cells that together are probabilities and sum to one
    numbers: tuple[Cell, ...]  # cells of finite numbers
    calibrated: tuple[Calibrated, ...] = ()
    rescaled: tuple[Rescaled, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Everything that is read of a row."""
        together = [cell for cells in self.distributions for cell in cells]
        return tuple(dict.fromkeys([*together, *self.known, *self.numbers]))

    @property
    def weighted(self) -> list[int]:
        """Positions of the features that have a weight in some score."""
        return [k for k in range(len(self.features)) if self.scale[k].any()]


def make_terms(policy: DecisionRule, columns: Columns) -> Terms:
    """The policy over these columns; an `OptionError` where they do not serve it."""
    found = make_feature_terms(policy.feature_map, columns, policy.calibration)
    if not found.cells:
        raise OptionError("the policy reads nothing of a row: it decides the same for all of them")
    return replace(found, scale=policy.beta * policy.score_matrix + 0.0)  # no -0.0


def make_feature_terms(
    feature_map: FeatureMap, columns: Columns, calibration: Calibration | None = None
) -> Terms:
    """Features over these columns, without weights; an `OptionError` where they do not serve."""
    if feature_map.functions:
        raise OptionError(
            f"custom({next(iter(feature_map.functions))!r}) is a Python function, which cannot leave Python: "
            "compute it beforehand, state the rule with the name of the array, and pass its columns as costs"
        )
    layout, actions = Layout(feature_map, columns), feature_map.action_space.actions
    builder = _TermBuilder(feature_map, layout, calibration)
    distributions = tuple(dict.fromkeys(builder.find_distributions()))
    return Terms(
        features=tuple(builder.make_product(feature) for feature in feature_map.features),
        names=tuple(_describe_feature(feature, actions) for feature in feature_map.features),
        scale=np.zeros((len(feature_map.features), len(actions))),
        known=dict(builder.find_known()),
        distributions=distributions,
        numbers=tuple(Cell("costs", name, (a,)) for name in layout.costs for a in range(len(actions))),
        calibrated=tuple(builder.find_calibrated(distributions)),
        rescaled=tuple(builder.find_rescaled(distributions)),
    )


class _TermBuilder:
    def __init__(self, feature_map: FeatureMap, layout: Layout, calibration: Calibration | None) -> None:
        self.feature_map = feature_map
        self.calibration = calibration
        self.classes = feature_map.action_space.classes
        self.layout = layout

    def make_product(self, feature: Feature) -> Product:
        factors = self._make_event_factors(feature.event)
        return factors if feature.source is None else (self._make_source_factor(feature.source), *factors)

    def find_known(self) -> Iterator[tuple[Cell, tuple[Value, ...]]]:
        for name, attribute in self.feature_map.attributes.items():
            if attribute.known:
                yield Cell("groups", name), attribute.values
        for name in self.layout.references:
            if self.layout.has_labels(name):
                answers = self.feature_map.action_space.reference_actions
                yield Cell("references", name), tuple(dict.fromkeys((*answers, REJECTED)))

    def find_distributions(self) -> Iterator[tuple[Cell, ...]]:
        labels = range(len(self.classes))
        if self.classes:
            yield tuple(Cell("probabilities", "", (k,)) for k in labels)
        for name, attribute in self.feature_map.attributes.items():
            if not attribute.known:
                yield self._list_group_cells(self.layout.find_model(name))
        for feature in self.feature_map.features:
            hidden, label = self._split_event(feature.event)
            if hidden:
                name = self.layout.find_combined(hidden)[0]
                if label is None:
                    yield self._list_group_cells(self.layout.find_model(name))
                else:
                    places = range(len(self.layout.list_values(name)))
                    yield tuple(Cell("joint", name, (s, k)) for s in places for k in labels)
        for name in self.layout.references:
            if not self.layout.has_labels(name):
                answers = range(len(self.layout.reference_columns))
                yield tuple(Cell("references", name, (k,)) for k in answers)

    def find_calibrated(self, distributions: Sequence[tuple[Cell, ...]]) -> Iterator[Calibrated]:
        """Those of the distributions that have a map."""
        found = self.calibration
        if found is None:
            return
        labels = range(len(self.classes))
        if found.labels is not None:
            by = None if found.by is None else Cell("groups", found.by)
            cells = tuple(Cell("probabilities", "", (k,)) for k in labels)
            yield Calibrated(cells, found.labels, by, tuple(found.by_value.items()))
        for part, name in dict.fromkeys(cells[0][:2] for cells in distributions):
            maps = {"groups": found.groups, "joint": found.joint}.get(part, {})
            if name in maps:
                values = [self.layout.list_values(name).index(value) for value in maps[name].values]
                places = (
                    [(s,) for s in values] if part == "groups" else [(s, k) for s in values for k in labels]
                )
                yield Calibrated(tuple(Cell(part, name, place) for place in places), maps[name].map)

    def find_rescaled(self, distributions: Sequence[tuple[Cell, ...]]) -> Iterator[Rescaled]:
        """The joint distributions that must add up to the calibrated labels."""
        found = self.calibration
        labels = tuple(Cell("probabilities", "", (k,)) for k in range(len(self.classes)))
        for cells in distributions:
            part, name = cells[0][:2]
            if part == "joint" and found is not None and (found.labels is not None or name in found.joint):
                starts = range(0, len(cells), len(labels))
                yield Rescaled(tuple(cells[i : i + len(labels)] for i in starts), labels)

    def _list_group_cells(self, name: Any) -> tuple[Cell, ...]:
        return tuple(Cell("groups", name, (s,)) for s in range(len(self.layout.list_values(name))))

    def _split_event(self, event: Conditions) -> tuple[dict[str, Value], Value | None]:
        """The unknown attributes of an event, and its label."""
        conditions = dict(event)
        label = conditions.pop(LABEL, None)
        return {n: v for n, v in conditions.items() if not self.feature_map.attributes[n].known}, label

    def _make_event_factors(self, event: Conditions) -> Product:
        hidden, label = self._split_event(event)
        indicators = [
            Equals(Cell("groups", name), value)
            for name, value in event
            if name != LABEL and name not in hidden
        ]
        if hidden:
            return (*indicators, self._make_hidden_factor(hidden, label))
        if label is None:
            return tuple(indicators)
        return (*indicators, Total((Cell("probabilities", "", (self.classes.index(label),)),)))

    def _make_hidden_factor(self, hidden: dict[str, Value], label: Value | None) -> Total:
        name, value = self.layout.find_combined(hidden)
        if label is not None:
            self.layout.check_joint(name)
            place = (self.layout.list_values(name).index(value), self.classes.index(label))
            return Total((Cell("joint", name, place),))
        model = self.layout.find_model(name)
        values = self.layout.list_values(model)
        if model == name:
            return Total((Cell("groups", name, (values.index(value),)),))
        place = model.index(name)  # known only together with others: their values add up
        return Total(tuple(Cell("groups", model, (s,)) for s, v in enumerate(values) if v[place] == value))

    def _make_source_factor(self, source: Source) -> Equals | Total:
        if isinstance(source, CostColumn):
            return Total((Cell("costs", source.name, (source.item,)),))
        if self.layout.has_labels(source.name):
            return Equals(Cell("references", source.name), source.item)
        place = self.layout.reference_columns.index(source.item)
        return Total((Cell("references", source.name, (place,)),))


def _describe_feature(feature: Feature, actions: Sequence[Value]) -> str:
    """Such as P(label='yes', sex='F'), for comments."""
    words = []
    if isinstance(feature.source, CostColumn):
        words.append(f"cost {feature.source.name!r} of {actions[feature.source.item]!r}")
    elif feature.source is not None:
        words.append(f"whether {feature.source.name!r} predicts {feature.source.item!r}")
    if feature.event:
        words.append(f"P({format_conditions(feature.event)})")
    return " times ".join(words) or "one"


def describe_policy(policy: DecisionRule) -> list[str]:
    """The policy's digest and rules, one line each."""
    problem = policy.problem
    return [
        f"digest {policy.digest}",
        f"minimize {problem.minimize}",
        *(f"subject to {rule}" for rule in problem.rules),
        *([] if policy.calibration is None else [f"calibrated: {policy.calibration.describe()}"]),
    ]
