"""Commands about the names of feeds are writes: small, a part of MULTI, and refused when writes are."""

from __future__ import annotations

from typing import Any

from tests.engine.blocked import BlockedClient, Server, in_loop
from tidelog.errors import JournalFull
from tidelog.journal.retention import Holder


async def named(server: Server) -> tuple[BlockedClient, int]:
    """A client, and the ts at which the feed `mine` has begun."""
    client, reader = server.connect(), server.connect()
    await client("SET", "k", "v")
    position: Any = await client("FEED", "POSITION")
    since = position[0][1]
    reader.send("CHANGEFEED", "NAME", "mine", "SINCE", since, "KEY", "k")
    await server.wait(10)
    reader.disconnect()
    return client, since


def held(server: Server) -> Holder:
    [holder] = server.store.holds.by_name.values()
    return holder


@in_loop
async def test_an_acknowledgement_is_one_small_record() -> None:
    server = Server(shards=2)
    client, since = await named(server)
    before = server.store.journal.writer.next_lsns
    places = server.store.journal.writer.written_places
    assert await client("FEED", "ACK", "mine", since) == b"OK"
    after = server.store.journal.writer.next_lsns
    assert [end - begin for begin, end in zip(before, after, strict=True)] == [1, 0]
    [at, _] = [end[1] - begin[1] for begin, end in zip(places, server.store.journal.writer.written_places, strict=True)]
    assert at < 200, "with the mark of its cycle"
    assert (held(server).ts, held(server).epoch) == (since, server.store.journal.epoch_id)


@in_loop
async def test_it_is_a_part_of_a_multi() -> None:
    server = Server(shards=2)
    client, since = await named(server)
    before = server.store.journal.writer.last_ts
    for words in (("MULTI",), ("SET", "k", "w"), ("FEED", "ACK", "mine", since), ("FEED", "ACK", "none", since)):
        await client(*words)
    replies: Any = await client("EXEC")
    assert replies[:2] == [b"OK", b"OK"]
    assert "there is no feed named 'none'" in str(replies[2])
    reader = server.store.journal.reader_since(before)
    [transaction] = reader.read()
    reader.close()
    assert transaction.ts == server.store.journal.writer.last_ts
    assert held(server).epoch, "it has moved"


@in_loop
async def test_they_are_refused_when_writes_are() -> None:
    server = Server()
    client, since = await named(server)
    before = held(server)
    server.store.journal.writer.refusal = JournalFull("no space")
    for command in (
        ("FEED", "ACK", "mine", since),
        ("FEED", "DROP", "mine"),
        ("CHANGEFEED", "NAME", "new", "SINCE", since, "KEY", "k"),
        ("CHANGEFEED", "NAME", "mine", "SINCE", 0, "KEY", "k"),
    ):
        assert str(await client(*command)) == "MISCONF no space", command
    assert held(server) == before


@in_loop
async def test_errors_journal_nothing() -> None:
    server = Server()
    client, since = await named(server)
    before = server.store.journal.writer.last_ts
    for command, error in (
        (("FEED", "ACK", "none", since), "ERR there is no feed named 'none'"),
        (("FEED", "ACK", "mine", 2**62), "ERR 4611686018427387904 lies ahead of the clock here"),
        (("FEED", "DROP", "none"), "ERR there is no feed named 'none'"),
        (("CHANGEFEED", "NAME", "n" * 300, "SINCE", since, "KEY", "k"), "ERR a holder's name has 1 to 256 bytes"),
    ):
        assert str(await client(*command)) == error
    assert server.store.journal.writer.last_ts == before
