"""WATCH: who is told that a key changed, and that it costs nothing while nobody watches."""

from __future__ import annotations

from tests.store.made import Machine
from tidelog.journal.operation import Del, FlushDb, Val
from tidelog.store.range_removal import RangeRemoval
from tidelog.store.watch import Watches
from tidelog.types.key import DelRange, Expire


class Client:
    """A watcher."""

    def __init__(self) -> None:
        self.watched: set[tuple[int, bytes]] = set()
        self.is_dirty = False


def is_told(client: Client) -> bool:
    return client.is_dirty


def change(machine: Machine, *operations: object, database: int = 0) -> None:
    transaction = machine.store.begin(database)
    transaction.run(operations)
    machine.store.commit(transaction)


def test_who_watches_is_told() -> None:
    machine = Machine()
    one, other = Client(), Client()
    machine.store.watch(one, 0, b"a")
    machine.store.watch(one, 0, b"b")
    machine.store.watch(other, 0, b"b")
    change(machine, Val([(b"c", b"1")]))
    change(machine, Val([(b"a", b"1")]), database=1)
    assert not is_told(one)
    change(machine, Val([(b"a", b"1")]))
    assert is_told(one)
    assert not is_told(other)
    change(machine, Expire(b"b", 5))  # it is not there
    assert not is_told(other)
    change(machine, Val([(b"b", b"1")]))
    assert is_told(other)


def test_deleting_expiring_and_flushing_are_changes() -> None:
    machine = Machine()
    for operation in (Del([b"a"]), Expire(b"a", 10**15), FlushDb()):
        change(machine, Val([(b"a", b"1")]))
        client = Client()
        machine.store.watch(client, 0, b"a")
        change(machine, operation)
        assert is_told(client), operation
        machine.store.unwatch(client)


def test_a_range_changes_the_keys_in_it() -> None:
    machine = Machine()
    change(machine, Val([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]))
    told, outside, missing, elsewhere = Client(), Client(), Client(), Client()
    for client, number, key in ((told, 0, b"b"), (outside, 0, b"c"), (missing, 0, b"b2"), (elsewhere, 1, b"b")):
        machine.store.watch(client, number, key)
    removal = RangeRemoval(machine.store.database(0), b"b", b"c")
    removal.look_at_rest()
    change(machine, DelRange(b"b", b"c", removal))
    assert [is_told(client) for client in (told, outside, missing, elsewhere)] == [True, False, False, False]


def test_flushing_does_not_change_what_is_not_there() -> None:
    machine = Machine()
    client = Client()
    machine.store.watch(client, 0, b"a")
    change(machine, Val([(b"b", b"1")]))
    change(machine, FlushDb())
    assert not is_told(client)


def test_who_watches_no_longer_is_not_told() -> None:
    machine = Machine()
    one, other = Client(), Client()
    machine.store.watch(one, 0, b"a")
    machine.store.watch(other, 0, b"a")
    machine.store.unwatch(one)
    change(machine, Val([(b"a", b"1")]))
    assert not is_told(one)
    assert is_told(other)
    machine.store.unwatch(other)
    assert not is_told(other)
    assert other.watched == set()


def test_nobody_is_asked_while_nobody_watches() -> None:
    machine = Machine()
    client = Client()
    assert machine.store.database(0).observer is None
    machine.store.watch(client, 0, b"a")
    assert all(database.observer is not None for database in machine.store.databases)
    machine.store.unwatch(client)
    assert all(database.observer is None for database in machine.store.databases)


def test_watching_twice_is_watching_once() -> None:
    watches, client = Watches(), Client()
    watches.add(client, 0, b"a")
    watches.add(client, 0, b"a")
    assert watches
    watches.forget(client)
    assert not watches
    watches.forget(client)


def test_an_expired_key_that_is_removed_is_a_change() -> None:
    machine = Machine()
    change(machine, Val([(b"a", b"1")], machine.now_ms + 10))
    client = Client()
    machine.store.watch(client, 0, b"a")
    machine.clock.advance(10_000)
    transaction = machine.store.begin()
    assert transaction.find(b"a") is None
    assert not is_told(client)
    machine.store.commit(transaction)
    assert is_told(client)
