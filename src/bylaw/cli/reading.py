"""How tables come into memory: all of their rows, or a random sample where they are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bylaw.backends import scan
from bylaw.backends.files import TableFiles
from bylaw.cli.console import remark, show_passes
from bylaw.data.columns import Columns
from bylaw.data.table_files import TableFile, detect_format, name_table
from bylaw.errors import EvidenceError


@dataclass(frozen=True)
class Reading:
    """How rows are read; each command says which of its options helps where they are too many."""

    help: str = "give fewer of them"
    sample: int | None = None  # rows
    seed: int = 0
    unlimited: bool = False  # whoever asks for all rows gets them

    def read(self, file: TableFile, columns: Sequence[str]) -> Any:
        """Some columns as an Arrow table. Of one table and one sample, it is always the same rows."""
        if self.sample is not None:
            return self._sample(file, columns, self.sample)
        if self.unlimited:
            return file.read(columns)
        memory, rows = scan.find_memory(), f"{file.path} has about {file.estimate_rows():,} rows"
        if is_large(file, columns):
            needed = file.estimate_rows() * len(columns) * scan.VALUE_BYTES * scan.MEMORY_FACTOR
            raise EvidenceError(
                f"{rows}, too many to be read into memory for this; {self.help}. They would take about "
                f"{needed / 1e9:,.1f} GB, and {memory / 1e9:,.1f} GB may be taken"
            )
        try:  # texts may be longer than the numbers that the estimate supposes
            return file.read(columns, memory / scan.MEMORY_FACTOR)
        except MemoryError:
            raise EvidenceError(
                f"{rows}, whose columns are too large to be read into memory for this "
                f"({memory / 1e9:,.1f} GB may be taken); {self.help}"
            ) from None

    def _sample(self, file: TableFile, columns: Sequence[str], n_rows: int) -> Any:
        raw = file
        if detect_format(file.files[0]) == "csv":  # what text stands for is told by all rows of the sample
            raw = replace(file, text=[*file.text, *file.values], values={})
        engine = TableFiles.of(raw.split(columns), str(file.path))
        with show_passes("sampling") as progress:
            rows = scan.Scan(engine, Columns(columns), progress).sample_table(n_rows, self.seed)
        if len(rows) == n_rows:
            remark(f"{name_table(file.path)}: a random sample of {n_rows:,} rows")
        return file.parse_values(rows)


def is_large(file: TableFile, columns: Sequence[str]) -> bool:
    """Whether these columns are more than should be in memory at once."""
    return file.estimate_rows() * len(columns) > scan.count_most_values()
