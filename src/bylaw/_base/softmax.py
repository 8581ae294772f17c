"""Softmax and sigmoid of scores, in place, with their potentials (log-sum-exp and softplus)."""

from __future__ import annotations

import numpy as np

from bylaw._base.typing import Floats

# exp(-40) is below the rounding error of a probability: such actions get probability zero.
NEGLIGIBLE = -40.0
_FACTORS = 1000  # numbers up to 2 whose product is a finite float
_TILE = 2**18  # bytes of scores at a time: what one step writes, the next one finds in the cache


def softmax(scores: Floats) -> Floats:
    """Turn scores (n_actions, n_rows) into probabilities in place; returns log-sum-exp, (n_rows,)."""
    peak = scores.max(axis=0)
    scores -= peak
    _exp_or_zero(scores)
    total = scores.sum(axis=0)
    scores /= total
    return np.log(total, out=total) + peak


def sigmoid(scores: Floats) -> Floats:
    """Turn scores (n_labels, n_rows) into probabilities in place; returns the sum of softplus, (n_rows,)."""
    potential = np.zeros(scores.shape[1])
    step = max(_TILE // (scores.itemsize * max(scores.shape[1], 1)), 1)
    for first in range(0, len(scores), _FACTORS):
        product = np.ones(scores.shape[1])  # one log of a product instead of many logs
        for start in range(first, min(first + _FACTORS, len(scores)), step):
            part = scores[start : min(start + step, first + _FACTORS)]
            potential += np.maximum(part, 0.0).sum(axis=0)
            product *= _sigmoid(part)
        potential += np.log(product, out=product)
    return potential


def _sigmoid(scores: Floats) -> Floats:
    """In place, of few labels; the product of 1 + exp(-|score|), (n_rows,)."""
    included = scores > 0
    np.negative(np.abs(scores, out=scores), out=scores)
    _exp_or_zero(scores)
    above_one = 1.0 + scores
    np.copyto(scores, 1.0, where=included)
    scores /= above_one
    return above_one.prod(axis=0)


def _exp_or_zero(scores: Floats) -> None:
    """exp in place, zero where negligible. At a large beta almost every row is decided, and
    only few entries need exp; both ways give the same bits."""
    near = scores > NEGLIGIBLE
    if np.count_nonzero(near) > near.size // 3:
        np.exp(scores, out=scores)
        scores *= near
        return
    flat = scores.reshape(-1)
    places = np.flatnonzero(near)
    terms = np.exp(flat[places])
    flat.fill(0.0)
    flat[places] = terms
