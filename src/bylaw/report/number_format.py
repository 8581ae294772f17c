"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from bylaw._base.typing import Value
from bylaw.language.expressions import DEFINITIONS, Rate

Unit = Literal["share", "points", "plain"]  # a share of all, a difference of shares, any other number
_SPACE = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
_NOTHING = "\N{EM DASH}"
_LONGEST = 40  # characters of a name
_NEAR = 1e-6  # no difference worth a digit


def rounded(value: float, digits: int = 3) -> str:
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


def _hundredths(value: float, fine: float = 0.995) -> str:
    """Of shares: one decimal, or two below one percent, or below what is `fine`."""
    value = 100 * value
    digits = 1 if abs(value) >= fine or value == 0 else 2
    if value and abs(value) < 0.005:
        return f"{_MINUS if value < 0 else ''}under{_SPACE}0.01"
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", _MINUS)


def _exactly(value: float) -> str:
    return f"{value:.12g}".replace("-", _MINUS)


def percent(share: float, exactly: bool = False) -> str:
    if not math.isfinite(share):
        return rounded(share)
    return f"{_exactly(100 * share) if exactly else _hundredths(share)}{_SPACE}%"


def points(difference: float, exactly: bool = False) -> str:
    """Percentage points."""
    if not math.isfinite(difference):
        return rounded(difference)
    text = _exactly(100 * difference) if exactly else _hundredths(difference, fine=10.0)
    return f"{text}{_SPACE}{'point' if text in ('1', _MINUS + '1') else 'points'}"


def amount(value: float, unit: Unit, exactly: bool = False) -> str:
    if unit == "plain":
        return _exactly(value) if exactly else rounded(value)
    return (percent if unit == "share" else points)(value, exactly)


def beside(value: float, limits: Sequence[float], unit: Unit) -> str:
    """An amount with as many digits as it takes to tell it from its limits, unless it is at one."""
    near = [limit for limit in limits if _NEAR < abs(value - limit) < math.inf]
    if any(amount(value, unit) == amount(limit, unit) for limit in near):
        places = math.ceil(-math.log10(min(abs(value - limit) for limit in near)))
        return amount(round(value, places), unit, exactly=True)
    return amount(value, unit)


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", _MINUS) if math.isfinite(value) else _NOTHING


def count(number: float) -> str:
    return f"{number:,.0f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{count(number)}{_SPACE}{one if number == 1 else many or one + 's'}"


def unit_of(rate: Rate) -> Unit:
    """How values of a rate are read."""
    if not all(DEFINITIONS[atom.name].probability for atom, _ in rate.terms):
        return "plain"
    return "share" if len(rate.terms) == 1 and rate.terms[0][1] == 1 else "points"


def quoted(value: Value | str) -> str:
    """A name that somebody gave, cut where it is long."""
    text = str(value)
    return f"“{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}”"


def short(value: object, most: int = _LONGEST) -> str:
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(items: Sequence[str], word: str = "and") -> str:
    """a, b and c."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"
