"""
What a rule costs: the frontier and its prices
==============================================

Before choosing a rule, you may want to know its cost, and the cost of one point more or less.
``frontier`` solves the problem at every level, and ``sensitivity`` computes the range of the present price.

The rows are 663 real mortgage files, ``bylaw.datasets.mortgages``, with the scores of a model that was not
trained on them.
"""

# %%
# The problem
# -----------

import matplotlib.pyplot as plt
import numpy as np

from bylaw import Columns, Problem, demographic_parity, error, frontier, rejected, sensitivity
from bylaw.datasets import mortgages

table = mortgages()["scores"]
files = Columns(["p_approve", "p_deny"], ["approve", "deny"], groups={"race": "race"}).evidence(table)
parity, referrals = demographic_parity("race", tol=0.02), rejected() <= 0.05
problem = Problem(error(), [parity, referrals])

# %%
# One rule at many levels
# -----------------------
# The upper curve is the least cost, the lower one its slope: the shadow price of the rule.

path = frontier(problem, files, {parity: np.linspace(0, 0.12, 25)})
path.plot()
plt.show()

# %%
# The frontier as a table:

path.to_frame().iloc[::4].round(4)

# %%
# Two rules at once
# -----------------
# Each line is one budget of referrals. In the result, the level of the second rule varies faster.

levels = np.linspace(0, 0.12, 13)
budgets = [0.0, 0.02, 0.05, 0.1]
grid = frontier(problem, files, {parity: levels, referrals: budgets})
figure, panel = plt.subplots(figsize=(7.5, 4))
for budget, line, color in zip(budgets, grid.cost.reshape(13, 4).T, ("C2", "C3", "C1", "C0"), strict=True):
    panel.plot(levels, line, color=color)
    panel.text(0.122, line[-1], f"{budget:.0%} referred", color=color, va="center")
panel.set(title="Expected error, at least", xlabel="tolerance of parity", xlim=(0, 0.15), xticks=levels[::4])
panel.xaxis.set_major_formatter("{x:.0%}")
panel.yaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# Prices in words
# ---------------

print(sensitivity(problem, files, step=0.01))

# %%
# What to try next
# ----------------
# - Every point is a policy, ready to decide: ``path.policies[5].decide(files, ids=table["id"])``.
# - Levels at which rules conflict are marked and do not raise an error: add ``selected("deny") <= 0.05``.
# - The levels of a ratio or a churn budget are swept in the same way; `what a rule costs
#   <../../frontier.html>`_.
