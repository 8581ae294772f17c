"""
Prediction sets that cover every class
======================================

Instead of one answer, a prediction set contains several: one digit if the image is clear, more if it is
not. Conformal prediction bounds how often the set omits the true label, but only on average: some classes may
be omitted far more often than others. Here every digit has its own rule.

The data are scikit-learn's 1,797 handwritten digits. Half of each image is hidden to make the problem harder.
"""

# %%
# The upper halves of digits
# --------------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, miscoverage, size, solve

images, digits = load_digits(return_X_y=True)
X, X_rest, y, y_rest = train_test_split(images[:, :32], digits, train_size=500, random_state=0)
X_fit, X_new, y_fit, y_new = train_test_split(X_rest, y_rest, test_size=0.5, random_state=0, stratify=y_rest)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
fit, new = Evidence(model.predict_proba(X_fit)), Evidence(model.predict_proba(X_new))

# %%
# One rule for all, or one for each digit
# ---------------------------------------
# The sets are the smallest that omit the true label for at most one image in ten, over all images or for
# each digit. With ``labels=`` the rules hold as observed; ``margin="auto"`` keeps a margin, so that they
# are likely to hold on new images, too.

overall = solve(Problem(size(), [miscoverage() <= 0.1]), fit, labels=y_fit, margin="auto")
each = [miscoverage().given(label=digit) <= 0.1 for digit in range(10)]
by_class = solve(Problem(size(), each), fit, labels=y_fit, margin="auto")

# %%
# Coverage of new images
# ----------------------


def covered(policy, digit):
    """How often the true digit is in the set."""
    return policy.probabilities(new)[y_new == digit, digit].mean()


figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=[1.7, 1])
for policy, name, color, marker in (
    (overall, "one rule for all", "C1", "s"),
    (by_class, "one rule for each", "C0", "o"),
):
    left.plot([covered(policy, digit) for digit in range(10)], marker, color=color, markersize=9, label=name)
    mean = policy.probabilities(new).sum(axis=1).mean()
    print(f"{name:20}{mean:.2f} digits per set, {len(policy.prices)} rules")
left.axhline(0.9, color="C2", linestyle="--")
left.set(title="Sets that contain the true digit", xlabel="true digit", xticks=range(10), ylim=(0.68, 1.01))
left.yaxis.set_major_formatter("{x:.0%}")
left.legend(loc="lower left")

members = by_class.decide(new, rng=0)  # booleans, (images, digits)
largest = np.argsort(-members.sum(axis=1), kind="stable")[0]
right.imshow(X_new[largest].reshape(4, 8), cmap="Greys")
right.set_title("A large set")
listed = ", ".join(map(str, np.flatnonzero(members[largest])))
right.set(xlabel=f"the set: {listed}; the truth: {y_new[largest]}", xticks=[], yticks=[])
right.spines[:].set_visible(False)
plt.show()

# %%
# What to try next
# ----------------
# - ``coverage_parity("sex", tol=0.02)`` is the same idea for groups that are not classes.
# - Bound the size and cover as much as possible: `sets of limited size <plot_set_sizes.html>`_.
# - ``omits("old") <= 0.2`` keeps the last release's answer in most sets.
# - ``guarantee="high_probability"`` with ``held_out=`` certifies the coverage:
#   `audit and certificate <../trust/plot_audit.html>`_.
