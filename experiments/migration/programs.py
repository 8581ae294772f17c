"""The pairs of programs in `examples/migration`: how one is run on other rows, and how long it is."""

from __future__ import annotations

import contextlib
import importlib
import io
import runpy
import sys
import time
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "migration"
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True)
class Pair:
    name: str  # of the two files: name.py is the peer's, name_bylaw.py ours
    peer: str
    page: str
    task: str
    rows: str  # the module of the rows
    measures: tuple[str, ...]
    may_refuse: bool = False  # whether a program may end with an error: nothing can be guaranteed

    @property
    def paths(self) -> dict[str, Path]:
        return {self.peer: FOLDER / f"{self.name}.py", "bylaw": FOLDER / f"{self.name}_bylaw.py"}


PARITY, ODDS = ("error", "gap"), ("error", "gap, approved", "gap, denied")
PAIRS = (
    Pair(
        "fairlearn_threshold",
        "fairlearn, ThresholdOptimizer",
        "fairlearn",
        "equal approval rates, race known",
        "loan_files",
        PARITY,
    ),
    Pair(
        "fairlearn_reduction",
        "fairlearn, ExponentiatedGradient",
        "fairlearn",
        "equal approval rates, race unknown when a decision is made",
        "loan_files",
        PARITY,
    ),
    Pair("aif360_odds", "AIF360, EqOddsPostprocessing", "aif360", "equalized odds", "loan_files", ODDS),
    Pair("error_parity_odds", "error-parity", "error_parity", "equalized odds", "loan_files", ODDS),
    Pair("oxonfair_thresholds", "OxonFair", "oxonfair", "equal approval rates", "loan_files", PARITY),
    Pair(
        "sklearn_threshold",
        "scikit-learn, TunedThresholdClassifierCV",
        "scikit_learn",
        "the best F1 score of denials",
        "loan_files",
        ("error", "F1"),
    ),
    Pair("mapie_sets", "MAPIE, LAC", "mapie", "sets that cover 95 %", "digit_images", ("coverage", "size")),
    Pair(
        "mapie_risk_control",
        "MAPIE, BinaryClassificationController",
        "mapie",
        "a precision of 92 %, with 90 % confidence",
        "loan_files",
        ("error", "precision", "recall"),
        may_refuse=True,
    ),
)


@contextlib.contextmanager
def rows_of(name: str, seed: int) -> Iterator[ModuleType]:
    """The module of the rows, importable, with another split into halves."""
    sys.path.insert(0, str(FOLDER))
    try:
        module = importlib.import_module(name)
        parts = ("X", "X_new", "y", "y_new", "race", "race_new")
        vars(module).update(zip(parts, module.split(seed), strict=False))
        yield module
    finally:
        sys.path.remove(str(FOLDER))


def run(path: Path) -> tuple[dict[str, Any], float]:
    """What a program leaves, and its seconds of CPU time; those of its imports too, the first time."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        found = runpy.run_path(str(path))
        return found, time.process_time() - start


def count_lines(path: Path) -> int:
    """Lines that have code on them: no blank ones, no comments."""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))[1:-1]
    return len(
        {
            line
            for token in tokens
            if token.type not in SKIPPED
            for line in range(token.start[0], token.end[0] + 1)
        }
    )
