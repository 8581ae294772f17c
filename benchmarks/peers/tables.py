"""From real tables to scored rows; where there are too few rows, real ones are drawn again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
from benchmarks.peers.rows import MOST_FEATURES, Rows
from experiments.data import adult, annotations, logistic
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OrdinalEncoder

JITTER = 0.01  # standard deviation added to the logarithm of a chance that is drawn again
AGES = {"18-30": 0, "30-45": 1, "45-60": 2, "Over 60": 3, "Under 18": 3}


def prepare(folder: Path, data: Path, sizes: tuple[int, ...], quick: bool) -> None:
    """Files of rows to fit on and of others to judge on, for each kind of rows."""
    kinds = {**adult_rows(data, quick), "annotations": annotation_rows(data, quick)}
    for kind, (pool, test) in kinds.items():
        test.save(folder / f"{kind}-test.npz")
        for size in sizes:
            drawn(pool, size).save(folder / f"{kind}-{size}.npz")


def drawn(pool: Rows, size: int) -> Rows:
    """The first rows; if there are fewer, rows drawn again with their chances moved a little."""
    if size <= len(pool):
        return pool.part(slice(size))
    rng = np.random.default_rng(0)
    if size > MOST_FEATURES:
        pool = replace(pool, features=None)
    rows = pool.part(rng.integers(len(pool), size=size))
    guesses = None if rows.guesses is None else jittered(rows.guesses, rng)
    return replace(rows, scores=jittered(rows.scores, rng), guesses=guesses)


def jittered(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    moved = chances * np.exp(rng.normal(scale=JITTER, size=chances.shape))
    return moved / moved.sum(axis=1, keepdims=True)


def adult_rows(data: Path, quick: bool) -> Mapping[str, tuple[Rows, Rows]]:
    """Incomes of Adult, groups are genders. A quarter trains the models, the rest fits and judges.

    Where the gender is known when a decision is made, the model, boosted trees, may use it; where it is not,
    a logistic regression sees the other features and another guesses the gender from them.
    """
    X, y, people = adult(data)
    order = np.random.default_rng(0).permutation(len(X))[: 4000 if quick else None]
    train, pool, test = np.split(order, [len(order) // 4, len(order) * 5 // 8])
    rich, men = (y == ">50K").astype(int), (people.gender == "Male").to_numpy().astype(int)
    columns = X.assign(gender=people.gender)
    categories = columns.select_dtypes(exclude="number").columns
    columns[categories] = OrdinalEncoder().fit_transform(columns[categories])
    trees = HistGradientBoostingClassifier(max_iter=80, learning_rate=0.05, random_state=0)
    trees.fit(columns.iloc[train], rich[train])
    encoder = logistic(X)[:-1].fit(X.iloc[train])
    income, gender = (
        LogisticRegression(max_iter=500).fit(encoder.transform(X.iloc[train]), target[train])
        for target in (rich, men)
    )

    def known(rows: np.ndarray) -> Rows:
        return Rows(trees.predict_proba(columns.iloc[rows]), rich[rows], men[rows])

    def guessed(rows: np.ndarray) -> Rows:
        features = np.asarray(encoder.transform(X.iloc[rows]))
        scores, guesses = income.predict_proba(features), gender.predict_proba(features)
        return Rows(scores, rich[rows], men[rows], guesses, features)

    return {"adult": (known(pool), known(test)), "adult-unaware": (guessed(pool), guessed(test))}


def annotation_rows(data: Path, quick: bool) -> tuple[Rows, Rows]:
    """How toxic people found comments, from -2 to 2; groups are their ages. Comments are either for the
    model, for fitting or for judging. The model sees the person's age, what others said of the comment, and
    what the person said of other comments."""
    said = annotations(data, rows=40_000 if quick else None)
    said = said[said.age_group.isin(list(AGES))]
    labels, ages = said.toxicity_score.to_numpy() + 2, said.age_group.astype(str).map(AGES).to_numpy()
    answers = np.eye(5)[labels]
    features = np.hstack([others(answers, said.rev_id), others(answers, said.worker_id), np.eye(4)[ages]])
    comment, _ = pandas.factorize(said.rev_id)
    draw = np.random.default_rng(0).random(comment.max() + 1)[comment]  # comments stay together
    train, test = draw < 0.05, draw > 0.82
    model = LogisticRegression(max_iter=200).fit(features[train], labels[train])
    pool = np.random.default_rng(1).permutation(np.flatnonzero(~train & ~test))
    return tuple(Rows(model.predict_proba(features[rows]), labels[rows], ages[rows]) for rows in (pool, test))


def others(answers: np.ndarray, keys: pandas.Series) -> np.ndarray:
    """Shares of each answer among the other rows with the same key, (n_rows, 5), drawn towards a fifth."""
    code, _ = pandas.factorize(keys)
    totals = np.stack([np.bincount(code, weights=column) for column in answers.T], axis=1)
    rest = totals[code] - answers
    return (rest + 0.2) / (rest.sum(axis=1, keepdims=True) + 1)
