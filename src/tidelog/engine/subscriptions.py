"""Pub/sub: which clients listen to which channels and patterns, and sending messages to them.

Nothing is journaled: a message is gone once it is sent. Where no message may be lost, use a stream.

Shard channels (SSUBSCRIBE, SPUBLISH) are channels of their own: in a cluster they stay on one node, and here they are
all at home.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.resp.encoder import Push, encode
from tidelog.store.glob import Matcher, matcher

if TYPE_CHECKING:
    from tidelog.engine.session import Session


class Published:
    """One message, encoded once for each protocol that its readers speak."""

    __slots__ = ("_by_protocol", "_content")

    def __init__(self, *content: bytes) -> None:
        self._content = content
        self._by_protocol: dict[int, bytes] = {}

    def send_to(self, session: Session) -> None:
        protocol = session.protocol
        data = self._by_protocol.get(protocol)
        if data is None:
            data = self._by_protocol[protocol] = encode(Push(self._content), protocol)
        session.push(data)


class Subscriptions:
    """All subscriptions of a server."""

    def __init__(self) -> None:
        self._channels: dict[bytes, dict[int, Session]] = {}
        self._patterns: dict[bytes, dict[int, Session]] = {}
        self._matchers: dict[bytes, Matcher] = {}
        """Of these patterns: read once and not for each message."""
        self._shard_channels: dict[bytes, dict[int, Session]] = {}
        self.message_count = 0
        """Messages that were published."""
        self.delivery_count = 0
        """How often one of them was sent to someone."""

    # --- listening ----------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, channel: bytes) -> None:
        session.channels.add(channel)
        self._channels.setdefault(channel, {})[session.id] = session

    def unsubscribe(self, session: Session, channel: bytes) -> None:
        session.channels.discard(channel)
        _leave(self._channels, session, channel)

    def subscribe_pattern(self, session: Session, pattern: bytes) -> None:
        session.patterns.add(pattern)
        if pattern not in self._patterns:
            self._patterns[pattern] = {}
            self._matchers[pattern] = matcher(pattern)
        self._patterns[pattern][session.id] = session

    def unsubscribe_pattern(self, session: Session, pattern: bytes) -> None:
        session.patterns.discard(pattern)
        _leave(self._patterns, session, pattern)
        if pattern not in self._patterns:
            self._matchers.pop(pattern, None)

    def subscribe_shard(self, session: Session, channel: bytes) -> None:
        session.shard_channels.add(channel)
        self._shard_channels.setdefault(channel, {})[session.id] = session

    def unsubscribe_shard(self, session: Session, channel: bytes) -> None:
        session.shard_channels.discard(channel)
        _leave(self._shard_channels, session, channel)

    def forget(self, session: Session) -> None:
        """End all subscriptions of a client."""
        for channel in list(session.channels):
            self.unsubscribe(session, channel)
        for pattern in list(session.patterns):
            self.unsubscribe_pattern(session, pattern)
        for channel in list(session.shard_channels):
            self.unsubscribe_shard(session, channel)

    # --- sending ------------------------------------------------------------------------------------------------

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message to all listeners; returns how many there were."""
        patterns = [pattern for pattern, is_match in self._matchers.items() if is_match(channel)]  # or it is refused
        count = _send(self._channels.get(channel), Published(b"message", channel, message))
        for pattern in patterns:
            count += _send(self._patterns.get(pattern), Published(b"pmessage", pattern, channel, message))
        self.message_count += 1
        self.delivery_count += count
        return count

    def publish_shard(self, channel: bytes, message: bytes) -> int:
        count = _send(self._shard_channels.get(channel), Published(b"smessage", channel, message))
        self.message_count += 1
        self.delivery_count += count
        return count

    # --- looking around -------------------------------------------------------------------------------------------

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


def _send(sessions: dict[int, Session] | None, message: Published) -> int:
    if not sessions:
        return 0
    listeners = list(sessions.values())  # one that is cut off for not reading leaves meanwhile
    for session in listeners:
        message.send_to(session)
    return len(listeners)


def _matching(names: dict[bytes, dict[int, Session]], pattern: bytes | None) -> list[bytes]:
    if pattern is None:
        return list(names)
    is_match = matcher(pattern)
    return [name for name in names if is_match(name)]


def _leave(places: dict[bytes, dict[int, Session]], session: Session, name: bytes) -> None:
    sessions = places.get(name)
    if sessions is not None:
        sessions.pop(session.id, None)
        if not sessions:
            del places[name]
