"""Passes as SQL: layers of expressions over the columns of a row, sums of these in each cell, and how to read
the answer. So a database computes what a pass asks for, and only sums leave it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.softmax import NEGLIGIBLE
from bylaw._base.typing import Floats
from bylaw.errors import OptionError
from bylaw.formulation.cells import Layout
from bylaw.formulation.linear_form import LinearForm
from bylaw.formulation.passes import (
    LossRange,
    LossRangePass,
    NormPass,
    NormSums,
    Response,
    ResponsePass,
    Support,
    Tally,
    TallyPass,
    sum_features,
)
from bylaw.formulation.rule_excesses import ExcessPass, RuleExcesses
from bylaw.language.action_space import ActionSpace
from bylaw.sql.dialects import Dialect
from bylaw.sql.text import write_sum

Layer = dict[str, str]  # expressions by name
_DECIDED = 1 - 1e-9  # rows whose answer is this sure add nothing to the curvature
_FEW_PLACES = 10  # whose products are cheaper than to look at the undecided rows once more


@dataclass(frozen=True, eq=False)
class Sheet:
    """Rows as columns that cells share: `cell`, `weight` if rows have weights, and D columns."""

    form: LinearForm
    layout: Layout
    dialect: Dialect
    columns: tuple[str | None, ...]  # (D,): names; None for the column of ones
    weighted: bool

    def write_scores(self, matrix: Floats) -> list[str]:
        """features' matrix of each action, of a matrix (F, A)."""
        weights = self.layout.spread_matrix(matrix)
        return [
            self.write_by_cell([self.write_linear(part[:, a]) for part in weights])
            for a in range(matrix.shape[1])
        ]

    def write_linear(self, weights: Floats) -> str:
        """The sum of the columns times weights, (D,)."""
        number = self.dialect.write_float
        terms = [
            number(weight) if name is None else f"{number(weight)} * {name}"
            for name, weight in zip(self.columns, weights.tolist(), strict=True)
            if weight
        ]
        return write_sum(terms) or number(0.0)

    def write_by_cell(self, expressions: Sequence[str]) -> str:
        """One of the expressions, by the cell of the row."""
        if len(set(expressions)) == 1:
            return expressions[0]
        cases = [f"WHEN {cell} THEN {text}" for cell, text in enumerate(expressions[:-1])]
        return f"CASE cell {' '.join(cases)} ELSE {expressions[-1]} END"

    @cached_property
    def rule_places(self) -> Support:
        """The places (column, action) that rules touch in any cell."""
        return self._localize(self.form.couplings.indices)

    @cached_property
    def all_places(self) -> Support:
        """Those that rules or the objective touch."""
        base = np.flatnonzero(self.form.base)
        return self._localize(np.concatenate([self.form.couplings.indices, base]))

    def _localize(self, places: NDArray[Any]) -> Support:
        features, actions = np.divmod(np.unique(places), self.form.base.shape[1])
        return Support(*self.layout.localize(features, actions)[:2])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, D, A)."""
        return len(self.layout.cells), len(self.columns), self.form.base.shape[1]


class Sum(NamedTuple):
    """Over all rows of a cell, or only over those that meet a condition."""

    text: str
    only: str | None = None


@dataclass
class Plan:
    """What one pass asks of the database; names begin with a prefix of its own."""

    sheet: Sheet
    prefix: str
    layers: list[Layer] = field(default_factory=list)
    sums: dict[Sum, int] = field(default_factory=dict)  # with their places in the answer
    parts: Layer = field(default_factory=dict)  # the last layer
    read: Callable[[Floats], Any] = lambda sums: sums  # the answer, of sums (C, n_sums)

    def name(self, what: str, number: int | str = "") -> str:
        return f"{self.prefix}_{what}{number}"

    def names(self, what: str) -> list[str]:
        """One for each action."""
        return [self.name(what, a) for a in range(self.sheet.shape[2])]

    def add_layer(self, what: str, expressions: Sequence[str]) -> list[str]:
        """Expressions, one for each action; returns their names."""
        names = [self.name(what, i) for i in range(len(expressions))]
        self.layers.append(dict(zip(names, expressions, strict=True)))
        return names

    def define(self, what: str, expression: str) -> str:
        """A name for an expression, in the last layer."""
        name = self.name(what)
        self.parts[name] = expression
        return name

    def ask(self, *factors: str | None, power: int = 1, only: str | None = None) -> int:
        """The place of the sum of w^power times these factors; `only` over rows that meet a condition."""
        weights = ["weight"] * power if self.sheet.weighted else []
        product = " * ".join([*weights, *(factor for factor in factors if factor is not None)])
        text = f"SUM({product})" if product else "COUNT(*)"
        return self.sums.setdefault(Sum(text, only), len(self.sums))

    def ask_moments(self, places: Support, distribution: list[str], power: int = 1) -> list[int]:
        """The places of the sums of column times distribution."""
        pairs = zip(places.features.tolist(), places.actions.tolist(), strict=True)
        return [self.ask(self.multiply(k, distribution[a], a), power=power) for k, a in pairs]

    def multiply(self, column: int, chance: str, action: int) -> str:
        """The name of a column times the chance of an action."""
        name = self.sheet.columns[column]
        return chance if name is None else self.define(f"part{column}_{action}", f"{name} * {chance}")

    def gather(self, sums: Floats, places: Support, where: Sequence[int]) -> Floats:
        """(F, A): moments, of those at some places; zero elsewhere."""
        found = np.zeros(self.sheet.shape)
        found[:, places.features, places.actions] = sums[:, where]
        return self.sheet.layout.gather(found)

    def layer(self, depth: int) -> Layer:
        return self.layers[depth] if depth < len(self.layers) else {}

    def finish(self, read: Callable[[Floats], Any]) -> Plan:
        self.read = read
        if self.parts:
            self.layers.append(self.parts)
        return self


@singledispatch
def make_plan(wanted: Any, plan: Plan) -> Plan:
    """What a pass asks of a database."""
    if wanted is sum_features:
        return _plan_features(plan)
    raise OptionError(
        f"{getattr(wanted, '__name__', type(wanted).__name__)} needs the rows themselves; pass pull=True to "
        "scan, so that they are streamed to this process"
    )


def _plan_features(plan: Plan) -> Plan:
    where = [plan.ask(name) for name in plan.sheet.columns]
    return plan.finish(lambda sums: plan.sheet.layout.gather(sums[:, where, None])[:, 0])


@make_plan.register
def _(wanted: TallyPass, plan: Plan) -> Plan:
    chances, potential = _add_softmax(plan, wanted.beta * wanted.score_matrix, wanted.space)
    places = plan.sheet.all_places if wanted.chosen is None else plan.sheet.rule_places
    mass, energy = plan.ask(), plan.ask(potential)
    where = plan.ask_moments(places, chances)
    curve = None if wanted.support is None else _ask_curvature(plan, wanted, wanted.support, chances)

    def read(sums: Floats) -> Tally:
        moments = plan.gather(sums, places, where)
        total = float(sums[:, mass].sum()), float(sums[:, energy].sum()) / wanted.beta
        return Tally(*total, moments, None if curve is None else wanted.beta * curve(sums))

    return plan.finish(read)


def _add_softmax(plan: Plan, matrix: Floats, space: ActionSpace) -> tuple[list[str], str]:
    """The names of the chances of the actions, and of the potential, for scores that are times beta."""
    number = plan.sheet.dialect.write_float
    scores = plan.add_layer("score", plan.sheet.write_scores(matrix))
    if not space.exclusive:
        return _add_sigmoids(plan, scores)
    peak, total, potential = map(plan.name, ("peak", "total", "potential"))
    plan.layers.append({peak: f"GREATEST({', '.join(scores)})"})
    far, zero = number(NEGLIGIBLE), number(0.0)
    exps = plan.add_layer(
        "exp", [f"CASE WHEN {s} - {peak} > {far} THEN EXP({s} - {peak}) ELSE {zero} END" for s in scores]
    )
    plan.layers.append({total: write_sum(exps)})
    chances = plan.add_layer("chance", [f"{exp} / {total}" for exp in exps])
    plan.layers[-1][potential] = f"{peak} + LN({total})"
    return chances, potential


def _add_sigmoids(plan: Plan, scores: Sequence[str]) -> tuple[list[str], str]:
    number = plan.sheet.dialect.write_float
    one, zero, far = number(1.0), number(0.0), number(-NEGLIGIBLE)
    exps = plan.add_layer(
        "exp", [f"CASE WHEN ABS({s}) < {far} THEN EXP(-ABS({s})) ELSE {zero} END" for s in scores]
    )
    pairs = list(zip(scores, exps, strict=True))
    chances = plan.add_layer(
        "chance", [f"CASE WHEN {s} > {zero} THEN {one} ELSE {e} END / ({one} + {e})" for s, e in pairs]
    )
    potential = plan.name("potential")
    plan.layers[-1][potential] = write_sum([f"GREATEST({s}, {zero}) + LN({one} + {e})" for s, e in pairs])
    return chances, potential


def _ask_curvature(
    plan: Plan, wanted: TallyPass, support: Support, chances: list[str]
) -> Callable[[Floats], Floats]:
    """(C, q, q): sum of phi_k phi_l (1{a = b} pi_a - pi_a pi_b); for sets, of phi_k phi_l 1{a = b} pi_a
    (1 - pi_a)."""
    q, exclusive = len(support.actions), wanted.space.exclusive
    columns, actions = support.features.tolist(), support.actions.tolist()
    open_ = _define_open(plan, chances) if exclusive and q > _FEW_PLACES else None
    entries: list[tuple[int, int, float, int]] = []
    for i in range(q):
        for j in range(i + 1):
            if exclusive:
                entries.append((i, j, -1.0, _ask_pair(plan, support, chances, i, j, only=open_)))
            if actions[i] == actions[j]:
                chance = chances[actions[i]]
                if not exclusive:
                    one = plan.sheet.dialect.write_float(1.0)
                    chance = plan.define(f"open{actions[i]}", f"{chance} * ({one} - {chance})")
                low, high = sorted((columns[i], columns[j]))
                factors = plan.sheet.columns[low], plan.sheet.columns[high], chance
                entries.append((i, j, 1.0, plan.ask(*factors, only=open_)))

    def read(sums: Floats) -> Floats:
        found = np.zeros((len(sums), q, q))
        for i, j, sign, place in entries:
            found[:, i, j] += sign * sums[:, place]
        return found + np.tril(found, -1).transpose(0, 2, 1)

    return read


def _define_open(plan: Plan, chances: Sequence[str]) -> str:
    """Whether a row is undecided: the others add nothing to the curvature."""
    return plan.define("open", f"GREATEST({', '.join(chances)}) < {plan.sheet.dialect.write_float(_DECIDED)}")


def _ask_pair(plan: Plan, places: Support, chances: list[str], i: int, j: int, **options: Any) -> int:
    """The sum of phi_k phi_l pi_a pi_b; the same for all orders of k and l, a and b."""
    columns, actions = (sorted(found[[i, j]].tolist()) for found in (places.features, places.actions))
    parts = [plan.multiply(k, chances[a], a) for k, a in zip(columns, actions, strict=True)]
    return plan.ask(*parts, **options)


@make_plan.register
def _(wanted: LossRangePass, plan: Plan) -> Plan:
    losses = plan.add_layer("loss", plan.sheet.write_scores(wanted.base))
    least, most = (
        plan.ask(plan.define(what, _write_extreme(plan, losses, wanted.space, function)))
        for what, function in (("least", "LEAST"), ("most", "GREATEST"))
    )
    return plan.finish(lambda sums: LossRange(float(sums[:, least].sum()), float(sums[:, most].sum())))


def _write_extreme(plan: Plan, losses: Sequence[str], space: ActionSpace, function: str) -> str:
    """The least or the largest loss of a decision on a row; of sets, that of the labels that add to it."""
    if space.exclusive:
        return f"{function}({', '.join(losses)})"
    zero = plan.sheet.dialect.write_float(0.0)
    return f"({write_sum([f'{function}({loss}, {zero})' for loss in losses])})"


@make_plan.register
def _(wanted: ResponsePass, plan: Plan) -> Plan:
    losses, places = plan.add_layer("loss", plan.sheet.write_scores(wanted.costs)), plan.sheet.rule_places
    one, zero = map(plan.sheet.dialect.write_float, (1.0, 0.0))
    least = plan.name("least")
    plan.layers.append({least: _write_extreme(plan, losses, wanted.space, "LEAST")})
    if wanted.space.exclusive:  # the first of those that cost least
        cases = " ".join(f"WHEN {loss} = {least} THEN {a}" for a, loss in enumerate(losses))
        plan.layers.append({(best := plan.name("best")): f"CASE {cases} END"})
        chosen = [f"{best} = {a}" for a in range(len(losses))]
    else:
        chosen = [f"{loss} < {zero}" for loss in losses]
    taken = plan.add_layer("taken", [f"CASE WHEN {here} THEN {one} ELSE {zero} END" for here in chosen])
    cost, where = plan.ask(least), plan.ask_moments(places, taken)
    return plan.finish(lambda sums: Response(float(sums[:, cost].sum()), plan.gather(sums, places, where)))


@make_plan.register
def _(wanted: NormPass, plan: Plan) -> Plan:
    form, number = wanted.form, plan.sheet.dialect.write_float
    squares = plan.add_layer("square", _write_norms(plan.sheet, form))
    bounds, zero = float(form.bounds @ form.bounds), number(0.0)
    if form.action_space.exclusive:
        largest = f"GREATEST({', '.join(squares)}) + {number(bounds)}"
        text = f"SQRT(GREATEST({largest}, {zero}))"
    else:  # a set may hold every label at once
        roots = [f"SQRT(GREATEST({square}, {zero}))" for square in squares]
        text = write_sum([*roots, number(math.sqrt(bounds))])
    norm = plan.define("norm", text)
    first, second, scaled = plan.ask(norm), plan.ask(norm, norm), plan.ask(norm, norm, power=2)
    return plan.finish(lambda sums: NormSums(*sums[:, [first, second, scaled]].sum(axis=0).tolist()))


def _write_norms(sheet: Sheet, form: LinearForm) -> list[str]:
    """For each action |B phi|^2 - 2 b'B phi; without the latter for sets, whose bounds count apart."""
    n_cells, n_columns, n_actions = sheet.shape
    by_place, embedding = form.couplings.tocsc(), sheet.layout.embedding.tocsc()
    texts = []
    for a in range(n_actions):
        by_cell = []
        for cell in range(n_cells):
            couplings = by_place[:, a::n_actions] @ embedding[:, cell * n_columns : (cell + 1) * n_columns]
            gram = (couplings.T @ couplings).toarray()
            cross = -2 * (couplings.T @ form.bounds) if form.action_space.exclusive else np.zeros(n_columns)
            by_cell.append(_write_quadratic(sheet, gram, cross))
        texts.append(sheet.write_by_cell(by_cell))
    return texts


def _write_quadratic(sheet: Sheet, gram: Floats, linear: Floats) -> str:
    """x' gram x + linear' x, of the columns x."""
    parts = [] if not linear.any() else [sheet.write_linear(linear)]
    for k in np.flatnonzero(gram.any(axis=1)).tolist():
        row = np.concatenate([np.zeros(k), [gram[k, k]], 2 * gram[k, k + 1 :]])
        if row.any():
            name, inner = sheet.columns[k], sheet.write_linear(row)
            parts.append(f"({inner})" if name is None else f"{name} * ({inner})")
    return write_sum(parts) or sheet.dialect.write_float(0.0)


@make_plan.register
def _(wanted: ExcessPass, plan: Plan) -> Plan:
    """The squares of rules' costs are quadratic in the parts phi pi, and so are their sums."""
    form, layout = wanted.form, plan.sheet.layout
    matrix = wanted.beta * form.score_matrix(wanted.multipliers)
    chances, potential = _add_softmax(plan, matrix, form.action_space)
    columns, actions, embedding = layout.localize(wanted.support.features, wanted.support.actions)
    places = Support(columns, actions)
    mass, energy, squared = plan.ask(), plan.ask(potential), plan.ask(power=2)
    first, scaled = (plan.ask_moments(places, chances, power) for power in (1, 2))
    q = len(actions)
    pairs = [[_ask_pair(plan, places, chances, i, j, power=2) for j in range(q)] for i in range(q)]

    def read(sums: Floats) -> RuleExcesses:
        local = sparse.csr_array(wanted.couplings @ embedding).toarray()
        couplings = local.reshape(len(form.bounds), -1, q).swapaxes(0, 1)  # (C, M, q)
        bounds, total = form.bounds, sums[:, [mass, squared, energy]].sum(axis=0)
        means, scales = (np.einsum("cmq,cq->m", couplings, sums[:, at]) for at in (first, scaled))
        squares = np.einsum("cmq,cqr,cmr->m", couplings, sums[:, pairs], couplings)
        constant = float(bounds @ wanted.multipliers) - form.base_constant
        return RuleExcesses(
            mass=float(total[0]),
            squared_mass=float(total[1]),
            value=float(total[2]) / wanted.beta + float(total[0]) * constant,
            excesses=means - bounds * total[0],
            scaled=scales - bounds * total[1],
            squares=squares - 2 * bounds * scales + bounds**2 * total[1],
        )

    return plan.finish(read)
