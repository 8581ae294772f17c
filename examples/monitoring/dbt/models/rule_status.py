"""A table with one line for each rule, after the rows of today."""

from pathlib import Path

import numpy as np

from bylaw import Evidence, Monitor, Policy

WATCHED = [
    "selected('good').given(sex='F') >= 0.8 * selected('good').given(sex='M')",
    "rejected() <= 0.12",
]


def model(dbt, session):
    dbt.config(materialized="table")
    folder, rows = Path(dbt.config.get("folder")), dbt.ref("todays_rows").fetchnumpy()

    policy, state = Policy.load(folder / "policy.json"), folder / "watch.json"
    monitor = (
        Monitor.load(state, policy) if state.exists() else Monitor(policy, rules=WATCHED, run_length=219_000)
    )
    evidence = Evidence(
        np.column_stack([rows["p_bad"], rows["p_good"]]),
        classes=["bad", "good"],
        groups={"sex": rows["sex"]},
    )
    monitor.update(evidence, ids=rows["id"], batch=rows["day"][0])
    monitor.save(state)
    return monitor.to_frame()
