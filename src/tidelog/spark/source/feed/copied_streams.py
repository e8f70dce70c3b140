"""Streams that RENAME, COPY and MOVE made, out of a copy, as they were at that moment.

A replay of the shard goes from one moment to the next, so the shard is replayed once for all such events of a batch of
rows, and not once for each. It begins with the snapshot before the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa

from tidelog.ids import Ts
from tidelog.spark.copies.address import HistoryAddress
from tidelog.spark.copies.moment import find_moment
from tidelog.spark.copies.past_shard import PastShard, past_moments
from tidelog.spark.copies.wanted_keys import WantedKeys
from tidelog.spark.source.stream.copied import copies_in
from tidelog.store.slots import slot_of
from tidelog.streams.stream import Stream

_NEEDED = frozenset(["key", "type", "field", "ts"])


class CopiedStreams:
    """Of one database in one copy. Whoever has found a stream reads it before it looks for the next."""

    def __init__(self, address: HistoryAddress, database: int) -> None:
        self._address = address
        self._database = database
        self._expected: dict[int, set[bytes]] = {}
        """Keys of streams, by the moments at which they were made."""
        self._open = ExitStack()
        self._at: Callable[[Ts], PastShard] | None = None
        self._wanted: frozenset[bytes] = frozenset()
        self._reached = self._until = 0
        """The moment up to which the replay has come, and the last to which it can."""

    def expect(self, rows: pa.RecordBatch) -> None:
        """Those that these events tell of are asked for next."""
        self.close()
        if set(rows.schema.names) >= _NEEDED:
            for each in copies_in(rows):
                self._expected.setdefault(each["ts"], set()).add(each["key"])

    def find(self, stream: bytes, ts: int) -> Stream | None:
        """A stream as it was at a moment; None: it was none."""
        if self._at is None or stream not in self._wanted or not self._reached <= ts <= self._until:
            self._begin(stream, ts)
        assert self._at is not None
        self._reached = ts
        found = self._at(Ts(ts)).find(stream)
        return found if isinstance(found, Stream) else None

    def _begin(self, stream: bytes, ts: int) -> None:
        self._open.close()
        first = find_moment(self._address, ts)
        slot = slot_of(stream)
        shard = next(number for number, (begin, end) in enumerate(first.slots) if begin <= slot <= end)
        history_ts = self._address.open_copy().lineage(first.lineage).history_ts
        later = {at: keys for at, keys in self._expected.items() if ts <= at <= history_ts}
        self._wanted = frozenset([stream]).union(*later.values())
        self._reached, self._until = ts, max(later, default=ts)
        moment = replace(first, until=Ts(self._until))
        wanted = WantedKeys(self._database, among=self._wanted)
        self._at = self._open.enter_context(past_moments(moment, shard, wanted))

    def close(self) -> None:
        self._open.close()
        self._at = None
        self._expected = {}
