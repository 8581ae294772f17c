"""
Why was this case decided so?
=============================

A person is denied and asks why. The score of each decision is a sum: the model's score, plus a contribution
of each rule. The shares are exact, not estimated, so the answer is short: the model said this, that rule
added so much.

The files are real mortgage files with a model's scores, ``bylaw.datasets.mortgages``.
"""

# %%
# A policy with two rules
# -----------------------

import matplotlib.pyplot as plt
import numpy as np

from bylaw import Columns, Problem, demographic_parity, error, explain, rejected, solve
from bylaw.datasets import mortgages

table = mortgages()["new"]
files = Columns(["p_approve", "p_deny"], ["approve", "deny"], groups={"race": "race"}).evidence(table)
rules = [demographic_parity("race", tol=0.02, labels=["approve"]), rejected() <= 0.1]
policy = solve(Problem(error(), rules), files)
why = explain(policy, files)
print(why)

# %%
# One file
# --------
# Among the files whose decision was changed by the rules, this is the one on which the model was most
# certain.

margin = why.baseline[:, 0] - why.baseline[:, 1]
moved = np.flatnonzero(why.moved & (table["race"] == "black"))
case = moved[np.argmax(np.abs(margin[moved]))]
before, after = why.actions[why.without_rules[case]], why.actions[why.after[case]]
print(f"file {table['id'].iloc[case]}: {before} without rules, {after} with rules")
why.to_frame().query("row == @case").round(3)

# %%
# The same as a picture
# ---------------------
# Bars add up to the score of each decision; the decision with the largest score is taken.

names = ["the model", *why.rules]
parts = np.vstack([why.baseline[case], why.pulls[case]])  # (1 + rules, actions)
figure, panel = plt.subplots(figsize=(8.5, 4))
for place in range(len(why.actions)):
    start = 0.0
    for i, (name, color) in enumerate(zip(names, ("C2", "C0", "C3", "C1", "C4"), strict=False)):
        height = 0.8 / len(names)
        level = place - 0.4 + (i + 0.5) * height
        panel.barh(
            level, parts[i, place], height * 0.9, start, color=color, label=name if place == 0 else None
        )
        start += parts[i, place]
    panel.plot([start, start], [place - 0.42, place + 0.42], color="black", linewidth=2)
panel.axvline(0, color="C2", linewidth=1)
panel.set(title=f"File {table['id'].iloc[case]}: score of each decision (black line)", yticks=range(3))
panel.set_yticklabels(why.actions)
panel.invert_yaxis()
panel.grid(visible=False)
panel.set_xlim(right=0.02)
figure.legend(loc="outside lower center")
plt.show()

# %%
# The model alone would have denied the file. Parity raises the score of an approval, but not enough. The
# price of a referral is smaller than the cost of the other two decisions.
#
# What to try next
# ----------------
# - ``why.moved`` marks all files whose best decision was changed by rules.
# - ``classifier.explain(X, sensitive_features=...)`` does it for a ``ConstrainedClassifier``, ``bylaw
#   explain`` in a shell.
# - `Explanations of single decisions <../../classifier.html#explanations-of-single-decisions>`_.
