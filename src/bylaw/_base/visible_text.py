"""Names as they are shown: what would steer a terminal or reorder a line is written as an escape."""

from __future__ import annotations

import re

# Controls (C0, delete, C1), separators of lines, marks and overrides of the direction of writing, letters
# without width, tags, halves of characters. Joiners (U+200C, U+200D) stay: languages and emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


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
