"""JSON files as lines that Arrow can read: one object per line, or one list of objects."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from bylaw.errors import EvidenceError

DEEPEST = 100
_CHUNK = 1 << 20  # bytes
_STEPS = np.zeros(256, dtype=np.int64)  # by character: the change of the nesting depth
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_SHAPE = 'a list of objects, [{"column": value, ...}, ...], or one object per line'


def open_lines(path: Path) -> io.BufferedIOBase:
    """Open a JSON file as a stream with one object per line; a list of objects is read into memory."""
    check_nesting(path)
    file = path.open("rb")
    while (first := file.read(1)) and first.isspace():
        pass
    file.seek(0)
    if first != b"[" and not (first == b"{" and path.suffix.lower() == ".json"):
        return file
    with file:
        content = file.read()
    try:  # a file named .json may have one object per line, too
        line, _, _ = content.lstrip().partition(b"\n")
        if all(not isinstance(value, list | dict) for value in json.loads(line).values()):
            return io.BytesIO(content)
    except (ValueError, AttributeError):
        pass
    records = _read_records(content, path)
    names = dict.fromkeys(name for record in records for name in record)
    # Each line gets all columns, so that the first line determines their names.
    lines = (json.dumps({name: record.get(name) for name in names}).encode() + b"\n" for record in records)
    return io.BytesIO(b"".join(lines))


def check_nesting(path: Path) -> None:
    """Raise an `EvidenceError` if values of a JSON file are nested too deeply for Arrow's recursive parser.

    Brackets within text do not count. Text ends at the end of its line, as in valid JSON.
    """
    depth, quoted, held_back = 0, 0, b""  # `quoted`: the last chunk ended within text
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            # The meaning of backslashes at the end of a chunk depends on the next chunk.
            given = held_back + chunk
            whole = given.rstrip(b"\\")
            held_back = given[len(whole) :]
            if not whole:
                continue
            letters = np.frombuffer(whole.replace(rb"\\", b"..").replace(rb"\"", b".."), np.uint8)
            quotes = quoted + np.cumsum(letters == ord('"'))
            ended = np.maximum.accumulate(np.where(letters == ord("\n"), quotes, 0))
            outside = (quotes - ended) % 2 == 0
            depths = depth + np.cumsum(_STEPS[letters] * outside)
            depths -= np.minimum(np.minimum.accumulate(depths), 0)  # ignore unmatched closing brackets
            if depths.max() > DEEPEST:
                raise EvidenceError(
                    f"{path} has values that are nested more than {DEEPEST} deep; flatten them"
                )
            depth, quoted = int(depths[-1]), int(not outside[-1])


def read_first(file: io.BufferedIOBase) -> dict[str, Any]:
    """Return the object on the first line; an empty dict if it is invalid, since Arrow raises the error."""
    try:
        found = json.loads(file.readline())
    except (ValueError, RecursionError):
        found = {}
    file.seek(0)
    return found if isinstance(found, dict) else {}


def _read_records(content: bytes, path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(content)
    except ValueError as problem:
        raise EvidenceError(f"{path} cannot be read as JSON: {problem}; it must be {_SHAPE}") from None
    if not isinstance(records, list):
        raise EvidenceError(f"{path} must be {_SHAPE}; got a single JSON value")
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise EvidenceError(f"{path}: row {i} must be an object, got {record!r:.50}; a table is {_SHAPE}")
    return records
