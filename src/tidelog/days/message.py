"""What a job set is made of: messages, each an id, a time and the bytes of an event.

The **id** is the message's own (`<ms>-<seq>`, two numbers of 64 bits), not ours to choose: a retried message is known
by it, and it stays the same when a day is compressed. Ids increase over the days of a job set. The **day** of a message
is the UTC day of its `timestamp_ms`, whatever its id says.

    hot entry     stream id = the message's id; field `event`, and field `timestamp_ms` if it is not the id's <ms>
    JSON line     {"id": "1731700000000-0", "timestamp_ms": 1731700000000, "event": {...}}

The event of a JSON line is kept byte for byte, with its spaces, the order of its members, repeated members, and numbers
of any size. Bytes that are not JSON (another program wrote them) are shown as a JSON string, or as {"base64": "..."} if
they are not UTF-8 either.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple, NoReturn

from tidelog import limits
from tidelog.errors import BadMessage, FormatError
from tidelog.ids import U64_MAX

DAY_MS: Final = 86_400_000
TIMESTAMP_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, after which there are no days."""
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_ID: Final = re.compile(r"(\d{1,20})-(\d{1,20})", re.ASCII)
_SPACE: Final = re.compile(r"[ \t\r\n]*")


class EventId(NamedTuple):
    """The place of a message in its job set."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


ZERO: Final = EventId(0, 0)
"""Before every id: a stream has none so small."""


def parse_id(text: str | bytes) -> EventId:
    """`ValueError` if it is none."""
    found = _ID.fullmatch(text if isinstance(text, str) else text.decode("ascii", "replace"))
    if found is None:
        raise ValueError(f"{text!r} is not an id: an id has the form <ms>-<seq>")
    made = EventId(int(found[1]), int(found[2]))
    if max(made) > U64_MAX:
        raise ValueError(f"the numbers of {text!r} do not fit 64 bits")
    return made


def day_of(timestamp_ms: int) -> date:
    """The UTC day."""
    return date.fromordinal(_EPOCH_ORDINAL + timestamp_ms // DAY_MS)


class Message(NamedTuple):
    """One event of a job set."""

    id: EventId
    timestamp_ms: int
    event: bytes

    @property
    def day(self) -> date:
        return day_of(self.timestamp_ms)


def checked(message: Message) -> Message:
    """The message, if it can be written; otherwise `BadMessage`."""
    if not ZERO < message.id <= (U64_MAX, U64_MAX) or min(message.id) < 0 or message.id.seq > U64_MAX:
        raise BadMessage(
            f"{message.id} cannot be the id of a message: it must be larger than 0-0, and each part must fit 64 bits"
        )
    if not 0 <= message.timestamp_ms <= TIMESTAMP_MS_MAX:
        raise BadMessage(
            f"message {message.id}: timestamp_ms {message.timestamp_ms} is not a time before the year 10000"
        )
    if len(message.event) > limits.DAYS_EVENT_BYTES_MAX:
        size, most = len(message.event), limits.DAYS_EVENT_BYTES_MAX
        raise BadMessage(f"message {message.id}: its event has {size} bytes, more than {most}")
    return message


# --- as an entry of a stream --------------------------------------------------------------------------------------


def chunked(messages: Iterable[Message], *, count_max: int, bytes_max: int) -> Iterator[list[Message]]:
    """Runs of messages within these bounds. A message that is larger by itself is a run of its own."""
    chunk: list[Message] = []
    size_bytes = 0
    for message in messages:
        if chunk and (len(chunk) >= count_max or size_bytes + len(message.event) > bytes_max):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(message)
        size_bytes += len(message.event)
    if chunk:
        yield chunk


def fields_of(message: Message) -> list[bytes]:
    """Fields and values of a hot entry, in turn."""
    if message.timestamp_ms == message.id.ms:
        return [b"event", message.event]
    return [b"event", message.event, b"timestamp_ms", b"%d" % message.timestamp_ms]


def message_of_entry(key: bytes, entry_id: bytes, fields: Mapping[bytes, bytes]) -> Message:
    """The message of a hot entry; `FormatError` if it is none. Fields that are not ours are left alone."""
    made = parse_id(entry_id)
    try:
        event = fields[b"event"]
        timestamp_ms = int(fields.get(b"timestamp_ms", made.ms))
        if not 0 <= timestamp_ms <= U64_MAX:
            raise ValueError(f"{timestamp_ms} does not fit 64 bits")
    except (KeyError, ValueError) as error:
        what = f"timestamp_ms: {error}" if isinstance(error, ValueError) else "it has no field `event`"
        raise FormatError(f"entry {made} is not an event of a job set: {what}", path=shown(key)) from None
    return Message(made, timestamp_ms, event)


def shown(key: bytes) -> str:
    """A key in a message for people."""
    return key.decode(errors="backslashreplace")


# --- as a line of JSON --------------------------------------------------------------------------------------------


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_USUAL: Final = re.compile(
    r'\{"id": ?"(\d{1,20}-\d{1,20})", ?"timestamp_ms": ?(0|[1-9]\d{0,17}), ?"event": ?(.*)\}', re.ASCII | re.DOTALL
)
"""A line as most programs write it: its parts are found without looking at each character."""
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def message_of_json(line: str) -> Message:
    """The message of a line; `BadMessage` if it is none. Members that are not ours are left out."""
    try:
        usual = _USUAL.fullmatch(line)
        if usual is not None and _is_json(usual[3]):
            return checked(Message(parse_id(usual[1]), int(usual[2]), usual[3].encode()))
        members = _members(line)
        missing = [name for name in ("id", "timestamp_ms", "event") if name not in members]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        name, timestamp_ms = members["id"][0], members["timestamp_ms"][0]
        if not isinstance(name, str):
            raise ValueError('id must be a text such as "1731700000000-0"')
        if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
            raise ValueError("timestamp_ms must be a whole number")
        return checked(Message(parse_id(name), timestamp_ms, members["event"][1].encode()))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadMessage(f"not a message: {reason}") from None


def _is_json(text: str) -> bool:
    """Whether a text is one JSON value, without anything around it."""
    try:
        return _DECODER.raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False


def _members(line: str) -> dict[str, tuple[Any, str]]:
    """The members of an object, each as its value and as the text that it was made from."""

    def after_space(at: int) -> int:
        found = _SPACE.match(line, at)
        return found.end() if found else at

    def expect(char: str, at: int) -> int:
        if line[at : at + 1] != char:
            raise ValueError(f"expected {char!r} at character {at + 1}")
        return after_space(at + 1)

    members: dict[str, tuple[Any, str]] = {}
    at = expect("{", after_space(0))
    while line[at : at + 1] != "}":
        if members:
            at = expect(",", at)
        if line[at : at + 1] != '"':
            raise ValueError(f"expected the name of a member at character {at + 1}")
        name, at = scanstring(line, at + 1, True)
        begin = expect(":", after_space(at))
        try:
            value, at = _DECODER.raw_decode(line, begin)
        except StopIteration:
            raise ValueError(f"expected a value at character {begin + 1}") from None
        members[name] = value, line[begin:at]
        at = after_space(at)
    if expect("}", at) != len(line):
        raise ValueError("there is more text after the object")
    return members


def json_of_message(message: Message) -> str:
    """The line of a message, without its end."""
    return f'{{"id": "{message.id}", "timestamp_ms": {message.timestamp_ms}, "event": {json_of_event(message.event)}}}'


def json_of_event(event: bytes) -> str:
    """The event as JSON on one line."""
    try:
        text = event.decode()
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(event).decode()})
    if not _is_json(text):
        return json.dumps(text)
    # Line ends in JSON stand between its parts only: inside of a text they are escaped.
    return text.replace("\r", " ").replace("\n", " ")
