"""Studios, and a real browser that opens their pages."""

from __future__ import annotations

import threading

import pytest

from bylaw.studio import Session, _server as served, studio
from helpers.browsers import Pages, run_chromium
from helpers.studio_pages import MAKERS, WAIT, make_loans, settle


@pytest.fixture(scope="module")
def pages():
    with run_chromium() as running:
        yield Pages(running, accept_downloads=True)


@pytest.fixture(scope="module")
def running():
    """Studios by name, each started once."""
    started = {}

    def start(name):
        if name not in started:
            table = MAKERS[name]()
            started[name] = table, studio(table.problem, table.evidence, labels=table.labels, title=name)
        return started[name]

    yield start
    for _, one in started.values():
        one.close()


@pytest.fixture
def opened(pages, running):
    """Open the page of a table; afterwards nothing may have complained or called out."""
    complaints = []

    def visit(name, url=None, forgiving=False, fragment="", settled=True, **options):
        table, one = running(name) if url is None else (None, None)
        url = url or one.url
        page = pages.open(**options)
        page.set_default_timeout(WAIT)
        if not forgiving:
            pages.listen(page, "console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        pages.listen(page, "pageerror", lambda problem: complaints.append(str(problem)))
        pages.listen(page, "dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        origin = url.split("/?")[0]
        known = (origin, f"blob:{origin}", "data:,", "about:")
        pages.listen(page, "request", lambda r: None if r.url.startswith(known) else complaints.append(r.url))
        page.goto(url + fragment)
        if settled:
            settle(page)
        return page, table

    yield visit
    pages.take_back()
    assert complaints == []


@pytest.fixture
def gate(monkeypatch):
    """Solves that wait until they are let through, or are cancelled."""
    let, own = threading.Event(), Session.solve
    let.set()

    def wait(self, question, job=None):
        while job is not None and not let.wait(0.01):
            job.check()
        return own(self, question, job)

    monkeypatch.setattr(Session, "solve", wait)
    yield let
    let.set()


@pytest.fixture
def restartable(monkeypatch):
    """A studio on one port that is stopped and started."""
    table, token, started = make_loans(), ["same" * 8], []
    own = served.Door
    monkeypatch.setattr(served, "Door", lambda port, framed: own(port, token[0], framed))

    def start(port=0, other=False):
        token[0] = "other" * 8 if other else token[0]
        started.append(studio(table.problem, table.evidence, title="again", port=port))
        return started[-1]

    yield table, start
    for one in started:
        if one.running:
            one.close()
