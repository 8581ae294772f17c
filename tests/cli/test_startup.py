"""Help is quick: commands import what they need when they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bylaw
from bylaw.scoring import DIALECTS

PACKAGE = Path(bylaw.__file__).parent
HEAVY = ("numpy", "scipy", "pyarrow", "matplotlib", "pandas", "narwhals", "sklearn")
# A stand-in for the package itself, so that this is about the command line alone.
SCRIPT = f"""\
import sys, types
package = types.ModuleType("bylaw")
package.__path__ = [sys.argv.pop(1)]
sys.modules["bylaw"] = package
{{before}}
from bylaw.cli import main
try:
    main()
except SystemExit as ended:
    print(ended.code, sorted(set(sys.modules) & set({HEAVY})))
"""


def run_alone(*arguments, before=""):
    """Exit code and heavy imports of a command, in the last line of its output, and its errors."""
    command = [sys.executable, "-c", SCRIPT.replace("{before}", before), PACKAGE, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()[-1], ended.stderr


@pytest.mark.slow
def test_help_imports_nothing_heavy():
    for arguments in (["--help"], ["fit", "--help"], ["export", "sql", "--help"]):
        assert run_alone(*arguments) == ("0 []", "")


def test_help_names_every_dialect(bylaw):
    text = bylaw("export", "sql", "--help").out
    assert [name for name in DIALECTS if name not in text] == []


def test_what_is_not_installed_is_named(bylaw, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = bylaw("frontier", "scores.parquet", "--rules", "rules.toml")
    advice = "pip install '.[cli]' in a clone of bylaw"
    assert (answer.code, answer.err) == (
        2,
        f"error: the command line needs pyarrow; install it with: {advice}\n",
    )
    found = run_alone(before="sys.modules['typer'] = None")
    assert found == ("2 []", f"the command line needs typer; install it with: {advice}\n")
