"""Names that nobody should have to meet, and what text that is shown must never hold."""

from __future__ import annotations

import re

import numpy as np

from bylaw import Evidence, Problem, demographic_parity, error, rejected, solve

SURROGATES = ["\ud800", "yes\udfff", "\udcff\ud800"]
DIRECTIONS = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)]
CONTROLS = ["\x00", "\x07", "\x08", "\x1b[2J", "\r", "\x7f", "\x85", "\x9b31m", "\u2028", "\u2029"]
UNSEEN = ["\u200b", "\u2060", "\ufeff", "\xad", "\U000e0041"]
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
REORDERED = "no\u202e\u2066ton\u2069\u2067"  # reads otherwise than it is


def hostile_rows(n=200, name=REORDERED):
    """Every name that a caller can choose reorders what follows it."""
    scores = np.random.default_rng(0).random(n)
    group = np.where(np.arange(n) % 2, f"F{name}", f"M{name}")
    return Evidence(
        np.column_stack([1 - scores, scores]),
        classes=[f"no{name}", f"yes{name}"],
        groups={f"sex{name}": group},
    )


def hostile_policy(n=200, name=REORDERED):
    rules = [demographic_parity(f"sex{name}", tol=0.05), rejected() <= 0.1]
    return solve(Problem(error(), rules, reject=f"refer{name}"), hostile_rows(n, name))
