"""Are policies on few labelled rows ever absurd? Weak models of groups, and floors on precision.

    python -m experiments.estimator.absurd [--quick] [--fits 400]

Weak models of groups: the group is independent of the features, so that its predicted shares and its gap on
the fitted rows are noise. A policy is absurd if it costs, on the fitted rows, more than one point beyond the
cheapest mixture of the likeliest label and a constant decision that satisfies the rule, or if a price exceeds
the range of the loss (one) over the tolerance, and no warning was given.

Floors on precision: calibrated scores, and naive Bayes on three real tables with the precision of the fifth
of the rows with the largest scores as the floor. The recall of the policy is compared with that of the best
plain threshold on the same rows that satisfies the floor.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from experiments.data import DATA, save
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB

from bylaw import (
    ConvergenceWarning,
    Evidence,
    GuaranteeWarning,
    InfeasibleRulesError,
    Problem,
    demographic_parity,
    error,
    precision,
    recall,
    solve,
)

HERE = Path(__file__).parent
SIZES = (300, 500, 1000, 3000)
TOLERANCES = (0.02, 0.05, 0.1)


def fit_weak(seed: int, n: int, tol: float) -> dict[str, Any]:
    """One policy whose groups the features tell nothing about, as a `ConstrainedClassifier` chooses it from
    out-of-fold scores, judged on these rows."""
    rng = np.random.default_rng([seed, n])
    X, groups = rng.normal(size=(n, 3)), rng.choice(["x", "y"], n)
    y = (X[:, 0] + 0.5 * (groups == "x") + rng.normal(size=n) > 0).astype(int)
    scores, shares = (
        cross_val_predict(LogisticRegression(), X, column, method="predict_proba") for column in (y, groups)
    )
    evidence = Evidence(scores, groups={"g": {"x": shares[:, 0], "y": shares[:, 1]}})
    problem = Problem(error(), [demographic_parity("g", tol=tol)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            policy = solve(problem, evidence, labels=y, groups={"g": groups}, margin="auto")
        except InfeasibleRulesError:
            return {"seed": seed, "rows": n, "tol": tol, "refused": True}
    chosen = policy.probabilities(evidence)[:, 1]
    simple = find_mixture((scores[:, 1] > 0.5).astype(float), y, groups, tol)
    return {
        "seed": seed,
        "rows": n,
        "tol": tol,
        "refused": False,
        "cost": measure_error(chosen, y),
        "mixture": simple,
        "price": max(policy.prices.values()),
        "warned": any(issubclass(one.category, GuaranteeWarning | ConvergenceWarning) for one in caught),
    }


def measure_error(chosen: np.ndarray, y: np.ndarray) -> float:
    return float((chosen * (1 - y) + (1 - chosen) * y).mean())


def find_mixture(model: np.ndarray, y: np.ndarray, groups: np.ndarray, tol: float) -> float:
    """The error of the cheapest mixture of a model's decisions and a constant one within the tolerance."""
    gap = max(abs(model[groups == g].mean() - model.mean()) for g in np.unique(groups))
    share = max(1 - tol / gap, 0.0) if gap else 0.0
    return (1 - share) * measure_error(model, y) + share * min(y.mean(), 1 - y.mean())


def compare_recall(scores: np.ndarray, y: np.ndarray, floor: float) -> dict[str, Any]:
    """The recall of a policy under a floor on precision, and of the best threshold that satisfies it."""
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = solve(Problem(1 - recall(1), [precision(1) >= floor]), evidence, labels=y)
    chosen = policy.probabilities(evidence)[:, 1]
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # equal scores are decided alike
    hits, counts = np.cumsum(y[order])[last], last + 1
    best = hits[hits >= floor * counts].max(initial=0) / y.sum()
    return {
        "recall": float(chosen @ y / y.sum()),
        "threshold": float(best),
        "precision": float(chosen @ y / chosen.sum()) if chosen.sum() > 1e-9 else 1.0,
        "floor": floor,
        "price": max(policy.prices.values()),
    }


def draw_scores(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, n])
    scores = 1 / (1 + np.exp(-0.5 * rng.normal(size=n) - 0.7))
    return scores, (rng.random(n) < scores).astype(int)


def score_table(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold scores of naive Bayes on some rows of a real table."""
    if name == "adult":
        frame = pandas.read_parquet(DATA / "adult.parquet")
        y, X = frame["income"], frame.select_dtypes("number")
    elif name == "law school":
        frame = pandas.read_parquet(DATA / "law_school.parquet").dropna()
        y, X = frame["first_pf"], frame.drop(columns="first_pf").select_dtypes("number")
    else:
        frame = pandas.read_parquet(DATA / "hillstrom_email.parquet")
        y = frame["visit"]
        X = frame.drop(columns=["visit", "conversion", "spend"]).select_dtypes("number")
    chosen = np.random.default_rng(seed).permutation(len(frame))[:rows]
    values = pandas.factorize(y.iloc[chosen], sort=True)[0]
    scores = cross_val_predict(GaussianNB(), X.iloc[chosen], values, method="predict_proba")[:, 1]
    return scores, values


def measure_floors(repetitions: int, quick: bool) -> list[dict[str, Any]]:
    found = []
    for n in SIZES[:1] if quick else SIZES:
        for seed in range(repetitions):
            found.append({"table": "calibrated", "rows": n, **compare_recall(*draw_scores(seed, n), 0.75)})
            if quick:
                continue
            for name in ("adult", "law school", "e-mail"):
                scores, y = score_table(name, n, seed)
                floor = float(y[np.argsort(-scores, kind="stable")[: n // 5]].mean())
                found.append({"table": name, "rows": n, **compare_recall(scores, y, floor)})
    return found


def table_of(weak: pandas.DataFrame, floors: pandas.DataFrame) -> str:
    fitted = weak[~weak.refused]
    silent = ~fitted.warned
    dear, steep = fitted.cost > fitted.mixture + 0.01, fitted.price > 1 / fitted.tol
    figures = {
        "fits": len(weak),
        "refused as conflicts": int(weak.refused.sum()),
        "more than a point dearer than a mixture, without a warning": int((dear & silent).sum()),
        "a price beyond the range of the loss, without a warning": int((steep & silent).sum()),
        "with a warning": int((~silent).sum()),
        "mean error of the policy": f"{fitted.cost.mean():.3f}",
        "mean error of the mixture": f"{fitted.mixture.mean():.3f}",
    }
    lines = [
        "| weak models of groups | |",
        "|---|---|",
        *(f"| {name} | {figure} |" for name, figure in figures.items()),
        "",
        "| floor on precision | rows | fits | recall below .95 of the threshold's | worst ratio | violated |",
        "|---|---|---|---|---|---|",
    ]
    floors = floors.assign(ratio=np.where(floors.threshold > 0, floors.recall / floors.threshold, 1.0))
    for (name, n), rows in floors.groupby(["table", "rows"], sort=False):
        short, violated = (rows.ratio < 0.95).sum(), (rows.precision < rows.floor - 1e-4).sum()
        lines.append(f"| {name} | {n:,} | {len(rows)} | {short} | {rows.ratio.min():.3f} | {violated} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--fits", type=int, default=400, help="with weak models of groups")
    parser.add_argument("--quick", action="store_true", help="a few fits")
    arguments = parser.parse_args()
    quick = arguments.quick
    cells = [(n, tol) for n in (200, 300, 500, 1000) for tol in TOLERANCES]
    weak = [fit_weak(seed, *cells[seed % len(cells)]) for seed in range(4 if quick else arguments.fits)]
    floors = measure_floors(2 if quick else 25, quick)
    text = table_of(pandas.DataFrame(weak), pandas.DataFrame(floors))
    save([*weak, *floors], text, arguments.out, "absurd")


if __name__ == "__main__":
    main()
