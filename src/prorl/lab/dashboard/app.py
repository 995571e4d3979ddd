"""The dashboard's addresses. All of it may be read; `/order` alone changes something, and asks for the token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from prorl.envs.errors import ProrlError
from prorl.lab.dashboard.hub import Hub
from prorl.lab.dashboard.looks import RunPage, RunsPage, stamp
from prorl.lab.dashboard.runs import find_runs
from prorl.lab.dashboard.security import Guard, refusal
from prorl.lab.report.page import PLOTLY, asset_path, page
from prorl.steering import UnconfirmedError, tell

LIST = ""  # the name of the list of runs where others have that of a run
OWN = Path(__file__).parent / "assets"
MAX_ORDER = 16_384  # bytes of a request


def dashboard(root: Path, *, token: str | None, hosts: Iterable[str] = ()) -> Starlette:
    """The application that shows the runs below `root` and, with a token, takes orders for them.

    `hosts` are the names under which it may be asked for, besides `localhost` and numeric addresses.
    Its `state.hub` must be closed before a server that should end can end.
    """
    served = _Dashboard(root, token)
    app = Starlette(
        routes=[
            Route("/", served.runs),
            Route("/run/{name:path}", served.run),
            Route("/events/{name:path}", served.events),
            Route("/order/{name:path}", served.order, methods=["POST"]),
            Route("/assets/{name}", served.asset),
            Route("/favicon.ico", served.icon),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
    )
    app.state.hub = served.hub
    return app


class _Dashboard:
    """What the addresses answer."""

    def __init__(self, root: Path, token: str | None) -> None:
        self._root = root
        self._token = token
        self.hub = Hub()
        self._list = RunsPage(root)
        self._assets = {name: asset_path(name) for name in (PLOTLY, "page.js", "page.css")}
        self._assets |= {path.name: path for path in OWN.iterdir()}

    async def runs(self, _request: Request) -> Response:
        """The list of runs."""
        return HTMLResponse(page("prorl", [], live=True))

    async def run(self, request: Request) -> Response:
        """One run."""
        name, _ = await self._find(request)
        return HTMLResponse(page(name, [], live=True))

    async def events(self, request: Request) -> Response:
        """What the page of a run, or the list, shows; as long as somebody listens."""
        if request.path_params["name"] == LIST:
            stream = self.hub.events(LIST, lambda: self._list)
        else:
            name, folder = await self._find(request)
            stream = self.hub.events(name, lambda: RunPage(folder, orders=self._token is not None))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def order(self, request: Request) -> Response:
        """Give a run an order, judged as `prorl tell` judges it."""
        refused = refusal(request.headers, self._token)
        if refused is not None:
            return _said(*refused)
        _, folder = await self._find(request)
        body = await _body(request)
        words = _words(body)
        if words is None:
            return _said(400, 'an order is {"words": ["pause"]}, the words that `prorl tell` takes')
        try:
            given = await asyncio.to_thread(tell, folder, words, confirm=lambda _move: _confirmed(body))
        except UnconfirmedError as error:
            return _said(409, str(error))  # the page asks, and sends it again with "yes"
        except ProrlError as error:
            return _said(422, str(error))
        except OSError as error:
            return _said(422, f"the inbox cannot be written: {error}")
        return _said(200, f"order {given.id} is in the inbox: obeyed at the next boundary between two steps")

    async def asset(self, request: Request) -> Response:
        """A file of the page. Kept by the browser, which asks each time whether it still holds."""
        path = self._assets.get(request.path_params["name"])
        if path is None:
            raise HTTPException(404)
        etag = f'"{"-".join(map(str, stamp(path) or ()))}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return FileResponse(path, headers=headers)

    async def icon(self, _request: Request) -> Response:
        """What browsers ask for unasked."""
        return FileResponse(self._assets["icon.svg"])

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


async def _body(request: Request) -> bytes:
    """The content of a request.

    Raises:
        HTTPException: it is longer than any order.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_ORDER:
            raise HTTPException(413, "This is longer than any order.")
    return body


def _words(body: bytes) -> Sequence[str] | None:
    """The words of an order; None where the request holds none."""
    try:
        words = json.loads(body)["words"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    right = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return words if right else None


def _confirmed(body: bytes) -> bool:
    return json.loads(body).get("yes") is True


def _said(status: int, sentence: str) -> Response:
    return JSONResponse({"said": sentence}, status_code=status)
