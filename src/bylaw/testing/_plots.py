"""A monitor as a picture. It needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw.errors import OptionError, install_extra
from bylaw.testing._monitor_formatting import sort_rules

if TYPE_CHECKING:
    from bylaw.testing._monitor import Monitor
    from bylaw.testing._rule_watch import RuleWatch

_RATE, _BOUND, _ALARM, _FAINT = "#1f4e79", "#c0504d", "#b42318", "#9aa5b1"
_MOST = 4  # rules, unless they are named


def plot_monitor(monitor: Monitor, rules: Sequence[str] | None, min_cell: int) -> Any:
    """A column for each rule: its rate with the confidence sequence, and below it the evidence."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise OptionError(f"plots need matplotlib: {install_extra('plot')}") from None
    shown = _choose(monitor, rules, min_cell)
    figure, axes = plt.subplots(
        2,
        len(shown),
        figsize=(max(4.2 * len(shown), 5.6), 5.6),
        sharex="col",
        squeeze=False,
        height_ratios=(3, 2),
        layout="constrained",
    )
    for one, (rate, evidence) in zip(shown, axes.T, strict=True):
        _plot_rate(rate, one)
        _plot_evidence(evidence, one, monitor)
    axes[0, 0].legend(frameon=False, fontsize=9)
    axes[1, 0].legend(frameon=False, fontsize=9)
    return figure


def _choose(monitor: Monitor, rules: Sequence[str] | None, min_cell: int) -> list[RuleWatch]:
    shown = sort_rules(monitor, min_cell)
    seen = {one.rule: one for one in shown if one.history}
    if rules is None:
        rules = list(seen)[:_MOST]
    texts = [rules] if isinstance(rules, str) else [str(rule) for rule in rules]
    hidden = {one.rule for one in shown if one.hidden}
    if few := [text for text in texts if text in hidden]:
        raise OptionError(f"{few[0]!r} is not shown: it is about a group of fewer than {min_cell} rows")
    if unknown := [text for text in texts if text not in seen]:
        raise OptionError(f"there is no rule {unknown[0]!r} with rows; there are {list(seen)}")
    if not texts:
        raise OptionError("no rule has enough rows for a picture yet")
    return [seen[text] for text in texts]


def _plot_rate(ax: Any, one: RuleWatch) -> None:
    history = np.array(one.history)
    rows = history[:, 0]
    ax.fill_between(rows, history[:, 2], history[:, 3], color=_RATE, alpha=0.15, label="within, at all times")
    ax.plot(rows, history[:, 1], color=_RATE, linewidth=2, label="so far")
    ax.axhline(one.target, color=_BOUND, linestyle="--", linewidth=1.2, label="bound")
    ax.set_title(_wrap(one.rule), fontsize=9, loc="left")
    low, high = np.quantile(history[:, 2], 0.2), np.quantile(history[:, 3], 0.8)
    room = 0.1 * max(high - low, 1e-6)
    ax.set_ylim(min(low, one.target) - room, max(high, one.target) + room)
    ax.set_ylabel("rate", fontsize=10)
    _mark(ax, one)


def _plot_evidence(ax: Any, one: RuleWatch, monitor: Monitor) -> None:
    history = np.array(one.history)
    limits = monitor.alarm_limits.log_ever, monitor.alarm_limits.log_change
    for column, limit, colour, name in zip(
        (4, 5), limits, (_RATE, _FAINT), ("broken", "changed"), strict=True
    ):
        share = np.maximum(history[:, column] * np.log(10) / limit, 0.0)
        ax.plot(history[:, 0], share, color=colour, linewidth=1.8, label=name)
    ax.axhline(1.0, color=_ALARM, linestyle=":", linewidth=1.2, label="alarm")
    ax.set_ylim(bottom=0.0)
    ax.set_ylabel("evidence", fontsize=10)
    ax.set_xlabel("rows", fontsize=10)
    _mark(ax, one)


def _mark(ax: Any, one: RuleWatch) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    if one.since is not None:
        ax.axvline(one.since, color=_ALARM, linewidth=1.0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.tick_params(labelsize=9)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _wrap(text: str, width: int = 46) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))
