from __future__ import annotations

import numpy as np
import pytest

from bylaw import OptionError
from bylaw.estimators._sklearn_contract import check_random_state, make_generator, make_seed


def test_a_generator_gives_its_own_seeds():
    one, same, other = (make_seed(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == same != other
    generator = np.random.default_rng(1)
    assert make_seed(generator) != make_seed(generator)  # it goes on
    assert make_seed(7) == 7
    assert make_seed(None) is None


def test_a_whole_number_repeats_and_a_generator_goes_on():
    assert make_generator(3).random() == make_generator(3).random()
    legacy = np.random.RandomState(3)
    assert make_generator(legacy).random() != make_generator(legacy).random()


@pytest.mark.parametrize("state", [-1, True, "0", 2**32, 1.5])
def test_what_is_no_random_state_is_refused(state):
    with pytest.raises(OptionError, match="random_state must be"):
        check_random_state(state)
