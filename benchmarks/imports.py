"""What it costs to import bylaw and to ask the command line for help, in CPU time.

Prints a table and writes it to benchmarks/results/imports.md.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

from core import show

RESULTS = Path(__file__).parent / "results" / "imports.md"
HEAVY = ("scipy.optimize", "sklearn", "pyarrow")
ROUNDS = 7


def cpu_seconds(*command: str) -> float:
    """The least of several runs."""
    return min(_run_once(command) for _ in range(ROUNDS))


def _run_once(command: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def heavy_imports() -> list[str]:
    code = f"import sys, bylaw; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    python, numpy, imported, loaded, helped = (
        cpu_seconds(sys.executable, "-c", "pass"),
        cpu_seconds(sys.executable, "-c", "import numpy"),
        cpu_seconds(sys.executable, "-c", "import bylaw"),
        cpu_seconds(sys.executable, "-c", "from bylaw import solve, Policy, audit"),
        cpu_seconds(str(Path(sys.executable).parent / "bylaw"), "--help"),
    )
    lines = [
        ("the unit: python -c 'import numpy'", f"{numpy:.2f} s of CPU (python alone: {python:.2f} s)", ""),
        ("import bylaw", f"{imported:.2f} s, {imported / numpy:.1f} numpy", "<= 0.35 s"),
        (
            "heavy libraries imported by it",
            ", ".join(heavy_imports()) or "none",
            f"none of {', '.join(HEAVY)}",
        ),
        ("from bylaw import solve, Policy, audit", f"{loaded:.2f} s, {loaded / numpy:.1f} numpy", ""),
        ("bylaw --help", f"{helped:.2f} s, {helped / numpy:.1f} numpy", "<= 0.5 s"),
    ]
    show(lines, out)


if __name__ == "__main__":
    main()
