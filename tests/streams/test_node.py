"""Nodes: active and sealed ones find and give the same; what is no node is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.cold_nodes import chilled, node_files
from tests.streams.plain import filled, plain_rows
from tidelog.errors import FormatError
from tidelog.streams.node import FIELDS, SEQ_MAX, TAGGED, ActiveNode, Node, Rows, SealedNode, pack_id, unpack_id

STEPS = st.lists(
    st.tuples(
        st.integers(1, 3),  # how far the offset moves on
        st.integers(0, 2),  # and the time
        st.sampled_from([TAGGED, FIELDS]),
        st.integers(1, 3),  # entries
        st.binary(max_size=5),
    ),
    min_size=1,
    max_size=12,
)


def grown(steps: list[tuple[int, int, int, int, bytes]]) -> ActiveNode:
    node, offset, ms, seq = ActiveNode(1), 1, 10, 0
    for gap, later, kind, count, data in steps:
        offset += gap - 1
        ms, seq = (ms + later, 0) if later else (ms, seq)
        node.append(offset, ms, seq, kind, [b"t" + data] * count, [data * 2] * count)
        offset, seq = offset + count, seq + count
    return node


def sealed(node: ActiveNode) -> list[SealedNode]:
    """The same node as it is sealed, read back, and compressed."""
    hot = node.sealed()
    files = node_files()
    cold = chilled(node.sealed(), files)
    noted = cold.reference
    place = files.place(noted.file_id, noted.position, noted.size, noted.crc)
    return [
        hot,
        SealedNode.of_ipc(hot.ipc()),
        SealedNode.of_ipc(hot.compressed()[0]),
        cold,
        SealedNode.of_reference(noted, place),
    ]


@given(STEPS)
def test_all_forms_of_a_node_are_the_same(steps: list[tuple[int, int, int, int, bytes]]) -> None:
    node = grown(steps)
    rows = node.rows(0, len(node))
    others: list[Node] = [*sealed(node), ActiveNode.of_rows(rows), node.copy()]
    for other in others:
        assert plain_rows(other.rows(0, len(other))) == plain_rows(rows)
        assert (other.first_offset, other.last_offset) == (node.first_offset, node.last_offset)
        assert (other.last_id, len(other)) == (node.last_id, len(node))
        assert other.ids(0, len(other)) == rows.ids
        for offset in range(node.first_offset - 1, node.last_offset + 3):
            assert other.index_of(offset) == node.index_of(offset) == sum(each < offset for each in rows.offsets)
        for number in [number + delta for number in rows.ids for delta in (-1, 0, 1)] + [0, pack_id(SEQ_MAX, SEQ_MAX)]:
            assert other.index_of_id(number) == node.index_of_id(number) == sum(each < number for each in rows.ids)
        for at in range(len(other)):
            assert other.offset_at(at) == rows.offsets[at]
            assert other.id_at(at) == rows.ids[at]


@given(STEPS, st.data())
def test_a_node_without_some_of_its_entries(steps: list[tuple[int, int, int, int, bytes]], data: st.DataObject) -> None:
    node = grown(steps)
    gone = data.draw(st.lists(st.integers(0, len(node) - 1), unique=True))
    kept = [row for at, row in enumerate(plain_rows(node.rows(0, len(node)))) if at not in gone]
    for left in (node.without(gone), node.sealed().without(gone)):
        assert (plain_rows(left.rows(0, len(left))) if left is not None else []) == kept
    left = node.without(gone)
    if left is not None:
        left.append(node.last_offset + 1, 99, 0, FIELDS, [b"t"], [b"e"])
        assert plain_rows(left.rows(0, len(left)))[:-1] == kept
        assert left.last_offset == node.last_offset + 1


def test_bytes_that_are_cut_short_are_no_node() -> None:
    data = filled(5).active.sealed().ipc()
    for end in range(len(data)):
        with pytest.raises(FormatError):
            SealedNode.of_ipc(data[:end])
    with pytest.raises(FormatError):
        SealedNode.of_ipc(data + b"\0")
    with pytest.raises(FormatError):
        SealedNode.of_ipc(data + data)


GOOD = {
    "ms": pa.array([1, 2], pa.uint64()),
    "seq": pa.array([0, 0], pa.uint64()),
    "tag": pa.array([b"a", b"b"], pa.binary()),
    "entry": pa.array([b"x", b"y"], pa.binary()),
}
OFFSETS = pa.array([1, 5], pa.uint64())
KINDS = pa.array([0, 1], pa.uint8())


def ipc(columns: dict[str, pa.Array], metadata: dict[bytes, bytes] | None) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns, metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_what_is_well_formed_is_taken() -> None:
    assert SealedNode.of_ipc(ipc(GOOD, {b"base": b"7", b"kind": b"0"})).last_offset == 8
    assert SealedNode.of_ipc(ipc(GOOD | {"offset": OFFSETS, "kind": KINDS}, None)).last_offset == 5


@pytest.mark.parametrize(
    ("columns", "metadata"),
    [
        (GOOD, None),
        (GOOD, {b"base": b"7"}),
        (GOOD, {b"base": b"0", b"kind": b"0"}),
        (GOOD, {b"base": b"%d" % SEQ_MAX, b"kind": b"0"}),
        (GOOD, {b"base": b"seven", b"kind": b"0"}),
        (GOOD, {b"base": b"7", b"kind": b"2"}),
        ({name: column for name, column in GOOD.items() if name != "tag"}, {b"base": b"7", b"kind": b"0"}),
        ({name: column[:0] for name, column in GOOD.items()}, {b"base": b"7", b"kind": b"0"}),
        (GOOD | {"tag": pa.array([b"a", None], pa.binary())}, {b"base": b"7", b"kind": b"0"}),
        (GOOD | {"entry": pa.array(["x", "y"])}, {b"base": b"7", b"kind": b"0"}),
        (GOOD | {"ms": pa.array([2, 1], pa.uint64())}, {b"base": b"7", b"kind": b"0"}),
        (GOOD | {"more": KINDS}, {b"base": b"7", b"kind": b"0"}),
        (GOOD | {"offset": OFFSETS[::-1]}, {b"kind": b"0"}),
        (GOOD | {"kind": pa.array([0, 9], pa.uint8())}, {b"base": b"7"}),
    ],
)
def test_what_no_node_looks_like_is_refused(columns: dict[str, pa.Array], metadata: dict[bytes, bytes] | None) -> None:
    with pytest.raises(FormatError):
        SealedNode.of_ipc(ipc(columns, metadata))


def test_a_cold_node_takes_no_memory() -> None:
    node = ActiveNode(1)
    for at in range(100):
        node.append(1 + at, 5, at, TAGGED, [b"tag"], [b"an entry that repeats itself"])
    hot = node.sealed()
    before = hot.rows(0, 100)
    cold = chilled(hot)
    assert cold.is_cold
    assert cold.size_bytes == 0 < cold.disk_bytes < cold.opened_bytes
    assert cold.from_index(75).disk_bytes == cold.disk_bytes // 4
    assert cold.rows(0, 100) == before
    assert not SealedNode.of_ipc(cold.ipc()).is_cold


def test_ids_are_one_number() -> None:
    assert unpack_id(pack_id(5, 7)) == (5, 7)
    assert pack_id(1, SEQ_MAX) < pack_id(2, 0)
    assert Rows((1,), (3,), (4,), b"\0", (b"",), (b"",)).ids == [pack_id(3, 4)]
