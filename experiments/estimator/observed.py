"""Do rules hold on new rows, as observed? Before, with the plug-in, and with the correction.

Half of the rows are for fitting (five folds), half for judging, with five seeds. The excess is that of
the worst rule over its tolerance, zero where all hold; no decision is drawn.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import (
    DATA,
    Remembered,
    Table,
    adult,
    language_models,
    logistic,
    occupations,
    save,
    wages,
)
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import train_test_split

from bylaw import (
    ConstrainedClassifier,
    ConvergenceWarning,
    Evidence,
    Problem,
    demographic_parity,
    disagreement,
    error,
    rejected,
)
from bylaw.language import Rate
from bylaw.program import compute_row_rates

HERE = Path(__file__).parent
VARIANTS = {
    "no rules": {"rules": [], "minimize": error()},
    "plug-in": {"correction": False},
    "corrected": {"margin": 0.0},
    "corrected, with margin": {},
}


class Setting(NamedTuple):
    name: str
    load: Callable[[Path], Table]
    rules: Sequence[Any]
    minimize: Rate = error()


SETTINGS = [
    Setting("Adult, gender", adult, [demographic_parity("gender", tol=0.02)]),
    Setting("Adult, race", adult, [demographic_parity("race", tol=0.05)]),
    Setting(
        "Adult, both", adult, [demographic_parity("gender", tol=0.02), demographic_parity("race", tol=0.05)]
    ),
    Setting("Adult, race x gender", adult, [demographic_parity(("race", "gender"), tol=0.05)]),
    Setting("wages, 5 classes", wages, [demographic_parity("gender", tol=0.01)]),
    Setting("occupations, 11 classes", occupations, [demographic_parity("gender", tol=0.01)]),
    Setting("Llama-2 13b, churn", language_models, [disagreement("7b") <= 0.1]),
    Setting(
        "Llama-2 13b, churn and error",
        language_models,
        [disagreement("7b") <= 0.4, error() <= 0.18],
        rejected(),
    ),
]


class Given(ClassifierMixin, BaseEstimator):
    """X is the probabilities."""

    def fit(self, X: Any, y: Any) -> Given:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return X.to_numpy()


def judge(setting: Setting, table: Table, seed: int) -> Iterator[tuple[str, float, float]]:
    """For each variant the worst excess and the cost, as observed on the rows left out."""
    X, y, groups = table
    here, there = train_test_split(np.arange(len(X)), test_size=0.5, random_state=seed, stratify=y)
    churn = setting.load is language_models
    model = FrozenEstimator(Given().fit(X, y)) if churn else Remembered(logistic(X))
    beside = "reference" if churn else "sensitive_features"
    for variant, options in VARIANTS.items():
        classifier = ConstrainedClassifier(
            model,
            **{"rules": setting.rules, "minimize": setting.minimize, **options},
            group_estimator=None if churn else model,
            random_state=seed,
        )
        classifier.fit(X.iloc[here], y[here], **{beside: groups.iloc[here]})
        distribution = classifier.predict_proba(
            X.iloc[there], **({beside: groups.iloc[there]} if churn else {})
        )
        seen = Evidence(
            np.eye(len(classifier.classes_))[np.searchsorted(classifier.classes_, y[there])],
            classes=classifier.classes_.tolist(),
            **{"references" if churn else "groups": groups.iloc[there]},
        )
        problem = Problem(setting.minimize, setting.rules)
        decisions = problem.action_space(seen.classes)
        distribution = np.pad(
            distribution, ((0, 0), (0, len(decisions.actions) - distribution.shape[1]))
        )  # without rules none is rejected
        rates = [found.rule.excess for found in problem.expand(seen.classes, seen.group_values)]
        cost, *excess = (
            compute_row_rates(r, seen, distribution, decisions).mean() for r in (setting.minimize, *rates)
        )
        yield variant, max(0.0, *excess), cost


def measure(folder: Path, seeds: int, settings: Sequence[Setting], rows: int | None) -> list[dict[str, Any]]:
    found = []
    for setting in settings:
        if setting.load is not adult:
            Remembered.trained.clear()
        table = setting.load(folder)
        if rows:
            table = Table(*(part[:rows] for part in table))
        for seed in range(seeds):
            for variant, excess, cost in judge(setting, table, seed):
                found.append(
                    {
                        "setting": setting.name,
                        "seed": seed,
                        "variant": variant,
                        "excess": excess,
                        "cost": cost,
                    }
                )
    return found


def table_of(found: list[dict[str, Any]]) -> str:
    """Over seeds: the worst excess over the tolerance in points with its standard error, and the mean cost in
    percent."""
    variants = list(dict.fromkeys(row["variant"] for row in found))
    lines = [
        "| | " + " | ".join(f"{v}: excess, cost" for v in variants) + " |",
        "|---|" + "---|" * len(variants),
    ]
    for name in dict.fromkeys(row["setting"] for row in found):
        cells = []
        for variant in variants:
            rows = [r for r in found if r["setting"] == name and r["variant"] == variant]
            excess, cost = (100 * np.array([r[key] for r in rows]) for key in ("excess", "cost"))
            spread = excess.std(ddof=1) / np.sqrt(len(excess)) if len(excess) > 1 else 0.0
            cells.append(f"{excess.mean():.2f} ± {spread:.2f}, {cost.mean():.1f} %")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="one seed, few rows, some settings")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table says what is missed
    settings = [SETTINGS[0], SETTINGS[-1]] if arguments.quick else SETTINGS
    found = measure(
        arguments.data_dir, 1 if arguments.quick else 5, settings, 3000 if arguments.quick else None
    )
    save(found, table_of(found), arguments.out, "observed")


if __name__ == "__main__":
    main()
