"""Frontiers and sensitivities as cards for notebooks, and frontiers as matplotlib plots."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw.errors import OptionError, install_extra
from bylaw.view import Card, Html, Point, Table, bar, code, draw_curve, draw_grid, join, tag

if TYPE_CHECKING:
    from bylaw.fitting._frontier import Frontier
    from bylaw.fitting._sensitivity import Sensitivity

_COST, _PRICE, _FAINT = "#1f4e79", "#c0504d", "#9aa5b1"


def make_frontier_card(frontier: Frontier) -> Card:
    """Return a card with the least cost at each level of one rule, as a curve, or of two rules, as a grid."""
    title = f"The least {frontier.problem.minimize} at each level of {' and '.join(frontier.swept)}"
    heads = [*frontier.swept, "cost", *(f"price of {name}" for name in frontier.swept), "status"]
    numbers = np.column_stack([frontier.levels, frontier.cost, frontier.prices]).tolist()
    rows = [
        [*(f"{value:.4g}" for value in line), status.name.lower()]
        for line, status in zip(numbers, frontier.status, strict=True)
    ]
    points = Table(heads, rows, range(len(heads) - 1), summary=f"{len(frontier)} points")
    chart = _draw_curve(frontier, title) if len(frontier.swept) == 1 else _draw_levels(frontier)
    return Card(title, [chart, points])


def _draw_curve(frontier: Frontier, title: str) -> Html:
    lines = sorted(zip(frontier.levels[:, 0].tolist(), frontier.cost.tolist(), strict=True))
    points = [
        Point(x, y, f"{x:g}: {'the rules conflict' if math.isnan(y) else f'{y:.4g}'}") for x, y in lines
    ]
    style = "display:grid;grid-template-columns:4.5em minmax(0,26em);column-gap:.5em"
    axis = tag("div", f"level in {frontier.swept[0]}", style="font-size:.85em;opacity:.85;margin-left:5em")
    return join([draw_curve(title, points, style=style), axis])


def _draw_levels(frontier: Frontier) -> Table:
    first, second = (list(dict.fromkeys(frontier.levels[:, i].tolist())) for i in range(2))
    costs = frontier.cost.reshape(len(first), len(second)).tolist()
    return draw_grid(f"{frontier.swept[0]}, by {frontier.swept[1]}", first, second, costs)


def make_sensitivity_card(sensitivity: Sensitivity) -> Card:
    """Return a card with the price of each rule, its range of validity and the cost of a step."""
    most = max((one.price for one in sensitivity.statements), default=0.0)
    words = {"conflict": "the rules conflict", "no tighter level": "not possible", "no level": ""}
    rows = [
        [
            code(one.statement),
            f"{one.price:.4g}",
            bar(one.price, most),
            "" if math.isnan(one.lower) else f"{one.lower:.4g} to {one.upper:.4g}",
            words.get(one.status, f"{one.cost_of_step:.4g}"),
        ]
        for one in sensitivity.statements
    ]
    heads = ("rule", "price", "", "right from level", f"{sensitivity.step:g} tighter costs")
    return Card(f"{sensitivity.minimize} is {sensitivity.cost:.4g}", [Table(heads, rows, numbers=(1,))])


def plot_frontier(frontier: Frontier, ax: Any = None) -> Any:
    """Plot cost and price over one level, or lines of equal cost over two; return the axes of the cost."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise OptionError(f"plots need matplotlib; install it with: {install_extra('plot')}") from None
    if len(frontier.swept) == 2:
        return _plot_two_levels(frontier, ax or plt.subplots(figsize=(6.4, 4.8), layout="constrained")[1])
    axes = [ax]
    if ax is None:
        size = {"figsize": (6.4, 6.0), "sharex": True, "height_ratios": (2, 1), "layout": "constrained"}
        axes = list(plt.subplots(2, 1, **size)[1])
    order = np.argsort(frontier.levels[:, 0])
    levels, cost, prices = frontier.levels[order, 0], frontier.cost[order], frontier.prices[order, 0]
    _plot_cost(axes[0], frontier, levels, cost, prices)
    if ax is None:
        axes[1].plot(levels, prices, color=_PRICE, linewidth=2)
        problem = frontier.problem
        in_points = problem.minimize.is_probability and not problem.arrays and problem.kind != "sets"
        unit = "points saved by\none more point" if in_points else "saving by\none more unit"
        axes[1].set_ylabel(unit, fontsize=11)
        axes[1].set_ylim(bottom=min(0.0, np.nanmin(prices)))
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25)
    axes[-1].set_xlabel(f"level in {frontier.swept[0]}", fontsize=11)
    return axes[0]


def _plot_cost(ax: Any, frontier: Frontier, levels: Any, cost: Any, prices: Any) -> None:
    ax.plot(levels, cost, color=_COST, linewidth=2, marker="o", markersize=3.5, label="least cost")
    solved = np.flatnonzero(np.isfinite(cost))
    if len(solved) > 2 and np.ptp(cost[solved]) > 0:
        # Draw up to four tangents between the ends; a price is the slope at its level.
        sign = 1.0 if cost[solved[0]] < cost[solved[-1]] else -1.0
        ends = 0.12 * float(np.ptp(levels[solved])) * np.array([-1.0, 1.0])
        for i in solved[np.linspace(0, len(solved) - 1, 6).round().astype(int)[1:-1]]:
            tangent = cost[i] + sign * prices[i] * ends
            ax.plot(levels[i] + ends, tangent, color=_PRICE, linewidth=1.2, linestyle="--")
        ax.plot([], [], color=_PRICE, linewidth=1.2, linestyle="--", label="tangents: slope = price")
    if len(conflicts := levels[np.isnan(cost)]):
        ax.plot(conflicts, conflicts * 0 + np.nanmin(cost), "x", color=_FAINT, label="rules conflict")
    ax.set_ylabel(str(frontier.problem.minimize), fontsize=11)
    ax.legend(frameon=False, fontsize=10)


def _plot_two_levels(frontier: Frontier, ax: Any) -> Any:
    (first, rows), (second, columns) = (np.unique(level, return_inverse=True) for level in frontier.levels.T)
    grid = np.full((len(second), len(first)), np.nan)
    grid[columns, rows] = frontier.cost
    if min(grid.shape) < 2:
        raise OptionError(
            "a plot of two rules must have at least two levels of each, got one; add levels to the sweep"
        )
    costs = np.ma.masked_invalid(grid)
    filled = ax.contourf(first, second, costs, levels=12, cmap="Blues")
    lines = ax.contour(first, second, costs, levels=filled.levels, colors="white", linewidths=0.8)
    ax.figure.colorbar(filled, ax=ax, label=str(frontier.problem.minimize))
    ax.clabel(lines, fontsize=9, colors="black")
    if len(conflicts := frontier.levels[np.isnan(frontier.cost)]):
        ax.plot(*conflicts.T, "x", color=_FAINT, label="rules conflict")
        ax.legend(frameon=True, fontsize=10)
    ax.set_xlabel(f"level in {frontier.swept[0]}", fontsize=11)
    ax.set_ylabel(f"level in {frontier.swept[1]}", fontsize=11)
    return ax
