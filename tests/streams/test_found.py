"""What a read has found stays what it was, whatever happens to the stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.streams.cold_nodes import chill_all
from tidelog.streams.cold import OPENED
from tidelog.streams.found import Found
from tidelog.streams.rows import joined
from tidelog.streams.stream import Stream

ID_MAX = 2**128 - 1
READS: dict[str, Callable[[Stream], Found]] = {
    "by offset": lambda stream: stream.find(3, 40),
    "by offset, back": lambda stream: stream.find_back(43, 40),
    "by id": lambda stream: stream.find_ids(0, ID_MAX, 43),
    "by id, back": lambda stream: stream.find_ids_back(ID_MAX, 0, 43),
}


def stream_of(count: int) -> Stream:
    """Sealed nodes of ten entries, the second of them with a hole, and an active one."""
    stream = Stream()
    for number in range(1, count + 1):
        stream.append(1000 + number, 0, 0, [b"t%d" % (number % 3)], [b"entry %d" % number])
        if number % 10 == 0 and number < count - 2:
            stream.seal()
    stream.delete([15])
    return stream


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("read", READS)
def test_parts_are_what_was_found(read: str, is_cold: bool) -> None:
    stream = stream_of(45)
    if is_cold:
        chill_all(stream)
    found = READS[read](stream)
    before = found.rows()
    parts = found.parts()
    assert found.count == len(before.entries) == sum(part.count for part in parts)
    stream.delete([4, 22, 42])
    stream.evict(31)
    stream.append(2000, 0, 0, [b"t"], [b"later"])
    chill_all(stream)
    OPENED.clear()
    if is_cold:
        assert any(part.node_away is not None for part in parts), "nothing is kept open for later"
    after = joined([part.rows() for part in parts])
    assert list(after.offsets) == list(before.offsets)
    assert list(after.entries) == list(before.entries) == [b"entry %d" % offset for offset in before.offsets]
    assert after.ids == before.ids


def test_nothing_found_has_no_parts() -> None:
    found = Stream().find(1, 10)
    assert (found.count, found.parts(), list(found.rows().entries)) == (0, [], [])
