"""
Watch the rules in production
=============================

A policy was fitted and certified; then applicants change. A monitor adds up evidence on every rule, row by
row, and may be looked at every day: its promise covers all times at once, which that of repeated audits
does not.

The stream is generated, with a known truth: after 40 days, women apply with lower scores than before.
"""

# %%
# A policy, and two months of applicants
# --------------------------------------

import matplotlib.pyplot as plt
import numpy as np

from bylaw import Evidence, Monitor, Problem, error, rejected, selected, solve

rng = np.random.default_rng(0)


def applicants(n, drift=0.0):
    sex = np.where(rng.random(n) < 0.4, "F", "M")
    x = 1.5 * rng.normal(size=n) + np.where(sex == "M", 0.5, -drift)
    good = 1 / (1 + np.exp(-x))
    return Evidence(np.column_stack([1 - good, good]), classes=["bad", "good"], groups={"sex": sex})


women, men = selected("good").given(sex="F"), selected("good").given(sex="M")
policy = solve(Problem(error(), [women >= 0.9 * men, rejected() <= 0.1]), applicants(8000))

# %%
# Watch somewhat looser rules than were fitted
# --------------------------------------------
# A policy of least cost is at its bounds. Watch the bounds at which you would act: four fifths, and 12 %.
# ``run_length`` limits false alarms: here to at most one in a year of 500 rows a day, on average.

watched = [women >= 0.8 * men, rejected() <= 0.12]
monitor = Monitor(policy, rules=watched, run_length=365 * 500)
first_alarm, daily = None, []
for day in range(1, 61):
    rows = applicants(500, drift=0.5 if day > 40 else 0.0)
    monitor.update(rows, batch=f"day {day}")
    daily.append(policy.expected(women, rows) / policy.expected(men, rows))
    if monitor.alarm and first_alarm is None:
        first_alarm = day
print(f"alarm on day {first_alarm}")
print(monitor)

# %%
# Single days, and the evidence of all days
# -----------------------------------------
# The rates of single days cross the limit long before the change. The evidence does not.

figure, panel = plt.subplots(figsize=(7.5, 4))
panel.plot(range(1, 61), daily, "o", color="C2", markersize=5, label="ratio on that day's 500 rows")
panel.axhline(0.8, color="C1", linestyle="--")
panel.text(60, 0.81, "four fifths", color="C1", ha="right")
panel.axvline(40.5, color="C3")
panel.text(39.5, 0.53, "women's scores fall", ha="right")
panel.axvline(first_alarm, color="C0")
panel.text(first_alarm + 0.7, 0.53, f"alarm, day {first_alarm}", color="C0")
panel.set(title="Approvals of women over those of men", xlabel="day")
panel.set_ylim(0.5, 1.2)
panel.legend(loc="upper left")
plt.show()

# %%
# ``monitor.plot()`` draws the rate so far with its confidence sequence, and the evidence.

monitor.plot()
plt.show()

# %%
# What to try next
# ----------------
# - For labels that arrive months later, pass ``ids=``, and the labels when they are known.
# - ``monitor.save("watch.json")`` saves the state for the next day; in a shell, use ``bylaw watch``.
# - After an alarm, ``refit`` fits the rules on new rows with few changed decisions.
# - `Watching a policy <../../monitoring.html>`_ has the mathematics, and recipes for cron and Airflow.
