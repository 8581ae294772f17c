"""From Arrow batches to evidence and blocks, wherever they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from bylaw._base.typing import Value
from bylaw.errors import EvidenceError
from bylaw.program.blocks import Block, Layout, make_batch_blocks
from bylaw.program.dual import Pass, sum_blocks
from bylaw.program.linear_form import LinearForm, admit_values
from bylaw.rows.columns import Columns
from bylaw.rows.evidence import Evidence
from bylaw.rows.groups import KnownGroup
from bylaw.rows.outcomes import ObservedRows, observe


@dataclass(frozen=True)
class BatchReader:
    """Makes evidence of a batch, by the roles of its columns."""

    columns: Columns
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)  # of known groups, on all rows

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return list(dict.fromkeys([*self.columns.needed, *self.columns.outcomes]))

    @property
    def observes(self) -> bool:
        """Whether there are columns of labels or groups as they turned out."""
        return bool(self.columns.label or self.columns.true_groups)

    def read(self, batch: Any) -> Evidence:
        """Return the rows of a batch; groups have the values of all rows."""
        evidence = self.columns.evidence(batch)
        known = {
            name: admit_values(name, group, self.values[name])
            for name, group in evidence.groups.items()
            if isinstance(group, KnownGroup) and name in self.values
        }
        return evidence.with_columns(groups={**evidence.groups, **known}) if known else evidence

    def observe(self, evidence: Evidence) -> ObservedRows:
        """Return rows of this reader as observed; raise if labels or groups of some of them are missing."""
        rows = observe(evidence)
        missing = sorted(rows.seen) or sorted({*evidence.true_groups} - rows.observed)
        if missing or (evidence.labels is not None and "label" not in rows.observed):
            raise EvidenceError(
                f"some rows lack {missing[0] if missing else 'label'!r}; where rows are not in memory, what "
                "was observed must be there for all of them: leave out the others, or read the rows with "
                "labels into memory and solve with those"
            )
        known = {
            name: admit_values(name, group, self.values[name])
            for name, group in rows.groups.items()
            if isinstance(group, KnownGroup) and name in self.values
        }
        return rows.with_columns(groups={**rows.groups, **known})


class PartSums(NamedTuple):
    """What comes back from a partition."""

    rows: int
    sums: list[Any] | None  # None where it is empty


@dataclass(frozen=True)
class SumTask:
    """The sums of passes over the rows of a partition."""

    reader: BatchReader
    form: LinearForm
    layout: Layout | None  # of its features in cells
    observed: LinearForm | None  # compiled on what was observed
    seen_layout: Layout | None
    passes: tuple[Pass, ...]

    def __call__(self, partition: int, batches: Iterator[Any]) -> PartSums:
        rows, parts = 0, []
        for batch in batches:
            if not len(batch):
                continue
            rows += len(batch)
            if blocks := self._make_blocks(batch):
                parts.append(sum_blocks(blocks, self.passes))
        return PartSums(rows, reduce(add_all, parts) if parts else None)

    def _make_blocks(self, batch: Any) -> list[Block]:
        evidence = self.reader.read(batch)
        if evidence.weights is not None and not evidence.weights.any():
            return []
        blocks = make_batch_blocks(self.form, evidence, self.layout)
        if self.observed is None:
            return blocks
        twins = make_batch_blocks(self.observed, self.reader.observe(evidence), self.seen_layout)
        return [block.with_observed(twin) for block, twin in zip(blocks, twins, strict=True)]


def add_all(one: list[Any], other: list[Any]) -> list[Any]:
    """Sums of several passes over different rows."""
    return list(map(add, one, other))
