"""Binding, printing where it is, and serving until Ctrl-C, which ends at once whoever still listens."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from types import FrameType

import uvicorn

from prorl.envs.errors import ProrlError
from prorl.lab.dashboard.app import dashboard
from prorl.lab.dashboard.hub import Hub

PORT = 8787
TRIED = 20  # ports from there on
PATIENCE = 2  # seconds for requests that are being answered when it ends


class ServeError(ProrlError):
    """The dashboard cannot be served, said in one sentence."""


def serve(root: Path, *, host: str, port: int | None, read_only: bool) -> None:
    """Serve the dashboard of the runs below `root` until interrupted.

    Without `port` it is 8787 or the next one that is free.

    Raises:
        ServeError: there is no such folder, host or free port.
    """
    if not root.is_dir():
        raise ServeError(f"there is no folder {root}: say which one holds the runs")
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
    """What is printed at start. The token is in the fragment of the address, which browsers never send."""
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    yield f"dashboard of {root}: {address}{'' if token is None else f'#token={token}'}"
    if token is not None:
        yield "whoever has this address may give orders; without the token it is read only. Ctrl-C ends it"
    if not _loopback(host):
        yield (
            f"warning: {host} may be reached from other machines, unencrypted, and everybody there may read; "
            "prefer 127.0.0.1 and `ssh -L`"
        )


class _Server(uvicorn.Server):
    """Streams never end by themselves; when asked to end, this server ends them first."""

    def __init__(self, config: uvicorn.Config, hub: Hub, announcement: str) -> None:
        super().__init__(config)
        self._hub = hub
        self._announcement = announcement

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it is once it answers, and once it hears signals: one that came earlier could be lost."""
        await super().startup(sockets)
        print(self._announcement, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
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
    raise ServeError(
        f"nothing can be served on {host}, {ports}: {problem}; choose others with --host and --port"
    )


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
