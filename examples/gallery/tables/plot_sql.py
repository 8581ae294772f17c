"""
Decide inside a database
========================

The scores are in a table of a database, and the rows should stay there. A policy is a small matrix, so it
can be written as one ``SELECT``: the same probabilities, and the same decision for the same id, as in
Python.

The files are real mortgage files, ``bylaw.datasets.mortgages``; the database is DuckDB, in memory.
"""

# %%
# A policy from one table
# -----------------------

import duckdb
import matplotlib.pyplot as plt
import numpy as np

from bylaw import Columns, Problem, demographic_parity, error, rejected, solve
from bylaw.datasets import mortgages
from bylaw.export import to_sql

tables = mortgages()
columns = Columns(["p_approve", "p_deny"], classes=["approve", "deny"], groups={"race": "race"})
rules = [demographic_parity("race", tol=0.02, labels=["approve"]), rejected() <= 0.1]
policy = solve(Problem(error(), rules), columns.evidence(tables["scores"]))

# %%
# The policy as a statement
# -------------------------

statement = to_sql(policy, columns, dialect="duckdb", table="files", id_column="id", keep=["race"])
print("\n".join(line[:90] for line in statement.splitlines()[:16]))

# %%
# Run it in the database
# ----------------------

database = duckdb.connect()
database.register("files", tables["new"])
database.execute(f"CREATE VIEW decided AS {statement.rstrip().rstrip(';')}")
summary = database.sql(
    "SELECT race, decision, count(*) AS files FROM decided GROUP BY ALL ORDER BY race, decision"
).df()
summary

# %%
# The same id, the same decision
# ------------------------------

answers = database.sql("SELECT id, decision FROM decided").df().set_index("id")["decision"]
ours = policy.decide(columns.evidence(tables["new"]), ids=tables["new"]["id"])
print("all alike:", (answers.loc[tables["new"]["id"]].to_numpy() == ours).all())

# %%
# Rates by group
# --------------

counts = summary.pivot(index="race", columns="decision", values="files").fillna(0)
shares = counts.div(counts.sum(axis=1), axis=0)[["approve", "reject", "deny"]]
figure, panel = plt.subplots(figsize=(8, 2.8))
left = np.zeros(2)
for decision, color in zip(shares, ("C0", "C1", "C2"), strict=True):
    bars = panel.barh(shares.index, shares[decision], 0.6, left, color=color, label=decision)
    panel.bar_label(
        bars, [f"{100 * share:.0f}" for share in shares[decision]], label_type="center", color="white"
    )
    left += shares[decision]
panel.set_title("Decisions by the database, per cent of new files")
panel.grid(visible=False)
panel.xaxis.set_major_formatter("{x:.0%}")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

# %%
# What to try next
# ----------------
# - ``dialect="postgres"``, ``"bigquery"``, ``"snowflake"`` or ``"spark"``.
# - ``bylaw.export.to_onnx`` and ``to_python`` write the same policy for servers and for scripts without
#   packages.
# - A policy can also be fitted inside the database, without fetching the rows: `when data outgrow memory
#   <../../larger_than_memory.html>`_.
# - `Export <../../export.html>`_.
