"""How a task reads its part of a feed: one shard after a ts, up to another.

    CHANGEFEED SHARD i SINCE a EPOCH e SEEN s UNTIL b SPAN ...

The server sends events in the order of their ts, then a checkpoint at `b` for each span, and closes. A connection that
ends otherwise was cut off: the task connects again, goes on in the transaction that it was in, and skips the events of
it that it already had. If the server sends nothing for a while, or says that its history is another one now, the task
fails. So a part is read to its end, or not at all.

INITIAL cannot be resumed, because values that are read again are newer. A task that loses its connection there fails,
and is repeated from the beginning.

With several servers, the task connects again wherever the leader is. With `from_followers` it reads from one that
follows, and from the leader if that one refuses it, because it has not come as far or has less of the journal, or if it
does not come further.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

import hiredis
import pyarrow as pa
import redis
from pyspark.sql.datasource import InputPartition

from tidelog import limits
from tidelog.errors import ClientError, FeedDiverged, ServerUnreachable, TooOld
from tidelog.feeds.span import Span
from tidelog.spark.endpoint import Endpoint, is_leader
from tidelog.spark.source.feed.columns import EventColumns, RawEvent, ShardProgress, gathered
from tidelog.spark.source.loss import raise_or_log


class FeedPart(InputPartition):
    """What one task reads: the changes of one shard after `since`, up to and including `until`."""

    def __init__(
        self,
        shard: int,
        since: int,
        until: int,
        *,
        epoch: int | None = None,
        seen: int | None = None,
        is_initial: bool = False,
        until_epoch: int | None = None,
        manifest: int | None = None,
        fail_on_loss: bool = True,
    ) -> None:
        self.shard = shard
        self.since = since
        self.until = until
        self.epoch = epoch
        """With `seen`: the history that `since` belongs to; None: whichever the server has."""
        self.seen = seen
        self.is_initial = is_initial
        """Read the values of now, and no changes."""
        self.until_epoch = until_epoch
        """The history that `until` belongs to."""
        self.manifest = manifest
        """Of a copy: the number of the manifest that is read."""
        self.fail_on_loss = fail_on_loss


class HistoryErased(TooOld):
    """The journal no longer has what a query has to read."""


class HistoryLost(FeedDiverged):
    """The server has lost something that was already read."""


def read_feed(
    server: Endpoint, part: FeedPart, spans: Sequence[Span], columns: EventColumns
) -> Iterator[pa.RecordBatch]:
    """The batches of a part. On an executor."""
    with _without_collecting():
        yield from _read(server, part, spans, columns)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Pause the garbage collector: events have no cycles, and searching them for some takes as long as reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(server: Endpoint, part: FeedPart, spans: Sequence[Span], columns: EventColumns) -> Iterator[pa.RecordBatch]:
    reading = _PartReader(part, spans)
    silent_since_s = time.monotonic()
    needs_leader = is_follower = has_begun = False
    while not reading.is_done:
        try:
            with server.connect(retries=False, is_follower_fine=not needs_leader) as client:
                is_follower = not is_leader(client)
                for events in reading.chunks(client):
                    silent_since_s = time.monotonic()
                    if events:
                        has_begun = True
                        found, reading.progress = gathered(part.shard, events, reading.progress)
                        yield columns.batch(found)
                        silent_since_s = time.monotonic()  # the consumer of a batch may take long
        except ServerUnreachable:
            cannot_resume = part.is_initial and (has_begun or not is_follower)
            if cannot_resume or time.monotonic() - silent_since_s > limits.SPARK_FEED_LOST_S:
                raise
            needs_leader = needs_leader or reading.is_stuck
            time.sleep(limits.SPARK_FEED_RETRY_S)
        except ClientError as error:
            if is_follower and not (part.is_initial and has_begun):
                needs_leader = True  # whose word is final
            elif isinstance(error, TooOld | FeedDiverged):
                reading.pass_over(error)
            else:
                raise


def erased(since: int, error: TooOld, who: str = "the journal") -> HistoryErased:
    return HistoryErased(
        f"{who} no longer has what came after ts {since}: it goes back to ts {error.oldest}. Read the values of "
        "now instead: give a new checkpoint and start=initial, or initial=true for a batch. failOnDataLoss=false goes "
        f"on after ts {error.oldest}",
        oldest=error.oldest,
    )


def diverged(since: int, error: FeedDiverged, who: str = "the server") -> HistoryLost:
    return HistoryLost(
        f"{who} has lost what came after ts {error.since}, but everything up to ts {since} was read: results "
        "that depend on it are wrong. Begin with a new checkpoint and start=initial, or undo what came after that ts "
        f"and begin with start={error.since}. failOnDataLoss=false goes on with what came after that ts instead",
        since=error.since,
    )


class _PartReader:
    """Reads one part, over one or more connections."""

    def __init__(self, part: FeedPart, spans: Sequence[Span]) -> None:
        self._part = part
        self._since = part.since
        self._seen = part.seen or 0
        self._spans = spans
        self.progress = ShardProgress(0, 0)
        """How far events were delivered."""
        self._epoch = part.epoch
        """The history in which `progress` is known to exist."""
        self._repeated = 0
        """How many events of the newest transaction this connection sends again."""
        self.is_done = False
        self.is_stuck = False
        """The server was one that follows, and did not come further."""

    def chunks(self, client: Any) -> Iterator[list[RawEvent]]:
        """The events of a new connection, in chunks of a good size; a chunk may be empty."""
        connection: Any = client.connection
        connection.send_command("FEED", "POSITION")
        epoch = connection.read_response()[self._part.shard][2]
        self._repeated, ends = self.progress.events, 0
        connection.send_command(*self._command())
        advance = _Advance()
        # redis-py has connected and authenticated. Events are read past it, because it inspects each of them.
        for events in _received(connection._sock):
            self._epoch = epoch  # the server accepted the position
            if not is_leader(client) and not advance.goes_on(events):
                self.is_stuck = True
                raise redis.ConnectionError(f"it has not come further for {limits.SPARK_FEED_LOST_S:g} s")
            ends += sum(1 for _ in takewhile(self._is_end, reversed(events)))  # one for each span, at the end
            self.is_done = ends >= len(self._spans)
            yield self._fresh([event for event in events if event[0] == b"value" or event[0] == b"deleterange"])
            if self.is_done:
                return

    def pass_over(self, error: TooOld | FeedDiverged) -> None:
        """Go on behind what was lost, or raise it.

        If history was lost that had been read, the history that took its place is read from where they part.
        """
        part = self._part
        if isinstance(error, TooOld):
            raise_or_log(erased(self._since, error), fail_on_loss=part.fail_on_loss)
            self._since = max(error.oldest, self._since + 1)
        else:
            raise_or_log(diverged(self._since, error), fail_on_loss=part.fail_on_loss)
            self._since = error.since
        self._epoch, self._seen, self.progress = None, 0, ShardProgress(0, 0)
        self.is_done = self._since >= part.until

    def _command(self) -> list[bytes | str | int]:
        part = self._part
        words: list[bytes | str | int] = ["CHANGEFEED", "SHARD", part.shard]
        if part.is_initial:
            words.append("INITIAL")
        else:
            # The newest transaction is sent again as a whole, because some of it may be missing.
            words += ["SINCE", max(self._since, self.progress.ts - 1)]
            if self._epoch is not None:
                words += ["EPOCH", self._epoch, "SEEN", max(self.progress.ts, self._seen)]
        words += ["UNTIL", part.until, "CHECKPOINT", limits.SPARK_FEED_CHECKPOINT_MS]
        for span in self._spans:
            words += ["SPAN", span.start, span.end]
        return words

    def _is_end(self, event: RawEvent) -> bool:
        return event[0] == b"checkpoint" and int(event[1]) >= self._part.until

    def _fresh(self, events: list[RawEvent]) -> list[RawEvent]:
        """Without the events that an earlier connection delivered."""
        if not self._repeated or not events:
            return events
        repeated = 0
        while repeated < min(self._repeated, len(events)) and events[repeated][1] == self.progress.ts:
            repeated += 1
        self._repeated -= repeated
        if self._repeated and repeated < len(events):
            raise FeedDiverged(f"the transaction at ts {self.progress.ts} has changed", since=self.progress.ts - 1)
        return events[repeated:]


class _Advance:
    """How far a server has come that follows another. It may have lost it, and not know yet."""

    def __init__(self) -> None:
        self._ts = -1
        self._since_s = time.monotonic()

    def goes_on(self, events: Sequence[RawEvent]) -> bool:
        """False: for a while, it has sent only checkpoints, and always the same."""
        now_s = time.monotonic()
        ts = int(events[-1][1])
        if ts > self._ts or events[-1][0] != b"checkpoint":
            self._ts, self._since_s = max(ts, self._ts), now_s
        return now_s - self._since_s <= limits.SPARK_FEED_LOST_S


def _received(sock: Any) -> Iterator[list[RawEvent]]:
    """All events that arrive, some at a time. Ends with an error: the server's, or that the connection was closed."""
    reader = hiredis.Reader(replyError=redis.ResponseError)
    events: list[Any] = []
    size = 0
    while data := sock.recv(limits.SPARK_FEED_READ_BYTES):
        size += len(data)
        reader.feed(data)
        events.extend(iter(reader.gets, False))
        if not events:
            continue
        last = events[-1]
        if isinstance(last, redis.ResponseError):
            if len(events) > 1:
                yield events[:-1]
            raise last
        is_checkpoint = last[0] == b"checkpoint"
        if is_checkpoint or len(events) >= limits.SPARK_BATCH_ROWS or size >= limits.SPARK_BATCH_BYTES:
            yield events
            events, size = [], 0
    if events:
        yield events
    raise redis.ConnectionError("the feed ended early")
