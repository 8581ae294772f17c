"""
Precise answers, and a person for the rest
==========================================

A screening tool should answer only if its answers are reliable: at least 95 of 100 cases that it calls
malignant must be malignant, and at least 98 of 100 that it calls benign must be benign. The other cases are
referred to a doctor, and should be few. So the objective is ``rejected()``, and the rules are precisions.

The data are scikit-learn's 569 breast tumors, with only three of the thirty measurements: those that a
cheap device could take.
"""

# %%
# The data
# --------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, precision, rejected

data = load_breast_cancer(as_frame=True)
X = data.data[["mean radius", "mean texture", "mean smoothness"]]
y = np.where(data.target == 0, "malignant", "benign")

# %%
# Two precisions
# --------------
# ``margin=0`` fits the rules without a margin for new rows; 569 rows are too few for one.

model = make_pipeline(StandardScaler(), LogisticRegression())
rules = [precision("malignant") >= 0.95, precision("benign") >= 0.98]
screen = ConstrainedClassifier(model, rules, minimize=rejected(), margin=0, random_state=0).fit(X, y)
print(screen.policy_)

# %%
# Tumors that were not used in the fit
# ------------------------------------

answers = np.empty(len(y), dtype="<U9")
for fit, new in StratifiedKFold(10, shuffle=True, random_state=0).split(X, y):
    answers[new] = screen.fit(X.iloc[fit], y[fit]).predict(X.iloc[new])
for label in ("malignant", "benign"):
    right = y[answers == label] == label
    print(f"{label:10}{right.size:4} answers, {right.mean():.1%} right")
print(f"{'referred':10}{(answers == 'reject').sum():4} tumors")

# %%
# The scores show the reason: near the middle, neither answer is precise enough.

score = cross_val_predict(model, X, y, cv=10, method="predict_proba")[:, 1]
edges = np.linspace(0, 1, 21)
figure, panel = plt.subplots(figsize=(7.5, 4))
kinds = {"benign": "C3", "reject": "C2", "malignant": "C0"}
counts = [np.histogram(score[answers == kind], edges)[0] for kind in kinds]
bottom = np.zeros(20)
for (kind, color), heights in zip(kinds.items(), counts, strict=True):
    name = "referred" if kind == "reject" else f"answered: {kind}"
    panel.bar(edges[:-1], heights, 0.045, bottom, align="edge", color=color, label=name)
    bottom += heights
panel.set(title="Who is answered, and who goes to a doctor", xlabel="the model's probability of malignant")
panel.set_ylabel("tumors")
panel.legend()
plt.show()

# %%
# What to try next
# ----------------
# - How many referrals does one more point of precision cost? ``screen.policy_.prices`` has the price of each
#   rule.
# - ``error().given(decision="benign") <= 0.02`` is equivalent to the second rule; with ``sex="F"`` in
#   ``given`` it would be for one group.
# - Bound the referrals instead, and maximize the F1 score: ``minimize=1 - f1("malignant")`` with
#   ``rejected() <= 0.1``.
# - `All rates <../../rules.html#rates>`_.
