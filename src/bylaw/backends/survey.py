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
from bylaw.backends.reading import BatchReader, count_weighted
from bylaw.data.margins import Margins
from bylaw.errors import EvidenceError


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
        if (numbers < threshold).sum() > most:
            threshold = float(np.partition(numbers, most)[most])
        kept = np.flatnonzero(numbers < threshold)
        rows = pyarrow.concat_tables([self.rows, other.rows], promote_options="permissive")
        return RowSample(rows.take(pyarrow.array(kept)), numbers[kept], threshold, most)


@dataclass(frozen=True)
class Survey:
    """Of some rows; those of different rows add up."""

    n_rows: int
    n_weighted: int  # rows that have a weight
    margins: Margins
    observed: Margins | None
    sample: RowSample

    def __add__(self, other: Survey) -> Survey:
        observed = None
        if self.observed is not None and other.observed is not None:
            observed = self.observed + other.observed
        return Survey(
            self.n_rows + other.n_rows,
            self.n_weighted + other.n_weighted,
            self.margins + other.margins,
            observed,
            self.sample + other.sample,
        )

    def with_most(self, most: int) -> Survey:
        """With a sample that may grow to so many rows."""
        return replace(self, sample=replace(self.sample, most=most))


@dataclass(frozen=True)
class SurveyTask:
    """The survey of a partition."""

    reader: BatchReader
    attributes: tuple[str, ...]  # that rules refer to
    seed: int
    share: int  # rows of a partition's sample
    most: int  # rows of the sample of all

    def __call__(self, partition: int, batches: Iterator[Any]) -> Survey | None:
        rng = np.random.default_rng([self.seed, partition])
        found, threshold, done = [], 1.0, 0
        for batch in batches:
            if not len(batch):
                continue
            try:
                found.append(self._look(batch, rng, threshold))
            except EvidenceError as problem:
                problem.add_place(f"from row {done:,} on")
                raise
            done += len(batch)
            if sum(len(part.sample.numbers) for part in found) > 2 * self.share:
                found = [reduce(add, found)]
                threshold = found[0].sample.threshold
        return reduce(add, found).with_most(self.most) if found else None

    def _look(self, batch: Any, rng: np.random.Generator, threshold: float) -> Survey:
        evidence = self.reader.read(batch)
        observed = None
        if self.reader.observes:
            observed = Margins.of(self.reader.observe(batch, evidence), self.attributes)
        numbers = rng.random(len(batch))
        kept = np.flatnonzero((numbers < threshold) & (evidence.row_weights > 0))
        rows = pyarrow.Table.from_batches([batch]).take(pyarrow.array(kept))
        sample = RowSample(rows, numbers[kept], threshold, self.share)
        margins = Margins.of(evidence, self.attributes)
        return Survey(len(batch), count_weighted(evidence), margins, observed, sample)
