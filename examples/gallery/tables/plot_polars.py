"""
A polars table in, decisions out
================================

Scores are often available as a table, from a model that is run by others. ``Columns`` describes the columns.
The table may be from polars, pandas or Arrow, and scikit-learn is not needed.

The table is generated, with a known truth: the scores of a hiring model in three departments, which it favors
differently.
"""

# %%
# The table
# ---------

import matplotlib.pyplot as plt
import numpy as np
import polars

from bylaw import Columns, Problem, demographic_parity, error, rejected, selected, solve

rng = np.random.default_rng(0)
n = 5000
department = rng.choice(["lab", "sales", "office"], n, p=[0.3, 0.5, 0.2])
favor = np.select([department == "lab", department == "sales"], [0.8, 0.0], -0.6)
score = 1 / (1 + np.exp(-1.5 * rng.normal(size=n) - favor))
table = polars.DataFrame(
    {"applicant": np.arange(n), "department": department, "p_no": 1 - score, "p_yes": score}
)
table.head()

# %%
# Columns, and a policy
# ---------------------

columns = Columns(["p_no", "p_yes"], classes=["no", "yes"], groups={"department": "department"})
rules = [demographic_parity("department", tol=0.03, labels=["yes"]), rejected() <= 0.1]
policy = solve(Problem(error(), rules), columns.evidence(table))
print(policy)

# %%
# Decisions as a column
# ---------------------
# With ids, an applicant gets the same decision in any batch and on any machine.

decided = table.with_columns(
    invited=(polars.col("p_yes") > 0.5).replace_strict(
        {True: "yes", False: "no"}, return_dtype=polars.String
    ),
    decision=policy.decide(columns.evidence(table), ids=table["applicant"]),
)
shares = (
    decided.group_by("department")
    .agg(
        applicants=polars.len(),
        before=(polars.col("invited") == "yes").mean(),
        after=(polars.col("decision") == "yes").mean(),
        referred=(polars.col("decision") == "reject").mean(),
    )
    .sort("before")
)
shares

# %%

figure, panel = plt.subplots(figsize=(7, 4))
for place, name, color in ((-0.2, "before", "C2"), (0.2, "after", "C0")):
    bars = panel.bar(np.arange(3) + place, shares[name], 0.38, color=color, label=name)
    panel.bar_label(bars, [f"{share:.0%}" for share in shares[name]], padding=2)
panel.set(title="Invited, by department", xticks=range(3), xticklabels=shares["department"], ylim=(0, 0.8))
panel.yaxis.set_major_formatter("{x:.0%}")
panel.legend(loc="upper left")
plt.show()
print(f"{policy.expected(selected('yes'), columns.evidence(table)):.0%} are invited in all")

# %%
# What to try next
# ----------------
# - ``label="hired"`` in ``Columns`` names a column of true labels, which audits and scans read.
# - ``scan("scores/*.parquet", columns)`` solves over files that do not fit in memory; a polars ``LazyFrame``
#   works, too: `when data outgrow memory <../../larger_than_memory.html>`_.
# - Save it, ``policy.save("policy.json")``, and decide in a shell: ``bylaw decide policy.json
#   table.parquet``.
