"""The dashboard's server: its addresses, where it listens, and how it ends.

All pages may be read; `/command` alone changes something, and asks for the token.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from prorl.commands import UnconfirmedError, tell
from prorl.envs.errors import ProrlError
from prorl.lab.dashboard.hub import Hub
from prorl.lab.dashboard.pages import RunPage, RunsPage, find_runs
from prorl.lab.dashboard.security import Guard, numeric, refusal
from prorl.lab.report.page import PLOTLY, asset_path, page

LIST = ""  # the name of the list of runs where others have that of a run
OWN = Path(__file__).parent / "assets"
MAX_COMMAND = 16_384  # bytes of a request
PORT, TRIED = 8787, 20  # the first port, and how many from there on are tried
PATIENCE = 2  # seconds for requests that are being answered when the server ends


def serve(root: Path, *, host: str, port: int | None, read_only: bool) -> None:
    """Serve the dashboard of the runs below `root` until interrupted.

    Without `port` it is 8787 or the next one that is free.

    Raises:
        ProrlError: there is no such folder, host or free port.
    """
    if not root.is_dir():
        raise ProrlError(f"there is no folder {root}: say which one holds the runs")
    token = None if read_only else secrets.token_urlsafe(24)
    with _bound(host, port) as listening:
        logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.WARNING)
        app = dashboard(root, token=token, hosts=(host, socket.gethostname()))
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=PATIENCE,
        )
        said = announcement(root, host, listening.getsockname()[1], token)
        _Server(config, app.state.hub, "\n".join(said)).run([listening])


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


def dashboard(root: Path, *, token: str | None, hosts: Iterable[str] = ()) -> Starlette:
    """The application that shows the runs below `root` and, with a token, takes commands for them.

    `hosts` are the names under which it may be asked for, besides `localhost` and numeric addresses.
    Its `state.hub` must be closed before a server that should end can end.
    """
    served = _Dashboard(root, token)
    app = Starlette(
        routes=[
            Route("/", served.runs),
            Route("/run/{name:path}", served.run),
            Route("/events/{name:path}", served.events),
            Route("/command/{name:path}", served.command, methods=["POST"]),
            Route("/assets/{name}", served.asset),
            Route("/favicon.ico", served.asset),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
    )
    app.state.hub = served.hub
    return app


class _Dashboard:
    """The answer of each address."""

    def __init__(self, root: Path, token: str | None) -> None:
        self._root = root
        self._token = token
        self.hub = Hub()
        self._list = RunsPage(root)
        self._assets = {name: asset_path(name) for name in (PLOTLY, "page.js", "page.css")}
        self._assets |= {path.name: path for path in OWN.iterdir()}

    async def runs(self, _request: Request) -> Response:
        return HTMLResponse(page("prorl", [], live=True))

    async def run(self, request: Request) -> Response:
        name, _ = await self._find(request)
        return HTMLResponse(page(name, [], live=True))

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
            command = await asyncio.to_thread(tell, folder, words, confirm=lambda _move: confirmed)
        except UnconfirmedError as error:
            return _said(409, str(error))  # the page asks, and sends it again with "yes"
        except ProrlError as error:
            return _said(422, str(error))
        except OSError as error:
            return _said(422, f"the inbox cannot be written: {error}")
        return _said(200, f"command {command.id} is in the inbox: obeyed when the current step ends")

    async def asset(self, request: Request) -> Response:
        """A file of the page. The browser keeps it, and asks each time whether it is still the same."""
        path = self._assets.get(request.path_params.get("name", "icon.svg"))
        if path is None:
            raise HTTPException(404)
        answer = FileResponse(path, stat_result=path.stat(), headers={"cache-control": "no-cache"})
        if request.headers.get("if-none-match") == answer.headers["etag"]:
            kept = {name: answer.headers[name] for name in ("etag", "cache-control")}
            return Response(status_code=304, headers=kept)
        return answer

    async def _find(self, request: Request) -> tuple[str, Path]:
        """The run that an address names.

        Raises:
            HTTPException: there is none.
        """
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
    """A listening socket."""
    problem = ""
    for candidate in range(PORT, PORT + TRIED) if port is None else (port,):
        try:
            family = socket.getaddrinfo(host, candidate, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, candidate), family=family)
        except OSError as error:
            problem = error.strerror or str(error)
    ports = f"port {port}" if port is not None else f"ports {PORT} to {PORT + TRIED - 1}"
    raise ProrlError(
        f"nothing can be served on {host}, {ports}: {problem}; choose others with --host and --port"
    )


async def _body(request: Request) -> bytes:
    """The content of a request.

    Raises:
        HTTPException: it is longer than any command.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_COMMAND:
            raise HTTPException(413, "This is longer than any command.")
    return body


def _said(status: int, sentence: str) -> Response:
    return JSONResponse({"said": sentence}, status_code=status)
