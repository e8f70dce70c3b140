"""Messages from JSON text: each line of an input is the content of a message.

The content stays the text that it is, so that numbers keep their digits. What has arrived is given out at once: lines
that trickle in from a pipe do not wait for more. A line that is no message ends the input with an error that names it;
the messages before it are given out first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tidelog import limits
from tidelog.errors import BadChannelInput, LimitExceeded

if TYPE_CHECKING:
    from tidelog.channels import ChannelMessage


class ByteSource(Protocol):
    """A file of bytes, or a pipe."""

    def read1(self, size: int, /) -> bytes:
        """The bytes that have arrived, at least one; empty at the end."""


class MessageMaker:
    """Makes messages from JSON text, each with an id."""

    def __init__(self, id_from: str | None, fresh_id: Callable[[], str]) -> None:
        """`id_from`: the member of the content whose value is the id; None: ids are made up."""
        self._id_from = id_from
        self._fresh_id = fresh_id

    def message(self, text: bytes, message_id: str | None = None) -> ChannelMessage:
        """`BadChannelInput` or `LimitExceeded` if the text cannot be a message."""
        from tidelog.channels import made_message

        value = _parsed(text)
        if message_id is None:
            message_id = self._fresh_id() if self._id_from is None else _id_in(value, self._id_from)
        return made_message(message_id, text)

    def messages(self, source: ByteSource) -> Iterator[list[ChannelMessage]]:
        """Of lines; empty ones are passed over."""
        rest = b""
        number = 0
        while data := source.read1(limits.CHANNEL_INPUT_BYTES_AT_ONCE):
            *lines, rest = (rest + data).split(b"\n")
            yield from self._messages(lines, number)
            number += len(lines)
            if len(rest) > 2 * limits.CHANNEL_MESSAGE_BYTES_MAX:
                raise LimitExceeded(f"line {number + 1} has more than {limits.CHANNEL_MESSAGE_BYTES_MAX} bytes")
        yield from self._messages([rest], number)

    def _messages(self, lines: Sequence[bytes], before: int) -> Iterator[list[ChannelMessage]]:
        made: list[ChannelMessage] = []
        for number, line in enumerate(lines, start=before + 1):
            try:
                if line.strip():
                    made.append(self.message(line))
            except (BadChannelInput, LimitExceeded) as error:
                if made:
                    yield made
                raise BadChannelInput(f"line {number}: {error}") from None
        if made:
            yield made


def _parsed(text: bytes) -> Any:
    """The value of JSON text, with numbers as they are written."""
    try:
        return json.loads(text.decode(), parse_int=str, parse_float=str, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise BadChannelInput(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError:
        raise BadChannelInput("not JSON: not UTF-8") from None
    except RecursionError:
        raise BadChannelInput("nested too deeply") from None


def _refused(constant: str) -> None:
    raise BadChannelInput(f"not JSON: {constant}")


def _id_in(value: Any, member: str) -> str:
    found = value.get(member) if isinstance(value, dict) else None
    if not isinstance(found, str):
        raise BadChannelInput(f"it has no text or number {member!r} for the id")
    return found
