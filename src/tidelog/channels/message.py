"""A message of a channel, and its body in the backend.

    {"id":"msg123","content":{"text":"hello!"}}

The content is any JSON. It stays the text that the publisher sent, from there to every subscriber: numbers keep their
digits and objects the order and number of their members. So a body that was written here is taken apart by its first
bytes; another program's, with other spaces or in another order, is parsed and its content written anew.

Where replicas confirm what is published, a failover can take back messages that were not confirmed, and their places in
the channel go to others. There a body begins with a trail:

    {"trail":"5f0c6e1b9a37","id":"msg123","content":{"text":"hello!"}}

It is a hash of the message's id, its place and the trail of the message before. So whoever knows the trail at a place
can tell whether all messages up to there are still the same. The script that publishes writes it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.channels.names import checked_name
from tidelog.errors import BadChannelInput, MessageTooLarge

TRAIL_DIGITS: Final = 12
"""Hexadecimal digits of a trail."""
_TRAIL_BEGIN: Final = b'{"trail":"'
_OWN: Final = re.compile(
    rb'\{(?:"trail":"[0-9a-f]{%d}",)?"id":"([0-9A-Za-z][0-9A-Za-z_-]{0,62})","content":(.+)\}' % TRAIL_DIGITS, re.DOTALL
)


class ChannelPlace(NamedTuple):
    """A place in a channel."""

    clock: int
    trail: str = ""
    """Of the message at the clock, in hexadecimal; empty: it had none."""


class ChannelMessage(NamedTuple):
    """A message that was fetched, or is to be published (`made_message` checks it)."""

    id: str
    """The publisher's own; a message with an id that the channel knows is the same message."""
    content: bytes
    """JSON in UTF-8."""

    @property
    def value(self) -> Any:
        """The content, parsed."""
        return json.loads(self.content)


def made_message(message_id: str, content: bytes) -> ChannelMessage:
    """A message with JSON for its content; `BadChannelInput` or `MessageTooLarge` if there can be none."""
    checked_name("message", message_id)
    if len(content) > limits.CHANNEL_MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"a message has at most {limits.CHANNEL_MESSAGE_BYTES_MAX} bytes; {message_id} has {len(content)}"
        )
    try:
        json.loads(content.decode(), parse_int=_unread, parse_float=_unread, parse_constant=_refused)
    except ValueError as error:
        raise BadChannelInput(f"the message {message_id} is not JSON: {error}") from None
    except RecursionError:
        raise BadChannelInput(f"the message {message_id} is nested too deeply") from None
    return ChannelMessage(message_id, content.strip(b" \t\r\n"))


def message_of(message_id: str, value: Any) -> ChannelMessage:
    """A message with this value for its content."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise BadChannelInput(f"the message {message_id} cannot be JSON: {error}") from None
    return made_message(message_id, text)


def body_of(message: ChannelMessage) -> bytes:
    """What is kept of a message."""
    return b'{"id":"%b","content":%b}' % (message.id.encode(), message.content)


def message_in(body: bytes) -> ChannelMessage | None:
    """The message that a body holds; None if it holds none."""
    if found := _OWN.fullmatch(body):
        return ChannelMessage(found[1].decode(), found[2])
    try:
        read = json.loads(body)
        return message_of(read["id"], read["content"])
    except (ValueError, TypeError, KeyError, RecursionError, BadChannelInput, MessageTooLarge):
        return None


def _unread(digits: str) -> None:
    """A number need not be understood: one with thousands of digits would take long."""


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def trail_in(body: bytes) -> str:
    """The trail that a body begins with; empty: it has none."""
    if not body.startswith(_TRAIL_BEGIN):
        return ""
    return body[len(_TRAIL_BEGIN) : len(_TRAIL_BEGIN) + TRAIL_DIGITS].decode("latin-1")
