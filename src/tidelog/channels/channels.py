"""Channels: messages are published to a channel, and each of its subscribers gets every one, in order, at least once.

A subscriber has a place of its own in the channel, its cursor. A fetch gives out messages after the cursor and moves
nothing; the acknowledgement, with the handle that came with the messages, moves the cursor past them. Messages that
are not acknowledged come again. A message expires after some time (`expire_ms`), acknowledged or not; so does a
subscriber that neither subscribes again nor acknowledges, and a channel that nobody uses. A subscriber that is gone
has to subscribe again, and begins after the newest message then: it is told so (`SubscriptionNotFound`), never moved
in silence.

`expire_ms` belongs to the channel: all calls for a channel should give the same.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.channels.backend import Backend, Confirmation, Word, backend_at
from tidelog.channels.closing import finished
from tidelog.channels.handle import KEY_BYTES, Handles
from tidelog.channels.listing import ListedPage, list_page
from tidelog.channels.message import ChannelMessage, ChannelPlace, body_of, message_in, trail_in
from tidelog.channels.names import ChannelKeys
from tidelog.channels.scripts import ACKNOWLEDGE, FETCH, KEEP, PUBLISH, SUBSCRIBE
from tidelog.channels.wakes import Wakes
from tidelog.errors import (
    AckHandleMalformed,
    FormatError,
    LimitExceeded,
    MessageTooLarge,
    ServerRefused,
    ServerUnreachable,
    SubscriptionNotFound,
)
from tidelog.keys import CHANNEL_HANDLE_KEY

_IS_CONFIRMED: Final = {False: "0", True: "1"}


class ChannelSubscription(NamedTuple):
    """A subscriber that there is now."""

    channel: str
    subscriber: str
    is_new: bool
    """It begins after the newest message. Otherwise it was there, and stays where it is."""


class PublishedMessage(NamedTuple):
    """A message that the channel has now."""

    id: str
    clock: int
    """Its place in the channel."""
    is_new: bool
    """False: the channel had a message with this id, and keeps that one."""


class FetchedMessages(NamedTuple):
    """What a fetch found, all of one moment."""

    messages: list[ChannelMessage]
    """In the order in which they were published."""
    handle: str | None
    """Acknowledges these messages, and those between them that have expired. There is one without messages if all that
    the fetch looked at had expired: to acknowledge it is the way on. None: there is nothing to acknowledge."""
    has_more: bool
    """There are messages after these; they may have expired."""
    unreadable: int
    """Bodies that are not messages, which another program must have written; the handle acknowledges them, too."""
    places: tuple[ChannelPlace, ...] = ()
    """For each message the place that acknowledges it and all before it (`acknowledge_through`). The last one is that
    of the handle."""


class Channels:
    """The channels of a backend, for one event loop."""

    def __init__(
        self,
        backend: Backend,
        *,
        handle_keys: Sequence[bytes] = (),
        confirm: Confirmation | None = None,
        random: Random | None = None,
    ) -> None:
        """
        handle_keys    for receipt handles: the first makes them, all read them; none: a key that the backend keeps
        confirm        replicas that are to have a message, or a subscriber, before it counts as published or made;
                       None: none. All gateways of a backend should have the same.
        """
        self._backend = backend
        self._confirm = confirm
        self._handles = Handles(handle_keys, shared_key=self._shared_key, now_s=_now_s)
        self._wakes = Wakes(backend.wake_link, random or Random())

    @classmethod
    def at(
        cls, address: ServerAddress | str, *, handle_keys: Sequence[bytes] = (), confirm_replicas: int = 0
    ) -> Channels:
        """The channels of the backend at an address, which is not contacted yet."""
        if isinstance(address, str):
            address = ServerAddress.parse(address, takes_settings=True, takes_cluster=True)
        confirm = Confirmation(confirm_replicas) if confirm_replicas else None
        return cls(backend_at(address), handle_keys=handle_keys, confirm=confirm)

    @property
    def wakes(self) -> Wakes:
        """For metrics."""
        return self._wakes

    async def ping(self) -> None:
        """Returns if the backend answers."""
        await self._backend.call("EXISTS", CHANNEL_HANDLE_KEY)

    async def check_confirmation(self) -> None:
        """`ServerRefused` if replicas are to confirm what is published and the backend knows no replicas.

        It cannot be told of a backend that does not answer now: there, publishes fail.
        """
        if self._confirm is None:
            return
        try:
            async with asyncio.timeout(limits.CHANNEL_PROBE_S_MAX):
                await self._backend.call("WAIT", 0, 0)
        except ServerRefused as error:
            if "unknown command" in str(error):
                raise ServerRefused(
                    f"replicas cannot confirm what is published in {self._backend.url}: it has no command WAIT; leave "
                    "out --confirm-replicas"
                ) from None
        except (ServerUnreachable, TimeoutError):
            return

    # --- subscribers ------------------------------------------------------------------------------------------

    async def subscribe(
        self, channel: str, subscriber: str, *, expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT
    ) -> ChannelSubscription:
        """Make a subscriber, and the channel if there is none; one that is there stays where it is, and lives on."""
        keys = ChannelKeys(channel)
        is_new, _, _ = await self._backend.run(
            SUBSCRIBE, [keys.clock, keys.cursor(subscriber)], [_checked_expiry(expire_ms)], self._confirm
        )
        return ChannelSubscription(channel, subscriber, bool(is_new))

    async def unsubscribe(self, channel: str, subscriber: str) -> bool:
        """Remove a subscriber; False if there was none."""
        return bool(await self._backend.call("DEL", ChannelKeys(channel).cursor(subscriber)))

    async def keep(self, channel: str, subscriber: str, *, expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT) -> bool:
        """Let a subscriber live on where it is; False if there is none (any more)."""
        keys = ChannelKeys(channel)
        return bool(await self._backend.run(KEEP, [keys.clock, keys.cursor(subscriber)], [_checked_expiry(expire_ms)]))

    # --- messages ---------------------------------------------------------------------------------------------

    async def publish(
        self, channel: str, message: ChannelMessage, *, expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT
    ) -> PublishedMessage:
        """Publish a message, unless the channel has one with this id: then it is the same one, sent again."""
        [published] = await self.publish_several(channel, [message], expire_ms=expire_ms)
        return published

    async def publish_several(
        self,
        channel: str,
        messages: Sequence[ChannelMessage],
        *,
        expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT,
    ) -> list[PublishedMessage]:
        """Publish messages at one moment, in this order. Messages are made with `made_message` or `message_of`."""
        keys = ChannelKeys(channel)
        bodies = [body_of(message) for message in messages]
        if not 1 <= len(messages) <= limits.CHANNEL_PUBLISH_MESSAGES_MAX:
            raise LimitExceeded(
                f"from 1 to {limits.CHANNEL_PUBLISH_MESSAGES_MAX} messages are published together, not {len(messages)}"
            )
        if len(messages) > 1 and sum(map(len, bodies)) > limits.CHANNEL_PUBLISH_BYTES_MAX:
            raise MessageTooLarge(
                f"messages that are published together have at most {limits.CHANNEL_PUBLISH_BYTES_MAX} bytes"
            )
        ids = [keys.message_id(message.id) for message in messages]
        arguments: list[Word] = [
            _checked_expiry(expire_ms),
            keys.message_prefix,
            keys.wake,
            _IS_CONFIRMED[self._confirm is not None],
        ]
        reply = await self._backend.run(PUBLISH, [keys.clock, *ids], [*arguments, *bodies], self._confirm)
        told = zip(messages, reply[::2], reply[1::2], strict=True)
        return [PublishedMessage(message.id, int(clock), bool(is_new)) for message, clock, is_new in told]

    async def fetch(
        self,
        channel: str,
        subscriber: str,
        *,
        messages_max: int = limits.CHANNEL_FETCH_MESSAGES_DEFAULT,
        after: str | None = None,
    ) -> FetchedMessages:
        """The next messages of a subscriber, if there are any; `SubscriptionNotFound` if there is no such subscriber.

        Fewer than `messages_max` may come although there are more, if they are large or many have expired.

        after     a handle that was given out and not acknowledged yet: read on behind what came with it
        """
        keys = ChannelKeys(channel)
        if not 1 <= messages_max <= limits.CHANNEL_FETCH_MESSAGES_MAX:
            raise LimitExceeded(
                f"a fetch is of 1 to {limits.CHANNEL_FETCH_MESSAGES_MAX} messages, not of {messages_max}"
            )
        arguments: list[Word] = [
            keys.message_prefix,
            messages_max,
            limits.CHANNEL_FETCH_BYTES,
            limits.CHANNEL_LOOKED_AT_MAX,
            limits.CHANNEL_FETCH_AT_ONCE,
        ]
        if after is not None:
            arguments += await self._handles.read(channel, subscriber, after)
        reply = await self._backend.run(FETCH, [keys.clock, keys.cursor(subscriber)], arguments)
        if not reply:
            raise _not_found(channel, subscriber)
        cursor, clock, looked, trail, *found = reply
        end = ChannelPlace(int(looked), trail.decode())
        handle = None if looked == cursor else await self._handles.make(channel, subscriber, *end)
        messages, places = [], []
        for place, body in zip(found[::2], found[1::2], strict=True):
            if (message := message_in(body)) is not None:
                messages.append(message)
                places.append(ChannelPlace(int(place), trail_in(body)))
        if places:
            places[-1] = end
        return FetchedMessages(messages, handle, looked != clock, len(found) // 2 - len(messages), tuple(places))

    async def fetch_when_there(
        self,
        channel: str,
        subscriber: str,
        *,
        messages_max: int = limits.CHANNEL_FETCH_MESSAGES_DEFAULT,
        timeout_s: float,
        after: str | None = None,
    ) -> FetchedMessages:
        """As `fetch`, but waits for something to acknowledge, until the time is over or `stop_waiting` is called.

        A stop does not wait for the backend: what has come since the last look comes with the next fetch.
        """
        if not 0 <= timeout_s <= limits.CHANNEL_POLL_S_MAX:
            raise LimitExceeded(f"a fetch waits for 0 to {limits.CHANNEL_POLL_S_MAX:g} s, not for {timeout_s:g}")
        if timeout_s == 0:
            return await self.fetch(channel, subscriber, messages_max=messages_max, after=after)
        deadline_s = _now_s() + timeout_s
        is_cancelled = _cancellation()
        found: FetchedMessages | None = None
        with self._wakes.listen(ChannelKeys(channel).wake) as listener:
            while True:
                try:
                    async with listener.look():
                        found = await self.fetch(channel, subscriber, messages_max=messages_max, after=after)
                except TimeoutError:
                    if found is None:
                        raise ServerUnreachable(f"{self._backend.url} did not answer before the stop") from None
                if is_cancelled():
                    raise asyncio.CancelledError
                left_s = deadline_s - _now_s()
                if found.handle is not None or left_s <= 0 or self._wakes.is_stopped:
                    return found
                if not await listener.wait(left_s):
                    return found

    async def acknowledge(
        self, channel: str, subscriber: str, handle: str, *, expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT
    ) -> bool:
        """Never send a subscriber again what came with this handle; False if that was so already.

        `AckHandleMalformed` if the handle is not of this subscriber, or beyond what the channel has;
        `SubscriptionNotFound` if there is no such subscriber (any more).
        """
        ChannelKeys(channel).cursor(subscriber)  # names first: a wrong one is not the fault of the handle
        place = await self._handles.read(channel, subscriber, handle)
        return await self.acknowledge_through(channel, subscriber, place, expire_ms=expire_ms)

    async def acknowledge_through(
        self, channel: str, subscriber: str, place: ChannelPlace, *, expire_ms: int = limits.CHANNEL_EXPIRE_MS_DEFAULT
    ) -> bool:
        """As `acknowledge`, for a caller that has kept the places of a fetch and may stop in the middle of it."""
        keys = ChannelKeys(channel)
        cursor_key = keys.cursor(subscriber)
        arguments: list[Word] = [_checked_expiry(expire_ms), *place, keys.message_prefix]
        reply = await self._backend.run(ACKNOWLEDGE, [keys.clock, cursor_key], arguments)
        if not reply:
            raise _not_found(channel, subscriber)
        if len(reply) == 1:
            raise AckHandleMalformed(
                f"that handle is for messages that the channel {channel} does not have: it is from before the channel "
                "expired, or before the backend lost them; fetch again"
            )
        return bool(reply[0])

    # --- the rest ---------------------------------------------------------------------------------------------

    async def list_page(self, cursor: str | None = None, *, channel: str | None = None) -> ListedPage:
        """A page of the list of channels and subscribers; `channel`: of this one only."""
        return await list_page(self._backend, cursor, channel)

    def stop_waiting(self) -> None:
        """Let all fetches that wait return at once, and let none wait from now on."""
        self._wakes.stop()

    async def aclose(self) -> None:
        await finished(self._close())

    async def _close(self) -> None:
        await self._wakes.aclose()
        await self._backend.aclose()

    async def __aenter__(self) -> Channels:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _shared_key(self, offered: bytes | None) -> bytes:
        """The key of the backend for handles. Of several that offer one, the first wins, and all read it."""
        key = await self._backend.call("GET", CHANNEL_HANDLE_KEY)
        if key is None:
            await self._backend.call("SET", CHANNEL_HANDLE_KEY, offered or secrets.token_bytes(KEY_BYTES), "NX")
            key = await self._backend.call("GET", CHANNEL_HANDLE_KEY)
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise FormatError("it does not hold a key for receipt handles: remove it", path=CHANNEL_HANDLE_KEY)
        return key


def _checked_expiry(expire_ms: int) -> int:
    if not limits.CHANNEL_EXPIRE_MS_MIN <= expire_ms <= limits.CHANNEL_EXPIRE_MS_MAX:
        raise LimitExceeded(
            f"messages expire after {limits.CHANNEL_EXPIRE_MS_MIN} to {limits.CHANNEL_EXPIRE_MS_MAX} ms, "
            f"not after {expire_ms}"
        )
    return expire_ms


def _not_found(channel: str, subscriber: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(
        f"the channel {channel} has no subscriber {subscriber}: it was never made, was removed, or expired; subscribe "
        "(again), which begins after the newest message"
    )


def _cancellation() -> Callable[[], bool]:
    """Tells whether this task was cancelled since: `asyncio.wait_for`, with which redis-py sends, may swallow it."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    return lambda: task.cancelling() > before


def _now_s() -> float:
    return asyncio.get_running_loop().time()
