"""What clients that monitor are shown."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.server.test_connection import turns
from tidelog import limits
from tidelog.engine.monitors import quote
from tidelog.resp.encoder import ErrorReply


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        (b"plain text", b"plain text"),
        (b"", b""),
        (b'\\ "', rb"\\ \""),
        (b"\a\b\t\n\r", rb"\a\b\t\n\r"),
        (b"\x00\x1f\x7f\x80\xff~", rb"\x00\x1f\x7f\x80\xff~"),
    ],
)
def test_quoting(argument: bytes, shown: bytes) -> None:
    assert quote(argument) == shown


async def monitored(server: Server) -> tuple[BlockedClient, BlockedClient]:
    monitor, client = BlockedClient(server), BlockedClient(server)
    assert await monitor("MONITOR") == b"OK"
    return monitor, client


def words(line: Any) -> bytes:
    """A line without its time and source."""
    text: bytes = line
    return text.partition(b"] ")[2]


@in_loop
async def test_hot_commands_are_shown_and_hot_again_when_nobody_looks() -> None:
    server = Server()
    monitor, client = await monitored(server)
    client.session.data_received(b"SET a 1\r\nGET a\r\nMULTI\r\nSET a 2\r\nINCR a\r\nEXEC\r\n")
    await turns(6)
    assert len(client.replies()) == 6
    assert [words(line) for line in monitor.replies()] == [
        b'"SET" "a" "1"',
        b'"GET" "a"',
        b'"MULTI"',
        b'"SET" "a" "2"',
        b'"INCR" "a"',
        b'"EXEC"',
    ]
    assert not server.engine.hot_commands(client.session)
    assert await monitor("RESET") == b"RESET"
    assert server.engine.hot_commands(client.session)
    assert await client("GET", "a") == b"3"
    assert monitor.replies() == []
    assert await monitor("GET", "a") == b"3"


@in_loop
async def test_a_monitor_that_leaves_is_forgotten() -> None:
    server = Server()
    monitor, client = await monitored(server)
    monitor.disconnect()
    assert not server.engine.monitors.sessions
    assert server.engine.hot_commands(client.session)


@in_loop
async def test_a_monitor_that_does_not_read_is_cut() -> None:
    server = Server()
    monitor, client = await monitored(server)
    monitor.transport.unsent_bytes = limits.PUBSUB_BUFFER_BYTES_MAX
    assert await client("GET", "a") is None
    assert monitor.transport.is_closed
    monitor.session.connection_lost(None)
    assert server.engine.metrics.cut_for_output == 1
    assert server.engine.hot_commands(client.session)


@in_loop
async def test_a_monitor_that_reads_slowly_is_cut_after_a_while() -> None:
    server = Server()
    monitor, _client = await monitored(server)
    monitor.transport.unsent_bytes = limits.PUBSUB_BUFFER_SOFT_BYTES + 1
    server.clock.advance(1_000_000)
    server.connections.sweep()
    assert not monitor.transport.is_closed
    server.clock.advance(1_000_000 * (limits.PUBSUB_BUFFER_SOFT_S + 1))
    server.connections.sweep()
    assert monitor.transport.is_closed


@in_loop
async def test_long_commands_are_shown_in_part() -> None:
    server = Server()
    monitor, client = await monitored(server)
    most = limits.MONITORED_BYTES_MAX
    await client("SET", "a", b"\xff" * (2 * most))
    (line,) = monitor.replies()
    assert line.endswith(b'... (%d more bytes)"' % (most + len(b"SETa") + 2))
    assert len(line) < 5 * most
    await client("DEL", *[b""] * (2 * most))
    (line,) = monitor.replies()
    assert line.endswith(b'"" ... (%d more arguments)' % (most + len(b"DEL") + 1))


@in_loop
async def test_there_may_be_so_many() -> None:
    server = Server()
    monitors = [BlockedClient(server) for _ in range(limits.MONITORS_MAX)]
    for each in monitors:
        assert await each("MONITOR") == b"OK"
    more = BlockedClient(server)
    assert isinstance(await more("MONITOR"), hiredis.ReplyError)
    assert await more("GET", "a") is None
    assert [len(each.replies()) for each in monitors] == [1] * limits.MONITORS_MAX
    monitors[0].disconnect()
    assert await more("MONITOR") == b"OK"


@in_loop
async def test_commands_of_scripts_name_their_source() -> None:
    server = Server()
    monitor, client = await monitored(server)
    row = server.engine.table.find(b"SET")
    assert row is not None
    await client("SELECT", 3)
    server.engine.note_inside(row, [b"set", b"k", b"v"], "OK", 3)
    server.engine.note_inside(row, [b"set", b"k"], ErrorReply("ERR no"), 4)
    await client("PING")
    assert [line.partition(b" ")[2] for line in monitor.replies()] == [
        b'[3 127.0.0.1:2] "SELECT" "3"',
        b'[3 lua] "set" "k" "v"',
        b'[4 lua] "set" "k"',
        b'[3 127.0.0.1:2] "PING"',
    ]
    tally = server.engine.metrics.commands.of("SET")
    assert (tally.calls, tally.failed, server.engine.metrics.errors["ERR"]) == (2, 1, 1)
