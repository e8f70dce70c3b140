"""Authentication for Flight: the same password as for Redis clients; without a password, only this machine may connect.

A client sends `authorization: Basic …` (any name, the password), as `FlightClient.authenticate_basic_token` does, and
gets a token that it sends from then on. A token is for one process of the server, and for one password: unlike a
connection of a Redis client, it could be used by anyone and for ever.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

import pyarrow.flight as flight

from tidelog.engine.password import Password, Verdict


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets clients ask for a token; whether they get one is decided by `Access`."""

    def authenticate(self, _outgoing: Any, _incoming: Any) -> None:
        return None

    def is_valid(self, _token: bytes) -> bytes:
        return b""


class _Granted(flight.ServerMiddleware):  # type: ignore[misc]
    """A call that was let in; tells its token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"}


class Access(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Asked before every call, on a thread of gRPC's, which waits if a wrong password is to be answered late."""

    def __init__(self, check: Callable[[bytes], Verdict], password: Password) -> None:
        """`check`: compares a password on the thread of the server."""
        self._check = check
        self._password = password
        self._key = secrets.token_bytes(32)

    @property
    def needs_password(self) -> bool:
        return self._password.is_needed

    def _token(self) -> str:
        """The one for the present password."""
        return hmac.new(self._key, b"%d" % self._password.changes, "sha256").hexdigest()

    def start_call(self, _info: Any, headers: dict[str, list[Any]]) -> _Granted | None:
        if not self.needs_password:
            return None
        token = self._token()
        for value in headers.get("authorization", []):
            kind, _, rest = str(value).partition(" ")
            if kind.lower() == "bearer" and hmac.compare_digest(rest.encode(), token.encode()):
                return _Granted(token)
            if kind.lower() != "basic":
                continue
            verdict = self._check(_password(rest))
            if verdict.is_right:
                return _Granted(token)
            if verdict.retry_after_s:
                raise flight.FlightUnauthenticatedError(
                    f"ERR too many wrong passwords: try again in {verdict.retry_after_s} s"
                )
            time.sleep(verdict.delay_s)
        raise flight.FlightUnauthenticatedError("NOAUTH Authentication required.")


def _password(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def is_local(peer: str) -> bool:
    """Whether gRPC's name of a peer (`ipv4:127.0.0.1:5`, `ipv6:[::1]:5`) is one on this machine."""
    kind, _, rest = unquote(peer).partition(":")
    if kind == "unix":
        return True
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)
