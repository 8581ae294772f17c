"""`random_state` as scikit-learn has it: a seed, a generator of either kind, or none."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from bylaw.errors import OptionError

_SEEDS = 2**31


def check_random_state(state: Any) -> None:
    """None, a seed, or a generator of NumPy's."""
    if state is None or isinstance(state, np.random.RandomState | np.random.Generator):
        return
    if isinstance(state, Integral) and not isinstance(state, bool) and 0 <= int(state) < 2**32:
        return
    raise OptionError(
        "random_state must be None, a whole number from 0 to 2**32 - 1, a numpy.random.Generator or a "
        f"numpy.random.RandomState, not {state!r}"
    )


def make_seed(state: Any) -> Any:
    """What scikit-learn's splitters take, which know no `Generator`."""
    return int(state.integers(_SEEDS)) if isinstance(state, np.random.Generator) else state


def make_generator(state: Any) -> np.random.Generator:
    """A seed gives the same numbers at each call; a generator goes on."""
    return np.random.default_rng(state.randint(_SEEDS) if isinstance(state, np.random.RandomState) else state)


def make_key(state: Any) -> str | None:
    """The key of decisions by id: the seed, or none where there is no seed."""
    return str(state) if isinstance(state, Integral) else None
