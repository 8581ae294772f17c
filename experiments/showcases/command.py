"""What every showcase can be asked on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from experiments.data import DATA, ROOT


class Asked(NamedTuple):
    data: Path
    results: Path  # folder for tables
    pictures: Path  # folder for figures
    quick: bool


def asked(description: str | None, quick: str) -> Asked:
    """`quick` says what becomes small."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, help="one folder for results and figures")
    parser.add_argument("--quick", action="store_true", help=quick)
    found = parser.parse_args()
    results = found.out or Path(__file__).parent / "results"
    pictures = found.out or ROOT / "docs" / "images" / "showcases"
    return Asked(found.data_dir, results, pictures, found.quick)
