"""Channels beside the other pages: who may use admin calls."""

from __future__ import annotations

import asyncio
import json

import pytest

from tidelog import limits
from tidelog.channels.http import CallGate
from tidelog.channels.http.answer import Answer
from tidelog.channels.http.body_room import BodyRoom
from tidelog.channels.http.call import HttpCall
from tidelog.gateway.channels import admin_gate
from tidelog.testing.clock import SimulatedClock


async def _nothing(*_: object) -> None: ...


async def asked(gate: CallGate, authorization: bytes | None, host: str = "10.0.0.1") -> Answer | None:
    headers = [] if authorization is None else [(b"authorization", authorization)]
    scope = {"type": "http", "method": "PUT", "path": "/admin/log/level", "headers": headers, "client": (host, 5)}
    return await gate(HttpCall(scope, _nothing, _nothing, BodyRoom()))  # type: ignore[arg-type]


def told(answer: Answer | None) -> tuple[int, str]:
    assert answer is not None
    assert json.loads(answer.body)["code"] == "dsps.auth.rejected"
    return answer.status, json.loads(answer.body)["error"]


def test_without_a_token_there_is_no_gate() -> None:
    assert admin_gate(None, SimulatedClock()) is None


@pytest.mark.parametrize("given", [b"Bearer right", b"bearer   right "])
def test_the_token_passes(given: bytes) -> None:
    gate = admin_gate(b"right", SimulatedClock())
    assert gate is not None
    assert asyncio.run(asked(gate, given)) is None


@pytest.mark.parametrize("given", [None, b"Basic cmlnaHQ=", b"", b"right"])
def test_another_way_to_show_it_is_none(given: bytes | None) -> None:
    gate = admin_gate(b"right", SimulatedClock())
    assert gate is not None
    answer = asyncio.run(asked(gate, given))
    assert told(answer)[0] == 401
    assert answer is not None
    assert (b"www-authenticate", b"Bearer") in answer.headers


def test_wrong_tokens_are_answered_late_and_then_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("tidelog.gateway.channels.asyncio.sleep", sleep)
    clock = SimulatedClock()
    gate = admin_gate(b"right", clock)
    assert gate is not None

    async def main() -> None:
        for _ in range(limits.WRONG_PASSWORDS_FREE):
            assert told(await asked(gate, b"Bearer wrong"))[0] == 403
        assert slept == []
        assert told(await asked(gate, b"Bearer r\xefght")) == (403, "that is not the admin token")
        assert slept == [limits.WRONG_PASSWORD_DELAY_S]
        assert await asked(gate, b"Bearer right") is None
        for _ in range(limits.WRONG_PASSWORDS_FLOOD):
            await asked(gate, b"Bearer wrong")
        answer = await asked(gate, b"Bearer right")
        assert told(answer) == (429, "too many wrong admin tokens")
        assert answer is not None
        assert answer.headers == ((b"retry-after", b"%d" % limits.WRONG_PASSWORDS_FLOOD_S),)
        assert await asked(gate, b"Bearer right", host="10.0.0.2") is None
        clock.advance(1_000_000 * limits.WRONG_PASSWORDS_FLOOD_S)
        assert await asked(gate, b"Bearer right") is None

    asyncio.run(main())
