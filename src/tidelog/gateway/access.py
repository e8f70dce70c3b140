"""Authentication for HTTP: the same password as for Redis clients.

`Authorization: Bearer <password>`, or Basic with any name, which browsers and `curl -u` can do. Without a password the
guard in front of every page (`hosts.py`) lets in this machine only. A wrong password is answered late, as everywhere.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidelog.engine.password import Password

_CHALLENGE: Final = {"www-authenticate": 'Basic realm="tidelog", charset="UTF-8"'}


class RefusedLogin(NamedTuple):
    """Why a request does not get in."""

    status: int
    error: str
    message: str
    headers: dict[str, str]


async def refused_login(password: Password, authorizations: Sequence[str], host: str) -> RefusedLogin | None:
    """The refusal of a request with these `Authorization` headers; None: one of them has the password."""
    if not password.is_needed:
        return None
    delay_s = 0.0
    for value in authorizations:
        kind, _, rest = value.partition(" ")
        verdict = password.check(_password(kind.lower(), rest.strip()), host)
        if verdict.is_right:
            return None
        if verdict.retry_after_s:
            headers = {"retry-after": str(verdict.retry_after_s)}
            return RefusedLogin(429, "ERR", "too many wrong passwords", headers)
        delay_s = max(delay_s, verdict.delay_s)
    if delay_s:
        await asyncio.sleep(delay_s)
    return RefusedLogin(401, "NOAUTH", "Authentication required.", _CHALLENGE)


async def refusal(password: Password, request: Request) -> Response | None:
    """The same, as an answer."""
    host = request.client.host if request.client else ""
    refused = await refused_login(password, request.headers.getlist("authorization"), host)
    if refused is None:
        return None
    return JSONResponse({"error": refused.error, "message": refused.message}, refused.status, refused.headers)


def _password(kind: str, rest: str) -> bytes:
    if kind == "bearer":
        return rest.encode("latin-1")  # as header values are decoded
    if kind == "basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
