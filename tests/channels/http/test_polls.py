"""Places of polls: the bounds, and the end of work whose client is gone."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from tests.channels.servers import in_loop
from tidelog import limits
from tidelog.channels.http.answer import TooManyPolls
from tidelog.channels.http.polls import PollPlaces, unless_gone


def test_places_are_bounded_and_come_back() -> None:
    places = PollPlaces(6)
    with ExitStack() as taken:
        for number in range(3):
            taken.enter_context(places.place("a", f"s{number}"))
        with pytest.raises(TooManyPolls, match="channel a"), places.place("a", "s3"):
            pass
        for number in range(3):
            taken.enter_context(places.place("b", f"s{number}"))
        with pytest.raises(TooManyPolls, match="6 polls wait"), places.place("c", "s"):
            pass
        assert places.count == 6
    assert places.count == 0
    many = PollPlaces(1000)
    with ExitStack() as taken:
        for _ in range(limits.CHANNEL_POLLS_PER_SUBSCRIBER_MAX):
            taken.enter_context(many.place("a", "s"))
        with pytest.raises(TooManyPolls, match="subscriber s"), many.place("a", "s"):
            pass
        taken.enter_context(many.place("a", "t"))
    assert not many._by_channel
    assert not many._by_subscriber


@in_loop
async def test_work_ends_when_the_client_goes_away() -> None:
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def work(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    assert await unless_gone(receive, work(0)) == "done"
    asyncio.get_running_loop().call_later(0.05, gone.set)
    assert await unless_gone(receive, work(60)) is None
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # nothing of it is left


@in_loop
async def test_other_cancellations_pass() -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    task = asyncio.create_task(unless_gone(receive, asyncio.sleep(60)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
