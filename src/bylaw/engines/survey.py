"""The first walk over rows: how many there are, which values groups have, how often events occur, and a
sample of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow

from bylaw._base.typing import Floats
from bylaw.engines.reading import BatchReader
from bylaw.errors import EvidenceError
from bylaw.rows.evidence import Evidence
from bylaw.rows.margins import Margins

_LEAST_SHARE = 256  # rows of a partition's sample: with thousands of them, their sum is sent to the client
_SPARE = 4  # times more than its share, as partitions differ


@dataclass(frozen=True)
class RowSample:
    """Rows whose random number is below a threshold: of all rows, each is as likely to be among them. Those
    of different rows add up."""

    rows: Any  # an Arrow table
    numbers: Floats  # (n_rows,): random, from 0 to 1
    threshold: float
    most: int  # rows to keep

    def __add__(self, other: RowSample) -> RowSample:
        numbers = np.concatenate([self.numbers, other.numbers])
        threshold, most = min(self.threshold, other.threshold), max(self.most, other.most)
        rows = pyarrow.concat_tables([self.rows, other.rows], promote_options="permissive")
        return RowSample(rows, numbers, threshold, most).cut()

    def cut(self) -> RowSample:
        """Without rows beyond the threshold, which is lowered where more are left than may be kept."""
        numbers, threshold = self.numbers, self.threshold
        if (numbers < threshold).sum() > self.most:
            threshold = float(np.partition(numbers, self.most)[self.most])
        kept = np.flatnonzero(numbers < threshold)
        return RowSample(self.rows.take(pyarrow.array(kept)), numbers[kept], threshold, self.most)


@dataclass(frozen=True)
class SamplePlan:
    """How rows are sampled from partitions."""

    seed: int
    share: int  # rows of a partition's sample, at most
    most: int  # rows of the sample of all
    threshold: float = 1.0  # below which random numbers are looked at, where many rows are known to come

    @classmethod
    def of(cls, most: int, n_rows: int | None, n_partitions: int, seed: int) -> SamplePlan:
        """Of at most so many rows from partitions that may differ in size."""
        share = min(max(_SPARE * most // max(n_partitions, 1), _LEAST_SHARE), most)
        return cls(seed, share, most, min(_SPARE * most / n_rows, 1.0) if n_rows else 1.0)

    def start(self, partition: int) -> _Sampler:
        return _Sampler(self, np.random.default_rng([self.seed, partition]))


class _Sampler:
    """Samples the batches of one partition."""

    def __init__(self, plan: SamplePlan, rng: np.random.Generator) -> None:
        self.plan, self.rng, self.kept = plan, rng, list[RowSample]()
        self.threshold = plan.threshold

    def take(self, batch: Any, weights: Floats | None = None) -> None:
        """Some of these rows, if they have a weight."""
        numbers = self.rng.random(len(batch))
        wanted = numbers < self.threshold
        here = np.flatnonzero(wanted if weights is None else wanted & (weights > 0))
        rows = pyarrow.Table.from_batches([batch]).take(pyarrow.array(here))
        self.kept.append(RowSample(rows, numbers[here], self.threshold, self.plan.share).cut())
        if sum(len(part.numbers) for part in self.kept) > 2 * self.plan.share:
            self.kept = [reduce(add, self.kept)]
            self.threshold = self.kept[0].threshold

    def finish(self) -> RowSample:
        return replace(reduce(add, self.kept), most=self.plan.most)


@dataclass(frozen=True)
class SampleTask:
    """A sample of a partition."""

    plan: SamplePlan

    def __call__(self, partition: int, batches: Iterator[Any]) -> RowSample | None:
        sampler = self.plan.start(partition)
        for batch in batches:
            if len(batch):
                sampler.take(batch)
        return sampler.finish() if sampler.kept else None


@dataclass(frozen=True)
class Counts:
    """Of some rows; those of different rows add up."""

    n_rows: int
    n_weighted: int  # rows that have a weight
    margins: Margins
    observed: Margins | None

    def __add__(self, other: Counts) -> Counts:
        observed = None
        if self.observed is not None and other.observed is not None:
            observed = self.observed + other.observed
        return Counts(
            self.n_rows + other.n_rows,
            self.n_weighted + other.n_weighted,
            self.margins + other.margins,
            observed,
        )


@dataclass(frozen=True)
class Survey:
    """Of some rows; those of different rows add up."""

    counts: Counts
    sample: RowSample

    def __add__(self, other: Survey) -> Survey:
        return Survey(self.counts + other.counts, self.sample + other.sample)


@dataclass(frozen=True)
class SurveyTask:
    """The survey of a partition."""

    reader: BatchReader
    attributes: tuple[str, ...]  # that rules refer to
    plan: SamplePlan

    def __call__(self, partition: int, batches: Iterator[Any]) -> Survey | None:
        sampler, found, done = self.plan.start(partition), list[Counts](), 0
        for batch in batches:
            if not len(batch):
                continue
            try:
                evidence = self.reader.read(batch)
                found.append(self._count(batch, evidence))
            except EvidenceError as problem:
                problem.add_place(f"from row {done:,} on")
                raise
            sampler.take(batch, evidence.weights)
            done += len(batch)
        return Survey(reduce(add, found), sampler.finish()) if found else None

    def _count(self, batch: Any, evidence: Evidence) -> Counts:
        observed = None
        if self.reader.observes:
            observed = Margins.of(self.reader.observe(evidence), self.attributes)
        weighted = len(batch) if evidence.weights is None else int(np.count_nonzero(evidence.weights))
        return Counts(len(batch), weighted, Margins.of(evidence, self.attributes), observed)
