"""From a law to decisions: draws that are seeded, keyed by id, balanced over a batch, or none."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw.columns import as_vector
from bylaw.decisions import Floats
from bylaw.errors import EvidenceError

_HEX_DIGITS = 13  # 52 bits of the hash: exact as a float, and easy to say in SQL
_PER_DIGEST = 4  # such numbers in its 64 hex digits


def draw(law: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """The action each uniform number falls on, (n_rows,), for a law (n_actions, n_rows)."""
    heights = np.cumsum(law, axis=0)
    # Below the last step, whatever it rounds to, so that an impossible action is never drawn.
    return (heights <= uniforms * heights[-1]).sum(axis=0)


def keyed_uniforms(ids: Any, key: str, n_rows: int, count: int = 1, suffix: str = "/{}") -> Iterator[Floats]:
    """`count` columns of uniform numbers per id, each (n_rows,), the same on any machine.

    Column i comes from the SHA-256 of "key/id" and the suffix, in which {} stands for i // 4: its
    13 hex digits from place 13 (i % 4) on, as a fraction.
    """
    texts = _id_texts(as_vector(ids, "ids"))
    if len(texts) != n_rows:
        raise EvidenceError(f"ids has {len(texts)} rows, but the evidence has {n_rows}")
    prefix = hashlib.sha256(f"{key}/".encode())
    for first in range(0, count, _PER_DIGEST):
        ending = suffix.format(first // _PER_DIGEST).encode()
        digests = [_hex_digest(prefix, text.encode() + ending) for text in texts]
        for place in range(0, _HEX_DIGITS * min(_PER_DIGEST, count - first), _HEX_DIGITS):
            digits = slice(place, place + _HEX_DIGITS)
            yield np.array([int(digest[digits], 16) for digest in digests]) / 16.0**_HEX_DIGITS


def _hex_digest(prefix: Any, message: bytes) -> str:
    digest = prefix.copy()
    digest.update(message)
    return digest.hexdigest()


def _id_texts(ids: NDArray[Any]) -> list[str]:
    texts = [str(v) for v in ids.tolist() if isinstance(v, str | int) and not isinstance(v, bool)]
    if len(texts) != len(ids):
        raise EvidenceError("ids must be strings or whole numbers, so that they have one spelling everywhere")
    return texts


def balanced(law: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """One action per row, (n_rows,), each with its own probability, while every action's count
    stays within a few units of its expectation.

    Two rows that are both undecided between actions a and b exchange probability until one of
    them is decided; the exchange is fair, so no row's law changes, and exact, so no count does.
    """
    law = law.copy()
    for a, b in itertools.combinations(range(len(law)), 2):
        while True:
            undecided = np.flatnonzero((law[a] > 0) & (law[b] > 0))
            if len(undecided) < 2:
                break
            half = len(undecided) // 2
            _exchange(law, a, b, undecided[:half], undecided[half : 2 * half], rng)
    return draw(law, rng.random(law.shape[1]))


def _exchange(
    law: Floats, a: int, b: int, i: NDArray[np.int64], j: NDArray[np.int64], rng: np.random.Generator
) -> None:
    up = np.minimum(law[b, i], law[a, j])  # what rows i can move from b to a
    down = np.minimum(law[a, i], law[b, j])
    move = np.where(rng.random(len(i)) * (up + down) < down, up, -down)
    law[a, i] += move
    law[b, i] -= move
    law[a, j] -= move
    law[b, j] += move
