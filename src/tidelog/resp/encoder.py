"""Replies as bytes, for RESP2 and RESP3.

A reply is a plain Python value; the classes here stand for what Python has no type of its own for:

    value             RESP2                         RESP3
    str               +simple string                the same
    bytes             $bulk string                  the same
    int               :integer                      the same
    None              $-1, the null bulk string     _
    NULL_ARRAY        *-1, the null array           _
    bool              :1 or :0                      #t or #f
    float             $bulk string                  ,double
    list, tuple       *array                        the same
    dict              *array, flat                  %map
    Pairs             *array, flat                  *array of *arrays of two
    ByKey             *array of *arrays of two      %map
    SetReply          *array                        ~set
    Push              *array                        >push
    Verbatim          $bulk string                  =verbatim string
    ErrorReply        -error                        the same
    Spliced           *array, the last elements of which are encoded already, or will be (`Later`)
    Wire              bytes that are encoded already, whatever the protocol
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from mypy_extensions import mypyc_attr

from tidelog import limits

OK: Final = b"+OK\r\n"
QUEUED: Final = b"+QUEUED\r\n"
NULL_BULK_2: Final = b"$-1\r\n"
NULL_ARRAY_2: Final = b"*-1\r\n"
NULL_3: Final = b"_\r\n"

_LONG_BYTES: Final = limits.LONG_REPLY_BYTES_MIN

Reply = Any
"""Any of the values in the table above, nested in lists and dicts."""


class NullArray:
    """The type of `NULL_ARRAY`."""

    def __repr__(self) -> str:
        return "NULL_ARRAY"


NULL_ARRAY: Final = NullArray()


@mypyc_attr(native_class=False)
class Pairs(list[tuple[Reply, Reply]]):
    """Members with what belongs to each, in order: scores, values."""


@mypyc_attr(native_class=False)
class ByKey(list[tuple[Reply, Reply]]):
    """What was found for each key, in order."""


@mypyc_attr(native_class=False)
class SetReply(list[Reply]):
    """Members in no order."""


@mypyc_attr(native_class=False)
class Push(list[Reply]):
    """A message that answers no command."""


class Wire:
    """Bytes that are encoded already."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"Wire({self.data!r})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Later:
    """Elements of an array that are encoded when the client takes them, so that nobody else waits for all of them. What
    they are is decided already."""

    __slots__ = ()

    def away(self) -> list[Any]:
        """What has to be read from disk before, so that nobody waits for that."""
        return []

    def encoded(self) -> bytes:
        raise NotImplementedError


ReplyPart = bytes | Later
"""Of a reply."""


class Spliced:
    """An array whose last elements are encoded already, whatever the protocol, but for nulls before and after them."""

    __slots__ = ("body", "count", "head", "nulls_after", "nulls_before")

    def __init__(
        self, head: list[Reply], body: Sequence[ReplyPart], count: int, nulls_before: int = 0, nulls_after: int = 0
    ) -> None:
        self.head = head
        self.body = body
        self.count = count
        """How many elements there are in `body`."""
        self.nulls_before, self.nulls_after = nulls_before, nulls_after


class Verbatim:
    """Text for people, with its format (three letters)."""

    __slots__ = ("format", "text")

    def __init__(self, text: bytes, format: bytes = b"txt") -> None:  # noqa: A002
        self.text = text
        self.format = format

    def __repr__(self) -> str:
        return f"Verbatim({self.text!r}, {self.format!r})"


class ErrorReply:
    """An error: a code in capitals, a space and a sentence."""

    __slots__ = ("is_counted", "message")

    def __init__(self, message: str, *, is_counted: bool = False) -> None:
        self.message = message
        self.is_counted = is_counted
        """It is the error of a command inside, which was counted there."""

    def __repr__(self) -> str:
        return f"ErrorReply({self.message!r})"


class _Parts:
    """A reply that is being encoded."""

    def __init__(self, *, is_at_once: bool) -> None:
        self.all: list[ReplyPart] = []
        self.is_at_once = is_at_once
        """Nothing is left for later."""
        self.has_long = False
        """There is a long string among them as a part of its own, or something for later."""


def encode(reply: Reply, protocol: int) -> bytes:
    """The bytes of one reply in RESP2 or RESP3 (`protocol` is 2 or 3)."""
    kind = type(reply)
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if kind is int:
        return b":%d\r\n" % reply
    if isinstance(reply, Wire):
        return reply.data
    parts = _Parts(is_at_once=True)
    _append(parts, reply, protocol)
    return b"".join(cast("list[bytes]", parts.all))


def encode_long(reply: Reply, protocol: int) -> list[ReplyPart]:
    """The same in parts: one, or several if there are long strings in it, which are not copied, or something for
    later. The first is always bytes."""
    parts = _Parts(is_at_once=False)
    _append(parts, reply, protocol)
    if not parts.has_long:
        return [b"".join(cast("list[bytes]", parts.all))]
    found: list[ReplyPart] = []
    between: list[bytes] = []
    for part in parts.all:
        if isinstance(part, bytes) and len(part) < _LONG_BYTES:
            between.append(part)
            continue
        if between:
            found.append(b"".join(between))
            between.clear()
        found.append(part)
    if between:
        found.append(b"".join(between))
    return found


def encode_error(message: str) -> bytes:
    """An error reply; line ends in the message would end the reply, so they become spaces."""
    return b"-%b\r\n" % message.replace("\r", " ").replace("\n", " ").encode("utf-8", "surrogateescape")


def format_double(number: float) -> bytes:
    """A double as Redis prints it: integers without a point, otherwise 17 digits."""
    if number != number:
        return b"nan"
    if number in (float("inf"), float("-inf")):
        return b"inf" if number > 0 else b"-inf"
    return b"%.17g" % number


def _append(parts: _Parts, reply: Reply, protocol: int) -> None:
    kind = type(reply)
    if kind is bytes:
        if len(reply) < _LONG_BYTES:
            parts.all.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
        else:
            parts.all += (b"$%d\r\n" % len(reply), reply, b"\r\n")
            parts.has_long = True
    elif kind is int:
        parts.all.append(b":%d\r\n" % reply)
    elif reply is None:
        parts.all.append(NULL_BULK_2 if protocol == 2 else NULL_3)
    elif isinstance(reply, Wire):
        parts.all.append(reply.data)
    elif kind is list or kind is tuple:
        _append_items(parts, b"*", reply, protocol)
    else:
        _append_rare(parts, reply, protocol)


def _append_items(parts: _Parts, head: bytes, items: Any, protocol: int) -> None:
    parts.all.append(b"%b%d\r\n" % (head, len(items)))
    for item in items:
        _append(parts, item, protocol)


def _append_rare(parts: _Parts, reply: Reply, protocol: int) -> None:
    if isinstance(reply, str):
        parts.all.append(b"+%b\r\n" % reply.encode())
    elif isinstance(reply, bool):
        parts.all.append((b":1\r\n" if reply else b":0\r\n") if protocol == 2 else (b"#t\r\n" if reply else b"#f\r\n"))
    elif isinstance(reply, float):
        text = format_double(reply)
        parts.all.append(b"$%d\r\n%b\r\n" % (len(text), text) if protocol == 2 else b",%b\r\n" % text)
    elif isinstance(reply, dict):
        parts.all.append(b"*%d\r\n" % (2 * len(reply)) if protocol == 2 else b"%%%d\r\n" % len(reply))
        for key, value in reply.items():
            _append(parts, key, protocol)
            _append(parts, value, protocol)
    elif isinstance(reply, Pairs):
        flat = [item for pair in reply for item in pair] if protocol == 2 else reply
        _append_items(parts, b"*", flat, protocol)
    elif isinstance(reply, ByKey):
        if protocol == 2:
            _append_items(parts, b"*", reply, protocol)
        else:
            parts.all.append(b"%%%d\r\n" % len(reply))
            for key, value in reply:
                _append(parts, key, protocol)
                _append(parts, value, protocol)
    elif isinstance(reply, SetReply):
        _append_items(parts, b"*" if protocol == 2 else b"~", reply, protocol)
    elif isinstance(reply, Push):
        _append_items(parts, b"*" if protocol == 2 else b">", reply, protocol)
    elif isinstance(reply, Spliced):
        null = NULL_BULK_2 if protocol == 2 else NULL_3
        count = len(reply.head) + reply.nulls_before + reply.count + reply.nulls_after
        parts.all.append(b"*%d\r\n" % count)
        for item in reply.head:
            _append(parts, item, protocol)
        if reply.nulls_before:
            parts.all.append(null * reply.nulls_before)
        for part in reply.body:
            if isinstance(part, Later) and parts.is_at_once:
                parts.all.append(part.encoded())
            else:
                parts.all.append(part)
                parts.has_long = parts.has_long or isinstance(part, Later)
        if reply.nulls_after:
            parts.all.append(null * reply.nulls_after)
    elif isinstance(reply, ErrorReply):
        parts.all.append(encode_error(reply.message))
    elif isinstance(reply, NullArray):
        parts.all.append(NULL_ARRAY_2 if protocol == 2 else NULL_3)
    elif isinstance(reply, Verbatim):
        text = reply.text
        if protocol == 3:
            text = reply.format + b":" + text
        parts.all.append(b"%b%d\r\n%b\r\n" % (b"$" if protocol == 2 else b"=", len(text), text))
    else:
        raise TypeError(f"a reply cannot be a {type(reply).__name__}")
