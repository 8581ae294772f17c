"""What every door checks or hides: scalars, text as it is shown, and cells that are too small to be shown.

A check returns the value as it is used, or raises an error that names it.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from bylaw._base._typing import Mask, Value
from bylaw.errors import BylawError, OptionError, RuleError

CONFIDENCE = 0.95  # of bounds and certificates, unless stated
MIN_CELL = 10  # rows: rates and counts of smaller groups are not shown, unless a caller asks for them
# Controls (C0, delete, C1), separators of lines, marks and overrides of the direction of writing, letters
# without width, tags, halves of characters. Joiners (U+200C, U+200D) stay: languages and emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


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


def make_visible(text: str, keep: str = "") -> str:
    r"""Return the text with escapes such as \u202e in place of what is invisible, except for some characters.

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
    """Return the same value as JSON: within its texts, what is invisible is written as an escape."""

    def escape(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))

    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else escape(found), text)


def choose_shown(counts: Sequence[float], min_cell: int = MIN_CELL) -> Mask:
    """Return which cells of one partition may be shown, (n_cells,), from how many rows each has.

    Cells with fewer than `min_cell` rows are hidden. The total less the cells that are shown is the sum of
    those that are hidden: where that is one cell, or has fewer than `min_cell` rows, the smallest of the
    others are hidden, too (secondary suppression). Cells without rows stay.

    Examples
    --------
    >>> choose_shown([1, 40, 200]).tolist()
    [False, False, True]
    >>> choose_shown([1, 40, 200], min_cell=0).tolist()
    [True, True, True]
    """
    sizes = np.asarray(counts, dtype=np.float64)
    # Expected numbers of rows are sums, with rounding errors.
    hidden = (sizes > 0) & (sizes < min_cell - 1e-9)
    for place in np.argsort(sizes, kind="stable"):
        if not hidden.any() or (hidden.sum() > 1 and sizes[hidden].sum() >= min_cell):
            break
        hidden[place] |= sizes[place] > 0
    return ~hidden
