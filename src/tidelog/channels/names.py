"""The names of channels, subscribers and messages, and the keys that are made of them.

    c.{<channel>}.clock               the clock of the channel: that of its newest message
    c.{<channel>}.r.<subscriber>      the cursor of a subscriber: the clock up to which it has acknowledged
    c.{<channel>}.m.<clock>           the body of a message
    c.{<channel>}.mid.<message id>    the clock of the message with this id, for as long as it may come again
    c.{<channel>}.lease.<webhook>     who sends the messages of the channel to a webhook, for as long as it holds
    c.{<channel>}.fence.<webhook>     the token of the last one that did
    c.{<channel>}.tries.<webhook>     how often it has tried to send which message, in vain
    c.{<channel>}.wake                not a key: where pub/sub tells that there is a new message

The channel's name is the hash tag of all of them, so that a Redis Cluster keeps a channel in one slot, and one script
may use all its keys. Names have no dots and braces: no two of them make the same key.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tidelog.errors import BadChannelInput, InvalidChannel

_NAME: Final = "[0-9A-Za-z][0-9A-Za-z_-]{0,62}"
_IS_NAME: Final = re.compile(_NAME, re.ASCII)
_LISTED: Final = re.compile(rf"c\.\{{({_NAME})\}}\.(?:clock|r\.({_NAME}))".encode())

WEBHOOK_PREFIX: Final = "webhook-"
"""Of the subscribers of webhooks, whose cursors nobody else may move."""
LISTED_PATTERN: Final = b"c.{%b}.[cr]*"
"""For SCAN: the clock and the cursors of a channel, or with `*` of all."""


def is_name(text: str) -> bool:
    """Whether a channel, a subscriber or a message can have this name."""
    return _IS_NAME.fullmatch(text) is not None


def is_webhook_subscriber(subscriber: str) -> bool:
    """Whether a subscriber belongs to a webhook."""
    return subscriber.startswith(WEBHOOK_PREFIX)


class ChannelKeys:
    """The keys of one channel; `InvalidChannel` if it cannot have that name."""

    __slots__ = ("_start", "channel", "clock", "message_prefix", "wake")

    def __init__(self, channel: str) -> None:
        if _IS_NAME.fullmatch(channel) is None:
            raise InvalidChannel(f"{_shown(channel)} is not the name of a channel: {_RULE}")
        start = f"c.{{{channel}}}.".encode()
        self._start = start
        self.channel: Final = channel
        self.clock: Final = start + b"clock"
        self.message_prefix: Final = start + b"m."
        """What comes before the clock in the key of a body."""
        self.wake: Final = start + b"wake"

    def cursor(self, subscriber: str) -> bytes:
        checked_name("subscriber", subscriber)
        return b"%br.%b" % (self._start, subscriber.encode())

    def message(self, clock: int) -> bytes:
        return b"%b%d" % (self.message_prefix, clock)

    def message_id(self, message_id: str) -> bytes:
        checked_name("message", message_id)
        return b"%bmid.%b" % (self._start, message_id.encode())

    def webhook_lease(self, webhook: str) -> bytes:
        return b"%blease.%b" % (self._start, checked_name("webhook", webhook).encode())

    def webhook_fence(self, webhook: str) -> bytes:
        return b"%bfence.%b" % (self._start, checked_name("webhook", webhook).encode())

    def webhook_attempts(self, webhook: str) -> bytes:
        return b"%btries.%b" % (self._start, checked_name("webhook", webhook).encode())


def checked_name(what: str, name: str) -> str:
    """The name of a subscriber or a message; `BadChannelInput` if it cannot be one."""
    if _IS_NAME.fullmatch(name) is None:
        raise BadChannelInput(f"{_shown(name)} is not the name of a {what}: {_RULE}")
    return name


class ListedKey(NamedTuple):
    """A key that tells of a channel."""

    channel: str
    subscriber: str | None
    """Whose cursor it is; None: it is the clock."""


def listed_key(key: bytes) -> ListedKey | None:
    """What a key that SCAN gave tells; None: nothing, another program may have written it."""
    found = _LISTED.fullmatch(key)
    if found is None:
        return None
    return ListedKey(found[1].decode(), None if found[2] is None else found[2].decode())


_RULE: Final = "a letter or a digit, then up to 62 more, or _ and -"


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}...")
