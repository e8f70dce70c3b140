"""The gate: which commands are refused or held back, and who learns of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.commands.running import TABLE
from tests.store.changes import run
from tidelog.engine.gate import Gate
from tidelog.engine.sessions import Sessions
from tidelog.engine.table import Command
from tidelog.errors import JournalFull
from tidelog.journal.journal import Settings
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

SET = [b"SET", b"k", b"v"]
DEL = [b"DEL", b"k"]
GET = [b"GET", b"k"]
OOM = "OOM command not allowed when used memory > 'maxmemory'."


class OneTimer:
    """A loop with one timer at a time, which goes off when the test says so."""

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None
        self.seconds = 0.0

    def call_soon(self, call: Callable[[], None], /) -> OneTimer:
        return self.call_later(0, call)

    def call_later(self, seconds: float, call: Callable[[], None], /) -> OneTimer:
        assert self.call is None
        self.seconds, self.call = seconds, call
        return self

    def cancel(self) -> None:
        self.call = None

    def go_off(self) -> None:
        call, self.call = self.call, None
        assert call is not None
        call()


class World:
    def __init__(self) -> None:
        self.clock, self.loop = SimulatedClock(), OneTimer()
        self.store = Store.open(SimulatedDisk(1), "/data", self.clock, Settings(), lambda: 1, Random(1))
        self.gate = Gate(self.store, Sessions(), self.clock, self.loop)

    def has_key(self) -> bool:
        transaction = self.store.begin()
        found = transaction.find(b"k")
        self.store.commit(transaction)
        return found is not None


class Refusing:
    """Replication, as far as the gate looks at it."""

    write_refusal: str | None = None
    read_refusal: str | None = None


def row(words: list[bytes]) -> Command:
    found = TABLE.find(words[0])
    assert found is not None
    return found


def test_an_open_gate_refuses_and_holds_nothing() -> None:
    gate = World().gate
    assert (gate.is_open, gate.has_hot_writes) == (True, True)
    assert [gate.refusal_of(row(words), words) for words in (SET, DEL, GET)] == [None] * 3
    assert not any(gate.stops(row(words), words) for words in (SET, DEL, GET))


def test_full_memory_refuses_what_takes_memory() -> None:
    gate = World().gate
    gate.set_out_of_memory(True)
    assert (gate.is_open, gate.has_hot_writes) == (False, False)
    refusals = [gate.refusal_of(row(words), words) for words in (SET, DEL, GET)]
    assert refusals == [OOM, None, None]
    gate.set_out_of_memory(False)
    assert (gate.is_open, gate.refusal_of(row(SET), SET)) == (True, None)


def test_a_journal_that_takes_no_writes_refuses_them() -> None:
    world = World()
    world.store.journal.writer.refusal = JournalFull("no space")
    assert not world.gate.is_open
    assert [world.gate.refusal_of(row(words), words) for words in (SET, DEL)] == ["MISCONF no space"] * 2
    assert world.gate.refusal_of(row(GET), GET) is None


def test_a_pause_holds_and_ends_by_itself() -> None:
    world = World()
    gate = world.gate
    gate.pause(500, writes_only=True)
    assert [gate.holds(row(words), words) for words in (SET, GET)] == [True, False]
    gate.pause(200, writes_only=False)  # it holds more, and the longer time counts
    assert [gate.holds(row(words), words) for words in (SET, GET)] == [True, True]
    assert world.loop.seconds == 0.5
    world.loop.go_off()
    assert (gate.pause_now, world.loop.call) == (None, None)


def test_a_pause_of_centuries_is_looked_at_again() -> None:
    world = World()
    world.gate.pause(2**60, writes_only=False)
    world.loop.go_off()
    assert world.gate.pause_now is not None
    assert world.loop.call is not None
    world.gate.resume()
    assert world.loop.call is None


def test_a_handover_and_a_client_hold_back_on_their_own() -> None:
    world = World()
    gate = world.gate
    gate.hold_writes(1000)
    assert [gate.holds(row(words), words) for words in (SET, GET)] == [True, False]
    gate.pause(300, writes_only=False)
    assert [gate.holds(row(words), words) for words in (SET, GET)] == [True, True]
    assert world.loop.seconds == 0.3
    world.clock.advance(300_000)
    world.loop.go_off()  # the client's is over
    assert [gate.holds(row(words), words) for words in (SET, GET)] == [True, False]
    gate.resume()
    assert gate.holds(row(SET), SET)
    gate.hold_writes(0)
    assert (gate.pause_now, world.loop.call) == (None, None)
    gate.pause(300, writes_only=True)
    gate.hold_writes(0)
    assert gate.holds(row(SET), SET)
    gate.hold_writes(5)
    gate.end_pauses()
    assert (gate.pause_now, world.loop.call) == (None, None)


def test_replication_refuses_in_the_order_of_redis() -> None:
    world, role = World(), Refusing()
    gate = world.gate
    role.write_refusal = "READONLY no"
    gate.role_changed(role)
    assert (gate.is_open, gate.has_hot_writes, gate.is_read_only) == (False, False, True)
    assert [gate.refusal_of(row(words), words) for words in (SET, DEL, GET)] == ["READONLY no", "READONLY no", None]
    role.read_refusal = "MASTERDOWN no"
    gate.role_changed(role)
    assert [gate.refusal_of(row(words), words) for words in (SET, GET)] == ["READONLY no", "MASTERDOWN no"]
    assert gate.refusal_of(row([b"TIME"]), [b"TIME"]) is None
    world.store.journal.writer.refusal = JournalFull("no space")
    assert gate.refusal_of(row(DEL), DEL) == "MISCONF no space"
    gate.set_out_of_memory(True)
    assert [gate.refusal_of(row(words), words) for words in (SET, DEL)] == [OOM, "MISCONF no space"]
    world.store.journal.writer.refusal, role.write_refusal, role.read_refusal = None, None, None
    gate.role_changed(role)
    gate.set_out_of_memory(False)
    assert (gate.is_open, gate.has_hot_writes, gate.is_read_only) == (True, True, False)


def test_whether_a_command_writes_may_depend_on_its_arguments() -> None:
    world, role = World(), Refusing()
    role.write_refusal = "NOREPLICAS no"
    world.gate.role_changed(role)
    plain = [b"TREAD", b"k", b"1", b"10"]
    assert world.gate.refusal_of(row(plain), plain) is None
    assert world.gate.refusal_of(row(plain), [*plain, b"GROUP", b"g"]) == "NOREPLICAS no"
    assert not world.gate.is_read_only


def test_a_read_of_what_has_expired_changes_nothing_while_writes_are_held_back() -> None:
    """A pause, or a failover, says that nothing is written: the next leader removes the key."""
    world = World()
    run(world.store, [b"SET", b"k", b"v", b"PX", b"100"])
    world.clock.advance(200_000)
    ts = world.store.journal.writer.last_ts

    def check_kept() -> None:
        assert not world.has_key()
        assert world.store.database(0).size == 1
        assert world.store.journal.writer.last_ts == ts

    world.gate.pause(10_000, writes_only=True)
    check_kept()
    world.gate.resume()
    world.gate.hold_writes(10_000)
    check_kept()
    world.gate.hold_writes(0)
    assert not world.has_key()
    assert world.store.database(0).size == 0
    assert world.store.journal.writer.last_ts > ts
