"""The places of polls that wait: how many there may be, and the end of one whose client has gone away.

A poll holds a connection, a task and a listener for as long as it waits. So their number is bounded: in all, of one
channel, so that one channel does not take all places, and of one subscriber, whose client has no use for many.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from tidelog import limits
from tidelog.channels.http.answer import TooManyPolls

Found = TypeVar("Found")


class PollPlaces:
    """Who waits."""

    def __init__(self, polls_max: int = limits.CHANNEL_POLLS_DEFAULT) -> None:
        self.polls_max = polls_max
        self._per_channel_max = max(1, polls_max // limits.CHANNEL_POLLS_PER_CHANNEL_PART)
        self._by_channel: Counter[str] = Counter()
        self._by_subscriber: Counter[tuple[str, str]] = Counter()
        self.count = 0

    @contextmanager
    def place(self, channel: str, subscriber: str) -> Iterator[None]:
        """A place until the end of the block; `TooManyPolls` if there is none."""
        who = channel, subscriber
        if self.count >= self.polls_max:
            raise TooManyPolls(f"{self.polls_max} polls wait already, and no more may: come back later")
        if self._by_channel[channel] >= self._per_channel_max:
            raise TooManyPolls(f"{self._per_channel_max} polls of the channel {channel} wait already: come back later")
        if self._by_subscriber[who] >= limits.CHANNEL_POLLS_PER_SUBSCRIBER_MAX:
            raise TooManyPolls(
                f"{limits.CHANNEL_POLLS_PER_SUBSCRIBER_MAX} polls of the subscriber {subscriber} wait already: "
                "one is enough"
            )
        self.count += 1
        self._by_channel[channel] += 1
        self._by_subscriber[who] += 1
        try:
            yield
        finally:
            self.count -= 1
            _less(self._by_channel, channel)
            _less(self._by_subscriber, who)


def _less(counter: Counter[Any], name: Any) -> None:
    """One less. Names with none are removed: there may be a great many in time."""
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Found]) -> Found | None:
    """What some work comes to; None if the client went away meanwhile, which ends the work.

    The work runs in the task of the request, and a second task only listens: one task less for each poll.
    """
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    async def watch() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if not is_gone:
            raise
        return None
    finally:
        watching.cancel()
        if is_gone:
            task.uncancel()
