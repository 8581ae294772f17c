"""Do rules hold on new rows where a tenth of the labels and groups were seen?

Half of the rows are for fitting (five folds), half for judging, with five seeds. Of the fitted rows, all show
their label and group, or a random tenth does; that tenth chooses the policy together with the other rows, by
prediction-powered rates or by what the models predict, or alone. The groups are hidden from the decisions.
The excess is that of the worst rule over its tolerance, zero where all hold; no decision is drawn, and no
margin is kept.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import DATA, Remembered, Table, adult, logistic, save, wages
from experiments.estimator.observed import table_of
from sklearn.model_selection import train_test_split

from bylaw import (
    ConstrainedClassifier,
    ConvergenceWarning,
    Evidence,
    GuaranteeWarning,
    Problem,
    demographic_parity,
    equalized_odds,
    error,
)
from bylaw.program import compute_row_rates

HERE = Path(__file__).parent
SEEN = 0.1
VARIANTS = ("all seen", "a tenth seen", "a tenth seen, plug-in", "a tenth alone")


class Setting(NamedTuple):
    name: str
    load: Callable[[Path], Table]
    rule: Any


SETTINGS = [
    Setting("Adult, parity of gender", adult, demographic_parity("gender", tol=0.02)),
    Setting("Adult, equal odds of gender", adult, equalized_odds("gender", tol=0.05)),
    Setting("wages, parity of gender", wages, demographic_parity("gender", tol=0.01)),
]


def choose_rows(variant: str, table: Table, here: np.ndarray, seed: int) -> tuple[Any, Any, Any]:
    """Features, labels and groups of the fitted rows, missing where they were not seen."""
    X, y, groups = table.X.iloc[here], table.y[here].astype(object), table.groups.iloc[here]
    if variant == "all seen":
        return X, y, groups
    shown = np.random.default_rng(seed).random(len(here)) < SEEN
    if variant == "a tenth alone":
        return X[shown], y[shown], groups[shown]
    return X, np.where(shown, y, None), groups.apply(lambda column: column.where(shown))


def judge(setting: Setting, table: Table, seed: int) -> Iterator[tuple[str, float, float, float]]:
    """For each variant the worst excess and the error, as observed on the rows left out, and the seconds."""
    here, there = train_test_split(
        np.arange(len(table.X)), test_size=0.5, random_state=seed, stratify=table.y
    )
    model = Remembered(logistic(table.X))
    for variant in VARIANTS:
        X, y, groups = choose_rows(variant, table, here, seed)
        classifier = ConstrainedClassifier(
            model,
            [setting.rule],
            group_estimator=model,
            correction="plug-in" not in variant,
            margin="auto" if "plug-in" in variant else 0.0,
            random_state=seed,
        )
        start = time.perf_counter()
        classifier.fit(X, y, sensitive_features=groups)
        seconds = time.perf_counter() - start
        excess, cost = measure_rates(setting, classifier, table, there)
        yield variant, excess, cost, seconds


def measure_rates(
    setting: Setting, classifier: ConstrainedClassifier, table: Table, there: np.ndarray
) -> tuple[float, float]:
    """The worst excess and the error on rows that the classifier has not seen."""
    classes = classifier.classes_
    seen = Evidence(
        np.eye(len(classes))[np.searchsorted(classes.astype(str), table.y[there].astype(str))],
        classes=classes.tolist(),
        groups=table.groups.iloc[there],
    )
    problem = Problem(error(), [setting.rule])
    space = problem.action_space(seen.classes)
    chances = classifier.predict_proba(table.X.iloc[there])
    rates = [found.rule.excess for found in problem.expand(seen.classes, seen.group_values)]
    cost, *excess = (compute_row_rates(rate, seen, chances, space).mean() for rate in (error(), *rates))
    return max(0.0, *excess), float(cost)


def measure(folder: Path, seeds: int, settings: Sequence[Setting], rows: int | None) -> list[dict[str, Any]]:
    found = []
    for setting in settings:
        table = setting.load(folder)
        if rows:
            table = Table(*(part[:rows] for part in table))
        for seed in range(seeds):
            Remembered.trained.clear()
            for variant, excess, cost, seconds in judge(setting, table, seed):
                found.append(
                    {
                        "setting": setting.name,
                        "seed": seed,
                        "variant": variant,
                        "excess": excess,
                        "cost": cost,
                        "seconds": round(seconds, 1),
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="one seed, few rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table states what is missed
    warnings.simplefilter("ignore", GuaranteeWarning)
    seeds, rows = (1, 4000) if arguments.quick else (5, None)
    found = measure(arguments.data_dir, seeds, SETTINGS, rows)
    save(found, table_of(found), arguments.out, "partly_seen")


if __name__ == "__main__":
    main()
