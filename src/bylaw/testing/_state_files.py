"""Files with the state of a monitor: a JSON file and, if rows have ids, a file of these rows beside it.

The name of the file of rows depends on its content. It is written first; the JSON file that refers to it then
replaces the old one in one step, and only then the old file of rows is removed. After an interruption, the
files contain the state before the last batch, or after it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bylaw._base import BadValueError, Floats, Node, read_json, write_atomically, write_text
from bylaw.errors import OptionError, PolicyFileError
from bylaw.language import renew_text
from bylaw.policy import Policy, compute_digest
from bylaw.testing._rounds import Events
from bylaw.testing._verdicts import to_plain
from bylaw.testing._watched_rows import UNKNOWN, WatchedRows
from bylaw.testing._watched_rule import Point, RuleState, WatchedRule
from bylaw.testing._wealth import N_ALTERNATIVES, Wealth

if TYPE_CHECKING:
    from bylaw.testing._monitor import Monitor

FORMAT = "bylaw-monitor"
VERSION = 3
_PLAIN_ROWS = 8  # rows of a round about one event in version 2
_MONEY = ("ever", "change", "product", "inverses")
_ROUNDING = 1e-6  # tolerance for rounded probabilities


def save_state(monitor: Monitor, path: Path) -> None:
    """Write the state of a monitor to a file; an existing file stays until the new one is complete."""
    rows = pack_rows(monitor)
    digest = hashlib.sha256(rows).hexdigest() if rows else ""
    if rows:
        with write_atomically(_name_rows(path, digest), private=True) as partial:
            partial.write_bytes(rows)
    content = {"format": FORMAT, "version": VERSION, **state_to_dict(monitor), "row_file": digest}
    whole = {**content, "checksum": compute_digest(content)}
    write_text(path, json.dumps(whole, allow_nan=False, separators=(",", ":")) + "\n", private=True)
    for old in path.parent.glob(f"{escape(path.name)}-rows-{'?' * 12}.npz"):
        if not rows or old != _name_rows(path, digest):
            old.unlink(missing_ok=True)


def _name_rows(path: Path, digest: str) -> Path:
    return path.with_name(f"{path.name}-rows-{digest[:12]}.npz")


def state_to_dict(monitor: Monitor) -> dict[str, Any]:
    """Return the state of a monitor, except for rows with ids, as plain values."""
    own, watched = monitor.problem is monitor.policy.problem, []
    for state, rule in zip(monitor.states, monitor.watched, strict=True):
        parts = {"rule": str(rule.hypothesis.rule), **vars(state), **vars(state.wealth)}
        left_out = ["wealth", *(() if state.wealth.rounds else _MONEY)]
        left_out += [] if state.guess.size else ["guess", "marks"]
        watched.append({name: part for name, part in parts.items() if name not in left_out})
    content = {
        "policy": monitor.policy.digest,
        "ever": monitor.ever,
        "run_length": monitor.run_length,
        "unit": monitor.unit,
        "limits": monitor.limits,
        "rules": None if own else [str(rule) for rule in monitor.problem.rules],
        "groups": monitor.groups,
        "rows": monitor.rows,
        "decided": monitor.decided,
        "batches": monitor.batches,
        "log": monitor.log,
        "watched": watched,
    }
    return to_plain(content)


def load_state(path: Path, policy: Policy) -> Monitor:
    """Load a monitor that was saved for this policy; any error in a file raises a `PolicyFileError`."""
    return read_json(path, "a monitor", lambda root: _read(root, path, policy))


def _read(root: Node, path: Path, policy: Policy) -> Monitor:
    from bylaw.testing._monitor import Monitor, Update

    root.check_version(FORMAT, VERSION, oldest=2)
    earlier = root["version"].value == 2
    content = {name: value for name, value in root.value.items() if name != "checksum"}
    if root["checksum"].text() != compute_digest(content):
        raise BadValueError("its content does not match its checksum")
    root.check_sizes()
    if root["policy"].text() != policy.digest:
        raise PolicyFileError(
            f"{path} watches another policy: its policy must have the hash {policy.digest[:12]}, got "
            f"{root['policy'].text()[:12]}; start a new monitor for this policy"
        )
    rules = None if root["rules"].value is None else [rule.text() for rule in root["rules"].list()]
    try:
        monitor = Monitor(
            policy,
            ever=root["ever"].positive(),
            run_length=root["run_length"].positive(),
            rules=rules,
            limits={name: tuple(node.vector(2).tolist()) for name, node in root["limits"].items()},
            groups={name: [value.scalar() for value in node.list()] for name, node in root["groups"].items()},
            unit="rows" if earlier else root["unit"].text(),
        )
    except OptionError as problem:
        raise BadValueError(str(problem)) from None
    monitor.rows = root["rows"].count()
    monitor.decided = root["decided"].one_of([None, True, False])
    monitor.batches = tuple(name.text() for name in root["batches"].list())
    updates = [_list_values(node, len(Update._fields)) for node in root["log"].list()]
    monitor.log = tuple(
        Update(time.text(), _read_place(rows, monitor.rows), alarm.one_of([False, True]))
        for time, rows, alarm in updates
    )
    saved = root["watched"].list()
    if [renew_text(node["rule"].text()) for node in saved] != [
        str(rule.hypothesis.rule) for rule in monitor.watched
    ]:
        raise BadValueError("its states must be about the rules that it monitors")
    read = _read_earlier_rule if earlier else _read_rule
    pairs = zip(saved, monitor.watched, strict=True)
    monitor.states = [read(node, rule, monitor.rows) for node, rule in pairs]
    if digest := root["row_file"].text():
        _read_rows(_name_rows(path, digest), digest, monitor)
    return monitor


def _list_values(node: Node, number: int) -> list[Node]:
    parts = node.list()
    return parts if len(parts) == number else node.fail(f"a list of {number} values")


def _read_place(node: Node, rows: int) -> int:
    """Read a number of rows that must not exceed the number of rows that the monitor has seen."""
    return (
        node.count()
        if node.count() <= rows
        else node.fail(f"at most {rows}, the number of rows that the monitor has seen")
    )


def _read_rule(node: Node, rule: WatchedRule, seen: int) -> RuleState:
    events, state = rule.events, _read_course(node, rule, seen)
    rounds, rounds_before = node["rounds"].count(), node["rounds_before"].count()
    arrays = {name: node[name].vector(N_ALTERNATIVES) for name in _MONEY} if rounds else {}
    if any((array < 0).any() for array in arrays.values()) or (rounds and (arrays["product"] == 0).any()):
        raise BadValueError("its wealth must not be negative, and its products of factors must be positive")
    rows_of_round = 1 if events.batched else events.rows
    if state.waiting.shape[1] >= events.rows or state.rows < (rounds + rounds_before) * rows_of_round:
        raise BadValueError("its numbers of rounds and of rows contradict each other")
    guesses = {}
    if events.guesses:
        guesses["guess"] = node["guess"].vector(events.number)
        guesses["marks"] = node["marks"].vector(2 * events.number)
    return replace(
        state,
        wealth=Wealth(rounds, **arrays, log_start=node["log_start"].number()),
        totals=_refuse_negative(node["totals"].vector(2 * events.number), slice(events.number)),
        rounds_before=rounds_before,
        log_change=-math.inf if node["log_change"].value is None else node["log_change"].number(),
        **guesses,
    )


def _read_earlier_rule(node: Node, rule: WatchedRule, seen: int) -> RuleState:
    """Read the state of a rule in a file of version 2.

    Alarms and the history are kept, and the e-process continues from its value. Bets were different, so that
    the detector starts anew. For a rule about one mean, rounds had eight rows and now have one: its rate and
    its interval start anew, too.
    """
    events, state, begun = rule.events, _read_course(node, rule, seen), rule.begin()
    one, waiting, totals = events.number == 1, state.waiting, begun.totals
    if node["totals"].list():
        totals = _refuse_negative(node["totals"].vector(len(totals)), slice(events.number))
        totals = totals - waiting.sum(axis=1) if waiting.size else totals
    size = _PLAIN_ROWS if one else events.rows
    if waiting.shape[1] >= size or state.rows < node["rounds"].count() * size:
        raise BadValueError("its numbers of rounds and of rows contradict each other")
    return replace(
        state,
        waiting=waiting[:, :0] if one else waiting,
        wealth=Wealth(log_start=state.log_ever),
        sums=begun.sums if one else state.sums,
        totals=totals,
        guess=begun.guess,
        marks=totals if events.guesses else begun.marks,
        rounds_before=(state.rows - waiting.shape[1]) // events.rows,
        every=state.every * _PLAIN_ROWS if one else state.every,
    )


def _read_course(node: Node, rule: WatchedRule, seen: int) -> RuleState:
    """Read the fields that all versions share: rows, sums over rounds, alarms and the history."""
    points = [_list_values(point, len(Point._fields)) for point in node["history"].list()]
    return RuleState(
        waiting=_read_waiting(node, rule.events),
        rows=_read_place(node["rows"], seen),
        sums=_refuse_negative(node["sums"].vector(5), [0, 2, 4]),
        log_ever=node["log_ever"].number(),
        broken_at=None if node["broken_at"].value is None else _read_place(node["broken_at"], seen),
        changed_at=None if node["changed_at"].value is None else _read_place(node["changed_at"], seen),
        every=node["every"].count() or node["every"].fail("at least 1"),
        history=tuple(
            Point(_read_place(row, seen), *(math.nan if x.value is None else x.number() for x in numbers))
            for row, *numbers in points
        ),
    )


def _refuse_negative(array: Floats, places: Any) -> Floats:
    """Return an array; raise if its entries at these positions are negative."""
    if (array[places] < 0).any():
        raise BadValueError("the weights and squares of a rule must not be negative")
    return array


def _read_waiting(node: Node, events: Events) -> Floats:
    """Read the rows of an incomplete round, and check that their weights and amounts are possible."""
    parts, n_events = node["waiting"].list(), events.number
    waiting = node["waiting"].matrix(2 * n_events if parts else 0, len(parts[0].list()) if parts else 0)
    weights, amounts = _refuse_negative(waiting, slice(n_events))[:n_events], waiting[n_events:]
    if (weights > 1).any():
        raise BadValueError("the weights of single rows must be at most 1")
    for weight, amount, (low, high) in zip(weights, amounts, events.limits, strict=bool(parts)):
        most = _ROUNDING * (1 + abs(low) + abs(high))
        if (amount < low * weight - most).any() or (amount > high * weight + most).any():
            raise BadValueError("the values of its incomplete rows must be within the limits of the rule")
    return waiting


def pack_rows(monitor: Monitor) -> bytes:
    """Return the ids and the incomplete rows as the bytes of an npz file; empty if no row has an id."""
    if not len(monitor.seen_ids):
        return b""
    waiting, buffer = monitor.waiting_rows, io.BytesIO()
    columns: Any = {} if waiting is None else waiting.columns
    np.savez(buffer, seen=monitor.seen_ids, waiting_ids=monitor.waiting_ids, **columns)
    return buffer.getvalue()


def _read_rows(path: Path, digest: str, monitor: Monitor) -> None:
    """Read the ids and the incomplete rows into the monitor, and check their columns and values."""

    def fail(problem: str) -> NoReturn:
        raise PolicyFileError(f"{path} is {problem}. Restore this file")

    if not path.exists():
        fail("missing: it must contain the ids of the rows that the monitor has seen")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        fail("damaged: its content does not match its checksum")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found: dict[str, NDArray[Any]] = {name: np.asarray(arrays[name]) for name in arrays.files}
    except Exception as problem:  # zip files and arrays can be damaged in many ways
        fail(f"damaged: its arrays cannot be read ({problem})")
    tables = {
        "groups": monitor.columns.groups,
        "references": monitor.columns.references,
        "costs": monitor.columns.costs,
    }
    wanted = {f"{table}/{name}" for table, names in tables.items() for name in names}
    scalar = any(column.ndim == 0 for column in found.values())
    waiting = {name: column for name, column in found.items() if name != "seen"}
    if set(waiting) != {"decisions", "labels", "waiting_ids", *wanted} or "seen" not in found or scalar:
        fail("damaged: it must have the columns that the rules of the monitor need")
    if len(set(map(len, waiting.values()))) > 1:
        fail("damaged: its columns must have the same number of rows")
    for name, column in found.items():
        if not _is_possible(name, column, monitor):
            fail(f"damaged: its column {name!r} has impossible values")
    monitor.seen_ids, monitor.waiting_ids = found["seen"], waiting.pop("waiting_ids")
    monitor.waiting_rows = WatchedRows(waiting)


def _is_possible(name: str, column: NDArray[Any], monitor: Monitor) -> bool:
    """Return whether the type, shape and values of a column are those that a monitor writes."""
    space, (table, _, key) = monitor.policy.action_space, name.partition("/")
    if name in ("seen", "waiting_ids"):
        ordered = name != "seen" or bool((column[1:] > column[:-1]).all())
        return column.dtype == np.uint64 and column.ndim == 1 and ordered
    codes = column.dtype.kind == "i" and column.ndim == 1
    if table in ("labels", "groups"):
        most = len(space.classes) if table == "labels" else len(monitor.groups[key])
        return codes and bool(((column >= UNKNOWN) & (column < most)).all())
    if table == "references" and codes:  # which are only compared
        return True
    low, high = monitor.limits[key] if table == "costs" else (-_ROUNDING, 1 + _ROUNDING)
    width = len(space.classes if table == "references" else space.actions)
    if column.dtype != np.float64 or column.ndim != 2 or column.shape[1] < width:
        return False
    unknown = np.isnan(column) if table == "costs" else False
    return bool((unknown | ((column >= low) & (column <= high))).all())
