"""A DAG that watches each day's rows, and goes on to the last task only where there is an alarm."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

FOLDER = os.environ.get(
    "WATCH_FOLDER", "/srv/credit/production"
)  # policy.json, watched.toml, rows/DAY.parquet
BYLAW = os.environ.get("BYLAW", "bylaw")  # of a virtual environment of its own, if Airflow's is crowded

# 0 and 1 are answers, which the next task reads; anything else is trouble, and worth another try.
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
    catchup=True,  # days that were missed are counted, too
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
