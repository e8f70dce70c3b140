"""Pub/sub: who listens to which channels and patterns, and who gets a message.

Nothing of it is journaled: a message is gone when it is sent. Channels that must not lose messages are streams.

Shard channels (SSUBSCRIBE, SPUBLISH) are channels of their own: in a cluster they stay on one node, and here they are
all at home.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.commands.glob import matcher
from tidelog.resp.encoder import Push, encode


class Subscriber(Protocol):
    """A client that listens."""

    id: int
    protocol: int
    channels: set[bytes]
    patterns: set[bytes]
    shard_channels: set[bytes]

    def push(self, data: bytes) -> None:
        """Send a message that answers no command."""


class Message:
    """One message, encoded once for each protocol that its readers speak."""

    __slots__ = ("_by_protocol", "_content")

    def __init__(self, *content: bytes) -> None:
        self._content = content
        self._by_protocol: dict[int, bytes] = {}

    def send_to(self, client: Subscriber) -> None:
        protocol = client.protocol
        data = self._by_protocol.get(protocol)
        if data is None:
            data = self._by_protocol[protocol] = encode(Push(self._content), protocol)
        client.push(data)


class Subscriptions:
    """All subscriptions of a server."""

    def __init__(self) -> None:
        self._channels: dict[bytes, dict[int, Subscriber]] = {}
        self._patterns: dict[bytes, dict[int, Subscriber]] = {}
        self._shard_channels: dict[bytes, dict[int, Subscriber]] = {}
        self.message_count = 0
        """Messages that were published."""
        self.delivery_count = 0
        """How often one of them was sent to someone."""

    # --- listening ----------------------------------------------------------------------------------------------

    def subscribe(self, client: Subscriber, channel: bytes) -> None:
        client.channels.add(channel)
        self._channels.setdefault(channel, {})[client.id] = client

    def unsubscribe(self, client: Subscriber, channel: bytes) -> None:
        client.channels.discard(channel)
        _leave(self._channels, client, channel)

    def subscribe_pattern(self, client: Subscriber, pattern: bytes) -> None:
        client.patterns.add(pattern)
        self._patterns.setdefault(pattern, {})[client.id] = client

    def unsubscribe_pattern(self, client: Subscriber, pattern: bytes) -> None:
        client.patterns.discard(pattern)
        _leave(self._patterns, client, pattern)

    def subscribe_shard(self, client: Subscriber, channel: bytes) -> None:
        client.shard_channels.add(channel)
        self._shard_channels.setdefault(channel, {})[client.id] = client

    def unsubscribe_shard(self, client: Subscriber, channel: bytes) -> None:
        client.shard_channels.discard(channel)
        _leave(self._shard_channels, client, channel)

    def forget(self, client: Subscriber) -> None:
        """It listens to nothing any more."""
        for channel in list(client.channels):
            self.unsubscribe(client, channel)
        for pattern in list(client.patterns):
            self.unsubscribe_pattern(client, pattern)
        for channel in list(client.shard_channels):
            self.unsubscribe_shard(client, channel)

    # --- sending ------------------------------------------------------------------------------------------------

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message to everyone who listens; returns to how many."""
        count = _send(self._channels.get(channel), Message(b"message", channel, message))
        for pattern, clients in list(self._patterns.items()):
            if matcher(pattern)(channel):
                count += _send(clients, Message(b"pmessage", pattern, channel, message))
        self.message_count += 1
        self.delivery_count += count
        return count

    def publish_shard(self, channel: bytes, message: bytes) -> int:
        count = _send(self._shard_channels.get(channel), Message(b"smessage", channel, message))
        self.message_count += 1
        self.delivery_count += count
        return count

    # --- who is there -------------------------------------------------------------------------------------------

    def channels(self, pattern: bytes | None = None) -> list[bytes]:
        """The channels that someone listens to, and that match."""
        return _matching(self._channels, pattern)

    def shard_channels(self, pattern: bytes | None = None) -> list[bytes]:
        return _matching(self._shard_channels, pattern)

    def listeners(self, channel: bytes) -> int:
        return len(self._channels.get(channel, ()))

    def shard_listeners(self, channel: bytes) -> int:
        return len(self._shard_channels.get(channel, ()))

    def pattern_count(self) -> int:
        return len(self._patterns)


def _send(clients: dict[int, Subscriber] | None, message: Message) -> int:
    if not clients:
        return 0
    listeners = list(clients.values())  # one that is cut off for not reading leaves meanwhile
    for client in listeners:
        message.send_to(client)
    return len(listeners)


def _matching(names: dict[bytes, dict[int, Subscriber]], pattern: bytes | None) -> list[bytes]:
    if pattern is None:
        return list(names)
    is_match = matcher(pattern)
    return [name for name in names if is_match(name)]


def _leave(places: dict[bytes, dict[int, Subscriber]], client: Subscriber, name: bytes) -> None:
    clients = places.get(name)
    if clients is not None:
        clients.pop(client.id, None)
        if not clients:
            del places[name]
