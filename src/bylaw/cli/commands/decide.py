"""bylaw decide: decisions for a table of any size."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import remark, show_json, show_progress, tell
from bylaw.cli.keys import Key, KeyFile, read_key
from bylaw.cli.standard_streams import STREAM, Format, check_streams, open_streams
from bylaw.errors import EvidenceError, OptionError

if TYPE_CHECKING:
    from bylaw.cli.decision_columns import ActionColumn, SetColumn
    from bylaw.data.column_roles import Roles
    from bylaw.policy.policy import Policy


@takes_columns("id_column", "scores", "group", "group_probabilities", "reference", "normalize")
def run_decide(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the decisions.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also one column per action: its probability.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Also this column of the table, as it is; may be repeated."),
    ] = None,
    format_: Format = None,
    key: Key = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Decide every row: the ids, and a column `decision`.

    Draws are keyed by id: the same id gets the same decision, in any batch and on any machine. The table is
    read and written in batches, and the output appears when it is whole. The table and the output may be -,
    standard input and standard output.

    [bold]Examples[/bold]

      bylaw decide policy.json new.parquet --id-column id -o decisions.parquet

      bylaw decide policy.json new.csv.gz -o decisions.csv.gz --probabilities --keep region

      bylaw decide policy.json - -o - --format csv < new.csv > decisions.csv
    """
    from bylaw.cli.inputs import check_outputs
    from bylaw.data.table_files import detect_format
    from bylaw.policy.policy import Policy

    check_streams(table, output, format_, {"the policy": policy, "--key-file": key_file}, as_json)
    check_outputs(
        [None if output == STREAM else output], [policy, None if table == STREAM else table, key_file]
    )
    secret = read_key(key, key_file)
    if output != STREAM:
        detect_format(output)  # before anything is read
    chosen = Policy.load(policy)
    with open_streams(table, output, format_) as (source, target):
        decider = _make_decider(chosen, source, target, flags, secret, probabilities, keep or ())
        count = _write_decisions(decider, source, target)
    if as_json:
        show_json({"decisions": str(output), "rows": count, "policy": chosen.digest})
    elif output == STREAM:
        remark(f"{count:,} decisions")
    else:
        tell(f"{count:,} decisions: {output}")


def _make_decider(
    policy: Policy,
    table: Path,
    output: Path,
    flags: Flags,
    key: str | None,
    probabilities: bool,
    keep: Sequence[str],
) -> _Decider:
    """With the roles of the table's columns, and names of the output's that differ."""
    from bylaw.cli.decision_columns import make_decision_column
    from bylaw.cli.inputs import find_policy_roles
    from bylaw.data.table_files import TableFile, detect_format

    as_text = detect_format(output) == "csv"
    column = make_decision_column(policy, as_text=as_text)
    roles = find_policy_roles(policy, table, flags, deciding=True)
    if roles.id is None:
        raise OptionError("draws are keyed by ids: name their column with --id-column NAME")
    if roles.id == "decision":
        raise OptionError("the column of ids is called 'decision', as the decisions will be; rename it")
    taken = [roles.id, "decision", *(f"p_{action}" for action in policy.actions if probabilities)]
    names = TableFile(table).names
    for name in keep:
        if name not in names:
            raise OptionError(f"--keep {name}: {table} has no column {name!r}; it has {names}")
        if name in taken:
            raise OptionError(f"--keep {name}: the output has a column {name!r} anyway")
        taken.append(name)
    return _Decider(policy, roles, column, key, probabilities, tuple(keep), as_text)


def _write_decisions(decider: _Decider, table: Path, output: Path) -> int:
    """How many rows were decided."""
    from bylaw.cli.inputs import list_group_values, open_table
    from bylaw.data.background_io import read_ahead, write_behind
    from bylaw.data.table_files import open_writer

    file, done = open_table(table, decider.roles, list_group_values(decider.policy), decider.keep), 0
    names = list(dict.fromkeys([decider.id, *decider.keep, *decider.roles.needed]))
    with contextlib.ExitStack() as stack:
        batches = stack.enter_context(read_ahead(batch for batch in file.batches(names) if len(batch)))
        first = next(batches, None)
        if first is None:
            raise EvidenceError(f"{table} has no rows")
        append = stack.enter_context(open_writer(output, decider.make_schema(first.schema)))
        write = stack.enter_context(write_behind(append))
        advance = stack.enter_context(show_progress("rows", file.rows))
        for batch in chain([first], batches):
            try:
                decided = decider.decide(batch)
            except EvidenceError as problem:
                problem.add_place(f"{table}, from row {done:,} on")
                raise
            write(decided)
            done += len(batch)
            advance(len(batch))
    return done


@dataclass(frozen=True)
class _Decider:
    """From a batch of scores to a batch of decisions."""

    policy: Policy
    roles: Roles
    column: ActionColumn | SetColumn
    key: str | None
    probabilities: bool
    keep: tuple[str, ...]
    as_text: bool  # the output has no lists

    @property
    def id(self) -> str:
        return self.roles.id or ""

    def make_schema(self, given: Any) -> Any:
        """The ids and the columns to keep as they came, the decisions, and the probability of each action if
        it is asked for."""
        import pyarrow

        kept = [pyarrow.field(name, self._find_type(given.field(name))) for name in (self.id, *self.keep)]
        fields = [kept[0], pyarrow.field("decision", self.column.arrow_type)]
        if self.probabilities:
            fields += [pyarrow.field(f"p_{action}", pyarrow.float64()) for action in self.policy.actions]
        return pyarrow.schema([*fields, *kept[1:]])

    def _find_type(self, field: Any) -> Any:
        """What a column is written as: values, where it came as codes of them."""
        from pyarrow import types

        if self.as_text and types.is_nested(field.type):
            raise OptionError(
                f"--keep {field.name}: a CSV file has no {field.type}; write .parquet or .jsonl"
            )
        return field.type.value_type if types.is_dictionary(field.type) else field.type

    def decide(self, batch: Any) -> Any:
        """A record batch of decisions."""
        import pyarrow

        schema, evidence = self.make_schema(batch.schema), self.roles.columns.evidence(batch)
        ids, *kept = (batch.column(name).cast(schema.field(name).type) for name in (self.id, *self.keep))
        columns = [ids, self.column.write(self.policy.decide_positions(evidence, ids=ids, key=self.key))]
        if self.probabilities:
            columns += [pyarrow.array(chance.copy()) for chance in self.policy.probabilities(evidence).T]
        return pyarrow.record_batch([*columns, *kept], schema=schema)
