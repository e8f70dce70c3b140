"""A type is one row: one that only this test knows goes everywhere that a value goes.

A *tally* counts; it is as different from the other types as it can be: a class of its own, one operation.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.feeds.made import Watched
from tidelog.cli.output.values import value_to_text
from tidelog.errors import InternalError
from tidelog.journal.operation import OperationKind
from tidelog.store.type_table import TypeTable, value_types
from tidelog.types.change import Change, number
from tidelog.types.effect import Effect, Keyspace, decode_keyed, encode_keyed, keyed_keys
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.hash import HASH_TYPE
from tidelog.types.hash_value import Hash
from tidelog.types.string import STRING_TYPE
from tidelog.types.value_type import ValueType, in_pieces


class Tally:
    """Strokes, in order."""

    def __init__(self) -> None:
        self.strokes: list[bytes] = []

    def __len__(self) -> int:
        return len(self.strokes)


class Stroke(NamedTuple):
    """Strokes are added."""

    key: bytes
    strokes: list[bytes]


def _apply(keyspace: Keyspace, op: Stroke) -> None:
    tally = keyspace.change(op.key)
    if tally is None:
        tally = Tally()
        keyspace.put(op.key, tally)
    tally.strokes += op.strokes


def _stroke(key: bytes, strokes: list[bytes]) -> list[Stroke]:
    return [Stroke(key, strokes)]


def _copy(tally: Tally) -> Tally:
    made = Tally()
    made.strokes = list(tally.strokes)
    return made


def _pieces(key: bytes, tally: Tally) -> Iterator[Any]:
    return in_pieces(key, list(tally.strokes), _stroke)


KIND = OperationKind(
    0xE0,
    "stroke",
    lambda op: encode_keyed(op.key, op.strokes),
    lambda payload, _: Stroke(*decode_keyed(payload)),
    keyed_keys,
)
TALLY = ValueType(
    name=b"tally",
    value_class=Tally,
    effects=[Effect(Stroke, KIND, _apply, lambda op: [Change(op.key, b"tally", b"add", number(len(op.strokes)))])],
    operations=lambda key, tally: [Stroke(key, list(tally.strokes))],
    pieces=_pieces,
    copy=_copy,
    initial=lambda key, tally: iter([Change(key, b"tally", b"whole", number(len(tally)))]),
    encoding=lambda _value, _bounds: b"wood",
    size_bytes=lambda tally, _: 1000 * len(tally),
)


class Tallying(Watched):
    types = TypeTable([*value_types(), TALLY])

    def add(self, key: bytes, *strokes: bytes) -> None:
        transaction = self.store.begin()
        transaction.run([Stroke(key, list(strokes))])
        self.store.commit(transaction)

    def tally(self, key: bytes) -> list[bytes]:
        value = self.store.database(0).find(key)
        assert isinstance(value, Tally)
        return value.strokes


@pytest.fixture(params=[1, 3])
def machine(request: pytest.FixtureRequest) -> Tallying:
    return Tallying(request.param)


def test_commands_on_any_key(machine: Tallying) -> None:
    machine.add(b"t", b"a", b"b")
    machine("SET", "s", "x")
    assert machine("TYPE", "t") == b"tally"
    assert machine("SCAN", 0, "TYPE", "tally", "COUNT", 1000) == [b"0", [b"t"]]
    assert machine("OBJECT", "ENCODING", "t") == b"wood"
    assert machine("OBJECT", "REFCOUNT", "t") == 1
    machine.add(b"u", *[b""] * 10)
    assert machine("MEMORY", "USAGE", "u") - machine("MEMORY", "USAGE", "t") == 8000
    assert "WRONGTYPE" in machine.refused("HGET", "t", "f")


def test_copies_and_names(machine: Tallying) -> None:
    machine.add(b"t", b"a", b"b")
    machine("PEXPIREAT", "t", 10**15)
    assert machine("COPY", "t", "u") == 1
    assert machine("RENAME", "t", "v") == b"OK"
    machine.add(b"u", b"c")
    assert machine.tally(b"u") == [b"a", b"b", b"c"]
    assert machine.tally(b"v") == [b"a", b"b"]
    assert machine("PEXPIRETIME", "u") == machine("PEXPIRETIME", "v") == 10**15


def test_recovery_from_the_journal(machine: Tallying) -> None:
    machine.add(b"t", b"a", b"b")
    machine.add(b"t", b"c")
    machine.restart()
    assert machine.tally(b"t") == [b"a", b"b", b"c"]


def test_a_snapshot_has_the_values_of_its_moment(machine: Tallying) -> None:
    large = [b"%d" % at for at in range(5000)]
    machine.add(b"t", b"a")
    machine.add(b"large", *large)
    machine("PEXPIREAT", "large", 10**15)
    machine.store.journal.writer.write()
    machine.store.journal.writer.sync()
    capture = machine.store.begin_capture()
    assert capture is not None
    machine.add(b"t", b"b")
    machine.add(b"large", b"more")
    opcodes: list[int] = []
    add = capture.snapshot.add

    def counted(shard: Any, opcode: int, *rest: Any) -> None:
        opcodes.append(opcode)
        add(shard, opcode, *rest)

    capture.snapshot.add = counted  # type: ignore[method-assign, assignment]
    while not capture.is_done:
        capture.step()
    machine.store.journal.finish_snapshot(capture.snapshot)
    machine.store.end_capture()
    assert opcodes.count(KIND.opcode) > 2, "the large one goes in pieces"
    machine.restart()
    assert machine.tally(b"t") == [b"a", b"b"]
    assert machine.tally(b"large") == [*large, b"more"]
    assert machine("PEXPIRETIME", "large") == 10**15


def test_feeds(machine: Tallying) -> None:
    machine.add(b"t", b"a", b"b")
    _, live = machine.watch()
    _, initial = machine.watch(is_initial=True)
    machine.settle()
    machine.add(b"t", b"c")
    expected = [b"value", b"t", b"tally", b"add", 1]
    assert [event for event in machine.events(live) if event[0] == b"value"] == [expected]
    whole = [b"value", b"t", b"tally", b"whole", 2]
    assert [event for event in machine.events(initial) if event[0] == b"value"] == [whole, expected]


def test_the_journal_shows_its_operations() -> None:
    table = Tallying.types.operations
    payload = KIND.encode(Stroke(b"t", [b"a"]))
    assert table.keys(KIND.opcode, payload) == [b"t"]
    assert value_to_text(table.decode(KIND.opcode, payload, None)) == 'key="t" strokes=["a"]'


def test_no_opcode_stands_for_two_types() -> None:
    with pytest.raises(InternalError, match="registered already"):
        TypeTable([*value_types(), TALLY, TALLY])


# --- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 1000, 20_000])
def test_a_hash_is_about_as_large_as_it_is(count: int) -> None:
    value, bounds = Hash(), EncodingBounds()
    value.set_field(b"no shape comes of the other fields", b"", bounds)
    tracemalloc.start()
    for index in range(count):
        value.set_field(b"field:%d" % index, bytes(bytearray(b"x" * 50)), bounds)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 < HASH_TYPE.size_bytes(value, 5) / taken < 1.7
    assert 0.6 < HASH_TYPE.size_bytes(value, 0) / taken < 1.7


def test_a_string_is_about_as_large_as_it_is() -> None:
    assert 1000 < STRING_TYPE.size_bytes(b"x" * 1000, 5) < 1100
