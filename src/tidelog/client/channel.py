"""A channel: durable publish/subscribe for Python. Each subscriber gets every message, in order, at least once.

async with Client("redis://127.0.0.1:6399") as client:
    channel = client.channel("orders")
    await channel.publish({"total": 3}, id="order-17")
    async with channel.subscribe("me") as messages:
        async for message in messages:
            print(message.id, message.content)

The server is a Tidelog or any Redis, also with Sentinels or as a Redis Cluster. Channels are the same over HTTP: what
is published here is delivered there, and the other way round. But rules, tokens and passwords of the HTTP side do not
count here; whoever may write the server's keys may use all channels.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final
from weakref import WeakSet

from tidelog import limits
from tidelog.channels import ChannelKeys, ChannelMessage, Channels, PublishedMessage, message_of
from tidelog.channels.listing import ListedChannel, ListedSubscriber
from tidelog.channels.names import WEBHOOK_PREFIX, is_webhook_subscriber
from tidelog.client.message_reader import MessageReader
from tidelog.client.message_source import ChannelOutage, MessageSource, SubscribeRequest
from tidelog.errors import BadChannelInput, LimitExceeded

EXPIRE_DEFAULT: Final = timedelta(milliseconds=limits.CHANNEL_EXPIRE_MS_DEFAULT)
_ID_BYTES: Final = 16
_AROUND_BYTES: Final = 128
"""What a message takes in the server beside its content, at most."""


class Channel:
    """A channel of a server. `Client.channel` makes it; the server is not contacted before the first call."""

    def __init__(
        self,
        channels: Channels,
        name: str,
        expire_ms: int,
        readers: WeakSet[MessageReader],
        *,
        waits_at_start: bool = False,
    ) -> None:
        """`waits_at_start`: there are several servers, and readers wait for the first connection, too."""
        ChannelKeys(name)  # which refuses a name that no channel can have
        self._channels = channels
        self._waits_at_start = waits_at_start
        self.name: Final = name
        self.expire_ms: Final = expire_ms
        """How long messages are kept, and subscribers that acknowledge nothing."""
        self._readers = readers

    # --- publishing -------------------------------------------------------------------------------------------

    async def publish(self, content: Any, *, id: str | None = None) -> PublishedMessage:  # noqa: A002
        """Publish a message. When this returns, the server has it.

        content    any value that JSON can express
        id         names the message, so that publishing it again is harmless: while the channel has a message with
                   this id it keeps that one, and `is_new` of the result is False. None: a random id, new for each call

        After `ServerUnreachable` the message may be published or not. Publish it again with the same id.
        """
        [published] = await self.publish_messages([message_of(fresh_id() if id is None else id, content)])
        return published

    async def publish_many(
        self, contents: Iterable[Any], *, ids: Iterable[str] | None = None
    ) -> list[PublishedMessage]:
        """Publish several messages, in this order.

        ids    an id for each of them; None: random ones

        Up to 256 messages, and up to 4 MiB of them, are published at one moment. More are published in portions. After
        an error some portions may be published: with ids, all of them may be published again.
        """
        if ids is None:
            return await self.publish_messages([message_of(fresh_id(), each) for each in contents])
        pairs = zip(ids, contents, strict=True)
        return await self.publish_messages([message_of(message_id, content) for message_id, content in pairs])

    async def publish_messages(self, messages: Sequence[ChannelMessage]) -> list[PublishedMessage]:
        """As `publish_many`, for messages that `tidelog.channels.made_message` made from JSON text."""
        published: list[PublishedMessage] = []
        for portion in portions_of(messages):
            published += await self._channels.publish_several(self.name, portion, expire_ms=self.expire_ms)
        return published

    # --- subscribing ------------------------------------------------------------------------------------------

    def subscribe(
        self,
        subscriber: str,
        *,
        create: bool = True,
        anew: bool = False,
        batch: int = limits.CHANNEL_FETCH_MESSAGES_DEFAULT,
        reconnect_s_max: float | None = None,
        on_lost: Callable[[ChannelOutage], None] | None = None,
    ) -> MessageReader:
        """The messages of a subscriber, for `async for`; best inside of `async with`.

        A subscriber that there is goes on after the last message that it acknowledged. A new one begins with what is
        published from now on (in `async with`: from the beginning of the block).

        create           make the subscriber if there is none; False: raise SubscriptionNotFound
        anew             if the subscriber expires or is removed while it is read, make it again and go on with what is
                         published from then on; False: raise SubscriptionNotFound
        batch            how many messages are fetched at a time, 1 to 1024
        reconnect_s_max  raise ServerUnreachable when the server was away for this long; None: never. The first
                         connection counts, too, if the URL names several servers. With one server it is not tried
                         again, and several of which none answers are given half a minute
        on_lost          called when the server does not answer, before each further attempt

        To ask for the next message says that the one before is handled; that is acknowledged soon after. When the
        block ends without an error, the last message is handled, too, also after `break`. When an error leaves the
        block, the message whose handling failed is not acknowledged, and comes again; those before it do not. Without
        `async with`, whatever was not acknowledged when the loop is left comes again.

        The subscriber stays alive as long as its reader waits for messages or acknowledges them. A single message may
        take less than the channel's expiry to handle.
        """
        self._refuse_webhook(subscriber)
        if not 1 <= batch <= limits.CHANNEL_FETCH_MESSAGES_MAX:
            raise LimitExceeded(f"a batch has 1 to {limits.CHANNEL_FETCH_MESSAGES_MAX} messages, not {batch}")
        reader = MessageReader(
            self.source(
                subscriber,
                creates=create,
                begins_anew=anew,
                batch=batch,
                reconnect_s_max=reconnect_s_max,
                on_lost=on_lost,
            )
        )
        self._readers.add(reader)
        return reader

    def source(self, subscriber: str, **wanted: Any) -> MessageSource:
        """For readers that decide by themselves what is handled; `wanted`: see `SubscribeRequest`."""
        self._refuse_webhook(subscriber)
        request = SubscribeRequest(self.name, subscriber, self.expire_ms, waits_at_start=self._waits_at_start, **wanted)
        return MessageSource(self._channels, request)

    async def unsubscribe(self, subscriber: str) -> bool:
        """Remove a subscriber, and with it its place in the channel. False if there was none."""
        self._refuse_webhook(subscriber)
        return await self._channels.unsubscribe(self.name, subscriber)

    @staticmethod
    def _refuse_webhook(subscriber: str) -> None:
        if is_webhook_subscriber(subscriber):
            raise BadChannelInput(f"subscribers whose names begin with {WEBHOOK_PREFIX} belong to webhooks")


def fresh_id() -> str:
    """An id that no other message has."""
    return secrets.token_hex(_ID_BYTES)


def portions_of(messages: Sequence[ChannelMessage]) -> Iterator[Sequence[ChannelMessage]]:
    """The same messages, in parts that can be published together."""
    begin = size_bytes = 0
    for index, message in enumerate(messages):
        more_bytes = len(message.content) + _AROUND_BYTES
        is_full = index - begin == limits.CHANNEL_PUBLISH_MESSAGES_MAX
        if index > begin and (is_full or size_bytes + more_bytes > limits.CHANNEL_PUBLISH_BYTES_MAX):
            yield messages[begin:index]
            begin, size_bytes = index, 0
        size_bytes += more_bytes
    if begin < len(messages):
        yield messages[begin:]


def expire_ms_of(expire: timedelta | float) -> int:
    """Milliseconds of a duration or of seconds; `LimitExceeded` if a channel cannot have it."""
    seconds = expire.total_seconds() if isinstance(expire, timedelta) else float(expire)
    shortest_s, longest_s = limits.CHANNEL_EXPIRE_MS_MIN / 1000, limits.CHANNEL_EXPIRE_MS_MAX / 1000
    if not shortest_s <= seconds <= longest_s:
        raise LimitExceeded(f"messages expire after {shortest_s:g} to {longest_s:g} s, not after {seconds:g}")
    return round(1000 * seconds)


async def list_all(channels: Channels, channel: str | None) -> list[ListedChannel]:
    """All pages of the list of channels, put together by name."""
    found: dict[str, ListedChannel] = {}
    subscribers: dict[str, dict[str, ListedSubscriber]] = {}
    cursor: str | None = None
    while True:
        page = await channels.list_page(cursor, channel=channel)
        for each in page.channels:
            found[each.channel] = each
            subscribers.setdefault(each.channel, {}).update({row.subscriber: row for row in each.subscribers})
        cursor = page.cursor
        if cursor is None:
            break
    return [
        each._replace(subscribers=[row for _, row in sorted(subscribers[name].items())])
        for name, each in sorted(found.items())
    ]
