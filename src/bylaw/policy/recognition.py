"""Whether rows are those of a fingerprint: two tests on counts, each wrong for unrelated rows less than once
in a million times, by theory.

Unrelated rows may look alike by accident, all the more where scores are coarse. What matters is whether more
look alike than two independent samples of one population would show.

- Shared rows. Rows that occur once among those at hand meet fuller buckets of the fingerprint if they are in
  it, too: the sum of the scores log P(count - 1) / P(count) of their buckets is compared with its
  distribution for any other buckets (Chernoff's bound). Accidental twins raise that sum as well. How many
  there can be is seen in how many rows at hand occur twice (Good and Turing), and in how unequal the counts
  of the fingerprint are; the number that explains all three best is granted.
- The very same rows. If their number is the same, counts differ by noise alone, where those of another
  sample of the population differ by twice their size in variance: a likelihood ratio over full buckets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from bylaw._base.hashing import Hashes
from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.formulation.blocks import BLOCK_ROWS
from bylaw.formulation.linear_form import FeatureMap
from bylaw.policy.fingerprint import (
    BUCKETS,
    Counts,
    Fingerprint,
    Fingerprints,
    count_buckets,
    hash_features,
    noise_distribution,
    noise_variance,
)

_SHARED = 15.0  # -log of a bound on the probability by accident
_SAME = 12.0  # log likelihood ratio; it is reached by accident with a tenth of the probability exp(-12)
_MOST_PARTS = 4  # whose combinations are all compared
_WIDEST = 4.0  # standard deviations of a count, beyond which it counts no more
_TRIMMED = 0.05  # of the buckets at either end, for the level of the others
_MANY = 1000.0  # variance of a count that is normal
_FULL = 2  # rows in a bucket, from which its count says something of the very same rows
_ROUGH = 0.07  # log of the most that the mean of a bucket's likelihood ratio exceeds one, Poisson for normal
_SEVERAL = 30  # different rows, below which their number tells nothing
_TWINS = np.linspace(0, 1, 101)  # of the apparent number of shared rows
_TILTS = np.geomspace(0.02, 2.5, 60)  # of the one that is best for a normal distribution


@dataclass(frozen=True)
class RowsAtHand:
    """What is compared of rows in memory; exact, and not to be saved.

    Attributes
    ----------
    rows : int
    counts : array of shape (n_buckets,)
    singles : array of shape (n_buckets,)
        counts of the rows that occur once.
    doubles : int
        how many different rows occur twice.
    different : array of shape (n_buckets,)
        counts of different rows.
    copied : bool
        rows repeat each other in a way that no sample of independent rows does.
    """

    rows: int
    counts: Counts
    singles: Counts
    doubles: int
    different: Counts
    copied: bool = False

    @classmethod
    def from_hashes(cls, hashes: Hashes) -> RowsAtHand:
        different, times = np.unique(hashes, return_counts=True)
        return cls(
            len(hashes),
            count_buckets(hashes),
            count_buckets(different[times == 1]),
            int((times == 2).sum()),
            count_buckets(different),
            _are_copied(np.bincount(times)),
        )

    @property
    def n_different(self) -> int:
        return int(self.different.sum())

    def drop_copies(self) -> RowsAtHand:
        """Each different row once."""
        return RowsAtHand(self.n_different, self.different, self.different, 0, self.different)

    def make_fingerprint(self) -> Fingerprint:
        """Their fingerprint, which may be saved."""
        return Fingerprint(self.rows, self.counts.copy()).release()


def hash_evidence(feature_map: FeatureMap, evidence: Evidence) -> RowsAtHand:
    """Evidence as a policy with this feature map sees it."""
    evidence = feature_map.admit(evidence)
    slices = (slice(i, min(i + BLOCK_ROWS, len(evidence))) for i in range(0, len(evidence), BLOCK_ROWS))
    height = len(feature_map.features)
    pieces = [
        hash_features(feature_map.columns(evidence, s, np.empty((height, s.stop - s.start)))) for s in slices
    ]
    return RowsAtHand.from_hashes(np.concatenate([np.empty(0, np.uint64), *pieces]))


def shares_rows(rows: RowsAtHand, among: Fingerprints) -> bool:
    """Whether these rows share some with any part, or with several parts together; also where some of them
    are repeated."""
    together = list(_combine([part for part in among if part.rows]))
    if not rows.rows or not together:
        return False
    alike = [part for part in together if part.rows == rows.rows]
    once = rows.drop_copies()
    repeated = once.rows < rows.rows
    limit = _SHARED + math.log(len(together) * (2 if repeated else 1))
    return (
        any(measure_shared(rows, part) >= limit for part in together)
        or any(measure_sameness(rows, part) >= _SAME + math.log(len(alike)) for part in alike)
        or (repeated and any(measure_shared(once, part, rows.copied) >= limit for part in together))
    )


def _are_copied(repeats: NDArray[np.int64]) -> bool:
    """Whether f_j = repeats[j], the number of different rows that occur j times, is none of independent rows.
    Theirs is a mixture of Poisson distributions, for which (j! f_j)^2 <= (j-1)! f_{j-1} (j+1)! f_{j+1}."""
    found = np.append(repeats, 0).astype(float)
    for times in np.flatnonzero(found >= _SEVERAL):
        if times < 2:
            continue
        fewer = max(found[times - 1] * (times + 1) / times, 1e-300)
        expected = found[times] ** 2 / fewer
        if expected >= _SEVERAL and found[times + 1] < expected / 4:
            return True
    return False


def _combine(parts: list[Fingerprint]) -> Iterator[Fingerprint]:
    """Parts by themselves and all together; of few parts, every combination."""
    few = len(parts) <= _MOST_PARTS
    for n in range(1, len(parts) + 1) if few else sorted({1, len(parts)}):
        for chosen in itertools.combinations(parts, n):
            yield reduce(add, chosen)


def measure_shared(rows: RowsAtHand, part: Fingerprint, independent: bool = True) -> float:
    """Evidence that some rows are in the fingerprint: -log of the chance that unrelated ones seem so.

    Where rows at hand are not `independent`, how often they occur tells nothing of accidental twins.
    """
    scores, rise = _score_counts(part)
    excess = float(rows.singles @ scores)
    if excess <= 0 or rise <= 0 or scores.std() < 1e-9:
        return 0.0
    twins = _TWINS * excess / rise
    by_chance = _bound_tail(rows.singles, scores, excess - twins * rise)
    doubles = _deviate(rows.doubles, twins * rows.rows / (2 * part.rows)) if independent else 0.0
    spread = np.square(part.counts - part.counts.mean())
    surplus = max(spread.mean() - part.rows / BUCKETS - part.draws * noise_variance(), 0.0)
    error = spread.std() / math.sqrt(BUCKETS)
    unequal = np.maximum(twins * part.rows / (rows.rows * BUCKETS) - surplus, 0) / max(error, 1e-300)
    return float((by_chance + doubles + np.square(unequal) / 2).min())


def _score_counts(part: Fingerprint) -> tuple[Floats, float]:
    """The score of each bucket, centred, (n_buckets,), and by how much one more row raises it on average."""
    cut = int(_TRIMMED * BUCKETS)
    level = max(float(np.sort(part.counts)[cut:-cut].mean()), 1e-3)
    variance = level + part.draws * noise_variance()
    reach = math.ceil(_WIDEST * math.sqrt(variance))
    least = math.floor(level) - reach
    found = np.clip(part.counts - least, 0, 2 * reach + 1)
    if variance > _MANY:  # counts are normal, and scores proportional to them
        table = np.arange(-reach, reach + 3) / variance
    else:
        noise = noise_distribution(part.draws)
        sizes = np.arange(reach + math.ceil(level) + len(noise))
        poisson = np.exp(sizes * math.log(level) - level - gammaln(sizes + 1))
        chances = np.log(np.maximum(np.convolve(noise, poisson), 1e-300))  # from the least noise on
        places = np.arange(least, least + 2 * reach + 3) + len(noise) // 2
        table = chances[places - 1] - chances[places]
    scores = table[found]
    return scores - scores.mean(), float((table[found + 1] - scores).mean())


def _bound_tail(singles: Counts, scores: Floats, sums: Floats) -> Floats:
    """-log of Chernoff's bound on the chance that the scores of random buckets reach each sum."""
    values, frequencies = np.unique(scores, return_counts=True)
    sizes, buckets = np.unique(singles - singles.mean(), return_counts=True)  # the scores have mean zero
    variance = float((np.square(sizes) * buckets).sum() * scores.var())
    tilts = _TILTS * sums.max() / max(variance, 1e-300)
    with np.errstate(over="ignore", invalid="ignore"):
        moments = np.exp(np.multiply.outer(np.multiply.outer(tilts, sizes), values)) @ frequencies / BUCKETS
        cumulants = np.log(moments) @ buckets  # (n_tilts,)
    exponents = np.multiply.outer(sums, tilts) - cumulants
    return np.maximum(np.nan_to_num(exponents, nan=0.0, neginf=0.0).max(axis=1), 0.0)


def _deviate(seen: int, expected: Floats) -> Floats:
    """-log of Chernoff's bound on the chance of so few where more are expected (Poisson)."""
    more = np.maximum(expected, max(seen, 1e-300))
    return more - seen + (seen * np.log(seen / more) if seen else 0.0)


def measure_sameness(rows: RowsAtHand, part: Fingerprint) -> float:
    """Log likelihood ratio of the very same rows against another sample, as large, of their population."""
    full = np.flatnonzero(rows.counts >= _FULL)
    full = np.delete(full, np.argmax(rows.counts[full])) if len(full) else full  # it follows from the others
    noise = noise_distribution(part.draws)
    reach, total = len(noise) // 2, -_ROUGH * len(full)
    for size in np.unique(rows.counts[full]):
        same = rows.counts == size
        apart = part.counts[full[same[full]]] - size
        variance = 2 * size * (1 - size / rows.rows)
        most = math.ceil(6 * math.sqrt(variance))
        sampling = np.exp(-np.square(np.arange(-most, most + 1)) / (2 * variance))
        other = np.convolve(noise, sampling / sampling.sum())
        places = np.clip(apart, -reach, reach)
        total += float(np.log(np.maximum(noise[places + reach], 1e-300)).sum())
        total -= float(np.log(np.maximum(other[places + reach + most], 1e-300)).sum())
    return total
