"""
Costs of your own: mistakes, hours and money
============================================

Not all mistakes are equal. A missed tumor costs far more than an unnecessary biopsy, and the
cost of a biopsy depends on the patient. A cost matrix states the first, a custom cost the second.

The data are scikit-learn's 569 breast tumors.
"""

# %%
# A model's probabilities
# -----------------------

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, cost, custom, frontier, solve

data = load_breast_cancer(as_frame=True)
X = data.data[["mean radius", "mean texture", "mean smoothness"]]
y = np.where(data.target == 0, "malignant", "benign")
model = make_pipeline(StandardScaler(), LogisticRegression())
scores = cross_val_predict(model, X, y, cv=10, method="predict_proba")

# %%
# Two kinds of cost
# -----------------
# The matrix has a row for each true class and a column for each decision: to wait, or to take a biopsy. A
# wrong wait costs ten times as much as an unnecessary biopsy. The hours of a biopsy grow with the size of the
# tumor; they are an array with one column for each decision.

mistakes = cost([[0, 1], [10, 0]])  # true benign, true malignant; columns: wait, biopsy
hours = np.column_stack([np.zeros(len(y)), 1 + X["mean radius"] / 10])
patients = Evidence(scores, classes=["benign", "malignant"], costs={"hours": hours})
budget = custom("hours") <= 1.0
policy = solve(Problem(mistakes, [budget]), patients)
print(policy)

# %%
# The price of an hour
# --------------------
# Without the budget, all cases with a probability of more than 1/11 of being malignant get a biopsy. With
# fewer hours, the probability must be higher for biopsies that take long.

path = frontier(Problem(mistakes, [budget]), patients, {budget: np.linspace(0.6, 1.6, 21)})
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4))
left.plot(path.levels[:, 0], path.cost)
left.plot(1.0, policy.expected(mistakes, patients), "o", color="C1", markersize=9)
left.annotate(
    "today's budget", (1.0, policy.expected(mistakes, patients)), (10, 6), textcoords="offset points"
)
left.set(title="Cost of mistakes per patient", xlabel="hours per patient", ylim=(0, None))

chosen = policy.probabilities(patients)[:, 1] > 0.5
for here, name, color, marker in ((~chosen, "wait", "C3", "o"), (chosen, "biopsy", "C0", "s")):
    right.scatter(hours[here, 1], scores[here, 1], s=16, color=color, marker=marker, label=name, alpha=0.8)
right.axhline(1 / 11, color="C2", linestyle="--")
right.text(3.8, 1 / 11 + 0.02, "one in eleven", ha="right", color="C2")
right.set(title="Who gets a biopsy", xlabel="hours that it would take", ylabel="probability of malignant")
right.legend(loc="lower right", bbox_to_anchor=(1, 0.2))
plt.show()

# %%
# What to try next
# ----------------
# - ``custom(function)`` computes the cost from the evidence; rules may use several of them.
# - A third column in the matrix prices a referral, with ``decisions="reject"``.
# - The same costs for options instead of classes: `routing <../releases/plot_routing.html>`_.
# - Costs are predictions. `Audits <../../audits.html#observed-costs>`_ test rules on the observed costs.
