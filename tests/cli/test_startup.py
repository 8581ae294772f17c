"""Help is quick: commands import what they need when they run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import bylaw
from bylaw.export.sql_dialects import DIALECTS

HEAVY = ("numpy", "scipy", "pyarrow", "matplotlib", "pandas", "narwhals", "sklearn")
# A stand-in for the package itself, so that this is about the command line alone.
SCRIPT = f"""\
import sys, types
package = types.ModuleType("bylaw")
package.__path__ = [sys.argv.pop(1)]
sys.modules["bylaw"] = package
from bylaw.cli.app import run
try:
    run()
except SystemExit as ended:
    print(ended.code, sorted(set(sys.modules) & set({HEAVY})))
"""


def list_heavy_imports(*arguments):
    """The exit code of a command and what it imported, from the last line that it prints."""
    command = [sys.executable, "-c", SCRIPT, Path(bylaw.__file__).parent, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()[-1]


def test_help_imports_nothing_heavy():
    for arguments in (["--help"], ["fit", "--help"], ["export", "sql", "--help"]):
        assert list_heavy_imports(*arguments) == "0 []"


def test_help_names_every_dialect(bylaw):
    text = bylaw("export", "sql", "--help").out
    assert [name for name in DIALECTS if name not in text] == []


def test_what_is_not_installed_is_named(bylaw, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = bylaw("frontier", "scores.parquet", "--rules", "rules.toml")
    assert (answer.code, answer.err) == (
        2,
        "error: the command line needs pyarrow: pip install 'bylaw[cli]'\n",
    )
    script = "import sys; sys.modules['typer'] = None; from bylaw.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "the command line needs typer: pip install 'bylaw[cli]'\n"
