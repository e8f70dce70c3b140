"""Compaction: of all entries with one tag the newest stays; tombstones go when they are old."""

from __future__ import annotations

from tidelog import limits
from tidelog.streams.compaction import entries_to_drop
from tidelog.streams.stream import Stream

DAY_MS = limits.TOMBSTONE_KEPT_MS


def stream_of(*entries: tuple[int, bytes, bytes], kind: int = 0) -> Stream:
    stream = Stream()
    for ms, tag, entry in entries:
        stream.append(ms, stream.next, kind, [tag], [entry])
    return stream


def test_the_newest_of_each_tag_stays() -> None:
    stream = stream_of((1, b"a", b"1"), (2, b"b", b"1"), (3, b"a", b"2"), (4, b"", b"x"), (5, b"", b"x"))
    assert entries_to_drop(stream, DAY_MS) == [1]
    stream.seal()
    stream.append(6, 0, 0, [b"b"], [b"2"])
    assert entries_to_drop(stream, DAY_MS) == [1, 2]


def test_a_tombstone_hides_what_came_before_and_goes_when_it_is_old() -> None:
    stream = stream_of((10, b"a", b"1"), (20, b"a", b""), (30, b"b", b""), (40, b"b", b"again"))
    assert entries_to_drop(stream, 20 + DAY_MS) == [1, 3]
    assert entries_to_drop(stream, 21 + DAY_MS) == [1, 2, 3]


def test_entries_of_fields_are_no_tombstones() -> None:
    assert entries_to_drop(stream_of((1, b"a", b"*0\r\n"), kind=1), 99 * DAY_MS) == []
