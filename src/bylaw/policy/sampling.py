"""From probabilities to decisions: draws that are seeded, keyed by id, balanced over a batch, or none."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.numeric import HEX_DIGITS, PER_DIGEST
from bylaw._base.typing import Floats
from bylaw.errors import EvidenceError
from bylaw.rows.arrays import as_vector

_BITS = 4 * HEX_DIGITS


def sample_actions(probabilities: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """Return the action that each uniform number falls on, for probabilities (n_actions, n_rows)."""
    heights = np.cumsum(probabilities, axis=0)
    # Below the last step, whatever it rounds to, so that an impossible action is never drawn.
    return (heights <= uniforms * heights[-1]).sum(axis=0)


def sample_by_id(
    parts: Sequence[Floats], ids: Any, key: str, suffix: str = "/{}"
) -> Iterator[NDArray[np.int64]]:
    """Return, for each part (n_actions, n_rows) of probabilities, the actions sampled by id, (n_rows,).

    Draw i takes the uniform number of column i in `uniforms_by_id`. Ids are hashed only for rows with more
    than one possible action.
    """
    checked = _checked_ids(ids, parts[0].shape[1])
    for first in range(0, len(parts), PER_DIGEST):
        part = parts[first : first + PER_DIGEST]
        undecided = np.any([_count_possible(probabilities) > 1 for probabilities in part], axis=0)
        rows = slice(None) if undecided.all() else np.flatnonzero(undecided)
        columns = _uniforms(checked[rows], key, suffix.format(first // PER_DIGEST), len(part))
        for probabilities, uniforms in zip(part, columns, strict=True):
            drawn = sample_actions(probabilities[:, rows], uniforms)
            if not isinstance(rows, slice):
                decided = probabilities.argmax(axis=0)
                decided[rows] = drawn
                drawn = decided
            yield drawn


def _count_possible(probabilities: Floats) -> NDArray[np.int32]:
    """Count the possible actions on each row, (n_rows,)."""
    count = np.zeros(probabilities.shape[1], np.int32)
    for action in probabilities:  # a sum along the first axis of truth values is far slower
        count += action > 0
    return count


def uniforms_by_id(ids: Any, key: str, n_rows: int, count: int = 1, suffix: str = "/{}") -> Iterator[Floats]:
    """`count` columns of uniform numbers per id, each (n_rows,), the same on any machine.

    Column i comes from the SHA-256 of "key/id" and the suffix, in which {} stands for i // 4: its
    13 hex digits from place 13 (i % 4) on, as a fraction.
    """
    checked = _checked_ids(ids, n_rows)
    for first in range(0, count, PER_DIGEST):
        ending = suffix.format(first // PER_DIGEST)
        yield from _uniforms(checked, key, ending, min(PER_DIGEST, count - first))


def hash_ids(ids: NDArray[Any], prefix: str, ending: str) -> NDArray[np.uint64]:
    """Return the SHA-256 of prefix, id and ending, (n_rows, 4) words of 64 bits, for ids (n_rows,)."""
    copy = hashlib.sha256(prefix.encode()).copy  # the prefix is hashed once
    try:
        texts = [f"{name}{ending}".encode() for name in ids.tolist()]
    except UnicodeEncodeError as problem:
        raise EvidenceError(f"the id {problem.object!r} has half of a character (a lone surrogate)") from None
    digests = b"".join([hashed.digest() for text in texts if (hashed := copy()).update(text) is None])
    return np.frombuffer(digests, dtype=">u8").reshape(-1, 4).astype(np.uint64)


def _uniforms(ids: NDArray[Any], key: str, ending: str, count: int) -> Iterator[Floats]:
    """Return the columns of one digest."""
    words = hash_ids(ids, f"{key}/", ending)
    return (_bits(words, _BITS * place) / 2.0**_BITS for place in range(count))


def _checked_ids(ids: Any, n_rows: int) -> NDArray[Any]:
    vector = as_vector(ids, "ids")
    if len(vector) != n_rows:
        raise EvidenceError(f"ids has {len(vector)} rows, but the evidence has {n_rows}")
    kinds = set() if vector.dtype.kind in "iuU" else set(map(type, vector.tolist()))
    if not all(issubclass(kind, str | int) and kind is not bool for kind in kinds):
        raise EvidenceError("ids must be strings or whole numbers, so that they have one spelling everywhere")
    return vector


def _bits(words: NDArray[np.uint64], start: int) -> NDArray[np.uint64]:
    """Return 52 bits of each row from bit `start` on, as whole numbers, (n_rows,)."""
    word, skipped = divmod(start, 64)
    kept = words[:, word] << np.uint64(skipped) >> np.uint64(64 - _BITS)
    missing = skipped + _BITS - 64
    return kept | (words[:, word + 1] >> np.uint64(64 - missing)) if missing > 0 else kept


def sample_pivotal(probabilities: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return one action per row, (n_rows,), so that counts of actions stay close to their expectations.

    Each action has its own probability on each row. Two rows that are both undecided between actions a and b
    exchange probability until one of them is decided; the exchange is fair, so that no row's probabilities
    change, and exact, so that no count does.
    """
    probabilities = probabilities.copy()
    for a, b in itertools.combinations(range(len(probabilities)), 2):
        while True:
            undecided = np.flatnonzero((probabilities[a] > 0) & (probabilities[b] > 0))
            if len(undecided) < 2:
                break
            half = len(undecided) // 2
            _exchange(probabilities, a, b, undecided[:half], undecided[half : 2 * half], rng)
    return sample_actions(probabilities, rng.random(probabilities.shape[1]))


def _exchange(
    probabilities: Floats,
    a: int,
    b: int,
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    rng: np.random.Generator,
) -> None:
    up = np.minimum(probabilities[b, i], probabilities[a, j])  # what rows i can move from b to a
    down = np.minimum(probabilities[a, i], probabilities[b, j])
    move = np.where(rng.random(len(i)) * (up + down) < down, up, -down)
    probabilities[a, i] += move
    probabilities[b, i] -= move
    probabilities[a, j] -= move
    probabilities[b, j] += move
