"""
Risk and coverage: how much to answer
=====================================

A classifier that may abstain makes fewer errors if it answers fewer cases. This is selective classification,
or the reject option, and its plot is the risk-coverage curve. Chow's rule (1970) sets a price for
each abstention; a budget limits their number. Both lead to the same curve: each price corresponds to a
budget.

The data are scikit-learn's 1,797 handwritten digits, with a model that was trained on 150 of them.
"""

# %%
# A model with few images
# -----------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, accepted, error, frontier, rejected, solve

images, digits = load_digits(return_X_y=True)
X, X_rest, y, y_rest = train_test_split(images, digits, train_size=150, random_state=0, stratify=digits)
X_fit, X_new, y_fit, y_new = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
fit, new = Evidence(model.predict_proba(X_fit)), Evidence(model.predict_proba(X_new))

# %%
# All budgets at once, and some prices
# ------------------------------------
# ``frontier`` solves the problem at each level of a rule. Chow's rule is a problem without rules.


def measure(policy):
    """The share of new images that are answered, and the errors among these."""
    decided = policy.probabilities(new)
    wrong = (decided[:, :10] * (y_new[:, None] != np.arange(10))).sum(axis=1).mean()
    answered = 1 - decided[:, 10].mean()
    return answered, wrong / answered


budget = rejected() <= 0.1
path = frontier(Problem(error(), [budget]), fit, {budget: np.linspace(0, 0.6, 25)})
curve = np.array([measure(policy) for policy in path.policies])
prices = [0.1, 0.2, 0.3, 0.4, 0.5]
chow = np.array([measure(solve(Problem(error() + price * rejected()), fit)) for price in prices])

# %%
# A rule on the answers instead
# -----------------------------
# "At most 2 % of the answers are wrong, with as many answers as possible." With ``labels=`` the rule
# holds as observed on the fitted images; ``calibrate="auto"`` first corrects the scores, which are
# underconfident here.

careful = solve(Problem(rejected(), [error() <= 0.02 * accepted()]), fit, labels=y_fit, calibrate="auto")
answered, risk = measure(careful)
print(f"rule on the answers: {answered:.0%} answered, {risk:.1%} of them wrong, on new images")

figure, panel = plt.subplots()
panel.plot(*curve.T, label="budgets for abstentions, 0 to 60 %")
panel.plot(*chow.T, "o", color="C1", markersize=9, label="Chow's rule, at five prices")
for price, (x, height) in zip(prices, chow, strict=True):
    panel.annotate(f"{price}", (x, height), (-7, 7), textcoords="offset points", ha="right", color="C1")
panel.plot(answered, risk, "D", color="C4", markersize=9, label="at most 2 % of answers wrong")
panel.set(title="Errors among the answers, new images", xlabel="share of images answered", ylabel="error")
panel.xaxis.set_major_formatter("{x:.0%}")
panel.yaxis.set_major_formatter("{x:.0%}")
panel.legend(loc="upper left")
plt.show()

# %%
# The diamond lies below the curve: with calibrated scores the policy selects the uncertain images better.
#
# What to try next
# ----------------
# - ``path.policies[8]`` is ready to decide; ``path.to_frame()`` has the price of an abstention at each
#   budget.
# - Minimize the ratio itself, with enough answers: ``Problem(error() / accepted(), [accepted() >= 0.8])``.
# - Add a rule on referral rates: `referrals of each race alike <plot_referrals.html>`_.
# - A guarantee for new rows: `audit and certificate <../trust/plot_audit.html>`_.
