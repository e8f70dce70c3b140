"""Authentication for HTTP: the same password as for Redis clients.

`Authorization: Bearer <password>`, or Basic with any name, which browsers and `curl -u` can do. Without a password the
guard in front of every page (`hosts.py`) lets in this machine only. A wrong password is answered late, as everywhere.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tidelog.engine.password import Password

_CHALLENGE: Final = {"www-authenticate": 'Basic realm="tidelog", charset="UTF-8"'}


async def refusal(password: Password, request: Request) -> Response | None:
    """The refusal of a request without the password; None: the request has it."""
    if not password.is_needed:
        return None
    delay_s = 0.0
    for value in request.headers.getlist("authorization"):
        kind, _, rest = value.partition(" ")
        verdict = password.check(_password(kind.lower(), rest.strip()), request.client.host if request.client else "")
        if verdict.is_right:
            return None
        if verdict.retry_after_s:
            headers = {"retry-after": str(verdict.retry_after_s)}
            return JSONResponse({"error": "ERR", "message": "too many wrong passwords"}, 429, headers)
        delay_s = max(delay_s, verdict.delay_s)
    if delay_s:
        await asyncio.sleep(delay_s)
    return JSONResponse({"error": "NOAUTH", "message": "Authentication required."}, 401, _CHALLENGE)


def _password(kind: str, rest: str) -> bytes:
    if kind == "bearer":
        return rest.encode("latin-1")  # as header values are decoded
    if kind == "basic":
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
