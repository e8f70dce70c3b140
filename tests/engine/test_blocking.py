"""Clients that wait: who is served when, in which order, and what happens to those who go away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.blocked import Server, in_loop
from tests.server.test_connection import turns
from tests.streams.plain import plain
from tidelog import limits
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.expiry import remove_due


def offsets(reply: Any) -> list[int]:
    return [entry[0] for entry in reply]


RETRY = ("GROUP", "g", "RETRY", 100, 1000)


# --- plain readers ------------------------------------------------------------------------------------------------


@in_loop
async def test_all_plain_readers_get_what_they_wait_for() -> None:
    server = Server()
    writer, readers = server.connect(), [server.connect() for _ in range(4)]
    for reader, offset in zip(readers, (1, 1, 2, 3), strict=True):
        reader.send("TREAD", "k", offset, 10, "BLOCK", 0)
    assert len(server.engine.blocking) == 4
    assert await writer("TWRITE", "k", "t", "a") == 1
    assert [reader.replies() for reader in readers] == [[[[1, b"t", b"a"]]], [[[1, b"t", b"a"]]], [], []]
    assert await writer("TWRITE", "k", "ENTRIES", "t", "b", "t", "c") == 2
    assert [reader.replies() for reader in readers[2:]] == [[[[2, b"t", b"b"], [3, b"t", b"c"]]], [[[3, b"t", b"c"]]]]
    assert len(server.engine.blocking) == 0
    assert not server.store.database(0).waiting


@in_loop
async def test_a_time_that_is_over_is_a_null_array() -> None:
    server = Server()
    reader = server.connect()
    reader.send("TREAD", "k", 1, 10, "BLOCK", 50, "WITHINFO")
    await server.wait(49)
    assert reader.is_blocked
    await server.wait(1)
    assert reader.replies() == [None]
    assert await reader("PING") == b"PONG"
    reader.send("TREAD", "k", 1, 10, "BLOCK", 2**62)
    await server.wait(10**12)
    assert reader.is_blocked
    reader.disconnect()
    assert not server.live_timers


@in_loop
async def test_what_was_sent_meanwhile_is_run_afterwards_in_order() -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    reader.send("TREAD", "k", 1, 10, "BLOCK", 0)
    reader.send("SET", "a", 1)
    reader.send("INCR", "a")
    reader.send("TREAD", "k", 2, 10, "BLOCK", 0)
    reader.send("INCR", "a")
    await turns(6)
    assert reader.replies() == []
    assert await writer("GET", "a") is None
    await writer("TWRITE", "k", "t", "e")
    await turns(6)
    assert reader.replies() == [[[1, b"t", b"e"]], b"OK", 2]
    await writer("TWRITE", "k", "t", "e")
    await turns(6)
    assert reader.replies() == [[[2, b"t", b"e"]], 3]


@in_loop
async def test_two_clients_that_wait_for_each_other() -> None:
    """A long game of two pipelines does not nest."""
    server = Server()
    one, other = server.connect(), server.connect()
    for at in range(1, 401):
        one.send("TREAD", "a", at, 1, "BLOCK", 0)
        one.send("TWRITE", "b", "t", at)
        other.send("TWRITE", "a", "t", at)
        other.send("TREAD", "b", at, 1, "BLOCK", 0)
    await turns(8000)
    assert len(one.replies()) == len(other.replies()) == 800


@in_loop
async def test_inside_multi_nobody_waits() -> None:
    server = Server()
    reader = server.connect()
    await reader("MULTI")
    await reader("TREAD", "k", 1, 1, "BLOCK", 0)
    await reader("TREAD", "k", 1, 1, "GROUP", "g", "BLOCK", 0)
    await reader("TWRITE", "k", "t", "e")
    await reader("TREAD", "k", 1, 1, "GROUP", "g", "BLOCK", 0)
    assert await reader("EXEC") == [None, None, 1, [[1, b"t", b"e"]]]


@in_loop
async def test_a_transaction_serves_once_it_is_whole() -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    reader.send("TREAD", "k", 1, 10, "BLOCK", 0)
    await writer("MULTI")
    await writer("TWRITE", "k", "t", "a")
    await writer("TWRITE", "k", "t", "b")
    await writer("EXEC")
    assert [offsets(reply) for reply in reader.replies()] == [[1, 2]]


# --- keys that change otherwise -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [(), ("GROUP", "g"), ("NEWGROUP", "g")])
@pytest.mark.parametrize("how", ["DEL", "DELPREFIX", "FLUSHALL", "expiry"])
@in_loop
async def test_a_key_that_goes_is_not_made_again(group: tuple[str, ...], how: str) -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    await writer("TWRITE", "k", "ENTRIES", "t", "a", "t", "b")
    await writer("TREAD", "k", 1, 2, "GROUP", "g")
    reader.send("TREAD", "k", 3, 10, *group, "BLOCK", 0)
    if how == "expiry":
        await writer("PEXPIRE", "k", 10)
        await server.wait(10)
        remove_due(server.store)
        server.engine.blocking.tick()
    else:
        await writer(how, *(["k"] if how.startswith("DEL") else []))
    assert await writer("EXISTS", "k") == 0
    assert reader.is_blocked
    await writer("TWRITE", "k", "t", "new")
    if group:
        assert reader.replies() == [[[1, b"t", b"new"]]]
    else:
        assert reader.is_blocked
        await writer("TWRITE", "k", "ENTRIES", "t", 2, "t", 3)
        assert [offsets(reply) for reply in reader.replies()] == [[3]]


@pytest.mark.parametrize("group", [(), ("GROUP", "g")])
@in_loop
async def test_a_key_of_another_type_ends_the_wait(group: tuple[str, ...]) -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    reader.send("TREAD", "k", 1, 10, *group, "BLOCK", 0)
    await writer("SET", "k", "value")
    (reply,) = reader.replies()
    assert str(reply).startswith("WRONGTYPE")


@in_loop
async def test_a_key_that_is_renamed_into_place() -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    reader.send("TREAD", "k", 2, 10, "BLOCK", 0)
    await writer("TWRITE", "other", "ENTRIES", "t", "a", "t", "b")
    await writer("RENAME", "other", "k")
    assert [offsets(reply) for reply in reader.replies()] == [[2]]


# --- groups -------------------------------------------------------------------------------------------------------


@in_loop
async def test_readers_of_a_group_take_turns() -> None:
    server = Server()
    writer, readers = server.connect(), [server.connect() for _ in range(3)]
    for reader in readers:
        reader.send("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 0)
    served = []
    for at in range(9):
        await writer("TWRITE", "k", "t", at)
        for number, reader in enumerate(readers):
            for _ in reader.replies():
                served.append(number)
                reader.send("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 0)
    assert served == [0, 1, 2] * 3


@in_loop
async def test_one_write_serves_as_many_as_it_can() -> None:
    server = Server()
    writer, readers = server.connect(), [server.connect() for _ in range(1200)]
    for reader in readers:
        reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 0)
    await writer("TWRITE", "k", "ENTRIES", *["t", "e"] * 1100)
    got = [offsets(reply) for reader in readers for reply in reader.replies()]
    assert got == [[at] for at in range(1, 1101)]
    assert len(server.engine.blocking) == 100
    assert server.live_timers == 1


@in_loop
async def test_maxpending_holds_blocked_readers_until_there_is_room() -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    await writer("TGROUP", "k", "g", "MAXPENDING", 2)
    await writer("TWRITE", "k", "ENTRIES", *["t", "e"] * 5)
    await writer("TREAD", "k", 0, 2, "GROUP", "g", "RETRY", 0, 300)
    reader.send("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 0, 300, "BLOCK", 0)
    await writer("TWRITE", "k", "t", "e")
    assert reader.is_blocked
    assert await writer("TACK", "k", "g", 1) == 1
    assert [offsets(reply) for reply in reader.replies()] == [[3]]
    reader.send("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 0, 300, "BLOCK", 0)
    await server.wait(299)
    assert reader.is_blocked
    await server.wait(1)
    assert [offsets(reply) for reply in reader.replies()] == [[4, 5]]
    assert plain(server.restarted()) == plain(server.stream())


@in_loop
async def test_eviction_makes_room_too() -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    await writer("TGROUP", "k", "g", "MAXPENDING", 2)
    await writer("TWRITE", "k", "ENTRIES", *["t", "e"] * (limits.NODE_ENTRIES_MAX + 5))
    await writer("TREAD", "k", 0, 2, *RETRY)
    reader.send("TREAD", "k", 0, 9, "GROUP", "g", "RETRY", 5000, 0, "BLOCK", 0)
    await writer("TEVICT", "k", limits.NODE_ENTRIES_MAX)
    first = limits.NODE_ENTRIES_MAX + 1
    assert [offsets(reply) for reply in reader.replies()] == [[first, first + 1]]


@in_loop
async def test_readers_that_stay_blocked_are_given_what_is_due() -> None:
    server = Server()
    writer, readers = server.connect(), [server.connect() for _ in range(2)]
    await writer("TWRITE", "k", "ENTRIES", *["t", "e"] * 2)
    await writer("TREAD", "k", 0, 1, *RETRY)
    await server.wait(50)
    await writer("TREAD", "k", 0, 1, *RETRY)
    for reader in readers:
        reader.send("TREAD", "k", 0, 5, *RETRY, "BLOCK", 0)
    assert server.live_timers == 1
    await server.wait(49)
    assert [reader.replies() for reader in readers] == [[], []]
    await server.wait(1)
    assert [reader.replies() for reader in readers] == [[[[1, b"t", b"e"]]], []]
    assert server.live_timers == 1
    await server.wait(50)
    assert readers[1].replies() == [[[2, b"t", b"e"]]]
    assert not server.live_timers
    assert server.stream().groups[b"g"].pending[1].deliveries == 2


@in_loop
async def test_what_expires_while_readers_wait_goes_to_the_dead_letters_and_their_readers() -> None:
    server = Server(shards=3)
    writer, reader, undertaker = server.connect(), server.connect(), server.connect()
    await writer("TGROUP", "k", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 5)
    await writer("TWRITE", "k", "t", "e")
    await writer("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 0, 80)
    reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 0)
    undertaker.send("TREAD", "dead", 1, 1, "BLOCK", 0)
    await server.wait(80)
    assert undertaker.replies() == [[[1, b"t", b"e"]]]
    assert reader.is_blocked
    assert not server.stream().groups[b"g"].pending
    assert plain(server.restarted(b"dead")) == plain(server.stream(b"dead"))


@in_loop
async def test_one_who_begins_to_wait_may_serve_others_first() -> None:
    """Its read finds something expired: that is for the reader of the dead letters, before it waits itself."""
    server = Server()
    writer, reader, undertaker = server.connect(), server.connect(), server.connect()
    await writer("TGROUP", "k", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 5)
    await writer("TWRITE", "k", "t", "e")
    await writer("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 0, 80)
    undertaker.send("TREAD", "dead", 0, 1, "GROUP", "u", "BLOCK", 0)
    await server.wait(80)
    reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 0)
    await turns(6)
    assert [offsets(reply) for reply in undertaker.replies()] == [[1]]
    assert reader.is_blocked


@pytest.mark.parametrize("how", ["expiry", "sweep", "XDEL", "TCOMPACT", "XTRIM"])
@in_loop
async def test_a_place_that_is_free_again_wakes_a_reader(how: str) -> None:
    """What stands before the entry is neither due nor gone."""
    server = Server()
    writer, reader = server.connect(), server.connect()
    await writer("TGROUP", "k", "g", "MAXPENDING", 2)
    await writer("TWRITE", "k", "ENTRIES", "a", 1, "b", 2, "c", 3)
    await writer("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10**6, 0)
    await writer("TREAD", "k", 0, 1, "GROUP", "g", "RETRY", 10**6, 1000)
    reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 0)
    await server.wait(10)
    assert reader.is_blocked
    if how == "expiry":
        await server.wait(989)
        assert reader.is_blocked
        await server.wait(1)
    elif how == "sweep":  # before the reader's own timer
        server.clock.advance(1_000_000)
        assert PendingExpiry(server.store).run() == 1
        server.engine.blocking.tick()
    elif how == "XDEL":
        entries = await writer("XRANGE", "k", "-", "+")
        assert await writer("XDEL", "k", entries[1][0]) == 1
    elif how == "TCOMPACT":
        await writer("TWRITE", "k", "b", "newer")
        assert await writer("TCOMPACT", "k") == 1
    else:
        assert await writer("XTRIM", "k", "MAXLEN", 1) == 2
    await turns(6)
    assert reader.replies() == [[[3, b"c", b"3"]]]
    assert plain(server.restarted()) == plain(server.stream())


# --- going away ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["disconnect", "CLIENT KILL", "end of input"])
@in_loop
async def test_who_goes_away_is_forgotten(how: str) -> None:
    server = Server()
    writer, reader = server.connect(), server.connect()
    reader.send("TREAD", "k", 0, 1, "GROUP", "g", "BLOCK", 1000)
    await turns(6)
    if how == "disconnect":
        reader.disconnect()
    elif how == "end of input":
        assert reader.session.eof_received() is False
    else:
        assert await writer("CLIENT", "KILL", "ID", reader.session.id) == 1
    assert len(server.engine.blocking) == 0
    assert not server.live_timers
    await writer("TWRITE", "k", "t", "e")
    assert await writer("TREAD", "k", 0, 1, "GROUP", "g") == [[1, b"t", b"e"]]


@in_loop
async def test_client_unblock_and_what_others_see() -> None:
    server = Server()
    other, reader = server.connect(), server.connect()
    number = reader.session.id
    assert await other("CLIENT", "UNBLOCK", number) == 0
    for how, expected in (((), None), (("TIMEOUT",), None), (("error",), "UNBLOCKED client unblocked via CLIENT")):
        reader.send("TREAD", "k", 0, 1, "BLOCK", 0)
        assert b"flags=b" in await other("CLIENT", "LIST", "ID", number)
        assert await other("CLIENT", "UNBLOCK", number, *how) == 1
        (reply,) = reader.replies()
        assert reply is None if expected is None else str(reply).startswith(expected)
    assert await other("CLIENT", "UNBLOCK", number) == 0
    assert await other("CLIENT", "UNBLOCK", 999) == 0
    assert b"flags=N" in await other("CLIENT", "LIST", "ID", number)


@in_loop
async def test_idle_clients_that_wait_are_left_alone() -> None:
    server = Server()
    idle, reader = server.connect(), server.connect()
    reader.send("TREAD", "k", 0, 1, "BLOCK", 0)
    await turns(6)
    server.connections.idle_s_max = 1
    server.connections.sweep()
    await server.wait(5000)
    server.connections.sweep()
    assert idle.transport.is_closed
    assert not reader.transport.is_closed


@in_loop
async def test_when_the_server_stops_nobody_is_served() -> None:
    server = Server()
    readers = [server.connect() for _ in range(3)]
    for reader in readers:
        reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 1000)
        reader.send("SET", "later", 1)
        await turns(6)
    server.engine.blocking.close()
    await turns(6)
    assert not any(reader.session.is_busy for reader in readers)
    assert server.store.database(0).find(b"later") is None
    assert not server.live_timers


# --- when nothing can be written ----------------------------------------------------------------------------------


@in_loop
async def test_a_full_disk_lets_plain_readers_read_and_group_readers_wait() -> None:
    server = Server()
    writer, reader, plain_reader = server.connect(), server.connect(), server.connect()
    await writer("TWRITE", "k", "t", "e")
    await writer("TREAD", "k", 0, 1, *RETRY)
    reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 0)
    await turns(6)
    server.disk.capacity_bytes = server.disk.used_bytes
    writer.send("SET", "x", "y" * 100_000)
    await turns(6)
    assert server.store.refusal is not None
    for words in (["TREAD", "k", 1, 1], ["MULTI"], ["TREAD", "k", 1, 1], ["EXEC"], ["TREAD", "k", 1, 1, *RETRY]):
        plain_reader.send(*words)
    await server.wait(100)
    assert reader.is_blocked
    server.disk.capacity_bytes = None
    server.store.journal.writer.write()
    server.engine.blocking.tick()
    await asyncio.sleep(0.15)  # replies wait for the write, which is tried again
    assert reader.replies() == [[[1, b"t", b"e"]]]
    *replies, refusal = plain_reader.replies()
    assert replies == [[[1, b"t", b"e"]], b"OK", b"QUEUED", [[[1, b"t", b"e"]]]]
    assert str(refusal).startswith("MISCONF")
    assert plain(server.restarted()) == plain(server.stream())


@in_loop
async def test_full_memory_lets_readers_drain() -> None:
    server = Server()
    client = server.connect()
    await client("TWRITE", "k", "t", "e")
    server.engine.gate.set_out_of_memory(True)
    assert str(await client("TWRITE", "k", "t", "e")).startswith("OOM")
    assert await client("TREAD", "k", 1, 1) == [[1, b"t", b"e"]]
    assert await client("TREAD", "k", 1, 1, *RETRY) == [[1, b"t", b"e"]]
    assert await client("TACK", "k", "g", 1) == 1
    assert await client("TEVICT", "k", 1) == 1


@in_loop
async def test_a_pause_of_writes_holds_deliveries() -> None:
    server = Server()
    writer, reader, other = server.connect(), server.connect(), server.connect()
    await writer("TWRITE", "k", "t", "e")
    await writer("TREAD", "k", 0, 1, *RETRY)
    reader.send("TREAD", "k", 0, 1, *RETRY, "BLOCK", 0)
    await writer("CLIENT", "PAUSE", 10_000, "WRITE")
    assert await other("TREAD", "k", 1, 1) == [[1, b"t", b"e"]]
    await server.wait(200)
    assert reader.is_blocked
    await writer("CLIENT", "UNPAUSE")
    server.engine.blocking.tick()
    await turns(6)
    assert reader.replies() == [[[1, b"t", b"e"]]]
