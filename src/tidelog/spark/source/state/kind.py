"""The kind `state`: the keyspace as it was at a moment, a row for each key and field. No server is asked.

    shard int          the shard of the key
    key binary
    type string        string, hash, set, zset, list, stream
    field binary       of a hash; the member of a set or sorted set
    value binary       as an initial value of a feed: of a set `1`, of a sorted set the score, of a list JSON, of a
                       stream its first and last offset
    expire timestamp   when the key expires
    ts bigint          the moment, or the last transaction of what is read if that is earlier; the same in all rows

    state              the prefix of the keys; `*`: every key
    from               a copy in an object store, or the folder of a data directory, a snapshot or a backup; a URL that
                       fsspec knows also names a data directory
    at                 the moment, a ts or an ISO time; unless given, the newest
    database           0 unless given
    database_id        of the copy, if there are several databases in it
    ship_key_file      the key of an encrypted copy
    storage.*          options for what opens the URL
    partition_slots    slots of one task; unless given, by the size of the files
    pushdown           as for streams; filters on `key` reduce what is read

One task replays the snapshot and the journal of one shard for a range of slots (`copies/past_shard`), so memory holds
that part of the keyspace. The driver reads the manifest, and of a data directory where its journal ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pyspark.sql.datasource import EqualTo, Filter, In, InputPartition, StringStartsWith
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.spark.copies.address import take_address
from tidelog.spark.copies.moment import find_moment
from tidelog.spark.copies.past_shard import past_shard
from tidelog.spark.copies.wanted_keys import WantedKeys
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.batch_reader import BatchReader
from tidelog.spark.source.kind import Kind
from tidelog.spark.source.state.rows import SCHEMA, StateColumns, StateRows
from tidelog.store.slots import slot_of

_EVERY_KEY = "*"


class StatePart(InputPartition):
    """What one task reads: some slots of one shard."""

    def __init__(self, shard: int, first_slot: int, last_slot: int) -> None:
        self.shard = shard
        self.first_slot = first_slot
        self.last_slot = last_slot


class StateKind(Kind):
    """The keyspace at a moment."""

    name: ClassVar[str] = "state"

    def schema(self) -> StructType:
        return SCHEMA

    def batch_reader(self, schema: StructType) -> BatchReader[StatePart]:
        return StateReader(self.target, self.options, schema)


class StateReader(BatchReader[StatePart]):
    """Reads one moment."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        url = options.text("from")
        if url is None:
            raise BadOption("state needs the option from: the URL of a copy, or the path of a data directory")
        at = options.moment_us("at")
        database = options.number("database", 0, limits.DATABASES - 1) or 0
        prefix = b"" if target == _EVERY_KEY else target.encode()
        self._wanted = WantedKeys(database, prefix)
        self._partition_slots = options.number("partition_slots", 1)
        self._columns = StateColumns(schema)
        address = take_address(options, url)
        options.end("a state")
        self._moment = find_moment(address, at)

    def narrow(self, filters: Sequence[Filter]) -> None:
        for each in filters:
            if getattr(each, "attribute", ()) == ("key",):
                self._wanted = _narrowed(self._wanted, each)

    def partitions(self) -> list[InputPartition]:
        disk, folder, snapshot = self._moment.open()
        found: list[InputPartition] = []
        for shard, slots in enumerate(self._moment.slots):
            if self._wanted.among is not None:
                own = sorted({slot for key in self._wanted.among if slots[0] <= (slot := slot_of(key)) <= slots[1]})
                found += [StatePart(shard, own[0], own[-1])] if own else []
                continue
            step = self._partition_slots or self._moment.slots_of_a_task(disk, folder, snapshot, shard)
            for first in range(slots[0], slots[1] + 1, step):
                found.append(StatePart(shard, first, min(first + step - 1, slots[1])))
        return found

    def read_part(self, part: StatePart) -> Iterator[Any]:
        wanted = self._wanted.within((part.first_slot, part.last_slot))
        with past_shard(self._moment, part.shard, wanted) as shard:
            rows = StateRows(self._columns, shard.store.types, part.shard, self._moment.until)
            for found in shard.values():
                yield from rows.add(found)
            if len(rows):
                yield rows.take()


def _narrowed(wanted: WantedKeys, condition: Filter) -> WantedKeys:
    asked: list[Any] | None = None
    if isinstance(condition, EqualTo):
        asked = [condition.value]
    elif isinstance(condition, In):
        asked = list(condition.value)
    elif isinstance(condition, StringStartsWith):
        prefix = condition.value.encode()
        return replace(wanted, prefix=prefix) if prefix.startswith(wanted.prefix) else wanted
    if asked is None:
        return wanted
    keys = frozenset(key.encode() if isinstance(key, str) else bytes(key) for key in asked if key is not None)
    return replace(wanted, among=keys if wanted.among is None else keys & wanted.among)
