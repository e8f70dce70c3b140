"""Who may read data over HTTP."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest
from starlette.datastructures import Headers

from tidelog.gateway.access import refusal
from tidelog.server.engine import Engine


class Guarded:
    """As much of an engine as is asked."""

    def __init__(self, password: bytes | None) -> None:
        self._password = password

    @property
    def needs_password(self) -> bool:
        return self._password is not None

    def is_password(self, password: bytes) -> bool:
        return password == self._password


def answer(password: bytes | None, *authorization: bytes) -> Any:
    headers = Headers(raw=[(b"authorization", value) for value in authorization])
    return refusal(cast("Engine", Guarded(password)), headers)


def basic(name: bytes, password: bytes) -> bytes:
    return b"Basic " + base64.b64encode(name + b":" + password)


def test_without_a_password_nobody_is_asked() -> None:
    assert answer(None) is None


@pytest.mark.parametrize("password", [b"secret", "pässword".encode(), b"a:b"])
def test_who_knows_it(password: bytes) -> None:
    assert answer(password, b"Bearer " + password) is None
    assert answer(password, basic(b"anyone", password)) is None
    assert answer(password, basic(b"", b"wrong"), b"bearer " + password) is None


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Bearer wrong", b"Basic ###", basic(b"secret", b""), b"secret"])
def test_who_does_not(value: bytes) -> None:
    found = answer(b"secret", value)
    assert found.status_code == 401
    assert "Basic" in found.headers["www-authenticate"]
