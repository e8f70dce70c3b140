"""Authentication for HTTP: the same password as for Redis clients.

`Authorization: Bearer <password>`, or Basic with any name, which browsers and `curl -u` can do. Without a password the
guard in front of every page (`hosts.py`) lets in this machine only.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from tidelog.engine.password import Password

_CHALLENGE: Final = {"www-authenticate": 'Basic realm="tidelog", charset="UTF-8"'}


def refusal(password: Password, headers: Headers) -> Response | None:
    """The refusal of a request without the password; None: the request has it."""
    if not password.is_needed:
        return None
    for value in headers.getlist("authorization"):
        kind, _, rest = value.partition(" ")
        if password.matches(_password(kind.lower(), rest.strip())):
            return None
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
