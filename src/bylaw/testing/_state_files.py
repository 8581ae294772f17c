"""The state of a monitor as files: JSON, and beside it, where rows have ids, a file of these rows.

The file of rows has a name of its own for each content. It is written first; the JSON that names it takes
the place of the old one in one step, and only then the old file of rows goes. So whoever is interrupted
finds the state before the last batch, or after it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.files import BadValueError, Node, read_json, write_atomically, write_text
from bylaw._base.typing import Floats
from bylaw.errors import OptionError, PolicyFileError
from bylaw.language.parser import renew_text
from bylaw.policy.policy import Policy
from bylaw.policy.serialization import compute_digest
from bylaw.testing._rounds import RateSums, RecentMeans
from bylaw.testing._watched_rows import UNKNOWN, RowMemory, WatchedRows
from bylaw.testing._watched_rule import Point, RuleState, WatchedRule
from bylaw.testing._wealth import N_ALTERNATIVES, Wealth

if TYPE_CHECKING:
    from bylaw.testing._monitor import Monitor, Update

FORMAT = "bylaw-monitor"
VERSION = 3
_PLAIN = 2  # the version of states with other bets, whose evidence starts anew
_PLAIN_ROWS = 8  # of a round about one event in that version
_MONEY = ("ever", "change", "product", "inverses")
_ROUNDING = 1e-6  # of shares


def save_state(monitor: Monitor, path: Path) -> None:
    monitor.settle()
    memory = monitor.memory
    rows = _pack_rows(memory) if len(memory.seen) else None
    digest = "" if rows is None else hashlib.sha256(rows).hexdigest()
    if rows is not None:
        with write_atomically(_name_rows(path, digest), private=True) as partial:
            partial.write_bytes(rows)
    content = {"format": FORMAT, "version": VERSION, **_to_dict(monitor), "row_file": digest}
    whole = {**content, "checksum": compute_digest(content)}
    write_text(path, json.dumps(whole, allow_nan=False, separators=(",", ":")) + "\n", private=True)
    kept = None if rows is None else _name_rows(path, digest).name
    for old in path.parent.glob(f"{escape(path.name)}-rows-{'?' * 12}.npz"):
        if old.name != kept:
            old.unlink(missing_ok=True)


def _name_rows(path: Path, digest: str) -> Path:
    return path.with_name(f"{path.name}-rows-{digest[:12]}.npz")


def _to_dict(monitor: Monitor) -> dict[str, Any]:
    own = monitor.problem is monitor.policy.problem
    return {
        "policy": monitor.policy.digest,
        "ever": monitor.ever,
        "run_length": monitor.run_length,
        "unit": monitor.unit,
        "limits": {name: list(pair) for name, pair in monitor.limits.items()},
        "rules": None if own else [str(rule) for rule in monitor.problem.rules],
        "groups": {name: list(values) for name, values in monitor.groups.items()},
        "rows": monitor.rows,
        "decided": monitor.decided,
        "batches": list(monitor.batches),
        "log": [list(update) for update in monitor.log],
        "watched": [
            _state_to_dict(state, rule) for state, rule in zip(monitor.states, monitor.watched, strict=True)
        ],
    }


def _state_to_dict(state: RuleState, rule: WatchedRule) -> dict[str, Any]:
    money = {name: getattr(state.wealth, name).tolist() for name in _MONEY}
    recent = state.recent
    return {
        "rule": str(rule.rule),
        "rows": state.rows,
        "waiting": state.waiting.tolist() if state.waiting.size else [],
        "rounds": state.wealth.rounds,
        "rounds_before": state.rounds_before,
        **(money if state.wealth.rounds else {}),
        "log_start": state.wealth.log_start,
        "sums": list(asdict(state.sums).values()),
        "totals": state.totals.tolist(),
        **({} if recent is None else {"guess": recent.guess.tolist(), "marks": recent.marks.tolist()}),
        "log_ever": state.log_ever,
        "log_change": state.log_change if math.isfinite(state.log_change) else None,
        "broken_at": state.broken_at,
        "changed_at": state.changed_at,
        "every": state.every,
        "history": [_point_to_list(point) for point in state.history if isinstance(point, Point)],
    }


def _point_to_list(point: Point) -> list[float | None]:
    return [None if math.isnan(value) else value for value in point]


def load_state(path: Path, policy: Policy) -> Monitor:
    return read_json(path, "a monitor", lambda root: _read(root, path, policy))


def _read(root: Node, path: Path, policy: Policy) -> Monitor:
    from bylaw.testing._monitor import Monitor

    root.check_version(FORMAT, VERSION, oldest=_PLAIN)
    plain = root["version"].value == _PLAIN
    content = {name: value for name, value in root.value.items() if name != "checksum"}
    if root["checksum"].text() != compute_digest(content):
        raise BadValueError("its content does not match its checksum")
    root.check_sizes()
    if root["policy"].text() != policy.digest:
        raise PolicyFileError(
            f"{path} watches another policy (hash {root['policy'].text()[:12]}, not {policy.digest[:12]}): "
            "begin a new state for this one"
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
            unit="rows" if plain else root["unit"].text(),
        )
    except OptionError as problem:
        raise BadValueError(str(problem)) from None
    monitor.rows = root["rows"].count()
    monitor.decided = root["decided"].one_of([None, True, False])
    monitor.batches = tuple(name.text() for name in root["batches"].list())
    monitor.log = tuple(_read_update(update, monitor.rows) for update in root["log"].list())
    saved = root["watched"].list()
    if [renew_text(node["rule"].text()) for node in saved] != [str(rule.rule) for rule in monitor.watched]:
        raise BadValueError("its rules are not those that it watches")
    pairs = zip(saved, monitor.watched, strict=True)
    read = _read_earlier_rule if plain else _read_rule
    monitor.states = [read(node, rule, monitor.rows) for node, rule in pairs]
    if digest := root["row_file"].text():
        _read_memory(_name_rows(path, digest), digest, monitor)
    return monitor


def _read_place(node: Node, rows: int) -> int:
    """Read a number of rows, of those that the monitor has seen."""
    return node.count() if node.count() <= rows else node.fail(f"at most {rows}, the rows that were seen")


def _read_update(node: Node, rows: int) -> Update:
    from bylaw.testing._monitor import Update

    parts = node.list()
    if len(parts) != len(Update._fields):
        node.fail("a time, a number of rows and whether there was an alarm")
    return Update(parts[0].text(), _read_place(parts[1], rows), parts[2].one_of([False, True]))


def _read_rule(node: Node, rule: WatchedRule, seen: int) -> RuleState:
    events, n_columns = rule.events, 2 * rule.events.number
    rounds, rows = node["rounds"].count(), _read_place(node["rows"], seen)
    arrays = {name: node[name].vector(N_ALTERNATIVES) for name in _MONEY} if rounds else {}
    if any((array < 0).any() for array in arrays.values()) or (rounds and (arrays["product"] == 0).any()):
        raise BadValueError("its money must not be negative")
    waiting = _read_waiting(node, rule)
    all_rounds = rounds + node["rounds_before"].count()
    if waiting.shape[1] >= events.rows or rows < all_rounds * (1 if events.batched else events.rows):
        raise BadValueError("its rounds contradict its rows")
    recent = None
    if events.guesses:
        guess, marks = node["guess"].vector(events.number), node["marks"].vector(n_columns)
        recent = RecentMeans(guess, marks)
    return RuleState(
        waiting=waiting,
        rows=rows,
        wealth=Wealth(rounds, **arrays, log_start=node["log_start"].number()),
        sums=_read_sums(node),
        totals=_read_totals(node, n_columns),
        recent=recent,
        rounds_before=node["rounds_before"].count(),
        log_ever=node["log_ever"].number(),
        log_change=-math.inf if node["log_change"].value is None else node["log_change"].number(),
        **_read_course(node, seen),
    )


def _read_earlier_rule(node: Node, rule: WatchedRule, seen: int) -> RuleState:
    """Read a state of an earlier version: alarms, history, and the value of the e-process.

    The e-process continues from there. Bets were different, so that the detector starts anew. Of a rule about
    one mean, rounds had eight rows, where now each row is one: its rate and interval start anew, too.
    """
    one, n_columns = rule.events.number == 1, 2 * rule.events.number
    rows, waiting = _read_place(node["rows"], seen), _read_waiting(node, rule)
    totals = _read_totals(node, n_columns if node["totals"].list() else 0)
    totals = totals - waiting.sum(axis=1) if totals.size and waiting.size else totals
    size = _PLAIN_ROWS if one else rule.events.rows
    if waiting.shape[1] >= size or rows < node["rounds"].count() * size:
        raise BadValueError("its rounds contradict its rows")
    course, begun = _read_course(node, seen), rule.begin()
    log_start = node["log_ever"].number()
    if one:
        course["every"] *= _PLAIN_ROWS
    return RuleState(
        waiting=waiting[:, :0] if one else waiting,
        rows=rows,
        wealth=Wealth(log_start=log_start),
        sums=RateSums() if one else _read_sums(node),
        totals=totals if totals.size else begun.totals,
        recent=begun.recent and replace(begun.recent, marks=totals if totals.size else begun.totals),
        rounds_before=(rows - waiting.shape[1]) // rule.events.rows,
        log_ever=log_start,
        **course,
    )


def _read_waiting(node: Node, rule: WatchedRule) -> Floats:
    """Read rows of a round that is not whole, whose amounts are within what rows can be."""
    parts, n_events = node["waiting"].list(), rule.events.number
    waiting = node["waiting"].matrix(2 * n_events if parts else 0, len(parts[0].list()) if parts else 0)
    weights, amounts = waiting[:n_events], waiting[n_events:]
    if (weights < 0).any():
        raise BadValueError("its weights and squares must not be negative")
    if (weights > 1).any():
        raise BadValueError("its weights of single rows must be at most 1")
    for weight, amount, (low, high) in zip(weights, amounts, rule.events.limits, strict=bool(parts)):
        most = _ROUNDING * (1 + abs(low) + abs(high))
        if (amount < low * weight - most).any() or (amount > high * weight + most).any():
            raise BadValueError("its rows that wait are beyond what rows can be")
    return waiting


def _read_sums(node: Node) -> RateSums:
    sums = node["sums"].vector(5)
    if (sums[[0, 2, 4]] < 0).any():
        raise BadValueError("its weights and squares must not be negative")
    return RateSums(*sums.tolist())


def _read_totals(node: Node, n_columns: int) -> Floats:
    totals = node["totals"].vector(n_columns)
    if (totals[: n_columns // 2] < 0).any():
        raise BadValueError("its weights and squares must not be negative")
    return totals


def _read_course(node: Node, seen: int) -> dict[str, Any]:
    """Read the times of alarms and the history."""
    times = {
        name: None if node[name].value is None else _read_place(node[name], seen)
        for name in ("broken_at", "changed_at")
    }
    return {
        **times,
        "every": node["every"].count() or node["every"].fail("at least 1"),
        "history": tuple(_read_point(point, seen) for point in node["history"].list()),
    }


def _read_point(node: Node, rows: int) -> Point:
    parts = node.list()
    if len(parts) != len(Point._fields):
        node.fail(f"{len(Point._fields)} numbers")
    numbers = [math.nan if part.value is None else part.number() for part in parts[1:]]
    return Point(_read_place(parts[0], rows), *numbers)


def _pack_rows(memory: RowMemory) -> bytes:
    arrays: dict[str, Any] = {"seen": memory.seen, "waiting_ids": memory.waiting_ids}
    if memory.waiting is not None:
        arrays |= {"decisions": memory.waiting.decisions, "labels": memory.waiting.labels}
        for table in ("groups", "references", "costs"):
            arrays |= {f"{table}/{name}": column for name, column in getattr(memory.waiting, table).items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _read_memory(path: Path, digest: str, monitor: Monitor) -> None:
    if not path.exists():
        raise PolicyFileError(f"{path} is missing: it has the ids of the rows that were seen. Restore it")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise PolicyFileError(f"{path} is damaged: its content does not match its checksum. Restore it")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found: Mapping[str, NDArray[Any]] = {name: np.asarray(arrays[name]) for name in arrays.files}
    except Exception as problem:  # zip files and arrays can be damaged in many ways
        raise PolicyFileError(f"{path} is damaged: it holds no arrays ({problem}). Restore it") from None
    _check_columns(found, path, monitor)

    def take(table: str) -> dict[str, Any]:
        return {
            name.removeprefix(f"{table}/"): column
            for name, column in found.items()
            if name.startswith(f"{table}/")
        }

    waiting = None
    if "decisions" in found:
        parts = (take("groups"), take("references"), take("costs"))
        waiting = WatchedRows(found["decisions"], found["labels"].astype(np.int64), *parts)
    monitor.memory = RowMemory(
        found["seen"].astype(np.uint64), found["waiting_ids"].astype(np.uint64), waiting
    )


def _check_columns(found: Mapping[str, NDArray[Any]], path: Path, monitor: Monitor) -> None:
    """Raise unless there is what rules read of rows that wait, one line each, with possible values."""
    columns = monitor.columns
    wanted = {"decisions", "labels", "waiting_ids"}
    wanted |= {f"groups/{name}" for name in columns.groups} | {f"costs/{name}" for name in columns.costs}
    wanted |= {f"references/{name}" for name in columns.references}
    waiting = {name: column for name, column in found.items() if name != "seen"}
    scalar = any(column.ndim == 0 for column in found.values())
    if set(found) != {"seen", *wanted} or scalar or len(set(map(len, waiting.values()))) > 1:
        raise PolicyFileError(
            f"{path} is damaged: it does not have the columns that these rules read. Restore it"
        )
    for name, column in found.items():
        if not _is_possible(name, column, monitor):
            raise PolicyFileError(
                f"{path} is damaged: its column {name!r} has values that no row can have. Restore it"
            )


def _is_possible(name: str, column: NDArray[Any], monitor: Monitor) -> bool:
    """Return whether a column has a type, a shape and values that a monitor writes."""
    space, (table, _, key) = monitor.policy.action_space, name.partition("/")
    if name in ("seen", "waiting_ids"):
        ordered = name != "seen" or bool((column[1:] > column[:-1]).all())
        return column.dtype == np.uint64 and column.ndim == 1 and ordered
    if table == "references":  # codes, which are only compared, or shares of each decision
        return (column.dtype.kind == "i" and column.ndim == 1) or _is_share(column, len(space.classes))
    if table in ("labels", "groups"):
        most = len(space.classes) if table == "labels" else len(monitor.groups[key])
        known = column.dtype.kind == "i" and column.ndim == 1
        return known and bool(((column >= UNKNOWN) & (column < most)).all())
    if name == "decisions":
        return _is_share(column, len(space.actions))
    low, high = monitor.limits[key]
    floats = column.dtype == np.float64 and column.shape[1:] == (len(space.actions),)
    return floats and bool((np.isnan(column) | ((column >= low) & (column <= high))).all())


def _is_share(column: NDArray[Any], width: int) -> bool:
    """Return whether these are shares from 0 to 1, up to rounding, (n_rows, width or more)."""
    floats = column.dtype == np.float64 and column.ndim == 2 and column.shape[1] >= width
    return floats and bool(((column >= -_ROUNDING) & (column <= 1 + _ROUNDING)).all())
