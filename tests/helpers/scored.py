"""Generated rows of scores for audits: two sexes, a label, an earlier model, a cost."""

from __future__ import annotations

import numpy as np

from bylaw import Evidence


def people(n, seed, *, known=True, tilt=0.0):
    """Rows, labels and sexes; the model's probabilities are right unless tilted."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    x = rng.normal(size=n) + 0.6 * (sex == "M")
    chance = 1 / (1 + np.exp(-x))
    labels = (rng.random(n) < 1 / (1 + np.exp(-x - tilt))).astype(int)
    man = 1 / (1 + np.exp(-(0.6 * x - 0.2)))
    group = sex if known else {"F": 1 - man, "M": man}
    old = (x + rng.normal(size=n) > 0).astype(int)
    evidence = Evidence(
        np.column_stack([1 - chance, chance]),
        groups={"sex": group},
        references={"old": old},
        costs={"visit": rng.random((n, 3))},
    )
    return evidence, labels, sex
