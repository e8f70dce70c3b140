"""A real server and the clients that people use, unmodified: redis-py, redis-cli, redis-benchmark."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import redis
import redis.asyncio

from tests.integration.server_process import ServerProcess

CLI: Final = shutil.which("redis-cli") or "redis-cli"
BENCHMARK: Final = shutil.which("redis-benchmark") or "redis-benchmark"


# --- redis-py -----------------------------------------------------------------------------------------------------


def test_values(client: Any) -> None:
    assert client.ping()
    assert client.set("text", "hello", ex=100)
    assert client.get("text") == "hello"
    assert 0 < client.ttl("text") <= 100
    assert client.incrby("count", 5) == 5
    client.hset("hash", mapping={"a": "1", "b": "2"})
    assert client.hgetall("hash") == {"a": "1", "b": "2"}
    client.sadd("set", "x", "y")
    assert client.smembers("set") == {"x", "y"}
    client.zadd("zset", {"one": 1, "two": 2})
    assert [(member, float(score)) for member, score in client.zrange("zset", 0, -1, withscores=True)] == [
        ("one", 1.0),
        ("two", 2.0),
    ]
    assert sorted(client.scan_iter()) == ["count", "hash", "set", "text", "zset"]
    assert client.dbsize() == 5


def test_pipelines_and_transactions(client: Any) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(2000):
        pipeline.set(f"k{number}", number)
    assert all(pipeline.execute())
    with client.pipeline() as transaction:
        transaction.watch("k1")
        before = int(transaction.get("k1"))
        transaction.multi()
        transaction.set("k1", before + 1)
        assert transaction.execute() == [True]
    with client.pipeline() as transaction:
        transaction.watch("k1")
        client.set("k1", "changed")
        transaction.multi()
        transaction.get("k1")
        with pytest.raises(redis.WatchError):
            transaction.execute()

    def add_one(pipeline: Any) -> None:
        count = int(pipeline.get("n") or 0)
        pipeline.multi()
        pipeline.set("n", count + 1)

    assert client.transaction(add_one, "n") == [True]


def test_listening(client: Any) -> None:
    listener = client.pubsub()
    listener.subscribe("news")
    listener.psubscribe("n*")
    kinds = [listener.get_message(timeout=10)["type"] for _ in range(2)]
    assert kinds == ["subscribe", "psubscribe"]
    assert client.publish("news", "hi") == 2
    messages = [listener.get_message(timeout=10) for _ in range(2)]
    assert [(message["type"], message["data"]) for message in messages] == [("message", "hi"), ("pmessage", "hi")]
    listener.unsubscribe()
    listener.punsubscribe()
    assert [listener.get_message(timeout=10)["type"] for _ in range(2)] == ["unsubscribe", "punsubscribe"]
    listener.close()


def test_the_server_describes_itself(client: Any) -> None:
    info = client.info()
    assert info["redis_version"].startswith("7.2")
    assert info["role"] == "master"
    assert client.info("tidelog")["shards"] == 1
    assert client.config_get("maxmemory*")["maxmemory"] == "0"
    assert client.config_get("*")["requirepass"] == ""
    assert client.client_id() > 0
    client.client_setname("test")
    assert client.client_getname() == "test"
    assert any(each["name"] == "test" for each in client.client_list())
    assert client.command_count() > 100
    assert client.command_getkeys("MSET", "a", 1, "b", 2) == ["a", "b"]
    assert client.memory_usage("nothing") is None
    assert isinstance(client.time()[0], int)
    assert client.slowlog_get() is not None
    assert client.lastsave()


def test_errors_are_errors(client: Any) -> None:
    client.set("text", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.sadd("text", "x")
    with pytest.raises(redis.ResponseError, match="unknown command 'NOSUCH'"):
        client.execute_command("NOSUCH")
    assert client.get("text") == "x"


@pytest.mark.parametrize("protocol", [2, 3])
def test_asyncio(server: ServerProcess, protocol: int) -> None:
    async def run() -> None:
        client = redis.asyncio.Redis(port=server.port, protocol=protocol, socket_timeout=30)
        await client.flushall()
        await asyncio.gather(*(client.incr("n") for _ in range(50)))
        assert await client.get("n") == b"50"
        async with client.pipeline(transaction=True) as pipeline:
            pipeline.set("a", 1)
            pipeline.incr("a")
            assert await pipeline.execute() == [True, 2]
        async with client.pubsub() as listener:
            await listener.subscribe("news")
            assert (await listener.get_message(timeout=10))["type"] == "subscribe"
            await client.publish("news", "hi")
            assert (await listener.get_message(timeout=10))["data"] == b"hi"
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), 60))


# --- redis-cli and redis-benchmark ----------------------------------------------------------------------------------


def cli(server: ServerProcess, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [CLI, "-p", str(server.port), *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_redis_cli(server: ServerProcess) -> None:
    assert cli(server, "flushall") == "OK\n"
    assert cli(server, "set", "greeting", "hello") == "OK\n"
    assert cli(server, "get", "greeting") == "hello\n"
    assert cli(server, "-3", "hello").startswith("server redis\n")
    assert cli(server, stdin="multi\nincr n\nincr n\nexec\nselect 3\ndbsize\n").split() == [
        *("OK", "QUEUED", "QUEUED", "1", "2", "OK", "0"),
    ]
    assert "# Keyspace\ndb0:keys=2" in cli(server, "info", "keyspace").replace("\r", "")


def test_redis_cli_tools(server: ServerProcess) -> None:
    cli(server, "flushall")
    cli(server, stdin="".join(f"set key:{number} {number}\n" for number in range(500)))
    assert sorted(cli(server, "--scan").split())[:2] == ["key:0", "key:1"]
    assert len(cli(server, "--scan").split()) == 500
    assert "Sampled 500 keys" in cli(server, "--bigkeys")
    assert "Sampled 500 keys" in cli(server, "--memkeys")


def test_redis_cli_pipe(server: ServerProcess) -> None:
    cli(server, "flushall")
    commands = "".join(f"SET piped:{number} {number}\r\n" for number in range(5000))
    assert "errors: 0, replies: 5000" in cli(server, "--pipe", stdin=commands)
    assert cli(server, "dbsize") == "5000\n"


@pytest.mark.parametrize("options", [["-P", "1"], ["-P", "16"], ["-P", "16", "-3"]], ids=" ".join)
def test_redis_benchmark(server: ServerProcess, options: list[str]) -> None:
    tests = "ping_inline,ping_mbulk,set,get,incr,sadd,hset,spop,zadd,zpopmin,mset"
    done = subprocess.run(
        [BENCHMARK, "-p", str(server.port), "-n", "2000", "-c", "20", "-r", "100", "-q", "-t", tests, *options],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    lines = [line for line in done.stdout.replace("\r", "\n").splitlines() if "requests per second" in line]
    assert len(lines) == len(tests.split(","))
    assert "rror" not in done.stdout + done.stderr


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--shards", "3") as server:
        client = server.client()
        for number in range(300):
            client.set(f"k{number}", number)
        client.hset("h", mapping={"a": "1"})
        client.expire("h", 1000)
        assert server.terminate() == 0
        assert server.stderr == ""
    with ServerProcess(data) as server:
        client = server.client()
        assert client.dbsize() == 301
        assert client.get("k299") == b"299"
        assert 0 < client.ttl("h") <= 1000
        assert client.info("tidelog")["shards"] == 3
        server.kill()
    with ServerProcess(data) as server:
        assert server.client().dbsize() == 301
