"""Who may read data over HTTP."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from starlette.requests import Request

from tidelog import limits
from tidelog.engine.password import Password
from tidelog.gateway.access import refusal
from tidelog.testing.clock import SimulatedClock


class Asked:
    """A server with a password, and requests from one address."""

    def __init__(self, password: bytes | None) -> None:
        self.clock = SimulatedClock()
        self._password = Password(password, self.clock)

    async def __call__(self, *authorization: bytes, host: str = "10.0.0.1") -> Any:
        headers = [(b"authorization", value) for value in authorization]
        request = Request({"type": "http", "headers": headers, "client": (host, 5)})
        return await refusal(self._password, request)


def answer(password: bytes | None, *authorization: bytes) -> Any:
    return asyncio.run(Asked(password)(*authorization))


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


def test_repeated_wrong_passwords_are_answered_late_and_then_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("tidelog.gateway.access.asyncio.sleep", sleep)
    asked = Asked(b"secret")

    async def main() -> None:
        for _ in range(limits.WRONG_PASSWORDS_FREE):
            assert (await asked(b"Bearer wrong")).status_code == 401
        assert (await asked()).status_code == 401
        assert slept == []
        assert (await asked(b"Bearer wrong")).status_code == 401
        assert slept == [limits.WRONG_PASSWORD_DELAY_S]
        assert await asked(b"Bearer secret") is None
        for _ in range(limits.WRONG_PASSWORDS_FLOOD):
            await asked(b"Bearer wrong")
        found = await asked(b"Bearer wrong")
        assert found.status_code == 429
        assert found.headers["retry-after"] == "10"
        assert (await asked(b"Bearer secret")).status_code == 429
        assert await asked(b"Bearer secret", host="10.0.0.2") is None
        asked.clock.advance(10_000_000)
        assert await asked(b"Bearer secret") is None

    asyncio.run(main())
