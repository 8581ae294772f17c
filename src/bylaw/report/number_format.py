"""Numbers and names as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from bylaw._base.typing import Value
from bylaw.language.expressions import Objective, Rate, Ratio, Rule, Worst
from bylaw.language.families import Family
from bylaw.language.parser import Statement
from bylaw.testing import TOLERANCE

Unit = Literal["share", "points", "plain"]  # a share of all, a difference of shares, any other number
_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_NOTHING = "\N{EM DASH}"
_LONGEST = 40  # characters of a name


def round_number(value: float, digits: int = 3) -> str:
    """A few significant digits, no exponent where it can be avoided, and a real minus sign."""
    if not math.isfinite(value):
        return _NOTHING if math.isnan(value) else "unlimited"
    if not value:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    if places > 6:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", _MINUS)
    text = f"{value:,.{min(places, 6)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", _MINUS) if text.strip("-0.,") else "0"


def _format_hundredths(value: float, fine: float = 0.995) -> str:
    """Of shares: one decimal, or two below one percent, or below what is `fine`."""
    value = 100 * value
    digits = 1 if abs(value) >= fine or value == 0 else 2
    if value and abs(value) < 0.005:
        return f"{_MINUS if value < 0 else ''}under{_SPACE}0.01"
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", _MINUS)


def _format_exactly(value: float) -> str:
    return f"{value:.12g}".replace("-", _MINUS)


def format_percent(share: float, exactly: bool = False) -> str:
    if not math.isfinite(share):
        return round_number(share)
    return f"{_format_exactly(100 * share) if exactly else _format_hundredths(share)}{_SPACE}%"


def format_points(difference: float, exactly: bool = False) -> str:
    """Percentage points."""
    if not math.isfinite(difference):
        return round_number(difference)
    text = _format_exactly(100 * difference) if exactly else _format_hundredths(difference, fine=10.0)
    return f"{text}{_SPACE}{'point' if text in ('1', _MINUS + '1') else 'points'}"


def format_amount(value: float, unit: Unit, exactly: bool = False) -> str:
    if unit == "plain":
        return _format_exactly(value) if exactly else round_number(value)
    return (format_percent if unit == "share" else format_points)(value, exactly)


def format_range(ends: Sequence[float], unit: Unit) -> str:
    """From one amount to another, as exactly as they are given; a single one by itself."""
    *low, high = (format_amount(end, unit, exactly=True) for end in ends)
    if not low:
        return high
    return f"{round_number(100 * ends[0]) if unit == 'points' else low[0]} to {high}"


def format_beside(value: float, limits: Sequence[float], unit: Unit) -> str:
    """An amount with as many digits as it takes to tell it from its limits, unless it is within the tolerance
    of a verdict."""
    near = [limit for limit in limits if TOLERANCE < abs(value - limit) < math.inf]
    if any(format_amount(value, unit) == format_amount(limit, unit) for limit in near):
        places = math.ceil(-math.log10(min(abs(value - limit) for limit in near)))
        return format_amount(round(value, places), unit, exactly=True)
    return format_amount(value, unit)


def format_signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", _MINUS) if math.isfinite(value) else _NOTHING


def format_count(number: float) -> str:
    return f"{number:,.0f}"


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """A number of things: "1 rule", "2 rules"."""
    return f"{format_count(number)}{_SPACE}{one if number == 1 else many or one + 's'}"


def count_of(part: int, whole: int, one: str) -> str:
    """One or more of several things: "2 of 3 rules", or "the only rule"."""
    return f"the only {one}" if whole == 1 else f"{format_count(part)} of {pluralize(whole, one)}"


def format_moment(moment: str | datetime) -> str:
    """A date and time, to the minute; text that is neither, as it is."""
    try:
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        return str(moment)
    return found.strftime("%Y-%m-%d %H:%M %Z").strip()


def find_unit(rate: Rate | Ratio) -> Unit:
    """How values of a rate are read; a ratio of shares, as a share."""
    if isinstance(rate, Ratio):
        return "share" if rate.numerator.is_probability and rate.denominator.is_probability else "plain"
    if not rate.is_probability:
        return "plain"
    return "share" if len(rate.terms) == 1 and rate.terms[0][1] == 1 else "points"


def find_objective_unit(rate: Objective) -> Unit:
    """Return how values of what is minimised are read: of a share and of one less a share, as a share."""
    if isinstance(rate, Worst):
        return "share" if rate.is_probability else "plain"
    if isinstance(rate, Rate) and rate.is_probability and len(rate.terms) == 1:
        return "share" if (rate.terms[0][1], rate.constant) in ((1.0, 0.0), (-1.0, 1.0)) else "points"
    return find_unit(rate)


def find_level_unit(statement: Statement) -> Unit:
    """How the level of a rule is read; a factor of a rate is a share of it."""
    if isinstance(statement, Family):
        return "share" if statement.definition.ratio else "points"
    side = statement.right if isinstance(statement, Rule) else statement.limit
    rate = statement.left if isinstance(statement, Rule) else statement.rate
    if side.terms:
        return "share" if side.is_probability and rate.is_probability else "plain"
    if not rate.is_probability:
        return "plain"
    return "share" if len(rate.terms) == 1 else "points"


def is_factor(statement: Statement) -> bool:
    """Whether the level of a rule multiplies a rate."""
    if isinstance(statement, Family):
        return statement.definition.ratio
    return bool((statement.right if isinstance(statement, Rule) else statement.limit).terms)


def quote(value: Value | str) -> str:
    """A name that somebody gave, in quotes, cut where it is long."""
    return f"“{shorten(value)}”"


def shorten(value: object, most: int = _LONGEST) -> str:
    """A name, cut where it is long."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def capitalize(words: str) -> str:
    """The first letter alone: names keep theirs."""
    return words[:1].upper() + words[1:]


def join_words(items: Sequence[str], word: str = "and") -> str:
    """a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"
