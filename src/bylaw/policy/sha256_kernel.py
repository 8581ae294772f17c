"""SHA-256 of many short texts at once, compiled by numba on first use and cached.

Each step of FIPS 180-4 is done for some rows side by side, which compilers turn into vector instructions:
a few times faster than a call of hashlib per row. Words are (16, _LANES), the state is (8, _LANES).
"""

from __future__ import annotations

from math import isqrt

import numpy as np
from numba import njit, uint32

_LANES = 32
_BLOCK = 64  # bytes


def _list_primes(count: int) -> list[int]:
    primes: list[int] = []
    number = 2
    while len(primes) < count:
        if all(number % prime for prime in primes):
            primes.append(number)
        number += 1
    return primes


def _cube_root(number: int) -> int:
    """The largest whole number whose cube is not above it."""
    root = round(number ** (1 / 3))
    while root**3 > number:
        root -= 1
    while (root + 1) ** 3 <= number:
        root += 1
    return root


# The first 32 bits of the fractions of square and cube roots of primes.
_START = np.array([isqrt(prime << 64) % 2**32 for prime in _list_primes(8)], dtype=np.uint32)
_ROUNDS = np.array([_cube_root(prime << 96) % 2**32 for prime in _list_primes(64)], dtype=np.uint32)


@njit(cache=True, nogil=True)
def hash_texts(prefix, texts, starts, lengths, ending):
    """The SHA-256 of prefix + text + ending for each text, (n_rows, 4) words of 64 bits.

    prefix, texts and ending are bytes, the texts after each other: text i has `lengths[i]` of them from
    `starts[i]` on.
    """
    hashes = np.empty((len(starts), 4), np.uint64)
    words, state = np.empty((16, _LANES), np.uint32), np.empty((8, _LANES), np.uint32)
    shared = _START.copy()
    whole = len(prefix) // _BLOCK  # blocks that all rows share
    for block in range(whole):
        _set(state, shared)
        _clear(words)
        _put(words, 0, -_BLOCK * block, prefix, 0, len(prefix))
        _compress(state, words)
        for k in range(8):
            shared[k] = state[k, 0]
    for first in range(0, len(starts), _LANES):
        lanes = min(_LANES, len(starts) - first)
        longest = 0
        for row in range(first, first + lanes):
            longest = max(longest, lengths[row])
        _set(state, shared)
        for block in range(whole, (len(prefix) + longest + len(ending) + 8) // _BLOCK + 1):
            _clear(words)
            for lane in range(lanes):
                start, length = starts[first + lane], lengths[first + lane]
                _fill(words, lane, block, prefix, texts, start, length, ending)
            _compress(state, words)
            for lane in range(lanes):
                if (len(prefix) + lengths[first + lane] + len(ending) + 8) // _BLOCK == block:
                    for k in range(4):
                        high, low = np.uint64(state[2 * k, lane]), np.uint64(state[2 * k + 1, lane])
                        hashes[first + lane, k] = high << np.uint64(32) | low
    return hashes


@njit(cache=True, nogil=True)
def _set(state, shared):
    for k in range(8):
        for lane in range(_LANES):
            state[k, lane] = shared[k]


@njit(cache=True, nogil=True)
def _clear(words):
    for t in range(16):
        for lane in range(_LANES):
            words[t, lane] = 0


@njit(cache=True, nogil=True)
def _fill(words, lane, block, prefix, texts, start, length, ending):
    """A block of the prefix, a text, the ending, a one, zeros, and the length in bits."""
    place = -_BLOCK * block
    _put(words, lane, place, prefix, 0, len(prefix))
    place += len(prefix)
    _put(words, lane, place, texts, start, length)
    place += length
    _put(words, lane, place, ending, 0, len(ending))
    place += len(ending)
    if 0 <= place < _BLOCK:
        words[place >> 2, lane] |= uint32(0x80) << uint32(24 - 8 * (place & 3))
    if place + 8 < _BLOCK:
        bits = 8 * (place + _BLOCK * block)
        words[14, lane], words[15, lane] = uint32(bits >> 32), uint32(bits)


@njit(cache=True, nogil=True)
def _put(words, lane, place, texts, start, length):
    """The bytes of a text that begins at a place of the block, before it or after it."""
    for i in range(max(0, -place), min(length, _BLOCK - place)):
        words[(place + i) >> 2, lane] |= uint32(texts[start + i]) << uint32(24 - 8 * ((place + i) & 3))


@njit(cache=True, nogil=True)
def _compress(state, words):
    """One block in each lane. The standard's a to d are the last four rows of `a`, d first; e to h, of `e`.

    Arrays that are made here cannot overlap with others, and without that knowledge nothing is vectorised.
    """
    w = np.empty((64, _LANES), np.uint32)
    a, e = np.empty((68, _LANES), np.uint32), np.empty((68, _LANES), np.uint32)
    for t in range(16):
        for lane in range(_LANES):
            w[t, lane] = words[t, lane]
    for t in range(16, 64):
        for lane in range(_LANES):
            x, y = w[t - 15, lane], w[t - 2, lane]
            mixed = (_rotate(x, 7) ^ _rotate(x, 18) ^ x >> uint32(3)) + w[t - 16, lane]
            w[t, lane] = mixed + (_rotate(y, 17) ^ _rotate(y, 19) ^ y >> uint32(10)) + w[t - 7, lane]
    for k in range(4):
        for lane in range(_LANES):
            a[3 - k, lane], e[3 - k, lane] = state[k, lane], state[4 + k, lane]
    for t in range(64):
        constant = _ROUNDS[t]
        for lane in range(_LANES):
            f, g, now = e[t + 2, lane], e[t + 1, lane], e[t + 3, lane]
            added = e[t, lane] + (g ^ now & (f ^ g)) + constant + w[t, lane]
            added += _rotate(now, 6) ^ _rotate(now, 11) ^ _rotate(now, 25)
            b, c, now = a[t + 2, lane], a[t + 1, lane], a[t + 3, lane]
            other = (_rotate(now, 2) ^ _rotate(now, 13) ^ _rotate(now, 22)) + (now & b | c & (now | b))
            e[t + 4, lane] = a[t, lane] + added
            a[t + 4, lane] = added + other
    for k in range(4):
        for lane in range(_LANES):
            state[k, lane] += a[67 - k, lane]
            state[4 + k, lane] += e[67 - k, lane]


@njit(cache=True, nogil=True)
def _rotate(word, places):
    return word >> uint32(places) | word << uint32(32 - places)
