"""Events of a feed become changes of the rows of a source. Tasks do this.

source             a row is                                   its columns
prefix:P           a key with this prefix: hash or string     fields, or the members of a JSON object; `key`; `value`,
                                                              the text of a string
stream:KEY         an entry of the stream                     fields, or the members of a JSON object; `key`, `offset`,
                                                              `id`, `timestamp`, `tag`, `entry`
days:QUEUE/JOBSET  an event of a day                          members of a JSON object; `queue`, `jobset`, `day`, `id`,
                                                              `timestamp`, `event`

All columns are text, and only those that a view names are made. A member or field wins over a column of the same name
that describes an entry; `key` is always the key.

The id of an entry is its offset; that of an event its day, milliseconds and sequence, each big endian. So ids are in
the order of what they name, and an eviction or an expired day removes a range of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.days.jobset import JobSet
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.spark.jobs.report import OWN_KEYS
from tidelog.spark.source.stream.copied import COPY
from tidelog.spark.views.dataflow.changes import GONE, SET, changes_schema, clear, column, compose, no_changes
from tidelog.spark.views.dataflow.members import Members, decoded, text_array

_offset: Final = struct.Struct(">Q").pack
_event_id: Final = struct.Struct(">IQQ").pack
_day_id: Final = struct.Struct(">I").pack


Copied = Callable[[bytes, bytes], Iterable[pa.RecordBatch]]
"""Reads the entries of a stream that was made as a copy: its key, and the value of the event that told of it."""


def no_entries(_key: bytes, _value: bytes) -> Iterable[pa.RecordBatch]:
    """For an extractor that is given no events."""
    return ()


Others = dict[str, Callable[[], Any]]
"""Columns that a row has unless a member has the same name."""


class Extractor:
    """Turns the events of one shard, which come in order, into changes of one source."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._members = Members([name for name in columns if name != "key"])
        self._made: list[pa.Table] = []

    def add(self, events: pa.RecordBatch) -> None:
        """Some more events."""
        self._made.append(compose(self._steps(events)))

    def finish(self) -> pa.Table:
        """All changes, each row once."""
        return compose(pa.concat_tables([no_changes(len(self.columns)), *self._made]))

    def _steps(self, events: pa.RecordBatch) -> pa.Table:
        raise NotImplementedError

    def _table(self, ops: Any, ids: Any, **given: Any) -> pa.Table:
        """Changes of these ids; columns that are not given are null."""
        schema = changes_schema(len(self.columns))
        made = {"op": ops, "id": ids, **given}
        arrays = [made[name] if name in made else pa.nulls(len(ids), schema.field(name).type) for name in schema.names]
        return pa.table(arrays, schema=schema)

    def _rows(self, ids: list[bytes], members: Mapping[str, Any], others: Others) -> pa.Table:
        """SETs of whole rows."""
        count = len(ids)
        columns = {}
        for number, name in enumerate(self.columns):
            found = members.get(name)
            if name in others:
                other = pa.array(others[name](), pa.string())
                found = other if found is None else pc.coalesce(found, other)
            columns[column(number)] = pa.nulls(count, pa.string()) if found is None else found
        return self._table(
            pa.repeat(pa.scalar(SET, pa.int8()), count),
            pa.array(ids, pa.binary()),
            is_reset=pa.repeat(True, count),
            more=_one_each(count),
            touched=pa.repeat(pa.scalar((1 << len(self.columns)) - 1, pa.int64()), count),
            **columns,
        )

    def _gone(self, ids: list[bytes]) -> pa.Table:
        return self._table(pa.repeat(pa.scalar(GONE, pa.int8()), len(ids)), pa.array(ids, pa.binary()))


def _one_each(count: int) -> Any:
    """For each row a list with one name, the empty one."""
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), pa.repeat(b"", count))


# --- keys of a prefix -------------------------------------------------------------------------------------------------


class PrefixExtractor(Extractor):
    """The keys with a prefix."""

    def __init__(self, prefix: str, columns: Sequence[str]) -> None:
        super().__init__(columns)
        self._prefix = prefix.encode()
        self._has_own_keys = OWN_KEYS.startswith(self._prefix) or self._prefix.startswith(OWN_KEYS)
        self._fields = pa.array([None if name == "key" else name.encode() for name in columns], pa.binary())

    def _steps(self, events: pa.RecordBatch) -> pa.Table:
        ranges = pc.equal(events["kind"], "deleterange")
        if not pc.any(ranges).as_py():
            return self._values(events)
        made, after = [], 0
        for at in np.flatnonzero(ranges.to_numpy(zero_copy_only=False)).tolist():
            made.append(self._values(events.slice(after, at - after)))
            made.append(clear(len(self.columns), events["key"][at].as_py(), events["end"][at].as_py() or None))
            after = at + 1
        return pa.concat_tables([*made, self._values(events.slice(after))])

    def _values(self, events: pa.RecordBatch) -> pa.Table:
        is_ours = pc.and_(
            pc.starts_with(events["key"], self._prefix), pc.is_in(events["type"], pa.array(["hash", "string", "none"]))
        )
        if self._has_own_keys:
            is_ours = pc.and_not(is_ours, pc.starts_with(events["key"], OWN_KEYS))
        events = events.filter(is_ours)
        types, fields, values = events["type"], events["field"], events["value"]
        is_none, is_string = pc.equal(types, "none"), pc.equal(types, "string")
        strings = _numpy(is_string)
        which = pc.index_in(fields, self._fields) if len(self._fields) else pa.nulls(len(events), pa.int32())
        numbers = pc.fill_null(which, -1).to_numpy().astype(np.int64)
        numbers = np.where(pc.is_valid(fields).to_numpy(zero_copy_only=False), numbers, -1)
        touched = np.where(numbers >= 0, 1 << np.maximum(numbers, 0), 0)
        touched = np.where(strings, (1 << len(self.columns)) - 1, touched)
        texts = text_array(values)
        is_object, members = self._read(values, strings)
        columns = {}
        for number, name in enumerate(self.columns):
            if name == "key":
                columns[column(number)] = text_array(events["key"])
                touched = touched | (1 << number)
                continue
            field = pc.if_else(pa.array(numbers == number), texts, pa.scalar(None, pa.string()))
            member = members.get(name, field)
            if name == "value":
                member = pc.if_else(pa.array(is_object), member, texts)
            columns[column(number)] = pc.if_else(is_string, member, field)
        is_field = ~strings & ~_numpy(is_none)
        is_there = pc.is_valid(values).to_numpy(zero_copy_only=False)
        names = pc.if_else(is_string, pa.scalar(b"", pa.binary()), fields)
        return self._table(
            pc.if_else(is_none, pa.scalar(GONE, pa.int8()), pa.scalar(SET, pa.int8())),
            events["key"],
            is_reset=is_string,
            more=_named(names, (is_field & is_there) | strings),
            less=_named(names, is_field & ~is_there),
            touched=pa.array(touched.astype(np.int64)),
            ts=events["ts"].cast(pa.int64()),
            **columns,
        )

    def _read(self, values: Any, strings: Any) -> tuple[Any, dict[str, Any]]:
        """Which strings are JSON objects, and their members."""
        if not strings.any() or set(self.columns) <= {"key"}:
            return np.zeros(len(strings), bool), {}
        if strings.all():
            return self._members.read(values.to_pylist())
        both = zip(values.to_pylist(), strings, strict=True)
        return self._members.read([value if is_one else None for value, is_one in both])


def _numpy(flags: Any) -> Any:
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)


def _named(names: Any, chosen: Any) -> Any:
    """A list of one name for each row that is chosen, and an empty list for the others."""
    ends = np.zeros(len(chosen) + 1, np.int32)
    ends[1:] = chosen.cumsum()
    return pa.ListArray.from_arrays(pa.array(ends), names.filter(pa.array(chosen)))


# --- entries of a stream ----------------------------------------------------------------------------------------------


class StreamExtractor(Extractor):
    """The entries of one stream."""

    def __init__(self, key: str, columns: Sequence[str], copied: Copied = no_entries) -> None:
        super().__init__(columns)
        self._copied = copied
        self._name = key
        self._key = key.encode()

    def _steps(self, events: pa.RecordBatch) -> pa.Table:
        made = [no_changes(len(self.columns))]
        run: list[dict[str, Any]] = []
        for event in events.filter(_concerns(events, self._key)).to_pylist():
            if event["entries"] is not None:
                run += event["entries"]
                continue
            made.append(self.entries(run))
            made += self._step(event)
            run = []
        return pa.concat_tables([*made, self.entries(run)])

    def _step(self, event: dict[str, Any]) -> list[pa.Table]:
        if event["kind"] == "deleterange" or event["type"] != "stream":
            return [clear(len(self.columns))]
        if event["field"] == b"evict":
            return [clear(len(self.columns), b"", _offset(int(event["value"])))]
        if event["field"] == b"del":
            return [self._gone([_offset(int(each)) for each in event["value"].split(b",")])]
        if event["field"] == COPY:
            return [self.entries(batch.to_pylist()) for batch in self._copied(self._key, event["value"])]
        return []  # an initial value: entries are read by offset

    def entries(self, entries: Sequence[dict[str, Any]]) -> pa.Table:
        """SETs of entries."""
        if not entries:
            return no_changes(len(self.columns))
        others: Others = {
            "key": lambda: [self._name] * len(entries),
            "offset": lambda: [str(each["offset"]) for each in entries],
            "id": lambda: [each["id"] for each in entries],
            "timestamp": lambda: _moments([_milliseconds(each["id"]) for each in entries]),
            "tag": lambda: [decoded(each["tag"]) for each in entries],
            "entry": lambda: [decoded(each["entry"]) for each in entries],
        }
        return self._rows([_offset(each["offset"]) for each in entries], self._entry_members(entries), others)

    def _entry_members(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        _, members = self._members.read([each["entry"] for each in entries])
        if all(each["fields"] is None for each in entries):
            return members
        fields = [dict(each["fields"] or ()) for each in entries]
        return {
            name: pc.coalesce(pa.array([decoded(each.get(name.encode())) for each in fields], pa.string()), values)
            for name, values in members.items()
        }


def _concerns(events: pa.RecordBatch, key: bytes) -> Any:
    """Which events concern a key, alone or with others."""
    starts, ends = events["key"], events["end"]
    is_range = pc.equal(events["kind"], "deleterange")
    is_within = pc.and_(
        pc.less_equal(starts, pa.scalar(key, pa.binary())),
        pc.or_(pc.equal(ends, b""), pc.greater(ends, pa.scalar(key, pa.binary()))),
    )
    return pc.if_else(is_range, is_within, pc.equal(starts, pa.scalar(key, pa.binary())))


def _milliseconds(stream_id: str) -> int:
    return int(stream_id.partition("-")[0])


def _moments(milliseconds: list[int]) -> list[str | None]:
    """Times as Spark reads and writes them; None: too late for a timestamp."""
    most = 253_402_300_799_999
    array = pa.array([each if each <= most else None for each in milliseconds], pa.int64()).cast(pa.timestamp("ms"))
    texts: list[str | None] = pc.strftime(array, format="%Y-%m-%d %H:%M:%S").to_pylist()
    return texts


# --- events of day streams --------------------------------------------------------------------------------------------


class DaysExtractor(Extractor):
    """The events of a job set."""

    def __init__(self, target: str, columns: Sequence[str]) -> None:
        super().__init__(columns)
        self._queue, _, self._name = target.partition("/")
        self._jobset = JobSet(self._queue, self._name)
        self._index: dict[bytes, bool] = {}
        """Whether each member of the index was last added (true) or removed."""

    def _steps(self, events: pa.RecordBatch) -> pa.Table:
        made = [no_changes(len(self.columns))]
        run: list[tuple[date, str, bytes]] = []
        for event in events.to_pylist():
            is_range = event["kind"] == "deleterange"
            if is_range and not Span(event["key"], event["end"]).has(self._jobset.index):
                continue  # days end with the index, not with their streams
            if is_range or event["key"] == self._jobset.index:
                if event["type"] == "set":
                    self._index[event["field"]] = event["value"] is not None
                else:
                    made += [self.events(run), clear(len(self.columns))]
                    self._index, run = {}, []
                continue
            stream = self._jobset.stream(event["key"])
            if stream is not None and stream.is_hot and event["entries"] is not None:
                # The batches of a compressed day hold only what its hot stream had.
                if self._is_over(stream.day):
                    made += [self.events(run), self._end(stream.day)]
                    run = []
                run += [(stream.day, each["id"], value) for each in event["entries"] for value in _event_of(each)]
        return pa.concat_tables([*made, self.events(run)])

    def finish(self) -> pa.Table:
        days = {stream.day for stream in map(self._jobset.stream, self._index) if stream is not None}
        self._made += [self._end(day) for day in sorted(days) if self._is_over(day)]
        return super().finish()

    def _is_over(self, day: date) -> bool:
        """Whether a day was removed from the index. A day that is compressed only changes its name there."""
        streams = (self._jobset.hot(day), self._jobset.compressed(day))
        said = [self._index[stream.key] for stream in streams if stream.key in self._index]
        return bool(said) and not any(said)

    def _end(self, day: date) -> pa.Table:
        """Remove a day with all its events. If it comes again, it begins anew."""
        for stream in (self._jobset.hot(day), self._jobset.compressed(day)):
            self._index.pop(stream.key, None)
        return clear(len(self.columns), _day_id(day.toordinal()), _day_id(day.toordinal() + 1))

    def events(self, events: Sequence[tuple[date, str, bytes]]) -> pa.Table:
        """SETs of events: day, id, bytes."""
        if not events:
            return no_changes(len(self.columns))
        days, ids, values = zip(*events, strict=True)
        others: Others = {
            "queue": lambda: [self._queue] * len(events),
            "jobset": lambda: [self._name] * len(events),
            "day": lambda: [day.isoformat() for day in days],
            "id": lambda: list(ids),
            "timestamp": lambda: _moments(list(map(_milliseconds, ids))),
            "event": lambda: list(map(decoded, values)),
        }
        row_ids = [_event_id(day.toordinal(), *map(int, each.split("-"))) for day, each in zip(days, ids, strict=True)]
        _, members = self._members.read(values)
        return self._rows(row_ids, members, others)


def _event_of(entry: dict[str, Any]) -> list[bytes]:
    fields = dict(entry["fields"] or ())
    return [fields[b"event"]] if b"event" in fields else []


# --- which is which ---------------------------------------------------------------------------------------------------

_EXTRACTORS: Final[dict[str, Callable[[str, Sequence[str]], Extractor]]] = {
    "prefix": PrefixExtractor,
    "days": DaysExtractor,
}


def extractor(kind: str, target: str, columns: Sequence[str], copied: Copied = no_entries) -> Extractor:
    """`copied`: reads the entries of a copy."""
    if kind == "stream":
        return StreamExtractor(target, columns, copied)
    return _EXTRACTORS[kind](target, columns)


def span_of(kind: str, target: str) -> Span:
    """The keys whose changes concern a source."""
    if kind == "prefix":
        return span_of_prefix(target.encode())
    if kind == "stream":
        return span_of_key(target.encode())
    queue, _, jobset = target.partition("/")
    return span_of_prefix(JobSet(queue, jobset).index.removesuffix(b"streams"))
