"""Active expiry: what is due goes, bounded in number, and is journaled as deleted."""

from __future__ import annotations

import pytest

from tests.store.made import Machine
from tidelog import limits
from tidelog.journal.operation import Del, Val
from tidelog.store.expiry import remove_due
from tidelog.types.key import Expire


def put(machine: Machine, key: bytes, after_ms: int | None, database: int = 0) -> None:
    transaction = machine.store.begin(database)
    transaction.run([Val([(key, b"v")], None if after_ms is None else machine.now_ms + after_ms)])
    machine.store.commit(transaction)


def keys(machine: Machine) -> list[bytes]:
    return sorted(key for database in machine.store.databases for key in database.all_keys())


@pytest.mark.parametrize("shard_count", [1, 3])
def test_what_is_due_goes(shard_count: int) -> None:
    machine = Machine(shard_count)
    put(machine, b"soon", 10)
    put(machine, b"soon too", 10, 5)
    put(machine, b"later", 11)
    put(machine, b"never", None)
    assert remove_due(machine.store) == 0
    machine.clock.advance(10_000)
    assert remove_due(machine.store) == 2
    assert remove_due(machine.store) == 0
    assert keys(machine) == [b"later", b"never"]
    machine.restart()
    assert keys(machine) == [b"later", b"never"]


def test_what_has_changed_since_stays() -> None:
    machine = Machine()
    for name in (b"postponed", b"persisted", b"replaced", b"deleted", b"hastened"):
        put(machine, name, 10)
    transaction = machine.store.begin()
    transaction.run(
        [
            Expire(b"postponed", machine.now_ms + 100),
            Expire(b"persisted", None),
            Val([(b"replaced", b"w")]),
            Del([b"deleted"]),
            Expire(b"hastened", machine.now_ms + 5),
        ]
    )
    machine.store.commit(transaction)
    machine.clock.advance(10_000)
    assert remove_due(machine.store) == 1
    assert keys(machine) == [b"persisted", b"postponed", b"replaced"]
    machine.clock.advance(90_000)
    assert remove_due(machine.store) == 1
    assert keys(machine) == [b"persisted", b"replaced"]
    assert machine.store.database(0).expiring.waiting() == set()


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EXPIRED_AT_ONCE_MAX", 10)
    machine = Machine()
    for number in range(25):
        put(machine, b"%d" % number, 1, number % 3)
    machine.clock.advance(1000)
    assert [remove_due(machine.store) for _ in range(4)] == [10, 10, 5, 0]
    assert keys(machine) == []


def test_it_goes_on_after_a_restart() -> None:
    machine = Machine()
    put(machine, b"a", 10)
    machine.restart()
    machine.clock.advance(10_000)
    assert remove_due(machine.store) == 1
