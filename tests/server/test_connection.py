"""A connection without a socket: when it reads, when commands wait, and what it is called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from tests.engine.made import make_connections, make_engine
from tidelog import limits
from tidelog.journal.journal import Settings
from tidelog.server.connection import Connection
from tidelog.server.listener import address_of
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


class Transport:
    """Takes what it is given; says whether anyone would read."""

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True
        self.is_closed = False
        self.unsent_bytes = 0
        self.unsent_bytes_max: int | None = None

    def get_extra_info(self, name: str) -> object:
        return {"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)}.get(name)

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        self.unsent_bytes_max = high

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def take(self) -> bytes:
        taken, self.written = self.written, b""
        return taken


class World:
    """An engine on a simulated disk."""

    def __init__(self, password: bytes | None = None) -> None:
        self.clock = SimulatedClock()
        store = Store.open(SimulatedDisk(1), "/data", self.clock, Settings(), lambda: 1, Random(1))
        self.engine = make_engine(store, self.clock, asyncio.get_running_loop(), password)
        self.connections = make_connections(self.engine)
        self.turns = Turns(asyncio.get_running_loop(), store.journal, self.clock.monotonic_us)

    def connect(self) -> tuple[Connection, Transport]:
        session, transport = Connection(self.engine, self.turns, self.connections), Transport()
        made: Any = transport
        session.connection_made(made)
        return session, transport


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def in_loop(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on a loop, with a world of its own."""

    def run() -> None:
        async def inside() -> None:
            await test(World())

        asyncio.run(inside())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@in_loop
async def test_commands_are_answered_at_the_end_of_the_turn(world: World) -> None:
    session, transport = world.connect()
    session.data_received(b"SET a 1\r\nGET a\r\n")
    assert (transport.take(), session.is_busy) == (b"", True)
    await turns()
    assert (transport.take(), session.is_busy) == (b"+OK\r\n$1\r\n1\r\n", False)
    assert (session.command_count, world.engine.sessions.command_count) == (2, 2)


@in_loop
async def test_large_replies_make_later_commands_wait(world: World) -> None:
    session, transport = world.connect()
    value = b"x" * (limits.REPLIES_BYTES_HELD // 3)
    session.data_received(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%b\r\n" % (len(value), value))
    await turns()
    assert transport.take() == b"+OK\r\n"
    session.data_received(b"GET a\r\n" * 10 + b"PING\r\n")
    assert not transport.is_reading
    assert sum(map(len, session.out)) < 2 * limits.REPLIES_BYTES_HELD
    session.pause_writing()
    await turns(10)
    reply = b"$%d\r\n%b\r\n" % (len(value), value)
    assert transport.take() == reply * 3
    session.resume_writing()
    await turns(20)
    assert transport.take() == reply * 7 + b"+PONG\r\n"
    assert transport.is_reading


@in_loop
async def test_hot_replies_make_later_commands_wait(world: World) -> None:
    session, transport = world.connect()
    value = b"x" * limits.HOT_VALUE_BYTES_MAX
    session.data_received(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%b\r\n" % (len(value), value))
    await turns()
    assert transport.take() == b"+OK\r\n"
    session.pause_writing()
    session.data_received((b"GET a\r\n" * 5 + b"GET b\r\n" + b"SET c 1\r\n") * 1000)
    await turns(10)
    assert len(transport.written) < 2 * limits.REPLIES_BYTES_HELD
    session.resume_writing()
    await turns(2000)
    reply = b"$%d\r\n%b\r\n" % (len(value), value)
    assert transport.take() == (reply * 5 + b"$-1\r\n" + b"+OK\r\n") * 1000


@in_loop
async def test_a_command_too_large_for_a_stranger_may_come_together_with_auth(world: World) -> None:
    many = b"".join(b"$1\r\n%d\r\n" % (number % 10) for number in range(29))
    for password, reply in ((b"secret", b"+OK\r\n:0\r\n+PONG\r\n"), (b"wrong!", b"-WRONGPASS")):
        world = World(b"secret")
        session, transport = world.connect()
        session.data_received(b"*2\r\n$4\r\nAUTH\r\n$6\r\n%b\r\n*30\r\n$3\r\nDEL\r\n%bPING\r\n" % (password, many))
        await turns(5)
        assert transport.take().startswith(reply)
        assert transport.is_closed == (password == b"wrong!")


@in_loop
async def test_a_broken_protocol_behind_commands_that_wait(world: World) -> None:
    session, transport = world.connect()
    world.engine.gate.pause(10_000, writes_only=False)
    session.data_received(b"PING\r\n*x\r\n")
    await turns()
    assert transport.take() == b""
    world.engine.gate.resume()
    await turns()
    assert transport.take() == b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"
    assert transport.is_closed


@in_loop
async def test_the_end_of_input_behind_commands_that_wait(world: World) -> None:
    session, transport = world.connect()
    world.engine.gate.pause(10_000, writes_only=False)
    session.data_received(b"PING\r\nPING\r\n")
    assert session.eof_received()
    assert not transport.is_closed
    world.engine.gate.resume()
    await turns()
    assert (transport.written, transport.is_closed) == (b"+PONG\r\n+PONG\r\n", True)


@in_loop
async def test_the_end_of_input_behind_a_command_that_would_wait_for_a_key(world: World) -> None:
    session, transport = world.connect()
    world.engine.gate.pause(10_000, writes_only=False)
    session.data_received(b"PING\r\nBLPOP k 0\r\nPING\r\n")
    assert session.eof_received()
    world.engine.gate.resume()
    await turns()
    assert (transport.written, transport.is_closed) == (b"+PONG\r\n", True)
    assert len(world.engine.blocking) == 0


def test_the_end_of_input_behind_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reply is late, and comes all the same. One who waits for a key would wait for ever: he is let go."""
    monkeypatch.setattr(limits, "WRONG_PASSWORD_DELAY_S", 0.001)

    async def inside() -> None:
        session, transport = World(b"secret").connect()
        count = limits.WRONG_PASSWORDS_FREE + 1
        session.data_received(b"AUTH wrong\r\n" * count)
        assert (session.is_blocked, session.eof_received(), transport.is_closed) == (True, True, False)
        while not transport.is_closed:
            await asyncio.sleep(0.001)
        assert transport.take().count(b"-WRONGPASS") == count
        world = World()
        session, _ = world.connect()
        session.data_received(b"XREAD BLOCK 0 STREAMS s $\r\n")
        assert (session.eof_received(), len(world.engine.blocking)) == (False, 0)

    asyncio.run(asyncio.wait_for(inside(), 30))


PIECE = b"*3\r\n$3\r\nSET\r\n$1\r\np\r\n$60\r\n%b\r\n" % (b"x" * 60) * (limits.RECEIVED_PIECE_BYTES // 80)
"""Takes a piece of what is received at once, or a little more."""


@in_loop
async def test_nothing_is_run_after_quit_however_much_follows(world: World) -> None:
    session, transport = world.connect()
    session.data_received(b"SET a 1\r\nQUIT\r\n" + PIECE + b"SET a 2\r\n")
    session.data_received(b"SET a 3\r\n")
    await turns()
    assert (transport.take(), transport.is_closed) == (b"+OK\r\n+OK\r\n", True)
    assert world.engine.store.database(0).find(b"a") == b"1"


@in_loop
async def test_nothing_of_a_lured_browser_is_run_however_much_it_sends(world: World) -> None:
    session, transport = world.connect()
    session.data_received(b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\nSET a 1\r\n" + PIECE + b"SET a 1\r\n")
    assert transport.is_closed
    assert not world.engine.store.database(0).size


@in_loop
async def test_a_broken_protocol_is_told_once(world: World) -> None:
    session, transport = world.connect()
    session.data_received(b"PING\r\n*x\r\n" + 3 * PIECE)
    await turns()
    assert transport.take() == b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"
    assert transport.is_closed


@in_loop
async def test_auth_behind_a_multi_that_is_not_over_in_its_piece(world: World) -> None:
    world = World(b"secret")
    session, transport = world.connect()
    large = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n%b\r\n" % (b"x" * 20_000)
    session.data_received(b"MULTI\r\nAUTH secret\r\n" + large + PIECE + b"STRLEN a\r\n")
    await turns()
    replies = transport.take()
    assert replies.startswith(b"-NOAUTH Authentication required.\r\n+OK\r\n+OK\r\n")
    assert replies.endswith(b":20000\r\n")


@in_loop
async def test_nothing_is_lost_behind_auth_that_waits(world: World) -> None:
    world = World(b"secret")
    session, transport = world.connect()
    world.engine.gate.pause(10_000, writes_only=False)
    large = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n%b\r\n" % (b"x" * 20_000)
    session.data_received(b"AUTH secret\r\n" + large + PIECE + b"STRLEN a\r\n")
    world.engine.gate.resume()
    await turns()
    replies = transport.take()
    assert replies.startswith(b"+OK\r\n+OK\r\n")
    assert replies.endswith(b":20000\r\n")


@in_loop
async def test_replies_to_many_pieces_are_bounded(world: World) -> None:
    session, transport = world.connect()
    value = b"x" * 500
    session.data_received(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%b\r\n" % (len(value), value))
    await turns()
    transport.take()
    session.pause_writing()
    session.data_received(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n" * 30_000)
    assert sum(map(len, session.out)) < 3 * limits.REPLIES_BYTES_HELD
    session.resume_writing()
    await turns(100)
    assert transport.take() == b"$%d\r\n%b\r\n" % (len(value), value) * 30_000
    assert session.command_count == 30_001


@in_loop
async def test_the_end_of_input_with_nothing_to_answer(world: World) -> None:
    session, _ = world.connect()
    assert not session.eof_received()


@in_loop
async def test_a_pause_that_holds_writes_lets_hot_reads_through(world: World) -> None:
    session, transport = world.connect()
    session.data_received(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n")
    world.engine.gate.pause(10_000, writes_only=True)
    session.data_received(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n" + b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" * 2)
    await turns()
    assert transport.take() == b"$-1\r\n" * 2
    assert not transport.is_reading
    session.data_received(b"PING\r\n")  # TLS may still have had some
    world.engine.gate.resume()
    await turns()
    assert transport.take() == b"+OK\r\n+OK\r\n+PONG\r\n"
    assert transport.is_reading


@in_loop
async def test_nothing_is_read_while_the_disk_is_behind(world: World) -> None:
    _, before = world.connect()
    world.connections.wait_for_disk(True)
    _, after = world.connect()
    assert (before.is_reading, after.is_reading) == (False, False)
    world.connections.wait_for_disk(False)
    assert (before.is_reading, after.is_reading) == (True, True)


@in_loop
async def test_full_memory_takes_writes_off_the_hot_path(world: World) -> None:
    session, transport = world.connect()
    world.engine.gate.set_out_of_memory(True)
    late, other = world.connect()
    for connection in (session, late):
        connection.data_received(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n" * 2 + b"DEL a\r\nGET a\r\n")
    await turns()
    refused = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
    assert transport.take() == other.take() == refused * 2 + b":0\r\n$-1\r\n"
    world.engine.gate.set_out_of_memory(False)
    session.data_received(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n")
    await turns()
    assert transport.take() == b"+OK\r\n"


@in_loop
async def test_too_large_a_transaction_is_cut_off(world: World) -> None:
    session, transport = world.connect()
    session.data_received(b"MULTI\r\nSET a 1\r\n")
    session.queued_bytes = limits.QUEUED_BYTES_MAX
    session.data_received(b"SET a 2\r\n")
    await turns()
    assert transport.is_closed
    assert world.engine.store.database(0).size == 0


@in_loop
async def test_idling(world: World) -> None:
    session, transport = world.connect()
    world.connections.idle_s_max = 10
    world.clock.advance(9_000_000)
    session.data_received(b"PING\r\n")
    await turns()
    world.connections.sweep()
    assert (session.age_s, session.idle_s) == (9, 0)
    world.clock.advance(9_000_000)
    world.connections.sweep()
    assert session.idle_s == 9
    assert not transport.is_closed
    world.clock.advance(2_000_000)
    world.connections.sweep()
    assert transport.is_closed


@pytest.mark.parametrize(
    ("name", "shown", "is_local"),
    [
        (("127.0.0.1", 5), "127.0.0.1:5", True),
        (("127.8.9.1", 5), "127.8.9.1:5", True),
        (("10.0.0.1", 5), "10.0.0.1:5", False),
        (("::1", 5, 0, 0), "[::1]:5", True),
        (("::ffff:127.0.0.1", 5, 0, 0), "[::ffff:127.0.0.1]:5", True),
        (("::ffff:10.0.0.1", 5, 0, 0), "[::ffff:10.0.0.1]:5", False),
        (("fe80::1%eth0", 5, 0, 2), "[fe80::1%eth0]:5", False),
        ("/run/socket", "/run/socket:0", True),
    ],
)
def test_addresses(name: object, shown: str, is_local: bool) -> None:
    assert address_of(name) == (shown, is_local)


@in_loop
async def test_exec_of_many_sets_makes_few_records(world: World) -> None:
    session, transport = world.connect()
    writer = world.engine.store.journal.writer
    session.data_received(b"MULTI\r\n")
    await turns(5)
    for number in range(1000):
        session.data_received(b"SET k%d %d\r\n" % (number, number))
        await turns()
    session.data_received(b"SET k7 again\r\nGET k7\r\nSETEX e 100 1\r\nSET e 2\r\nTTL e\r\n")
    await turns(5)
    assert transport.take() == b"+OK\r\n" + b"+QUEUED\r\n" * 1005
    before = sum(writer.written.lsns)
    session.data_received(b"EXEC\r\n")
    await turns(5)
    expected = b"*1005\r\n" + b"+OK\r\n" * 1001 + b"$5\r\nagain\r\n+OK\r\n+OK\r\n:-1\r\n"
    assert transport.take() == expected
    assert sum(writer.written.lsns) - before == 4, "two of 1,000 keys and one more, and two of the key that expired"


@in_loop
async def test_a_client_whose_command_took_long_lets_others_go_first(world: World) -> None:
    world.engine.slow_s = -1.0  # every command does
    (slow, slow_transport), (other, _) = world.connect(), world.connect()
    slow.data_received(b"ECHO 1\r\nECHO 2\r\nECHO 3\r\n")
    assert slow.out == [b"$1\r\n1\r\n"]
    other.data_received(b"ECHO x\r\n")
    assert other.out == [b"$1\r\nx\r\n"]
    await turns(20)
    assert slow_transport.take() == b"".join(b"$1\r\n%d\r\n" % number for number in (1, 2, 3))
    slow.data_received(b"ECHO 4\r\n")
    assert slow.out == [], "it is in line"
    world.engine.slow_s = 1.0
    await turns(20)
    assert slow_transport.take() == b"$1\r\n4\r\n"
    slow.data_received(b"ECHO 5\r\n")
    assert slow.out == [b"$1\r\n5\r\n"], "as before"
