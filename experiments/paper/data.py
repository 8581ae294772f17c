"""The two tables of the paper, read from a folder or, where that has none, downloaded into one."""

from __future__ import annotations

import hashlib
import io
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas
from experiments.data import DATA, ROOT
from sklearn.model_selection import train_test_split

# As the paper's authors published it, incomes of 1994 with every category as a number.
ADULT = (
    "https://raw.githubusercontent.com/taturyan/post-processing/"
    "8613205d160215cc82d61d5e75c22a00ae551ae1/data/adult_parsed.csv"
)
ADULT_SHA256 = "fb0814b73474749db7585b68b39f5ed2627c9ee5baa9d8744064ce3f1a1af8a8"
COMMUNITIES = "https://archive.ics.uci.edu/ml/machine-learning-databases/communities/communities"
RACES = ["racepctblack", "racePctWhite", "racePctAsian", "racePctHisp"]
CRIMES = "ViolentCrimesPerPop"


class Sample(NamedTuple):
    """Rows of one table; the group is never among the features."""

    X: np.ndarray  # (n_rows, n_features)
    y: np.ndarray  # (n_rows,), 0 or 1
    group: np.ndarray  # (n_rows,), 0 or 1

    def rows(self, chosen: np.ndarray) -> Sample:
        return Sample(self.X[chosen], self.y[chosen], self.group[chosen])


def communities(folder: Path) -> Sample:
    """Is the rate of violent crimes at least 0.2 (of the largest)? The group: is white the largest share?"""
    table = pandas.read_csv(folder / "communities.csv").fillna(0)
    table = table[table[CRIMES] != 0]
    white = (table[RACES].idxmax(axis=1) == "racePctWhite").astype(int)
    X = table.drop(columns=[*RACES, CRIMES])
    return Sample(X.to_numpy(float), (table[CRIMES] >= 0.2).astype(int).to_numpy(), white.to_numpy())


def adult(folder: Path, keep: str) -> Sample:
    """2,000 rows with the same shares of `keep`, income or sex, as all have. The group is the sex."""
    table = pandas.read_csv(folder / "adult_parsed.csv")
    table, _ = train_test_split(table, train_size=2000, stratify=table[keep], random_state=42)
    # Rejection knows no groups: there, as in the paper, sex is a feature like others.
    hidden = ["income", "sex"] if keep == "sex" else ["income"]
    return Sample(
        table.drop(columns=hidden).to_numpy(float), table["income"].to_numpy(), table["sex"].to_numpy()
    )


def split(sample: Sample, by: np.ndarray, seed: int) -> tuple[Sample, Sample, Sample]:
    """Training, unlabelled and test rows, 0.4 / 0.4 / 0.2, with equal shares of `by`."""
    everyone = np.arange(len(sample.y))
    rest, test = train_test_split(everyone, test_size=0.2, stratify=by, random_state=seed)
    train, unlabelled = train_test_split(rest, test_size=0.5, stratify=by[rest], random_state=seed)
    return sample.rows(train), sample.rows(unlabelled), sample.rows(test)


def folder_of(asked: Path | None) -> Path:
    """Where both tables are: the folder that was asked for, the shared one, or one that is filled now."""
    if asked is not None or (DATA / "paper" / "communities.csv").exists():
        folder = asked or DATA / "paper"
        for name in ("adult_parsed.csv", "communities.csv"):
            if not (folder / name).exists():
                raise SystemExit(f"{folder} has no {name}; leave out --data-dir to download it")
        return folder
    return download(ROOT / "out" / "paper")


def download(folder: Path, adult_at: str = ADULT, communities_at: str = COMMUNITIES) -> Path:
    """Both tables into a folder, checked; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "adult_parsed.csv").exists():
        content = _read(adult_at)
        if (found := hashlib.sha256(content).hexdigest()) != ADULT_SHA256:
            raise SystemExit(f"{adult_at} is not the file of the paper: its SHA-256 is {found}")
        (folder / "adult_parsed.csv").write_bytes(content)
    if not (folder / "communities.csv").exists():
        named = _read(f"{communities_at}.names").decode("latin-1").splitlines()
        names = [line.split()[1] for line in named if line.startswith("@attribute")]
        table = pandas.read_csv(io.BytesIO(_read(f"{communities_at}.data")), names=names, na_values="?")
        if table.shape != (1994, 128) or not {*RACES, CRIMES} <= set(names):
            raise SystemExit(f"{communities_at}.data has {table.shape} rows and columns, not 1994 x 128")
        places = names[:5]  # state, county, community, its name, and a fold
        table.drop(columns=places).to_csv(folder / "communities.csv", index=False)
    return folder


def _read(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.read()
    except OSError as problem:
        raise SystemExit(
            f"cannot download {address} ({problem}); put adult_parsed.csv and communities.csv into a folder "
            "and name it with --data-dir"
        ) from None
