"""Checks of scalars, each once: the value as it is used, or an error that names it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection
from typing import Any

from bylaw._base.typing import Value
from bylaw.errors import BylawError, OptionError, RuleError

CONFIDENCE = 0.95  # of bounds and certificates, unless stated
MIN_CELL = 10  # rows: rates and counts of smaller groups are not shown, unless a caller asks for them


def _read_number(value: Any) -> float:
    """Return a number as a float, infinite if it is too large for one, or nan for other things."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_number(value: Any, what: str, error: type[BylawError] = OptionError) -> float:
    """Return a finite float."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise error(f"{what} must be a number, not {value!r}")
    number = _read_number(value) + 0.0  # -0.0 becomes 0.0
    if not math.isfinite(number):
        raise error(f"{what} must be finite, not {number}")
    return number


def check_nonnegative(value: Any, what: str, error: type[BylawError] = OptionError) -> float:
    """Return a number that is zero or more."""
    number = check_number(value, what, error)
    if number < 0:
        raise error(f"{what} must not be negative, got {value}")
    return number


def check_margin(value: Any) -> float:
    """Return a margin: standard errors to keep from a bound."""
    number = _read_number(value)
    if 0 <= number < math.inf:
        return number
    raise OptionError(f"margin must be a number of standard errors, zero or more, not {value!r}")


def check_positive(value: Any, what: str) -> float:
    """Return a number that is more than zero."""
    number = _read_number(value)
    if 0 < number < math.inf:
        return number
    raise OptionError(f"{what} must be a positive number, not {value!r}")


def check_fraction(value: Any, what: str, example: float = 0.95) -> float:
    """Return a number strictly between zero and one."""
    number = _read_number(value)
    if 0 < number < 1:
        return number
    raise OptionError(f"{what} must be a number between 0 and 1, such as {example}, not {value!r}")


def check_whole(value: Any, what: str) -> int:
    """Return a whole number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise OptionError(f"{what} must be a whole number, not {value!r}")
    return int(value)


def check_min_cell(value: Any) -> int:
    """Return the number of rows from which cells are shown; 0 and 1 show all."""
    if check_whole(value, "min_cell") < 0:
        raise OptionError(f"min_cell must be 0 or more, got {value}; 0 shows all cells")
    return int(value)


def check_choice(value: Any, what: str, choices: Collection[Any]) -> Any:
    """Return one of a few values, and of the type of one: 1 is not True."""
    if any(type(choice) is type(value) and choice == value for choice in choices):
        return value
    raise OptionError(f"{what} must be one of {list(choices)}, not {value!r}")


def as_scalar(value: Any, what: str, error: type[BylawError] = RuleError) -> Value:
    """Return a label or group value as a plain Python scalar, so that text and JSON can carry it."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, str):
        return check_text(str.__str__(value), what, error)  # members of enumerations become plain, too
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value if isinstance(value, bool) else int(value) if isinstance(value, int) else float(value)
    raise error(
        f"{what} {value!r} must be a string, a bool or a finite number; convert it, for instance with str()"
    )


def as_name(name: Any, what: str, error: type[BylawError] = RuleError) -> str:
    """Return the name of a column, as plain text that is not empty."""
    if not isinstance(name, str) or not name:
        raise error(f"{what} must be text that is not empty, not {name!r}")
    return check_text(str.__str__(name), what, error)


def check_text(text: str, what: str, error: type[BylawError] = OptionError) -> str:
    """Return text that files and databases can hold: no lone surrogates, which are halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise error(f"{what} {text!r} has half of a character (a lone surrogate); correct it") from None
    return text


def check_key(key: Any) -> str:
    """Return the key of draws by id; an empty key would be a secret that was never set."""
    if not isinstance(key, str):
        raise OptionError(f"key must be text, not of type {type(key).__name__}")  # a secret is not shown
    if not key:
        raise OptionError("key is empty: was the secret never set?")
    try:
        key.encode()
    except UnicodeEncodeError:  # without the text, which is a secret
        raise OptionError("key has half of a character (a lone surrogate)") from None
    return str.__str__(key)
