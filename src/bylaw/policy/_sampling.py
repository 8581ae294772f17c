"""Sampling of decisions from probabilities: with a random generator, by id, or balanced over all rows."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base import HEX_DIGITS, PER_DIGEST, Floats
from bylaw.errors import EvidenceError
from bylaw.rows import as_vector

_BITS = 4 * HEX_DIGITS


def sample_actions(probabilities: Floats, uniforms: Floats) -> NDArray[np.int64]:
    """Return action indices (n_rows,) for probabilities (n_actions, n_rows) and uniform numbers (n_rows,)."""
    heights = np.cumsum(probabilities, axis=0)
    # Scaled by the sum of the probabilities, so that rounding never selects an impossible action.
    return (heights <= uniforms * heights[-1]).sum(axis=0)


def sample_by_id(
    parts: Sequence[Floats], ids: Any, key: str, suffix: str = "/{}"
) -> Iterator[NDArray[np.int64]]:
    """Yield, for each array of probabilities in `parts`, the action indices sampled by id, (n_rows,).

    An array has the shape (n_actions, n_rows). The hashed text is the key, the id and `suffix`, in which {}
    is the number of the digest; a digest has the uniform numbers for four arrays. Ids are hashed only for
    rows with more than one possible action.
    """
    checked = check_ids(ids, parts[0].shape[1])
    for first in range(0, len(parts), PER_DIGEST):
        part = parts[first : first + PER_DIGEST]
        undecided = np.zeros(len(checked), dtype=bool)
        for probabilities in part:
            count = np.zeros(len(checked), np.int32)
            for action in probabilities:  # a sum along the first axis of truth values is far slower
                count += action > 0
            undecided |= count > 1
        rows = slice(None) if undecided.all() else np.flatnonzero(undecided)
        columns = uniforms_by_id(checked[rows], key, suffix.format(first // PER_DIGEST), len(part))
        for probabilities, uniforms in zip(part, columns, strict=True):
            drawn = sample_actions(probabilities[:, rows], uniforms)
            if not isinstance(rows, slice):
                decided = probabilities.argmax(axis=0)
                decided[rows] = drawn
                drawn = decided
            yield drawn


def uniforms_by_id(ids: NDArray[Any], key: str, ending: str = "", count: int = 1) -> Iterator[Floats]:
    """Yield `count` arrays of uniform numbers, (n_rows,), at most four, the same on any machine.

    The numbers are fractions of 13 hex digits each of the SHA-256 of "key/id" followed by `ending`.
    """
    words = hash_ids(ids, f"{key}/", ending)
    for start in range(0, count * _BITS, _BITS):
        word, skipped = divmod(start, 64)  # the bits may begin in one word and end in the next
        bits = words[:, word] << np.uint64(skipped) >> np.uint64(64 - _BITS)
        if (missing := skipped + _BITS - 64) > 0:
            bits |= words[:, word + 1] >> np.uint64(64 - missing)
        yield bits / 2.0**_BITS


def hash_ids(ids: NDArray[Any], prefix: str, ending: str) -> NDArray[np.uint64]:
    """Return the SHA-256 of prefix, id and ending for each id, as 4 words of 64 bits, (n_rows, 4)."""
    copy = hashlib.sha256(prefix.encode()).copy  # the prefix is hashed once
    try:
        texts = [f"{name}{ending}".encode() for name in ids.tolist()]
    except UnicodeEncodeError as problem:
        raise EvidenceError(
            f"ids must be valid Unicode, got {problem.object!r} with a lone surrogate: correct the "
            "encoding of the ids"
        ) from None
    digests = b"".join([hashed.digest() for text in texts if (hashed := copy()).update(text) is None])
    return np.frombuffer(digests, dtype=">u8").reshape(-1, 4).astype(np.uint64)


def check_ids(ids: Any, n_rows: int) -> NDArray[Any]:
    """Return ids as an array; raise an error unless they are text or whole numbers, one per row."""
    vector = as_vector(ids, "ids")
    if len(vector) != n_rows:
        raise EvidenceError(f"ids has {len(vector)} rows, but the evidence has {n_rows}")
    kinds = set() if vector.dtype.kind in "iuU" else set(map(type, vector.tolist()))
    if not all(issubclass(kind, str | int) and kind is not bool for kind in kinds):
        raise EvidenceError("ids must be strings or whole numbers, which are written alike on any machine")
    return vector


def sample_pivotal(probabilities: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return one action index per row, (n_rows,), such that counts of actions are close to their expectation.

    Each row gets each action with its own probability. Rows that are both random between actions a and b are
    paired: probability is exchanged between the two until one of them is decided. An exchange is fair, so the
    probabilities of a row do not change on average, and exact, so the expected counts do not change at all.
    """
    probabilities = probabilities.copy()
    for a, b in itertools.combinations(range(len(probabilities)), 2):
        while True:
            undecided = np.flatnonzero((probabilities[a] > 0) & (probabilities[b] > 0))
            if len(undecided) < 2:
                break
            # Rows i can move `up` from b to a, or `down` from a to b, and rows j the same in return.
            half = len(undecided) // 2
            i, j = undecided[:half], undecided[half : 2 * half]
            up = np.minimum(probabilities[b, i], probabilities[a, j])
            down = np.minimum(probabilities[a, i], probabilities[b, j])
            move = np.where(rng.random(half) * (up + down) < down, up, -down)
            probabilities[a, i] += move
            probabilities[b, i] -= move
            probabilities[a, j] -= move
            probabilities[b, j] += move
    return sample_actions(probabilities, rng.random(probabilities.shape[1]))
