"""Where a feed comes from, for those who read it: a server, or a copy in an object store (`shipped`).

What is read is the same: the same parts, the same rows, the same ts and epochs. So whoever has read one of them up to a
ts can go on with the other.

    on the driver       position, behind, oldest, refuse_future, refuse_lost, manifest_up_to
    on an executor      of_part, and what that has: read, copied, standing
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tidelog import limits
from tidelog.feeds.span import Span
from tidelog.spark.endpoint import Endpoint, source_options, take_read_endpoint
from tidelog.spark.options import Options
from tidelog.spark.source.feed.columns import EventColumns
from tidelog.spark.source.feed.position import (
    Behind,
    FeedPosition,
    ask_behind,
    ask_oldest,
    ask_position,
    explored_feed_server,
    refuse_future,
)
from tidelog.spark.source.feed.reading import FeedPart, read_feed
from tidelog.spark.source.stream.copied import read_copied
from tidelog.spark.source.stream.standing import read_standing


class FeedOrigin(ABC):
    """Where a feed comes from. It travels to the executors."""

    @property
    def poll_s(self) -> float:
        """How often it is asked where it stands."""
        return limits.SPARK_POLL_S

    @property
    @abstractmethod
    def url(self) -> str:
        """For messages."""

    @property
    @abstractmethod
    def database(self) -> int: ...

    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """The options that make the data source read it."""

    def explored(self) -> FeedOrigin:
        """The same with what it can do; once all options are known to be right."""
        return self

    # --- on the driver --------------------------------------------------------------------------------------------

    @abstractmethod
    def position(self, since: int = 0, records: int | None = None) -> FeedPosition:
        """Where it stands now, and where about so many records after a ts end."""

    @abstractmethod
    def behind(self, since: int) -> Behind:
        """What its journal has after a ts."""

    @abstractmethod
    def oldest(self, _span: Span) -> int:
        """The ts after which it has everything."""

    @abstractmethod
    def refuse_future(self, option: str, ts: int) -> None:
        """Refuse a moment that it has not reached."""

    @abstractmethod
    def refuse_lost(self, since: int, epoch: int, seen: int) -> None:
        """Refuse to go on after a ts if what was seen by then was lost."""

    @abstractmethod
    def manifest_up_to(self, ts: int) -> int | None:
        """Of a copy: the number of a manifest with all that parts up to a ts read."""

    # --- on an executor -------------------------------------------------------------------------------------------

    @abstractmethod
    def of_part(self, part: FeedPart) -> FeedOrigin:
        """What a part is read from, by one task."""

    @abstractmethod
    def read(self, part: FeedPart, spans: Sequence[Span], columns: EventColumns) -> Iterator[pa.RecordBatch]:
        """The batches of a part."""

    @abstractmethod
    def copied(self, stream: bytes, value: bytes, ts: int) -> Iterator[pa.RecordBatch]:
        """The entries of a stream that RENAME, COPY or MOVE made at a ts; `value`: of the event that tells of it."""

    @abstractmethod
    def standing(self, stream: bytes, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The entries of a stream whose initial value was read last, from an offset up to and including another."""


class ServerOrigin(FeedOrigin):
    """A server, or several of which one leads."""

    def __init__(self, server: Endpoint) -> None:
        self._server = server

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def database(self) -> int:
        return self._server.database

    def options(self) -> Mapping[str, str]:
        return {**source_options(self._server), "from_followers": str(self._server.from_followers).lower()}

    def explored(self) -> FeedOrigin:
        return ServerOrigin(explored_feed_server(self._server))

    def position(self, since: int = 0, records: int | None = None) -> FeedPosition:
        with self._server.connect() as client:
            return ask_position(client, since, records)

    def behind(self, since: int) -> Behind:
        with self._server.connect() as client:
            return ask_behind(client, max(since, 0))

    def oldest(self, _span: Span) -> int:
        return ask_oldest(self._server, _span)

    def refuse_future(self, option: str, ts: int) -> None:
        with self._server.connect() as client:
            refuse_future(client, option, ts, ask_position(client).visible)

    def refuse_lost(self, _since: int, _epoch: int, _seen: int) -> None:
        """The server does so itself, when it is read."""

    def manifest_up_to(self, _ts: int) -> int | None:
        return None

    def of_part(self, _part: FeedPart) -> FeedOrigin:
        return self

    def read(self, part: FeedPart, spans: Sequence[Span], columns: EventColumns) -> Iterator[pa.RecordBatch]:
        return read_feed(self._server, part, spans, columns)

    def copied(self, stream: bytes, value: bytes, _ts: int) -> Iterator[pa.RecordBatch]:
        """As far as they are still there."""
        return read_copied(self._server, stream, value)

    def standing(self, stream: bytes, first: int, last: int) -> Iterator[pa.RecordBatch]:
        return read_standing(self._server, stream, first, last)


def take_origin(options: Options) -> FeedOrigin:
    """What the options name. On the driver."""
    url = options.text("from")
    if url is None:
        return ServerOrigin(take_read_endpoint(options))
    from tidelog.spark.source.feed.shipped import take_copy  # which imports much that servers do not need

    return take_copy(options, url)
