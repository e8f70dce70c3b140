"""Commands that need cold nodes wait until a thread has read them; the thread does its part when the test says so."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.engine.made import make_connections, make_engine
from tests.engine.test_staging import ManualWorker, encode, settle
from tests.server.test_connection import Transport
from tests.store.made import Machine
from tests.streams.cold_nodes import cool
from tidelog import limits
from tidelog.engine.engine import Engine
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.dead_letters import PendingExpiry
from tidelog.streams.cold import OPENED
from tidelog.streams.stream import Stream

NODE = 10
"""Entries of a node here."""


class World:
    """An engine on a simulated disk, with such threads."""

    def __init__(self, worker_count: int = 1) -> None:
        self.machine = Machine()
        self.workers = [ManualWorker() for _ in range(worker_count)]
        self.loop = asyncio.get_running_loop()
        self.engine: Engine = make_engine(self.machine.store, self.machine.clock, self.loop, fetch_workers=self.workers)
        self.connections = make_connections(self.engine)
        self.turns = Turns(self.loop, self.machine.store.journal, self.machine.clock.monotonic_us)

    def connect(self) -> tuple[Connection, Transport]:
        session, transport = Connection(self.engine, self.turns, self.connections), Transport()
        made: Any = transport
        session.connection_made(made)
        return session, transport

    def stream(self, key: bytes = b"s") -> Stream:
        found = self.machine.store.database(0).find(key)
        assert isinstance(found, Stream)
        return found

    async def work(self) -> int:
        """Let the threads do all that they have to do; returns how many jobs that were."""
        await settle()
        done = 0
        while any(worker.waiting for worker in self.workers):
            for worker in self.workers:
                if worker.waiting:
                    worker.run_one()
                    done += 1
            await settle()
        return done

    async def write(self, count: int, key: bytes = b"s", size: int = 10) -> None:
        """Entries that are all cold, but for some of the last node."""
        session, transport = self.connect()
        for number in range(1, count + 1):
            session.data_received(encode(b"XADD", key, b"%d-0" % number, b"n", b"%d" % number + b"x" * size))
        await settle()
        transport.take()
        session.connection_lost(None)
        cool(self.machine.store)
        OPENED.clear()

    async def ask(self, *words: bytes) -> bytes:
        session, transport = self.connect()
        session.data_received(encode(*words))
        await self.work()
        reply: bytes = transport.take()
        session.connection_lost(None)
        return reply

    def damage(self, node: int, key: bytes = b"s") -> str:
        """Flip a bit of a cold node; returns where."""
        place = self.stream(key).sealed[node].place
        assert place is not None
        handle = self.machine.disk.open(place.file.path, "write")
        at = place.position + 8 + place.size // 2
        handle.write(at, [bytes([handle.read(at, 1)[0] ^ 1])])
        handle.close()
        return f"{place.file.path}, position {place.position}"


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", NODE)
    monkeypatch.setattr(limits, "IDLE_SEAL_ENTRIES_MIN", 1)
    OPENED.clear()
    yield
    OPENED.clear()
    assert not OPENED.pinned_count, "everything that was pinned was let go"
    assert not OPENED.fetches


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_read_waits_for_its_nodes_and_others_do_not() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        session, transport = world.connect()
        other, other_transport = world.connect()
        session.data_received(encode(b"TREAD", b"s", b"11", b"20") + encode(b"PING"))
        await settle()
        other.data_received(encode(b"PING") + encode(b"XLEN", b"s"))
        await settle()
        assert other_transport.take() == b"+PONG\r\n:50\r\n"
        assert transport.take() == b"", "replies are in order"
        assert await world.work() == 1, "two nodes, fetched together"
        reply = transport.take()
        assert reply.startswith(b"*20\r\n*3\r\n:11\r\n")
        assert reply.endswith(b"+PONG\r\n")
        assert world.engine.fetching is not None
        assert world.engine.fetching.fetched_count == 2
        assert world.engine.fetching.fetched_bytes == sum(node.disk_bytes for node in world.stream().sealed[1:3])

    run(test)


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ([b"TREAD", b"s", b"5", b"30"], 4),
        ([b"TREAD", b"s", b"45", b"30", b"REV"], 4),
        ([b"XRANGE", b"s", b"-", b"+", b"COUNT", b"30"], 3),
        ([b"XRANGE", b"s", b"15", b"34"], 3),
        ([b"XRANGE", b"s", b"20", b"+", b"COUNT", b"1"], 1),
        ([b"XREVRANGE", b"s", b"+", b"-", b"COUNT", b"25"], 3),
        ([b"XREVRANGE", b"s", b"34", b"15"], 3),
        ([b"XREAD", b"COUNT", b"12", b"STREAMS", b"s", b"9"], 3),
        ([b"XDEL", b"s", b"5-0", b"25-0", b"45-0"], 3),
        ([b"XTRIM", b"s", b"MINID", b"15"], 1),
        ([b"XTRIM", b"s", b"MAXLEN", b"15"], 0),
        ([b"TEVICT", b"s", b"25"], 0),
        ([b"TINFO", b"s"], 0),
        ([b"XLEN", b"s"], 0),
        ([b"TCOMPACT", b"s"], 5),
        ([b"COPY", b"s", b"t"], 0),
        ([b"XINFO", b"STREAM", b"s"], 2),
    ],
)
def test_only_the_nodes_that_are_needed_are_fetched(words: list[bytes], nodes: int) -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        reply = await world.ask(*words)
        assert reply
        assert not reply.startswith(b"-")
        assert world.engine.fetching is not None
        assert world.engine.fetching.fetched_count == nodes

    run(test)


def test_nodes_that_a_command_knows_of_are_fetched_in_one_go() -> None:
    async def test() -> None:
        world = World()
        await world.write(100)
        session, transport = world.connect()
        for words, rounds in (
            ([b"TREAD", b"s", b"1", b"100"], 1),
            ([b"XRANGE", b"s", b"5", b"+", b"COUNT", b"60"], 2),
            ([b"XDEL", b"s", b"5-0", b"25-0", b"45-0"], 1),
        ):
            OPENED.clear()
            session.data_received(encode(*words))
            assert await world.work() <= rounds, words
            assert not transport.take().startswith(b"-")

    run(test)


def test_groups_fetch_what_they_read_again() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        assert await world.ask(b"XGROUP", b"CREATE", b"s", b"g", b"0") == b"+OK\r\n"
        everything = await world.ask(b"XREADGROUP", b"GROUP", b"g", b"a", b"COUNT", b"50", b"STREAMS", b"s", b">")
        assert everything.count(b"-0\r\n") == 50
        ids = [b"%d-0" % number for number in (1, 11, 21, 31, 41)]
        session, transport = world.connect()
        for words in (
            [b"XREADGROUP", b"GROUP", b"g", b"a", b"STREAMS", b"s", b"0"],
            [b"XCLAIM", b"s", b"g", b"b", b"0", *ids],
            [b"XAUTOCLAIM", b"s", b"g", b"c", b"0", b"0", b"COUNT", b"45"],
        ):
            OPENED.clear()
            session.data_received(encode(*words))
            assert await world.work() == 1, words
            assert transport.take().count(b"-0\r\n") >= 5
        OPENED.clear()
        session.data_received(encode(b"XCLAIM", b"s", b"g", b"b", b"0", *ids, b"JUSTID"))
        assert await world.work() == 0, "ids are known"

    run(test)


def test_a_client_that_goes_away_gives_its_fetch_up() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        session, _ = world.connect()
        other, transport = world.connect()
        session.data_received(encode(b"TREAD", b"s", b"1", b"10"))
        await settle()
        session.connection_lost(None)
        other.data_received(encode(b"TREAD", b"s", b"21", b"1"))
        await world.work()
        assert transport.take().startswith(b"*1\r\n*3\r\n:21\r\n")

    run(test)


def test_too_much_for_one_command_is_an_error_that_asks_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World()
        await world.write(50, size=100_000)
        monkeypatch.setattr(limits, "FETCHED_BYTES_MAX", 2 * limits.MIB + limits.MIB // 2)
        reply = await world.ask(b"TREAD", b"s", b"1", b"50")
        assert reply.startswith(b"-ERR this needs 4 MiB of entries that lie on disk")
        assert b"smaller COUNT" in reply
        assert (await world.ask(b"TREAD", b"s", b"1", b"20")).startswith(b"*20\r\n")
        assert await world.ask(b"TCOMPACT", b"s") == b":0\r\n", "it cannot be asked for less"
        monkeypatch.setattr(limits, "FETCHED_BYTES_MAX", 1000)
        OPENED.clear()
        assert (await world.ask(b"TREAD", b"s", b"1", b"1")).startswith(b"*1\r\n"), "one node alone is never too much"

    run(test)


def test_commands_take_turns_when_together_they_need_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(2)
        await world.write(100, size=1000)
        size = world.stream().sealed[0].opened_bytes
        monkeypatch.setattr(limits, "FETCHED_TOGETHER_BYTES_MAX", 3 * size)
        clients = [world.connect() for _ in range(4)]
        for at, (session, _) in enumerate(clients):
            session.data_received(encode(b"XRANGE", b"s", b"%d" % (20 * at + 5), b"+", b"COUNT", b"15"))
        await settle()
        assert OPENED.pinned_count <= 3
        await world.work()
        for _, transport in clients:
            assert transport.take().startswith(b"*15\r\n")

    run(test)


def test_a_stream_that_changes_all_the_time_is_read_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World()
        await world.write(100)
        session, transport = world.connect()
        other, _ = world.connect()
        session.data_received(encode(b"TREAD", b"s", b"31", b"10"))
        await settle()
        for number in range(31, 31 + limits.FETCHED_TIMES_MAX):
            assert transport.take() == b""
            stream = world.stream()
            stream.delete([number])  # the node is another from now on
            world.workers[0].run_one()
            await settle()
        assert transport.take().startswith(b"*10\r\n*3\r\n:39\r\n")
        assert not world.workers[0].waiting
        other.connection_lost(None)

    run(test)


def test_hot_commands_take_the_general_path_to_a_cold_node() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        await world.ask(b"XGROUP", b"CREATE", b"s", b"g", b"0")
        session, transport = world.connect()
        for words in (
            [b"XREAD", b"COUNT", b"1", b"STREAMS", b"s", b"0-1"],
            [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"STREAMS", b"s", b">"],
            [b"TREAD", b"s", b"0", b"1", b"GROUP", b"g"],
        ):
            OPENED.clear()
            session.data_received(encode(*words))
            await settle()
            assert transport.take() == b""
            assert await world.work() >= 1
            assert transport.take().startswith(b"*1\r\n")

    run(test)


def test_monitors_see_a_command_once() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        monitor, seen = world.connect()
        monitor.data_received(encode(b"MONITOR"))
        await settle()
        await world.ask(b"XRANGE", b"s", b"5", b"+", b"COUNT", b"40")
        assert seen.take().count(b"XRANGE") == 1

    run(test)


# --- EXEC and scripts -------------------------------------------------------------------------------------------


def test_exec_fetches_ahead_for_all_its_commands() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        session, transport = world.connect()
        words = encode(b"MULTI") + encode(b"TREAD", b"s", b"1", b"1") + encode(b"SET", b"k", b"v")
        session.data_received(words + encode(b"XRANGE", b"s", b"45", b"+", b"COUNT", b"1") + encode(b"EXEC"))
        await settle()
        assert transport.take().endswith(b"+QUEUED\r\n")
        assert await world.work() == 1
        assert transport.take().startswith(b"*3\r\n*1\r\n*3\r\n:1\r\n")

    run(test)


def test_what_is_not_known_before_exec_is_read_on_the_spot() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        session, transport = world.connect()
        words = encode(b"MULTI") + encode(b"RENAME", b"s", b"t") + encode(b"TREAD", b"t", b"1", b"1")
        session.data_received(words + encode(b"EXEC"))
        await world.work()
        assert transport.take().endswith(
            b"*2\r\n+OK\r\n*1\r\n*3\r\n:1\r\n$0\r\n\r\n*2\r\n$1\r\nn\r\n$11\r\n1xxxxxxxxxx\r\n"
        )

    run(test)


# --- damage -----------------------------------------------------------------------------------------------------


def test_a_damaged_node_is_an_error_that_names_the_place(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        where = world.damage(1)
        before = OPENED.unreadable_count
        for words in (
            [b"TREAD", b"s", b"11", b"1"],
            [b"XRANGE", b"s", b"-", b"+"],
            [b"XDEL", b"s", b"15-0"],
            [b"TCOMPACT", b"s"],
        ):
            reply = await world.ask(*words)
            assert reply.startswith(b"-ERR a part of the stream cannot be read: " + where.encode()), words
        assert OPENED.unreadable_count == before + 4
        assert len([line for line in caplog.messages if where in line]) == 1
        assert (await world.ask(b"TREAD", b"s", b"1", b"10")).startswith(b"*10\r\n")
        assert (await world.ask(b"TREAD", b"s", b"21", b"30")).startswith(b"*30\r\n")
        assert await world.ask(b"TEVICT", b"s", b"20") == b":20\r\n"
        assert (await world.ask(b"XRANGE", b"s", b"-", b"+")).startswith(b"*30\r\n")

    run(test)


def test_a_damaged_node_in_exec_concerns_one_command() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        world.damage(0)
        session, transport = world.connect()
        words = encode(b"MULTI") + encode(b"TREAD", b"s", b"1", b"1") + encode(b"SET", b"k", b"v")
        session.data_received(words + encode(b"TCOMPACT", b"s") + encode(b"EXEC"))
        await world.work()
        replies = transport.take().split(b"*3\r\n", 1)[1].splitlines()
        assert replies[0].startswith(b"-ERR a part of the stream cannot be read: ")
        assert replies[1] == b"+OK"
        assert replies[2].startswith(b"-ERR a part of the stream cannot be read: ")

    run(test)


def test_a_disk_that_fails_is_told_too() -> None:
    async def test() -> None:
        world = World()
        await world.write(50)
        world.machine.disk.fail("read", errno.EIO, times=None)
        reply = await world.ask(b"TREAD", b"s", b"1", b"1")
        assert reply.startswith(b"-ERR a part of the stream cannot be read: ")
        assert b"nodes-" in reply
        world.machine.disk.clear_faults()
        assert (await world.ask(b"TREAD", b"s", b"1", b"1")).startswith(b"*1\r\n")

    run(test)


# --- reading ahead ----------------------------------------------------------------------------------------------


def test_a_scan_finds_the_next_nodes_open() -> None:
    async def test() -> None:
        world = World()
        await world.write(200)
        assert (await world.ask(b"TREAD", b"s", b"1", b"10")).startswith(b"*10\r\n")
        sealed = world.stream().sealed
        assert [node in OPENED for node in sealed[:3]] == [True, False, False]
        assert (await world.ask(b"TREAD", b"s", b"11", b"10")).startswith(b"*10\r\n")
        assert [node in OPENED for node in sealed[:11]] == [True] * 10 + [False]
        session, transport = world.connect()
        session.data_received(encode(b"TREAD", b"s", b"21", b"10"))
        await settle()
        assert transport.take().startswith(b"*10\r\n"), "nobody had to wait"
        await world.work()

    run(test)


# --- clients that wait, and timers ------------------------------------------------------------------------------


async def deliver_and_chill(world: World, *, letters: bytes = b"") -> None:
    """A group with two entries of a cold node that are due again after a second, and expire after ten."""
    await world.write(50)
    options = [b"DEADLETTER", letters, b"MAXDELIVERIES", b"9"] if letters else []
    assert await world.ask(b"TGROUP", b"s", b"g", *options) == b"+OK\r\n"
    assert (await world.ask(b"TREAD", b"s", b"0", b"2", b"GROUP", b"g", b"RETRY", b"1000", b"10000")).startswith(b"*2")
    await world.ask(b"XGROUP", b"SETID", b"s", b"g", b"$")
    OPENED.clear()


def test_a_reader_that_waits_keeps_its_place_while_its_nodes_are_fetched() -> None:
    async def test() -> None:
        world = World()
        await deliver_and_chill(world)
        clients = [world.connect() for _ in range(3)]
        for session, _ in clients:
            session.data_received(encode(b"TREAD", b"s", b"0", b"1", b"GROUP", b"g", b"BLOCK", b"0"))
        plain, plain_transport = world.connect()
        plain.data_received(encode(b"TREAD", b"s", b"51", b"1", b"BLOCK", b"0"))
        await settle()
        world.machine.clock.advance(2_000_000)
        writer, _ = world.connect()
        writer.data_received(encode(b"XADD", b"s", b"60", b"n", b"new"))
        await settle()
        assert plain_transport.take(), "others are served"
        assert [transport.take() for _, transport in clients] == [b"", b"", b""]
        writer.data_received(encode(b"XADD", b"s", b"61", b"n", b"new"))
        await settle()
        assert len(world.workers[0].waiting) == 1, "it is fetched for once"
        await world.work()
        heads = [transport.take()[:13] for _, transport in clients]
        assert heads == [b"*1\r\n*3\r\n:1\r\n$", b"*1\r\n*3\r\n:2\r\n$", b"*1\r\n*3\r\n:51\r\n"]

    run(test)


def test_a_reader_that_waits_is_told_of_damage_and_gives_up_when_it_goes() -> None:
    async def test() -> None:
        world = World()
        await deliver_and_chill(world)
        (first, _), (second, transport) = world.connect(), world.connect()
        for session in (first, second):
            session.data_received(encode(b"TREAD", b"s", b"0", b"1", b"GROUP", b"g", b"BLOCK", b"0"))
        await settle()
        world.machine.clock.advance(2_000_000)
        where = world.damage(0)
        world.machine.store.signals[0, b"s"] = False
        world.engine.blocking.serve()
        await settle()
        first.connection_lost(None)
        world.machine.store.signals[0, b"s"] = False
        world.engine.blocking.serve()
        await world.work()
        assert transport.take().startswith(b"-ERR a part of the stream cannot be read: " + where.encode())

    run(test)


def test_entries_that_expire_are_fetched_before_they_become_dead_letters() -> None:
    async def test() -> None:
        world = World()
        await deliver_and_chill(world, letters=b"dead")
        assert world.engine.fetching is not None
        expiry = PendingExpiry(world.machine.store, world.engine.fetching.fetch_once)
        world.machine.clock.advance(20_000_000)
        world.machine.store.note_time()
        assert expiry.run() == 0
        assert expiry.run() == 0
        assert len(world.workers[0].waiting) == 1
        assert await world.work() == 1
        assert not world.stream().groups[b"g"].pending
        letters = await world.ask(b"TREAD", b"dead", b"1", b"5")
        assert letters.startswith(b"*2\r\n")
        assert b"1xxxxxxxxxx" in letters
        assert b"2xxxxxxxxxx" in letters

    run(test)


def test_dead_letters_that_cannot_be_read_stay_pending(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        world = World()
        await deliver_and_chill(world, letters=b"dead")
        where = world.damage(0)
        assert world.engine.fetching is not None
        expiry = PendingExpiry(world.machine.store, world.engine.fetching.fetch_once)
        world.machine.clock.advance(20_000_000)
        for _ in range(3):
            world.machine.clock.advance(2_000_000)
            assert expiry.run() == 0
            assert await world.work() == 1
        assert len(world.stream().groups[b"g"].pending) == 2
        assert len([line for line in caplog.messages if line.startswith("the expired entries") and where in line]) == 1

    run(test)
