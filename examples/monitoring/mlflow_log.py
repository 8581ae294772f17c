"""Watch the rows of one day, and log the result to MLflow: one run for each policy, one step for each day.

python mlflow_log.py FOLDER DAY
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import mlflow
import numpy as np
import pyarrow.parquet as pq

from bylaw import Evidence, Monitor, Policy

WATCHED = [
    "selected('good').given(sex='F') >= 0.8 * selected('good').given(sex='M')",
    "rejected() <= 0.12",
]


def count_day(monitor: Monitor, folder: Path, day: str) -> None:
    rows = pq.read_table(folder / "rows" / f"{day}.parquet").to_pydict()
    evidence = Evidence(
        np.column_stack([rows["p_bad"], rows["p_good"]]),
        classes=["bad", "good"],
        groups={"sex": rows["sex"]},
    )
    monitor.update(evidence, ids=rows["id"], batch=day)


def find_run(policy: Policy) -> str | None:
    found = mlflow.search_runs(filter_string=f"tags.policy = '{policy.digest}'", output_format="list")
    return found[0].info.run_id if found else None


def log(monitor: Monitor, day: str) -> None:
    """Names of metrics must not contain quotes, so rules are numbered, and their texts are tags."""
    mlflow.set_tags({"policy": monitor.policy.digest, "last day": day, "alarm": str(monitor.alarm)})
    mlflow.log_metric("rows waiting for labels", monitor.waiting, step=monitor.rows)
    for number, one in enumerate(monitor.status, 1):
        mlflow.set_tags({f"rule {number}": one.rule, f"rule {number} status": str(one.status)})
        figures = {"rate": one.estimate, "lower": one.lower, "upper": one.upper}
        figures |= {"bound": one.target, "share of an alarm": one.evidence}
        for name, value in figures.items():
            if math.isfinite(value):
                mlflow.log_metric(f"rule {number}/{name}", value, step=monitor.rows)


def main(folder: Path, day: str) -> int:
    policy, state = Policy.load(folder / "policy.json"), folder / "watch.json"
    monitor = (
        Monitor.load(state, policy) if state.exists() else Monitor(policy, rules=WATCHED, run_length=219_000)
    )
    count_day(monitor, folder, day)
    monitor.save(state)
    mlflow.set_experiment("watch")
    with mlflow.start_run(run_id=find_run(policy), run_name=f"policy {policy.digest[:12]}"):
        log(monitor, day)
        mlflow.log_artifact(str(folder / "policy.json"))
        mlflow.log_artifact(str(state))  # the file of ids is not logged
    return int(monitor.alarm)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
