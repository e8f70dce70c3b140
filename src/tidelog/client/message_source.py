"""The messages of one subscriber, fetch by fetch, and its acknowledgements; over any number of connections.

    begin ──► fetch ──► fetch ──► ...      each reads on behind the one before, acknowledged or not
                 └─ acknowledge            any message that was given out, and with it all before it

Nothing here decides when a message counts as handled: `message_reader.py` and `receiving.py` do.

A call that finds no server is repeated, with pauses: all calls do the same when they come twice. The very first is
repeated only if there are several servers (`patience.py`).

A subscriber expires if it does not acknowledge anything for long enough; so it is kept alive while somebody waits for
its messages. If it is gone all the same, `SubscriptionNotFound` says so, unless it is to begin anew: then it gets what
is published from that moment on, and acknowledgements of what it got in its former life are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from tidelog import limits
from tidelog.channels import Channels, FetchedMessages
from tidelog.client.patience import Patience
from tidelog.client.received_message import MessagePlace, ReceivedMessage
from tidelog.errors import AckHandleMalformed, ServerUnreachable, SubscriptionNotFound

_LOG: Final = logging.getLogger("tidelog.client")
COME_AGAIN: Final = "messages that were handled may come again"
_KEPT_PART: Final = 3
"""A subscriber is kept alive so often within its expiry."""

_Reply = TypeVar("_Reply")


class ChannelOutage(NamedTuple):
    """The server of a channel does not answer."""

    reason: str
    delay_s: float
    """When the client tries again."""
    has_begun: bool = True
    """False: it has not answered yet."""


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """Which messages are read, and how."""

    channel: str
    subscriber: str
    expire_ms: int
    creates: bool = True
    """Make the subscriber if there is none at the beginning. False: that is a `SubscriptionNotFound`."""
    begins_anew: bool = False
    """Make it again if it is gone later on."""
    batch: int = limits.CHANNEL_FETCH_MESSAGES_DEFAULT
    """Messages of one fetch."""
    reconnect_s_max: float | None = None
    """Give up when the server was away for this long; None: never."""
    waits_at_start: bool = False
    """Wait also for the first answer: there are several servers."""
    on_lost: Callable[[ChannelOutage], None] | None = None


class MessageSource:
    """Reads for one subscriber."""

    def __init__(self, channels: Channels, request: SubscribeRequest) -> None:
        self._channels = channels
        self._request = request
        self._patience = Patience(request.reconnect_s_max, at_start=request.waits_at_start)
        self._has_begun = False
        self._after: str | None = None
        """The handle of the last fetch: the next one reads on behind it."""
        self._life = 0
        """How often the clocks of the channel, or the subscriber, began anew."""
        self._given: MessagePlace | None = None
        """Of the last message that was given out, until it is acknowledged."""
        self._kept_each_s = request.expire_ms / 1000 / _KEPT_PART
        self._kept_s = 0.0
        """When the server last heard that the subscriber lives."""
        self.is_new: bool | None = None
        """Whether the subscriber was made by `begin`; None: it was not called yet."""
        self.has_more = True
        """There was more to fetch after the last fetch."""

    async def begin(self) -> None:
        """Subscribe, unless that is done; the subscriber stays where it is if it is there."""
        if self._has_begun:
            return
        request = self._request
        if request.creates:
            self.is_new = await self._subscribe()
        elif await self._keep():
            self.is_new = False
        else:
            raise SubscriptionNotFound(
                f"the channel {request.channel} has no subscriber {request.subscriber}, and it is not to be made"
            )
        self._has_begun = True

    async def fetch(self, *, waits: bool = True) -> list[ReceivedMessage]:
        """The next messages. Without `waits`, none if there are none now; else none only if the client was closed."""
        while True:
            life = self._life
            try:
                await self._keep_if_due()
                found = await self._patiently(lambda: self._fetch(waits))
            except SubscriptionNotFound as error:
                await self._begin_anew(error)
                continue
            if life != self._life:
                continue  # an acknowledgement found out meanwhile that these clocks mean nothing any more
            self.has_more = found.has_more
            if found.unreadable:
                _LOG.warning("%s: passed over %d bodies that are not messages", self._name, found.unreadable)
            if found.handle is not None:
                self._after = found.handle
                if found.messages:
                    return self._received(found)
                await self._pass_over(found.handle)
            elif not waits or self._channels.wakes.is_stopped:
                return []

    async def acknowledge(self, message: ReceivedMessage) -> None:
        """Never get a message again, nor any before it."""
        if message.place.life != self._life:
            return
        place = message.place.in_channel
        await self._acknowledge(
            lambda: self._channels.acknowledge_through(
                self._request.channel, self._request.subscriber, place, expire_ms=self._request.expire_ms
            )
        )
        if self._given == message.place:
            self._given = None

    # --- calls ------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self._request.subscriber} of {self._request.channel}"

    async def _subscribe(self) -> bool:
        request = self._request
        subscribed = await self._patiently(
            lambda: self._channels.subscribe(request.channel, request.subscriber, expire_ms=request.expire_ms)
        )
        self._kept_s = _now_s()
        return subscribed.is_new

    async def _keep(self) -> bool:
        request = self._request
        is_there = await self._patiently(
            lambda: self._channels.keep(request.channel, request.subscriber, expire_ms=request.expire_ms)
        )
        self._kept_s = _now_s()
        return is_there

    async def _keep_if_due(self) -> None:
        if self._kept_in_s <= 0:
            await self._keep()  # if it is gone, the fetch says so

    @property
    def _kept_in_s(self) -> float:
        return self._kept_s + self._kept_each_s - _now_s()

    async def _fetch(self, waits: bool) -> FetchedMessages:
        request = self._request
        timeout_s = min(max(0.0, self._kept_in_s), limits.CHANNEL_POLL_S_MAX) if waits else 0.0
        return await self._channels.fetch_when_there(
            request.channel, request.subscriber, messages_max=request.batch, timeout_s=timeout_s, after=self._after
        )

    def _received(self, found: FetchedMessages) -> list[ReceivedMessage]:
        places = [MessagePlace(place, self._life) for place in found.places]
        self._given = places[-1]
        return [
            ReceivedMessage(message.id, message.content, place)
            for message, place in zip(found.messages, places, strict=True)
        ]

    async def _pass_over(self, handle: str) -> None:
        """All that was looked at has expired. What was given out before must not be acknowledged with it."""
        if self._given is None:
            request = self._request
            await self._acknowledge(
                lambda: self._channels.acknowledge(
                    request.channel, request.subscriber, handle, expire_ms=request.expire_ms
                )
            )

    async def _acknowledge(self, call: Callable[[], Awaitable[bool]]) -> None:
        try:
            await self._patiently(call)
            self._kept_s = _now_s()
        except AckHandleMalformed as error:
            # The server has lost messages that we have got, and will give their clocks to others.
            _LOG.warning("%s reads on where it last acknowledged: %s", self._name, error)
            self._forget_places()
        except SubscriptionNotFound as error:
            await self._begin_anew(error)

    async def _begin_anew(self, error: SubscriptionNotFound) -> None:
        if not self._request.begins_anew:
            raise error
        _LOG.warning("%s begins anew, and may have missed messages: %s", self._name, error)
        self._forget_places()
        await self._subscribe()

    def _forget_places(self) -> None:
        """What was given out until now has clocks that mean nothing any more."""
        self._life += 1
        self._after = self._given = None

    async def _patiently(self, call: Callable[[], Awaitable[_Reply]]) -> _Reply:
        """The reply to a call, whatever becomes of connections."""
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        while True:
            try:
                reply = await call()
            except ServerUnreachable as error:
                pause_s = self._patience.pause_s(error)
                if pause_s is None:
                    raise
                self._on_lost(str(error), pause_s)
            else:
                self._patience.reset()
                if task.cancelling() > before:  # `asyncio.wait_for`, with which redis-py sends, may swallow it
                    raise asyncio.CancelledError
                return reply
            await asyncio.sleep(pause_s)
            if self._channels.wakes.is_stopped:
                raise ServerUnreachable("the client was closed")

    def _on_lost(self, reason: str, pause_s: float) -> None:
        _LOG.info("%s: %s; trying again in %.3f s", self._name, reason, pause_s)
        if self._request.on_lost is not None:
            self._request.on_lost(ChannelOutage(reason, pause_s, self._patience.has_reached))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
