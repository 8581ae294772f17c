"""Softmax and sigmoid of scores, in place, with their potentials (log-sum-exp and softplus)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats

# exp(-40) is below the rounding error of a probability: such actions get probability zero.
NEGLIGIBLE = -40.0
_FACTORS = 1000  # numbers up to 2 whose product is a finite float
_TILE = 2**18  # bytes of scores at a time
_MANY = 16  # actions, of which most may be negligible on every row
_FEW = 8  # where less than one action in so many is not, the others are left out


def softmax(scores: Floats) -> Floats:
    """Turn scores (n_actions, n_rows) into probabilities in place; returns log-sum-exp, (n_rows,)."""
    peak, total = normalize(scores, scores)
    return np.log(total, out=total) + peak


def normalize(scores: Floats, out: Floats) -> tuple[Floats, Floats]:
    """Write probabilities to `out`, which may be the scores; these are overwritten. Returns the largest score
    and the sum of exp(score - largest), (n_rows,) each."""
    peak = scores.max(axis=0)
    flat = scores.flags.c_contiguous and out.flags.c_contiguous
    if len(scores) >= _MANY and flat and np.isfinite(peak).all():
        near = scores > peak + (NEGLIGIBLE - 1.0)  # and a few that rounding may move there
        if np.count_nonzero(near) * _FEW <= near.size:
            return peak, _normalize_few(scores, np.flatnonzero(near), peak, out)
    scores -= peak
    _exp_or_zero(scores)
    total = scores.sum(axis=0)
    np.divide(scores, total, out=out)
    return peak, total


def _normalize_few(scores: Floats, places: NDArray[np.intp], peak: Floats, out: Floats) -> Floats:
    """The same where all but a few places of the flattened scores are negligible; returns the sums. Terms are
    added in the order of the actions, so that both ways give the same bits."""
    rows = places % scores.shape[1]
    terms = scores.reshape(-1)[places] - peak[rows]
    _exp_or_zero(terms)
    total: Floats = np.bincount(rows, terms, scores.shape[1]).astype(np.float64, copy=False)
    out[...] = 0.0
    out.reshape(-1)[places] = terms / total[rows]
    return total


def sigmoid(scores: Floats) -> Floats:
    """Turn scores (n_labels, n_rows) into probabilities in place; returns the sum of softplus, (n_rows,)."""
    potential = np.zeros(scores.shape[1])
    for first in range(0, len(scores), _FACTORS):
        product = np.ones(scores.shape[1])  # one log of a product instead of many logs
        for part in _split(scores[first : first + _FACTORS]):
            potential += np.maximum(part, 0.0).sum(axis=0)
            product *= _sigmoid(part).prod(axis=0)
        potential += np.log(product, out=product)
    return potential


def separate(scores: Floats, out: Floats) -> None:
    """Write probabilities to `out`, which may be the scores; these are overwritten."""
    for part, target in zip(_split(scores), _split(out), strict=True):
        _sigmoid(part)
        target[...] = part


def _split(scores: Floats) -> Iterator[Floats]:
    """Few labels at a time, so that what one step writes, the next one finds in the cache."""
    step = max(_TILE // (scores.itemsize * max(scores.shape[1], 1)), 1)
    return (scores[start : start + step] for start in range(0, len(scores), step))


def _sigmoid(scores: Floats) -> Floats:
    """In place, of few labels; returns 1 + exp(-|score|), (n_labels, n_rows)."""
    included = scores > 0
    np.negative(np.abs(scores, out=scores), out=scores)
    _exp_or_zero(scores)
    above_one = 1.0 + scores
    np.copyto(scores, 1.0, where=included)
    scores /= above_one
    return above_one


def _exp_or_zero(scores: Floats) -> None:
    """exp of scores <= 0 in place, zero where negligible. At a large beta almost every row is decided, and
    only few entries need exp; both ways give the same bits."""
    near = scores > NEGLIGIBLE
    open_ = near & (scores < 0)  # exp(0) is 1
    if np.count_nonzero(open_) > open_.size // 3 or not scores.flags.c_contiguous:
        np.exp(scores, out=scores)
        if not near.all():
            scores *= near
        return
    flat = scores.reshape(-1)
    places = np.flatnonzero(open_)
    terms = np.exp(flat[places])
    scores[...] = near
    flat[places] = terms
