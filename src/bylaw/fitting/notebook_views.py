"""Frontiers and sensitivities as HTML for a notebook."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bylaw._base.markup import Html
from bylaw._base.notebook import Cell, draw_bar, fold, make_card, make_code, make_table
from bylaw._base.notebook_charts import draw_curve, draw_grid

if TYPE_CHECKING:
    from bylaw.fitting.frontier import Frontier
    from bylaw.fitting.sensitivity import Sensitivity


def format_frontier(found: Frontier) -> str:
    """One rule: the least cost against its level; two: a grid of costs. The points are folded below."""
    title = f"The least {found.problem.minimize} at each level of {' and '.join(found.swept)}"
    drawn = _draw_frontier(found, title) if len(found.swept) == 1 else _draw_levels(found)
    heads = [*found.swept, "cost", *(f"price of {name}" for name in found.swept), "status"]
    rows = [
        [
            *(f"{value:.4g}" for value in (*found.levels[i], found.cost[i], *found.prices[i])),
            found.status[i].name.lower(),
        ]
        for i in range(len(found))
    ]
    table = make_table(heads, rows, numbers=range(len(heads) - 1))
    return make_card(title, drawn, fold(f"{len(found)} points", table))


def _draw_frontier(found: Frontier, title: str) -> Html:
    levels, known = found.levels[:, 0], np.isfinite(found.cost)
    points = list(zip(levels[known].tolist(), found.cost[known].tolist(), strict=True))
    return draw_curve(title, f"level in {found.swept[0]}", points, levels[~known].tolist())


def _draw_levels(found: Frontier) -> Html:
    first, second = (list(dict.fromkeys(found.levels[:, i].tolist())) for i in range(2))
    costs = found.cost.reshape(len(first), len(second)).tolist()
    return draw_grid(f"{found.swept[0]}, by {found.swept[1]}", first, second, costs)


def format_sensitivity(found: Sensitivity) -> str:
    """Each statement with its price, where that is right, and what one step tighter costs."""
    most = max((one.price for one in found.statements), default=0.0)
    rows: list[list[Cell]] = [
        [
            make_code(one.statement),
            f"{one.price:.4g}",
            draw_bar(one.price, most),
            "" if math.isnan(one.lower) else f"{one.lower:.4g} to {one.upper:.4g}",
            _describe_step(one.status, one.cost_of_step),
        ]
        for one in found.statements
    ]
    heads = ("rule", "price", "", "right from level", f"{found.step:g} tighter costs")
    return make_card(f"{found.minimize} is {found.cost:.4g}", make_table(heads, rows, numbers=(1,)))


def _describe_step(status: str, cost: float) -> str:
    words = {"conflict": "the rules conflict", "no tighter level": "not possible", "no level": ""}
    return words.get(status, f"{cost:.4g}")
