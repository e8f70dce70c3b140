"""A stream that is followed: one run of entries, over any number of connections.

A lost connection is made anew, and reading goes on after the last entry. If the address names several servers, the new
connection is to the one that leads then. A server that follows now, and did not when the connection was made, is left.

That server may have less: another one was lost with entries that nobody else had, a crash took them, or the stream was
deleted. And other entries may have their offsets already. Nothing in an offset tells that, so what was printed last is
remembered and compared with what the server has. The first entry that it has not, or has otherwise, is where reading
goes on, and stderr says so. As equal entries print equal lines, what is compared is all that a reader can have seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.cli.exits import complain
from tidelog.cli.kept_link import KeptLink
from tidelog.cli.server_link import ServerLink
from tidelog.errors import ServerRefused, ServerUnreachable

_AT_ONCE: Final = b"1000"
_BLOCK_MS: Final = b"1000"
"""How long one call waits, so that Ctrl-C does not have to."""

Show = Callable[[int, bytes, Any], None]
"""Prints an entry: its offset, its tag and its content."""


def read_entries(link: ServerLink, key: bytes, offset: int, *more: bytes) -> list[Any]:
    """Some entries from an offset on, and None for each that was evicted; nothing if there are none."""
    return link.call(b"TREAD", key, b"%d" % offset, _AT_ONCE, *more) or []


def show_entries(found: list[Any], offset: int, show: Show) -> int:
    """Hand on what was read from an offset on; returns where to go on."""
    for entry in found:
        if entry is None:
            offset += 1
            continue
        number, tag, content = entry
        show(number, tag, content)
        offset = number + 1
    return offset


class Beginning(NamedTuple):
    """Where reading begins."""

    offset: int
    last: int = 0
    """The last offset before it that the stream has, if it was asked for: what comes next is new."""


class PrintedEntries:
    """The entries that were printed last: so many, and so many bytes, as can be read again in a moment."""

    def __init__(self) -> None:
        self._hashes: dict[int, tuple[int, int]] = {}
        """By offset, in order: the hash of an entry, and how many bytes it has."""
        self._bytes = 0
        self.is_complete = True
        """Nothing was forgotten."""

    @property
    def first(self) -> int | None:
        return next(iter(self._hashes), None)

    def add(self, offset: int, tag: bytes, content: Any) -> None:
        size = len(tag) + _size(content)
        self._hashes[offset] = _hash(tag, content), size
        self._bytes += size
        while len(self._hashes) > limits.TAIL_REMEMBERED_ENTRIES or self._bytes > limits.TAIL_REMEMBERED_BYTES:
            _, size = self._hashes.pop(next(iter(self._hashes)))
            self._bytes -= size
            self.is_complete = False

    def differs(self, offset: int, tag: bytes, content: Any) -> bool:
        """Whether another entry was printed for an offset."""
        known = self._hashes.get(offset)
        return known is not None and known[0] != _hash(tag, content)

    def forget_from(self, offset: int) -> None:
        for each in [known for known in self._hashes if known >= offset]:
            self._bytes -= self._hashes.pop(each)[1]


def _hash(tag: bytes, content: Any) -> int:
    return hash((tag, tuple(content) if isinstance(content, list) else content))


def _size(content: Any) -> int:
    return sum(map(len, content)) if isinstance(content, list) else len(content)


class FollowedStream:
    """Prints the entries of a stream, and new ones as they come."""

    def __init__(self, address: ServerAddress, key: bytes, show: Show, flush: Callable[[], None]) -> None:
        """`flush` is called after each portion of entries."""
        self._address = address
        self._key = key
        self._show = show
        self._flush = flush
        self._printed = PrintedEntries()
        self._offset = 0
        """Of the next entry."""
        self._last = 0
        """The highest offset that the stream is known to have had, of those before it."""

    def run(self, begin: Callable[[ServerLink], Beginning]) -> NoReturn:
        """Until it is interrupted, or the server refuses; `begin` is called with the first connection."""
        kept = KeptLink(self._address)
        has_begun = False

        def follow(link: ServerLink) -> NoReturn:
            nonlocal has_begun
            if has_begun:
                self._compare(link)
            else:
                self._offset, self._last = begin(link)
                has_begun = True
            while True:
                kept.answered()
                self._read(link)

        kept.run(follow, lambda: f"resuming at offset {self._offset}")

    def _read(self, link: ServerLink) -> None:
        """Print what is next, or wait for it for a while."""
        found = read_entries(link, self._key, self._offset, b"BLOCK", _BLOCK_MS)
        if not found:
            self._leave_follower(link)
        self._offset = show_entries(found, self._offset, self._print)
        self._flush()

    def _print(self, number: int, tag: bytes, content: Any) -> None:
        self._show(number, tag, content)
        self._printed.add(number, tag, content)
        self._last = number

    def _leave_follower(self, link: ServerLink) -> None:
        """Of several servers, one that does not lead any more may be cut off from the one that does."""
        if not self._address.is_searched:
            return
        try:
            role = link.call(b"ROLE")
        except ServerRefused:  # who may not ask stays
            return
        if role[0] == b"slave":
            raise ServerUnreachable(f"{link.place} follows another server now")

    # --- after a lost connection --------------------------------------------------------------------------------------

    def _compare(self, link: ServerLink) -> None:
        """Go back to where the server has not what was printed."""
        [(_, last)] = link.call(b"TREAD", self._key, b"1", b"0", b"WITHINFO")
        offset = self._first_other(link, last)
        if offset is None:
            return
        is_known = self._printed.is_complete or offset != self._printed.first
        complain(
            f"the server at {link.place} does not have what the stream had from offset {offset} to {self._last}"
            f"{'' if is_known else ', and perhaps before that'}: it was lost with another server or in a crash, or "
            f"deleted; going on at offset {offset}"
        )
        self._printed.forget_from(offset)
        self._offset, self._last = offset, offset - 1

    def _first_other(self, link: ServerLink, last: int) -> int | None:
        """The first offset whose entry is not the one that was printed; None: all are."""
        others: list[int] = []

        def compare(number: int, tag: bytes, content: Any) -> None:
            if self._printed.differs(number, tag, content):
                others.append(number)

        offset = self._printed.first
        while offset is not None and offset <= self._last and (found := read_entries(link, self._key, offset)):
            offset = show_entries(found, offset, compare)
            if others:
                return others[0]
        return last + 1 if last < self._last else None
