"""Threads that limit BLAS at once leave it as they found it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from bylaw import Evidence, Problem, error, rejected, solve
from bylaw._base import limit_blas_threads


def count():
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library.get_num_threads() for library in libraries]


def set_count(numbers):
    """By a thread that ends: threadpoolctl lets one thread at a time change them."""

    def change():
        for library, number in zip(
            ThreadpoolController().select(user_api="blas").lib_controllers, numbers, strict=True
        ):
            library.set_num_threads(number)

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()


@pytest.fixture(autouse=True)
def two_threads():
    before = count()
    set_count([2] * len(before))
    if not before or set(count()) != {2}:
        pytest.skip("this machine's BLAS has one thread")
    yield
    set_count(before)


@pytest.mark.parametrize("first_out", [0, 1])
def test_overlapping_limits_are_undone_by_the_last(first_out):
    go = [threading.Event(), threading.Event()]
    entered = [threading.Event(), threading.Event()]
    left = [threading.Event(), threading.Event()]
    end = threading.Event()
    seen = {}

    def work(i):
        with limit_blas_threads():
            entered[i].set()
            go[i].wait()
            seen[i] = count()
        left[i].set()
        end.wait()  # a thread of a pool lives on

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for i, thread in enumerate(threads):
        thread.start()
        entered[i].wait()
    for i in (first_out, 1 - first_out):
        go[i].set()
        left[i].wait()
    after = count()
    end.set()
    for thread in threads:
        thread.join()
    assert set(after) == {2}
    assert {number for numbers in seen.values() for number in numbers} == {1}


def test_a_limit_within_a_limit_and_one_that_fails():
    with limit_blas_threads():
        with pytest.raises(ValueError, match="stop"), limit_blas_threads():
            raise ValueError("stop")
        assert set(count()) == {1}
    assert set(count()) == {2}


@pytest.mark.slow
def test_overlapping_solves_leave_the_threads_of_blas():
    scores = np.random.default_rng(0).random(20_000)
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    problem = Problem(error(), [rejected() <= 0.1])
    with ThreadPoolExecutor(4) as pool:
        policies = list(pool.map(lambda _: solve(problem, evidence), range(8)))
    assert set(count()) == {2}
    assert len({policy.digest for policy in policies}) == 1
