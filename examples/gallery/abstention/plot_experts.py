"""
A model and three experts with little time
==========================================

A model decides applications, and three people can help: a junior with time for 15 % of the cases, a
specialist for cases from abroad (6 %), and a senior (4 %). Who should decide what? This is learning to
defer to several experts, with capacities.

The applications are generated, so that the truth is known. This is a short form of `the case study on experts
<../../showcases/experts.html>`_.
"""

# %%
# Cases, a model, and the experts
# -------------------------------
# The probability that an expert is wrong depends on the kind of case.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from bylaw import Evidence, Problem, custom, error, selected, solve

kinds = ["private", "business", "abroad"]
experts = {"junior": 0.15, "specialist": 0.06, "senior": 0.04}  # shares of all cases
skill = np.array([[0.12, 0.25, 0.04], [0.30, 0.25, 0.05], [0.35, 0.03, 0.08]])  # P(wrong), kinds x experts

rng = np.random.default_rng(0)
X, kind = rng.normal(size=(8000, 4)), rng.choice(3, 8000, p=[0.6, 0.25, 0.15])
odds = X @ [1.5, -1.0, 0.5, 0.0] * np.array([1.6, 1.0, 0.6])[kind]
right = (rng.random(8000) < 1 / (1 + np.exp(-odds))).astype(int)
features = np.hstack([X * (kind == k)[:, None] for k in range(3)])
model = LogisticRegression().fit(features[:4000], right[:4000])
chances, kind, right = model.predict_proba(features[4000:]), kind[4000:], right[4000:]

# %%
# Experts are options in addition to the labels
# ---------------------------------------------
# ``error()`` counts the errors of the model. The cost of an expert is the probability that he or she is
# wrong.

costs = np.column_stack([np.zeros_like(chances), skill[kind]])
cases = Evidence(chances, classes=["deny", "approve"], costs={"expert wrong": costs}, options=list(experts))
policy = solve(
    Problem(
        minimize=error() + custom("expert wrong"),
        rules=[selected(expert) <= share for expert, share in experts.items()],
        decisions=["deny", "approve", *experts],
    ),
    cases,
)
for rule, price in policy.prices.items():
    print(f"{rule:32} one more point of time saves {price:.2f} points of errors")

# %%
# Comparison with the usual way: the least certain cases, to the best expert first
# --------------------------------------------------------------------------------

usual = np.eye(5)[chances.argmax(axis=1)]
unsure, first = np.argsort(chances.max(axis=1)), 0
for expert in ("senior", "specialist", "junior"):
    last = first + int(experts[expert] * len(unsure))
    usual[unsure[first:last]] = np.eye(5)[2 + list(experts).index(expert)]
    first = last
alone = np.eye(5)[chances.argmax(axis=1)]

wrong = np.column_stack([right == 1, right == 0, skill[kind]])
figure, (left, work) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[1, 1.5])
ways = {"model\nalone": alone, "least sure\nfirst": usual, "policy": policy.probabilities(cases)}
shares = [(decided * wrong).sum(axis=1).mean() for decided in ways.values()]
bars = left.bar(list(ways), shares, 0.6, color=["C2", "C2", "C0"])
left.bar_label(bars, [f"{share:.1%}" for share in shares], padding=2)
left.set(title="Wrong decisions, all together", ylim=(0, 0.24))

decided = policy.probabilities(cases)
for e, (expert, color) in enumerate(zip(experts, ("C3", "C1", "C0"), strict=True)):
    shares = [decided[kind == k, 2 + e].mean() for k in range(3)]
    work.bar(np.arange(3) + 0.27 * (e - 1), shares, 0.25, color=color, label=expert)
work.set(title="Share of each kind that an expert gets", xticks=range(3), xticklabels=kinds)
work.legend()
for panel in (left, work):
    panel.yaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# Uncertainty is not enough. A case should go to an expert if that expert errs less than the model, and
# less than other experts with free capacity.
#
# What to try next
# ----------------
# - Add ``demographic_parity("city", tol=0.02, labels=["senior"])``, so that every city gets the senior
#   equally often.
# - Decide a day's cases together, ``policy.decide(cases, rng=0, method="systematic")``: counts then stay
#   within a few units of the capacities.
# - `The full case study <../../showcases/experts.html>`_ repeats this with new data twenty times.
