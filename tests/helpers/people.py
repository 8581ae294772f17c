"""Generated rows for the classifier: two groups, three features, a label."""

from __future__ import annotations

import numpy as np
import pandas
from sklearn.linear_model import LogisticRegression

from bylaw import (
    ConstrainedClassifier,
    demographic_parity,
)

N = 1500


def make_people():
    rng = np.random.default_rng(0)
    sex, dept = rng.choice(["F", "M"], N), rng.choice(["a", "b"], N)
    features = {
        "u": rng.normal(size=N) + (sex == "F"),
        "v": rng.normal(size=N) + (dept == "a"),
        "w": rng.normal(size=N),
    }
    labels = np.where(0.8 * features["u"] - features["v"] + rng.normal(size=N) > 0, "yes", "no")
    return pandas.DataFrame(features), labels, sex, dept


X, Y, SEX, DEPT = make_people()
GROUPS = pandas.DataFrame({"sex": SEX, "dept": DEPT})
PARITY = demographic_parity("sex", tol=0.02)


def classifier(rules=(PARITY,), base=None, margin=0.0, **options):
    base = LogisticRegression() if base is None else base
    return ConstrainedClassifier(base, list(rules), margin=margin, random_state=0, **options)


def unaware(rules=(PARITY,), **options):
    return classifier(rules, group_estimator=LogisticRegression(), **options)


def aware():
    return classifier().fit(X, Y, sensitive_features=SEX)


def gap(distribution, among=slice(None), by=SEX):
    """Worst difference of a group's selection rate from everybody's, written out."""
    distribution, by = distribution[among], by[among]
    return max(
        np.abs(distribution[by == s].mean(axis=0) - distribution.mean(axis=0)).max() for s in np.unique(by)
    )
