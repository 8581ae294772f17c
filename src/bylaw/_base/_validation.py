"""Checks of arguments, and escapes of invisible text.

A check returns the value as it is used, or raises an error that names the argument.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from bylaw.errors import BylawError, OptionError, RuleError

if TYPE_CHECKING:
    from bylaw._base._numeric import Value

CONFIDENCE = 0.95  # default confidence of bounds and certificates
MIN_CELL = 10  # default least number of rows of a group whose rates and counts are shown
# Invisible characters: controls (C0, delete, C1), line separators, marks and overrides of the direction of
# writing, characters without width, tags, and lone surrogates. Joiners (U+200C, U+200D) are not included,
# because languages and emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def _read_number(value: Any) -> float:
    """Return a real number as a float, infinite if it is too large, or nan for other values."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_number(value: Any, what: str, error: type[BylawError] = OptionError) -> float:
    """Return the value as a finite float, or raise an error."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise error(f"{what} must be a number, got {value!r}")
    number = _read_number(value) + 0.0  # -0.0 becomes 0.0
    if not math.isfinite(number):
        raise error(f"{what} must be finite, got {number}")
    return number


def check_nonnegative(value: Any, what: str, error: type[BylawError] = OptionError) -> float:
    """Return the value as a float that is at least zero, or raise an error."""
    number = check_number(value, what, error)
    if number < 0:
        raise error(f"{what} must not be negative, got {value}")
    return number


def check_margin(value: Any) -> float:
    """Return a margin, the number of standard errors to keep from a bound, or raise an error."""
    number = _read_number(value)
    if 0 <= number < math.inf:
        return number
    raise OptionError(f"margin must be a number of standard errors, zero or more, got {value!r}")


def check_positive(value: Any, what: str) -> float:
    """Return the value as a finite float above zero, or raise an error."""
    number = _read_number(value)
    if 0 < number < math.inf:
        return number
    raise OptionError(f"{what} must be a positive number, got {value!r}")


def check_fraction(value: Any, what: str, example: float = 0.95) -> float:
    """Return the value as a float strictly between zero and one, or raise an error."""
    number = _read_number(value)
    if 0 < number < 1:
        return number
    raise OptionError(f"{what} must be a number between 0 and 1, such as {example}, got {value!r}")


def check_whole(value: Any, what: str) -> int:
    """Return the value as an int, or raise an error."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise OptionError(f"{what} must be a whole number, got {value!r}")
    return int(value)


def check_min_cell(value: Any) -> int:
    """Return the least number of rows of a shown cell, or raise an error; 0 and 1 show all cells."""
    if check_whole(value, "min_cell") < 0:
        raise OptionError(f"min_cell must be 0 or more, got {value}; 0 shows all cells")
    return int(value)


def check_choice(value: Any, what: str, choices: Collection[Any]) -> Any:
    """Return the value if it equals a choice and has its type (1 is not True), or raise an error."""
    if any(type(choice) is type(value) and choice == value for choice in choices):
        return value
    raise OptionError(f"{what} must be one of {list(choices)}, got {value!r}")


def as_scalar(value: Any, what: str, error: type[BylawError] = RuleError) -> Value:
    """Return a label or group value as a plain Python scalar, for text and JSON, or raise an error."""
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
    """Return the name of a column as plain, non-empty text, or raise an error."""
    if not isinstance(name, str) or not name:
        raise error(f"{what} must be text that is not empty, got {name!r}")
    return check_text(str.__str__(name), what, error)


def check_text(text: str, what: str, error: type[BylawError] = OptionError) -> str:
    """Return text that files and databases can store, without lone surrogates, or raise an error."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise error(f"{what} must be valid Unicode without lone surrogates, got {text!r}") from None
    return text


def check_key(key: Any) -> str:
    """Return the secret key of random draws by id, or raise an error if it is empty or not text."""
    if not isinstance(key, str):
        raise OptionError(
            f"key must be text, got a value of type {type(key).__name__}"
        )  # a secret is not shown
    if not key:
        raise OptionError("key must not be empty; check that the secret is set")
    try:
        key.encode()
    except UnicodeEncodeError:  # without the text, which is a secret
        raise OptionError("key must be valid Unicode without lone surrogates") from None
    return str.__str__(key)


def make_visible(text: str, keep: str = "") -> str:
    """Return the text with escapes such as \u202e in place of invisible characters, except those in `keep`.

    >>> print(make_visible("yes\u202eon"))
    yes\u202eon
    """

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        if found[0] in keep:
            return found[0]
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return _HIDDEN.sub(escape, text)


def escape_json(text: str) -> str:
    """Return equivalent JSON in which the invisible characters in strings are written as escapes."""

    def escape(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))

    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else escape(found), text)
