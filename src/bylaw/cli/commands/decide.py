"""bylaw decide: decisions for a table of any size."""

from __future__ import annotations

import contextlib
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import show_json, show_progress, tell
from bylaw.cli.keys import Key, KeyFile, read_key
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
    key: Key = None,
    key_file: KeyFile = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Decide every row: the ids, and a column `decision`.

    Draws are keyed by id: the same id gets the same decision, in any batch and on any machine. The table is
    read and written in batches, and the output appears when it is whole.

    [bold]Examples[/bold]

      bylaw decide policy.json new.parquet --id-column id -o decisions.parquet

      bylaw decide policy.json new.csv -o decisions.csv --probabilities
    """
    from bylaw.cli.decision_columns import make_decision_column
    from bylaw.cli.inputs import check_outputs, find_policy_roles
    from bylaw.data.table_files import detect_format
    from bylaw.policy.policy import Policy

    check_outputs([output], [policy, table, *([] if key_file is None else [key_file])])
    secret = read_key(key, key_file)
    as_text = detect_format(output) == "csv"
    chosen = Policy.load(policy)
    column = make_decision_column(chosen, as_text=as_text)
    roles = find_policy_roles(chosen, table, flags, deciding=True)
    if roles.id is None:
        raise OptionError("draws are keyed by ids: name their column with --id-column NAME")
    if roles.id == "decision":
        raise OptionError("the column of ids is called 'decision', as the decisions will be; rename it")
    count = _write_decisions(_Decider(chosen, roles, column, secret, probabilities), table, output)
    if as_json:
        show_json({"decisions": str(output), "rows": count, "policy": chosen.digest})
    else:
        tell(f"{count:,} decisions: {output}")


def _write_decisions(decider: _Decider, table: Path, output: Path) -> int:
    """How many rows were decided."""
    from bylaw.cli.inputs import list_group_values, open_table
    from bylaw.data.background_io import read_ahead, write_behind
    from bylaw.data.table_files import open_writer

    file, done = open_table(table, decider.roles, list_group_values(decider.policy)), 0
    names = list(dict.fromkeys([decider.id, *decider.roles.needed]))
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


class _Decider:
    """From a batch of scores to a batch of decisions."""

    def __init__(
        self,
        policy: Policy,
        roles: Roles,
        column: ActionColumn | SetColumn,
        key: str | None,
        probabilities: bool,
    ) -> None:
        self.policy, self.roles, self.column, self.key = policy, roles, column, key
        self.probabilities = probabilities
        self.id = roles.id or ""

    def make_schema(self, given: Any) -> Any:
        """The ids as they came, the decisions, and the probability of each action if it is asked for."""
        import pyarrow

        ids = given.field(self.id).type
        ids = ids.value_type if pyarrow.types.is_dictionary(ids) else ids
        fields = [pyarrow.field(self.id, ids), pyarrow.field("decision", self.column.arrow_type)]
        if self.probabilities:
            fields += [pyarrow.field(f"p_{action}", pyarrow.float64()) for action in self.policy.actions]
        return pyarrow.schema(fields)

    def decide(self, batch: Any) -> Any:
        """A record batch of decisions."""
        import pyarrow

        schema, evidence = self.make_schema(batch.schema), self.roles.columns.evidence(batch)
        ids = batch.column(self.id).cast(schema.field(0).type)
        columns = [ids, self.column.write(self.policy.decide_positions(evidence, ids=ids, key=self.key))]
        if self.probabilities:
            columns += [pyarrow.array(chance.copy()) for chance in self.policy.probabilities(evidence).T]
        return pyarrow.record_batch(columns, schema=schema)
