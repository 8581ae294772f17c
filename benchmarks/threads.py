"""Whether threads over blocks of rows would help: a pass with one thread against two, in wall-clock time.

Each thread takes a contiguous half of the blocks, and sums are added in the order of the blocks. Prints a
table and writes it to benchmarks/results/threads.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import add
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded

import numpy as np

from bylaw.program import Dual, Tally, TallyPass, _blocks as blocks, compile_problem, make_blocks
from core import BETA, PARITY, evidence_of, scores, seconds, show

RESULTS = Path(__file__).parent / "results" / "threads.md"
ROWS = 1_000_000
BLOCKS = (8192, 32_768, 131_072)  # rows in each
TARGET = ">= 1.6 times"


def make_passes(dual: Dual, pool: ThreadPoolExecutor) -> list[Callable[[], Tally]]:
    """With one thread, and with two."""
    point = np.full(dual.n_rules, 0.01)
    wanted = TallyPass(dual.form.score_matrix(point), dual.beta, dual.form.action_space)
    half = len(dual.blocks) // 2

    def run(part: slice) -> list[Tally]:
        return [wanted(block) for block in dual.blocks[part]]

    def alone() -> Tally:
        return reduce(add, run(slice(None)))

    def together() -> Tally:
        first, second = pool.map(run, (slice(half), slice(half, None)))
        return reduce(add, first + second)

    return [alone, together]


def race() -> list[tuple[str, str, str]]:
    evidence = evidence_of(*scores(ROWS))
    form = compile_problem(PARITY, evidence)
    passes, before = [], os.getloadavg()[0]
    with ThreadPoolExecutor(2) as pool:
        for blocks.BLOCK_ROWS in BLOCKS:
            passes += make_passes(Dual(form, make_blocks(form, evidence), BETA), pool)
        taken = seconds(*passes, rounds=9)
    load = f"{before:.1f} on {os.cpu_count()} processors"
    lines = [("processes that others kept busy meanwhile, which threads do not outrun", load, "")]
    lines += [(f"the unit: one thread, blocks of {BLOCKS[0]:,} rows", f"{1e3 * taken[0]:.1f} ms", "")]
    for place, rows in enumerate(BLOCKS):
        one, two = (taken[0] / each for each in taken[2 * place : 2 * place + 2])
        lines.append((f"one thread, blocks of {rows:,} rows", f"{one:.2f} times as fast", ""))
        lines.append((f"two threads, blocks of {rows:,} rows", f"{two:.2f} times as fast", TARGET))
    return lines


if __name__ == "__main__":
    show(race(), RESULTS)
