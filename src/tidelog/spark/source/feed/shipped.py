"""A feed out of a copy in an object store: the rows that CHANGEFEED of a server would have sent. No server is asked.

    changes       each transaction from one of the copy's lineages (`copies/runs`), by the code of a server's feeds, so
                  the events, their order and their `seq` are the same
    values        a shard is replayed as it was at a moment (`copies/past_shard`), some slots at a time

The driver watches for the next manifest and says what a batch is; a part names the manifest by its number, and a task
opens that one. It ends at the last transaction that the copy has, never inside one.

A point of history that was read elsewhere, of a server or of an earlier manifest, is checked against the copy's epochs.
If what follows it is not there, because it was erased or lost, that is an error, and nothing is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import hiredis
import pyarrow as pa
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError, DataDirectoryError, EnvironmentFault, FeedDiverged, TooOld
from tidelog.feeds.event import encode_change
from tidelog.feeds.fanout import Fanout
from tidelog.feeds.feed import ChangeFeed, ChangeFeedRequest
from tidelog.feeds.router import Router
from tidelog.feeds.span import Span
from tidelog.ids import U64_MAX, ShardId, Ts
from tidelog.journal.control import Epoch
from tidelog.shipping.copy_reader import CopyReader
from tidelog.spark.copies.address import HistoryAddress, find_history, open_objects
from tidelog.spark.copies.lineages import LineageJournal
from tidelog.spark.copies.moment import PastMoment, find_moment
from tidelog.spark.copies.past_shard import PastShard, past_shard
from tidelog.spark.copies.runs import HistoryRun, history_runs, runs_between
from tidelog.spark.copies.wanted_keys import WantedKeys
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.feed.columns import EventColumns, RawEvent, ShardProgress, gathered
from tidelog.spark.source.feed.copied_streams import CopiedStreams
from tidelog.spark.source.feed.origin import FeedOrigin
from tidelog.spark.source.feed.position import Behind, FeedPosition
from tidelog.spark.source.feed.reading import FeedPart, HistoryLost, diverged, erased
from tidelog.spark.source.loss import raise_or_log
from tidelog.spark.source.stream.columns import SCHEMA, EntryColumns
from tidelog.spark.source.stream.copied import CopiedEntries
from tidelog.spark.source.stream.shipped import entries_between
from tidelog.store.type_table import TypeTable, value_types
from tidelog.streams.stream import Stream
from tidelog.system.clock import SystemClock
from tidelog.types.change import Change, LargeString, bulk

_PROTOCOL: Final = 2
_ENTRIES: Final = ("offset", "id", "timestamp", "tag", "entry", "fields")


@dataclass(frozen=True)
class CopyPlace:
    """Where a copy lies, as options of the data source say it."""

    url: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    database_id: str | None = None
    key_file: str | None = None
    database: int = 0


class CopyOrigin(FeedOrigin):
    """A copy, at the newest manifest that was seen."""

    def __init__(self, place: CopyPlace, address: HistoryAddress) -> None:
        self._place = place
        self._address = address
        self._reader: CopyReader | None = None
        self._looked_s = float("-inf")
        self._journals: dict[str, LineageJournal] = {}
        """Of the manifest, by lineage: they keep what they have fetched."""
        self._copied = CopiedStreams(address, place.database)
        self._past: PastShard | None = None
        """The values that are being read."""

    def __reduce__(self) -> Any:
        return CopyOrigin, (self._place, self._address)

    @property
    def poll_s(self) -> float:
        return limits.COPY_POLL_S

    @property
    def url(self) -> str:
        return self._place.url

    @property
    def database(self) -> int:
        return self._place.database

    def options(self) -> Mapping[str, str]:
        place = self._place
        given = {"from": place.url, "database": str(place.database)}
        given |= {} if place.database_id is None else {"database_id": place.database_id}
        given |= {} if place.key_file is None else {"ship_key_file": place.key_file}
        return {**given, **{f"storage.{name}": value for name, value in place.storage.items()}}

    # --- on the driver --------------------------------------------------------------------------------------------

    def position(self, since: int = 0, records: int | None = None) -> FeedPosition:
        self._look()
        runs, visible = self._runs(), self._visible()
        until: int = visible
        for run in runs if records is not None else ():
            if run.last > since:
                # A run that has fewer is taken to its end: then the batch is a small one.
                found = self._journal(run.lineage).ts_after(Ts(max(since, run.after, 0)), records or 1)
                until = min(found, run.last)
                break
        shards = list(range(self._address.open_copy().manifest.lineages[-1].shard_count))
        return FeedPosition(shards, visible, self._epoch_id(), max(until, min(since, visible)))

    def behind(self, since: int) -> Behind:
        self._look()
        begins: list[int] = []
        records = 0
        for run in self._runs():
            if run.last > since:
                journal, after = self._journal(run.lineage), Ts(max(since, run.after, 0))
                begins.append(journal.begin_of(after))
                records += sum(journal.records_after(after)) - sum(journal.records_after(Ts(run.last)))
        return Behind(min(begins, default=since), self._visible(), records)

    def oldest(self, _span: Span) -> int:
        runs = self._runs()
        begins = [after.after for before, after in pairwise(runs) if before.last < after.after]
        return max([0, runs[0].after, self._restored_ts(runs[0].lineage), *begins])

    def _restored_ts(self, lineage: str) -> int:
        """What came before the first record of a database that was restored: the copy has nothing of it."""
        journal = self._journal(lineage)
        first = journal.begin_of(Ts(0)) or U64_MAX
        return max(
            (epoch.last_ts for epoch in journal.epochs if not any(epoch.lsns) and epoch.last_ts <= first), default=0
        )

    def refuse_future(self, option: str, ts: int) -> None:
        if ts > max(self._visible(), time.time_ns() // 1000):
            raise BadOption(f"{option}={ts} lies ahead of the clock: give a ts in µs, or an ISO time")

    def manifest_up_to(self, ts: int) -> int | None:
        if self._visible() < ts:
            self._look()
        if self._visible() < ts:
            raise ClientError(f"{self.url} has not come as far as ts {ts}, up to which a batch was to be read")
        return self._address.manifest

    def refuse_lost(self, since: int, epoch: int, seen: int) -> None:
        epochs, visible = self._epochs(), self._visible()
        known = [index for index, each in enumerate(epochs) if each.id == epoch]
        if not known:  # it may have begun long ago
            epochs = self._epochs(is_all=True)
            known = [index for index, each in enumerate(epochs) if each.id == epoch]
        if not known:
            if seen > visible:
                raise ClientError(
                    f"{self.url} has not come as far as ts {seen}, and does not know the history (epoch {epoch}) that "
                    "this belongs to: try again later, or go on with what was read before"
                )
            raise diverged(since, FeedDiverged(f"epoch {epoch} is unknown", since=Ts(0)), self.url)
        after = epochs[known[0] + 1] if known[0] + 1 < len(epochs) else None
        if after is not None and (seen > after.last_ts or 0 < after.first_ts <= since):
            raise diverged(since, FeedDiverged("it was lost", since=after.last_ts), self.url)

    def _look(self) -> None:
        """Find the newest manifest, at most once in a while."""
        now_s = time.monotonic()
        if now_s - self._looked_s < limits.COPY_POLL_S:
            return
        address = self._address
        if self._reader is None:
            self._reader = CopyReader(
                lambda: open_objects(address.url, address.storage, address.key),
                *(address.url, address.database_id, SystemClock()),
            )
        try:
            number = self._reader.newest().number
        except OSError as error:
            raise EnvironmentFault(f"{self.url} cannot be read: {error}") from error
        self._looked_s = now_s
        if number != address.manifest:
            self._address = replace(address, manifest=number)
            copy = self._address.open_copy()
            there = {lineage.name for lineage in copy.manifest.lineages}
            self._journals = {name: journal for name, journal in self._journals.items() if name in there}
            for name, journal in self._journals.items():
                journal.advance(copy, name)

    def _runs(self) -> list[HistoryRun]:
        runs = history_runs(self._address.open_copy().manifest)
        if not runs:
            raise DataDirectoryError(f"{self.url} shows no moment yet: its first snapshot is still being shipped")
        return runs

    def _visible(self) -> Ts:
        """The last transaction that is there."""
        return Ts(self._runs()[-1].last)

    def _epochs(self, *, is_all: bool = False) -> list[Epoch]:
        """Those that had begun by then, oldest first; `is_all`: also those that the manifest does not name."""
        visible, journal = self._visible(), self._journal(self._runs()[-1].lineage)
        return [epoch for epoch in (journal.all_epochs() if is_all else journal.epochs) if epoch.last_ts <= visible]

    def _epoch_id(self) -> int:
        epochs = self._epochs()
        return epochs[-1].id if epochs else 0

    def _journal(self, lineage: str) -> LineageJournal:
        if lineage not in self._journals:
            self._journals[lineage] = LineageJournal(self._address.open_copy(), lineage)
        return self._journals[lineage]

    # --- on an executor -------------------------------------------------------------------------------------------

    def of_part(self, part: FeedPart) -> CopyOrigin:
        assert part.manifest is not None
        return CopyOrigin(self._place, replace(self._address, manifest=part.manifest))

    def read(self, part: FeedPart, spans: Sequence[Span], columns: EventColumns) -> Iterator[pa.RecordBatch]:
        if part.is_initial:
            return self._read_values(part, spans, columns)
        return self._read_changes(part, spans, columns)

    def _read_changes(self, part: FeedPart, spans: Sequence[Span], columns: EventColumns) -> Iterator[pa.RecordBatch]:
        since = part.since
        if part.epoch is not None and part.seen is not None:
            try:
                self.refuse_lost(part.since, part.epoch, part.seen)
            except HistoryLost as error:
                raise_or_log(error, fail_on_loss=part.fail_on_loss)
                since = error.since
        manifest, gathering = self._address.open_copy().manifest, _Gathering(part.shard, columns)
        try:
            runs = runs_between(manifest, since, part.until, fail_on_loss=part.fail_on_loss, url=self.url)
        except TooOld as error:
            raise erased(since, error, self.url) from None
        try:
            for run in runs:
                yield from self._expecting(self._read_run(run, part, since, spans, gathering))
            yield from self._expecting(gathering.rest())
        finally:
            self._copied.close()

    def _expecting(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._copied.expect(batch)
            yield batch

    def _read_run(
        self, run: HistoryRun, part: FeedPart, since: int, spans: Sequence[Span], gathering: _Gathering
    ) -> Iterator[pa.RecordBatch]:
        """By the steps of a server's feed that is behind."""
        after, until = Ts(max(since, run.after, 0)), Ts(min(part.until, run.last))
        shard = ShardId(part.shard)
        request = ChangeFeedRequest(spans, self.database, shard=shard, since=after, until=until)
        feed = ChangeFeed(request, _PROTOCOL, after)
        fanout = Fanout(TypeTable(value_types()), {self.database: feed.interests})
        router = Router(self._journal(run.lineage), [shard], after, spans, fanout.wants)
        try:
            while not feed.is_at_end:
                if not fanout.has_more:
                    parts = router.read()
                    if parts is None:
                        break
                    fanout.take_in(parts)
                fanout.step(router.whale_of)
                feed.move_to(fanout.whole_ts)
                if not fanout.has_more:
                    feed.move_to(router.reached_ts)
                while feed.out:
                    yield from gathering.add(feed.take())
        finally:
            router.close()

    def _read_values(self, part: FeedPart, spans: Sequence[Span], columns: EventColumns) -> Iterator[pa.RecordBatch]:
        """By the steps of a server's scan, with one ts for all: a copy does not change while it is read."""
        moment = find_moment(self._address, part.until)
        request = ChangeFeedRequest(spans, self.database, shard=ShardId(part.shard), is_initial=True)
        interests = ChangeFeed(request, _PROTOCOL, Ts(0)).interests
        gathering = _Gathering(part.shard, columns)
        for slots in _slots_at_once(moment, part.shard):
            with past_shard(moment, part.shard, WantedKeys(self.database).within(slots)) as past:
                self._past = past
                for key, value, _ in past.values():
                    if interests.of(key):
                        for change in past.store.types.of(value).initial(key, value):
                            yield from gathering.add_change(Ts(part.until), change)
                yield from gathering.rest()  # before its entries cannot be read any more
                self._past = None

    def copied(self, stream: bytes, value: bytes, ts: int) -> Iterator[pa.RecordBatch]:
        """What the copy had at its ts: the shard of the stream is replayed, as far as it concerns such streams."""
        wanted = CopiedEntries.of_value(value)
        if wanted.last < wanted.first:
            return
        found = self._copied.find(stream, ts)
        if found is not None and found.last >= wanted.last:
            yield from entries_between(found, max(wanted.first, 1), wanted.last, _entry_columns())

    def standing(self, stream: bytes, first: int, last: int) -> Iterator[pa.RecordBatch]:
        assert self._past is not None
        found = self._past.find(stream)
        assert isinstance(found, Stream)
        return entries_between(found, max(first, 1), last, _entry_columns())


def _entry_columns() -> EntryColumns:
    return EntryColumns(StructType([SCHEMA[name] for name in _ENTRIES]))


def _slots_at_once(moment: PastMoment, shard: int) -> Iterator[tuple[int, int]]:
    """The slots of a shard, so many at a time that a task holds only part of a large one."""
    step = moment.slots_of_a_task(*moment.open(), shard)
    first, last = moment.slots[shard]
    for begin in range(first, last + 1, step):
        yield begin, min(begin + step - 1, last)


class _Gathering:
    """Encoded events become batches of rows."""

    def __init__(self, shard: int, columns: EventColumns) -> None:
        self._shard = shard
        self._columns = columns
        self._decoder = hiredis.Reader()
        self._events: list[RawEvent] = []
        self._size = 0
        self._progress = ShardProgress(0, 0)

    def add(self, data: bytes | LargeString) -> Iterator[pa.RecordBatch]:
        """Events, or a piece of one; the batch that is full with them."""
        encoded = data if isinstance(data, bytes) else bulk(data.read(0, data.size))
        self._decoder.feed(encoded)
        self._size += len(encoded)
        self._events.extend(iter(self._decoder.gets, False))
        if len(self._events) >= limits.SPARK_BATCH_ROWS or self._size >= limits.SPARK_BATCH_BYTES:
            yield from self.rest()

    def add_change(self, ts: Ts, change: Change) -> Iterator[pa.RecordBatch]:
        encoded = encode_change(_PROTOCOL, ts, change)
        for piece in [encoded] if isinstance(encoded, bytes) else encoded:
            yield from self.add(piece)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left."""
        if self._events:
            found, self._progress = gathered(self._shard, self._events, self._progress)
            self._events, self._size = [], 0
            yield self._columns.batch(found)


def take_copy(options: Options, url: str) -> CopyOrigin:
    """What the options say, and what lies there now. On the driver."""
    return find_copy(
        CopyPlace(
            url,
            options.prefixed("storage."),
            options.text("database_id"),
            options.text("ship_key_file"),
            options.number("database", 0, limits.DATABASES - 1) or 0,
        )
    )


def find_copy(place: CopyPlace) -> CopyOrigin:
    address = find_history(place.url, place.storage, place.database_id, place.key_file, must_be_copy=True)
    return CopyOrigin(place, address)
