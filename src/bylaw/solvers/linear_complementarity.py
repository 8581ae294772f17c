"""A linear complementarity problem of few rules, whose matrix need not be symmetric."""

from __future__ import annotations

import numpy as np

from bylaw._base.typing import Floats

_MOST_GUESSES = 20  # of the rules that bind
_REDUNDANT = 1e-12  # relative size of singular values that are none


def solve_linearized(excess: Floats, slopes: Floats, here: Floats) -> Floats:
    """(M,): multipliers >= 0 at which the excess (M,), linear with these slopes (M, M) around the multipliers
    `here`, is <= 0, and zero where a multiplier is not.

    Rules that bind are guessed from their signs, and the guess is corrected until it holds or the guesses are
    used up: then the last is the answer. Multipliers that change nothing, as those of redundant rules, move
    as little as possible.
    """
    binding = (here > 0) | (excess > 0)
    point = np.zeros(len(here))
    for _ in range(_MOST_GUESSES):
        point = np.where(binding, here, 0.0)
        missing = excess + slopes @ (point - here)
        within = slopes[binding][:, binding]
        point[binding] -= np.linalg.lstsq(within, missing[binding], rcond=_REDUNDANT)[0]
        if (point < 0).any():
            binding = point > 0
            continue
        missed = ~binding & (excess + slopes @ (point - here) > 0)
        if not missed.any():
            return point
        binding = binding | missed
    return np.maximum(point, 0.0)
