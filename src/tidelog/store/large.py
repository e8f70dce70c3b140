"""Large strings that a thread makes before the command that wants them runs.

APPEND to a string of 256 MB makes a new string, which takes a tenth of a second or more. So the engine asks the command
first which pieces it is going to join (`Command.large`), has a thread join and stage them, and then runs the command,
which asks for the string of its pieces (`Transaction.join`). If the pieces are the same, it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.journal.staging import StagedBlob

_ZEROS: Final = bytes(limits.MIB)


class Piece(NamedTuple):
    """A part of a string."""

    source: bytes
    start: int
    end: int


Pieces = Sequence[Piece]


class Joined(NamedTuple):
    """A string and what it was made of."""

    pieces: Pieces
    value: bytes


class LargePayloads(NamedTuple):
    """Large payloads of a received transaction that a thread has written and decoded, by the shard and the lsn of their
    records."""

    blobs: Mapping[tuple[int, int], StagedBlob]
    """Where they lie ..."""
    operations: Mapping[tuple[int, int], Any]
    """... and what they mean."""


NONE_LARGE: Final = LargePayloads({}, {})


def whole(source: bytes) -> Piece:
    return Piece(source, 0, len(source))


def zeros(count: int) -> list[Piece]:
    """So many zero bytes; none if that is less than one."""
    count = max(count, 0)
    sizes = [len(_ZEROS)] * (count // len(_ZEROS)) + [count % len(_ZEROS)]
    return [Piece(_ZEROS, 0, size) for size in sizes if size]


def size_of(pieces: Pieces) -> int:
    return sum(piece.end - piece.start for piece in pieces)


def join(pieces: Pieces) -> bytes:
    """The string of these pieces. On any thread: it lets others run, as joining `bytes` does if they are large."""
    if len(pieces) == 1 and pieces[0].start == 0 and pieces[0].end == len(pieces[0].source):
        return pieces[0].source
    parts: list[bytes] = []
    for source, start, end in pieces:
        if end - start == len(source):
            parts.append(source)
        else:
            step = limits.STAGED_PIECE_BYTES
            parts += [source[at : min(at + step, end)] for at in range(start, end, step)]
    return b"".join(parts)


def is_same(some: Pieces, others: Pieces) -> bool:
    """Whether both make the same string, by the identity of what is large."""
    return len(some) == len(others) and all(
        one.start == other.start
        and one.end == other.end
        and (one.source is other.source or (one.end < limits.STAGED_BYTES_MIN and one.source == other.source))
        for one, other in zip(some, others, strict=True)
    )
