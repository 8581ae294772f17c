"""
Short lists: two answers on average, no kind neglected
======================================================

A person checks a list of candidates, and has time for two on average. This example finds the lists that omit
the true label least often, first without and then with a rule for each kind of object.

This is a short form of `the case study on prediction sets <../../showcases/sets.html>`_, which has 100
classes of photographs. The data are scikit-learn's digits; the model uses the upper half of each image.
"""

# %%
# The upper halves of digits
# --------------------------
# Nines and eights are rare in the training images.

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
kept = (y < 8) | (np.arange(len(y)) % 8 == 0)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[kept], y[kept])
fit, new = Evidence(model.predict_proba(X_fit)), Evidence(model.predict_proba(X_new))

# %%
# Two on average instead of always two
# ------------------------------------


def coverage(policy, labels=range(10)):
    here = np.isin(y_new, labels)
    return policy.probabilities(new)[here, y_new[here]].mean()


sizes = np.linspace(1, 3, 9)
flexible = [coverage(solve(Problem(miscoverage(), [size() <= mean]), fit, labels=y_fit)) for mean in sizes]
rank = (-new.probabilities).argsort(axis=1).argsort(axis=1)[np.arange(len(y_new)), y_new]
fixed = [(rank < k).mean() for k in (1, 2, 3)]

# %%
# A rule for each kind
# --------------------
# The digits have four kinds. The kind of an image is unknown, like its digit, so a rule on kinds is a rule on
# true labels: the mean miscoverage over the digits of a kind is at most 12 %.

kinds = {"round\n0 6": [0, 6], "bent\n2 3 5": [2, 3, 5], "straight\n1 4 7": [1, 4, 7], "loops\n8 9": [8, 9]}
short = solve(Problem(miscoverage(), [size() <= 1.5]), fit, labels=y_fit)

rules = [size() <= 1.5]
for labels in kinds.values():
    rules.append(sum(miscoverage().given(label=n) for n in labels) / len(labels) <= 0.12)
fair = solve(Problem(miscoverage(), rules), fit, labels=y_fit)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4))
left.plot(sizes, flexible, "o-", label="so many on average")
left.plot([1, 2, 3], fixed, "s--", color="C1", label="always so many")
left.set(
    title="Sets that contain the truth",
    xlabel="digits per set",
    xticks=[1, 2, 3],
    yticks=np.arange(0.8, 1.01, 0.05),
)
left.legend(loc="lower right")
for policy, name, color, shift in ((short, "rule on size", "C2", -0.2), (fair, "and on kinds", "C0", 0.2)):
    shares = [coverage(policy, labels) for labels in kinds.values()]
    bars = right.bar(np.arange(4) + shift, shares, 0.38, color=color, label=name)
    right.bar_label(bars, [f"{100 * share:.0f}" for share in shares], padding=2)
right.set(
    title="By kind, 1.5 digits per set",
    xticks=range(4),
    xticklabels=kinds,
    ylim=(0.4, 1.12),
    yticks=np.arange(0.4, 1.01, 0.1),
)
right.legend(loc="upper left", ncols=2)
for panel in (left, right):
    panel.yaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# Without the second rule, the rare digits are omitted far more often than others. The second rule removes
# some labels from sets in which they helped least.
#
# What to try next
# ----------------
# - ``size().given(label=8) <= 1.5`` limits the sets of one digit.
# - Reverse the problem: the smallest sets that cover `every class <plot_coverage_by_class.html>`_.
# - `The case study <../../showcases/sets.html>`_ with 100 classes in 20 kinds.
