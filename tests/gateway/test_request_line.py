"""One request begins in a turn of the loop, in the order in which they came."""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Scope, Send

from tidelog.gateway.request_line import RequestLine


class Turns:
    """Counts the turns of the loop, and notes in which one each request began."""

    def __init__(self) -> None:
        self.now = 0
        self.begun: list[tuple[int, int]] = []

    async def page(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        self.begun.append((scope["number"], self.now))

    def count(self) -> None:
        self.now += 1
        asyncio.get_running_loop().call_soon(self.count)


async def _receive() -> dict[str, object]:
    raise AssertionError


async def _send(_message: object) -> None:
    raise AssertionError


async def _flood(given_up: int | None = None) -> list[tuple[int, int]]:
    turns = Turns()
    line = RequestLine(turns.page)
    turns.count()
    requests = [asyncio.ensure_future(line({"number": number}, _receive, _send)) for number in range(20)]
    await asyncio.sleep(0)
    if given_up is not None:
        requests[given_up].cancel()
    await asyncio.wait(requests)
    return turns.begun


def test_one_begins_in_a_turn_in_order() -> None:
    begun = asyncio.run(_flood())
    assert [number for number, _ in begun] == list(range(20))
    assert len({turn for _, turn in begun}) == 20


def test_a_request_that_is_given_up_holds_nobody_up() -> None:
    begun = asyncio.run(_flood(given_up=7))
    assert [number for number, _ in begun] == [number for number in range(20) if number != 7]


def test_an_empty_line_lets_a_request_begin_at_once() -> None:
    async def alone() -> list[tuple[int, int]]:
        turns = Turns()
        line = RequestLine(turns.page)
        for number in range(2):
            await line({"number": number}, _receive, _send)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return turns.begun

    assert asyncio.run(alone()) == [(0, 0), (1, 0)]
