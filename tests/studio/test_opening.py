"""How a browser gets to the studio: every user of a machine can read the arguments of its processes."""

from __future__ import annotations

import html
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

import bylaw
from bylaw import Evidence, Problem
from bylaw.studio import Session, StudioServer


def follow(argument):
    """The file that a browser was given, and what is where its page leads."""
    file = Path(unquote(urlsplit(argument).path))
    (address,) = re.findall(r'http-equiv="refresh" content="0; url=([^"]+)"', file.read_text())
    with urllib.request.urlopen(html.unescape(address), timeout=30) as answer:
        return file, address, answer.status, answer.read().decode()


def test_a_browser_is_given_a_file_that_leads_to_the_page(monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    scores = np.random.default_rng(0).random(50)
    session = Session(Problem("error()"), Evidence(np.column_stack([1 - scores, scores])))
    server = StudioServer(session)
    thread = threading.Thread(target=server.serve_here, daemon=True)
    server.open_browser()
    thread.start()
    try:
        (argument,) = opened
        assert server.door.token not in argument
        file, address, status, page = follow(argument)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert address == server.door.url
        assert (status, "<!doctype html>" in page.lower()) == (200, True)
    finally:
        server.stop()
        thread.join(timeout=30)
    assert not file.parent.exists()


@pytest.mark.slow
def test_the_command_gives_no_token_to_a_browser_and_leaves_no_file(tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/arguments\n'
    )
    browser.chmod(0o755)
    (tmp_path / "rows.csv").write_text("p_no,p_yes\n" + "0.4,0.6\n0.7,0.3\n" * 20)
    path = os.pathsep.join([str(Path(bylaw.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", "from bylaw.cli import main; main()", "studio", "rows.csv"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "BROWSER": str(browser), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        token = process.stdout.readline().strip().partition("token=")[2]
        limit = time.monotonic() + 60
        while not (tmp_path / "arguments").exists() and time.monotonic() < limit:
            time.sleep(0.02)
        given = (tmp_path / "arguments").read_text()
        assert token
        assert token not in given
        file, _, status, _ = follow(given.strip())
        assert status == 200
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert not file.parent.exists()
