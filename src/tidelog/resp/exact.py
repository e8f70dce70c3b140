"""Requests, decoded strictly: every length is checked before anything is kept for it.

    *<count>\\r\\n  then count times  $<length>\\r\\n<bytes>\\r\\n      or a line of words (`inline`)

It is fed bytes, returns the commands that are complete, and keeps the rest. What a length declares is never allocated:
memory grows with what has arrived. `decoder` says when it is used.

If it is asked to, it leaves a large argument in the pieces in which it came, and `Unjoined` says where they belong:
joining half a gigabyte takes a tenth of a second or more, so a thread does that (`server/joining.py`).

It takes what Redis takes: a length ends at a carriage return, and neither the byte after it nor the two after an
argument are looked at. Two things are refused at once for which Redis would wait: a zero byte in a length, and a line
that is too long although its end has arrived.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.resp.inline import split_line
from tidelog.resp.plain import BULK_BYTES_MAX, take_arguments

Words = list[bytes]

_STAR: Final = ord("*")
_DOLLAR: Final = b"$"
_MANY: Final = 16
"""Of a command with so many arguments to come, those in their plain form are taken all at once."""
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
"""The only spelling that Redis takes."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a client may send."""

    arguments_max: int = limits.ARGUMENTS_MAX
    bulk_bytes_max: int = limits.BULK_BYTES_MAX
    is_authenticated: bool = True
    leaves_large: bool = False
    """Large arguments are left in pieces (`Unjoined`), for somebody who joins them beside the loop."""


class Unjoined(NamedTuple):
    """A large argument that is complete and still in pieces; its command has an empty word in its place."""

    command: Words
    at: int
    pieces: list[bytes]


class ProtocolError(Exception):
    """The peer broke the protocol: it is told and its connection ends."""


class ExactDecoder:
    """One connection's requests.

    `feed` raises `ProtocolError` if they are wrong; what came before can still be taken. Fed again, it looks once more
    at what was wrong: only other limits make a difference.
    """

    def __init__(self, bounds: RequestLimits) -> None:
        self.bounds = bounds
        self._buffer = bytearray()
        self._at = 0
        self._missing = 0
        """Arguments of the command under way that are still to come."""
        self._arguments: Words = []
        self._arguments_bytes = 0
        """Of the command under way: of arguments that have arrived, and of the one that was declared last."""
        self._bulk_length = -1
        """Of the argument under way; -1: its length is still to come."""
        self._is_strange = False
        """The buffer was tried as plain arguments: the rest is taken one by one."""
        self._skip_until = 0
        """Nothing can be complete before the buffer is this long."""
        self.gathering = 0
        """Bytes of a large argument that are still to come; 0: none is under way."""
        self._pieces: list[bytes] = []
        """What has come of it ..."""
        self._small_pieces = bytearray()
        """... and small pieces after that, which will be one."""
        self._unjoined: list[Unjoined] = []
        """Large arguments of the command under way ..."""
        self.unjoined: list[Unjoined] = []
        """... and of those that are complete; the taker empties it."""
        self._commands: list[Words] = []
        self.is_behind = False
        """More commands may be complete: `feed` takes them, also without more bytes."""

    @property
    def is_idle(self) -> bool:
        """Between two commands, with nothing buffered."""
        return not self._buffer and not self._missing

    @property
    def buffered_bytes(self) -> int:
        """What has arrived of a command that is not complete."""
        gathered = sum(map(len, self._pieces)) + len(self._small_pieces)
        return len(self._buffer) + sum(map(len, self._arguments)) + gathered

    def feed(self, data: bytes) -> None:
        """Take bytes, and of them all complete commands, up to so many: lines of two bytes may be commands, and empty
        ones of a byte take time too."""
        for _ in range(limits.DECODED_COMMANDS_MAX):
            if not self.feed_one(data):
                return
            data = b""
        self.is_behind = bool(self._buffer)

    def feed_one(self, data: bytes) -> bool:
        """Take bytes, and of them the command that is under way, if it is complete."""
        self.is_behind = False
        if self.gathering:
            data = self._gather(data)
            if self.gathering:
                return False
        if self._missing >= _MANY and self.bounds.is_authenticated:
            at = self._feed_plain(data)
            self._buffer += data[at:]
            if not self._missing:
                return True
        else:
            self._buffer += data
        if len(self._buffer) < self._skip_until:
            return False
        self._skip_until = 0
        self._is_strange = False
        try:
            while self._step():
                if not self._missing:
                    return True
            return False
        finally:
            del self._buffer[: self._at]
            self._skip_until = max(self._skip_until - self._at, 0)
            self._at = 0

    def take_commands(self) -> list[Words]:
        """Those that are complete."""
        commands, self._commands = self._commands, []
        return commands

    def take_rest(self) -> bytes:
        """The bytes behind the last command, which another decoder is to have."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    def keep(self, data: bytes) -> None:
        """Take bytes behind what was wrong, for when it is looked at again."""
        self._buffer += data

    def _step(self) -> bool:
        """Take the next piece; false if it has not arrived yet."""
        if self._bulk_length >= 0:
            return self._take_bulk()
        if self._missing:
            if self._missing >= _MANY and not self._is_strange and self.bounds.is_authenticated:
                return self._take_buffered() or self._take_bulk_length()
            return self._take_bulk_length()
        if self._at >= len(self._buffer):
            return False
        if self._buffer[self._at] == _STAR:
            return self._take_count()
        return self._take_inline()

    def _find_line(self, end: bytes, problem: str) -> bytes | None:
        """The line that begins here, without its end; None if that has not arrived."""
        length = self._buffer.find(end, self._at) - self._at
        if length < 0:
            length = len(self._buffer) - self._at
            if length > limits.INLINE_BYTES_MAX:
                raise ProtocolError(f"Protocol error: {problem}")
            return None
        if length > limits.INLINE_BYTES_MAX:
            raise ProtocolError(f"Protocol error: {problem}")
        return bytes(self._buffer[self._at : self._at + length])

    def _find_head(self, problem: str) -> bytes | None:
        """The head that begins here, without the two bytes after it; None if they have not arrived."""
        line = self._find_line(b"\r", problem)
        return line if line is not None and self._at + len(line) + 2 <= len(self._buffer) else None

    def _take_count(self) -> bool:
        head = self._find_head("too big mbulk count string")
        if head is None:
            return False
        count = _number(head[1:])
        if count is None or count > self.bounds.arguments_max:
            raise ProtocolError("Protocol error: invalid multibulk length")
        if count > limits.UNAUTHENTICATED_ARGUMENTS_MAX and not self.bounds.is_authenticated:
            raise ProtocolError("Protocol error: unauthenticated multibulk length")
        self._at += len(head) + 2
        self._missing = max(count, 0)
        return True

    def _feed_plain(self, data: bytes) -> int:
        """Take what is plain of a long command that is under way, without buffering it; returns how many bytes."""
        at = 0
        if self._bulk_length >= 0:
            at = self._bulk_length + 2 - len(self._buffer)
            if at > len(data):
                return 0
            self._buffer += data[:at]
            self._take_bulk()
            self._buffer.clear()
            self._at = self._skip_until = 0
        return at if self._buffer else self._take_arguments(data, at)

    def _take_buffered(self) -> bool:
        """The same of what is buffered; false if that is nothing."""
        self._is_strange = True
        with memoryview(self._buffer) as view:
            taken = self._take_arguments(bytes(view[self._at :]), 0)
        self._at += taken
        return taken > 0

    def _take_arguments(self, data: bytes, at: int) -> int:
        """Take arguments that are whole and plain from a place on; returns where the first that is not begins. Hot."""
        arguments, before = self._arguments, len(self._arguments)
        if self._arguments_bytes + len(data) > limits.COMMAND_BYTES_MAX:
            return at
        at = take_arguments(data, at, self._missing, arguments, min(self.bounds.bulk_bytes_max, BULK_BYTES_MAX))
        for index in range(before, len(arguments)):
            self._arguments_bytes += len(arguments[index])
        self._missing -= len(arguments) - before
        if not self._missing:
            self._end_command()
        return at

    def _take_bulk_length(self) -> bool:
        head = self._find_head("too big bulk count string")
        if head is None:
            return False
        if not head.startswith(_DOLLAR):
            got = (head[:1] or b"\r").decode("utf-8", "surrogateescape")
            raise ProtocolError(f"Protocol error: expected '$', got '{got}'")
        length = _number(head[1:])
        if length is None or not 0 <= length <= self.bounds.bulk_bytes_max:
            raise ProtocolError("Protocol error: invalid bulk length")
        if length > limits.UNAUTHENTICATED_BULK_BYTES_MAX and not self.bounds.is_authenticated:
            raise ProtocolError("Protocol error: unauthenticated bulk length")
        if self._arguments_bytes + length > limits.COMMAND_BYTES_MAX:
            raise ProtocolError("Protocol error: too big command")
        self._at += len(head) + 2
        self._arguments_bytes += length
        self._bulk_length = length
        if self.bounds.leaves_large and length >= limits.STAGED_BYTES_MIN:
            self._begin_gathering(length)
        return not self.gathering

    def _begin_gathering(self, length: int) -> None:
        """Keep the pieces of an argument apart from the buffer, which has some of it. Its end is then as for an empty
        one: two bytes that nobody looks at."""
        with memoryview(self._buffer) as view:
            come = bytes(view[self._at : self._at + length])
        self._at += len(come)
        self._bulk_length = 0
        self.gathering = length
        self._gather(come)

    def _gather(self, data: bytes) -> bytes:
        """Take what belongs to the large argument under way; returns the rest."""
        piece, rest = data[: self.gathering], data[self.gathering :]
        self.gathering -= len(piece)
        if len(piece) >= limits.STAGED_PIECE_BYTES_MIN and not self._small_pieces:
            self._pieces.append(piece)
            return rest
        self._small_pieces += piece
        if len(self._small_pieces) >= limits.STAGED_PIECE_BYTES_MIN or not self.gathering:
            self._pieces.append(bytes(self._small_pieces))
            self._small_pieces.clear()
        return rest

    def _take_bulk(self) -> bool:
        end = self._at + self._bulk_length
        if len(self._buffer) < end + 2:
            self._skip_until = end + 2
            return False
        if self._pieces:
            self._unjoined.append(Unjoined(self._arguments, len(self._arguments), self._pieces))
            self._pieces = []
        with memoryview(self._buffer) as view:
            self._arguments.append(bytes(view[self._at : end]))
        self._at = end + 2
        self._bulk_length = -1
        self._missing -= 1
        if not self._missing:
            self._end_command()
        return True

    def _end_command(self) -> None:
        self._commands.append(self._arguments)
        if self._unjoined:
            self.unjoined += self._unjoined
            self._unjoined.clear()
        self._arguments = []
        self._arguments_bytes = 0

    def _take_inline(self) -> bool:
        line = self._find_line(b"\n", "too big inline request")
        if line is None:
            return False
        words = split_line(line)
        if words is None:
            raise ProtocolError("Protocol error: unbalanced quotes in request")
        self._at += len(line) + 1
        if words:
            self._commands.append(words)
        return True


def _number(text: bytes) -> int | None:
    """A number as Redis reads it; None: it is none, or does not fit 64 bits."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
