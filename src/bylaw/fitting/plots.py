"""Plots. The only file that imports matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw.errors import OptionError, install_extra

if TYPE_CHECKING:
    from bylaw.fitting.frontier import Frontier
    from bylaw.language.problem import Problem

_COST, _PRICE, _FAINT = "#1f4e79", "#c0504d", "#9aa5b1"
_TANGENTS = 4  # drawn along a frontier


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise OptionError(f"plots need matplotlib: {install_extra('plot')}") from None
    return plt


def plot_frontier(frontier: Frontier, ax: Any = None) -> Any:
    """One sweep: cost, and below it the price; two: lines of equal cost. Returns the axes of the cost."""
    plt = _pyplot()
    if len(frontier.swept) == 2:
        return _plot_two(
            frontier, plt.subplots(figsize=(6.4, 4.8), layout="constrained")[1] if ax is None else ax
        )
    price_ax = None
    if ax is None:
        _, (ax, price_ax) = plt.subplots(
            2, 1, figsize=(6.4, 6.0), sharex=True, height_ratios=(2, 1), layout="constrained"
        )
    order = np.argsort(frontier.levels[:, 0])
    levels, cost, price = frontier.levels[order, 0], frontier.cost[order], frontier.prices[order, 0]
    _plot_cost(ax, frontier, levels, cost, price)
    lowest = ax
    if price_ax is not None:
        price_ax.plot(levels, price, color=_PRICE, linewidth=2)
        price_ax.set_ylabel(_name_price(frontier.problem), fontsize=11)
        price_ax.set_ylim(bottom=min(0.0, np.nanmin(price)))
        _tidy(price_ax)
        lowest = price_ax
    lowest.set_xlabel(f"level in {frontier.swept[0]}", fontsize=11)
    return ax


def _name_price(problem: Problem) -> str:
    """The axis of prices: in points, where rates are shares."""
    shares = problem.minimize.is_probability and not problem.arrays and problem.kind != "sets"
    return "points saved by\none more point" if shares else "saving by\none more unit"


def _plot_cost(ax: Any, frontier: Frontier, levels: Any, cost: Any, price: Any) -> None:
    ax.plot(levels, cost, color=_COST, linewidth=2, marker="o", markersize=3.5, label="least cost")
    good = np.flatnonzero(np.isfinite(cost))
    drop = float(np.nanmax(cost) - np.nanmin(cost))
    if len(good) > 2 and drop > 0:
        looser = -1.0 if cost[good[0]] < cost[good[-1]] else 1.0
        reach = 0.12 * float(levels[good[-1]] - levels[good[0]])
        for i in good[np.linspace(0, len(good) - 1, _TANGENTS + 2).round().astype(int)[1:-1]]:
            ends = np.array([-reach, reach])
            line = cost[i] - looser * price[i] * ends
            ax.plot(levels[i] + ends, line, color=_PRICE, linewidth=1.2, linestyle="--")
        ax.plot([], [], color=_PRICE, linewidth=1.2, linestyle="--", label="tangents: slope = price")
    conflicts = levels[~np.isfinite(cost)]
    if len(conflicts):
        ax.plot(
            conflicts, np.full(len(conflicts), np.nanmin(cost)), "x", color=_FAINT, label="rules conflict"
        )
    ax.set_ylabel(str(frontier.problem.minimize), fontsize=11)
    ax.legend(frameon=False, fontsize=10)
    _tidy(ax)


def _plot_two(frontier: Frontier, ax: Any) -> Any:
    """Lines of equal cost over both levels; conflicts are crosses."""
    (first, rows), (second, columns) = (np.unique(level, return_inverse=True) for level in frontier.levels.T)
    grid = np.full((len(first), len(second)), np.nan)
    grid[rows, columns] = frontier.cost
    if min(grid.shape) < 2:
        raise OptionError("a plot of two sweeps needs at least two levels of each")
    filled = ax.contourf(first, second, np.ma.masked_invalid(grid.T), levels=12, cmap="Blues")
    lines = ax.contour(
        first, second, np.ma.masked_invalid(grid.T), levels=filled.levels, colors="white", linewidths=0.8
    )
    ax.figure.colorbar(filled, ax=ax, label=str(frontier.problem.minimize))
    ax.clabel(lines, fontsize=9, colors="black")
    conflicts = frontier.levels[~np.isfinite(frontier.cost)]
    if len(conflicts):
        ax.plot(*conflicts.T, "x", color=_FAINT, label="rules conflict")
        ax.legend(frameon=True, fontsize=10)
    ax.set_xlabel(f"level in {frontier.swept[0]}", fontsize=11)
    ax.set_ylabel(f"level in {frontier.swept[1]}", fontsize=11)
    return ax


def _tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.tick_params(labelsize=10)
