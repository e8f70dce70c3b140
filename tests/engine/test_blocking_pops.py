"""Clients that wait to pop from lists and sorted sets: one line a key, whatever the commands in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.blocked import BlockedClient, Server, in_loop
from tests.server.test_connection import turns
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.table import Arguments, CommandTable, Decision
from tidelog.journal.durability import FsyncPolicy
from tidelog.store.expiry import remove_due
from tidelog.store.transaction import Transaction


class Attempts:
    """Counts how often the handlers of commands are called."""

    def __init__(self, server: Server, *names: str) -> None:
        self.count = 0
        rows = [
            replace(row, handler=self._counted(row.handler)) if row.name in names else row
            for row in command_table().rows()
        ]
        server.engine.table = CommandTable(rows)
        server.engine.slow_log.threshold_us = 0  # so that nothing takes the hot path

    def _counted(self, handler: Any) -> Any:
        def run(transaction: Transaction, arguments: Arguments) -> Decision:
            self.count += 1
            decision: Decision = handler(transaction, arguments)
            return decision

        return run


async def waiting(server: Server, *words: str | int) -> BlockedClient:
    """A client that has begun to wait."""
    client = server.connect()
    client.send(*words)
    await turns(6)
    assert client.is_blocked
    return client


def state(server: Server) -> dict[bytes, Any]:
    """All values, as they are and as the next process finds them, which is the same. This one is killed for it."""
    held = [server.store.database(0), server.restart().database(0)]
    now, later = ({key: list(database.find(key) or ()) for key in database.all_keys()} for database in held)
    assert now == later
    return now


# --- one line -----------------------------------------------------------------------------------------------------


@in_loop
async def test_first_come_first_served_whatever_the_command() -> None:
    server = Server()
    writer = server.connect()
    commands = [
        ("BRPOP", "k", 0),
        ("BLPOP", "k", 0),
        ("BLMPOP", 0, 1, "k", "LEFT", "COUNT", 2),
        ("BLMOVE", "k", "other", "RIGHT", "LEFT", 0),
        ("BRPOP", "k", 0),
        ("BRPOPLPUSH", "k", "other", 0),
        ("BLPOP", "k", 0),
    ]
    clients = [await waiting(server, *words) for words in commands]
    assert await writer("RPUSH", "k", *"abcdefg") == 7
    assert [client.replies() for client in clients] == [
        [[b"k", b"g"]],
        [[b"k", b"a"]],
        [[b"k", [b"b", b"c"]]],
        [b"f"],
        [[b"k", b"e"]],
        [b"d"],
        [],
    ]
    assert clients[-1].is_blocked
    await writer("RPUSH", "k", "h")
    assert clients[-1].replies() == [[b"k", b"h"]]
    assert not server.store.database(0).waiting
    assert state(server) == {b"other": [b"d", b"f"]}


@in_loop
async def test_sorted_sets_have_the_same_line() -> None:
    server = Server()
    writer = server.connect()
    commands = [
        ("BZPOPMAX", "k", 0),
        ("BZMPOP", 0, 1, "k", "MIN", "COUNT", 2),
        ("BZPOPMIN", "k", 0),
        ("BLPOP", "k", 0),
        ("BZPOPMAX", "k", 0),
    ]
    clients = [await waiting(server, *words) for words in commands]
    await writer("ZADD", "k", 1, "a", 2, "b", 3, "c", 4, "d")
    assert [client.replies() for client in clients] == [
        [[b"k", b"d", b"4"]],
        [[b"k", [[b"a", b"1"], [b"b", b"2"]]]],
        [[b"k", b"c", b"3"]],
        [],
        [],
    ]
    await writer("LPUSH", "k", "e")
    assert clients[3].replies() == [[b"k", b"e"]]
    await writer("ZADD", "k", "5.5", "f")
    assert clients[4].replies() == [[b"k", b"f", b"5.5"]]


@in_loop
async def test_who_was_served_goes_to_the_end_and_who_was_not_keeps_its_place() -> None:
    server = Server()
    writer, clients = server.connect(), [await waiting(server, "BLPOP", "k", "l", 0) for _ in range(3)]
    served = []
    for at in range(9):
        await writer("RPUSH", "kl"[at % 2], at)
        for number, client in enumerate(clients):
            for _ in client.replies():
                served.append(number)
                client.send("BRPOP" if at % 3 else "BLPOP", "l", "k", 0)
    assert served == [0, 1, 2] * 3


@in_loop
async def test_a_change_costs_no_more_for_those_who_get_nothing() -> None:
    server = Server()
    attempts = Attempts(server, "BLPOP", "BRPOP", "BZPOPMIN", "BLMOVE")
    writer, count = server.connect(), 300
    for at in range(count):
        # With a fraction of a second they are not hot, and so they are counted.
        await waiting(server, *[("BLPOP", "k", "0.0"), ("BRPOP", "k", "0.0"), ("BZPOPMIN", "k", "0")][at % 3])
        await waiting(server, "BLMOVE", "k", f"target{at}", "LEFT", "LEFT", 0)
    assert attempts.count == 2 * count
    for words in (("SET", "k", "text"), ("DEL", "k"), ("RPUSH", "other", 1)):
        await writer(*words)
    assert attempts.count == 2 * count
    for at in range(20):
        await writer("RPUSH", "k", at)
        assert attempts.count == 2 * count + at + 1  # one is served; for the others the key is gone


@in_loop
async def test_a_long_line_is_served_to_the_last() -> None:
    server = Server()
    writer, clients = server.connect(), [await waiting(server, "BLPOP", "k", 0) for _ in range(500)]
    for client in clients[::7]:
        client.disconnect()
    left = [client for at, client in enumerate(clients) if at % 7]
    await writer("RPUSH", "k", *range(len(left) + 1))
    assert [client.replies() for client in left] == [[[b"k", b"%d" % at]] for at in range(len(left))]
    assert state(server) == {b"k": [b"%d" % len(left)]}
    assert len(server.engine.blocking) == server.engine.blocking.key_count == 0


# --- several keys -------------------------------------------------------------------------------------------------


@in_loop
async def test_keys_are_tried_in_the_order_named() -> None:
    server = Server()
    writer = server.connect()
    client = await waiting(server, "BLPOP", "a", "b", "c", 0)
    await writer("MULTI")
    for key in "cba":
        await writer("RPUSH", key, key.upper())
    await writer("EXEC")
    assert client.replies() == [[b"a", b"A"]]
    assert await client("BRPOP", "a", "c", "b", 0) == [b"c", b"C"]
    assert state(server) == {b"b": [b"B"]}


@in_loop
async def test_a_key_that_is_named_twice_counts_once() -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "a", "a", "b", "a", 0)
    other = await waiting(server, "BZMPOP", 0, 3, "z", "y", "z", "MIN")
    assert server.engine.blocking.key_count == 4
    await writer("RPUSH", "a", 1, 2)
    await writer("ZADD", "z", 1, "m", 2, "n")
    assert client.replies() == [[b"a", b"1"]]
    assert other.replies() == [[b"z", [[b"m", b"1"]]]]
    assert state(server).keys() == {b"a", b"z"}


@pytest.mark.parametrize(
    ("inside", "of_first", "of_second"),
    [
        (["RPUSH a 1", "RPUSH b 2"], [], [[b"b", b"2"]]),
        (["RPUSH b 2", "RPUSH a 1"], [[b"b", b"2"]], [[b"a", b"1"]]),
        (["RPUSH b 2", "RPUSH a 1", "DEL b", "RPUSH b 3"], [[b"b", b"3"]], [[b"a", b"1"]]),
        (["RPUSH c 1", "DEL a", "RPUSH b 2", "RPUSH a 1"], [[b"b", b"2"]], [[b"a", b"1"]]),
    ],
)
@in_loop
async def test_a_transaction_serves_in_the_order_of_its_changes(
    inside: list[str], of_first: list[Any], of_second: list[Any]
) -> None:
    """The line of the key that was made first comes first, and who is served in it takes its keys in their order."""
    server = Server()
    writer = server.connect()
    first, second = await waiting(server, "BLPOP", "b", 0), await waiting(server, "BLPOP", "b", "a", 0)
    if "DEL a" in inside:
        await writer("ZADD", "a", 1, "m")  # of another type: nobody is served
    await writer("MULTI")
    for words in inside:
        await writer(*words.split())
    assert (first.replies(), second.replies()) == ([], [])
    await writer("EXEC")
    assert (first.replies(), second.replies()) == (of_first, of_second)


@in_loop
async def test_inside_exec_nobody_is_served_before_the_end() -> None:
    """Were it served in the middle, the journal would have the pop before the push."""
    server = Server()
    client, other = await waiting(server, "BLPOP", "k", 0), await waiting(server, "BLPOP", "x", 0)
    writer = server.connect()
    await writer("MULTI")
    await writer("RPUSH", "k", 1, 2)
    await writer("CLIENT", "UNBLOCK", other.session.id)
    await writer("LLEN", "k")
    assert await writer("EXEC") == [2, 1, 2]
    assert (client.replies(), other.replies()) == ([[b"k", b"1"]], [None])
    assert state(server) == {b"k": [b"2"]}


@in_loop
async def test_inside_exec_nobody_waits() -> None:
    server = Server()
    client = server.connect()
    commands = ["BLPOP k 0", "BRPOP k 0", "BLMPOP 0 1 k LEFT", "BLMOVE k l LEFT LEFT 0", "BRPOPLPUSH k l 0"]
    commands += ["BZPOPMIN z 0", "BZPOPMAX z 0", "BZMPOP 0 1 z MIN"]
    for words in ("MULTI", *commands, "RPUSH k a b", "BLPOP k 0", "BLMOVE k l LEFT LEFT 0"):
        await client(*words.split())
    assert await client("EXEC") == [None] * len(commands) + [2, [b"k", b"a"], b"b"]
    assert server.engine.blocking.key_count == 0


# --- moving -------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_move_serves_the_next() -> None:
    server = Server()
    writer, count = server.connect(), 50
    chain = [await waiting(server, "BLMOVE", at, at + 1, "LEFT", "RIGHT", 0) for at in reversed(range(count))]
    end = await waiting(server, "BLPOP", count, 0)
    await writer("RPUSH", 0, "element")
    assert [client.replies() for client in chain] == [[b"element"]] * count
    assert end.replies() == [[b"%d" % count, b"element"]]
    assert state(server) == {}


@in_loop
async def test_moves_in_a_circle_come_to_an_end() -> None:
    server = Server()
    writer = server.connect()
    clients = [await waiting(server, "BLMOVE", *keys, "LEFT", "RIGHT", 0) for keys in ("ab", "ba", "aa", "ab")]
    await writer("RPUSH", "a", "x")
    assert [client.replies() for client in clients] == [[b"x"]] * 4
    assert state(server) == {b"b": [b"x"]}


@in_loop
async def test_a_target_of_another_type_is_an_error_and_the_element_is_for_the_next() -> None:
    server = Server()
    writer = server.connect()
    await writer("SET", "text", "t")
    refused = await waiting(server, "BLMOVE", "k", "text", "LEFT", "LEFT", 0)
    client = await waiting(server, "BLPOP", "k", 0)
    await writer("RPUSH", "k", 1)
    (reply,) = refused.replies()
    assert str(reply).startswith("WRONGTYPE")
    assert client.replies() == [[b"k", b"1"]]
    assert await refused("PING") == b"PONG"


# --- types and keys that come and go ------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["SET k v", "HSET k f v", "SADD k m", "ZADD k 1 m", "XADD k * f v"])
@in_loop
async def test_a_key_of_another_type_is_waited_out(other: str) -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", 0)
    await writer(*other.split())
    assert client.is_blocked
    await writer("DEL", "k")
    await writer("RPUSH", "k", 1)
    assert client.replies() == [[b"k", b"1"]]


@in_loop
async def test_a_key_of_another_type_before_the_one_that_came_is_an_error() -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "a", "b", 0)
    await writer("SET", "a", "text")
    assert client.is_blocked
    await writer("RPUSH", "b", 1)
    (reply,) = client.replies()
    assert str(reply).startswith("WRONGTYPE")
    assert state(server)[b"b"] == [b"1"]


@pytest.mark.parametrize(
    "how",
    [
        "RENAME from k",
        "COPY from k",
        "LMOVE from k LEFT LEFT",
        "RPOPLPUSH from k",
        "expired",
        "swept",
        "FLUSHALL",
        "MOVE",
    ],
)
@in_loop
async def test_lists_come_in_many_ways(how: str) -> None:
    server = Server()
    writer = server.connect()
    await writer("RPUSH", "from", 1)
    client = await waiting(server, "BLPOP", "k", 0)
    if how == "expired":
        await writer("SET", "k", "v", "PX", 10)
        await server.wait(11)
        await writer("RPUSH", "k", 1)  # which finds it expired
    elif how == "swept":
        await writer("SET", "k", "v", "PX", 10)
        await server.wait(11)
        remove_due(server.store)
        server.engine.blocking.tick()
        assert client.is_blocked
        await writer("RPUSH", "k", 1)
    elif how == "FLUSHALL":
        await writer("SET", "k", "v")
        await writer("FLUSHALL")
        assert client.is_blocked
        await writer("RPUSH", "k", 1)
    elif how == "MOVE":
        await writer("SELECT", 3)
        await writer("RPUSH", "k", 1)
        assert client.is_blocked
        await writer("MOVE", "k", 0)
    else:
        await writer(*how.split())
    assert client.replies() == [[b"k", b"1"]]


@pytest.mark.parametrize("how", ["ZADD k 2 m", "ZUNIONSTORE k 1 from", "ZRANGESTORE k from 0 -1", "ZINCRBY k 2 m"])
@in_loop
async def test_so_do_sorted_sets(how: str) -> None:
    server = Server()
    writer = server.connect()
    await writer("ZADD", "from", 2, "m")
    client = await waiting(server, "BZPOPMIN", "k", 0)
    await writer(*how.split())
    assert client.replies() == [[b"k", b"m", b"2"]]


@in_loop
async def test_databases_are_apart() -> None:
    server = Server()
    writer, client = server.connect(), server.connect()
    await client("SELECT", 2)
    client.send("BLPOP", "k", 0)
    await writer("RPUSH", "k", 1)
    assert client.is_blocked
    await writer("SELECT", 2)
    await writer("RPUSH", "k", 2)
    assert client.replies() == [[b"k", b"2"]]


# --- time, and going away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "ms"), [("0.05", 50), ("1", 1000), ("1e-1", 100), ("0.0001", 1), ("0x0.1p0", 63)])
@in_loop
async def test_a_timeout_is_in_seconds(word: str, ms: int) -> None:
    server = Server()
    client = await waiting(server, "BLPOP", "k", word)
    await server.wait(ms - 1)
    assert client.is_blocked
    await server.wait(1)
    assert client.replies() == [None]
    client.send("BLMOVE", "k", "l", "LEFT", "LEFT", word)
    await server.wait(ms)
    assert client.replies() == [None]
    assert not server.live_timers


@pytest.mark.parametrize("word", ["0", "0.0", "-0", "-0.0005"])
@in_loop
async def test_no_timeout_is_for_ever(word: str) -> None:
    server = Server()
    client = await waiting(server, "BZPOPMIN", "k", word)
    await server.wait(10**12)
    assert client.is_blocked


@pytest.mark.parametrize("how", ["disconnect", "CLIENT KILL", "end of input", "time", "CLIENT UNBLOCK"])
@in_loop
async def test_what_nobody_waits_for_any_more_stays(how: str) -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", "l", 1)
    if how == "disconnect":
        client.disconnect()
    elif how == "end of input":
        assert client.session.eof_received() is False
    elif how == "time":
        await server.wait(1000)
    else:
        assert await writer(*how.split(), *(["ID"] if "KILL" in how else []), client.session.id) == 1
    await writer("RPUSH", "k", 1)
    assert state(server) == {b"k": [b"1"]}
    assert server.engine.blocking.key_count == len(server.engine.blocking) == 0


@in_loop
async def test_a_client_waits_for_so_many_keys() -> None:
    server = Server()
    client = server.connect()
    keys = range(limits.WAITED_KEYS_MAX + 1)
    reply = await client("BLPOP", *keys, 0)
    assert str(reply) == f"ERR a client can wait for at most {limits.WAITED_KEYS_MAX} keys"
    client.send("BLPOP", *keys[1:], 0)
    assert client.is_blocked
    other = server.connect()
    await other("RPUSH", limits.WAITED_KEYS_MAX, "x")
    assert client.replies() == [[b"%d" % limits.WAITED_KEYS_MAX, b"x"]]
    await other("RPUSH", 0, "y")
    assert await client("BLPOP", *keys, 0) == [b"0", b"y"]


# --- when nothing can be written ----------------------------------------------------------------------------------


@in_loop
async def test_full_memory_puts_off_those_who_move_and_lets_others_pop() -> None:
    server = Server()
    writer = server.connect()
    await writer("RPUSH", "from", 1, 2)
    mover, popper = (
        await waiting(server, "BLMOVE", "k", "to", "LEFT", "LEFT", 0),
        await waiting(server, "BLPOP", "k", 0),
    )
    server.engine.gate.set_out_of_memory(True)
    await writer("RENAME", "from", "k")
    assert (mover.replies(), popper.replies()) == ([], [[b"k", b"1"]])
    server.engine.blocking.tick()
    await turns(6)
    assert mover.is_blocked
    server.engine.gate.set_out_of_memory(False)
    server.engine.blocking.tick()
    await turns(6)
    assert mover.replies() == [b"2"]


@in_loop
async def test_a_full_disk_puts_all_off() -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", 0)
    server.disk.capacity_bytes = server.disk.used_bytes
    writer.send("RPUSH", "k", "x" * 100_000)
    await turns(6)
    assert server.store.refusal is not None
    server.disk.capacity_bytes = None
    server.store.journal.writer.write()
    server.engine.blocking.tick()
    await asyncio.sleep(0.15)  # replies wait for the write, which is tried again
    assert writer.replies() == [1]
    assert client.replies() == [[b"k", b"x" * 100_000]]
    assert state(server) == {}


@pytest.mark.parametrize("which", ["WRITE", "ALL"])
@in_loop
async def test_a_pause_puts_off(which: str) -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", 0)
    await writer("MULTI")
    await writer("RPUSH", "k", 1)
    await writer("CLIENT", "PAUSE", 10_000, which)
    assert await writer("EXEC") == [1, b"OK"]
    server.engine.blocking.tick()
    await turns(6)
    assert client.is_blocked
    server.engine.gate.resume()
    server.engine.blocking.tick()
    await turns(6)
    assert client.replies() == [[b"k", b"1"]]


@in_loop
async def test_what_was_put_off_is_not_lost_with_its_client() -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", 1)
    await writer("MULTI")
    await writer("CLIENT", "PAUSE", 10_000, "WRITE")
    await writer("RPUSH", "k", 1)
    await writer("EXEC")
    await server.wait(1000)
    assert client.replies() == [None]
    server.engine.blocking.tick()
    server.engine.gate.resume()
    server.engine.blocking.tick()
    assert state(server) == {b"k": [b"1"]}


@in_loop
async def test_a_reply_leaves_once_its_pop_is_durable() -> None:
    server = Server(policy=FsyncPolicy.ALWAYS)
    client = await waiting(server, "BLPOP", "k", 0)
    writer = server.connect()
    writer.send("RPUSH", "k", 1)
    popped_ts = server.store.journal.writer.last_ts
    while not client.transport.written:
        assert not writer.transport.written
        await asyncio.sleep(0)
    assert server.store.journal.writer.durable_ts >= popped_ts
    server.disk.crash()
    assert client.replies() == [[b"k", b"1"]]


@in_loop
async def test_a_long_element_is_sent_in_pieces() -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", 0)
    element = b"x" * (4 * limits.SENT_PIECE_BYTES + 1)
    client.send("PING")
    assert await writer("RPUSH", "k", element) == 1
    await turns(40)
    assert client.replies() == [[b"k", element], b"PONG"]


@in_loop
async def test_when_the_server_stops_nothing_is_popped() -> None:
    server = Server()
    writer, client = server.connect(), await waiting(server, "BLPOP", "k", 5)
    server.engine.blocking.close()
    await writer("RPUSH", "k", 1)
    assert client.replies() == []
    assert state(server) == {b"k": [b"1"]}
    assert not server.live_timers
