"""Sums over the rows of a table, computed inside the database, which returns only the sums."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats
from bylaw.engines._engine import PULL, ROUNDING, Database
from bylaw.errors import EvidenceError, OptionError
from bylaw.program import (
    ExcessPass,
    Layout,
    LinearForm,
    LossRangePass,
    NormPass,
    Pass,
    ResponsePass,
    RuleExcesses,
    Support,
    Tally,
    TallyPass,
    sum_features,
)
from bylaw.rows import Columns, Evidence
from bylaw.scoring import (
    UNDERFLOW,
    Cell,
    Features,
    SqlPrinter,
    Vector,
    apply,
    case,
    columns_of,
    constant,
    join,
    linear,
    normalize,
    read,
)

SAMPLE_ROWS = 2**18  # in a temporary table, for the first stages of the solver
_DECIDED = 1 - 1e-9  # rows with a decision this probable hardly add to the curvature
_FEW_PLACES = 10  # so few products are cheaper than another query for the undecided rows
Watch = Callable[[], AbstractContextManager[None]]  # a context around each statement that reads all rows


@dataclass(frozen=True, eq=False)
class Sheet:
    """Columns that a database computes for each row: its cell, its weight, and D columns.

    A cell is a combination of known groups. The features of the rules are these columns in single cells.
    """

    form: LinearForm
    layout: Layout
    columns: Vector  # (D,): the columns other than cell and weight
    weighted: bool
    cell: Vector = field(default_factory=lambda: columns_of("cell"))
    weight: Vector = field(default_factory=lambda: columns_of("weight"))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of cells, columns and actions (C, D, A)."""
        return len(self.layout.cells), self.columns.width, self.form.base.shape[1]

    def weigh(self, vector: Vector, power: int = 1) -> Vector:
        """Return the vector times a power of the weight."""
        for _ in range(power if self.weighted else 0):
            vector = self.weight * vector
        return vector

    def choose(self, by_cell: list[Vector]) -> Vector:
        """Return, for each row, the vector in `by_cell` that belongs to its cell."""
        choices = [(apply("=", self.cell, constant(c)), part) for c, part in enumerate(by_cell[:-1])]
        return case(*choices, otherwise=by_cell[-1])

    def compute_scores(self, matrix: Floats) -> Vector:
        """Return each row's scores of the actions: its features times a matrix (F, A)."""
        return self.choose([linear(self.columns, part) for part in self.layout.spread_matrix(matrix)])

    def spread(self, places: Support, distribution: Vector) -> Vector:
        """Return, for each pair (column, action), the column times the probability of the action."""
        return self.columns.take(places.features) * distribution.take(places.actions)

    def gather(self, sums: Floats, places: Support) -> Floats:
        """Return moments (F, A) from the sums (C, q) of q pairs (column, action); other moments are zero."""
        found = np.zeros(self.shape)
        found[:, places.features, places.actions] = sums
        return self.layout.gather(found)

    def localize(self, places: NDArray[Any]) -> Support:
        """Return the pairs (column, action), in any cell, of flat positions in a matrix (feature, action)."""
        features, actions = np.divmod(np.unique(places), self.form.base.shape[1])
        return Support(*self.layout.localize(features, actions)[:2])

    @property
    def rule_places(self) -> Support:
        """The pairs (column, action) with a coefficient in some rule."""
        return self.localize(self.form.couplings.indices)


class Sum(NamedTuple):
    """A vector to sum over the rows of each cell, or over those rows that satisfy a condition."""

    vector: Vector
    only: Vector | None = None


# The sums of a pass, and a function that makes its result of them, with an array (C, width) for each sum.
Plan = tuple[list[Sum], Callable[..., Any]]


@singledispatch
def plan_pass(wanted: Any, sheet: Sheet) -> Plan:
    """Return the sums that a pass needs from a database, and a function that makes its result from them."""
    if wanted is sum_features:
        return [Sum(sheet.weigh(sheet.columns))], lambda sums: sheet.layout.gather(sums[:, :, None])[:, 0]
    raise OptionError(
        f"{getattr(wanted, '__name__', type(wanted).__name__)} cannot be computed in a database; {PULL}"
    )


@plan_pass.register
def _(wanted: TallyPass, sheet: Sheet) -> Plan:
    scores = sheet.compute_scores(wanted.beta * wanted.score_matrix).named("score")
    chances, potential = normalize(scores, exclusive=wanted.space.exclusive)
    chances = chances.named("chance")
    # The pairs (column, action) with a coefficient in a rule or in the objective.
    places = sheet.localize(np.concatenate([sheet.form.couplings.indices, np.flatnonzero(sheet.form.base)]))
    moments = sheet.spread(places, chances)
    sums = [Sum(sheet.weigh(part)) for part in (constant(1.0), potential, moments)]
    products, read_curvature = [], None
    if wanted.support is not None:
        products, read_curvature = _plan_curvature(
            wanted.support, chances, sheet, exclusive=wanted.space.exclusive
        )

    def read_tally(mass: Floats, energy: Floats, moments: Floats, *curved: Floats) -> Tally:
        curvature = None if read_curvature is None else wanted.beta * read_curvature(*curved)
        total = float(mass.sum()), float(energy.sum()) / wanted.beta
        return Tally(*total, sheet.gather(moments, places), curvature)

    return [*sums, *products], read_tally


def _plan_curvature(support: Support, chances: Vector, sheet: Sheet, *, exclusive: bool) -> Plan:
    """Return a plan for the sums of phi_k phi_l (1{a = b} pi_a - pi_a pi_b), (C, q, q).

    The q pairs (k, a) of a feature phi_k and an action with probability pi_a are those in `support`. For
    decisions that are sets, they are sums of phi_k phi_l 1{a = b} pi_a (1 - pi_a).
    """
    columns, actions = support.features, support.actions
    low, high = np.tril_indices(len(actions))
    same = actions[low] == actions[high]
    only, spread, places = None, chances, None
    if not exclusive:
        spread = (chances * (constant(1.0) - chances)).named("spread")
    elif len(actions) > _FEW_PLACES:
        only = chances.greatest() < _DECIDED
    products = sheet.columns.take(columns[low[same]]) * sheet.columns.take(columns[high[same]])
    sums = [Sum(sheet.weigh(products * spread.take(actions[low[same]])), only)]
    if exclusive:
        pairs, places = _multiply_pairs(sheet, support, chances, low, high)
        sums.append(Sum(sheet.weigh(pairs), only))

    def read_curvature(diagonal: Floats, *crossed: Floats) -> Floats:
        found = np.zeros((len(diagonal), len(actions), len(actions)))
        found[:, low[same], high[same]] = diagonal
        for part in crossed:
            found[:, low, high] -= part[:, places]
        return found + np.tril(found, -1).transpose(0, 2, 1)

    return sums, read_curvature


def _multiply_pairs(
    sheet: Sheet, support: Support, chances: Vector, one: NDArray[np.intp], other: NDArray[np.intp]
) -> tuple[Vector, NDArray[np.intp]]:
    """Return the distinct products (phi_k pi_a)(phi_l pi_b), and the position of each one among them.

    phi are features and pi probabilities of actions. Swapping k and l, or a and b, does not change a product.
    """
    keys = [np.sort([found[one], found[other]], axis=0) for found in (support.features, support.actions)]
    _, first, places = np.unique(np.vstack(keys), axis=1, return_index=True, return_inverse=True)
    parts = sheet.spread(support, chances).named("part")
    return parts.take(one[first]) * parts.take(other[first]), places.ravel()


@plan_pass.register
def _(wanted: LossRangePass, sheet: Sheet) -> Plan:
    losses = sheet.compute_scores(wanted.base).named("loss")
    if wanted.space.exclusive:
        extremes = losses.least(), losses.greatest()
    else:  # a set has the labels that lower, or raise, the loss
        extremes = tuple(apply(order, losses, 0.0).sum() for order in ("min", "max"))
    sums = [Sum(sheet.weigh(extreme)) for extreme in extremes]
    return sums, lambda *found: np.array([part.sum() for part in found])


@plan_pass.register
def _(wanted: ResponsePass, sheet: Sheet) -> Plan:
    losses, places = sheet.compute_scores(wanted.costs).named("loss"), sheet.rule_places
    if wanted.space.exclusive:  # the first action with the least cost
        least = losses.least().named("least")
        order = [(losses.take([a]) <= least, constant(a)) for a in range(losses.width)]
        best = case(*order, otherwise=None).named("best")
        chosen = apply("=", best, constant(range(losses.width)))
    else:
        chosen = losses < 0.0
    taken = case((chosen, 1.0), otherwise=0.0)
    moments = Sum(sheet.weigh(sheet.spread(places, taken)))
    return [moments], lambda found: sheet.gather(found, places)


@plan_pass.register
def _(wanted: NormPass, sheet: Sheet) -> Plan:
    form, exclusive = wanted.form, wanted.form.action_space.exclusive
    squares = _compute_squares(form, sheet).named("square")
    bounds = float(form.bounds @ form.bounds)
    if exclusive:
        norm = apply("sqrt", apply("max", squares.greatest() + bounds, 0.0))
    else:  # a set may have every label at once
        norm = apply("sqrt", apply("max", squares, 0.0)).sum() + math.sqrt(bounds)
    norm = norm.named("norm")
    sums = [Sum(sheet.weigh(norm)), Sum(sheet.weigh(norm * norm)), Sum(sheet.weigh(norm * norm, 2))]
    return sums, lambda *found: np.array([part.sum() for part in found])


def _compute_squares(form: LinearForm, sheet: Sheet) -> Vector:
    """Return |B phi|^2 - 2 b'B phi of each action, where phi are features.

    B are the coefficients of rules and b their bounds. For decisions that are sets, return |B phi|^2, since
    their bounds are added separately.
    """
    n_cells, n_columns, n_actions = sheet.shape
    by_place, embedding = form.couplings.tocsc(), sheet.layout.embedding.tocsc()
    by_cell = []
    for cell in range(n_cells):
        squares = []
        for a in range(n_actions):
            couplings = by_place[:, a::n_actions] @ embedding[:, cell * n_columns : (cell + 1) * n_columns]
            gram = np.triu((couplings.T @ couplings).toarray())
            used, doubled = np.flatnonzero(gram.any(axis=1)), gram + np.triu(gram, 1)
            products = sheet.columns.take(used) * linear(sheet.columns, doubled[used].T)
            square = products.sum()
            if form.action_space.exclusive:
                square = square + linear(sheet.columns, -2 * (couplings.T @ form.bounds)[:, None])
            squares.append(square)
        by_cell.append(join(squares))
    return sheet.choose(by_cell)


@plan_pass.register
def _(wanted: ExcessPass, sheet: Sheet) -> Plan:
    # The squared excesses of rules are quadratic in the products phi pi, and so are their sums.
    form, layout = wanted.form, sheet.layout
    scores = sheet.compute_scores(wanted.beta * form.score_matrix(wanted.multipliers)).named("score")
    chances, potential = normalize(scores, exclusive=form.action_space.exclusive)
    chances = chances.named("chance")
    columns, actions, embedding = layout.localize(wanted.support.features, wanted.support.actions)
    places, q = Support(columns, actions), len(actions)
    squares, order = _multiply_pairs(sheet, places, chances, *np.indices((q, q)).reshape(2, -1))
    parts, one = sheet.spread(places, chances), constant(1.0)
    weighed = [(one, 1), (one, 2), (potential, 1), (parts, 1), (parts, 2), (squares, 2)]

    def read_excesses(*found: Floats) -> RuleExcesses:
        mass, squared, energy = (float(part.sum()) for part in found[:3])
        local = sparse.csr_array(wanted.couplings @ embedding).toarray()
        couplings = local.reshape(len(form.bounds), -1, q).swapaxes(0, 1)  # (C, M, q)
        bounds, products = form.bounds, found[5][:, order].reshape(-1, q, q)
        means, scales = (np.einsum("cmq,cq->m", couplings, part) for part in found[3:5])
        squares = np.einsum("cmq,cqr,cmr->m", couplings, products, couplings)
        constant_part = float(bounds @ wanted.multipliers) - form.base_constant
        return RuleExcesses(
            mass=mass,
            squared_mass=squared,
            value=energy / wanted.beta + mass * constant_part,
            excesses=means - bounds * mass,
            scaled=scales - bounds * squared,
            squares=squares - 2 * bounds * scales + bounds**2 * squared,
        )

    return [Sum(sheet.weigh(vector, power)) for vector, power in weighed], read_excesses


def select_columns(
    database: Database, columns: Columns, form: LinearForm, layout: Layout, evidence: Evidence
) -> tuple[str, Sheet]:
    """Return a SELECT statement with the columns of each row that has positive weight, and their `Sheet`.

    The statement returns the cell, the weight and the other columns.
    """
    features = Features(replace(form.feature_map, features=layout.columns), columns)
    weighted = columns.weights is not None
    cell = constant(0)
    for name, count in zip(layout.cells.names, layout.cells.shape, strict=True):
        given, values = features.given[Cell("groups", name)], evidence.known_groups[name].values
        code = case(*((given.is_in([value]), constant(i)) for i, value in enumerate(values)), otherwise=None)
        cell = cell * constant(count) + code
    results = {"cell": cell.named("cell")}
    if weighted:
        results["weight"] = read("weight").named("weight")
    shared = []
    for d, feature in enumerate(layout.columns):
        product = features.compute(feature)
        shared.append(product if product.operator == "constant" else columns_of(f"column_{d}"))
        if product.operator != "constant":
            product = product.named("product")
            results[f"column_{d}"] = case((apply("abs", product) > UNDERFLOW, product), otherwise=0.0)
    printer = SqlPrinter(database.dialect, features)
    texts, source = printer.nest(results.values(), database.relation)
    selected = ", ".join(f"{text} AS {name}" for text, name in zip(texts, results, strict=True))
    chosen = " WHERE weight > 0" if weighted else ""
    return f"SELECT {selected} FROM {source}{chosen}", Sheet(form, layout, join(shared), weighted)


@dataclass(frozen=True, eq=False)
class SummedRows:
    """Rows of a database table, or of a sample in a temporary table, which implement `UnseenRows`."""

    database: Database
    select: str  # a statement that returns each row's cell, weight and columns
    sheet: Sheet
    n_rows: int
    mass: float
    watch: Watch = nullcontext
    table: str = ""  # the temporary table of a sample
    count: Callable[[], int] = int  # returns the number of passes so far
    last: dict[str, Any] = field(default_factory=dict, repr=False)  # the last tally and its pass

    @property
    def layout(self) -> Layout | None:
        """The layout of features as columns in cells; None if there is only one cell."""
        return self.sheet.layout if self.sheet.layout.cells.names else None

    @property
    def passes(self) -> int:
        return self.count()

    def observe(self, form: LinearForm, layout: Layout | None) -> SummedRows:
        raise OptionError(f"rules on observed columns cannot be computed in a database; {PULL}")

    def total(self, *passes: Pass) -> list[Any]:
        """Run passes over all rows, and return the result of each; the last `Tally` is cached."""
        wanted: Pass | None = passes[0] if len(passes) == 1 else None
        if not isinstance(wanted, TallyPass):
            return self._ask(passes)
        known: TallyPass | None = self.last.get("of")
        if (
            known is None
            or known.beta != wanted.beta
            or not np.array_equal(known.score_matrix, wanted.score_matrix)
            or (wanted.support is not None and known.support is None)
        ):
            self.last.update(of=wanted, found=self._ask(passes)[0])
        return [self.last["found"]]

    def _ask(self, passes: tuple[Pass, ...]) -> list[Any]:
        plans, one = [plan_pass(wanted, self.sheet) for wanted in passes], constant(1.0)
        sums = [Sum(one), Sum(self.sheet.weigh(one)), *(part for wanted, _ in plans for part in wanted)]
        texts, selects, keys = dict[Sum, list[str]](), [], []
        for i, only in enumerate(dict.fromkeys(part.only for part in sums)):
            # Write the sums over all rows, or over the rows that satisfy one condition.
            together = [part for part in sums if part.only is only]
            vectors = [
                self.sheet.cell,
                *(part.vector for part in together),
                *([] if only is None else [only]),
            ]
            printer = SqlPrinter(self.database.dialect)
            entries, source = printer.nest(vectors, f"({self.select}) AS bylaw_columns")
            if only is not None:
                source = f"{source} WHERE {entries.pop()}"
            terms = map(printer.sum_up, entries[1:])
            written = [[next(terms) for _ in range(part.vector.width)] for part in together]
            texts.update(zip(together, written, strict=True))
            keys.append(list(dict.fromkeys((only, text) for part in written for text in part)))
            # Return the sums as an array, since there may be more of them than a result can have columns.
            array = ", ".join(text for _, text in keys[i])
            selects.append(f"SELECT {i} AS part, cell, ARRAY[{array}] AS sums FROM {source} GROUP BY cell")
        with self.watch():
            rows = self.database.ask(" UNION ALL ".join(selects))
        n_cells = self.sheet.shape[0]
        found = {key: np.zeros(n_cells) for listed in keys for key in listed}
        for i, cell, values in rows:
            if cell is not None:  # otherwise, a group has a new value
                for key, value in zip(keys[i], values, strict=True):
                    found[key][int(cell)] = float(value or 0)
        columns = [[found[part.only, text] for text in texts[part]] for part in sums]
        count, mass, *answers = (np.array(part).reshape(len(part), n_cells).T for part in columns)
        if count.sum() != self.n_rows or not math.isclose(mass.sum(), self.mass, rel_tol=ROUNDING):
            raise EvidenceError(
                f"{self.database} was changed while its rows were read, so nothing was fitted; start again"
            )
        remaining = iter(answers)
        return [make(*(next(remaining) for _ in wanted)) for wanted, make in plans]

    @contextmanager
    def sampling(self) -> Iterator[Callable[[int], SummedRows]]:
        """Return a context with a function that samples about `rows` rows into a temporary table.

        The first table is large and needs a pass over all rows. Further samples are drawn from it.
        """
        made: dict[float, SummedRows] = {}

        def take(rows: int) -> SummedRows:
            if 1.0 not in made:
                with self.watch():
                    made[1.0] = self._store(min(SAMPLE_ROWS / self.n_rows, 1.0))
            whole = made[1.0]
            share = min(rows / whole.n_rows, 1.0)
            if share not in made:
                made[share] = whole._store(share)
            return made[share]

        try:
            yield take
        finally:
            for sample in made.values():
                sample.database.run_inside(f"DROP TABLE {sample.table}")

    def _store(self, share: float) -> SummedRows:
        """Store a random share of the rows in a temporary table."""
        name = f"bylaw_sample_{uuid.uuid4().hex[:12]}"
        rows = self.database.thin(self.select, share) if share < 1 else self.select
        self.database.run_inside(f"CREATE TEMPORARY TABLE {name} AS {rows}")
        mass = "SUM(weight)" if self.sheet.weighted else "COUNT(*)"
        ((n_rows, found),) = self.database.ask(f"SELECT COUNT(*), {mass} FROM {name}")
        sample = replace(self, select=f"SELECT * FROM {name}", table=name, watch=nullcontext, last={})
        return replace(sample, n_rows=int(n_rows), mass=float(found or 0))
