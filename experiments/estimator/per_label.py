"""Sets that cover every label: `miscoverage().given(label=k) <= 0.1`, beside a quantile of each class.

    python -m experiments.estimator.per_label [--quick] [--only 26]

Given the labels of the fitted rows, the best one can do with a threshold per class is known: the 90 %
quantile of 1 - p_y among the rows of each class (class-conditional conformal prediction, without its
correction for new rows). Scores are taken as they are, under-confident (logits times a half) and
over-confident (times three). Time is that of the processor, in the same run.

With margin="auto", sets are to cover each of 26 labels on new rows with a chance of 95 % in all. Their size
is compared with two others: the smallest among fixed margins with which as large a share of samples covers
every label as the policies state, and the order statistic of each class that covers it with a chance of
0.95^(1/26), which follows from the beta distribution. Coverage is judged on 40,000 other rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from experiments.data import DATA, images, save
from scipy.special import log_softmax, softmax
from scipy.stats import beta

from bylaw import Evidence, InfeasibleRulesError, Policy, Problem, miscoverage, size, solve

HERE = Path(__file__).parent
LEVEL = 0.1
MARGIN_SIZES, MARGINS = (1000, 2000, 3000), (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
CHANCE = 0.95  # that margin="auto" aims at
TEMPERS = {"as they are": 1.0, "under-confident": 0.5, "over-confident": 3.0}
ROUNDS = 3  # of the solve as predicted and as observed, in turns ...
ENOUGH = 3.0  # ... unless they took so many seconds


class Scores(NamedTuple):
    logits: np.ndarray  # (n_rows, n_classes)
    labels: np.ndarray  # (n_rows,)


def mixture(folder: Path, n_classes: int, n: int, spread: float) -> Scores:
    """Classes of unequal frequency around random centres, scored by the exact log-posterior of a model that
    takes them for a little tighter than they are."""
    rng = np.random.default_rng(n_classes)
    centres = rng.normal(size=(n_classes, 16))
    shares = rng.dirichlet(np.full(n_classes, 8.0))
    labels = rng.choice(n_classes, n, p=shares)
    x = centres[labels] + spread * rng.normal(size=(n, 16))
    distances = ((x[:, None, :] - centres) ** 2).sum(axis=2)
    return Scores(np.log(shares) - distances / (2 * (0.9 * spread) ** 2), labels)


def newsgroups(folder: Path) -> Scores:
    probabilities = np.load(folder / "news20_probabilities.npy").astype(float)
    return Scores(np.log(probabilities.clip(1e-12)), np.load(folder / "news20_labels.npy").ravel())


def photographs(folder: Path) -> Scores:
    return Scores(*images(folder))


SETTINGS: dict[str, Callable[[Path], Scores]] = {
    "26 classes, mixture, 20,000 rows": partial(mixture, n_classes=26, n=20_000, spread=1.6),
    "77 classes, mixture, 10,000 rows": partial(mixture, n_classes=77, n=10_000, spread=1.3),
    "20 classes, newsgroups, 7,532 rows": newsgroups,
    "100 classes, CIFAR-100, 10,000 rows": photographs,
}


def judge(included: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The mean size of the sets, and the largest share of rows of one class whose label is left out."""
    missed = 1 - included[np.arange(len(labels)), labels]
    worst = max(float(missed[labels == label].mean()) for label in np.unique(labels))
    return float(included.sum(axis=1).mean()), worst


def quantile_sets(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The smallest set of each class's highest scores that covers enough of its own rows; of the last row,
    the part that is needed."""
    included = np.zeros_like(probabilities)
    for label in range(probabilities.shape[1]):
        scores = probabilities[:, label]
        own = np.sort(scores[labels == label])
        allowed = LEVEL * len(own)
        last = own[int(allowed)] if len(own) else np.inf
        included[:, label] = (scores > last) + (1 - (allowed - int(allowed))) * (scores == last)
    return included


def draw_mixture(rng: np.random.Generator, centres: np.ndarray, shares: np.ndarray, n: int) -> Scores:
    """Draw rows of one mixture, with the probabilities of a model that takes it for a little tighter."""
    labels = rng.choice(len(shares), n, p=shares)
    x = centres[labels] + 1.6 * rng.normal(size=(n, centres.shape[1]))
    distances = ((x[:, None, :] - centres) ** 2).sum(axis=2)
    return Scores(np.log(shares) - distances / (2 * 1.44**2), labels)


def order_statistic_sets(fitted: Scores, test: np.ndarray) -> np.ndarray:
    """Return sets on test rows that cover each class with a chance of 0.95^(1 / n_classes). If the m lowest
    of the class's n scores are left out, the share of its new rows that is left out has the beta
    distribution with parameters m + 1 and n - m."""
    probabilities, n_classes = softmax(fitted.logits, axis=1), fitted.logits.shape[1]
    included = np.ones(test.shape)
    for label in range(n_classes):
        own = np.sort(probabilities[fitted.labels == label, label])
        left_out = np.arange(len(own))
        enough = beta.cdf(LEVEL, left_out + 1, len(own) - left_out) >= CHANCE ** (1 / n_classes)
        if enough.any():
            included[:, label] = test[:, label] >= own[left_out[enough].max()]
    return included


def measure_margins(n: int, n_classes: int, samples: int, n_test: int) -> dict[str, Any]:
    """Return sizes and coverage with margin="auto", with fixed margins, and by order statistics."""
    rng = np.random.default_rng(n_classes)
    mixture = rng.normal(size=(n_classes, 16)), rng.dirichlet(np.full(n_classes, 8.0))
    other = draw_mixture(np.random.default_rng([n_classes, 1]), *mixture, n_test)
    test = softmax(other.logits, axis=1)
    problem = Problem(size(), [miscoverage().given(label=k) <= LEVEL for k in range(n_classes)])
    sizes: dict[Any, list[float]] = {margin: [] for margin in (*MARGINS, "auto", "order")}
    held: dict[Any, list[bool]] = {margin: [] for margin in sizes}
    stated, seconds, seed = [], [], 0
    while len(stated) < samples:
        fitted, seed = draw_mixture(np.random.default_rng([seed, n]), *mixture, n), seed + 1
        if len(np.unique(fitted.labels)) < n_classes:
            continue
        evidence = Evidence(softmax(fitted.logits, axis=1))
        for margin in sizes:
            if margin == "order":
                included = order_statistic_sets(fitted, test)
            else:
                fit = partial(solve, problem, evidence, labels=fitted.labels, margin=margin)
                policy, taken = timed(fit)
                included = policy.probabilities(Evidence(test))
                if margin == "auto":
                    stated.append(policy.fitted_rates.chance)
                    seconds.append(taken)
            mean, worst = judge(included, other.labels)
            sizes[margin].append(mean)
            held[margin].append(worst <= LEVEL)
    target = min(float(np.mean(stated)), CHANCE)
    enough = [np.mean(sizes[margin]) for margin in MARGINS if np.mean(held[margin]) >= target]
    found = {"rows": n, "samples": samples, "stated": np.mean(stated), "seconds": np.mean(seconds)}
    found |= {
        "size": np.mean(sizes["auto"]),
        "held": np.mean(held["auto"]),
        "least size": min(enough, default=np.nan),
    }
    return {**found, "order size": np.mean(sizes["order"]), "order held": np.mean(held["order"])}


def margins_table_of(found: list[dict[str, Any]]) -> str:
    lines = [
        "| rows | samples | size with margin='auto' | stated chance | every label covered "
        "| smallest size among fixed margins | over it | size by order statistics (covered) | seconds |",
        "|---" * 9 + "|",
    ]
    for row in found:
        least, over = f"{row['least size']:.2f}", f"{100 * (row['size'] / row['least size'] - 1):+.0f} %"
        if np.isnan(row["least size"]):
            least, over = "none reaches it", ""
        lines.append(
            f"| {row['rows']:,} | {row['samples']} | {row['size']:.2f} | {row['stated']:.2f} "
            f"| {row['held']:.2f} | {least} | {over} "
            f"| {row['order size']:.2f} ({row['order held']:.2f}) | {row['seconds']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def timed(task: Callable[[], Policy]) -> tuple[Policy | None, float]:
    start = time.process_time()
    try:
        policy = task()
    except InfeasibleRulesError:
        policy = None
    return policy, time.process_time() - start


def measure(setting: str, scores: Scores) -> Iterator[dict[str, Any]]:
    for temper, factor in TEMPERS.items():
        probabilities = softmax(log_softmax(scores.logits, axis=1) * factor, axis=1)
        n_classes = probabilities.shape[1]
        problem = Problem(size(), [miscoverage().given(label=k) <= LEVEL for k in range(n_classes)])
        evidence = Evidence(probabilities)
        predicted = partial(solve, problem, evidence)
        observed = partial(solve, problem, evidence, labels=scores.labels)
        runs = []
        while len(runs) < ROUNDS and sum(one[1][1] for one in runs) < ENOUGH:
            runs.append((timed(predicted), timed(observed)))
        plug_in, policy = (one[0] for one in runs[-1])
        seconds = [min(one[which][1] for one in runs) for which in (0, 1)]
        found = {
            "setting": setting,
            "scores": temper,
            "seconds": seconds[1],
            "ratio": seconds[1] / seconds[0],
        }
        found["quantile size"], found["quantile miss"] = judge(
            quantile_sets(probabilities, scores.labels), scores.labels
        )
        for name, one in (("predicted", plug_in), ("observed", policy)):
            included = np.full(probabilities.shape, np.nan) if one is None else one.probabilities(evidence)
            found[f"{name} size"], found[f"{name} miss"] = judge(included, scores.labels)
        yield found


def table_of(found: list[dict[str, Any]]) -> str:
    lines = [
        "| | scores | size, as predicted (worst miss of a class) | size, as observed (worst miss) "
        "| quantile per class (worst miss) | size over the quantile's | time over that as predicted |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found:
        shown = [
            f"{row[f'{name} size']:.3f} ({100 * row[f'{name} miss']:.2f} %)"
            for name in ("predicted", "observed", "quantile")
        ]
        more = 100 * (row["observed size"] / row["quantile size"] - 1)
        lines.append(
            f"| {row['setting']} | {row['scores']} | {' | '.join(shown)} | {more:+.1f} % "
            f"| {row['ratio']:.1f} ({row['seconds']:.2f} s) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--only", default="", help='settings whose names begin so, or "margins"')
    parser.add_argument("--quick", action="store_true", help="few classes and rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # the table states what is missed
    settings = SETTINGS
    if arguments.quick:
        settings = {"8 classes, mixture, 1,000 rows": partial(mixture, n_classes=8, n=1000, spread=1.6)}
    found = [
        row
        for name, load in settings.items()
        if name.startswith(arguments.only)
        for row in measure(name, load(arguments.data_dir))
    ]
    if found:
        save(found, table_of(found), arguments.out, "per_label")
    sizes, n_classes, n_test = (MARGIN_SIZES, 26, 40_000) if not arguments.quick else ((300,), 4, 2000)
    if not arguments.only or arguments.only == "margins":
        found = [measure_margins(n, n_classes, 2 if arguments.quick else 24, n_test) for n in sizes]
        save(found, margins_table_of(found), arguments.out, "per_label_margins")


if __name__ == "__main__":
    main()
