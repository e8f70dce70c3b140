"""The client on a real server: what it delivers, over cut connections, restarts and cancellations."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.bounded import run
from tests.client.cut_link import CutLink
from tests.integration.feed_server import now, url_of
from tests.integration.server_process import ServerProcess
from tidelog import limits
from tidelog.client import (
    Checkpoint,
    Client,
    CommandError,
    Commit,
    DeleteRange,
    Event,
    Feed,
    FeedDiverged,
    ServerRefused,
    ServerUnreachable,
    Steady,
    Value,
)
from tidelog.client.feed import Lost

SOON_MS = 20


async def until(feed: Feed, is_last: Callable[[Event], bool]) -> list[Event]:
    """What comes, up to some event."""
    events = []
    async for event in feed:
        events.append(event)
        if is_last(event):
            break
    return events


async def through_checkpoint(feed: Feed) -> list[Event]:
    return await until(feed, lambda event: isinstance(event, Checkpoint))


def is_value_of(key: bytes) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Value) and event.key == key


def values(events: list[Event]) -> list[tuple[bytes, Any]]:
    return [(event.key, event.value) for event in events if isinstance(event, Value)]


def test_what_changes_from_now_on(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        redis.set("user:0", "before")
        async with Client(url_of(server)) as client:
            feed = client.feed(prefix=b"user:", keys=["k"], spans=[("x", "y")], txn=True, checkpoint_ms=SOON_MS)
            assert isinstance(await anext(feed), Steady)
            redis.mset({"user:1": "a", "other": "b", "k": "c", "x1": "d", "y": "e"})
            redis.hset("user:h", "f", "v")
            redis.delete("user:h")
            redis.flushall()
            events = await until(feed, lambda event: isinstance(event, DeleteRange) and event.start == b"x")
            await feed.aclose()
        changes = [event for event in events if isinstance(event, Value)]
        assert values(events)[:3] == [(b"user:1", b"a"), (b"k", b"c"), (b"x1", b"d")]
        assert [(event.type, event.field, event.value) for event in changes[3:]] == [
            ("hash", b"f", b"v"),
            ("none", None, None),
        ]
        assert len([event for event in events if isinstance(event, Commit)]) == 3
        assert len({event.ts for event in changes}) == 3

    run(work())


def test_initial_values_then_changes(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        redis.mset({f"k{number}": number for number in range(500)})
        async with Client(url_of(server)) as client:
            feed = client.feed(initial=True, checkpoint_ms=SOON_MS)
            events = await through_checkpoint(feed)
            assert sorted(values(events)) == sorted((b"k%d" % number, b"%d" % number) for number in range(500))
            redis.set("k0", "new")
            assert values(await until(feed, lambda event: isinstance(event, Value))) == [(b"k0", b"new")]

    run(work())


def test_since_and_until(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        async with Client(url_of(server)) as client:
            [begin] = await client.positions()
            redis.set("a", 1)
            redis.set("b", 2)
            [end] = await client.positions()
            redis.set("c", 3)
            events = [event async for event in client.feed(since=begin.ts, until=end.ts)]
            assert values(events) == [(b"a", b"1"), (b"b", b"2")]
            last = events[-1]
            assert isinstance(last, Checkpoint)
            assert (last.ts, last.epoch) == (end.ts, end.epoch)
            assert values(await until(client.feed(since=last), lambda event: isinstance(event, Value))) == [
                (b"c", b"3")
            ]

    run(work())


def test_another_database(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        other = server.client(db=3)
        redis.set("here", 1)
        other.set("there", 1)
        other.close()
        async with Client(url_of(server)) as client:
            events = await through_checkpoint(client.feed(initial=True, database=3, checkpoint_ms=SOON_MS))
        assert values(events) == [(b"there", b"1")]

        async with Client(f"{url_of(server)}/3") as client:
            assert values(await through_checkpoint(client.feed(initial=True, checkpoint_ms=SOON_MS))) == values(events)

    run(work())


def test_a_name_goes_on_where_it_was_acknowledged(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        async with Client(url_of(server)) as client:
            with pytest.raises(CommandError, match="there is no feed named 'reader'"):
                await anext(client.feed(name="reader"))
            feed = client.feed(name="reader", since=now(redis), checkpoint_ms=SOON_MS)
            assert isinstance(await anext(feed), Steady)
            redis.set("a", 1)
            *_, first = await until(feed, lambda event: isinstance(event, Value))
            await feed.aclose()
            redis.set("b", 2)
            again = await until(
                client.feed(name="reader"), lambda event: isinstance(event, Value) and event.key == b"b"
            )
            assert values(again) == [(b"a", b"1"), (b"b", b"2")]
            await client.acknowledge("reader", first.ts)
            after = await until(client.feed(name="reader"), lambda event: isinstance(event, Value))
            assert values(after) == [(b"b", b"2")]

    run(work())


# --- errors -----------------------------------------------------------------------------------------------------


def test_errors_that_the_caller_acts_on(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        async with Client(url_of(server)) as client:
            with pytest.raises(FeedDiverged) as diverged:
                await anext(client.feed(since=Checkpoint(1, b"", b"", 12345, 1)))
            assert diverged.value.since == 0
            with pytest.raises(CommandError, match="ahead of the clock"):
                await anext(client.feed(since=2**62))
            with pytest.raises(CommandError, match="ends before it begins"):
                await anext(client.feed(spans=[("b", "a")]))
            with pytest.raises(ValueError, match="cannot be used together"):
                client.feed(since=1, initial=True)

    run(work())


def test_no_server_is_said_at_once() -> None:
    async def work() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            async with Client(f"redis://127.0.0.1:{unused.getsockname()[1]}") as client:
                with pytest.raises(ServerUnreachable):
                    await anext(client.feed())
                with pytest.raises(ServerUnreachable):
                    await client.positions()

    run(work())


def test_passwords(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret/@\n")

    async def work(server: ServerProcess) -> None:
        place = f"127.0.0.1:{server.port}"
        for client in (Client(f"redis://:s3cret%2F%40@{place}"), Client(f"redis://{place}", password="s3cret/@")):
            async with client:
                assert isinstance(await anext(client.feed()), Steady)
        for url in (f"redis://:wrong@{place}", f"redis://{place}"):
            async with Client(url) as client:
                with pytest.raises(ServerRefused):
                    await anext(client.feed())

    with ServerProcess(tmp_path / "data", "--requirepass-file", str(tmp_path / "password")) as server:
        run(work(server))


def test_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost", "-days", "1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )

    async def work(server: ServerProcess) -> None:
        async with Client(f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={cert}") as client:
            assert isinstance(await anext(client.feed()), Steady)

    with ServerProcess(tmp_path / "data", "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        run(work(server))


# --- connections that end ---------------------------------------------------------------------------------------


def test_a_cut_connection_repeats_and_loses_nothing(server: ServerProcess, redis: Any) -> None:
    """Cut again and again, at any byte, while somebody writes."""

    async def work() -> None:
        async with CutLink(server.port) as link, Client(link.url) as client:
            [begin] = await client.positions()
            link.bytes_max = 10_000
            lost: list[Lost] = []

            def on_lost(each: Lost) -> None:
                lost.append(each)
                assert link.bytes_max is not None
                link.bytes_max += 17_001  # or it might be cut for ever before the first checkpoint

            feed = client.feed(prefix="k", since=begin.ts, checkpoint_ms=SOON_MS, txn=True, on_lost=on_lost)
            reading = asyncio.create_task(
                until(feed, lambda event: isinstance(event, Value) and event.value == b"1999")
            )
            for number in range(0, 2000, 4):
                redis.mset({f"k{each}": each for each in range(number, number + 4)})
                if number % 100 == 0:
                    await asyncio.sleep(0.005)
            events = await reading
            await feed.aclose()
        assert values(events) == [(b"k%d" % number, b"%d" % number) for number in range(2000)]
        assert len(lost) > 2
        commits = [event.ts for event in events if isinstance(event, Commit)]
        assert len(commits) == len(set(commits)) == 499

    run(work())


def test_initial_values_begin_anew_after_a_cut(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        redis.mset({f"k{number}": "v" * 1000 for number in range(1000)})
        async with CutLink(server.port) as link, Client(link.url) as client:
            link.bytes_max = 100_000
            state: dict[bytes, Any] = {}
            restarts = 0
            async for event in client.feed(initial=True, checkpoint_ms=SOON_MS):
                if isinstance(event, Value):
                    state[event.key] = event.value
                elif isinstance(event, DeleteRange):
                    restarts += 1
                    state.clear()
                    link.bytes_max = None
                    redis.delete("k5", "k6")
                elif isinstance(event, Checkpoint):
                    break
        assert restarts >= 1
        assert state.keys() == {b"k%d" % number for number in range(1000)} - {b"k5", b"k6"}

    run(work())


def test_a_killed_feed_goes_on(server: ServerProcess, redis: Any) -> None:
    """An orderly end is no end for its reader."""

    async def work() -> None:
        async with Client(url_of(server)) as client:
            feed = client.feed(checkpoint_ms=SOON_MS)
            assert isinstance(await anext(feed), Steady)
            redis.set("a", 1)
            [facts] = redis.execute_command("FEED", "LIST")
            redis.execute_command("FEED", "KILL", facts[b"id"])
            redis.set("b", 2)
            assert values(await until(feed, is_value_of(b"b"))) == [(b"a", b"1"), (b"b", b"2")]

    run(work())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_server_that_restarts(tmp_path: Path, is_killed: bool) -> None:
    async def work(server: ServerProcess) -> None:
        async with CutLink(server.port) as link, Client(link.url) as client:
            feed = client.feed(checkpoint_ms=SOON_MS)
            assert isinstance(await anext(feed), Steady)
            server.client().set("a", 1)
            server.kill() if is_killed else server.terminate()
            with ServerProcess(tmp_path / "data") as again:
                link.server_port = again.port
                again.client().set("b", 2)
                assert values(await until(feed, is_value_of(b"b"))) == [(b"a", b"1"), (b"b", b"2")]
                [position] = await client.positions()
                checkpoint = (await through_checkpoint(feed))[-1]
                assert isinstance(checkpoint, Checkpoint)
                assert checkpoint.epoch == position.epoch

    with ServerProcess(tmp_path / "data") as server:
        run(work(server))


def test_a_silent_connection_is_lost(server: ServerProcess, redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a machine loses its power: nothing says that it is gone."""
    monkeypatch.setattr(limits, "CLIENT_SILENT_S_MAX", 0.3)

    async def work() -> None:
        async with CutLink(server.port) as link, Client(link.url) as client:

            def on_lost(lost: Lost) -> None:
                assert "sent nothing" in lost.reason
                link.is_silent = False

            feed = client.feed(checkpoint_ms=SOON_MS, on_lost=on_lost)
            await through_checkpoint(feed)
            link.is_silent = True
            redis.set("a", 1)
            assert values(await until(feed, is_value_of(b"a"))) == [(b"a", b"1")]
            assert link.count == 2

    run(work())


def test_a_reader_that_takes_its_time_is_not_lost(
    server: ServerProcess, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_SILENT_S_MAX", 0.2)

    async def work() -> None:
        lost: list[Lost] = []
        async with Client(url_of(server)) as client:
            feed = client.feed(checkpoint_ms=SOON_MS, on_lost=lost.append)
            await through_checkpoint(feed)
            await asyncio.sleep(0.6)
            redis.set("a", 1)
            await until(feed, is_value_of(b"a"))
        assert lost == []

    run(work())


def test_it_gives_up_if_it_is_told_to(server: ServerProcess) -> None:
    async def work() -> None:
        async with CutLink(server.port) as link, Client(link.url) as client:
            lost: list[Lost] = []
            feed = client.feed(reconnect_s_max=0.5, on_lost=lost.append)
            await anext(feed)
            link.is_refusing = True
            link.cut()
            with pytest.raises(ServerUnreachable):
                async for _ in feed:
                    pass
            delays = [each.delay_s for each in lost]
            assert 3 <= len(delays) < 12
            assert max(delays) <= 1.0
            assert delays[-1] > delays[0]

    run(work())


# --- going away -------------------------------------------------------------------------------------------------


def feed_count(redis: Any) -> int:
    return len(redis.execute_command("FEED", "LIST"))


async def wait_for_no_feeds(redis: Any) -> None:
    while feed_count(redis):
        await asyncio.sleep(0.01)


def test_a_cancelled_reader_leaves_nothing(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        async with Client(url_of(server)) as client:
            feed = client.feed()
            reading = asyncio.create_task(until(feed, lambda event: False))
            while not feed_count(redis):
                await asyncio.sleep(0.01)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await wait_for_no_feeds(redis)

    run(work())


def test_a_dropped_feed_is_closed(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        async with Client(url_of(server)) as client:
            async for _ in client.feed():
                break
            await wait_for_no_feeds(redis)

    run(work())


def test_a_closed_client_closes_its_feeds(server: ServerProcess, redis: Any) -> None:
    async def work() -> None:
        async with Client(url_of(server)) as client:
            feed = client.feed()
            await anext(feed)
            assert feed_count(redis) == 1
        await wait_for_no_feeds(redis)
        with pytest.raises(StopAsyncIteration):
            await anext(feed)

    run(work())


def test_a_cancelled_wait_leaves_nothing(server: ServerProcess) -> None:
    """Cancelled while it waits to connect again."""

    async def work() -> None:
        async with CutLink(server.port) as link, Client(link.url) as client:
            feed = client.feed()
            await anext(feed)
            link.is_refusing = True
            link.cut()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await until(feed, lambda event: False)

    run(work())
