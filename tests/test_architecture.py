"""The rooms and their walls: what ARCHITECTURE.md promises of the source."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bylaw

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bylaw"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ROOMS = sorted(folder.name for folder in SOURCE.iterdir() if folder.is_dir() and folder.name != "__pycache__")


def test_the_hallway_is_short():
    assert len(list(SOURCE.glob("*.py"))) <= 4


def test_the_contract_is_short_and_names_every_room():
    layers = CONTRACTS[0]["layers"]
    assert len(layers) <= 16
    named = {name.strip().removeprefix("bylaw.") for layer in layers for name in layer.split("|")}
    assert named == {*ROOMS, "errors", "datasets"}


def test_every_room_has_its_tests_and_its_line_in_the_architecture():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for room in ROOMS:
        assert f"  {room}/ " in page
        assert room == "_base" or list((ROOT / "tests" / room).glob("test_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("policy/policy.py", "from bylaw.solvers.full_batch import FullBatch"),
        ("language/rates.py", "from bylaw.data.evidence import Evidence"),
        ("report/document.py", "from bylaw.export.onnx_graph import to_onnx"),
    ],
)
def test_a_forbidden_import_breaks_the_contract(module, line, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "src" / "bylaw", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changed = tmp_path / "src" / "bylaw" / module
    assert check_imports(tmp_path).returncode == 0
    changed.write_text(f"{changed.read_text()}\n{line}\n")
    broken = check_imports(tmp_path)
    assert broken.returncode == 1
    assert "BROKEN" in broken.stdout


def check_imports(folder):
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    here = {"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)


def test_kinds_of_decisions_are_hardly_compared():
    """What differs between action spaces is theirs to know."""
    lines = [line for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines()]
    kinds = re.compile(r"\bkind (==|!=|in|not in) |isinstance\(.*(Label|Reject|Set)Space")
    compared = [line for line in lines if kinds.search(line) and "dtype.kind" not in line]
    assert len(compared) <= 8, compared
    spelled_out = "sql_passes.py"  # writes what action spaces compute in another language
    sources = [path.read_text() for path in SOURCE.rglob("*.py") if path.name != spelled_out]
    asked = [line for text in sources for line in text.splitlines() if re.search(r"\.exclusive\b", line)]
    assert len(asked) <= 12, asked


def test_public_names_live_where_they_are_looked_up():
    assert set(bylaw._HOMES) == set(bylaw.__all__)
    for name in bylaw.__all__:
        assert getattr(bylaw, name).__name__ == name
    assert set(bylaw.__all__) <= set(dir(bylaw))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bylaw.nothing


def test_importing_bylaw_imports_nothing_heavy():
    code = "import sys, bylaw; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "scipy", "scipy.optimize", "sklearn", "pyarrow", "pandas"} & set(loaded)


def test_no_module_hides_behind_a_function_of_its_name():
    from bylaw.fitting import solve

    assert solve.SOLVERS["auto"] is not None
    assert callable(bylaw.solve)
