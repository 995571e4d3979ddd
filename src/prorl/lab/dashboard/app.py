"""The dashboard's server: its addresses, where it listens, who may do what, and how it ends.

All pages may be read; `/command` alone changes something, and asks for the token. The threats are web pages that the
operator has open beside the dashboard (forged requests, framing, DNS rebinding) and text that a model wrote (script
in a response). The headers checked here keep the first out, and a browser runs none of the second because the policy
allows scripts from this server's files only.
"""

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prorl.commands import OBEYED, UnconfirmedError, tell
from prorl.envs.errors import ProrlError
from prorl.lab.dashboard.hub import Hub
from prorl.lab.dashboard.pages import RunPage, RunsPage, find_runs, overlaid
from prorl.lab.report.page import PLOTLY, asset_path, page

LIST = ""  # the name of the list of runs where others have that of a run
OWN = Path(__file__).parent / "assets"
OVERLAID = 12  # runs on one page at most
MAX_COMMAND = 16_384  # bytes of a request
PORT, TRIED = 8787, 20  # the first port, and how many from there on are tried
PATIENCE = 2  # seconds for requests that are being answered when the server ends
ANSWERS = {
    # plotly.js puts style elements into the page whose text changes with its version; styles can load nothing here.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def serve(root: Path, *, host: str, port: int | None, read_only: bool) -> None:
    """Serve the dashboard of the runs below `root` until interrupted.

    Without `port` it is 8787 or the next one that is free. Raises ProrlError: there is no such folder, host or free
    port.
    """
    if not root.is_dir():
        raise ProrlError(f"there is no folder {root}: say which one holds the runs")
    token = None if read_only else secrets.token_urlsafe(24)
    with _bound(host, port) as listening:
        logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
        app = Dashboard(root, token=token, hosts=(host, socket.gethostname()))
        quiet: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
        config = uvicorn.Config(app, lifespan="off", timeout_graceful_shutdown=PATIENCE, **quiet)
        said = announcement(root, host, listening.getsockname()[1], token)
        _Server(config, app.hub, "\n".join(said)).run([listening])


def announcement(root: Path, host: str, port: int, token: str | None) -> Iterator[str]:
    """The lines printed at start. The token is in the fragment of the address, which browsers never send."""
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    yield f"dashboard of {root}: {address}{'' if token is None else f'#token={token}'}"
    if token is not None:
        yield "whoever has this address may give commands; without the token it is read only. Ctrl-C ends it"
    known = numeric(host)
    if host != "localhost" and (known is None or not known.is_loopback):
        yield (
            f"warning: {host} may be reached from other machines, unencrypted, and everybody there may read; "
            "prefer 127.0.0.1 and `ssh -L`"
        )


class Dashboard(Starlette):
    """The application that shows the runs below `root` and, with a token, takes commands for them.

    `hosts` are the names under which it may be asked for, besides `localhost` and numeric addresses.
    Its `hub` must be closed before a server that should end can end.
    """

    def __init__(self, root: Path, *, token: str | None, hosts: Iterable[str] = ()) -> None:
        answers = [
            Route("/", self.run),
            Route("/run/{name:path}", self.run),
            Route("/overlay", self.overlay),
            Route("/events/{name:path}", self.events),
            Route("/command/{name:path}", self.command, methods=["POST"]),
            Route("/assets/{name}", self.asset),
            Route("/favicon.ico", self.asset),
        ]
        super().__init__(routes=answers, middleware=[Middleware(Guard, hosts=hosts)])
        self._root = root
        self._token = token
        self.hub = Hub()
        self._list = RunsPage(root)
        self._assets = {name: asset_path(name) for name in (PLOTLY, "page.js", "page.css")}
        self._assets |= {path.name: path for path in OWN.iterdir()}

    async def run(self, request: Request) -> Response:
        """The page of a run, or of the list of runs, which `events` fills."""
        name = (await self._find(request))[0] if request.path_params else "prorl"
        return HTMLResponse(page(name, [], live=True))

    async def overlay(self, request: Request) -> Response:
        """Several runs in the same figures, as their files are now."""
        names = request.query_params.getlist("run")[:OVERLAID]
        runs = await asyncio.to_thread(find_runs, self._root)
        folders = [runs[name] for name in dict.fromkeys(names) if name in runs]
        if not folders:
            raise HTTPException(404, "There is no such run here.")
        try:
            return HTMLResponse(await asyncio.to_thread(overlaid, folders))
        except ProrlError as error:
            raise HTTPException(422, str(error)) from None

    async def events(self, request: Request) -> Response:
        """The page of a run, or the list, as long as the connection stays."""
        if request.path_params["name"] == LIST:
            stream = self.hub.events(LIST, lambda: self._list)
        else:
            name, folder = await self._find(request)
            stream = self.hub.events(name, lambda: RunPage(folder, commands=self._token is not None))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def command(self, request: Request) -> Response:
        """Give a run a command, judged as `prorl tell` judges it."""
        refused = refusal(request.headers, self._token)
        if refused is not None:
            return _said(*refused)
        _, folder = await self._find(request)
        body = await _body(request)
        try:
            given = json.loads(body)
            words, confirmed = given["words"], given.get("yes") is True
        except (ValueError, TypeError, KeyError, RecursionError):
            words = None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return _said(400, 'a command is {"words": ["pause"]}, the words that `prorl tell` takes')
        try:
            await asyncio.to_thread(tell, folder, words, confirm=lambda _move: confirmed)
        except UnconfirmedError as error:
            return _said(409, str(error))  # the page asks, and sends it again with "yes"
        except ProrlError as error:
            return _said(422, str(error))
        except OSError as error:
            return _said(422, f"the inbox cannot be written: {error}")
        return _said(200, f"the command is in the inbox: {OBEYED}")

    async def asset(self, request: Request) -> Response:
        """A file of the page. The browser keeps it, and asks each time whether it is still the same."""
        path = self._assets.get(request.path_params.get("name", "icon.svg"))
        if path is None:
            raise HTTPException(404)
        answer = StaticFiles().file_response(path, path.stat(), request.scope)
        answer.headers["cache-control"] = "no-cache"
        return answer

    async def _find(self, request: Request) -> tuple[str, Path]:
        """The run that an address names, or a 404."""
        name = request.path_params["name"]
        folder = (await asyncio.to_thread(find_runs, self._root)).get(name)
        if folder is None:
            raise HTTPException(404, "There is no such run here.")
        return name, folder


class _Server(uvicorn.Server):
    """Streams never end by themselves; when asked to end, this server ends them first."""

    def __init__(self, config: uvicorn.Config, hub: Hub, announcement: str) -> None:
        super().__init__(config)
        self._hub = hub
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Print the address once it answers and hears signals: one that came earlier could be lost."""
        await super().startup(sockets)
        print(self._announcement, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        asyncio.get_running_loop().call_soon_threadsafe(self._hub.close)
        super().handle_exit(sig, frame)


def _bound(host: str, port: int | None) -> socket.socket:
    problem = ""
    for candidate in range(PORT, PORT + TRIED) if port is None else (port,):
        try:
            family = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, candidate), family=family)
        except OSError as error:
            problem = error.strerror or str(error)
            if isinstance(error, socket.gaierror):
                break
    ports = f"port {port}" if port is not None else f"ports {PORT} to {PORT + TRIED - 1}"
    raise ProrlError(
        f"nothing can be served on {host}, {ports}: {problem}; choose others with --host and --port"
    )


async def _body(request: Request) -> bytes:
    """The content of a request, which is refused if it is longer than any command."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_COMMAND:
            raise HTTPException(413, "This is longer than any command.")
    return body


def _said(status: int, sentence: str) -> Response:
    return JSONResponse({"said": sentence}, status_code=status)


# -- who may do what


class Guard:
    """ASGI middleware: refuses requests under names of this machine but `hosts`, and adds `ANSWERS` to answers."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        self._app = app
        self._hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(ANSWERS)
            await send(message)

        allowed = scope["type"] != "http" or self._knows(Headers(scope=scope).get("host", ""))
        refusal = PlainTextResponse("This server is not known by that name; see --host.\n", status_code=421)
        await (self._app if allowed else refusal)(scope, receive, answer)

    def _knows(self, host: str) -> bool:
        # Rebinding needs a name whose address the attacker can change; a number cannot be rebound.
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._hosts or numeric(name) is not None


def refusal(headers: Headers, token: str | None) -> tuple[int, str] | None:
    """Why a command with these headers is refused unread: status and sentence; None where nothing is wrong.

    What a page of another site can make a browser send lacks one of these: JSON and `Authorization` need a
    consent (CORS) that this server never gives, and the origin is told by the browser.
    """
    if token is None:
        return 403, "this dashboard is read only"
    origin = headers.get("origin")
    foreign = origin is not None and origin.partition("://")[2] != headers.get("host")
    if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "commands are taken from this server's own pages only"
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return 415, "a command is JSON"
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not secrets.compare_digest(given.encode(), token.encode()):
        return 401, "this needs the token: open the address that `prorl dashboard` printed when it started"
    return None


def numeric(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is if it is written in numbers."""
    try:
        return ip_address(host)
    except ValueError:
        return None
