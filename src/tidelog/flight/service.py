"""The side of the store: every method runs on the loop, between its turns, and threads get the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog import limits
from tidelog.commands.streams import find_stream
from tidelog.engine.engine import Engine
from tidelog.errors import ClientError, CommandError, EnvironmentFault
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.flight.stream_slice import StreamSlice, first_offset, last_offset, make_slice
from tidelog.journal.durability import FsyncPolicy
from tidelog.server.turns import Turns
from tidelog.store.transaction import Transaction
from tidelog.streams.effects import StreamAppend
from tidelog.streams.node import TAGGED, SealedNode
from tidelog.streams.progress import next_id
from tidelog.streams.stream import Stream


class StreamFacts(NamedTuple):
    """Facts about a stream, for a client that is about to read it."""

    key: bytes
    database: int
    length: int
    size_bytes: int
    parts: Sequence[ReadRequest]
    """Requests that together read the range, for readers that work side by side."""


class Service:
    """The store, for Flight. Once it is closed, every call is refused: a call that has begun must not go on with the
    history of another store."""

    def __init__(self, engine: Engine, turns: Turns) -> None:
        self._engine = engine
        self._turns = turns
        self._is_closed = False

    def close(self) -> None:
        """The store is going to be closed."""
        self._is_closed = True

    def _check(self) -> None:
        if self._is_closed:
            raise EnvironmentFault("the store was closed during the call")
        if self._engine.gate.read_refusal is not None:
            raise CommandError(self._engine.gate.read_refusal)

    def read_slice(self, request: ReadRequest, first: int | None, left: int | None) -> StreamSlice:
        """The next piece of a range; `first` None: from its beginning."""
        transaction, stream = self._find(request.key, request.database)
        self._engine.commit(transaction)
        if stream is None:
            return StreamSlice([], None, left)
        if first is None:
            first, left = first_offset(stream, request.first), request.most
        return make_slice(stream, request, first, left)

    def facts(self, request: ReadRequest) -> StreamFacts:
        """A range and how to divide it."""
        transaction, stream = self._find(request.key, request.database)
        self._engine.commit(transaction)
        if stream is None:
            raise ClientError("there is no such stream")
        if request.size_bytes_max is not None:
            part, size = _as_far_as(stream, request, request.size_bytes_max)
            return StreamFacts(request.key, request.database, stream.length, size, [part])
        parts = [request] if request.most is not None else _divide(stream, request)
        return StreamFacts(request.key, request.database, stream.length, stream.size_bytes, parts)

    def streams(self, database: int, most: int) -> list[StreamFacts]:
        """The streams of a database, up to a number."""
        self._check()
        found: list[StreamFacts] = []
        for key in self._engine.store.database(database).all_keys():
            value = self._engine.store.database(database).peek(key)
            if type(value) is Stream:
                request = ReadRequest(key, database)
                found.append(StreamFacts(key, database, value.length, value.size_bytes, [request]))
                if len(found) >= most:
                    break
        return found

    def append(self, key: bytes, database: int, tags: Sequence[bytes], entries: Sequence[bytes]) -> int:
        """Append entries as one transaction; returns the offset of the first."""
        self._check()
        row = self._engine.table.find(b"TWRITE")
        assert row is not None
        refusal = self._engine.gate.refusal_of(row, (b"TWRITE",))
        if refusal is not None:
            raise CommandError(refusal)
        if self._engine.gate.holds(row, (b"TWRITE",)):
            raise CommandError("ERR writes are paused by CLIENT PAUSE: try again")
        transaction, stream = self._find(key, database)
        ms, seq = next_id(stream, transaction.now_ms, len(entries))
        offset = stream.next if stream is not None else 1
        try:
            transaction.run([StreamAppend(key, offset, ms, seq, TAGGED, tags, entries)])
            self._engine.commit(transaction)
        except ClientError:
            raise  # too large: nothing happened
        except Exception as error:
            self._engine.fail(error)
        self._engine.store.journal.writer.write()
        if self._engine.store.signals:
            self._engine.blocking.serve()
        return offset

    async def settle(self) -> None:
        """Until what was appended is as durable as the policy wants it before an answer."""
        self._check()
        writer = self._engine.store.journal.writer
        if writer.policy is FsyncPolicy.ALWAYS:
            await self._turns.commit.make_durable(writer.written_ts)

    def _find(self, key: bytes, database: int) -> tuple[Transaction, Stream | None]:
        self._check()
        transaction = self._engine.store.begin(database)
        return transaction, find_stream(transaction, key)


def _as_far_as(stream: Stream, request: ReadRequest, size_max: int) -> tuple[ReadRequest, int]:
    """The beginning of a range with about so many bytes of entries, and how many these are: at least one entry.

    A node counts what it takes once it is open, also if it is cold: that is what a reader gets. Within a node, all
    entries count the same. No node is opened for it.
    """
    first, last = first_offset(stream, request.first), last_offset(stream, request.last)
    reached, size = first - 1, 0
    for node in stream.nodes_from(first):
        if node.first_offset > last:
            break
        start = node.index_of(first)
        count = node.index_of(last + 1) - start
        if count <= 0:
            continue  # those at its end were deleted
        in_memory = node.opened_bytes if isinstance(node, SealedNode) else node.size_bytes
        entry_bytes = max(in_memory // max(len(node), 1), 1)
        fitting = min(count, max((size_max - size) // entry_bytes, 0 if reached >= first else 1))
        if fitting == 0:
            break
        reached = node.offset_at(start + fitting - 1)
        size += fitting * entry_bytes
        if fitting < count:
            break
    return request._replace(first=RangeEnd(offset=first), last=RangeEnd(offset=reached), size_bytes_max=None), size


def _divide(stream: Stream, request: ReadRequest) -> list[ReadRequest]:
    """A range in parts of about the same size, at the bounds of nodes."""
    first, last = first_offset(stream, request.first), last_offset(stream, request.last)
    starts, size = [first], 0
    for node in stream.nodes_from(first):
        if node.first_offset > last:
            break
        if size >= limits.FLIGHT_PART_BYTES and node.first_offset > starts[-1]:
            starts.append(node.first_offset)
            size = 0
        size += node.size_bytes or node.disk_bytes
    ends = [*(start - 1 for start in starts[1:]), last]
    return [
        request._replace(first=RangeEnd(offset=start), last=RangeEnd(offset=end))
        for start, end in zip(starts, ends, strict=True)
    ]
