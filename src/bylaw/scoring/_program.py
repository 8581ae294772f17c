"""The scoring program: checks, calibration, features and probabilities as expressions over columns.

A policy decides by softmax(beta * features(x)' score_matrix). All exports translate the same expressions, so
that they compute the same probabilities in different languages.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bylaw._base import NEGLIGIBLE, Value
from bylaw.calibration import LOWEST_LOG, Calibration, CalibrationMap
from bylaw.errors import OptionError
from bylaw.language import LABEL, Conditions, CostColumn, format_conditions
from bylaw.program import Feature, FeatureMap
from bylaw.rows import REJECTED, ROUNDING, SUM_TOLERANCE, Columns
from bylaw.scoring._columns import check_columns, find_combined, find_model, list_answers, list_values
from bylaw.scoring._vectors import Vector, apply, case, constant, join, linear, read

if TYPE_CHECKING:
    from bylaw.policy import Policy

UNDERFLOW = 1e-100  # smaller numbers count as zero: PostgreSQL refuses products that underflow
_LARGEST = sys.float_info.max


class Cell(NamedTuple):
    """A column of the evidence, such as the probability of one label.

    A cell names a part of the evidence, the array in this part, and the indices of the column in this array.
    """

    part: Literal["probabilities", "groups", "joint", "references", "costs"]
    name: Any  # an attribute (a tuple for several together), an earlier model or a cost
    place: tuple[int, ...] = ()  # the indices of the column in the part; empty if there is only one


class Features:
    """Features of a row as expressions over the columns of a table.

    Parameters
    ----------
    feature_map : FeatureMap
        The features of a policy.
    columns : Columns
        The roles of the columns of the table.
    calibration : Calibration, optional
        The calibration of the probabilities.

    Attributes
    ----------
    known : dict
        {cell: possible values} for columns of values, such as a known group or the labels of an earlier
        model.
    distributions : list of tuple of Cell
        Groups of cells whose probabilities sum to one.
    numbers : tuple of Cell
        Cells of finite numbers, such as costs.
    texts : set of Cell
        Cells that a table may hold as text although their values are numbers: the labels of an earlier model
        that may reject.

    Raises
    ------
    OptionError
        If the table has no column for something that the features read.
    """

    def __init__(
        self, feature_map: FeatureMap, columns: Columns, calibration: Calibration | None = None
    ) -> None:
        if feature_map.functions:
            raise OptionError(
                f"custom({next(iter(feature_map.functions))!r}) is a Python function, which "
                "cannot be exported: compute it beforehand, write the rule with the name of "
                "the array, and pass its columns as costs"
            )
        check_columns(feature_map, columns)
        self.feature_map, self.columns = feature_map, columns
        self.space = space = feature_map.action_space
        self.labels = tuple(Cell("probabilities", "", (k,)) for k in range(len(space.classes)))
        self.known: dict[Cell, tuple[Value, ...]] = {
            Cell("groups", name): attribute.values
            for name, attribute in feature_map.attributes.items()
            if attribute.known
        }
        answers = tuple(dict.fromkeys((*space.reference_actions, REJECTED)))
        self.known |= {
            Cell("references", name): answers
            for name in feature_map.reference_names
            if isinstance(columns.references[name], str)  # one column of labels, not of probabilities
        }
        kinds = {type(label) for label in space.reference_actions}
        self.texts = {cell for cell in self.known if cell.part == "references"}
        self.texts = self.texts if int in kinds or len(kinds) > 1 else set()
        self.distributions = list(dict.fromkeys(self._find_distributions()))
        self.numbers = tuple(
            Cell("costs", name, (a,)) for name in feature_map.cost_names for a in range(len(space.actions))
        )
        # Read all cells once; numbers that are tiny, or that no row may have, count as zero.
        self._chances = tuple(dict.fromkeys(cell for cells in self.distributions for cell in cells))
        numbers = (*self._chances, *self.numbers)
        given = read(*numbers).named("given")
        chances = given.take(range(len(self._chances)))
        sizes = apply("abs", given.take(range(len(self._chances), len(numbers))))
        admitted = join(
            [
                apply("between", chances, UNDERFLOW, 1 + SUM_TOLERANCE),
                apply("between", sizes, UNDERFLOW, _LARGEST),
            ]
        )
        clean = case((admitted, given), otherwise=0.0).named("clean")
        values = read(*self.known).named("value")
        self.given = {cell: given.take([i]) for i, cell in enumerate(numbers)}
        self.given |= {cell: values.take([i]) for i, cell in enumerate(self.known)}
        self._clean = {cell: clean.take([i]) for i, cell in enumerate(numbers)}
        if calibration is not None:
            self._calibrate(calibration)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All columns that are read from a row."""
        return (*self._chances, *self.known, *self.numbers)

    def check_row(
        self,
    ) -> Iterator[tuple[Literal["probability", "sum", "value", "number"], tuple[Cell, ...], Vector]]:
        """Yield the conditions that a row must satisfy, as tuples (what is checked, cells, condition).

        The condition of a "sum" has one entry; other conditions have one entry for each cell.
        """
        for cells in self.distributions:
            given = join(self.given[cell] for cell in cells)
            yield "probability", cells, apply("between", given, -ROUNDING, 1 + SUM_TOLERANCE)
            yield "sum", cells, apply("abs", given.sum() - 1.0) <= SUM_TOLERANCE
        for cell, values in self.known.items():
            yield "value", (cell,), self.given[cell].is_in(values)
        if self.numbers:
            sizes = apply("abs", join(self.given[cell] for cell in self.numbers))
            yield "number", self.numbers, sizes <= _LARGEST

    def is_valid(self) -> Vector:
        """Return the condition that a row satisfies all checks."""
        return join(condition for _, _, condition in self.check_row()).all().named("valid")

    def compute(self, feature: Feature) -> Vector:
        """Return the expression of a feature: its source times the probability of its event."""
        known, hidden, label = self._split_event(feature.event)
        factors, source = [], feature.source
        if isinstance(source, CostColumn):
            factors.append(self._clean[Cell("costs", source.name, (source.item,))])
        elif source is not None and Cell("references", source.name) in self.known:
            factors.append(self.indicate(Cell("references", source.name), source.item))
        elif source is not None:
            place = list_answers(self.space, self.columns).index(source.item)
            factors.append(self._clean[Cell("references", source.name, (place,))])
        factors += [self.indicate(Cell("groups", name), value) for name, value in known.items()]
        if hidden:
            factors.append(self._read_hidden(hidden, label))
        elif label is not None:
            factors.append(self._clean[self.labels[self.space.classes.index(label)]])
        return reduce(mul, factors) if factors else constant(1.0)

    def indicate(self, cell: Cell, value: Value) -> Vector:
        """Return an expression that is one on rows where the cell has this value, and zero on others."""
        return case((self.given[cell].is_in([value]), 1.0), otherwise=0.0)

    def _find_distributions(self) -> Iterator[tuple[Cell, ...]]:
        if self.labels:
            yield self.labels
        for name, attribute in self.feature_map.attributes.items():
            if not attribute.known:
                yield self._list_group_cells(find_model(self.columns, name))
        for feature in self.feature_map.features:
            _, hidden, label = self._split_event(feature.event)
            if hidden:
                name, _ = find_combined(self.columns, hidden)
                if label is None:
                    yield self._list_group_cells(find_model(self.columns, name))
                else:
                    places = itertools.product(
                        range(len(list_values(self.columns, name))), range(len(self.labels))
                    )
                    yield tuple(Cell("joint", name, place) for place in places)
        for name in self.feature_map.reference_names:
            if Cell("references", name) not in self.known:
                answers = range(len(list_answers(self.space, self.columns)))
                yield tuple(Cell("references", name, (k,)) for k in answers)

    def _split_event(self, event: Conditions) -> tuple[dict[str, Value], dict[str, Value], Value | None]:
        """Split an event into values of known groups, values of unknown groups, and the label or None."""
        conditions = dict(event)
        label = conditions.pop(LABEL, None)
        known = {n: v for n, v in conditions.items() if self.feature_map.attributes[n].known}
        return known, {n: v for n, v in conditions.items() if n not in known}, label

    def _list_group_cells(self, name: Any) -> tuple[Cell, ...]:
        return tuple(Cell("groups", name, (s,)) for s in range(len(list_values(self.columns, name))))

    def _read_hidden(self, hidden: dict[str, Value], label: Value | None) -> Vector:
        """Return the probability of values of unknown groups, together with the label if it is given."""
        name, value = find_combined(self.columns, hidden)
        values = list_values(self.columns, name)
        if label is not None:
            classes, rows = self.space.classes, self.columns.joint.get(name)
            if rows is None or (len(rows), *{len(row) for row in rows}) != (len(values), len(classes)):
                raise OptionError(
                    f"joint[{name!r}] must have {len(values)} rows of {len(classes)} columns of P({name}, "
                    f"label | x), because a rule refers to {name!r} and the label together: pass "
                    f"Columns(joint={{{name!r}: ...}})"
                )
            return self._clean[Cell("joint", name, (values.index(value), classes.index(label)))]
        model = find_model(self.columns, name)
        values = list_values(self.columns, model)
        if model != name:  # known only together with others: their values add up
            values = [together[model.index(name)] for together in values]
        cells = [self._clean[Cell("groups", model, (s,))] for s, v in enumerate(values) if v == value]
        return cells[0] if len(cells) == 1 else join(cells).sum()

    def _calibrate(self, found: Calibration) -> None:
        """Replace the expressions of probabilities by those of calibrated probabilities."""
        labels = range(len(self.labels))
        if found.labels is not None:
            maps = []
            if found.by is not None:
                by = self.given[Cell("groups", found.by)]
                maps = [(by.is_in([value]), one) for value, one in found.by_value.items()]
            self._apply_map(self.labels, found.labels, maps)
        for part, name in dict.fromkeys(cells[0][:2] for cells in self.distributions):
            maps = {"groups": found.groups, "joint": found.joint}.get(part, {})
            if name in maps:
                values = list_values(self.columns, name)
                places = [(values.index(value),) for value in maps[name].values]
                if part == "joint":
                    places = [(*place, k) for place in places for k in labels]
                self._apply_map([Cell(part, name, place) for place in places], maps[name].map)
        for cells in self.distributions:
            part, name = cells[0][:2]
            if part == "joint" and (found.labels is not None or name in found.joint):
                self._rescale(cells)

    def _apply_map(
        self,
        cells: Sequence[Cell],
        otherwise: CalibrationMap,
        maps: Sequence[tuple[Vector, CalibrationMap]] = (),
    ) -> None:
        """Calibrate cells whose probabilities sum to one.

        `maps` are pairs (condition on the row, calibration map). The first map whose condition is true is
        used, or `otherwise` if none is.
        """
        given = join(self._clean[cell] for cell in cells)
        logs = apply("log", apply("max", given, otherwise.floor)).named("log")
        choices = [(condition, _compute_scores(one, logs)) for condition, one in maps]
        scores = case(*choices, otherwise=_compute_scores(otherwise, logs)).named("map")
        below = scores - scores.greatest().named("map_peak")
        powers = apply("exp", apply("max", below, LOWEST_LOG)).named("power")
        calibrated = (powers / powers.sum().named("power_total")).named("calibrated")
        self._clean |= {cell: calibrated.take([i]) for i, cell in enumerate(cells)}

    def _rescale(self, cells: Sequence[Cell]) -> None:
        """Rescale joint probabilities so that their sums over groups equal those of the labels."""
        n_labels, n_values = len(self.labels), len(cells) // len(self.labels)
        joint, labels = (join(self._clean[cell] for cell in part) for part in (cells, self.labels))
        totals = linear(joint, np.tile(np.eye(n_labels), (n_values, 1))).named("joint_total")
        repeated = [*range(n_labels)] * n_values
        total = totals.take(repeated)
        shares = case((total > 0.0, joint / total), otherwise=1 / n_values)
        rescaled = (shares * labels.take(repeated)).named("rescaled")
        self._clean |= {cell: rescaled.take([i]) for i, cell in enumerate(cells)}


def _compute_scores(one: CalibrationMap, logs: Vector) -> Vector:
    """Return the scores of a calibration map: a linear function of log-probabilities and hinges."""
    hinges = [apply("max", logs - constant(knots), 0.0) for knots in one.knots.T]
    weights = np.vstack([one.weights.T, *(np.diag(bends) for bends in one.bends.T)])
    return linear(join([logs, *hinges]), weights, one.bias)


def compute_probabilities(policy: Policy, features: Features, valid: Vector | None = None) -> Vector:
    """Return the probabilities of the actions as a vector.

    They are missing on rows where scores overflow or `valid` is false.
    """
    scale = policy.beta * policy.score_matrix
    products = [features.compute(feature) for feature in policy.feature_map.features]
    plain = [k for k, product in enumerate(products) if product.operator == "constant"]
    weighted = [k for k in range(len(products)) if scale[k].any() and k not in plain]
    names = [_describe_feature(policy.feature_map.features[k], policy.actions) for k in weighted]
    found = join(products[k] for k in weighted).named("feature", names)
    scores = linear(found, scale[weighted], scale[plain].sum(axis=0)).named("score")
    finite = (apply("abs", scores) <= _LARGEST).all()
    decided = (finite if valid is None else valid & finite).named("decided")
    probabilities, _ = normalize(scores, exclusive=policy.action_space.exclusive)
    return case((decided, probabilities), otherwise=None).named("probability")


def normalize(scores: Vector, *, exclusive: bool) -> tuple[Vector, Vector]:
    """Return the probabilities of actions with these scores, and the logarithm of their normalizing constant.

    Probabilities are a softmax of the scores or, if decisions are sets (`exclusive` is False), a sigmoid for
    each label; the constant is then the product of 1 + exp(score).
    """
    if exclusive:
        peak = scores.greatest().named("peak")
        below = scores - peak
        weights = case((below > NEGLIGIBLE, apply("exp", below)), otherwise=0.0).named("weight")
        total = weights.sum().named("total")
        return weights / total, peak + apply("log", total)
    sizes = apply("abs", scores)
    weights = case((sizes < -NEGLIGIBLE, apply("exp", sizes * -1.0)), otherwise=0.0).named("weight")
    chances = case((scores > 0.0, 1.0), otherwise=weights) / (weights + 1.0)
    return chances, (apply("max", scores, 0.0) + apply("log", weights + 1.0)).sum()


def _describe_feature(feature: Feature, actions: Sequence[Value]) -> str:
    """Return the text of a feature for a comment, such as P(label='yes', sex='F')."""
    words = []
    if isinstance(feature.source, CostColumn):
        words.append(f"cost {feature.source.name!r} of {actions[feature.source.item]!r}")
    elif feature.source is not None:
        words.append(f"whether {feature.source.name!r} predicts {feature.source.item!r}")
    if feature.event:
        words.append(f"P({format_conditions(feature.event)})")
    return " times ".join(words) or "one"


def describe_policy(policy: Policy) -> list[str]:
    """Return the policy's digest, objective, rules and calibration as lines of text."""
    problem = policy.problem
    return [
        f"digest {policy.digest}",
        f"minimize {problem.minimize}",
        *(f"subject to {rule}" for rule in problem.rules),
        *([] if policy.calibration is None else [f"calibrated: {policy.calibration.describe()}"]),
    ]
