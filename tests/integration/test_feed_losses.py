"""History that is lost, and history that is gone: what readers of feeds are told, and how they go on."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.cli.command_line import COMMAND, ENVIRONMENT, run
from tests.integration import limited_server
from tests.integration.server_process import ServerProcess
from tidelog.client import Client, DeleteRange, Event, FeedDiverged, FeedTooOld, Value

SECONDS_MAX = 60
FORGETFUL = {
    "RETAIN_BYTES": 0,
    "SNAPSHOTS_KEPT": 1,
    "FRAME_BYTES_DEFAULT": 1024 * 1024,
    "FRAMES_PER_SEGMENT_MAX": 2,
    "HTTP_FEED_SILENT_S_MAX": 0.2,
}
"""Keeps nothing that a snapshot has, and says early that it is still there."""
VALUE = b"v" * 100_000


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def apply(state: dict[bytes, Any], event: Event) -> None:
    """What an event says about strings."""
    if isinstance(event, DeleteRange):
        state.clear()
    elif isinstance(event, Value):
        state[event.key] = event.value
        if event.value is None:
            del state[event.key]


async def state_at(feed: AsyncIterator[Event], marker: bytes, state: dict[bytes, Any]) -> dict[bytes, Any]:
    """What is known when a key has come."""
    async for event in feed:
        apply(state, event)
        if isinstance(event, Value) and event.key == marker:
            break
    return state


def state_of(server: ServerProcess) -> dict[bytes, Any]:
    store: Any = server.client()
    return {key: store.get(key) for key in store.scan_iter(count=1000)}


def get_feed(server: ServerProcess, query: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=SECONDS_MAX)
    connection.request("GET", f"/feed?{query}", headers=headers)
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


# --- lost -------------------------------------------------------------------------------------------------------


def journal_of(data: Path) -> Path:
    (found,) = data.glob("shard-*/journal-*")
    return found


def lose_tail(data: Path, size: int) -> None:
    """As a power cut would that takes the page cache with it."""
    with journal_of(data).open("r+b") as file:
        assert file.seek(0, 2) > size
        file.truncate(size)


def test_readers_of_lost_history_are_told_what_still_holds(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async def work() -> None:
        with ServerProcess(data, "--fsync", "never", has_http=True) as server:
            store: Any = server.client()
            store.mset({f"k{number}": number for number in range(20)})
            kept_ts = store.execute_command("FEED", "POSITION")[0][1]
            kept_bytes = journal_of(data).stat().st_size
            kept = state_of(server)
            printed = tmp_path / "printed"
            with printed.open("wb") as file:
                command = [*COMMAND, "feed", "--initial", "--url", f"redis://127.0.0.1:{server.port}"]
                reader = subprocess.Popen(command, stdout=file, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True)
            async with Client(f"redis://127.0.0.1:{server.port}") as client:
                feed = client.feed(since=0, checkpoint_ms=20)
                await state_at(feed, b"k19", {})
                wait_for(lambda: b"steady" in printed.read_bytes())
                store.set("lost", "for good")
                state = await state_at(feed, b"lost", {})
                assert state == {b"lost": b"for good"}
                wait_for(lambda: b'"checkpoint"' in printed.read_bytes().partition(b"for good")[2])
                lost_ts = store.execute_command("FEED", "POSITION")[0][1]
                while feed.checkpoint is None or feed.checkpoint.ts < lost_ts:
                    await anext(feed)
                place = feed.checkpoint
                server.kill()
                lose_tail(data, kept_bytes)
                with ServerProcess(data, has_http=True, instead_of=server) as again:
                    assert state_of(again) == kept
                    await look_at_divergence(again, client, feed, place, kept_ts)
                    _, complaint = reader.communicate(timeout=SECONDS_MAX)
            assert reader.returncode == 2
            assert f"--since {kept_ts}" in complaint, complaint

    async def look_at_divergence(server: ServerProcess, client: Client, feed: Any, place: Any, kept_ts: int) -> None:
        with pytest.raises(FeedDiverged) as diverged:
            await state_at(feed, b"never", {})
        assert diverged.value.since == kept_ts
        with pytest.raises(FeedDiverged):  # a place that was kept is no better
            await anext(client.feed(since=place))
        wanted = {"error": "FEEDDIVERGED", "since": kept_ts}
        event_id = f"{place.ts}-{place.epoch}-{place.seen}"
        assert get_feed(server, "", **{"Last-Event-ID": event_id}) == (410, wanted)
        store: Any = server.client()
        with pytest.raises(redis.ResponseError, match=f"FEEDDIVERGED since={kept_ts}"):
            store.execute_command("CHANGEFEED", "SINCE", place.ts, "EPOCH", place.epoch, "SEEN", place.seen, "KEY", "a")
        store.set("new", 1)
        store.set("marker", 1)
        state = await state_at(client.feed(since=0, until=kept_ts), b"never", {})
        state = await state_at(client.feed(since=diverged.value.since), b"marker", state)
        assert state == state_of(server)  # what holds, and what followed

    asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))


# --- gone -------------------------------------------------------------------------------------------------------


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[ServerProcess]:
    command = [*limited_server.COMMAND, json.dumps(FORGETFUL), "serve"]
    with ServerProcess(tmp_path / "data", has_http=True, command=command) as made:
        yield made


def write_much(store: Any, count: int) -> None:
    for number in range(count):
        store.set(f"k{number % 10}", b"%d:" % number + VALUE)


def forget(store: Any) -> None:
    """Everything that a snapshot has is erased, up to the last segment."""
    before = oldest_ts(store)
    store.save()
    wait_for(lambda: oldest_ts(store) > before)


def oldest_ts(client: Any) -> int:
    """What the server refuses a feed with that wants everything; 0: it has everything."""
    try:
        client.execute_command("CHANGEFEED", "SINCE", 0, "UNTIL", 0, "KEY", "none")
        client.connection_pool.disconnect()
    except redis.ConnectionError:
        return 0
    except redis.ResponseError as error:
        code, _, oldest = str(error).partition(" oldest=")
        assert code == "FEEDTOOOLD"
        return int(oldest)
    return 0


def test_a_beginning_that_is_gone(forgetful: ServerProcess) -> None:
    store: Any = forgetful.client()
    store.set("early", 1)
    early_ts = store.execute_command("FEED", "POSITION")[0][1]
    write_much(store, 60)
    forget(store)
    oldest = oldest_ts(store)
    assert get_feed(forgetful, f"since={early_ts}") == (410, {"error": "FEEDTOOOLD", "oldest": oldest})
    url = f"redis://127.0.0.1:{forgetful.port}"
    printed = run("feed", "--since", str(early_ts), "--url", url)
    assert printed.status == 2
    assert f"--since {oldest}" in printed.stderr
    assert "--initial" in printed.stderr
    assert run("feed", "--since", str(oldest), "--until-now", "--url", url).status == 0

    async def work() -> None:
        async with Client(url) as client:
            with pytest.raises(FeedTooOld) as refused:
                await anext(client.feed(since=early_ts))
            assert refused.value.oldest == oldest

    asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))


def test_a_slow_reader_that_the_journal_has_moved_past(forgetful: ServerProcess) -> None:
    store: Any = forgetful.client()

    async def work() -> None:
        async with Client(f"redis://127.0.0.1:{forgetful.port}") as client:
            feed = client.feed(since=0, checkpoint_ms=20)
            store.set("deleted", 1)
            state = await state_at(feed, b"deleted", {})
            with_http = http.client.HTTPConnection("127.0.0.1", forgetful.http_port, timeout=SECONDS_MAX)
            with_http.request("GET", "/feed?checkpoint=3600000")
            stream = with_http.getresponse()
            store.delete("deleted")
            write_much(store, 300)
            wait_for(lambda: states(store) == [b"slow", b"slow"])
            forget(store)
            with pytest.raises(FeedTooOld) as gone:
                await state_at(feed, b"never", state)
            assert gone.value.oldest == oldest_ts(store)
            assert state != state_of(forgetful)
            # What its error says to do: from the values of now.
            store.set("marker", 1)
            begun = client.feed(initial=True, checkpoint_ms=20)
            state = {}
            while begun.checkpoint is None:
                apply(state, await anext(begun))
            assert state == state_of(forgetful)
            event = stream.read().rpartition(b"event: ")[2]
            assert event == b'error\ndata: {"error":"FEEDTOOOLD","oldest":%d}\n\n' % gone.value.oldest
            with_http.close()

    asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))


def states(client: Any) -> list[bytes]:
    return [each[b"state"] for each in client.execute_command("FEED", "LIST")]


# --- nothing at all ---------------------------------------------------------------------------------------------


def test_a_feed_over_http_shows_that_it_is_alive(forgetful: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", forgetful.http_port, timeout=SECONDS_MAX)
    connection.request("GET", "/feed?checkpoint=3600000")
    response = connection.getresponse()
    lines = [response.readline() for _ in range(11)]
    assert lines[0] == b"retry: 2000\n"
    assert lines[3] == b"event: steady\n"
    assert lines[6:] == [b": still here\n", b"\n"] * 2 + [b": still here\n"]
    forgetful.client().set("a", 1)
    assert {response.readline() for _ in range(3)} >= {b"event: value\n"}
    connection.close()
