"""What a client of a feed knows: the keys of a database, rebuilt from its events, and what must hold of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hiredis

from tidelog.feeds.span import Span
from tidelog.store.keyspace import Database
from tidelog.streams.stream import Stream
from tidelog.types.change import LargeString, bulk
from tidelog.types.hash_value import Hash
from tidelog.types.list_value import List
from tidelog.types.set_value import Set
from tidelog.types.zset_value import ZSet

State = dict[bytes, Any]
PARTLY = -1
"""In place of an offset: the entries up to the one that it has as its value were never told."""
LAST_ID = -2
"""In place of an offset: the last id of the stream, as far as it was told."""
RULE = -3
"""In place of an offset: what the stream keeps by itself, if TCONFIG has said something."""


class Broken(AssertionError):
    """A feed broke a promise."""


class Rebuilt:
    """A sink that takes events, checks them, and keeps what they say."""

    def __init__(
        self,
        spans: list[Span],
        since: int = 0,
        state: State | None = None,
        *,
        is_in_order: bool = False,
        has_commits: bool = False,
        look: Callable[[int, State, list[Span]], None] | None = None,
        visible_ts: Callable[[], int] | None = None,
    ) -> None:
        self.spans = spans
        self._is_in_order = is_in_order
        """What it knows is of one moment, and goes on from there; false: of several, until the first checkpoint."""
        self._has_commits = has_commits
        self._look = look
        """Told of each moment of which it should know everything in some spans: its ts, and what it knows."""
        self._visible_ts = visible_ts
        """Up to where anybody may know of anything at all."""
        self.state: State = {} if state is None else state_copy(state)
        self.events: list[list[Any]] = []
        self.is_full = False
        self.peer = "127.0.0.1:1"
        self.unsent_bytes = 0
        self.full_after = 0
        """It is full by itself after so many bytes; 0: never."""
        self._taken_bytes = 0
        self.is_held = False
        self.ended: list[str | None] = []
        self.checkpoint = since
        """The last one; for a resumed feed, the one that it resumed from."""
        self.epoch = self.seen = 0
        self.expiries: dict[bytes, int] = {}
        """Of a feed that asked for them."""
        self.saved_expiries: dict[bytes, int] = {}
        self.saved: State = state_copy(self.state)
        """The state at that checkpoint."""
        self.is_steady = False
        self._steady_ts = 0
        self._last_ts = 0
        """Of the values."""
        self._committed_ts = 0
        self._committed: dict[bytes, int] = {}
        """The last transaction of each key that is whole."""
        self._open_keys: set[bytes] = set()
        self.unchecked = 0
        """Values since the last checkpoint."""
        self.open_ts = 0
        """The transaction that is not whole yet, for a feed with commits."""
        self._reader = hiredis.Reader()
        self._ts_of: dict[bytes, int] = {}

    def send(self, data: bytes | LargeString) -> None:
        self._taken_bytes += len(data) if isinstance(data, bytes) else data.size
        if self.full_after and self._taken_bytes >= self.full_after:
            self.is_full, self._taken_bytes = True, 0
        self._reader.feed(data if isinstance(data, bytes) else bulk(data.read(0, data.size)))
        while (event := self._reader.gets()) is not False:
            self.events.append(event)
            getattr(self, f"_{event[0].decode()}")(*event[1:])

    def end(self, error: str | None) -> None:
        self.ended.append(error)

    def cut(self) -> None:
        self.ended.append("cut")

    # --- events -------------------------------------------------------------------------------------------------

    def _newer(self, ts: int) -> None:
        if ts <= self.checkpoint:
            raise Broken(f"an event of {ts} after the checkpoint {self.checkpoint}")
        if self._visible_ts is not None and ts > self._visible_ts():
            raise Broken(f"an event of {ts} before it is visible")
        if self.is_steady and ts <= self._steady_ts:
            raise Broken(f"an event of {ts} after it was steady at {self._steady_ts}")
        if self._is_in_order and ts < self._last_ts:
            raise Broken(f"an event of {ts} after one of {self._last_ts}")
        if self._has_commits and self.open_ts not in (0, ts):
            raise Broken(f"an event of {ts} before {self.open_ts} was whole")
        if self._has_commits and self._is_in_order and ts <= self._committed_ts:
            raise Broken(f"an event of {ts} after {self._committed_ts} was whole")
        self._last_ts = ts
        self.unchecked += 1
        self.open_ts = ts

    def _value(self, ts: int, key: bytes, kind: bytes, field: bytes | None, value: Any) -> None:
        self._newer(ts)
        if not any(span.has(key) for span in self.spans):
            raise Broken(f"{key!r} is in no span")
        if ts < self._ts_of.get(key, 0):
            raise Broken(f"{key!r} changed at {ts} after it had at {self._ts_of[key]}")
        if self._committed.get(key) == ts:
            raise Broken(f"{key!r} changed at {ts}, which was whole")
        self._ts_of[key] = ts
        self._open_keys.add(key)
        apply_value(self.state, key, kind, field, value)
        if kind == b"string" or key not in self.state:
            self.expiries.pop(key, None)

    def _expire(self, ts: int, key: bytes, expire_ms: int | None) -> None:
        self._newer(ts)
        # It may be a stream that a group has made and that is still empty: then it is not in the state yet.
        if not any(span.has(key) for span in self.spans):
            raise Broken(f"{key!r} expires, which nobody asked about")
        if ts < self._ts_of.get(key, 0):
            raise Broken(f"{key!r} expires since {ts}, and has changed at {self._ts_of[key]}")
        if expire_ms is None:
            self.expiries.pop(key, None)
        else:
            self.expiries[key] = expire_ms

    def _deleterange(self, ts: int, start: bytes, end: bytes) -> None:
        self._newer(ts)
        gone = Span(start, end)
        if not any(span.within(gone) == gone for span in self.spans):
            raise Broken(f"{start!r} to {end!r} is gone, which nobody asked about")
        if any(known > ts for key, known in self._ts_of.items() if gone.has(key)):
            raise Broken(f"{start!r} to {end!r} is gone at {ts}, after newer values of it")
        for key in [key for key in self.state if Span(start, end).has(key)]:
            del self.state[key]
        for key in [key for key in self.expiries if gone.has(key)]:
            del self.expiries[key]

    def _steady(self, ts: int) -> None:
        self.is_steady, self._steady_ts = True, ts

    def _commit(self, ts: int) -> None:
        if not self._has_commits or ts != self.open_ts:
            raise Broken(f"a commit of {ts} inside {self.open_ts}")
        self.open_ts = 0
        self._committed_ts = max(ts, self._committed_ts)
        self._committed.update(dict.fromkeys(self._open_keys, ts))
        self._open_keys.clear()
        if self._look is not None and self._is_in_order:
            self._look(ts, self.state, self.spans)

    def _checkpoint(self, ts: int, start: bytes, end: bytes, epoch: int, seen: int) -> None:
        if (start, end) not in self.spans:
            raise Broken(f"a checkpoint of another span: {start!r} to {end!r}")
        if seen > ts:
            raise Broken(f"seen {seen} lies after the checkpoint {ts}")
        if ts < self.checkpoint:
            raise Broken(f"a checkpoint {ts} after that of {self.checkpoint}")
        self.checkpoint, self.epoch, self.seen = ts, epoch, seen
        self.unchecked = 0
        self._is_in_order = True
        if self._look is not None:
            self._look(ts, self.state, [Span(start, end)])
        self.saved, self.saved_expiries = state_copy(self.state), dict(self.expiries)


def apply_value(state: State, key: bytes, kind: bytes, field: bytes | None, value: Any) -> None:
    """One `value` event, as a client would apply it."""
    there = state.get(key)
    if there is not None and kind not in (b"none", b"string", there[0].encode() if isinstance(there, tuple) else b""):
        raise Broken(f"{key!r} has become a {kind.decode()} without being deleted before")
    if kind == b"none":
        state.pop(key, None)
    elif kind == b"string":
        state[key] = value
    elif kind == b"stream":
        _apply_stream(state, key, field, value)
    elif kind == b"list":
        apply_list(state, key, field, value)
    else:
        _, members = state.setdefault(key, (kind.decode(), {}))
        if value is None:
            members.pop(field, None)
            if not members:
                del state[key]
        else:
            members[field] = float(value) if kind == b"zset" else value


def apply_list(state: State, key: bytes, field: bytes | None, value: Any, *, is_strict: bool = True) -> None:
    """One event of a list. What a pop says must be what was there, if all that came before was told."""
    elements: list[bytes] = state[key][1] if key in state else []
    match field:
        case None:
            elements = value
        case b"lpush":
            elements = [*reversed(value), *elements]
        case b"rpush":
            elements = [*elements, *value]
        case b"lpop" | b"rpop":
            count = len(value)
            popped = elements[:count] if field == b"lpop" else elements[::-1][:count]
            if is_strict and popped != value:
                raise Broken(f"{key!r} lost {value!r}, and had {popped!r} there")
            elements = elements[count:] if field == b"lpop" else elements[: len(elements) - count]
        case b"lset":
            index, element = value
            elements = [*elements[:index], element, *elements[index + 1 :]]
        case b"linsert":
            index, element = value
            elements = [*elements[:index], element, *elements[index:]]
        case b"lrem":
            element, positions = value
            if is_strict and any(elements[at] != element for at in positions):
                raise Broken(f"{key!r} lost {element!r} at {positions}, where it was not")
            elements = [each for at, each in enumerate(elements) if at not in set(positions)]
        case b"ltrim":
            start, stop = value
            elements = elements[start : stop + 1]
        case _:
            raise Broken(f"{key!r}: a list knows no {field!r}")
    state[key] = "list", elements
    if not elements:
        del state[key]


def _apply_stream(state: State, key: bytes, field: bytes | None, value: Any) -> None:
    _, entries = state.setdefault(key, ("stream", {}))
    if field is None and value and isinstance(value[0], int):
        entries[PARTLY] = value[1]  # of INITIAL: where the entries lie, not what they are
    elif field is None:
        entries.update({offset: (id_, tag, entry) for offset, id_, tag, entry in value})
        entries[LAST_ID] = value[-1][1]
    elif field == b"copy":
        _, last, last_id, _, _, database, source = value
        there = state.get(source, _EMPTY) if database == 0 else b""
        # What the feed told of before may be newer: the source may be something else by now.
        copied = there[1] if isinstance(there, tuple) and there[0] == "stream" else {PARTLY: 0}
        if PARTLY not in copied and copied.get(LAST_ID, b"0-0") == last_id:
            entries.update(copied)
        else:
            entries[PARTLY] = last  # the feed does not tell of the source, or not of all it has
            entries[LAST_ID] = last_id
        if last_id == b"0-0":
            entries.pop(LAST_ID, None)
    elif field == b"setid":
        entries.pop(LAST_ID, None)
        if value[2] != b"0-0":  # a copy of a stream that never had an entry
            entries[LAST_ID] = value[2]
    elif field == b"config":
        entries.pop(RULE, None)
        if any(value):
            entries[RULE] = tuple(value)
    elif field == b"evict":
        for offset in [offset for offset in entries if PARTLY < offset < value]:
            del entries[offset]
    elif field == b"del":
        for offset in value:
            entries.pop(offset, None)


_EMPTY: Any = ("stream", {})
"""What a feed says of a stream that a group has made: nothing."""


def difference(known: State, there: State) -> str:
    """What a client should know and does not, or knows and should not; empty: nothing."""
    for key in known.keys() | there.keys():
        one, other = known.get(key, _EMPTY), there.get(key, _EMPTY)
        if isinstance(one, tuple) and isinstance(other, tuple) and PARTLY in one[1]:
            entries = {offset: entry for offset, entry in one[1].items() if offset != PARTLY}
            is_same = other[0] == "stream" and entries.items() <= other[1].items()
            is_same = is_same and all(offset in entries for offset in other[1] if offset > max(one[1][PARTLY], 0))
        else:
            is_same = one == other
        if not is_same:
            return f"{key!r}: the feed says {one!r}, the store has {other!r}"
    return ""


def state_copy(state: State) -> State:
    """What is in a tuple is a dict, or the elements of a list, which are never changed in place."""
    return {
        key: (value[0], dict(value[1])) if isinstance(value, tuple) and value[0] != "list" else value
        for key, value in state.items()
    }


def state_of(database: Database, spans: list[Span]) -> State:
    """What a client should know of a database."""
    return {key: plain(database.find(key)) for key in database.all_keys() if any(span.has(key) for span in spans)}


def plain(value: Any) -> Any:
    kind = type(value)
    if kind is Hash:
        return "hash", value.fields().copy()
    if kind is ZSet:
        return "zset", {member: score for score, member in value}
    if kind is Set:
        return "set", dict.fromkeys(value, b"1")
    if kind is List:
        return "list", list(value)
    if kind is Stream:
        return "stream", _entries(value)
    return value


def _entries(stream: Stream) -> dict[int, Any]:
    reader = hiredis.Reader()
    found: dict[int, Any] = {}
    for offset, ms, seq, kind, tag, entry in zip(*stream.read(stream.first, stream.next), strict=True):
        shown: Any = entry
        if kind:
            reader.feed(entry)
            shown = reader.gets()
        found[offset] = b"%d-%d" % (ms, seq), tag, shown
    if stream.rule is not None:
        found[RULE] = tuple(stream.rule)
    if stream.last_id:
        found[LAST_ID] = b"%d-%d" % (stream.last_ms, stream.last_seq)
    return found
