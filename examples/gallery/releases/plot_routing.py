"""
Route questions to language models under a budget
=================================================

A small language model is cheap and often wrong, a large one is expensive and mostly right, and most questions
do not need it. A router decides which model answers. There is a budget in money, and the large model has a
rate limit. The problem has no classes: the decisions are options, and each has costs.

The questions are generated, so that the truth is known. `The case study on routing
<../../showcases/routing.html>`_ uses the real answers of three Llama models.
"""

# %%
# Questions, models, prices
# -------------------------
# A question has a difficulty, which the router observes with noise, and a length, which determines its price.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from bylaw import Evidence, Problem, custom, frontier, selected, solve

models = ["small", "medium", "large"]
rng = np.random.default_rng(0)
n = 6000
difficulty, tokens = rng.normal(size=n), rng.lognormal(6, 0.6, n)
ability = np.array([0.3, 1.2, 2.6])
wrong = rng.random((n, 3)) < 1 / (1 + np.exp(2 * (ability - difficulty[:, None])))
dollars = tokens[:, None] * np.array([0.2, 0.9, 5.0]) / 1e3  # for a thousand such questions
signals = np.column_stack([difficulty + 0.5 * rng.normal(size=n), np.log(tokens)])

# %%
# Predicted costs
# ---------------
# One logistic regression per model predicts from the signals whether its answer will be wrong.

fit, new = slice(0, 3000), slice(3000, n)
chance = np.column_stack(
    [LogisticRegression().fit(signals[fit], wrong[fit, m]).predict_proba(signals)[:, 1] for m in range(3)]
)


def make_evidence(part):
    return Evidence(costs={"wrong": chance[part], "usd": dollars[part]}, options=models)


budget, limit = custom("usd") <= 0.6, selected("large") <= 0.25
problem = Problem(custom("wrong"), [budget, limit])
router = solve(problem, make_evidence(fit))
for rule, price in router.prices.items():
    print(f"{rule:28} price {price:.3f}")
print(router.decide(make_evidence(new), ids=range(3000))[:6])

# %%
# The frontier of all budgets
# ---------------------------
# Money is spent neither on easy questions nor on questions that no model can answer.

path = frontier(problem, make_evidence(fit), {budget: np.linspace(0.12, 1, 10)})
shares = [policy.probabilities(make_evidence(new)) for policy in path.policies]
spent = [(share * dollars[new]).sum(axis=1).mean() for share in shares]
right = [1 - (share * wrong[new]).sum(axis=1).mean() for share in shares]

figure, (left, map_panel) = plt.subplots(1, 2, figsize=(9.5, 4))
left.plot(spent, right, "o-", label="router")
left.plot(
    dollars[new].mean(axis=0), 1 - wrong[new].mean(axis=0), "s--", color="C1", label="one model, or at random"
)
for m, name in enumerate(models):
    at = dollars[new, m].mean(), 1 - wrong[new, m].mean()
    left.annotate(name, at, (4, -16), textcoords="offset points", color="C1")
left.set(
    title="Right answers, new questions",
    xlabel="dollars per thousand questions",
    xlim=(0, 2.9),
    ylim=(0.5, 1),
)
left.yaxis.set_major_formatter("{x:.0%}")
left.legend(loc="lower right")

chosen = np.array(models)[router.probabilities(make_evidence(new)).argmax(axis=1)]
for name, color, marker in zip(models, ("C3", "C1", "C0"), "o^s", strict=True):
    here = chosen == name
    map_panel.scatter(*signals[new][here][:400].T, s=14, color=color, marker=marker, label=name, alpha=0.8)
map_panel.set(
    title="Who answers what, at 0.6 dollars",
    ylim=(3.5, 9.2),
    xlabel="difficulty, as far as seen",
    ylabel="log of length",
)
map_panel.legend(loc="upper center", ncols=3)
plt.show()

# %%
# What to try next
# ----------------
# - ``demographic_parity("language", tol=0.02)``: every model as often for each language.
# - ``disagreement("before") <= 0.1``: few questions that change their model since last month.
# - Audit the router with observed costs, ``audit(router, rows, outcomes={"wrong": ..., "usd":
#   "known"})``.
# - `The full case study <../../showcases/routing.html>`_, with thresholds tuned by hand beside it.
