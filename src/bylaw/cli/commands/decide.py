"""bylaw decide: decisions for a table of any size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import Flags, takes_columns
from bylaw.cli.console import remark, show_json, show_progress, tell
from bylaw.cli.keys import Key, KeyFile, read_key
from bylaw.cli.standard_streams import STREAM, Format, check_streams, find_file, name_output, open_streams
from bylaw.errors import EvidenceError, OptionError

if TYPE_CHECKING:
    from bylaw.cli.decider import Decider
    from bylaw.cli.inputs import Previous
    from bylaw.data.table_files import TableFile
    from bylaw.policy.policy import Policy


@takes_columns("id_column", "scores", "group", "group_probabilities", "reference", "normalize", streams=False)
def run_decide(
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the decisions.")],
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities", help="Also one column per action, decision_p_ACTION: its probability."
        ),
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Also this column of the table, as it is; may be repeated."),
    ] = None,
    format_: Format = None,
    key: Key = None,
    key_file: KeyFile = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew in a folder with decisions of another run.")
    ] = False,
    unseen: Annotated[
        str,
        typer.Option(
            help="Groups that the fit never saw: 'fail' refuses the table, 'refer' rejects such rows.",
        ),
    ] = "fail",
    repeated_ids: Annotated[
        bool, typer.Option("--repeated-ids", help="An id may be in several rows, which share their draw.")
    ] = False,
    previous: options.Previous = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
) -> None:
    """Decide every row: the ids, and a column `decision`.

    Draws are keyed by id: the same id gets the same decision, in any batch and on any machine. The table is
    read and written in batches, and the output appears when it is whole. The table and the output may be -,
    standard input and standard output.

    The decisions of a folder go to one file, or to a folder with one part for each of its files. A run that
    was stopped there goes on when the command is given again: parts that are complete are skipped.

    [bold]Examples[/bold]

      bylaw decide policy.json new.parquet --id-column id -o decisions.parquet

      bylaw decide policy.json new.csv.gz -o decisions.csv.gz --probabilities --keep region

      bylaw decide policy.json - -o - --format csv < new.csv > decisions.csv

      bylaw decide policy.json new/ -o decisions/
    """
    from bylaw._base.validation import check_choice
    from bylaw.cli.inputs import check_outputs, load_previous
    from bylaw.data.table_files import detect_format
    from bylaw.policy.policy import Policy

    parts = _is_folder(table, output)
    check_streams(
        table, output, format_, {"the policy": policy, "--key-file": key_file}, as_json, parts=parts
    )
    inputs = [policy, None if table == STREAM else table, key_file]
    check_outputs([find_file(output)], inputs)
    if not parts:
        options.refuse_idle({"--overwrite": overwrite}, "a folder of parts")
        if output != STREAM:
            detect_format(output)  # before anything is read
    refers = check_choice(unseen, "--unseen", ("fail", "refer")) == "refer"
    chosen = Policy.load(policy)
    written = (probabilities, tuple(keep or ()), load_previous(previous, chosen))
    stated = _Options(flags, read_key(key, key_file), *written, refers, repeated_ids)
    if parts:
        _decide_parts(chosen, table, output, stated, format_, overwrite, as_json)
        return
    with open_streams(table, output, format_) as (source, target):
        decider = _make_decider(chosen, source, stated, as_text=detect_format(target) == "csv")
        count = _write_file(decider, source, target, repeated_ids)
        _tell_unseen(decider)
        if as_json:
            show_json({"decisions": str(output), "rows": count, **_count(decider), "policy": chosen.digest})
        else:
            tell(f"{count:,} decisions: {name_output(output)}")


@dataclass(frozen=True)
class _Options:
    """What the command line states of decisions."""

    flags: Flags
    key: str | None
    probabilities: bool
    keep: tuple[str, ...]
    previous: Previous | None
    refers: bool  # rows of groups that were never seen
    repeated_ids: bool


def _count(decider: Decider) -> dict[str, int]:
    """For machines."""
    return {"unseen": decider.unseen} if decider.refers else {}


def _tell_unseen(decider: Decider) -> None:
    if decider.unseen:
        remark(f"{decider.unseen:,} rows of groups that the policy never saw are referred")


def _is_folder(table: Path, output: Path) -> bool:
    """Whether each file of the table gets a part of its own."""
    from bylaw.data.table_files import find_suffix, is_many

    if STREAM in (table, output) or not is_many(table):
        return False
    return output.is_dir() or find_suffix(output) is None


def _make_decider(policy: Policy, table: Path, stated: _Options, *, as_text: bool) -> Decider:
    """With the roles of the table's columns, and names of the output's that differ."""
    from bylaw.cli.decider import Decider, name_probability
    from bylaw.cli.decision_columns import make_decision_column
    from bylaw.cli.inputs import find_policy_roles
    from bylaw.data.table_files import TableFile

    column = make_decision_column(policy, as_text=as_text)
    roles = find_policy_roles(policy, table, stated.flags, deciding=True, previous=stated.previous)
    if roles.id is None:
        raise OptionError("draws are keyed by ids: name their column with --id-column NAME")
    if roles.id == "decision":
        raise OptionError("the column of ids is called 'decision', as the decisions will be; rename it")
    taken = [roles.id, "decision"]
    taken += [name_probability(action) for action in policy.actions if stated.probabilities]
    names = TableFile(table).names
    for name in stated.keep:
        if name not in names:
            raise OptionError(f"--keep {name}: {table} has no column {name!r}; it has {names}")
        if name in taken:
            raise OptionError(f"--keep {name}: the output has a column {name!r} anyway")
        taken.append(name)
    written = (stated.key, stated.probabilities, stated.keep, as_text)
    return Decider(policy, roles, column, *written, stated.previous, stated.refers)


def _write_file(decider: Decider, table: Path, output: Path, repeated: bool) -> int:
    """All decisions in one file; how many they are."""
    file = decider.open(table)
    with show_progress("rows", file.rows) as advance:
        return _write_decisions(decider, file.split(decider.names), output, advance, repeated)


def _decide_parts(
    policy: Policy,
    table: Path,
    output: Path,
    stated: _Options,
    format_: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """One part for each file; those that are complete already are skipped."""
    from bylaw.cli.decision_folder import DecisionFolder, Settings, name_parts
    from bylaw.data.table_files import detect_format, look_at

    targets = name_parts(table, format_)
    decider = _make_decider(policy, table, stated, as_text=detect_format(Path(next(iter(targets)))) == "csv")
    columns, written = decider.roles.to_dict(), (stated.probabilities, stated.keep, format_)
    settings = Settings(policy.digest, columns, *written, stated.key, "refer" if stated.refers else None)
    folder = DecisionFolder.open(output, table, list(targets), settings, overwrite)
    file, skipped = decider.open(table), 0
    parts = {part.path: part for part in file.split(decider.names)}
    with show_progress("rows", file.rows) as advance:
        for name, source in targets.items():
            if (rows := folder.find_rows(name, source)) is not None:
                skipped += 1
                advance(rows)
                continue
            state = look_at(source)
            part, repeated = [parts[source]], stated.repeated_ids
            count = _write_decisions(decider, part, folder.prepare(name), advance, repeated, empty=True)
            folder.finish(name, source, state, count)
    _tell_unseen(decider)
    if skipped:
        remark(f"{skipped:,} of {len(targets):,} parts were complete already and are skipped")
    if as_json:
        counts = {"rows": folder.count_rows(targets), "parts": len(targets), "skipped": skipped}
        show_json({"decisions": str(output), **counts, **_count(decider), "policy": policy.digest})
    else:
        tell(f"{folder.count_rows(targets):,} decisions in {len(targets):,} parts: {output}")


class _Piece(NamedTuple):
    """A batch, and where it is from."""

    place: str
    batch: Any


def _read_files(files: Sequence[TableFile], names: Sequence[str]) -> Generator[_Piece, None, None]:
    """Batches of one file after the other; an error if one of them changes meanwhile."""
    from bylaw.data.table_files import check_unchanged, look_at

    for file in files:
        state, row = look_at(file.path), 0
        for batch in file.batches(names):
            if len(batch):
                yield _Piece(f"{file.path}, from row {row:,} on", batch)
            row += len(batch)
        check_unchanged(file.path, state)


def _write_decisions(
    decider: Decider,
    files: Sequence[TableFile],
    output: Path,
    advance: Callable[[int], None],
    repeated: bool,
    *,
    empty: bool = False,
) -> int:
    """How many rows were decided; `repeated` if an id may be in several of them, `empty` if there may be
    none."""
    from bylaw.cli.repeated_ids import IdOrder, refuse_repeated
    from bylaw.data.background_io import read_ahead, write_behind
    from bylaw.data.table_files import open_writer

    order = IdOrder()
    with contextlib.ExitStack() as stack:
        pieces = stack.enter_context(read_ahead(_read_files(files, decider.names)))
        first = next(pieces, None)
        if first is None and not empty:
            raise EvidenceError(f"{files[0].path}{' and others have' if files[1:] else ' has'} no rows")
        given = files[0].read(decider.names).schema if first is None else first.batch.schema
        append = stack.enter_context(open_writer(output, decider.make_schema(given)))
        write = stack.enter_context(write_behind(append))
        for piece in chain([] if first is None else [first], pieces):
            try:
                decided = decider.decide(piece.batch)
            except EvidenceError as problem:
                problem.add_place(piece.place)
                raise
            write(decided)
            order.add(piece.batch.column(decider.id))
            advance(len(piece.batch))
        if decider.policy.lottery and not (order.rises or repeated):
            refuse_repeated(files, decider.id, order.rows)  # before the output appears
    return order.rows
