"""A DAG that watches each day's rows, and runs the last task only if there is an alarm."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

FOLDER = os.environ.get(
    "WATCH_FOLDER", "/srv/credit/production"
)  # policy.json, watched.toml, rows/DAY.parquet
BYLAW = os.environ.get("BYLAW", "bylaw")  # may be in a separate virtual environment

# 0 and 1 are results for the next task; other exit codes are errors, after which the task is retried.
WATCH = """
cd "$FOLDER" || exit 2
settings=""
[ -e watch.json ] || settings="--rules watched.toml --run-length 219000"
"$BYLAW" watch policy.json "rows/$DAY.parquet" --state watch.json --batch "$DAY" --id-column id $settings
code=$?
[ $code -le 1 ] || exit $code
echo $code
"""

with DAG(
    "watch_policy",
    schedule=CronDataIntervalTimetable("15 2 * * *", timezone="UTC"),  # {{ ds }} is the day before
    start_date=datetime(2026, 3, 2),
    catchup=True,  # also run for skipped days
    max_active_runs=1,  # one state, one run at a time
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5), "depends_on_past": True},
):
    watch = BashOperator(
        task_id="watch",
        bash_command=WATCH,
        env={"FOLDER": FOLDER, "BYLAW": BYLAW, "DAY": "{{ ds }}"},
        append_env=True,
        do_xcom_push=True,  # the last line
    )
    alarm = ShortCircuitOperator(
        task_id="alarm",
        python_callable=lambda code: code == "1",
        op_args=[watch.output],
    )
    tell = BashOperator(
        task_id="tell", bash_command="echo 'a rule is broken or changed: {{ ds }}'"
    )  # a pager
    watch >> alarm >> tell
