"""The rooms and their walls: what ARCHITECTURE.md promises of the source."""

from __future__ import annotations

import ast
import importlib
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
        ("policy/_policy.py", "from bylaw.solvers._full_batch import FullBatch"),
        ("report/_document.py", "from bylaw.export import to_onnx"),
    ],
)
def test_a_forbidden_import_breaks_the_contract(module, line, tmp_path):
    shutil.copytree(SOURCE, tmp_path / "src" / "bylaw", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    changed = tmp_path / "src" / "bylaw" / module
    changed.write_text(f"{changed.read_text()}\n{line}\n")
    broken = check_imports(tmp_path)
    assert broken.returncode == 1
    assert "BROKEN" in broken.stdout


def check_imports(folder):
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    here = {"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, check=False)


def list_imports(path):
    """Yield the modules of bylaw that a module imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bylaw."):
            yield node.module
            yield from (f"{node.module}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def test_nothing_is_imported_past_the_facade_of_a_room():
    beyond = []
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        for module in list_imports(path):
            parts = module.split(".")
            if parts[0] == "bylaw" and len(parts) > 2 and parts[1] != room and parts[2].startswith("_"):
                beyond.append(f"{path.relative_to(SOURCE)}: {module}")
    assert not beyond


def test_modules_of_rooms_are_private():
    exposed = [path for room in ROOMS if room != "cli" for path in (SOURCE / room).glob("[!_]*.py")]
    assert not exposed


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_facades_export_names_that_exist(room):
    facade = importlib.import_module(f"bylaw.{room}")
    for name in facade.__all__:
        assert getattr(facade, name) is not None


def test_public_names_can_be_looked_up():
    for name in bylaw.__all__:
        assert getattr(bylaw, name).__name__ == name
    assert set(bylaw.__all__) <= set(dir(bylaw))
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = bylaw.nothing


def test_importing_bylaw_imports_nothing_heavy():
    code = "import sys, bylaw; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "scipy", "scipy.optimize", "sklearn", "pyarrow", "pandas"} & set(loaded)


def find_lasting_generators(source):
    """Return the lines on which a module makes a random generator that outlives its import.

    `P = np.random.default_rng(0).random(9)` is no such line, nor is anything inside a function: decorators
    and default values are.
    """
    makers, lines = {"default_rng", "RandomState", "Generator", "Random"}, []

    def visit(node, drawn_from=False):
        match node:
            case ast.Lambda(args=args):
                return visit(args)
            case ast.FunctionDef(decorator_list=decorators, args=args):
                for part in (*decorators, args):
                    visit(part)
                return None
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if (
                name in makers and not drawn_from
            ):
                lines.append(node.lineno)
        for child in ast.iter_child_nodes(node):
            visit(child, isinstance(node, ast.Attribute))
        return None

    visit(ast.parse(source))
    return lines


def test_generators_that_outlive_an_import_are_found():
    source = """
import numpy as np
P = np.random.default_rng(0).random(9)
def draw(): return np.random.default_rng(0)
Q = [lambda: np.random.default_rng(0)]
RNG = np.random.default_rng(0)
a, b = 3, [np.random.RandomState(0)]
@mark(default_rng(0))
def test(rng=default_rng(0)): pass
class Test:
    rng = default_rng(0)
if P:
    rng = default_rng(0)
"""
    assert find_lasting_generators(source) == [6, 7, 8, 9, 11, 13]


def test_no_test_draws_from_a_generator_that_others_share():
    """Else its numbers would depend on which tests ran before it, and in which process."""
    paths = sorted((ROOT / "tests").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): find_lasting_generators(path.read_text()) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}
