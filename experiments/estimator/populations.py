"""How often do rules hold on a population whose truth is known? By number of rows, of groups, and settings.

    python -m experiments.estimator.populations [--quick] [--minutes 3] [--only "parity, groups known"]

Two features, two classes; P(group | x) and P(label | x, group) are known. Rates of a fitted policy on the
population are integrals over quasi-random points (Sobol) with these exact probabilities, to within a few
hundredths of a point, so that the only noise is that of the fitted rows. Each population with each number of
groups gets as many samples as so many minutes allow, at most 200.

The chance that a policy states is compared with how often its rules hold: a table and a figure, in which the
policies of the default and of fixed margins are sorted into bins of the stated chance.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import ROOT, Remembered, save
from experiments.figures import COLOURS, FAINT, keep, panels, percent, title
from scipy.special import expit, softmax
from scipy.stats import norm, qmc
from sklearn.linear_model import LogisticRegression

from bylaw import (
    ConstrainedClassifier,
    ConvergenceWarning,
    GuaranteeWarning,
    InfeasibleRulesError,
    demographic_parity,
    equalized_odds,
)

HERE = Path(__file__).parent
SHARES = {2: (0.65, 0.35), 3: (0.5, 0.3, 0.2), 4: (0.4, 0.3, 0.2, 0.1)}
SIZES = (500, 2000, 10_000)
MOST_REPETITIONS = 200
LOG_POINTS = 15  # 2 ** 15 points of the integrals
STATED = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # bins of stated chances
FIGURE = ROOT / "docs" / "images" / "stated_chance.png"
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "margin=0": {"margin": 0.0},
    "margin=1": {"margin": 1.0},
    "correction=False": {"correction": False},
}


class Population(NamedTuple):
    name: str
    known: bool  # whether groups are known when a decision is made
    apart: float  # of the labels of groups, given x
    bend: float  # of the true log-odds; the models are straight, so they are wrong unless this is zero
    tol: float = 0.02
    odds: bool = False

    @property
    def rules(self) -> list[Any]:
        return [(equalized_odds if self.odds else demographic_parity)("group", tol=self.tol)]

    def groups(self, x: np.ndarray, n_groups: int) -> np.ndarray:
        """P(group | x), (n_rows, n_groups)."""
        lean = np.linspace(-0.8, 0.8, n_groups)
        return softmax(np.log(SHARES[n_groups]) + np.outer(self._bent(x, 0), lean), axis=1)

    def labels(self, x: np.ndarray, n_groups: int) -> np.ndarray:
        """P(label = 1 | x, group), (n_rows, n_groups)."""
        odds = -0.3 + 1.2 * self._bent(x, 0) + 0.6 * self._bent(x, 1)
        return expit(odds[:, None] + self.apart * np.linspace(-1, 1, n_groups))

    def _bent(self, x: np.ndarray, place: int) -> np.ndarray:
        return x[:, place] + self.bend * (x[:, 0] * x[:, 1] - 0.5 * (x[:, 1] ** 2 - 1))


POPULATIONS = [
    Population("parity, groups known", known=True, apart=0.4, bend=0.0),
    Population("parity, groups hidden, models right", known=False, apart=0.0, bend=0.0),
    Population("parity, groups hidden, models wrong", known=False, apart=0.4, bend=0.6),
    Population("odds, groups known", known=True, apart=0.4, bend=0.0, tol=0.05, odds=True),
]


def as_frame(x: np.ndarray) -> pandas.DataFrame:
    return pandas.DataFrame(x, columns=["first", "second"])


class Sample(NamedTuple):
    X: pandas.DataFrame
    y: np.ndarray
    groups: np.ndarray


def draw(population: Population, n_groups: int, n: int, seed: int) -> Sample:
    rng = np.random.default_rng([seed, n, n_groups])
    x = rng.normal(size=(n, 2))
    groups = (rng.random((n, 1)) > population.groups(x, n_groups).cumsum(axis=1)).sum(axis=1)
    groups = groups.clip(0, n_groups - 1)
    chances = population.labels(x, n_groups)[np.arange(n), groups]
    return Sample(as_frame(x), (rng.random(n) < chances).astype(int), groups)


class Integral:
    """Rates of a fitted classifier on the population."""

    def __init__(self, population: Population, n_groups: int, log_points: int, seed: int = 0) -> None:
        points = qmc.Sobol(2, rng=seed).random_base2(log_points)
        x = norm.ppf(points.clip(1e-9, 1 - 1e-9))
        self.population, self.n_groups, self.X = population, n_groups, as_frame(x)
        self.cells = population.groups(x, n_groups)
        self.chances = population.labels(x, n_groups)

    def judge(self, classifier: ConstrainedClassifier) -> tuple[float, float]:
        """The worst rule's excess, and the error."""
        chosen = self._decide(classifier)  # (n_points, n_groups)
        strata = [np.ones_like(self.chances)]
        if self.population.odds:
            strata = [self.chances, 1 - self.chances]
        gaps = []
        for stratum in strata:
            mass = self.cells * stratum
            rates = (mass * chosen).sum(axis=0) / mass.sum(axis=0)
            gaps.append(np.abs(rates - (mass * chosen).sum() / mass.sum()).max())
        wrong = chosen * (1 - self.chances) + (1 - chosen) * self.chances
        return float(max(gaps)) - self.population.tol, float((self.cells * wrong).sum() / len(self.X))

    def _decide(self, classifier: ConstrainedClassifier) -> np.ndarray:
        """P(decision = 1 | x, group)."""
        if not self.population.known:
            return np.tile(classifier.predict_proba(self.X)[:, 1:], self.n_groups)
        each = [np.full(len(self.X), group) for group in range(self.n_groups)]
        decided = [classifier.predict_proba(self.X, sensitive_features=group)[:, 1] for group in each]
        return np.column_stack(decided)


def repeat(integral: Integral, n: int, seed: int) -> Iterator[dict[str, Any]]:
    """One sample, fitted in each variant with the same folds."""
    population, n_groups = integral.population, integral.n_groups
    X, y, groups = draw(population, n_groups, n, seed)
    Remembered.trained.clear()
    model = Remembered(LogisticRegression())
    for variant, options in VARIANTS.items():
        classifier = ConstrainedClassifier(
            model,
            population.rules,
            group_estimator=None if population.known else model,
            random_state=seed,
            **options,
        )
        begin, excess, cost, stated = time.process_time(), np.nan, np.nan, 0.0
        try:
            classifier.fit(X, y, sensitive_features=pandas.Series(groups, name="group", index=X.index))
            seconds = time.process_time() - begin
            excess, cost = integral.judge(classifier)
            stated = (
                0.0 if classifier.policy_.fitted_rates is None else classifier.policy_.fitted_rates.chance
            )
        except InfeasibleRulesError:
            seconds = time.process_time() - begin
        yield {
            "population": population.name,
            "groups": n_groups,
            "rows": n,
            "variant": variant,
            "seed": seed,
            "excess": excess,
            "error": cost,
            "stated": stated,
            "seconds": seconds,
        }


def measure(
    integrals: Sequence[Integral], sizes: Sequence[int], repetitions: int, minutes: float
) -> list[dict[str, Any]]:
    found = []
    for integral in integrals:
        end = time.monotonic() + 60 * minutes
        for seed in range(repetitions):
            if seed and time.monotonic() > end:
                break
            for n in sizes:
                found += repeat(integral, n, seed)
    return found


def table_of(found: list[dict[str, Any]]) -> str:
    """How often all rules hold, with its standard error, the mean of the chance that fits state, and the mean
    error; a refused fit counts as one that does not hold."""
    frame = pandas.DataFrame(found)
    variants = list(dict.fromkeys(frame.variant))
    lines = [
        f"| population | groups | rows | samples | {' | '.join(variants)} |",
        "|---" * (4 + len(variants)) + "|",
    ]
    for (name, n_groups, n), rows in frame.groupby(["population", "groups", "rows"], sort=False):
        cells = [_summarise(rows[rows.variant == variant]) for variant in variants]
        lines.append(f"| {name} | {n_groups} | {n:,} | {rows.seed.nunique()} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _summarise(rows: pandas.DataFrame) -> str:
    holds = float((rows.excess <= 0).mean())
    noise = np.sqrt(max(holds * (1 - holds), 0.25 / len(rows)) / len(rows))
    stated = "" if rows.variant.iloc[0] == "correction=False" else f" (stated {rows.stated.mean():.2f})"
    return f"{holds:.2f} ± {noise:.2f}{stated}, error {100 * rows.error.mean():.2f} %"


def bin_chances(found: list[dict[str, Any]]) -> pandas.DataFrame:
    """Return how many corrected fits state a chance in each bin, its mean, how often their rules hold, and
    the Brier score; by kind of population."""
    frame = pandas.DataFrame(found)
    frame = frame[(frame.variant != "correction=False") & frame.excess.notna()]
    frame = frame.assign(
        holds=frame.excess <= 0,
        kind=np.where(frame.population.str.contains("hidden"), "groups hidden", "groups known"),
        bin=pandas.cut(frame.stated, STATED, include_lowest=True),
    )
    frame["brier"] = (frame.holds - frame.stated) ** 2
    by = frame.groupby(["kind", "bin"], observed=True)
    return by.agg(
        fits=("holds", "size"), stated=("stated", "mean"), holds=("holds", "mean"), brier=("brier", "mean")
    ).reset_index()


def reliability_table_of(bins: pandas.DataFrame) -> str:
    lines = ["| | stated chance | fits | stated, mean | rules hold |", "|---|---|---|---|---|"]
    for row in bins.itertuples():
        noise = np.sqrt(max(row.holds * (1 - row.holds), 0.25 / row.fits) / row.fits)
        span = f"{max(row.bin.left, 0):.0%} to {row.bin.right:.0%}"
        lines.append(
            f"| {row.kind} | {span} | {row.fits} | {row.stated:.2f} | {row.holds:.2f} ± {noise:.2f} |"
        )
    for kind, part in bins.groupby("kind", sort=False):
        score = np.average(part.brier, weights=part.fits)
        lines.append(f"| {kind} | Brier score {score:.3f} | {part.fits.sum()} | | |")
    return "\n".join(lines) + "\n"


def draw_reliability(bins: pandas.DataFrame, path: Path) -> None:
    figure, (axis,) = panels()
    axis.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    for (kind, part), color in zip(bins.groupby("kind", sort=False), COLOURS, strict=False):
        noise = np.sqrt(np.maximum(part.holds * (1 - part.holds), 0.25 / part.fits) / part.fits)
        axis.errorbar(part.stated, part.holds, noise, fmt="o-", color=color, label=kind, capsize=2)
    axis.set_xlabel("chance that the policy states")
    axis.set_ylabel("share of policies whose rules hold")
    percent(axis.xaxis)
    percent(axis.yaxis)
    axis.legend(frameon=False)
    title(axis, "How often rules hold on the population")
    keep(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--only", choices=[p.name for p in POPULATIONS], help="one population")
    parser.add_argument("--groups", type=int, choices=list(SHARES), help="one number of groups")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each population and number of groups")
    parser.add_argument("--quick", action="store_true", help="one sample of few rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table states what is missed
    warnings.simplefilter("ignore", GuaranteeWarning)  # of groups with few rows
    quick = arguments.quick
    integrals = [
        Integral(population, n_groups, 10 if quick else LOG_POINTS)
        for population, n_groups in product(POPULATIONS, [2] if quick else SHARES)
        if arguments.only in (None, population.name) and arguments.groups in (None, n_groups)
    ]
    sizes, repetitions = ((300,), 1) if quick else (SIZES, MOST_REPETITIONS)
    found = measure(integrals, sizes, repetitions, arguments.minutes)
    save(found, table_of(found), arguments.out, "populations")
    bins = bin_chances(found)
    (arguments.out / "reliability.md").write_text(reliability_table_of(bins))
    draw_reliability(bins, arguments.out / "stated_chance.png" if quick else FIGURE)


if __name__ == "__main__":
    main()
