"""How deep JSON is nested, before a parser is let loose on it: Arrow's recurses, and has no limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bylaw.errors import EvidenceError

DEEPEST = 100
_CHUNK = 1 << 20  # bytes
_STEPS = np.zeros(256, dtype=np.int64)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def check_nesting(path: Path) -> None:
    """An `EvidenceError` if any value of a JSON file is nested too deeply."""
    scanner = _Scanner()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            if scanner.read(chunk) > DEEPEST:
                raise EvidenceError(f"{path} has values that are nested more than {DEEPEST} deep")


class _Scanner:
    """Counts brackets outside of text; text ends with its line, as JSON demands."""

    def __init__(self) -> None:
        self.depth = 0
        self.quoted = 0  # whether the last chunk ended within text
        self.held_back = b""  # backslashes, whose meaning the next chunk tells

    def read(self, chunk: bytes) -> int:
        """The largest depth in the next part of the file."""
        given = self.held_back + chunk
        whole = given.rstrip(b"\\")
        self.held_back = given[len(whole) :]
        if not whole:
            return 0
        letters = np.frombuffer(whole.replace(rb"\\", b"..").replace(rb"\"", b".."), np.uint8)
        quotes = self.quoted + np.cumsum(letters == ord('"'))
        ended = np.maximum.accumulate(np.where(letters == ord("\n"), quotes, 0))
        outside = (quotes - ended) % 2 == 0
        depths = self.depth + np.cumsum(_STEPS[letters] * outside)
        depths -= np.minimum(np.minimum.accumulate(depths), 0)  # what closes nothing opens nothing
        self.depth, self.quoted = int(depths[-1]), int(not outside[-1])
        return int(depths.max())
