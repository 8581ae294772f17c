"""Programs of other libraries beside ours, on the same rows: tables for the pages on migration.

    python -m experiments.migration.run [--splits 20] [--only fairlearn] [--out folder]

Half of the rows fit, half judge, in several random splits. Judged is what `predict` returns, as drawn.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas
from experiments.data import save
from experiments.migration.programs import PAIRS, Pair, count_lines, rows_of, run

from bylaw import UncertifiedError

RESULTS = Path(__file__).parent / "results"
ALONE = "the model alone"


def measure(rows: Any, found: dict[str, Any]) -> dict[str, float]:
    """Rates on the rows that judge: of sets (n_rows, n_classes), or of decisions 1 and 0."""
    y = np.asarray(rows.y_new)
    if "sets" in found:
        sets = np.asarray(found["sets"])
        return {"coverage": float(sets[np.arange(len(y)), y].mean()), "size": float(sets.sum(axis=1).mean())}
    decisions, black = np.asarray(found["decisions"]).astype(int), np.asarray(rows.race_new) == "black"
    denied, right = decisions == 0, decisions == y

    def gap(among: np.ndarray) -> float:
        return float(decisions[among & black].mean() - decisions[among & ~black].mean())

    return {
        "error": float(1 - right.mean()),
        "gap": gap(np.full(len(y), True)),
        "gap, approved": gap(y == 1),
        "gap, denied": gap(y == 0),
        "F1": float(2 * (denied & right).sum() / (denied.sum() + (y == 0).sum())),
        "precision": float(right[decisions == 1].mean()),
        "recall": float(right[y == 1].mean()),
    }


def decide_alone(rows: ModuleType, measures: tuple[str, ...]) -> dict[str, Any]:
    """The likeliest class, without any rule."""
    model = rows.model.fit(rows.X, rows.y)
    decisions = model.predict(rows.X_new)
    return {"sets": decisions[:, None] == model.classes_} if "size" in measures else {"decisions": decisions}


def compare(pair: Pair, seed: int) -> Iterator[dict[str, Any]]:
    """What each program reaches on one split; nothing where it refuses to answer."""
    with rows_of(pair.rows, seed) as rows:
        for name, path in pair.paths.items():
            try:
                found, seconds = run(path)
            except (ValueError, UncertifiedError):
                if not pair.may_refuse:
                    raise
                found, seconds = None, math.nan
            yield {"program": name, "split": seed, "seconds": seconds, **judge(pair, rows, found)}
        yield {"program": ALONE, "split": seed, **judge(pair, rows, decide_alone(rows, pair.measures))}


def judge(pair: Pair, rows: ModuleType, found: dict[str, Any] | None) -> dict[str, float]:
    rates = {} if found is None else measure(rows, found)
    return {kind: rates.get(kind, math.nan) for kind in pair.measures}


PERCENT: Callable[[float], str] = "{:.1f} %".format
POINTS: Callable[[float], str] = "{:+.1f}".format
FORMATS: dict[str, tuple[str, Callable[[float], str], float]] = {
    "error": ("error", PERCENT, 100),
    "gap": ("gap in approvals, points", POINTS, 100),
    "gap, approved": ("gap among files that were approved, points", POINTS, 100),
    "gap, denied": ("gap among files that were denied, points", POINTS, 100),
    "F1": ("F1 of denials", "{:.3f}".format, 1),
    "precision": ("precision of approvals", PERCENT, 100),
    "recall": ("recall of approvals", PERCENT, 100),
    "coverage": ("coverage", PERCENT, 100),
    "size": ("labels in a set", "{:.2f}".format, 1),
}


def shown(values: pandas.Series, measure: str) -> str:
    """The mean over splits and its standard error."""
    _, form, factor = FORMATS[measure]
    mean, spread = factor * values.mean(), factor * values.std() / np.sqrt(len(values))
    return f"{form(mean)} ± {form(spread).lstrip('+').removesuffix(' %')}"


def table_of(pair: Pair, found: pandas.DataFrame) -> str:
    """One line for each program. Rates are means over the splits that all of them answered."""
    refused = set(found.split[found[pair.measures[0]].isna()])
    answers = ["splits answered"] if pair.may_refuse else []
    heads = ["", *(FORMATS[kind][0] for kind in pair.measures), *answers, "seconds", "lines"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in (ALONE, *pair.paths):
        part = found[found.program == name]
        compared = part[~part.split.isin(refused)]
        cells = [name, *(shown(compared[kind], kind) for kind in pair.measures)]
        cells += [f"{part[pair.measures[0]].count()} of {len(part)}"] if pair.may_refuse else []
        if name == ALONE:
            cells += ["", ""]
        else:
            cells += [f"{part.seconds.median():.2g}", str(count_lines(pair.paths[name]))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def summary_of(found: Mapping[str, pandas.DataFrame]) -> str:
    """One line for each pair."""
    heads = ["from", "task", "lines, theirs", "lines, ours", "seconds, theirs", "seconds, ours"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for pair in PAIRS:
        seconds = found[pair.name].groupby("program").seconds.median()
        cells = [f"[{pair.peer}](migration/{pair.page}.md)", pair.task]
        cells += [str(count_lines(path)) for path in pair.paths.values()]
        cells += [f"{seconds[name]:.2g}" for name in pair.paths]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def describe_rows(splits: int) -> str:
    """How many rows there are of the smaller group, and what that means for a rate."""
    with rows_of("loan_files", 0) as rows:
        black = np.concatenate([rows.race, rows.race_new]) == "black"
        denied = black & (np.concatenate([rows.y, rows.y_new]) == 0)
    widest = [100 * 0.5 / np.sqrt(group.sum() / 2) for group in (black, denied)]
    return (
        f"The tables show means over {splits} random splits, ± their standard error. "
        f"The mortgage files are those of {len(black):,} applicants, {black.sum()} of them black, of whom "
        f"{denied.sum()} were denied. So a rate of black applicants in one half has a standard error of up "
        f"to {widest[0]:.0f} points, and one of those denied of up to {widest[1]:.0f}.\n"
    )


def read(folder: Path) -> dict[str, pandas.DataFrame]:
    """Every measurement that was saved, by the name of the pair."""
    return {pair.name: pandas.read_csv(folder / f"{pair.name}.csv") for pair in PAIRS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", default="", help="pairs whose names begin so")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chosen = [pair for pair in PAIRS if pair.name.startswith(arguments.only)]
    for pair in chosen:
        found = [row for seed in range(arguments.splits) for row in compare(pair, seed)]
        save(found, table_of(pair, pandas.DataFrame(found)), arguments.out, pair.name)
    if len(chosen) == len(PAIRS):
        (arguments.out / "rows.md").write_text(describe_rows(arguments.splits))
        (arguments.out / "summary.md").write_text(summary_of(read(arguments.out)))


if __name__ == "__main__":
    main()
