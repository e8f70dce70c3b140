"""The guard in front of every page: it refuses requests that another site's page makes a browser send.

A browser that visits a hostile page can be made to send requests here, under a name that the page's owner has pointed
at this machine. So the name in `Host` must be one of the loopback interface or one that was configured, and a request
that says which page it comes from (`Origin`) must come from such a name as well, or be one that was configured. Without
a password the server serves this machine only, and so does this guard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.channels.http.routes import OWN_PARTS

_LOCAL_NAMES: Final = frozenset(["localhost", "localhost.localdomain", "ip6-localhost"])


class HostGuard:
    """Passes on what may be asked, and answers 403 to the rest."""

    def __init__(
        self, app: ASGIApp, hosts: Sequence[str], *, is_protected: Callable[[], bool], origins: Collection[str] = ()
    ) -> None:
        """`origins`: pages that may ask although they are another site's, such as https://shop.example; `*`: all."""
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._is_protected = is_protected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        problem = self.problem(Headers(scope=scope), scope.get("client"))
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await _refusal(scope["path"], problem)(scope, receive, send)

    def problem(self, headers: Headers, client: tuple[str, int] | None) -> str | None:
        """Why a request is refused; None: it is not."""
        if self._is_protected() and client is not None and not is_loopback(client[0]):
            return "protected mode: without a password only this machine is served"
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.is_known(host_name(hosts[0])):
            return "unknown Host: ask under a loopback name, or configure http-hosts"
        origin = headers.get("origin")
        if origin is not None and not self._is_known_origin(origin):
            return "unknown Origin"
        return None

    def _is_known_origin(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins or self.is_known(_origin_name(origin))

    def is_known(self, host: str) -> bool:
        return host in _LOCAL_NAMES or host in self._hosts or is_loopback(host)


def _refusal(path: str, problem: str) -> Response:
    """As the clients of a path know errors."""
    if OWN_PARTS.intersection(path.split("/", 2)[1:2]):
        return JSONResponse({"error": problem, "code": "tidelog.channels.forbidden"}, 403)
    return PlainTextResponse(problem + "\n", 403)


@lru_cache(maxsize=256)
def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _origin_name(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)
