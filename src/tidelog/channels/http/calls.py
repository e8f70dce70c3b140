"""The calls on channels: each takes a request whose channel was granted, and returns the answer.

The content of a message is never decoded: what was published is put into the answer as it is. `ackHandle` is left out
where there is nothing to acknowledge; it comes without messages if all that were looked at had expired, so that the
subscriber can move on.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from tidelog import limits
from tidelog.channels.channels import Channels, FetchedMessages
from tidelog.channels.http.answer import NO_CONTENT, Answer, json_answer, message_json
from tidelog.channels.http.call import HttpCall
from tidelog.channels.http.durations import read_duration_s
from tidelog.channels.http.event_stream import MessageStream, asks_for_stream
from tidelog.channels.http.figures import ChannelFigures
from tidelog.channels.http.message_list import messages_in
from tidelog.channels.http.polls import PollPlaces, unless_gone
from tidelog.channels.listing import ListedChannel
from tidelog.channels.message import ChannelMessage, made_message
from tidelog.channels.names import WEBHOOK_PREFIX, checked_name, is_webhook_subscriber
from tidelog.errors import BadChannelInput, EnvironmentFault, LimitExceeded

_COUNT: Final = re.compile(r"[0-9]{1,6}", re.ASCII)
_ALIVE: Final = json_answer({"storage": "ok"})
_NOT_READY: Final = json_answer({"storage": "unavailable"}, 503)._replace(
    headers=((b"retry-after", b"%d" % limits.CHANNEL_RETRY_AFTER_S),)
)
_MORE: Final = {False: b"false", True: b"true"}


def _names_of(call: HttpCall) -> tuple[str, str]:
    """The channel and the subscriber in the path."""
    channel, subscriber = call.names
    checked_name("subscriber", subscriber)
    if is_webhook_subscriber(subscriber):
        raise BadChannelInput(f"subscribers whose names begin with {WEBHOOK_PREFIX} belong to webhooks")
    return channel, subscriber


class ChannelCalls:
    """The calls, by the names that the table has."""

    def __init__(self, channels: Channels, places: PollPlaces, figures: ChannelFigures) -> None:
        self._channels = channels
        self._places = places
        self._figures = figures

    # --- subscribers ------------------------------------------------------------------------------------------

    async def subscribe(self, call: HttpCall) -> Answer:
        channel, subscriber = _names_of(call)
        await self._channels.subscribe(channel, subscriber, expire_ms=call.expire_ms)
        return _subscriber_answer(channel, subscriber)

    async def unsubscribe(self, call: HttpCall) -> Answer:
        channel, subscriber = _names_of(call)
        await self._channels.unsubscribe(channel, subscriber)
        return _subscriber_answer(channel, subscriber)

    # --- messages ---------------------------------------------------------------------------------------------

    async def fetch(self, call: HttpCall) -> Answer | None:
        """Hot. None: the client is gone, or got a stream."""
        channel, subscriber = _names_of(call)
        messages_max = _read_max(call.parameter("max"))
        timeout_s = _read_timeout_s(call.parameter("timeout"))
        if asks_for_stream(call):
            return await self._stream(call, messages_max)
        if timeout_s == 0:
            return self._delivered(channel, await self._channels.fetch(channel, subscriber, messages_max=messages_max))
        with self._places.place(channel, subscriber):
            found = await unless_gone(
                call.receive,
                self._channels.fetch_when_there(channel, subscriber, messages_max=messages_max, timeout_s=timeout_s),
            )
        if found is None:
            self._figures.gone += 1
            return None
        return self._delivered(channel, found)

    async def _stream(self, call: HttpCall, messages_max: int) -> Answer | None:
        channel, subscriber = call.names
        acknowledged = call.header(b"last-event-id")
        if acknowledged and await self._channels.acknowledge(
            channel, subscriber, acknowledged, expire_ms=call.expire_ms
        ):
            self._figures.acknowledged += 1
        with self._places.place(channel, subscriber):
            stream = MessageStream(self._channels, self._figures, call, messages_max)
            await stream.begin()  # what is wrong from the beginning is a plain error
            if await unless_gone(call.receive, stream.run()) is None:
                self._figures.gone += 1
        return None

    async def acknowledge(self, call: HttpCall) -> Answer:
        channel, subscriber = _names_of(call)
        handle = call.needed("ackHandle")
        if await self._channels.acknowledge(channel, subscriber, handle, expire_ms=call.expire_ms):
            self._figures.acknowledged += 1
        return NO_CONTENT

    async def publish(self, call: HttpCall) -> Answer:
        channel, message_id = call.names
        checked_name("message", message_id)
        message = made_message(message_id, await call.body(limits.CHANNEL_MESSAGE_BYTES_MAX))
        await self._publish(call, [message])
        return Answer(200, b'{"channelID":"%b","messageID":"%b"}' % (channel.encode(), message_id.encode()))

    async def publish_several(self, call: HttpCall) -> Answer:
        messages = messages_in(await call.body(limits.CHANNEL_LIST_BYTES_MAX))
        are_new = await self._publish(call, messages)
        rows = [{"messageID": message.id, "isNew": is_new} for message, is_new in zip(messages, are_new, strict=True)]
        return json_answer({"channelID": call.names[0], "messages": rows})

    async def _publish(self, call: HttpCall, messages: list[ChannelMessage]) -> list[bool]:
        published = await self._channels.publish_several(call.names[0], messages, expire_ms=call.expire_ms)
        are_new = [each.is_new for each in published]
        count = sum(are_new)
        self._figures.published += count
        self._figures.repeated += len(are_new) - count
        return are_new

    def _delivered(self, channel: str, found: FetchedMessages) -> Answer:
        self._figures.delivered += len(found.messages)
        messages = b",".join(map(message_json, found.messages))
        handle = b"" if found.handle is None else b'"ackHandle":"%b",' % found.handle.encode()
        return Answer(
            200,
            b'{"channelID":"%b","messages":[%b],%b"moreMessages":%b}'
            % (channel.encode(), messages, handle, _MORE[found.has_more]),
        )

    # --- the rest ---------------------------------------------------------------------------------------------

    async def list_channels(self, call: HttpCall) -> Answer:
        wanted = call.parameter("channel")
        if wanted is not None:
            checked_name("channel", wanted)
        page = await self._channels.list_page(call.parameter("cursor"), channel=wanted)
        listed: dict[str, object] = {"channels": [_listed(channel) for channel in page.channels]}
        if page.cursor is not None:
            listed["cursor"] = page.cursor
        return json_answer(listed)

    async def liveness(self, _call: HttpCall) -> Answer:
        return _ALIVE

    async def readiness(self, _call: HttpCall) -> Answer:
        try:
            async with asyncio.timeout(limits.CHANNEL_PROBE_S_MAX):
                await self._channels.ping()
        except (EnvironmentFault, TimeoutError):
            return _NOT_READY  # which is the news
        return _ALIVE


def _subscriber_answer(channel: str, subscriber: str) -> Answer:
    return Answer(200, b'{"channelID":"%b","subscriberID":"%b"}' % (channel.encode(), subscriber.encode()))


def _read_max(text: str | None) -> int:
    if text is None:
        return limits.CHANNEL_FETCH_MESSAGES_DEFAULT
    if _COUNT.fullmatch(text) is None or not 1 <= int(text) <= limits.CHANNEL_FETCH_MESSAGES_MAX:
        raise LimitExceeded(f'"max" is a number of messages, 1 to {limits.CHANNEL_FETCH_MESSAGES_MAX}')
    return int(text)


def _read_timeout_s(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        seconds = read_duration_s(text)
    except BadChannelInput as error:
        raise BadChannelInput(f'"timeout": {error}') from None
    if seconds > limits.CHANNEL_POLL_S_MAX:
        raise LimitExceeded(f'"timeout" is at most {limits.CHANNEL_POLL_S_MAX / 3600:g}h')
    return seconds


def _listed(channel: ListedChannel) -> dict[str, object]:
    return {
        "channelID": channel.channel,
        "clock": channel.clock,
        "expiresInMs": channel.expires_in_ms,
        "subscribers": [
            {"subscriberID": each.subscriber, "lag": each.lag, "expiresInMs": each.expires_in_ms}
            for each in channel.subscribers
        ],
    }
