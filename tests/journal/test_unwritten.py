"""Which keys a cycle changes that there was no space for."""

from __future__ import annotations

from random import Random

import pytest

from tests.journal.machine import Machine, Put
from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.ids import ShardId
from tidelog.journal.operation import DEL, FLUSHDB, core_table, encode_items


def stuck(machine: Machine) -> set[bytes] | None:
    """What the writer says of a batch that there is no space for."""
    machine.disk.capacity_bytes = machine.disk.used_bytes
    with pytest.raises(JournalFull):
        machine.journal.writer.write()
    found = machine.journal.writer.unwritten_keys(core_table())
    return None if found is None else set(found)


@pytest.mark.parametrize("seed", range(30))
def test_every_key_and_no_other(seed: int) -> None:
    """Frames are tiny: records are split over two of them, go to the blob file, and begin new segments."""
    rng = Random(seed)
    machine = Machine(seed=seed, shards=rng.randint(1, 3))
    shards = range(machine.settings.shard_count)
    for number in range(rng.randint(0, 20)):
        machine.commit((rng.choice(shards), b"before%d" % number, bytes(rng.choice([1, 100, 200]))))
    expected = set()
    for number in range(rng.randint(1, 60)):
        puts: list[Put] = []
        for part in range(rng.choice([1, 1, 1, 3])):
            key = b"key%d.%d" % (number, part)
            expected.add(key)
            puts.append((rng.choice(shards), key, bytes(rng.choice([0, 1, 50, 200, 240, 3000])), rng.choice([0, 0, 5])))
        machine.append(*puts)
    assert stuck(machine) == expected
    machine.disk.capacity_bytes = None
    machine.journal.writer.write()
    assert machine.journal.writer.unwritten_keys(core_table()) == frozenset()


def test_deleted_keys_and_all_keys() -> None:
    machine = Machine(shards=1)
    machine.append((0, b"a", b"1"))
    machine.journal.writer.append_one(ShardId(0), machine.journal.hlc.next(), DEL, encode_items([b"b", b"c"]))
    assert stuck(machine) == {b"a", b"b", b"c"}
    machine = Machine(shards=1)
    machine.journal.writer.append_one(ShardId(0), machine.journal.hlc.next(), FLUSHDB, b"")
    assert stuck(machine) is None


def test_a_batch_that_is_too_large_to_look_at_may_change_any_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNWRITTEN_LOOKED_AT_BYTES", 300)
    machine = Machine(shards=1)
    machine.append((0, b"a", bytes(100)))
    assert stuck(machine) == {b"a"}
    machine = Machine(shards=1)
    machine.append((0, b"a", bytes(100)), (0, b"b", bytes(200)))
    assert stuck(machine) is None
