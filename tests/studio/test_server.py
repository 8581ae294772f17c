"""The studio over HTTP: a real server on loopback, and those who should not come in."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet
import pytest
from pyarrow import csv

from bylaw import Policy, Problem, solve
from bylaw.errors import EvidenceError, OptionError
from bylaw.studio import _session as session_module, studio
from helpers.command_line import RULES, table
from helpers.hostile import hostile_rows
from helpers.scored import people

pytestmark = pytest.mark.slow  # each test starts a server

QUESTION = {
    "tab": "one",
    "number": 1,
    "minimize": "error()",
    "rules": [{"text": "rejected() <= 0.1", "on": True}],
    "view": "predicted",
}


class Client:
    """A browser, more or less."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.host, self.port, self.token = parts.hostname, parts.port, parts.query.removeprefix("token=")

    def send(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        sent = {"X-Bylaw-Token": self.token, **{k.replace("_", "-"): v for k, v in headers.items()}}
        content = json.dumps(body) if isinstance(body, dict | list) else body
        connection.putrequest(method, path, skip_host="Host" in sent)
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        if content is not None and "Transfer-Encoding" not in sent:
            connection.putheader("Content-Length", str(len(content)))
        connection.endheaders()
        if content is not None:
            connection.send(content.encode() if isinstance(content, str) else content)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer, text

    def get(self, path, **headers):
        answer, text = self.send("GET", path, **headers)
        return answer.status, json.loads(text)

    def post(self, path, body, **headers):
        answer, text = self.send("POST", path, body, **headers)
        return answer.status, json.loads(text)


@pytest.fixture
def running():
    evidence, labels, _ = people(500, 0)
    with studio(Problem("error()", ["rejected() <= 0.1"]), evidence, labels=labels) as made:
        yield made


@pytest.fixture
def client(running):
    return Client(running.url)


def test_questions_are_answered(client):
    assert client.get("/api/start")[1]["rows"] == 500
    assert client.post("/api/rule", {"text": "rejected() <= 0.1"})[1]["level"] == 0.1
    told = client.post("/api/objective", {"text": "error()", "rules": QUESTION["rules"]})[1]
    assert (told["ok"], told["text"]) == (True, "error()")
    status, found = client.post("/api/solve", QUESTION)
    assert (status, found["status"], found["number"]) == (200, "solved", 1)
    assert found["rules"][0]["lower"] is None  # no number is not JSON
    assert client.get("/api/progress?tab=one")[1] == {
        "busy": False,
        "step": 0,
        "off_by": None,
        "seconds": 0.0,
    }
    assert client.post("/api/cancel", {"tab": "one"})[0] == 200
    assert client.post("/api/frontier", {**QUESTION, "rule": 0, "number": 2})[1]["levels"]


def test_the_page_holds_all_that_it_needs_and_may_load_nothing(client):
    answer, text = client.send("GET", f"/?token={client.token}", X_Bylaw_Token=None)
    policy = answer.headers["Content-Security-Policy"]
    nonce = re.search(r"'nonce-([^']+)'", policy)[1]
    assert answer.status == 200
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert b"{{" not in text
    assert text.count(f'nonce="{nonce}"'.encode()) == len(re.findall(rb"<(?:script|style)\b", text))
    again, _ = client.send("GET", f"/?token={client.token}")
    assert nonce not in again.headers["Content-Security-Policy"]
    for name, value in (("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer")):
        assert answer.headers[name] == value


@pytest.mark.parametrize("token", [None, "", "wrong", "\u00e9".encode("latin-1")])
@pytest.mark.parametrize("path", ["/api/start", "/api/progress", "/nowhere"])
def test_no_token_no_answer(client, path, token):
    status, found = client.get(path, X_Bylaw_Token=token)
    assert status == 403
    assert list(found) == ["error"]
    assert client.token not in str(found)


def test_the_page_takes_its_token_from_the_address_and_questions_from_a_header(client):
    assert client.send("GET", "/")[0].status == 403
    assert client.send("GET", "/?token=wrong")[0].status == 403
    assert client.send("GET", f"/api/start?token={client.token}", X_Bylaw_Token=None)[0].status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "0.0.0.0:{}"]
)
def test_another_host_is_refused(client, host):
    assert client.get("/api/start", Host=host.format(client.port))[0] == 403
    assert client.get("/api/start", Host=f"localhost:{client.port}")[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{}", "http://127.0.0.1:1"]
)
def test_another_origin_is_refused(client, origin):
    assert client.post("/api/solve", QUESTION, Origin=origin.format(client.port))[0] == 403
    assert client.post("/api/solve", QUESTION, Origin=f"http://127.0.0.1:{client.port}")[0] == 200


def test_large_bodies_are_refused_whether_or_not_they_state_their_size(client):
    large = json.dumps({**QUESTION, "more": "x" * 1_000_001})
    assert client.post("/api/solve", large)[0] == 413
    parts = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (large, "")).encode()
    assert client.post("/api/solve", parts, Transfer_Encoding="chunked")[0] == 413
    assert client.post("/api/solve", QUESTION)[0] == 200


@pytest.mark.parametrize("body", ["", "{", "[]", "3", "[" * 100_000, b"\xff\xfe", '{"tab": NaN}'])
def test_bodies_that_are_no_objects_are_refused(client, body):
    for path in ("/api/solve", "/api/rule", "/api/objective", "/api/save", "/api/frontier", "/api/cancel"):
        status, found = client.post(path, body)
        assert status == 400
        assert found["error"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rules": "rejected()"},
        {"rules": [3]},
        {"rules": [{"text": 3}]},
        {"minimize": None},
        {"view": "both"},
    ],
)
def test_questions_that_are_none_fail(client, wrong):
    status, found = client.post("/api/solve", {**QUESTION, **wrong})
    assert (status, found["status"]) == (200, "failed")
    assert found["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/page.js",
        "/page/start.js",
        "/api/../page.html",
        "//etc/passwd",
        "/api/save/..",
    ],
)
def test_no_path_leads_to_a_file(client, path):
    answer, text = client.send("GET", path)
    assert answer.status in (404, 405)
    assert list(json.loads(text)) == ["error"]
    status, found = client.post("/api/save", {**QUESTION, "kind": path})
    assert status == 400
    assert "kind must be" in found["error"]


def test_every_script_of_the_page_is_in_it(client):
    _, text = client.send("GET", f"/?token={client.token}")
    folder = Path(session_module.__file__).parent / "page"
    scripts = [path.read_bytes() for path in folder.glob("*.js")]
    assert len(scripts) > 10
    assert all(script in text for script in scripts)


@pytest.mark.parametrize(
    "wrong", [{}, {"text": 3}, {"text": "error()", "rules": 3}, {"text": "x", "rules": [3]}]
)
def test_objectives_that_are_no_text_are_refused(client, wrong):
    status, found = client.post("/api/objective", wrong)
    assert status == 400
    assert "must be" in found["error"]


def test_other_methods_are_refused(client):
    assert client.send("GET", "/api/solve")[0].status == 405
    assert client.send("POST", "/api/start", "{}")[0].status == 405
    assert client.send("DELETE", "/")[0].status == 403


def test_hostile_names_come_out_as_json_alone():
    name = "</script><script>alert(1)</script>\u202e\u2028"
    evidence = hostile_rows(name=name)
    with studio(Problem("error()"), evidence, title=name) as made:
        client = Client(made.url)
        _, page = client.send("GET", f"/?token={client.token}")
        assert b"alert(1)" not in page
        answer, text = client.send("GET", "/api/start")
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert text.isascii()
        assert json.loads(text)["classes"] == list(evidence.classes)
        rule = f"demographic_parity({f'sex{name}'!r}, tol=0.05)"
        status, found = client.post("/api/solve", {**QUESTION, "rules": [{"text": rule}]})
        assert (status, found["status"]) == (200, "solved")
        for kind in ("rules", "policy", "python"):
            answer, text = client.send(
                "POST", "/api/save", {**QUESTION, "rules": [{"text": rule}], "kind": kind}
            )
            assert answer.status == 200
            assert answer.headers["Content-Disposition"].startswith("attachment")


def test_a_fault_is_an_answer_and_the_server_goes_on(client, monkeypatch, capsys):
    def fail(*_, **__):
        raise ZeroDivisionError("secret")

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "solve", fail)
        status, found = client.post("/api/solve", QUESTION)
    assert status == 500
    assert "secret" not in str(found)
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert client.post("/api/solve", {**QUESTION, "number": 2})[1]["status"] == "solved"


def test_a_newer_number_ends_an_older_one_of_its_tab_alone(client, monkeypatch):
    """The older ones solve for ever."""
    endless, begun = [True], threading.Semaphore(0)

    def slow(problem, evidence, *, callback, **options):
        if endless[0]:
            begun.release()
            while True:
                callback(None)
        return solve(problem, evidence, callback=callback, **options)

    monkeypatch.setattr(session_module, "solve", slow)
    answers = {}

    def ask(name, **more):
        thread = threading.Thread(
            target=lambda: answers.update({name: client.post("/api/solve", {**QUESTION, **more})[1]})
        )
        thread.start()
        return thread

    first = ask("first", tab="one", number=1)
    assert begun.acquire(timeout=60)
    other = ask("other", tab="two", number=5)  # waits for the first
    assert client.get("/api/progress?tab=one")[1]["busy"]
    endless[0] = False
    newer = ask("newer", tab="one", number=2)
    for thread in (first, other, newer):
        thread.join(60)
    assert answers["first"]["status"] == "cancelled"
    assert [answers[name]["status"] for name in ("other", "newer")] == ["solved", "solved"]
    assert [answers[name]["number"] for name in ("first", "other", "newer")] == [1, 5, 2]


def test_closing_ends_what_is_being_solved(monkeypatch):
    evidence, _, _ = people(300, 0)
    begun, answers = threading.Event(), []

    def stuck(*_, **__):
        begun.set()
        threading.Event().wait()  # for ever, and it looks at nothing

    monkeypatch.setattr(session_module, "solve", stuck)
    made = studio(Problem("error()"), evidence)
    client = Client(made.url)
    asking = threading.Thread(target=lambda: answers.append(client.post("/api/solve", QUESTION)))
    asking.start()
    assert begun.wait(60)
    made.close()
    asking.join(60)
    assert not made.running
    assert answers[0][1]["status"] == "cancelled"
    with pytest.raises(ConnectionError):
        client.get("/api/start")


def test_several_studios_run_at_once_and_each_has_its_own_token():
    evidence, _, _ = people(100, 0)
    made = [studio(Problem("error()"), evidence, title=f"studio {i}") for i in range(3)]
    clients = [Client(one.url) for one in made]
    assert len({client.token for client in clients}) == len({client.port for client in clients}) == 3
    assert [client.get("/api/start")[1]["title"] for client in clients] == [
        "studio 0",
        "studio 1",
        "studio 2",
    ]
    assert clients[0].get("/api/start", X_Bylaw_Token=clients[1].token)[0] == 403
    made[1].close()
    made[1].close()  # once more does nothing
    assert "closed" in made[1]._repr_html_()
    assert clients[0].get("/api/start")[0] == clients[2].get("/api/start")[0] == 200
    for one in made:
        one.close()


def test_a_notebook_shows_the_page_in_a_frame(running):
    shown = running._repr_html_()
    assert shown.startswith("<iframe")
    assert running.url in shown
    answer, _ = Client(running.url).send("GET", f"/?token={Client(running.url).token}")
    assert "frame-ancestors" not in answer.headers["Content-Security-Policy"]


def test_what_is_no_problem_is_refused():
    evidence, _, _ = people(100, 0)
    with pytest.raises(OptionError, match="must be a Problem, got"):
        studio(evidence, Problem("error()"))
    with studio(Problem("error()"), evidence) as made, pytest.raises(OptionError, match="cannot be used"):
        studio(Problem("error()"), evidence, port=Client(made.url).port)


def start_command(folder, *arguments):
    """The command in a process of its own, and its address."""
    command = "from bylaw.cli import main; main()"
    path = os.pathsep.join([str(Path(session_module.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", command, "studio", *arguments, "--no-browser"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert line.startswith("studio: "), process.communicate()[1]
    return process, Client(line.removeprefix("studio: ").strip())


@pytest.fixture
def folder(tmp_path):
    pyarrow.parquet.write_table(table(1500, 0), tmp_path / "scores.parquet")
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_leaves_nothing(folder, stop):
    before = sorted(folder.iterdir())
    process, client = start_command(folder, "scores.parquet", "--rules", "rules.toml")
    try:
        start = client.get("/api/start")[1]
        assert start["labelled"]
        assert start["problem"]["rules"][1]["text"] == "rejected() <= 0.1"
        answer, _ = client.send("GET", f"/?token={client.token}")
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        process.send_signal(stop)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert client.token not in out + err
    assert sorted(folder.iterdir()) == before
    with pytest.raises(ConnectionError):
        client.get("/api/start")


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "view"), [("parquet", "observed"), ("csv", "predicted")])
def test_what_the_command_saves_does_the_same_by_itself(folder, ending, view, bylaw, monkeypatch):
    if ending == "csv":
        rows = pyarrow.parquet.read_table(folder / "scores.parquet")
        csv.write_csv(rows, folder / "scores.csv")
    process, client = start_command(folder, f"scores.{ending}", "--rules", "rules.toml")
    rules = [{"text": "error_parity('sex', tol=0.02)"}, {"text": "rejected() <= 0.2"}]
    question = {**QUESTION, "rules": rules, "view": view}
    try:
        found = client.post("/api/solve", question)[1]
        for kind, name in (("rules", "new.toml"), ("policy", "saved.json"), ("python", "solve.py")):
            answer, text = client.send("POST", "/api/save", {**question, "kind": kind})
            assert answer.status == 200
            (folder / name).write_bytes(text)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    path = os.pathsep.join([str(Path(session_module.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    run = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": path}, "check": True, "capture_output": True}
    subprocess.run([sys.executable, "solve.py"], **run)
    saved, alone = (Policy.load(folder / name) for name in ("saved.json", "policy.json"))
    assert saved.prices == pytest.approx(alone.prices, abs=1e-5)
    assert [rule["price"] for rule in found["rules"]] == pytest.approx(list(alone.prices.values()), abs=1e-3)
    assert saved.card.columns["label"] == "outcome"
    monkeypatch.chdir(folder)
    assert bylaw("fit", f"scores.{ending}", "--rules", "new.toml", "-o", "fitted.json").code == 0
    if view == "observed":
        assert Policy.load(folder / "fitted.json").digest == saved.digest


@pytest.mark.slow
def test_an_earlier_model_may_be_given_for_rules_yet_to_come(tmp_path):
    rng = np.random.default_rng(0)
    rows = table(300, 0).append_column("old", pyarrow.array(rng.choice(["no", "yes"], 300).tolist()))
    pyarrow.parquet.write_table(rows, tmp_path / "scores.parquet")
    process, client = start_command(tmp_path, "scores.parquet", "--reference", "old=old", "--group", "sex")
    try:
        start = client.get("/api/start")[1]
        found = client.post("/api/solve", {**QUESTION, "rules": [{"text": "disagreement('old') <= 0.3"}]})[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert (start["references"], list(start["groups"])) == (["old"], ["sex"])
    assert start["problem"] == {"minimize": "error()", "rules": []}
    assert found["status"] == "solved"


def test_rows_that_are_no_evidence_are_refused():
    with pytest.raises(EvidenceError, match="Evidence"):
        studio(Problem("error()"), np.ones((3, 2)))


@pytest.mark.parametrize(("min_cell", "hidden"), [(0, False), (400, True)])
def test_a_studio_hides_groups_of_fewer_rows_than_it_was_told(min_cell, hidden):
    evidence, _, _ = people(500, 0)
    (name,) = evidence.known_groups
    text = f"demographic_parity({name!r}, tol=0.05)"
    question = {**QUESTION, "rules": [{"text": text, "on": True}]}
    with studio(Problem("error()", [text]), evidence, min_cell=min_cell) as made:
        (rule,) = Client(made.url).post("/api/solve", question)[1]["rules"]
    assert rule["price_words"].startswith("Not shown: it is about groups of fewer than 400 rows") == hidden


def test_every_option_of_a_studio_reaches_its_session():
    evidence, labels, sex = people(200, 0)
    options = {
        "labels": np.where(np.arange(200) % 2, labels, None),
        "groups": {"sex": sex},
        "propensity_weights": np.ones(200),
        "title": "what if",
        "min_cell": 3,
    }
    with studio(Problem("error()"), evidence, **options) as made:
        session = made._server.session
    assert (session.title, session.min_cell) == ("what if", 3)
    observed = session.evidence
    assert observed.labels is not None
    assert observed.propensity_weights is not None
    assert list(observed.true_groups) == ["sex"]
