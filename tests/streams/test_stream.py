"""Streams: however nodes are cut, kept and sealed, entries are found where they belong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.cold_nodes import chilled
from tests.streams.plain import filled, plain, plain_rows
from tidelog import limits
from tidelog.streams.node import ActiveNode, SealedNode, pack_id
from tidelog.streams.stream import Stream
from tidelog.streams.trimming import boundary_below, boundary_keeping


@pytest.fixture(autouse=True)
def _small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    monkeypatch.setattr(limits, "NODE_BYTES_MAX", 2000)


def nodes(stream: Stream) -> list[int]:
    return [len(node) for node in stream.nodes()]


def test_a_node_is_sealed_when_it_is_full() -> None:
    stream = filled(25)
    assert nodes(stream) == [10, 10, 5]
    assert stream.bases == [1, 11]
    stream.append(5000, 0, 0, [b"t"] * 17, [b"e"] * 17)
    assert nodes(stream) == [10, 10, 10, 10, 2]
    assert (stream.first, stream.next, stream.length, stream.last_id) == (1, 43, 42, pack_id(5000, 16))


def test_a_large_entry_is_a_node_alone() -> None:
    stream = filled(2)
    stream.append(2000, 0, 0, [b""], [b"x" * 3000])
    stream.append(2001, 0, 0, [b"t"], [b"e"])
    stream.append(2002, 0, 0, [b"y" * 3000, b"", b""], [b"", b"a", b"b"])
    assert nodes(stream) == [2, 1, 1, 1, 2]
    assert [row[0] for row in plain_rows(stream.read(1, 99))] == list(range(1, 8))


def test_bytes_fill_a_node_too() -> None:
    stream = Stream()
    for at in range(9):
        stream.append(at + 1, 0, 0, [b"t" * 500], [b"e" * 100])
    assert nodes(stream) == [3, 3, 3]


def test_reading_by_offset() -> None:
    stream = filled(35)
    for offset in range(1, 40):
        for count in (0, 1, 9, 10, 11, 99):
            expected = list(range(offset, min(offset + count, 36)))
            assert list(stream.read(offset, count).offsets) == expected
            assert stream.ids_from(offset, count) == [pack_id(1000 + each, 0) for each in expected]
    assert list(stream.read(5, 99, 12).offsets) == list(range(5, 13))
    assert list(stream.read(5, 99, 4).offsets) == []


def test_reading_by_id() -> None:
    stream = filled(35)
    for first, last, count in [(0, 2000, 99), (1005, 1012, 99), (1005, 1012, 3), (1035, 1035, 9), (1036, 2000, 9)]:
        ids = pack_id(first, 0), pack_id(last, 0)
        expected = [each for each in range(1, 36) if first <= 1000 + each <= last]
        assert list(stream.read_ids(*ids, count).offsets) == expected[:count]
        assert list(stream.find_ids_back(ids[1], ids[0], count).rows().offsets) == expected[::-1][:count]
    assert stream.offset_at_or_after(pack_id(1005, 1)) == 6
    assert stream.offset_at_or_after(pack_id(9999, 0)) == 36
    assert (stream.offset_of(pack_id(1011, 0)), stream.offset_of(pack_id(1011, 1))) == (11, None)
    assert (stream.ids_from(11, 1), stream.ids_from(99, 1)) == ([pack_id(1011, 0)], [])


def test_eviction() -> None:
    stream = filled(35)
    assert stream.evict(11) == 10
    assert stream.evict(11) == 0
    assert stream.evict(15) == 4
    assert nodes(stream) == [6, 10, 5]
    assert (stream.first, stream.first_entry, stream.length) == (15, 15, 21)
    assert stream.evict(33) == 18
    assert stream.evict(999) == 3
    assert (stream.first, stream.next, stream.length, nodes(stream)) == (36, 36, 0, [])
    filled(3, stream=stream)
    assert list(stream.read(1, 9).offsets) == [36, 37, 38]


def test_deletion_leaves_holes_and_evicts_nothing() -> None:
    stream = filled(25)
    assert stream.delete([1, 2, 2000, 15, *range(21, 26)]) == 8
    assert stream.delete([1]) == 0
    assert (stream.first, stream.first_entry, stream.next, stream.length) == (1, 3, 26, 17)
    assert stream.max_deleted_id == pack_id(1025, 0)
    filled(2, stream=stream)
    assert list(stream.read(14, 99).offsets) == [14, 16, 17, 18, 19, 20, 26, 27]
    assert stream.count_below(16) == 12
    assert stream.delete(range(11, 21)) == 9
    assert list(stream.read(9, 99).offsets) == [9, 10, 26, 27]


def test_how_far_whole_nodes_go() -> None:
    stream = filled(35)
    found = [boundary_below(stream, offset) for offset in (0, 1, 10, 11, 30, 31, 35, 36, 99)]
    assert found == [1, 1, 1, 11, 21, 31, 31, 36, 36]
    found = [boundary_keeping(stream, kept) for kept in (0, 1, 5, 6, 15, 16, 25, 26, 99)]
    assert found == [36, 31, 31, 21, 21, 11, 11, 1, 1]
    assert boundary_keeping(stream, 16, coming=1) == 21
    stream.delete(range(12, 20))
    assert boundary_keeping(stream, 16) == 11
    assert boundary_keeping(stream, 15) == 21
    assert boundary_keeping(Stream(), 0) == 1


def test_a_stream_without_entries_is_a_value() -> None:
    assert Stream()
    assert len(Stream()) == 0
    assert plain_rows(Stream().read(1, 9)) == []
    assert Stream().offset_at_or_after(0) == 1
    assert Stream().read_ids(0, 2**128 - 1, 9).entries == []
    assert Stream().find_ids_back(2**128 - 1, 0, 9).rows().entries == []


def test_a_copy_is_independent() -> None:
    stream = filled(15, kinds=(0, 1))
    stream.group(b"g").last_offset = 3
    stream.remember(b"p", 1, 1)
    copy = stream.copy()
    before = plain(stream)
    assert plain(copy) == before
    filled(20, stream=copy)
    copy.evict(12)
    copy.group(b"h")
    copy.drop_group(b"g")
    copy.remember(b"p", 2, 1)
    assert plain(stream) == before
    assert copy.size_bytes > 0


def test_many_small_streams_share_what_they_do_not_have() -> None:
    one, other = Stream(), Stream()
    assert one.groups is other.groups
    with pytest.raises(TypeError):
        one.groups[b"g"] = None  # type: ignore[index]
    one.group(b"g")
    one.remember(b"p", 1, 1)
    one.drop_group(b"none")
    other.drop_group(b"none")
    assert not other.groups
    assert not other.producers


Step = tuple[str, Any]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.tuples(st.integers(1, 25), st.sampled_from([1, 150, 2500]))),
        st.tuples(st.just("evict"), st.integers(0, 120)),
        st.tuples(st.just("delete"), st.lists(st.integers(1, 120), max_size=30)),
        st.tuples(st.just("seal"), st.none()),
        st.tuples(st.just("chill"), st.integers(0, 20)),
    ),
    max_size=25,
)


@settings(max_examples=200)
@given(STEPS)
def test_it_is_a_list_of_entries(steps: list[Step]) -> None:
    """Against plain lists."""
    stream, entries, first, added = Stream(), {}, 1, 0
    for at, (what, detail) in enumerate(steps):
        if what == "append":
            count, size = detail
            made = [b"%d" % at * (size if number == 0 else 1) for number in range(count)]
            stream.append(at + 1, 5, 0, [b"t"] * count, made)
            entries.update({added + 1 + number: entry for number, entry in enumerate(made)})
            added += count
        elif what == "evict":
            gone = [offset for offset in entries if offset < detail]
            assert stream.evict(detail) == len(gone)
            first = max(first, min(detail, added + 1))
            entries = {offset: entry for offset, entry in entries.items() if offset not in gone}
        elif what == "delete":
            assert stream.delete(list(dict.fromkeys(detail))) == len(entries.keys() & set(detail))
            entries = {offset: entry for offset, entry in entries.items() if offset not in detail}
        elif what == "seal":
            stream.seal()
        elif stream.sealed:
            node = stream.sealed[detail % len(stream.sealed)]
            if not node.is_cold:
                chilled(node)
        rows = stream.read(1, 999)
        assert dict(zip(rows.offsets, rows.entries, strict=True)) == entries
        assert (stream.first, stream.next, stream.length) == (first, added + 1, len(entries))
        assert stream.first_entry == min(entries, default=added + 1)
        assert list(rows.offsets) == list(stream.read_ids(0, 2**128 - 1, 999).offsets)
        assert list(rows.offsets) == list(stream.find_ids_back(2**128 - 1, 0, 999).rows().offsets)[::-1]
        assert [node.first_offset for node in stream.sealed] == list(stream.bases)
        assert [node.last_id for node in stream.sealed] == list(stream.last_ids)
        for offset in (1, first, added // 2 + 1, added):
            assert stream.count_below(offset) == sum(each < offset for each in entries)
            assert list(stream.read(offset, 7).offsets) == [each for each in sorted(entries) if each >= offset][:7]
            assert len(stream.ids_from(offset, 7)) == len(stream.read(offset, 7).offsets)


def test_nodes_of_a_snapshot_follow_each_other() -> None:
    stream = Stream()
    stream.replay_node(SealedNode.of_rows(filled(5).read(3, 9)))
    assert (stream.first, stream.next, stream.length) == (3, 6, 3)
    node = ActiveNode(9)
    node.append(9, 2000, 0, 1, [b"t"], [b"e"])
    stream.replay_node(node.sealed())
    assert (stream.first, stream.next, stream.length, stream.last_id) == (3, 10, 4, pack_id(2000, 0))
    assert list(stream.read(1, 99).offsets) == [3, 4, 5, 9]
