"""
Upgrade a model, change at most 2 % of the answers
==================================================

A new release is right more often, but it also changes answers that people rely on. Each change has a cost,
also if it corrects an error. A budget of churn limits the number of changed answers; the policy makes the
changes that correct most errors.

The data are scikit-learn's handwritten digits, classified by an old and by a new model. `The case study on
upgrades <../../showcases/upgrade.html>`_ uses two language models.
"""

# %%
# An old and a new model
# ----------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, disagreement

images, digits = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(images[:, :32], digits, test_size=0.5, random_state=0, stratify=digits)
old = GaussianNB(var_smoothing=0.1).fit(X[:200], y[:200])
before = old.predict(X_new)
print(f"the old model is right on {np.mean(before == y_new):.1%} of new images")

# %%
# Upgrades under a budget
# -----------------------
# The old model is passed as ``reference=``; decisions that agree with it do not count as changes.

newer = make_pipeline(StandardScaler(), LogisticRegression())


def upgrade(budget):
    """The share of changed answers and of right ones, on new images."""
    rule = disagreement("old release") <= budget
    release = ConstrainedClassifier(newer, [rule], random_state=0).fit(X, y, reference=old)
    after = release.predict(X_new)
    return np.mean(after != before), np.mean(after == y_new), release.policy_.prices[str(rule)]


budgets = [0.02, 0.05, 0.1, 0.15, 0.3]
found = np.array([upgrade(budget) for budget in budgets])
newest = newer.fit(X, y).predict(X_new)
full = np.array([np.mean(newest != before), np.mean(newest == y_new)])
for budget, (changed, right, price) in zip(budgets, found, strict=True):
    print(f"budget {budget:.0%}: {changed:.1%} changed, {right:.1%} right, price {price:.2f}")

# %%
# Few changes, much of the gain
# -----------------------------

start = np.array([0, np.mean(before == y_new)])
figure, panel = plt.subplots()
panel.plot(*np.transpose([start, full]), "--", color="C2", label="changes at random")
panel.plot(*np.vstack([start, found[:, :2]]).T, "o-", label="policy, at five budgets")
panel.plot(*full, "s", color="C1", markersize=9, label="all of the new model's answers")
panel.annotate("old model", start, (9, -5), textcoords="offset points")
panel.set(title="Right answers on new images", xlabel="answers changed since the old release")
panel.xaxis.set_major_formatter("{x:.0%}")
panel.yaxis.set_major_formatter("{x:.0%}")
panel.legend(loc="lower right")
plt.show()

# %%
# The price is the gain of one more point of changes, in points of right answers. Near one, almost every
# change corrects an error; near zero, further changes do not help.
#
# What to try next
# ----------------
# - Add ``rejected() <= 0.05``: some of the uncertain images are referred to a person.
# - Labels of the old release instead of the model: ``reference=labels``, in ``fit`` and in ``predict``.
# - Certify the budget on rows that need no labels, as in `the full case study
#   <../../showcases/upgrade.html>`_.
