"""The body of a request that publishes several messages.

    [{"messageID": "a1", "content": {"text": "hello!"}}, {"messageID": "a2", "content": 1.50}]

The content of a message stays the text that it is (`message.py`), so the list is not parsed as a whole: the parts
around the contents are read here, and each content is found, checked and cut out.
"""

from __future__ import annotations

import json
import re
from typing import Final

from tidelog import limits
from tidelog.channels.message import ChannelMessage
from tidelog.channels.names import checked_name
from tidelog.errors import BadChannelInput, LimitExceeded, MessageTooLarge

_SPACE: Final = re.compile(r"[ \t\r\n]*", re.ASCII)
_MEMBERS: Final = frozenset(["messageID", "content"])


def _unread(digits: str) -> None:
    """A number need not be understood: one with thousands of digits would take long."""


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_unread, parse_float=_unread, parse_constant=_refused)


def messages_in(body: bytes) -> list[ChannelMessage]:
    """The messages of a list; `BadChannelInput`, `LimitExceeded` or `MessageTooLarge` if it cannot be one."""
    try:
        text = body.decode()
        messages, at = _read_list(text)
        if _after_space(text, at) != len(text):
            raise ValueError(f"something follows the list: char {at}")
    except RecursionError:
        raise BadChannelInput("a message of the list is nested too deeply") from None
    except (ValueError, StopIteration) as error:
        raise BadChannelInput(
            f"the body is not a list of messages, such as "
            f'[{{"messageID": "a1", "content": {{"text": "hello!"}}}}]: {error}'
        ) from None
    if not messages:
        raise BadChannelInput("the list has no messages")
    return messages


def _read_list(text: str) -> tuple[list[ChannelMessage], int]:
    messages: list[ChannelMessage] = []
    at = _past(text, 0, "[")
    if text[at : at + 1] == "]":
        return messages, at + 1
    while True:
        if len(messages) == limits.CHANNEL_PUBLISH_MESSAGES_MAX:
            raise LimitExceeded(f"at most {limits.CHANNEL_PUBLISH_MESSAGES_MAX} messages are published together")
        message, at = _read_message(text, at)
        messages.append(message)
        at = _after_space(text, at)
        if text[at : at + 1] == "]":
            return messages, at + 1
        at = _past(text, at, ",")


def _read_message(text: str, at: int) -> tuple[ChannelMessage, int]:
    found: dict[str, str] = {}
    at = _past(text, at, "{")
    while True:
        if text[at : at + 1] != '"':
            raise ValueError(f'a message has a "messageID" and a "content": char {at}')
        name, at = _DECODER.raw_decode(text, at)
        if name not in _MEMBERS or name in found:
            raise ValueError(f'a message has one "messageID" and one "content", and not {name[:40]!r}')
        begin = _past(text, at, ":")
        value, at = _DECODER.raw_decode(text, begin)
        if name == "messageID":
            if not isinstance(value, str):
                raise ValueError("a messageID is a string")
            found[name] = checked_name("message", value)
        else:
            found[name] = text[begin:at]
        at = _after_space(text, at)
        if text[at : at + 1] == "}":
            break
        at = _past(text, at, ",")
    if len(found) < len(_MEMBERS):
        raise ValueError('a message has a "messageID" and a "content"')
    content = found["content"].encode()
    if len(content) > limits.CHANNEL_MESSAGE_BYTES_MAX:
        raise MessageTooLarge(f"a message has at most {limits.CHANNEL_MESSAGE_BYTES_MAX} bytes")
    return ChannelMessage(found["messageID"], content), at + 1


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None
    return space.end()


def _past(text: str, at: int, sign: str) -> int:
    """Where a sign that must come next is over, with the space around it."""
    at = _after_space(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign} is missing: char {at}")
    return _after_space(text, at + 1)
