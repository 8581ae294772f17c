"""bylaw decide: decisions for a table of any size."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow
import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import progress, show_json, tell
from bylaw.cli.decision_columns import check_sets, set_as_text
from bylaw.cli.inputs import check_outputs, groups_of, policy_roles, table_of
from bylaw.data.column_roles import Roles
from bylaw.data.evidence import Evidence
from bylaw.data.table_files import detect_format, table_writer
from bylaw.errors import EvidenceError, OptionError
from bylaw.policy.policy import Policy


@takes_columns("id_column", "scores", "group", "group_probabilities", "reference", "normalize")
def decide(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the decisions.")],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also one column per action: its probability.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="Of the draws; by default the policy's hash. Keep one over releases.")
    ] = None,
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
    check_outputs([output], [policy, table])
    detect_format(output)
    chosen = Policy.load(policy)
    roles = policy_roles(chosen, table, flags, deciding=True)
    if roles.id is None:
        raise OptionError("draws are keyed by ids: say which column holds them, --id-column NAME")
    if roles.id == "decision":
        raise OptionError("the column of ids is called 'decision', as the decisions will be; rename it")
    text = detect_format(output) == "csv"
    if text and chosen.action_space.kind == "sets":
        check_sets(chosen)
    count = _write(_Decider(chosen, roles, key, probabilities, text), table, output)
    if as_json:
        show_json({"decisions": str(output), "rows": count, "policy": chosen.digest})
    else:
        tell(f"{count:,} decisions: {output}")


def _write(decider: _Decider, table: Path, output: Path) -> int:
    """How many rows were decided."""
    file, done = table_of(table, decider.roles, groups_of(decider.policy)), 0
    names = list(dict.fromkeys([decider.id, *decider.roles.needed]))
    batches = (batch for batch in file.batches(names) if len(batch))
    first = next(batches, None)
    if first is None:
        raise EvidenceError(f"{table} has no rows")
    with table_writer(output, decider.schema(first.schema)) as write, progress("rows", file.rows) as advance:
        for batch in chain([first], batches):
            try:
                write(decider.decided(batch))
            except EvidenceError as problem:
                raise EvidenceError(f"{table}, from row {done:,} on: {problem}") from None
            done += len(batch)
            advance(len(batch))
    return done


class _Decider:
    """From a batch of scores to a batch of decisions."""

    def __init__(
        self, policy: Policy, roles: Roles, key: str | None, probabilities: bool, text: bool
    ) -> None:
        self.policy, self.roles, self.key, self.probabilities = policy, roles, key, probabilities
        self.id = roles.id or ""
        self.sets, self.text = policy.action_space.kind == "sets", text

    def schema(self, given: Any) -> Any:
        """The ids as they came, decisions in the type of the actions: for sets, lists of labels or, in a CSV
        file, labels with semicolons between."""
        actions = pyarrow.array(self._values(list(self.policy.actions))).type
        if self.sets:
            actions = pyarrow.string() if self.text else pyarrow.list_(actions)
        ids = given.field(self.id).type
        ids = ids.value_type if pyarrow.types.is_dictionary(ids) else ids
        fields = [pyarrow.field(self.id, ids), pyarrow.field("decision", actions)]
        if self.probabilities:
            fields += [pyarrow.field(f"p_{action}", pyarrow.float64()) for action in self.policy.actions]
        return pyarrow.schema(fields)

    def decided(self, batch: Any) -> Any:
        schema, evidence = self.schema(batch.schema), self.roles.columns.evidence(batch)
        ids = batch.column(self.id).cast(schema.field(0).type)
        decisions = self.policy.decide(evidence, ids=ids, key=self.key)
        columns = [ids, self._column(decisions, schema.field("decision").type)]
        if self.probabilities:
            columns += [pyarrow.array(distribution) for distribution in self._distribution(evidence)]
        return pyarrow.record_batch(columns, schema=schema)

    def _distribution(self, evidence: Evidence) -> Any:
        """(n_actions, n_rows)."""
        return np.ascontiguousarray(self.policy.probabilities(evidence).T)

    def _column(self, decisions: Any, kind: Any) -> Any:
        if not self.sets:
            return pyarrow.array(self._values(decisions), kind)
        labels = np.array(self._values(list(self.policy.actions)), dtype=object)
        chosen = [labels[row].tolist() for row in decisions]
        return pyarrow.array([set_as_text(row) for row in chosen] if self.text else chosen, kind)

    def _values(self, values: Any) -> Any:
        """Text where actions have more than one type, as numbers beside "reject" have."""
        mixed = len({type(action) for action in self.policy.actions}) > 1
        return [str(value) for value in values] if mixed else values
