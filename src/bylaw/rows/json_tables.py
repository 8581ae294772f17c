"""JSON in files, as the lines that Arrow reads: one object per line, or one list of objects."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from bylaw.errors import EvidenceError
from bylaw.rows.json_nesting import check_nesting

_SHAPE = 'a list of objects, [{"column": value, ...}, ...], or one object per line'


def open_lines(path: Path) -> io.BufferedIOBase:
    """A file of JSON, to be read as one object per line; a list is read into memory."""
    check_nesting(path)
    file = path.open("rb")
    first = _peek(file)
    if first != b"[" and not (first == b"{" and path.suffix.lower() == ".json"):
        return file
    with file:
        content = file.read()
    if first == b"{" and _is_line(content):
        return io.BytesIO(content)
    return io.BytesIO(_write_lines(_read_records(content, path)))


def read_first(file: io.BufferedIOBase) -> dict[str, Any]:
    """The first line; empty if it is no object, which Arrow reports."""
    try:
        found = json.loads(file.readline())
    except (ValueError, RecursionError):
        found = {}
    file.seek(0)
    return found if isinstance(found, dict) else {}


def _peek(file: io.BufferedIOBase) -> bytes:
    """The first character that is no space."""
    while (letter := file.read(1)) and letter.isspace():
        pass
    file.seek(0)
    return letter


def _is_line(content: bytes) -> bool:
    """Whether the first line is an object by itself."""
    line, _, _ = content.lstrip().partition(b"\n")
    try:
        return all(not isinstance(value, list | dict) for value in json.loads(line).values())
    except (ValueError, AttributeError):
        return False


def _read_records(content: bytes, path: Path) -> list[dict[str, Any]]:
    try:
        records = json.loads(content)
    except ValueError as problem:
        raise EvidenceError(f"{path} cannot be read as json: {problem}; it must be {_SHAPE}") from None
    if not isinstance(records, list):
        raise EvidenceError(f"{path} is one JSON object; a table is {_SHAPE}")
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise EvidenceError(f"{path}: row {i} is {record!r:.50}, and no object; a table is {_SHAPE}")
    return records


def _write_lines(records: list[dict[str, Any]]) -> bytes:
    """Each with all columns, so that the first line shows them."""
    names = dict.fromkeys(name for record in records for name in record)
    return b"".join(
        json.dumps({name: record.get(name) for name in names}).encode() + b"\n" for record in records
    )
