"""The recipes for watching run: those for dbt and Airflow where they are installed, the others always."""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bylaw import Monitor, Policy

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "monitoring"
QUIET, ALARM = [f"2026-03-{day:02}" for day in range(2, 8)], "2026-03-08"
BIN = Path(sys.executable).parent


def run(*command, folder, **variables):
    here = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=here, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    assert run(sys.executable, RECIPES / "make_rows.py", folder, folder=folder).returncode == 0
    return folder


@pytest.fixture
def production(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "production"))


def load(folder):
    return Monitor.load(folder / "watch.json", Policy.load(folder / "policy.json"))


def watch_day(folder, day, **variables):
    return run(RECIPES / "watch.sh", folder, day, folder=folder, **variables)


def watch_days(folder, days, bylaw):
    """Run the two commands of the script in this process, which is started once instead of for each."""
    for day in days:
        for part, late in (("rows", []), ("labels", ["--late", "--label", "y"])):
            batch = day if part == "rows" else f"labels {day}"
            files = [folder / "policy.json", folder / part / f"{day}.parquet"]
            options = ["--state", folder / "watch.json", "--batch", batch, "--id-column", "id", *late]
            assert bylaw("watch", *files, *options).code == 0


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock here")
def test_the_script_for_cron(production, bylaw):
    found = watch_day(production, QUIET[0])
    assert (found.returncode, found.stdout) == (0, ""), found.stderr
    watch_days(production, QUIET[1:], bylaw)
    found = watch_day(production, ALARM)
    assert found.returncode == 1
    assert "broken" in found.stdout
    before = load(production)
    assert (before.rows, before.waiting) == (7 * 600, 0)  # all labels have come
    assert before.batches[-2:] == (ALARM, f"labels {ALARM}")

    again = watch_day(production, ALARM, NOTIFY="true")
    assert (again.returncode, again.stdout) == (1, "")
    assert load(production).rows == before.rows
    with (production / "watch.lock").open("w") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        assert watch_day(production, "2026-03-09").returncode == 75
    assert load(production).rows == before.rows
    missing = watch_day(production, "2027-01-01")
    assert missing.returncode == 2
    assert "no such file" in missing.stdout


def test_the_line_for_cron_calls_the_script():
    (line,) = [line for line in (RECIPES / "crontab").read_text().splitlines() if line[0].isdigit()]
    *when, command, _folder = line.split()
    assert len(when) == 5
    assert Path(command).name == "watch.sh"
    assert "%" not in line  # a new line, to cron
    assert os.access(RECIPES / "watch.sh", os.X_OK)


@pytest.mark.slow
@needs("matplotlib")
def test_the_picture_of_the_page(tmp_path):
    found = run(sys.executable, RECIPES / "picture.py", "--out", tmp_path / "monitor.png", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "broken  selected('good').given(sex='F')" in found.stdout
    assert (tmp_path / "monitor.png").stat().st_size > 10_000


@pytest.mark.slow
@needs("duckdb")
def test_the_models_for_dbt_without_dbt(production):
    """What dbt does with them: it fills in variables, and passes an object with references."""
    import duckdb

    project, answers = RECIPES / "dbt", []
    module = load_script(project / "models" / "rule_status.py")
    test = (project / "tests" / "no_rule_is_broken.sql").read_text()
    for day in [*QUIET, ALARM, ALARM]:
        query = (project / "models" / "todays_rows.sql").read_text()
        query = query.replace('{{ var("folder") }}', str(production)).replace('{{ var("day") }}', day)
        with duckdb.connect() as session:
            dbt = FakeDbt(session.sql(query), {"folder": str(production)})
            session.register("rule_status", module.model(dbt, session))
            answers.append(session.sql(test.replace('{{ ref("rule_status") }}', "rule_status")).fetchall())
    assert [len(found) for found in answers] == [0] * 6 + [1, 1]
    assert load(production).rows == 7 * 600


class FakeDbt:
    def __init__(self, rows, settings):
        self.rows, self.settings, self.config = rows, settings, self

    def __call__(self, **_):
        """`dbt.config(...)`."""

    def get(self, name):
        return self.settings[name]

    def ref(self, name):
        assert name == "todays_rows"
        return self.rows


@pytest.mark.slow
@needs("dbt.adapters.duckdb" if importlib.util.find_spec("dbt") else "dbt")
def test_the_project_for_dbt(production):
    project = shutil.copytree(RECIPES / "dbt", production / "project")
    answers = []
    for day in [*QUIET, ALARM]:
        found = run(
            *("dbt", "build", "--profiles-dir", ".", "--vars", f"{{day: {day}, folder: {production}}}"),
            folder=project,
            WATCH_FOLDER=str(production),
            DBT_SEND_ANONYMOUS_USAGE_STATS="false",
        )
        answers.append(found.returncode)
    assert answers == [0] * 6 + [1]
    assert "FAIL 1 no_rule_is_broken" in found.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of its own libraries
def test_the_script_for_mlflow(production, monkeypatch):
    import mlflow

    store = f"sqlite:///{production}/mlflow.db"
    script = RECIPES / "mlflow_log.py"
    monkeypatch.chdir(production)
    mlflow.set_tracking_uri(store)
    monkeypatch.setattr(sys, "argv", [str(script), ".", QUIET[0]])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    watch = load_script(script).main
    assert [watch(production, day) for day in [*QUIET[1:], ALARM]] == [0] * 5 + [1]
    (logged,) = mlflow.search_runs(experiment_names=["watch"], output_format="list")
    assert logged.data.tags["rule 1 status"] in ("broken", "changed")
    assert logged.data.metrics["rule 1/share of an alarm"] >= 1
    history = mlflow.MlflowClient().get_metric_history(logged.info.run_id, "rule 2/rate")
    assert [point.step for point in history] == [600 * day for day in range(1, 8)]


@pytest.mark.slow
@needs("airflow")
def test_the_dag_for_airflow(production):
    here = {
        "AIRFLOW_HOME": str(production / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(RECIPES),
        "WATCH_FOLDER": str(production),
    }
    assert run("airflow", "db", "migrate", folder=production, **here).returncode == 0
    for day in QUIET[1:]:
        assert watch_day(production, day).returncode == 0
    for day, told in ((QUIET[0], False), (ALARM, True)):
        found = run("airflow", "dags", "test", "watch_policy", day, folder=production, **here)
        assert (f"a rule is broken or changed: {day}" in found.stdout + found.stderr) == told
    assert load(production).rows == 7 * 600


def test_the_dag_is_python():
    compile((RECIPES / "airflow_dag.py").read_text(), "airflow_dag.py", "exec")
