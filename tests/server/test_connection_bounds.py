"""What one connection may make the server do and keep: in a turn, while it does not read, before it authenticates."""

from __future__ import annotations

import logging

import pytest

from tests.server.test_connection import World, in_loop, turns
from tidelog import limits

GET = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
NOAUTH = b"-NOAUTH Authentication required.\r\n"
BLOCKING = b"XREAD BLOCK 0 STREAMS s $\r\n"


@in_loop
async def test_one_turn_runs_so_much_of_what_a_client_sends(world: World) -> None:
    """The clock of this test stands still: a turn is over after so many pieces."""
    session, transport = world.connect()
    count = 2 * limits.TURN_PIECES_MAX * limits.RECEIVED_PIECE_BYTES // len(GET)
    session.data_received(GET * count)
    assert session.command_count < 2 * count // 3
    assert not transport.is_reading
    await turns(20)
    assert transport.take() == b"$-1\r\n" * count
    assert (session.command_count, transport.is_reading, session.is_busy) == (count, True, False)


@in_loop
async def test_a_turn_that_is_late_runs_a_few_commands_of_a_client(world: World) -> None:
    later_us = iter(range(0, 10**9, limits.TURN_US_MAX))
    world.turns.rounds._now_us = lambda: next(later_us)
    session, transport = world.connect()
    session.data_received(b"PING\r\n" * 100)
    assert session.command_count <= 2 * limits.CLOCKED_COMMANDS
    await turns(50)
    assert transport.take() == b"+PONG\r\n" * 100


@in_loop
async def test_others_are_answered_before_a_client_that_sends_much_is_done(world: World) -> None:
    greedy = [world.connect() for _ in range(3)]
    count = 2 * limits.TURN_PIECES_MAX * limits.RECEIVED_PIECE_BYTES // len(GET)
    for session, _ in greedy:
        session.data_received(GET * count)
    other, answered = world.connect()
    other.data_received(b"PING\r\n")
    await turns(1)
    assert answered.take() == b"+PONG\r\n"
    assert sum(session.command_count for session, _ in greedy) < 2 * count
    medium, answered = world.connect()  # more than is run at once, and no more than one piece
    medium.data_received(GET * 500)
    await turns(2)
    assert answered.take() == b"$-1\r\n" * 500
    assert any(session.is_busy for session, _ in greedy)
    counts = [session.command_count for session, _ in greedy]
    assert max(counts[1:]) - min(counts[1:]) <= 2 * limits.RECEIVED_PIECE_BYTES // len(GET)  # round and round
    await turns(50)
    assert [transport.take() for _, transport in greedy] == [b"$-1\r\n" * count] * 3


@in_loop
async def test_nothing_is_run_for_a_client_that_does_not_read(world: World) -> None:
    session, transport = world.connect()
    session.data_received(GET * 100_000)
    session.pause_writing()
    before = session.command_count
    await turns(10)
    assert (session.command_count, transport.is_reading) == (before, False)
    session.data_received(GET)  # TLS may still have had some
    await turns(10)
    assert session.command_count == before
    session.resume_writing()
    await turns(50)
    assert session.command_count == 100_001


@in_loop
async def test_what_a_blocked_client_sends_is_bounded_in_bytes(world: World) -> None:
    session, transport = world.connect()
    session.data_received(BLOCKING)
    piece = b"*2\r\n$4\r\nECHO\r\n$20000\r\n%b\r\n" % (b"x" * 20_000)
    received = 0
    while transport.is_reading:
        session.data_received(piece)
        received += len(piece)
        assert received < 2 * limits.UNREAD_BYTES_MAX
    other, _ = world.connect()
    other.data_received(b"XADD s * a b\r\n")
    await turns(20)
    assert transport.take().count(b"$20000\r\n") == received // len(piece)
    assert transport.is_reading


@in_loop
async def test_the_end_of_input_behind_what_waits_for_its_go(world: World) -> None:
    session, transport = world.connect()
    session.data_received(GET * 100_000)
    assert session.eof_received()
    await turns(20)
    assert (transport.written, transport.is_closed) == (b"$-1\r\n" * 100_000, True)


@in_loop
async def test_a_client_that_goes_while_it_is_in_line(world: World) -> None:
    session, _ = world.connect()
    session.data_received(GET * 100_000)
    session.connection_lost(None)
    await turns(5)
    assert session.command_count < 100_000
    assert not len(world.turns.rounds)


# --- clients that have not authenticated ----------------------------------------------------------------------------


@in_loop
async def test_a_stranger_that_does_not_read_is_cut(world: World) -> None:
    world = World(b"secret")
    session, transport = world.connect()
    assert transport.unsent_bytes_max == limits.UNAUTHENTICATED_OUTPUT_BYTES_MAX
    session.data_received(b"GET a\r\n" * 10)
    await turns()
    assert transport.take() == NOAUTH * 10
    session.data_received(b"GET a\r\n" * 100_000)
    session.pause_writing()
    await turns()
    assert transport.is_closed
    assert session.command_count < 50_000
    assert world.engine.metrics.cut_unauthenticated == 1


@in_loop
async def test_a_client_that_has_authenticated_is_only_waited_for(world: World) -> None:
    world = World(b"secret")
    session, transport = world.connect()
    session.data_received(b"AUTH secret\r\n")
    assert transport.unsent_bytes_max is None  # as much as any other may
    session.pause_writing()
    transport.unsent_bytes = 10**6
    world.clock.advance(10**9)
    world.connections.sweep()
    await turns()
    assert not transport.is_closed


@in_loop
async def test_a_stranger_may_not_leave_anything_unread_for_long(world: World) -> None:
    world = World(b"secret")
    world.clock.advance(1)
    (session, transport), (_, silent) = world.connect(), world.connect()
    session.data_received(b"GET a\r\n")
    await turns()
    transport.unsent_bytes = 10
    world.connections.sweep()
    world.clock.advance(limits.UNAUTHENTICATED_UNREAD_S_MAX * 1_000_000)
    world.connections.sweep()
    assert not transport.is_closed
    world.clock.advance(1)
    world.connections.sweep()
    assert (transport.is_closed, silent.is_closed) == (True, False)
    assert world.engine.metrics.cut_unauthenticated == 1


def test_the_log_tells_of_cuts_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    @in_loop
    async def cut(world: World) -> None:
        world = World(b"secret")
        for _ in range(4):
            session, _ = world.connect()
            world.connections.cut_unauthenticated(session)
        world.clock.advance(limits.CUT_LOGGED_S * 1_000_000)
        world.connections.cut_for_output(world.connect()[0])
        assert (world.engine.metrics.cut_unauthenticated, world.engine.metrics.cut_for_output) == (4, 1)

    with caplog.at_level(logging.WARNING):
        cut()
    first, second = caplog.messages
    assert first == "cut off 127.0.0.1:2, which has not authenticated and left 0 bytes unread"
    assert second.endswith("bytes unread (3 more since the last such line)")
