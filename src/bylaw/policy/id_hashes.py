"""The SHA-256 of ids, by hashlib, or compiled where there are very many and numba is installed."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw.errors import EvidenceError

Words = NDArray[np.uint64]

_MOST_DIGITS = 18  # of a whole number that is spelled with many others at a time
_MANY = 2**21  # ids hashed so far; about as many take hashlib as long as it takes to load the kernel


@dataclass
class _Workload:
    """How many ids this process has hashed. Both ways give the same bits, so it decides on speed alone."""

    ids: int = 0


_done = _Workload()


def hash_ids(ids: NDArray[Any], prefix: str, ending: str) -> Words:
    """The SHA-256 of prefix, id and ending, (n_rows, 4) words of 64 bits, for ids (n_rows,)."""
    _done.ids += len(ids)
    kernel = _load_kernel() if _done.ids > _MANY else None
    try:
        if kernel is None:
            return _hash_each(hashlib.sha256(prefix.encode()), _spell(ids, ending))
        return _hash_together(kernel, ids, prefix, ending)
    except UnicodeEncodeError as problem:
        raise EvidenceError(f"the id {problem.object!r} has half of a character (a lone surrogate)") from None


@functools.cache
def _load_kernel() -> Any:
    """None without numba, or where it finds no folder for what it compiles."""
    try:
        from bylaw.policy.sha256_kernel import hash_texts
    except (ImportError, RuntimeError):
        return None
    return hash_texts


def _hash_each(prefix: Any, messages: list[bytes]) -> Words:
    """The SHA-256 of each message after the prefix, (n_rows, 4)."""
    copy = prefix.copy
    digests = b"".join([hashed.digest() for text in messages if (hashed := copy()).update(text) is None])
    return np.frombuffer(digests, dtype=">u8").reshape(-1, 4).astype(np.uint64)


def _hash_together(kernel: Any, ids: NDArray[Any], prefix: str, ending: str) -> Words:
    if _has_plain_digits(ids):
        digits, lengths = _spell_digits(ids)
        letters, starts = digits.ravel(), np.arange(len(ids)) * digits.shape[1]
    else:
        texts = _spell(ids, "")
        letters = np.frombuffer(b"".join(texts), np.uint8)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        starts = np.cumsum(lengths) - lengths
    before, after = (np.frombuffer(text.encode(), np.uint8) for text in (prefix, ending))
    # A constant text is read-only, and the kernel is compiled for arrays that are.
    letters.flags.writeable = False
    return kernel(before, letters, starts, lengths, after)


def _spell(ids: NDArray[Any], ending: str) -> list[bytes]:
    """The text of each id and the ending, encoded."""
    if not _has_plain_digits(ids):
        return list(map(str.encode, [f"{name}{ending}" for name in ids.tolist()]))
    digits, _ = _spell_digits(ids)
    # Bytes of zero at the end are no text.
    spelled = digits.view(f"S{digits.shape[1]}").ravel().tolist()
    return [text + ending.encode() for text in spelled] if ending else spelled


def _has_plain_digits(ids: NDArray[Any]) -> bool:
    return bool(ids.dtype.kind in "iu" and len(ids) and ids.min() >= 0 and ids.max() < 10**_MOST_DIGITS)


def _spell_digits(ids: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The decimal digits of whole numbers, (n_rows, width), from the left and with bytes of zero after those
    that are shorter; and how many there are, (n_rows,)."""
    numbers = ids.astype(np.uint64)
    width = len(str(int(numbers.max())))
    powers = 10 ** np.arange(width, dtype=np.uint64)
    lengths = np.ones(len(ids), np.int64)
    for power in powers[1:]:
        lengths += numbers >= power
    rest = numbers * powers[width - lengths]
    digits = np.empty((len(ids), width), np.uint8)
    for place in range(width - 1, -1, -1):
        tenth = rest // np.uint64(10)
        digits[:, place] = rest - np.uint64(10) * tenth
        rest = tenth
    digits += ord("0")
    if lengths.min() < width:
        digits[np.arange(width) >= lengths[:, None]] = 0
    return digits, lengths
