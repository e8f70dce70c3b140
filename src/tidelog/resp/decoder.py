"""What a client sent, as commands: hiredis where it is safe, our own decoder where it is not.

hiredis parses commands in C, but it was made for replies: it makes room for as many elements
as a head declares, takes types that a request cannot have, and knows no line form. So it gets only bytes in which no
head can declare much, and everything else goes to `exact`:

- a client that has not authenticated, or sends lines instead of arrays;
- bytes with something like the head of a huge array, or of an item that is no bulk string (it may be data; `exact`
  knows). They are looked for in the *outline* of the bytes, in which all heads of one sort look the same, so that two
  searches find them: a regular expression for all takes longer than hiredis itself;
- bytes that hiredis made anything of but lists of `bytes`;
- few large arguments, which are faster copied there than searched here;
- a command that is larger than a read buffer or two: a whale is kept in one piece there, not copied as it grows.

The one that decodes holds the command under way, so they change places by handing over its bytes: hiredis's are kept
beside it, bounded, `exact` makes them anew if they are few. hiredis does not say where that command begins, nor whether
there is one (`has_data` is false between two arguments). Mostly the number of asterisks tells: every command has one.
If there are more, the commands that came out are measured.

A request that is made to can hide other types behind an argument that ends like the head of a short bulk string, or not
in a line end: what hiredis makes lists of `bytes` of is then let through, and of the rest it is told only when the
command is complete. Redis would refuse both at once.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Final

import hiredis

from tidelog import limits
from tidelog.resp.exact import Command, ExactDecoder, ProtocolError, RequestLimits

_OUTLINE: Final = bytes(
    ord("*") if byte in b"*%>"  # aggregates
    else ord("+") if byte in b"+=(~|"  # what hiredis takes for a bulk string or an array
    else ord("0") if byte in b"0123456789"
    else byte if byte in b"$\n"
    else ord(".")
    for byte in range(256)
)  # fmt: skip
_HUGE_ARRAY: Final = b"*00000"
"""10,000 elements or more."""
_HUGE_BULK: Final = b"$000000"
"""100,000 bytes or more: if it is not here yet, `exact` can wait for it better, or say that it is too much."""
_ODD: Final = ord("+")
_ODD_HEAD: Final = re.compile(
    rb"\n[+=(~|](?<!\$[0-9]\r\n[+=(~|])(?<!\$[0-9]{2}\r\n[+=(~|])(?<!\$[0-9]{3}\r\n[+=(~|])|[~|][0-9]{5}"
)
"""The same in the bytes themselves, without arguments that only begin like it: `-inf (5`, `- +`."""
_ODD_ITEM: Final = re.compile(_ODD_HEAD.pattern.replace(b"[+=(~|]", rb"[-+=(:,#_*%~>|]") + rb"|\n\$-|\r[^\n]")
"""The like for every type, nulls, and line ends for which hiredis would wait: before the command is complete."""
_SHORT_HEAD_BYTES: Final = 6
"""What has to be seen of such a head."""
_TAIL_BYTES: Final = 32
"""No head that hiredis takes is longer."""
_LARGE_BYTES: Final = 4096
_SPARSE_BYTES_PER_ARGUMENT: Final = 400
"""In more bytes than that, with so few arguments, `exact` is faster: it does not look at each byte."""
_PIECE_BYTES_MAX: Final = 32768
"""hiredis moves what it has not decoded yet to the front again and again, so it gets no more at once."""
_REST_BYTES_MAX: Final = 4096
"""A command under way goes back to hiredis if there is no more of it."""
_STAR: Final = ord("*")
_NEWLINE: Final = ord("\n")

_LISTS: Final = frozenset([list])
_NO_MORE: Final = object()
"""What hiredis returns when there is no further command."""

_join = b"".join
_chain = chain.from_iterable


class RequestDecoder:
    """One connection's requests."""

    def __init__(self, bounds: RequestLimits) -> None:
        self._exact = ExactDecoder(bounds)
        self._fast = hiredis.Reader(notEnoughData=_NO_MORE)
        self._gets = self._fast.gets
        self._held: list[bytes] = []
        """What hiredis has of the command under way; empty: there is none."""
        self._held_bytes = 0
        self._held_stars = 0
        """Asterisks in the outline of it, without those in its tail."""
        self._held_tail = b""
        """The end of it: a head may go on in the next bytes. Empty if `_held` is."""
        self._is_exact = not bounds.is_authenticated
        self.error: str | None = None
        """What is wrong with the bytes after the last command; nothing more will come."""

    @property
    def bounds(self) -> RequestLimits:
        return self._exact.bounds

    def set_limits(self, bounds: RequestLimits) -> None:
        """From the next bytes on."""
        exact = self._exact
        if exact.bounds.is_authenticated and not bounds.is_authenticated and not self._is_exact:
            self._decode_exactly(b"")  # what is under way is decoded within the old limits
            self._is_exact = True
        exact.bounds = bounds

    def resume(self) -> list[Command]:
        """What follows the last command if only limits were in the way, and are no more (AUTH and more in one buffer);
        otherwise the error stays as it is."""
        self.error = None
        return self._go_exact(b"")

    def feed(self, data: bytes) -> list[Command]:
        """The commands that are complete with these bytes, of which there is at least one. Hot. Afterwards `error` may
        be set."""
        held, size = self._held, len(data)
        if self._is_exact or (not held and data[0] != _STAR):
            return self._go_exact(data)
        if size > _LARGE_BYTES:
            if data.count(b"$") * _SPARSE_BYTES_PER_ARGUMENT < size:
                return self._go_exact(data)
            if size > _PIECE_BYTES_MAX:
                return self._feed_pieces(data)
        tail = self._held_tail
        outline = data.translate(_OUTLINE) if not tail else (tail + data).translate(_OUTLINE)
        # `find`, because `in` takes twice as long for more than one byte.
        if outline.find(_HUGE_ARRAY) >= 0 or (_ODD in outline and _has_odd_head(outline, tail, data)):
            return self._go_exact(data)
        stars, fast = outline.count(b"*") + self._held_stars, self._fast
        try:
            fast.feed(data)
            command = self._gets()
            is_one = stars == 1 and data[-1] == _NEWLINE and not fast.has_data()
            if is_one and type(command) is list and (_join(command) or command):  # only `bytes` can be joined
                if held:
                    self._forget_held()
                return [command]
            commands: list[Command] = [] if command is _NO_MORE else [command, *iter(self._gets, _NO_MORE)]
            _join(_chain(commands))
        except (hiredis.ProtocolError, TypeError):
            return self._go_exact(data, is_fed=True)
        if not (all(commands) and _LISTS.issuperset(map(type, commands))):
            return self._go_exact(data, is_fed=True)
        count = len(commands)
        if stars != count or data[-1] != _NEWLINE or fast.has_data():
            if stars <= count:  # what was decoded, or is under way, is no array
                return self._go_exact(data, is_fed=True)
            return self._hold_rest(data, commands, outline, stars)
        if held:
            self._forget_held()
        return commands

    def _feed_pieces(self, data: bytes) -> list[Command]:
        commands: list[Command] = []
        for at in range(0, len(data), _PIECE_BYTES_MAX):
            commands += self.feed(data[at : at + _PIECE_BYTES_MAX])
        return commands

    # --- the command under way ----------------------------------------------------------------------------------

    def _hold_rest(self, data: bytes, commands: list[Command], outline: bytes, stars: int) -> list[Command]:
        """Hold what follows these commands, the first of which may have been under way."""
        if not commands:
            return self._hold(data, outline)
        data = b"".join((*self._held, data))
        self._forget_held()
        start = data.rindex(b"*")
        # With one asterisk more than commands, only the next command's stands behind the last command and begins
        # another one.
        last = _encoded(commands[-1])
        is_next = stars == len(commands) + 1 and data.endswith(last, 0, start) and not data.startswith(last, start)
        data = data[start if is_next else sum(map(_encoded_size, commands)) :]
        if data and data[0] != _STAR:
            self._start_fast()
            return commands + self._go_exact(data)
        return commands + self._hold(data, outline) if data else commands

    def _hold(self, data: bytes, outline: bytes) -> list[Command]:
        """Hold these bytes, or let the exact decoder do it, which may find that they are complete."""
        self._held.append(data)
        self._held_bytes += len(data)
        tail, self._held_tail = self._held_tail, (self._held_tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self._held_stars += _stars(tail) + _stars(data) - _stars(self._held_tail)
        if self._held_bytes > limits.DECODER_KEPT_BYTES_MAX or _is_odd(tail, data, outline):
            return self._go_exact(b"")
        return []

    def _forget_held(self) -> None:
        self._held.clear()
        self._held_bytes = self._held_stars = 0
        self._held_tail = b""

    # --- changing places ----------------------------------------------------------------------------------------

    def _go_exact(self, data: bytes, *, is_fed: bool = False) -> list[Command]:
        """Let the exact decoder take these bytes; hiredis may have been fed them already."""
        commands = self._decode_exactly(data, is_fed=is_fed)
        self._is_exact = (
            self.error is not None
            or not self._exact.bounds.is_authenticated
            or not (self._exact.is_idle or self._go_fast())
        )
        return commands

    def _decode_exactly(self, data: bytes, *, is_fed: bool = False) -> list[Command]:
        exact = self._exact
        if self.error is not None:
            exact.keep(data)  # AUTH may come to be run before it is too late
            return []
        try:
            for held in self._held:
                exact.feed(held)
            exact.feed(data)
        except ProtocolError as error:
            self.error = str(error)
        if self._held or is_fed:
            self._start_fast()
        commands, exact.commands = exact.commands, []
        return commands

    def _start_fast(self) -> None:
        self._fast = hiredis.Reader(notEnoughData=_NO_MORE)
        self._gets = self._fast.gets
        self._forget_held()

    def _go_fast(self) -> bool:
        """Hand the command under way to hiredis if it is short and plain; whether it was."""
        rest = self._exact.rest(min(_REST_BYTES_MAX, limits.DECODER_KEPT_BYTES_MAX))
        if rest is None or rest[0] != _STAR:
            return False
        outline = rest.translate(_OUTLINE)
        if outline.find(_HUGE_ARRAY) >= 0 or _is_odd(b"", rest, outline):
            return False
        self._fast.feed(rest)
        try:
            is_plain = self._gets() is _NO_MORE
        except hiredis.ProtocolError:
            is_plain = False
        if not is_plain:
            self._start_fast()
            return False
        self._exact = ExactDecoder(self._exact.bounds)
        self._hold(rest, outline)
        return True


def _is_odd(tail: bytes, data: bytes, outline: bytes) -> bool:
    """Whether a command that begins like this is better left to the exact decoder.

    Looking for odd items takes longer than decoding: in much data they are found when the command is complete.
    """
    return outline.find(_HUGE_BULK) >= 0 or (len(data) <= _LARGE_BYTES and _is_found(_ODD_ITEM, tail, data))


def _has_odd_head(outline: bytes, tail: bytes, data: bytes) -> bool:
    """The same as the expression says, which takes so long that it is asked only where there may be one."""
    return (outline.find(b"\n+") >= 0 or outline.find(b"+00000") >= 0) and _is_found(_ODD_HEAD, tail, data)


def _stars(data: bytes) -> int:
    return data.translate(_OUTLINE).count(b"*")


def _is_found(head: re.Pattern[bytes], tail: bytes, data: bytes) -> bool:
    """Whether there is such a head in these bytes, which follow others that were looked at before."""
    return head.search(tail + data, max(len(tail) - _SHORT_HEAD_BYTES, 0)) is not None


def _encoded(command: Command) -> bytes:
    """A command on the wire: there is one spelling only of a number."""
    return b"*%d\r\n%b" % (len(command), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in command]))


def _encoded_size(command: Command) -> int:
    return len(b"*%d\r\n" % len(command)) + sum([len(b"$%d\r\n\r\n" % len(word)) + len(word) for word in command])
