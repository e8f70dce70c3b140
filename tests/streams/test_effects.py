"""Every operation survives its record, damaged records are refused, and replaying gives what was there live."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.plain import BY_OPERATION, apply, decoded, filled, plain, plain_group, stream_in
from tests.streams.unreadable import unreadable
from tidelog.errors import FormatError
from tidelog.ids import U64_MAX
from tidelog.store.keyspace import Database
from tidelog.streams.effects import effects
from tidelog.streams.operations import (
    Ack,
    ConsumerDrop,
    ConsumerSet,
    Deliver,
    GroupDrop,
    GroupSet,
    Pend,
    ProducerSet,
    StreamAppend,
    StreamConfig,
    StreamCopy,
    StreamCut,
    StreamEvict,
    StreamNode,
    StreamNodes,
    StreamPlace,
)
from tidelog.streams.payload import encode_append
from tidelog.streams.stream import Stream

NODE = filled(5).active.sealed()
OPERATIONS: list[Any] = [
    StreamAppend(b"k", 1, 1000, 0, 0, [b"tag", b""], [b"entry", b""]),
    StreamAppend(b"k" * 200, 7, 1000, 3, 1, [b"t"], [b"x" * 300], b"producer", 12),
    StreamAppend(b"", 7, U64_MAX, 3, 0, [b"t"], [b"x" * 70000]),
    StreamAppend(b"k", 7, 5, U64_MAX, 1, [b"t"], [b"x"]),
    StreamAppend(b"k", 7, 5, U64_MAX - 1, 0, [b"t", b"t"], [b"x", b"y"]),
    StreamEvict(b"k", 5),
    StreamCut(b"k", [1, 2, 3, 9, 7, 8]),
    StreamCut(b"k", [4], 5 << 64 | 6),
    StreamPlace(b"k", 3, 9, 5 << 64 | 7, 1, -4),
    StreamNode(b"k", NODE),
    StreamConfig(b"k", 2**63 - 1, 5, 0),
    StreamCopy(b"k", b"source" * 40, 7, 3, 9, 5 << 64 | 7, 1, -4),
    GroupSet(b"k", b"g", 3, 5 << 64, -1, 10, b"dead", 3),
    GroupDrop(b"k", b"g"),
    ConsumerSet(b"k", b"g", b"c", 1000, -1),
    ConsumerDrop(b"k", b"g", b"c"),
    Deliver(b"k", b"g", b"", 1000, 50, 9000, 4, 4 << 64, 4, True, [2, 3, 4], [2 << 64, 3 << 64, 4 << 64]),
    Deliver(b"k", b"g", b"", 1000, 50, 9000, 4, 4 << 64, 4, True, [2, 3, 7], [4 << 64, 4 << 64 | 1, 4 << 64 | 2]),
    Deliver(b"k", b"g", b"c", 1000, 0, 0, 4, 4 << 64, -1, False, []),
    Pend(b"k", b"g", b"", [(2, 2 << 64, 1000, 3, 50, 9000), (1, 1 << 64, 1000, 3, 0, 0)]),
    Ack(b"k", b"g", [5, 1, 2, 3]),
    ProducerSet(b"k", b"p", [(1, 1), (5, 9)]),
]


def comparable(operation: Any) -> Any:
    """Sequences of any kind as lists, nodes as their entries."""
    return [
        [list(column) for column in field.rows(0, len(field))]
        if field.__class__ is NODE.__class__
        else list(field)
        if isinstance(field, list | range | tuple)
        else field
        for field in operation
    ]


def as_before(operation: Any) -> bytes:
    """The record of an operation as older versions wrote it, without what was added at its end."""
    kind = BY_OPERATION[type(operation)].kind
    if isinstance(operation, Deliver):
        operation = operation._replace(ids=())
    elif isinstance(operation, StreamCut):
        operation = operation._replace(max_id=0)
    return kind.encode(operation)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: type(each).__name__)
def test_it_survives_its_record(operation: Any) -> None:
    kind = BY_OPERATION[type(operation)].kind
    payload = kind.encode(operation)
    assert comparable(decoded(operation)) == comparable(operation)
    assert kind.keys(payload) == [operation.key]
    assert kind.encode(decoded(operation)) == payload


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: type(each).__name__)
def test_a_payload_cut_at_any_byte_is_refused(operation: Any) -> None:
    kind = BY_OPERATION[type(operation)].kind
    payload = kind.encode(operation)
    for end in range(len(payload)) if len(payload) < 2000 else (0, 1, 20, 1000, len(payload) - 1):
        if payload[:end] == as_before(operation):
            continue
        with pytest.raises(FormatError):
            kind.decode(payload[:end], None)
    with pytest.raises(FormatError):
        kind.decode(payload + b"\0", None)


@pytest.mark.parametrize(
    "change",
    [(0, 2), (1, 3), (1, 0)],
    ids=["kind", "width", "no width"],
)
def test_an_append_that_cannot_be(change: tuple[int, int]) -> None:
    payload = bytearray(encode_append(b"k", (1, 2, 3), 0, [b"t"], [b"e"]))
    payload[2 + 24 + change[0]] = change[1]
    with pytest.raises(FormatError):
        BY_OPERATION[StreamAppend].kind.decode(bytes(payload), None)


@pytest.mark.parametrize("place", [(0, 1, 1), (U64_MAX, 1, 1), (1, 1, U64_MAX)])
def test_an_append_at_a_place_that_cannot_be(place: tuple[int, int, int]) -> None:
    with pytest.raises(FormatError):
        BY_OPERATION[StreamAppend].kind.decode(encode_append(b"k", place, 0, [b"t"] * 2, [b"e"] * 2), None)


def test_an_append_that_claims_a_million_entries() -> None:
    payload = bytearray(encode_append(b"k", (1, 2, 3), 0, [b"t"], [b"e"]))
    payload[2 + 26 : 2 + 30] = (2**31).to_bytes(4, "little")
    with pytest.raises(FormatError):
        BY_OPERATION[StreamAppend].kind.decode(bytes(payload), None)


@given(st.binary(max_size=80))
def test_any_bytes_are_an_operation_or_refused(payload: bytes) -> None:
    for effect in effects():
        for key in (b"", b"\3k"):
            try:
                effect.kind.decode(key + payload, None)
            except FormatError:
                continue


def test_opcodes_and_names_are_unique() -> None:
    kinds = [effect.kind for effect in effects()]
    assert len({kind.opcode for kind in kinds}) == len({kind.name for kind in kinds}) == len(kinds)
    assert all(0x50 <= kind.opcode < 0x70 for kind in kinds)


# --- applying -----------------------------------------------------------------------------------------------------


def live(database: Database, operations: list[Any]) -> None:
    for operation in operations:
        BY_OPERATION[type(operation)].apply(database, operation)


def append(offset: int, count: int = 1, ms: int = 1000, **more: Any) -> StreamAppend:
    tags = [b"t%d" % at for at in range(count)]
    return StreamAppend(b"k", offset, ms + offset, 0, 0, tags, tags, **more)


def test_what_operations_do() -> None:
    operations: list[Any] = [
        append(1, 6, producer=b"p", producer_seq=4),
        StreamEvict(b"k", 2),
        StreamCut(b"k", [4]),
        GroupSet(b"k", b"g", 0, 0, 0, 5, b"", 0),
        Deliver(b"k", b"g", b"", 50, 10, 0, 3, 3 << 64, 3, True, [2, 3]),
        Deliver(b"k", b"g", b"c", 60, 0, 0, 6, 6 << 64, 5, True, [5, 6]),
        Pend(b"k", b"g", b"", [(2, 1001 << 64 | 1, 70, 2, 10, 0)]),
        Ack(b"k", b"g", [3, 99]),
        ConsumerSet(b"k", b"g", b"d", 80, -1),
    ]
    databases = Database(0), Database(1)
    live(databases[0], operations)
    apply(databases[1], operations)
    stream = stream_in(databases[0])
    assert plain(stream) == plain(stream_in(databases[1]))
    assert list(stream.read(1, 9).offsets) == [2, 3, 5, 6]
    group = stream.groups[b"g"]
    assert list(group.pending) == [5, 6, 2]
    assert [each.id for each in group.pending.values()] == [1001 << 64 | 4, 1001 << 64 | 5, 1001 << 64 | 1]
    assert (group.consumers[b"c"].active_ms, group.consumers[b"d"].seen_ms) == (60, 80)
    assert stream.producers[b"p"].offset_of(4) == 1
    live(databases[0], [ConsumerDrop(b"k", b"g", b"c")])
    assert list(group.pending) == [2]
    live(databases[0], [GroupDrop(b"k", b"g"), GroupDrop(b"k", b"none")])
    assert not stream.groups


def test_a_delivery_brings_the_ids_of_its_entries() -> None:
    database = Database(0)
    brought = Deliver(b"k", b"g", b"", 50, 10, 0, 3, 3 << 64, 3, True, [2, 3], [77 << 64, 78 << 64])
    live(database, [append(1, 6), brought])
    assert [each.id for each in stream_in(database).groups[b"g"].pending.values()] == [77 << 64, 78 << 64]


def test_the_ids_of_a_delivery_by_an_older_version_are_looked_up() -> None:
    database = Database(0)
    operation = Deliver(b"k", b"g", b"", 50, 10, 0, 3, 3 << 64, 3, True, [2, 3])
    payload = BY_OPERATION[Deliver].kind.encode(operation)
    assert payload.endswith(b"\1" + b"\3\5\5")  # it keeps them: a run of two from offset 2 on
    live(database, [append(1, 6), BY_OPERATION[Deliver].kind.decode(payload, None)])
    assert [each.id for each in stream_in(database).groups[b"g"].pending.values()] == [1001 << 64 | 1, 1001 << 64 | 2]


def test_a_delivery_with_ids_that_are_not_its_entries_is_refused() -> None:
    kind = BY_OPERATION[Deliver].kind
    whole = Deliver(b"k", b"g", b"", 50, 10, 0, 3, 3 << 64, 3, True, [2, 3], [2, 3])
    for damaged in (whole._replace(ids=[2, 3, 4]), whole._replace(ids=[2]), whole._replace(keeps=False)):
        with pytest.raises(FormatError):
            kind.decode(kind.encode(damaged), None)


def test_a_cut_brings_the_largest_id_it_deletes() -> None:
    database = Database(0)
    live(database, [append(1, 6), StreamCut(b"k", [2, 4], 77 << 64)])
    assert stream_in(database).max_deleted_id == 77 << 64
    live(database, [StreamCut(b"k", [1], 5 << 64)])
    assert stream_in(database).max_deleted_id == 77 << 64


def test_the_largest_id_of_a_cut_by_an_older_version_is_looked_up() -> None:
    database = Database(0)
    payload = b"\3k" + b"\3\5\7"  # a run of three from offset 2 on
    live(database, [append(1, 3), BY_OPERATION[StreamCut].kind.decode(payload, None)])  # there is no entry 4
    assert (stream_in(database).max_deleted_id, stream_in(database).length) == (1001 << 64 | 2, 1)


def test_an_append_further_on_leaves_a_hole() -> None:
    database = Database(0)
    apply(database, [append(5), append(6), append(9), StreamPlace(b"k", 2, 20, 9 << 70, 3, 1)])
    stream = stream_in(database)
    assert list(stream.read(1, 99).offsets) == [5, 6, 9]
    assert (stream.first, stream.next, stream.last_id, stream.entries_added) == (2, 20, 9 << 70, 20)


# --- nodes that are not read ----------------------------------------------------------------------------------------


def known_of(stream: Stream) -> dict[str, Any]:
    """What can be said of a stream without reading its sealed nodes."""
    nodes = [[node.offset_at(index) for index in range(len(node))] for node in stream.sealed]
    return {
        "offsets": [*nodes, list(stream.active.rows(0, len(stream.active)).offsets)],
        "bases": list(stream.bases),
        "places": (stream.first, stream.next, stream.length, stream.first_entry),
        "ids": (stream.last_id, stream.max_deleted_id, stream.added_beside),
        "groups": {name: plain_group(group) for name, group in stream.groups.items()},
        "producers": [(name, list(each.seqs), list(each.offsets)) for name, each in stream.producers.items()],
    }


def half_sealed() -> Stream:
    """Forty entries in sealed nodes, one of them with holes, and five in an active one; a group has read some."""
    stream = Stream()
    for _ in range(4):
        filled(10, stream=stream)
        stream.seal()
    filled(5, stream=stream)
    stream.delete([13, 14])
    group = stream.group(b"g")
    group.deliver(b"c", (50, 0, 0), (6, 1006 << 64, 6), [2, 5, 6], [1002 << 64, 1005 << 64, 1006 << 64], keeps=True)
    group.deliver(b"", (50, 9, 99), (8, 1008 << 64, 8), [7, 8], [1007 << 64, 1008 << 64], keeps=True)
    return stream


def both(operations: list[Any]) -> Stream:
    """Apply operations to a stream, and to the same stream with nodes that cannot be read: it becomes the same."""
    readable, database = Database(0), Database(0)
    readable.put(b"k", half_sealed())
    database.put(b"k", unreadable(half_sealed()))
    for operation in operations:
        for each in (readable, database):
            BY_OPERATION[type(operation)].apply(each, decoded(operation))
    for key in readable.all_keys():
        assert known_of(stream_in(database, key)) == known_of(stream_in(readable, key))
    assert readable.alarms.times == database.alarms.times
    return stream_in(readable)


def test_no_operation_reads_a_sealed_node() -> None:
    place = 4, 46, 1045 << 64, 1033 << 64, 0
    operations = [
        StreamEvict(b"k", 4),  # in the middle of a node
        StreamCut(b"k", [6, 20, 25, 26, 33], 1033 << 64),  # in the middle, and the last of a node
        StreamCut(b"k", [44], 1003 << 64),
        Deliver(b"k", b"g", b"c", 60, 0, 0, 11, 1011 << 64, 9, True, [9, 10, 11], [each << 64 for each in (9, 10, 11)]),
        Deliver(b"k", b"new", b"", 60, 5, 90, 9, 1009 << 64, 9, True, [7, 8, 9], [each << 64 for each in (7, 8, 9)]),
        Deliver(b"k", b"new", b"", 60, 0, 0, 12, 1012 << 64, 9, False, [12]),
        ConsumerSet(b"k", b"g", b"d", 80, -1),
        Pend(b"k", b"g", b"d", [(7, 1007 << 64, 70, 2, 0, 0), (20, 1020 << 64, 70, 2, 0, 200)]),  # which is gone
        Pend(b"k", b"g", b"", [(25, 1025 << 64, 70, 2, 0, 0)]),
        Ack(b"k", b"g", [5, 8, 99]),
        ConsumerDrop(b"k", b"g", b"c"),
        GroupSet(b"k", b"g", 3, 0, -1, 5, b"dead", 2),
        ProducerSet(b"k", b"p", [(1, 1), (2, 9)]),
        StreamPlace(b"k", *place[:2], 1050 << 64, *place[3:]),
        StreamConfig(b"k", 10**6, 5, 9),
        StreamAppend(b"k", 50, 1051, 0, 0, [b"t"] * 1200, [b"e"] * 1200, b"p", 3),
        StreamCopy(b"copy", b"k", 0, 4, 1250, 1051 << 64 | 1199, 1033 << 64, 0),
        StreamEvict(b"copy", 37),
        StreamCut(b"copy", [38, 40], 1040 << 64),
        GroupDrop(b"k", b"new"),
        StreamEvict(b"k", 31),
        StreamNode(b"restored", NODE),
    ]
    # References of a snapshot are not about nodes that are there.
    assert {type(operation) for operation in operations} | {StreamNodes} == BY_OPERATION.keys()
    stream = both(operations)
    assert (stream.first, stream.length) == (31, 1213)


@given(
    st.lists(st.tuples(st.sampled_from(["evict", "cut", "deliver", "pend"]), st.sets(st.integers(1, 46), min_size=1)))
)
def test_bounds_and_holes_are_changed_without_reading(steps: list[tuple[str, set[int]]]) -> None:
    operations: list[Any] = []
    for step, chosen in steps:
        offsets = sorted(chosen)
        ids = [(1000 + offset) << 64 for offset in offsets]
        match step:
            case "evict":
                operations.append(StreamEvict(b"k", offsets[0]))
            case "cut":
                operations.append(StreamCut(b"k", offsets, ids[-1]))
            case "deliver":
                operations.append(Deliver(b"k", b"g", b"", 9, 5, 0, offsets[-1], ids[-1], -1, True, offsets, ids))
            case _:
                pending = [(offset, number, 9, 1, 0, 0) for offset, number in zip(offsets, ids, strict=True)]
                operations.append(Pend(b"k", b"g", b"c", pending))
    both(operations)
