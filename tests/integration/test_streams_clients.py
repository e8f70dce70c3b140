"""Streams through redis-py as people use it, on a real server: RESP2 and RESP3, threads and asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.integration.server_process import ServerProcess


def entries_of(reply: Any, key: str) -> list[Any]:
    """The entries of a key in what XREAD gave: a list of pairs in RESP2, a dict of lists in RESP3."""
    found = dict(reply)[key] if isinstance(reply, list) else reply[key]
    return list(found[0]) if found and isinstance(found[0], list) else list(found)


def test_adding_and_ranges(client: Any) -> None:
    ids = [client.xadd("s", {"n": number}) for number in range(10)]
    assert sorted(ids, key=lambda each: tuple(map(int, each.split("-")))) == ids
    assert client.xlen("s") == 10
    assert client.xrange("s", ids[2], ids[3]) == [(ids[2], {"n": "2"}), (ids[3], {"n": "3"})]
    assert client.xrevrange("s", count=1) == [(ids[9], {"n": "9"})]
    assert client.xdel("s", ids[0], ids[5]) == 2
    client.xadd("s", {"n": 10}, maxlen=5, approximate=False)
    assert [fields["n"] for _, fields in client.xrange("s")] == ["6", "7", "8", "9", "10"]
    assert client.xtrim("s", maxlen=0, approximate=False) == 5
    info = client.xinfo_stream("s")
    assert (info["length"], info["entries-added"], info["first-entry"]) == (0, 11, None)
    assert client.type("s") == "stream"


def test_a_thread_waits(client: Any, server: ServerProcess) -> None:
    found: list[Any] = []

    def wait() -> None:
        other = server.client(protocol=client.get_connection_kwargs()["protocol"], decode_responses=True)
        found.append(other.xread({"s": "$"}, block=10_000))
        other.close()

    thread = threading.Thread(target=wait)
    thread.start()
    while client.info("clients")["blocked_clients"] == 0:
        time.sleep(0.005)
    added = client.xadd("s", {"a": "b"})
    thread.join(10)
    assert entries_of(found[0], "s") == [(added, {"a": "b"})]
    assert client.xread({"s": "$"}, block=20) in ([], {})


def test_consumer_groups(client: Any) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    with pytest.raises(redis.ResponseError, match="BUSYGROUP"):
        client.xgroup_create("s", "g")
    ids = [client.xadd("s", {"n": number}) for number in range(6)]
    first = entries_of(client.xreadgroup("g", "alice", {"s": ">"}, count=4), "s")
    assert [each[0] for each in first] == ids[:4]
    assert client.xack("s", "g", ids[0], ids[1]) == 2
    pending = client.xpending("s", "g")
    assert (pending["pending"], pending["min"], pending["max"]) == (2, ids[2], ids[3])
    assert pending["consumers"] == [{"name": "alice", "pending": 2}]
    rows = client.xpending_range("s", "g", "-", "+", 10)
    assert [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows] == [
        (ids[2], "alice", 1),
        (ids[3], "alice", 1),
    ]
    assert [each[0] for each in client.xclaim("s", "g", "bob", 0, [ids[2]])] == [ids[2]]
    client.xdel("s", ids[3])
    cursor, claimed, deleted = client.xautoclaim("s", "g", "bob", 0)
    assert (cursor, [each[0] for each in claimed], deleted) == ("0-0", [ids[2]], [ids[3]])
    (group,) = client.xinfo_groups("s")
    assert (group["name"], group["consumers"], group["pending"], group["last-delivered-id"]) == ("g", 2, 1, ids[3])
    names = {row["name"]: row for row in client.xinfo_consumers("s", "g")}
    assert names["bob"]["pending"] == 1
    assert names["bob"]["inactive"] >= 0
    assert client.xgroup_delconsumer("s", "g", "bob") == 1
    assert client.xgroup_setid("s", "g", "0")
    assert len(entries_of(client.xreadgroup("g", "carol", {"s": ">"}, noack=True), "s")) == 5
    assert client.xinfo_stream("s", full=True)["groups"][0]["name"] == "g"
    assert client.xgroup_destroy("s", "g")


def test_pipelines(client: Any) -> None:
    pipeline = client.pipeline(transaction=True)
    for number in range(500):
        pipeline.xadd("s", {"n": number}, id=f"{number + 1}-1")
    pipeline.xlen("s")
    assert pipeline.execute()[-1] == 500
    assert client.xrange("s", count=2) == [("1-1", {"n": "0"}), ("2-1", {"n": "1"})]


def test_what_one_family_writes_the_other_reads(client: Any) -> None:
    client.xadd("s", {"tag": "colour", "entry": "red"})
    client.execute_command("TWRITE", "s", "colour", "blue")
    client.xadd("s", {"tag": "size", "n": "1"})
    assert client.execute_command("TREAD", "s", 1, 10) == [
        [1, "colour", "red"],
        [2, "colour", "blue"],
        [3, "size", ["tag", "size", "n", "1"]],
    ]
    assert [fields for _, fields in client.xrange("s")] == [
        {"tag": "colour", "entry": "red"},
        {"tag": "colour", "entry": "blue"},
        {"tag": "size", "n": "1"},
    ]


@pytest.mark.parametrize("protocol", [2, 3])
def test_asyncio(server: ServerProcess, protocol: int) -> None:
    async def consume(name: str, seen: list[str], count: int) -> None:
        reader = redis.asyncio.Redis(port=server.port, protocol=protocol, decode_responses=True)
        while len(seen) < count:
            reply = await reader.xreadgroup("g", name, {"work": ">"}, count=3, block=200)
            for number, _ in entries_of(reply, "work") if reply else []:
                seen.append(number)
                await reader.xack("work", "g", number)
        await reader.aclose()

    async def run() -> None:
        writer = redis.asyncio.Redis(port=server.port, protocol=protocol, decode_responses=True)
        await writer.flushall()
        await writer.xgroup_create("work", "g", id="$", mkstream=True)
        seen: list[str] = []
        readers = [asyncio.create_task(consume(f"c{at}", seen, 100)) for at in range(4)]
        ids = [await writer.xadd("work", {"n": number}) for number in range(100)]
        await asyncio.wait_for(asyncio.gather(*readers), 20)
        assert sorted(seen) == sorted(ids)
        assert (await writer.xpending("work", "g"))["pending"] == 0
        await writer.aclose()

    asyncio.run(run())


def test_a_group_outlives_the_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("again") / "data"
    with ServerProcess(data) as first:
        client: Any = first.client(decode_responses=True)
        client.xgroup_create("s", "g", id="0", mkstream=True)
        ids = [client.xadd("s", {"n": number}) for number in range(2500)]
        client.xreadgroup("g", "alice", {"s": ">"}, count=1500)
        client.xack("s", "g", *ids[:1000])
        first.process.kill()
        first.process.wait()
    with ServerProcess(data) as second:
        client = second.client(decode_responses=True)
        assert client.xpending("s", "g")["pending"] == 500
        assert [each[0] for each in client.xrange("s")] == ids
        assert entries_of(client.xreadgroup("g", "alice", {"s": ">"}, count=1), "s")[0][0] == ids[1500]
        assert client.xinfo_groups("s")[0]["lag"] == 999
