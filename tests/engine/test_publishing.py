"""What is published reaches followers after the data before it."""

from __future__ import annotations

from tests.engine.blocked import Server, in_loop
from tests.engine.roles import HandMadeRole
from tests.server.test_connection import turns


@in_loop
async def test_listeners_here_and_followers_get_it() -> None:
    server = Server()
    role = HandMadeRole(server.engine)
    client, listener = server.connect(), server.connect()
    await listener("SUBSCRIBE", "news")
    assert await client("PUBLISH", "news", "hi") == 1
    assert await client("SPUBLISH", "shard", "ho") == 0
    await turns(6)
    assert listener.replies() == [[b"message", b"news", b"hi"]]
    assert role.published == [(b"news", b"hi", False), (b"shard", b"ho", True)]


@in_loop
async def test_with_a_transaction_when_it_is_committed() -> None:
    server = Server()
    role = HandMadeRole(server.engine)
    committed: list[int] = []
    publish = role.publish

    def note(channel: bytes, payload: bytes, *, is_sharded: bool) -> None:
        committed.append(server.store.journal.writer.last_ts)
        publish(channel, payload, is_sharded=is_sharded)

    role.publish = note  # type: ignore[method-assign]
    client = server.connect()
    await client("MULTI")
    await client("PUBLISH", "news", "1")
    await client("EVAL", "redis.call('PUBLISH', 'news', '2')", 0)
    await client("SET", "k", "v")
    await client("EXEC")
    after_exec = server.store.journal.writer.last_ts
    await client("EVAL", "redis.call('PUBLISH', 'news', '3') return redis.call('SET', 'k', 'w')", 0)
    after_script = server.store.journal.writer.last_ts
    await client("PUBLISH", "news", "4")
    assert [payload for _, payload, _ in role.published] == [b"1", b"2", b"3", b"4"]
    assert committed == [after_exec, after_exec, after_script, after_script]
    assert after_exec < after_script


@in_loop
async def test_without_replication_nothing_is_kept() -> None:
    server = Server()
    client = server.connect()
    await client("MULTI")
    await client("PUBLISH", "news", "1")
    await client("EXEC")
    role = HandMadeRole(server.engine)
    await client("PUBLISH", "news", "2")
    assert [payload for _, payload, _ in role.published] == [b"2"]
