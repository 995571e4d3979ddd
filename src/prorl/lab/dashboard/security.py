"""Who may do what: any page of this server may be read, commands need the token, and other sites get nothing.

The threats are web pages that the operator has open beside the dashboard (forged requests, framing, DNS rebinding)
and text that a model wrote (script in a response). The headers checked here keep the first out, and a browser runs
none of the second because the policy allows scripts from this server's files only.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Guard:
    """ASGI middleware: refuses requests under a foreign name of this machine, and adds `ANSWERS` to every answer."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str]) -> None:
        """`hosts` are the names under which this server may be asked for, besides `localhost` and numbers."""
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
