"""Who may read data over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from starlette.datastructures import Headers

from tidelog.engine.password import Password
from tidelog.gateway.access import refusal


def answer(password: bytes | None, *authorization: bytes) -> Any:
    headers = Headers(raw=[(b"authorization", value) for value in authorization])
    return refusal(Password(password), headers)


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
