"""Formatting of numbers, counts, dates and names for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

Unit = Literal["share", "points", "plain"]
"""The unit of a number: a share in percent, a difference in percentage points, or a plain number."""

_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_MISSING = "\N{EM DASH}"
_ROUNDING = 1e-6  # smaller differences count as zero, as in verdicts


def round_number(value: float, digits: int = 3) -> str:
    """Format a number with a few significant digits, without an exponent if possible."""
    if not math.isfinite(value):
        return _MISSING if math.isnan(value) else "unlimited"
    if not value:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    if places > 6:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", _MINUS)
    text = f"{value:,.{places}f}"
    return _trim(text) if text.strip("-0.,") else "0"


def _trim(text: str) -> str:
    """Remove trailing zeros, and use a real minus sign."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text.replace("-", _MINUS)


def format_amount(value: float, unit: Unit, exactly: bool = False) -> str:
    """Format a number in its unit, either rounded or with all digits of a number in a rule."""
    if not math.isfinite(value) or (unit == "plain" and not exactly):
        return round_number(value)
    value = value if unit == "plain" else 100 * value
    if exactly:
        text = f"{value:.12g}".replace("-", _MINUS)
    elif 0 < abs(value) < 0.005:
        text = f"{_MINUS if value < 0 else ''}under{_SPACE}0.01"
    else:  # one decimal, or two for small percentages and for differences below ten points
        text = _trim(f"{value:.{1 if abs(value) >= (0.995 if unit == 'share' else 10.0) else 2}f}")
    if unit == "plain":
        return text
    sign = "%" if unit == "share" else "point" if text in ("1", f"{_MINUS}1") else "points"
    return f"{text}{_SPACE}{sign}"


def format_percent(share: float) -> str:
    """Format a share in percent."""
    return format_amount(share, "share")


def format_points(difference: float) -> str:
    """Format a difference of shares in percentage points."""
    return format_amount(difference, "points")


def format_range(ends: Sequence[float], unit: Unit) -> str:
    """Format one exact amount, or a range of two with the unit once, such as "2 to 5 points"."""
    *low, high = (format_amount(end, unit, exactly=True) for end in ends)
    if not low:
        return high
    return f"{round_number(100 * ends[0]) if unit == 'points' else low[0]} to {high}"


def format_beside(value: float, limits: Sequence[float], unit: Unit) -> str:
    """Format an amount with as many digits as needed to show that it differs from its limits."""
    near = [limit for limit in limits if _ROUNDING < abs(value - limit) < math.inf]
    if any(format_amount(value, unit) == format_amount(limit, unit) for limit in near):
        places = math.ceil(-math.log10(min(abs(value - limit) for limit in near)))
        return format_amount(round(value, places), unit, exactly=True)
    return format_amount(value, unit)


def format_bounds(lower: float, upper: float, write: Callable[[float], str], between: str = " to ") -> str:
    """Format an interval; ends may be infinite, and the text is empty if both are."""
    if math.isfinite(lower) and math.isfinite(upper):
        return f"{write(lower)}{between}{write(upper)}"
    if math.isfinite(lower):
        return f"at least {write(lower)}"
    return f"at most {write(upper)}" if math.isfinite(upper) else ""


def format_signed(value: float) -> str:
    """Format a number of standard errors with its sign."""
    return f"{value:+.1f}".replace("-", _MINUS) if math.isfinite(value) else _MISSING


def format_count(number: float) -> str:
    """Format a whole number with thousands separators."""
    return f"{number:,.0f}"


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """Format a number of things, such as "1 rule" or "2 rules"."""
    return f"{format_count(number)}{_SPACE}{one if number == 1 else many or one + 's'}"


def count_of(part: int, total: int, one: str) -> str:
    """Format a part of a number of things, such as "2 of 3 rules" or "the only rule"."""
    return f"the only {one}" if total == 1 else f"{format_count(part)} of {pluralize(total, one)}"


def format_moment(moment: str | datetime) -> str:
    """Format a date and time to the minute; return other text unchanged."""
    try:
        moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        return str(moment)
    return moment.strftime("%Y-%m-%d %H:%M %Z").strip()


def shorten(value: object, most: int = 40) -> str:
    """Return a name, cut to at most `most` characters."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def quote(value: object) -> str:
    """Return a name in quotation marks, shortened if it is long."""
    return f"“{shorten(value)}”"


def capitalize(words: str) -> str:
    """Return text with its first letter in upper case and the others unchanged."""
    return words[:1].upper() + words[1:]


def join_words(items: Sequence[str], word: str = "and") -> str:
    """Join words with commas and a final `word`, as in "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"
