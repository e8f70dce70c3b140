"""Operations that are too long for a record are cut into several that do the same."""

from __future__ import annotations

import pytest

from tests.streams.plain import apply, plain, stream_in
from tidelog import limits
from tidelog.store.keyspace import Database
from tidelog.streams.operations import Deliver, StreamAppend, acks, appends, cuts, delivers, pends


@pytest.mark.parametrize(("count", "size"), [(1, 5), (511, 5), (512, 5), (513, 5), (3000, 5), (9, 100_000)])
def test_an_append_fits_records(count: int, size: int) -> None:
    tags, entries = [b"t%d" % at for at in range(count)], [b"x" * size] * count
    whole = StreamAppend(b"k", 3, 1000, 7, 1, tags, entries, b"p", 5)
    parts = appends(whole)
    assert [part.producer for part in parts] == [b"p", *[b""] * (len(parts) - 1)]
    assert all(len(part.tags) <= limits.RECORD_MEMBERS_MAX for part in parts)
    databases = Database(0), Database(1)
    apply(databases[0], [whole])
    apply(databases[1], parts)
    assert plain(stream_in(databases[0])) == plain(stream_in(databases[1]))


def test_long_lists_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_OFFSETS_MAX", 3)
    monkeypatch.setattr(limits, "RECORD_DELIVERED_MAX", 3)
    monkeypatch.setattr(limits, "RECORD_PENDING_MAX", 2)
    assert [op.offsets for op in cuts(b"k", range(1, 8), 5)] == [[1, 2, 3], [4, 5, 6], [7]]
    assert {op.max_id for op in cuts(b"k", range(1, 8), 5)} == {5}
    assert [op.offsets for op in acks(b"k", b"g", [1, 5, 9, 11])] == [[1, 5, 9], [11]]
    whole = Deliver(b"k", b"g", b"c", 1000, 0, 0, 7, 7 << 64, 7, True, range(1, 8), range(11, 18))
    assert [list(op.offsets) for op in delivers(whole)] == [[1, 2, 3], [4, 5, 6], [7]]
    assert [list(op.ids) for op in delivers(whole)] == [[11, 12, 13], [14, 15, 16], [17]]
    assert all(op._replace(offsets=whole.offsets, ids=whole.ids) == whole for op in delivers(whole))
    items = [(offset, 0, 0, 0, 0, 0) for offset in range(3)]
    assert [list(op.items) for op in pends(b"k", b"g", b"", items)] == [items[:2], items[2:]]
    assert cuts(b"k", [], 0) == []
