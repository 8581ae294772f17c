"""Arrow files whose buffers contradict each other are refused before anything reads them."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest

from bylaw.errors import EvidenceError
from bylaw.rows import TableFile

_ROWS = 5


def _write(path: Path, damage: bytes | None) -> None:
    """Write a table of texts; `damage` takes the place of the last offset."""
    texts = ["first", "second", "third", "fourth", "fifth"]
    table = pyarrow.table({"p_no": [0.5] * _ROWS, "p_yes": [0.5] * _ROWS, "name": texts})
    with pyarrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    lengths = [0, *(sum(len(text) for text in texts[: i + 1]) for i in range(_ROWS))]
    offsets = struct.pack(f"<{_ROWS + 1}i", *lengths)
    content = path.read_bytes()
    assert content.count(offsets) == 1
    if damage is not None:
        path.write_bytes(content.replace(offsets, offsets[:-4] + damage))


_BEYOND = struct.pack("<i", 100_000_000)  # far beyond the end of the file
_NEGATIVE = struct.pack("<i", -5)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_BEYOND, _NEGATIVE], ids=["beyond", "negative"])
def test_offsets_out_of_bounds_are_an_error_that_names_the_file(tmp_path, damage):
    paths = [tmp_path / f"rows.{suffix}" for suffix in ("arrow", "feather", "ipc")]
    for path in paths:
        _write(path, damage)
    script = (
        "import sys; from pathlib import Path; from bylaw.rows._table_files import TableFile\n"
        "for path in sys.argv[1:]:\n"
        "    for read in (lambda f: list(f.batches(['name'])), lambda f: [f.read()]):\n"
        "        try:\n"
        "            rows = read(TableFile(Path(path)))\n"
        "            print([row for batch in rows for row in batch.to_pylist()])\n"
        "        except Exception as problem:\n"
        "            print(type(problem).__name__, problem)"
    )
    # A reader that follows the offsets may end the process: it runs in one of its own.
    run = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True)
    assert run.returncode == 0, run
    lines = run.stdout.splitlines()
    assert len(lines) == 2 * len(paths)
    for line, path in zip(lines, [path for path in paths for _ in range(2)], strict=True):
        assert line.startswith(f"EvidenceError {path} cannot be read as arrow:")


def test_a_sound_file_is_read(tmp_path):
    path = tmp_path / "rows.arrow"
    _write(path, None)
    assert TableFile(path).read(["name"])["name"].to_pylist()[-1] == "fifth"


def test_a_damaged_column_that_is_not_read_does_no_harm(tmp_path):
    path = tmp_path / "rows.arrow"
    _write(path, _BEYOND)
    assert len(TableFile(path).read(["p_no", "p_yes"])) == _ROWS


def test_codes_without_a_value_are_an_error(tmp_path):
    path = tmp_path / "rows.arrow"
    codes = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, 1, 77_777], pyarrow.int32()), pyarrow.array(["a", "b"]), safe=False
    )
    batch = pyarrow.RecordBatch.from_arrays([codes], ["group"])
    with pyarrow.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(EvidenceError, match="cannot be read as arrow"):
        TableFile(path).read()
