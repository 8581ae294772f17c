"""The HTTP server of the studio, for browsers on this machine only.

Every request must contain the random token of this run, name this server as its host, and come from the
studio's own page. The page loads nothing from other servers, and the server opens no path that a browser
names.
"""

from __future__ import annotations

import asyncio
import html
import json
import math
import re
import secrets
import shutil
import socket
import tempfile
import threading
import traceback
import webbrowser
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bylaw.errors import BylawError, OptionError
from bylaw.studio._questions import CancelledError, read_rules
from bylaw.studio._session import Session, describe
from bylaw.view import write_color_variables

_HOST = "127.0.0.1"
_LARGEST = 1_000_000  # largest size of the body of a request, in bytes
_PAGE = resources.files("bylaw.studio").joinpath("page")
_PLACE = re.compile(r"\{\{(nonce|palette|style|script)\}\}")  # in page.html
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LAUNCHER = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}"><title>bylaw studio</title>
<p>The studio is at <a href="{address}">this address</a>.</p></html>
"""


@dataclass(frozen=True)
class Door:
    """The address of a server, and the checks that admit a request."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    framed: bool = False  # whether a notebook shows the page in a frame

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names that a browser may use for this server."""
        return f"{_HOST}:{self.port}", f"localhost:{self.port}"

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return f"http://{_HOST}:{self.port}/?token={self.token}"

    def refuse(self, request: Request) -> str:
        """Return the reason to refuse a request; empty if the request is admitted."""
        if request.headers.getlist("host") not in [[host] for host in self.hosts]:
            return (
                "requests must come from a browser on this machine; open the address that the studio printed"
            )
        origins = request.headers.getlist("origin")
        if any(origin not in [f"http://{host}" for host in self.hosts] for origin in origins):
            return "requests must come from the studio's own page"
        if request.url.path == "/":
            given = request.query_params.get("token", "")
        else:
            given = request.headers.get("x-bylaw-token", "")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode()):
            return "the token must be that of this run; open the address that the studio printed"
        return ""


def answer(content: Any, status: int = 200) -> Response:
    """Return a JSON response with plain values, in which infinite numbers and nan are null."""
    text = json.dumps(_clean(content), allow_nan=False)
    return Response(
        text, status, {**_HEADERS, "Content-Security-Policy": "default-src 'none'"}, "application/json"
    )


def _clean(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _clean(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]
    return value


def make_page(door: Door) -> Response:
    """Return the page as one response that contains its style and its scripts."""
    nonce = secrets.token_urlsafe(16)
    ancestors = "" if door.framed else "; frame-ancestors 'none'"
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        f"img-src data:; base-uri 'none'; form-action 'none'{ancestors}"
    )
    parts = {"nonce": nonce, "palette": write_color_variables()}
    # All scripts use `elements` at once, and `start` calls all others.
    names = [part.name for part in _PAGE.iterdir() if part.name.endswith(".js")]
    names.sort(key=lambda name: (name != "elements.js", name == "start.js", name))
    script = "\n".join(map(_read_file, names))
    parts |= {"style": _read_file("page.css"), "script": script}
    page = _PLACE.sub(lambda found: parts[found[1]], _read_file("page.html"))
    return Response(page, 200, {**_HEADERS, "Content-Security-Policy": policy}, "text/html")


def _read_file(name: str) -> str:
    return _PAGE.joinpath(name).read_text(encoding="utf-8")


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request; raise if the body is too large."""
    body, length = bytearray(), request.headers.get("content-length", "0")
    size = int(length) if length.isdecimal() else 0
    if size <= _LARGEST:
        async for part in request.stream():
            body += part
            if (size := len(body)) > _LARGEST:
                break
    if size > _LARGEST:
        raise HTTPException(413, f"the body of a request must have at most {_LARGEST:,} bytes")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise OptionError("the body of a request must be a JSON object, got something else")
    return content


def _read_text(content: Mapping[str, Any], name: str) -> str:
    if not isinstance(text := content.get(name), str):
        raise OptionError(f"{name} must be text, got {type(text).__name__}")
    return text


class Workers:
    """Threads for requests; they end with the process, and their results can be discarded."""

    def __init__(self) -> None:
        self._waiting: set[Future[Any]] = set()

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function call that runs in a thread of its own."""
        result: Future[Any] = Future()

        def call() -> None:
            with suppress(InvalidStateError):  # the result was discarded meanwhile
                try:
                    result.set_result(work(*arguments))
                except BaseException as problem:
                    result.set_exception(problem)

        self._waiting.add(result)
        threading.Thread(target=call, name="bylaw studio worker", daemon=True).start()
        try:
            return await asyncio.wrap_future(result)
        finally:
            self._waiting.discard(result)

    def dismiss(self) -> None:
        """Answer all waiting requests with the status "cancelled"."""
        for result in list(self._waiting):
            with suppress(InvalidStateError):
                result.set_exception(CancelledError())


def make_app(session: Session, door: Door, workers: Workers) -> ASGIApp:
    """Return the web application of a session."""

    def route(path: str, work: Callable[[Any], Any], method: str = "GET") -> Route:
        """Return a route that calls `work` with the request or, for POST, with its content."""

        async def handle(request: Request) -> Response:
            try:
                content = await workers.run(work, request if method == "GET" else await _read_body(request))
                return content if isinstance(content, Response) else answer(content)
            except HTTPException:
                raise
            except CancelledError:
                return answer({"status": "cancelled"})
            except BylawError as refused:
                return answer({"error": describe(refused)}, 400)
            except ClientDisconnect:
                return answer({}, 400)
            except Exception:  # the server goes on
                traceback.print_exc()
                return answer({"error": "an internal error of bylaw occurred; please report it"}, 500)

        return Route(path, handle, methods=[method])

    def read_rule(content: dict[str, Any]) -> dict[str, Any]:
        minimize = _read_text(content, "minimize") if "minimize" in content else None
        return session.read_rule(_read_text(content, "text"), minimize)

    def read_objective(content: dict[str, Any]) -> dict[str, Any]:
        rules = [text for text, on in read_rules(content.get("rules", [])) if on]
        return session.read_objective(_read_text(content, "text"), rules)

    def cancel(content: dict[str, Any]) -> dict[str, Any]:
        session.jobs.cancel(_read_text(content, "tab"))
        return {}

    def save(content: dict[str, Any]) -> Response:
        saved = session.save(content)
        headers = {"Content-Disposition": f'attachment; filename="{saved.name}"', **_HEADERS}
        headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
        return Response(saved.text.encode("utf-8", "surrogatepass"), 200, headers, saved.media_type)

    routes = [
        route("/", lambda _: make_page(door)),
        route("/api/start", lambda _: session.start()),
        route("/api/progress", lambda request: session.jobs.describe(request.query_params.get("tab", ""))),
        route("/api/rule", read_rule, "POST"),
        route("/api/objective", read_objective, "POST"),
        route("/api/solve", session.answer, "POST"),
        route("/api/cancel", cancel, "POST"),
        route("/api/frontier", session.trace, "POST"),
        route("/api/save", save, "POST"),
    ]
    handlers: Any = {HTTPException: lambda _, e: answer({"error": e.detail}, e.status_code)}
    app = Starlette(routes=routes, exception_handlers=handlers)

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        """Pass requests on if the door admits them, and refuse others."""
        if scope["type"] == "http":
            reason = door.refuse(Request(scope))
            await (answer({"error": reason}, 403) if reason else app)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await app(scope, receive, send)

    return guard


class StudioServer(uvicorn.Server):
    """A server of one session on the loopback interface, which stops without waiting for fits."""

    def __init__(self, session: Session, *, port: int = 0, framed: bool = False) -> None:
        self.session, self.workers = session, Workers()
        self._launcher: Path | None = None  # the folder of the file that redirects a browser to the page
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((_HOST, port))
            self.socket.listen()  # requests before the server runs wait
        except (OSError, OverflowError) as problem:
            self.socket.close()
            raise OptionError(
                f"port {port} cannot be used: {problem}; choose another port, or 0 for any free one"
            ) from None
        self.door = Door(self.socket.getsockname()[1], framed=framed)
        config = uvicorn.Config(
            make_app(session, self.door, self.workers),
            log_level="error",
            access_log=False,  # addresses hold the token
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=1,  # second
        )
        super().__init__(config)

    def open_browser(self) -> None:
        """Open the page in a browser.

        The address contains the token, and every user of the machine can read the arguments of a process. So
        the browser opens a file that only this user can read, and that redirects to the page.
        """
        self._launcher = Path(tempfile.mkdtemp(prefix="bylaw-studio-"))  # of mode 700
        page = self._launcher / "open.html"
        page.touch(0o600)
        page.write_text(_LAUNCHER.format(address=html.escape(self.door.url)))
        webbrowser.open(page.as_uri())

    def serve_here(self) -> None:
        """Serve requests in this thread, until control-C or `stop`."""
        try:
            with suppress(KeyboardInterrupt):
                self.run(sockets=[self.socket])
        finally:
            self._dismiss()
            self.socket.close()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Handle a signal to end, and cancel the fits that are running."""
        self._dismiss()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """End the server soon; may be called from any thread."""
        self._dismiss()
        self.should_exit = True

    def _dismiss(self) -> None:
        self.session.jobs.cancel()
        self.workers.dismiss()
        if self._launcher is not None:
            shutil.rmtree(self._launcher, ignore_errors=True)
