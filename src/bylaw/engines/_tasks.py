"""Tasks on the Arrow batches of a partition: sum passes over its rows, sample them, and survey them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np

from bylaw._base import Floats, Value
from bylaw.errors import EvidenceError
from bylaw.program import Layout, LinearForm, Pass, Sums, admit_values, make_batch_blocks, sum_blocks
from bylaw.rows import Columns, Evidence, Margins, ObservedRows, RowData, observe

Rows = TypeVar("Rows", bound=RowData)
_LEAST_SHARE = (
    256  # the smallest sample of a partition; with thousands of partitions, all samples go to the client
)
_SPARE = 4  # factor by which a partition's sample exceeds its share, as partitions differ in size


@dataclass(frozen=True)
class BatchReader:
    """A reader that converts a batch to evidence by the roles of its columns."""

    columns: Columns
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)  # of known groups

    @property
    def observes(self) -> bool:
        """Whether there are columns of observed labels or groups."""
        return bool(self.columns.label or self.columns.true_groups)

    def read(self, batch: Any) -> Evidence:
        """Return the rows of a batch as evidence; groups have the values that occur on all rows."""
        return self._admit(self.columns.evidence(batch))

    def observe(self, evidence: Evidence) -> ObservedRows:
        """Return evidence with observed labels and groups in place of predictions.

        Raise an `EvidenceError` if labels or groups are missing on some rows.
        """
        rows = observe(evidence)
        missing = sorted(rows.seen) or sorted({*evidence.true_groups} - rows.observed)
        if missing or (evidence.labels is not None and "label" not in rows.observed):
            raise EvidenceError(
                f"{missing[0] if missing else 'label'!r} must be observed on all rows if these are not in "
                "memory, but is missing on some; leave these rows out, or read the rows with observed values "
                "into memory and solve with them"
            )
        return self._admit(rows)

    def _admit(self, rows: Rows) -> Rows:
        known = {
            n: admit_values(n, g, self.values[n]) for n, g in rows.known_groups.items() if n in self.values
        }
        return rows.with_columns(groups={**rows.groups, **known})


def sum_rows(
    partition: int,
    batches: Iterator[Any],
    *,
    reader: BatchReader,
    form: LinearForm,
    layout: Layout | None,
    observed: LinearForm | None,
    seen_layout: Layout | None,
    passes: tuple[Pass, ...],
) -> tuple[int, list[Any] | None]:
    """Return the number of rows of a partition, and the sums of passes over them, None if it has no rows.

    `layout` is the layout of the features in cells, and `seen_layout` the same for the problem on observed
    columns.
    """
    n_rows, parts = 0, []
    for batch in batches:
        n_rows += len(batch)
        evidence = reader.read(batch) if len(batch) else None
        if evidence is None or not evidence.row_weights.any():
            continue
        blocks = make_batch_blocks(form, evidence, layout)
        if observed is not None:
            twins = make_batch_blocks(observed, reader.observe(evidence), seen_layout)
            blocks = [block.with_observed(twin) for block, twin in zip(blocks, twins, strict=True)]
        parts.append(sum_blocks(blocks, passes))
    return n_rows, reduce(add_all, parts) if parts else None


def add_all(one: list[Any], other: list[Any]) -> list[Any]:
    """Add the sums of several passes over different rows."""
    return list(map(add, one, other))


@dataclass(frozen=True)
class RowSample:
    """A random sample: the rows whose random number is below a threshold.

    All rows are equally likely to be in it. Samples of different rows can be added.
    """

    rows: Any  # an Arrow table
    numbers: Floats  # (n_rows,): random numbers from 0 to 1
    threshold: float
    most: int  # the largest number of rows to keep

    def __add__(self, other: RowSample) -> RowSample:
        import pyarrow

        numbers = np.concatenate([self.numbers, other.numbers])
        threshold, most = min(self.threshold, other.threshold), max(self.most, other.most)
        rows = pyarrow.concat_tables([self.rows, other.rows], promote_options="permissive")
        return RowSample(rows, numbers, threshold, most).cut()

    def cut(self) -> RowSample:
        """Return the rows below the threshold, after lowering it if there are more than `most`."""
        numbers, threshold = self.numbers, self.threshold
        if (numbers < threshold).sum() > self.most:
            threshold = float(np.partition(numbers, self.most)[self.most])
        kept = np.flatnonzero(numbers < threshold)
        return RowSample(self.rows.take(kept), numbers[kept], threshold, self.most)


@dataclass
class Sampler:
    """A random sampler of rows; `start` returns a sampler of one partition."""

    seed: int
    share: int  # the largest number of rows from one partition
    most: int  # the largest number of rows in the whole sample
    threshold: float = 1.0  # rows with a larger random number are left out
    rng: np.random.Generator | None = None  # of one partition
    kept: list[RowSample] = field(default_factory=list)

    @classmethod
    def of(cls, most: int, n_rows: int | None, n_partitions: int, seed: int) -> Sampler:
        """Return a sampler of at most `most` rows from partitions that may differ in size."""
        share = min(max(_SPARE * most // max(n_partitions, 1), _LEAST_SHARE), most)
        return cls(seed, share, most, min(_SPARE * most / n_rows, 1.0) if n_rows else 1.0)

    def start(self, partition: int) -> Sampler:
        """Return a sampler of one partition."""
        return replace(self, rng=np.random.default_rng([self.seed, partition]), kept=[])

    def take(self, batch: Any, weights: Floats | None = None) -> None:
        """Add a random sample of a batch, without rows of weight zero."""
        import pyarrow

        assert self.rng is not None
        numbers = self.rng.random(len(batch))
        wanted = numbers < self.threshold
        here = np.flatnonzero(wanted if weights is None else wanted & (weights > 0))
        rows = pyarrow.Table.from_batches([batch]).take(here)
        self.kept.append(RowSample(rows, numbers[here], self.threshold, self.share).cut())
        if sum(len(part.numbers) for part in self.kept) > 2 * self.share:
            self.kept = [reduce(add, self.kept)]
            self.threshold = self.kept[0].threshold

    def finish(self) -> RowSample | None:
        """Return the sample of the partition; None if it has no rows."""
        return replace(reduce(add, self.kept), most=self.most) if self.kept else None


def sample_rows(partition: int, batches: Iterator[Any], *, plan: Sampler) -> RowSample | None:
    """Return a random sample of the rows of a partition."""
    sampler = plan.start(partition)
    for batch in batches:
        if len(batch):
            sampler.take(batch)
    return sampler.finish()


@dataclass(frozen=True)
class Survey(Sums):
    """The number of rows, the frequencies of events, and a sample; surveys of different rows can be added."""

    n_rows: int
    n_weighted: int  # rows with positive weight
    margins: Margins
    observed: Margins | None
    sample: RowSample | None = None


def survey_rows(
    partition: int, batches: Iterator[Any], *, reader: BatchReader, attributes: list[str], plan: Sampler
) -> Survey | None:
    """Return a survey of the rows of a partition, for the attributes that rules refer to."""
    sampler, parts, n_rows = plan.start(partition), list[Survey](), 0
    for batch in batches:
        if not len(batch):
            continue
        try:
            evidence = reader.read(batch)
            observed = Margins.of(reader.observe(evidence), attributes) if reader.observes else None
            weighted = int(np.count_nonzero(evidence.row_weights))
            parts.append(Survey(len(batch), weighted, Margins.of(evidence, attributes), observed))
        except EvidenceError as problem:
            problem.add_place(f"from row {n_rows:,} on")
            raise
        sampler.take(batch, evidence.weights)
        n_rows += len(batch)
    return replace(reduce(add, parts), sample=sampler.finish()) if parts else None
