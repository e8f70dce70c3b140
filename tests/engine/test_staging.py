"""Commands with large values wait until a thread has written them; the thread does its part when the test says so."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.engine.made import make_connections, make_engine
from tests.server.test_connection import Transport
from tests.store.changes import plain
from tests.store.made import Machine
from tidelog import limits
from tidelog.engine.engine import Engine
from tidelog.journal.frame import Geometry
from tidelog.journal.operation import Val
from tidelog.journal.segment import list_segments
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.types.list import RPush

LARGE = bytes(range(256)) * 1200
"""Larger than what the decoder takes in its plain form, and the hot path at all."""


class ManualWorker:
    """A thread whose work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.count = 0

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.waiting.append((work, done))

    def run_one(self) -> None:
        work, done = self.waiting.pop(0)
        work()
        self.count += 1
        done()


class World:
    """An engine on a simulated disk, with such a thread."""

    def __init__(self, shard_count: int = 1, geometry: Geometry | None = None) -> None:
        self.machine = Machine(shard_count, geometry)
        self.worker = ManualWorker()
        self.engine: Engine = make_engine(
            self.machine.store, self.machine.clock, asyncio.get_running_loop(), worker=self.worker
        )
        self.connections = make_connections(self.engine)
        self.turns = Turns(asyncio.get_running_loop(), self.machine.store.journal, self.machine.clock.monotonic_us)

    def connect(self) -> tuple[Connection, Transport]:
        session, transport = Connection(self.engine, self.turns, self.connections), Transport()
        made: Any = transport
        session.connection_made(made)
        return session, transport

    async def work(self) -> None:
        """Let the thread do all that it has to do."""
        await settle()
        while self.worker.waiting:
            self.worker.run_one()
            await settle()

    def end_segment(self) -> None:
        """Others write until the journal goes on in a new segment."""
        segments = len(list_segments(self.machine.disk, "/data/shard-0"))
        while len(list_segments(self.machine.disk, "/data/shard-0")) == segments:
            transaction = self.machine.store.begin()
            transaction.run([Val([(b"other", bytes(500))])])
            self.machine.store.commit(transaction)
            self.machine.store.journal.writer.write()

    def value(self, key: bytes) -> Any:
        return self.machine.store.database(0).find(key)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 100_000)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_the_command_waits_for_its_value_and_others_do_not() -> None:
    async def test() -> None:
        world = World()
        session, transport = world.connect()
        _, other_transport = other = world.connect()
        session.data_received(encode(b"SET", b"k", LARGE) + encode(b"STRLEN", b"k"))
        await settle()
        world.worker.run_one()  # its pieces are joined
        await settle()
        other[0].data_received(encode(b"SET", b"small", b"1") + encode(b"GET", b"k"))
        await settle()
        assert other_transport.take() == b"+OK\r\n$-1\r\n"
        assert transport.take() == b""
        await world.work()
        assert transport.take() == b"+OK\r\n:%d\r\n" % len(LARGE)
        assert world.worker.count == 2
        assert not world.machine.store.staged
        world.machine.restart()
        assert world.value(b"k") == LARGE

    run(test)


@pytest.mark.parametrize("shard_count", [1, 4])
def test_values_of_msets_hashes_and_transactions_are_staged(shard_count: int) -> None:
    async def test() -> None:
        world = World(shard_count)
        session, transport = world.connect()
        session.data_received(encode(b"MSET", b"a", LARGE + b"a", b"small", b"1", b"b", LARGE + b"b"))
        await world.work()
        session.data_received(encode(b"HSET", b"h", b"f", LARGE + b"h"))
        await world.work()
        session.data_received(encode(b"MULTI") + encode(b"SET", b"m", LARGE + b"m"))
        await world.work()
        before = world.worker.count
        session.data_received(encode(b"SET", b"n", LARGE + b"n") + encode(b"GET", b"n") + encode(b"EXEC"))
        await world.work()
        assert world.worker.count == before + 2, "joined, and all values of the EXEC written"
        expected = b"+OK\r\n:1\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n+OK\r\n"
        assert transport.take() == expected + b"$%d\r\n%bn\r\n" % (len(LARGE) + 1, LARGE)
        batch_bytes = world.machine.store.journal.writer.bytes_written
        assert batch_bytes > 5 * len(LARGE)
        world.machine.restart()
        for key in (b"a", b"b", b"m", b"n"):
            assert world.value(key) == LARGE + key
        assert plain(world.value(b"h")) == {b"f": LARGE + b"h"}

    run(test)


@pytest.mark.parametrize("shard_count", [1, 3])
def test_elements_of_lists_are_staged_when_they_come_and_when_they_move(shard_count: int) -> None:
    async def test() -> None:
        world = World(shard_count)
        session, transport = world.connect()
        elements = [LARGE + b"%d" % number for number in range(4)]
        session.data_received(encode(b"RPUSH", b"k", elements[0], b"small", elements[1]))
        await world.work()
        assert transport.take() == b":3\r\n"
        writer = world.machine.store.journal.writer
        for command in (
            encode(b"LINSERT", b"k", b"BEFORE", b"small", elements[3]),
            encode(b"LSET", b"k", b"2", elements[2]),
            encode(b"LREM", b"k", b"0", elements[0]),
            encode(b"LMOVE", b"k", b"other", b"RIGHT", b"LEFT"),
            encode(b"LMOVE", b"k", b"k", b"LEFT", b"RIGHT"),
            encode(b"RPOPLPUSH", b"k", b"third"),
        ):
            before, bytes_before = world.worker.count, writer.bytes_written
            session.data_received(command)
            await world.work()
            assert transport.take()[:1] in (b":", b"+", b"$")
            assert world.worker.count > before
            assert writer.bytes_written - bytes_before < 1.5 * len(LARGE), "once, by the thread"
        assert list(world.value(b"other")) == [elements[1]]
        assert list(world.value(b"third")) == [elements[3]]
        assert list(world.value(b"k")) == [elements[2]]
        count = world.worker.count
        session.data_received(encode(b"LPOP", b"third"))
        await settle()
        assert transport.take() == b"$%d\r\n%b\r\n" % (len(elements[3]), elements[3])
        assert world.worker.count == count, "what is popped is not written again"
        world.machine.restart()
        assert list(world.value(b"other")) == [elements[1]]

    run(test)


@pytest.mark.parametrize("how", ["moved", "left", "refused"])
def test_an_element_that_a_client_waits_to_move_is_staged(how: str) -> None:
    """Clients behind it get nothing before it, and are not forgotten if it moves nothing."""

    async def test() -> None:
        world = World()
        (pusher, _), (mover, moved), (popper, popped) = (world.connect() for _ in range(3))
        mover.data_received(encode(b"BLMOVE", b"k", b"to", b"LEFT", b"LEFT", b"0") + encode(b"PING"))
        popper.data_received(encode(b"BLPOP", b"k", b"0"))
        pusher.data_received(encode(b"RPUSH", b"k", LARGE, b"small"))
        await settle()
        while world.value(b"k") is None:
            world.worker.run_one()  # the element is joined, and written
            await settle()
        world.engine.blocking.tick()
        await settle()
        assert moved.take() == popped.take() == b""
        writer = world.machine.store.journal.writer
        before = writer.bytes_written
        if how == "left":
            mover.connection_lost(None)
        elif how == "refused":
            pusher.data_received(encode(b"SET", b"to", b"text"))
        await world.work()
        if how == "moved":
            assert moved.take() == b"$%d\r\n%b\r\n+PONG\r\n" % (len(LARGE), LARGE)
            assert popped.take() == b"*2\r\n$1\r\nk\r\n$5\r\nsmall\r\n"
            assert writer.bytes_written - before < 1.5 * len(LARGE), "once, by the thread"
            world.machine.restart()
            assert list(world.value(b"to")) == [LARGE]
            return
        assert moved.take().startswith(b"-WRONGTYPE" if how == "refused" else b"")
        world.engine.blocking.tick()
        await settle()
        assert popped.take() == b"*2\r\n$1\r\nk\r\n$%d\r\n%b\r\n" % (len(LARGE), LARGE)

    run(test)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_push_right_behind_a_large_element_serves_nobody_before_it_moves(leaves: bool) -> None:
    """The client that is to move it has not even begun then. If it leaves, the next one gets the element."""

    async def test() -> None:
        world = World()
        (pusher, _), (mover, moved), (popper, popped) = (world.connect() for _ in range(3))
        mover.data_received(encode(b"BLMOVE", b"k", b"to", b"LEFT", b"LEFT", b"0"))
        popper.data_received(encode(b"BLPOP", b"k", b"0"))
        transaction = world.machine.store.begin()
        transaction.run([RPush(b"k", [LARGE])])
        world.engine.commit(transaction)
        world.engine.blocking.serve()
        if leaves:
            mover.kill()
        pusher.data_received(encode(b"RPUSH", b"k", b"small"))
        await world.work()
        world.engine.blocking.tick()
        await settle()
        assert moved.take() == (b"" if leaves else b"$%d\r\n%b\r\n" % (len(LARGE), LARGE))
        element = LARGE if leaves else b"small"
        assert popped.take() == b"*2\r\n$1\r\nk\r\n$%d\r\n%b\r\n" % (len(element), element)

    run(test)


def test_a_mover_whose_large_element_is_taken_waits_for_the_time_it_has_left() -> None:
    async def test() -> None:
        world = World()
        (pusher, _), (mover, _) = (world.connect() for _ in range(2))
        mover.data_received(encode(b"BLMOVE", b"k", b"to", b"LEFT", b"LEFT", b"10"))
        [first] = world.engine.blocking._by_session.values()
        world.machine.clock.advance(4_000_000)
        transaction = world.machine.store.begin()
        transaction.run([RPush(b"k", [LARGE])])
        world.engine.commit(transaction)
        world.engine.blocking.serve()
        pusher.data_received(encode(b"DEL", b"k"))
        await world.work()
        [second] = world.engine.blocking._by_session.values()
        assert (second is first, second.until_us) == (False, first.until_us)

    run(test)


def test_a_value_is_staged_again_if_its_segment_ends_and_then_written_anyway() -> None:
    async def test() -> None:
        world = World(geometry=Geometry(frame_bytes=4096, frames_per_segment=2))
        session, transport = world.connect()
        session.data_received(encode(b"SET", b"k", LARGE))
        await settle()
        world.worker.run_one()  # its pieces are joined
        await settle()
        for _ in range(limits.STAGED_TIMES_MAX):
            assert transport.take() == b""
            work, done = world.worker.waiting.pop(0)
            work()
            world.end_segment()
            done()
            await settle()
        assert not world.worker.waiting
        assert transport.take() == b"+OK\r\n"
        world.machine.restart()
        assert world.value(b"k") == LARGE

    run(test)


def test_append_is_made_anew_if_the_string_changes_meanwhile() -> None:
    async def test() -> None:
        world = World()
        session, transport = world.connect()
        other, _ = world.connect()
        session.data_received(encode(b"SET", b"k", LARGE))
        await world.work()
        session.data_received(encode(b"APPEND", b"k", b"mine"))
        await settle()
        assert len(world.worker.waiting) == 1
        other.data_received(encode(b"SETRANGE", b"k", b"3", b"theirs"))
        await world.work()
        session.data_received(encode(b"SETRANGE", b"k", b"%d" % (len(LARGE) + 10), b"x"))
        await world.work()
        expected = LARGE[:3] + b"theirs" + LARGE[9:] + b"mine"
        assert world.value(b"k") == expected + bytes(6) + b"x"
        assert transport.take() == b"+OK\r\n:%d\r\n:%d\r\n" % (len(LARGE) + 4, len(LARGE) + 11)
        world.machine.restart()
        assert world.value(b"k") == expected + bytes(6) + b"x"

    run(test)


def test_what_refuses_the_command_in_the_end_refuses_it() -> None:
    async def test() -> None:
        world = World()
        session, transport = world.connect()
        session.data_received(encode(b"SET", b"k", LARGE))
        await settle()
        world.worker.run_one()
        await settle()
        world.engine.gate.set_out_of_memory(True)
        await world.work()
        assert transport.take().startswith(b"-OOM ")
        assert world.value(b"k") is None
        assert not world.machine.store.staged

    run(test)


def test_a_client_that_went_away_has_changed_nothing() -> None:
    async def test() -> None:
        world = World()
        session, _ = world.connect()
        session.data_received(encode(b"SET", b"k", LARGE))
        await settle()
        world.worker.run_one()
        await settle()
        assert session.staging is not None
        job = session.staging.jobs[0]
        session.connection_lost(None)
        await world.work()
        assert job.is_given_up
        assert world.value(b"k") is None

    run(test)


@pytest.mark.parametrize("operation", ["create", "write"])
def test_an_error_of_the_disk_is_the_reply(operation: Any) -> None:
    async def test() -> None:
        world = World()
        world.machine.disk.fail(operation, errno.ENOSPC, path_contains="blob-", times=None)
        session, transport = world.connect()
        session.data_received(encode(b"SET", b"k", LARGE) + encode(b"SET", b"small", b"1"))
        await world.work()
        assert transport.take().startswith(b"-MISCONF a large value cannot be written (")
        assert world.value(b"k") is None
        await settle()
        assert world.value(b"small") == b"1"
        world.machine.disk.clear_faults()
        session.data_received(encode(b"SET", b"k", LARGE))
        await world.work()
        assert world.value(b"k") == LARGE

    run(test)


def test_commands_that_only_read_or_queue_are_not_held_for_writing() -> None:
    async def test() -> None:
        world = World()
        session, transport = world.connect()
        session.data_received(encode(b"ECHO", LARGE))
        await world.work()
        assert world.worker.count == 1, "joined, and nothing more"
        assert transport.take() == b"$%d\r\n%b\r\n" % (len(LARGE), LARGE)

    run(test)
