"""Rows of tables that do not fit in memory: commands go over them, and see their sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bylaw.backends.scan import Scan, Watcher, scan
from bylaw.cli.column_flags import Flags
from bylaw.cli.console import remark
from bylaw.cli.inputs import InputRows, Measured, list_group_values, open_table
from bylaw.cli.reading import is_large
from bylaw.data.column_roles import Roles
from bylaw.data.evidence import Evidence
from bylaw.data.outcomes import observe
from bylaw.data.table_files import name_table
from bylaw.errors import OptionError
from bylaw.language.problem import Problem
from bylaw.policy.policy import Policy
from bylaw.testing import compare_scanned_costs, is_observed

SAMPLE_ROWS = 1_000_000  # of a report


def choose_scan(asked: bool | None, path: Path, roles: Roles) -> bool:
    """Whether to go over the rows instead of reading them: as was asked, or where they are many."""
    if asked is not None:
        return asked
    names = list(dict.fromkeys([*roles.needed, *roles.columns.outcomes]))
    large = is_large(open_table(path, roles, {}), names)
    if large:
        remark(f"{name_table(path)} is too large to be read at once: its rows are scanned (--in-memory)")
    return large


@dataclass(frozen=True)
class ScannedRows:
    """A table that is read again for each pass, by the roles of its columns."""

    source: Scan
    roles: Roles
    scanned: ClassVar[bool] = True
    outcomes: ClassVar[Mapping[str, Any]] = {}  # columns of the scan
    seen_rows: ClassVar[Mapping[str, int]] = {}  # every label is there, or the scan is refused

    @classmethod
    def open(cls, path: Path, roles: Roles, progress: Watcher | None) -> ScannedRows:
        columns = replace(roles.columns, seen_weights=None)
        return cls(scan(path, columns, progress=progress), roles)

    def check_seen_weights(self, flags: Flags) -> None:
        """An error if they were asked for."""
        if flags.seen_weights is not None:
            raise OptionError(
                "--seen-weights needs rows in memory: where they are scanned, all labels must be there; pass "
                "--in-memory"
            )

    def describe(self, problem: Problem) -> Evidence:
        """Rows with the classes and the groups of all."""
        return self.source.survey(problem).evidence

    def measure(self, policy: Policy) -> Measured:
        """What the policy costs on all rows."""
        rows = self.source.survey(policy.problem)
        seen = observe(rows.evidence) if rows.observed is None else rows.observed
        observed = is_observed(policy.problem.minimize, seen, policy.action_space)
        return Measured(*compare_scanned_costs(policy, rows), observed)

    def sample(self, policy: Policy) -> InputRows:
        """Rows for a report, which needs them in memory."""
        found = self.source.sample(SAMPLE_ROWS, values=list_group_values(policy))
        if len(found.evidence) == SAMPLE_ROWS:
            remark(f"the report goes by a random sample of {SAMPLE_ROWS:,} rows")
        return InputRows(found.evidence, self.roles, found.labels, found.groups)
