"""Contests on sets of labels: how small they are at one coverage.

Everyone gets the same probabilities, labelled rows to calibrate on, and a list of coverages; then it names
the sets of other rows. Since no two methods cover the same share of those, the mean size at one coverage is
read off between neighbouring coverages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

COVERAGE = 0.9
LEVELS = (0.88, 0.9, 0.92)  # what is asked for; what is had on other rows lies around it
WARM_UP = 2000  # rows of a first fit, for imports and buffers: RAPS wants some of every class
CONTESTS = {
    "cifar": "CIFAR-100",
    "cifar-tempered": "CIFAR-100, probabilities tempered first",
    "news": "20 newsgroups",
}
# From probabilities and labels to calibrate on, and probabilities of others, (n_rows, n_classes), to the
# chance that each label of these is in the set, one array for each level.
Method = Callable[[np.ndarray, np.ndarray, np.ndarray, int], list[np.ndarray]]


def bylaw(scores: np.ndarray, labels: np.ndarray, new: np.ndarray, seed: int) -> list[np.ndarray]:
    from bylaw import Evidence, Problem, miscoverage, size, solve

    evidence, others = Evidence(scores), Evidence(new)
    problems = [Problem(size(), [miscoverage() <= 1 - level]) for level in LEVELS]
    return [solve(problem, evidence, labels=labels).probabilities(others) for problem in problems]


def mapie(scores: np.ndarray, labels: np.ndarray, new: np.ndarray, seed: int, score: str) -> list[np.ndarray]:
    from benchmarks.peers.given import Given
    from mapie.classification import SplitConformalClassifier

    model = Given(scores.shape[1])
    peer = SplitConformalClassifier(model, LEVELS, score, prefit=True, random_state=seed)
    peer.conformalize(scores, labels)
    options = None if score == "lac" else {"include_last_label": "randomized"}
    _, found = peer.predict_set(new, conformity_score_params=options)
    return list(np.moveaxis(found, 2, 0).astype(float))


def puncc(scores: np.ndarray, labels: np.ndarray, new: np.ndarray, seed: int, score: str) -> list[np.ndarray]:
    from deel.puncc import classification
    from deel.puncc.api.prediction import BasePredictor

    class Scored(BasePredictor):
        def predict(self, X: Any, **options: Any) -> np.ndarray:
            return np.asarray(X)

        def copy(self) -> Scored:
            return self

    np.random.seed(seed)  # noqa: NPY002 (it draws from the global generator)
    peer = getattr(classification, score)(Scored(None, is_trained=True), train=False)
    peer.fit(X_calib=scores, y_calib=labels)
    found = []
    for level in LEVELS:
        _, members = peer.predict(new, alpha=1 - level)
        included = np.zeros(new.shape)
        for row, chosen in enumerate(members):
            included[row, np.asarray(chosen, dtype=int)] = 1
        found.append(included)
    return found


CONTESTANTS: Mapping[str, Method] = {
    "bylaw": bylaw,
    "MAPIE, LAC": partial(mapie, score="lac"),
    "MAPIE, APS": partial(mapie, score="aps"),
    "MAPIE, RAPS": partial(mapie, score="raps"),
    "puncc, LAC": partial(puncc, score="LAC"),
    "puncc, APS": partial(puncc, score="APS"),
}


def prepare(folder: Path, data: Path, seeds: int, quick: bool) -> None:
    """Calibration and test halves for each contest and seed."""
    for name in CONTESTS:
        logits, labels = logits_of(name, data)
        if quick:
            few = np.flatnonzero(labels < 10)[:800]
            logits, labels = logits[few, :10], labels[few]
        for seed in range(seeds):
            here, there = np.array_split(np.random.default_rng(seed).permutation(len(labels)), 2)
            temperature = warmest(logits[here], labels[here]) if name == "cifar-tempered" else 1.0
            np.savez(
                folder / f"{name}-{seed}.npz",
                scores=softmax(logits[here] / temperature),
                labels=labels[here],
                new=softmax(logits[there] / temperature),
                new_labels=labels[there],
            )


def logits_of(name: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    if name == "news":
        chances = np.load(data / "news20_probabilities.npy").clip(1e-12)
        return np.log(chances), np.load(data / "news20_labels.npy")
    return np.load(data / "cifar100_logits.npy").astype(float), np.load(data / "cifar100_labels.npy").ravel()


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def warmest(scores: np.ndarray, labels: np.ndarray) -> float:
    """The temperature under which the labels are likeliest."""
    rows = np.arange(len(labels))

    def surprise(temperature: float) -> float:
        return -float(np.log(softmax(scores / temperature)[rows, labels].clip(1e-300)).mean())

    return float(minimize_scalar(surprise, bounds=(0.2, 5), method="bounded").x)


def compete(contest: str, name: str, folder: Path) -> dict[str, Any]:
    """Means over seeds, and the standard error of the size at one coverage."""
    method = CONTESTANTS[name]
    found = []
    for path in sorted(folder.glob(f"{contest}-[0-9]*.npz")):
        with np.load(path) as file:
            scores, labels, new, new_labels = (file[key] for key in ("scores", "labels", "new", "new_labels"))
        seed = int(path.stem.split("-")[-1])
        if not found:
            method(scores[:WARM_UP], labels[:WARM_UP], new[:WARM_UP], seed)
        start = time.perf_counter()
        chances = method(scores, labels, new, seed)
        seconds = time.perf_counter() - start
        covered = [float(chance[np.arange(len(new)), new_labels].mean()) for chance in chances]
        sizes = [float(chance.sum(axis=1).mean()) for chance in chances]
        asked = LEVELS.index(COVERAGE)
        found.append((seconds, covered[asked], sizes[asked], at_coverage(covered, sizes)))
    seconds, coverage, size, fair = np.mean(found, axis=0).tolist()
    spread = np.std([row[3] for row in found], ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    return {
        "seconds": seconds,
        "coverage": coverage,
        "size": size,
        "fair size": fair,
        "spread": float(spread),
    }


def at_coverage(covered: list[float], sizes: list[float]) -> float:
    """Between the two nearest of the coverages had."""
    order = np.argsort(covered)
    return float(np.interp(COVERAGE, np.array(covered)[order], np.array(sizes)[order]))
