"""Commands about replication, on servers that follow each other: real processes, real sockets."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until


class LeaderAndFollower:
    """Two servers, of which the second follows the first when a test begins."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.file = folder / "some.toml"
        self.file.write_text("# ours\nreplica-priority = 7\n")
        self.leader = stack.enter_context(ServerProcess(folder / "a", has_http=True))
        self.follower = stack.enter_context(
            ServerProcess(
                folder / "b",
                *("--config", str(self.file), "--replicaof", f"127.0.0.1:{self.leader.port}"),
                has_http=True,
            )
        )
        self.to_leader, self.to_follower = self.client(self.leader), self.client(self.follower)

    def begin(self) -> None:
        """Whatever a test before this one has done."""
        self.to_leader.slaveof()
        self.to_follower.slaveof("127.0.0.1", self.leader.port)
        wait_until(lambda: self.state(self.to_follower) == "connected")

    def client(self, server: ServerProcess) -> Any:
        return self._stack.enter_context(server.client())

    def state(self, client: Any) -> str:
        role, *rest = client.role()
        return str(rest[2].decode()) if role == b"slave" else "master"

    def info(self, client: Any) -> dict[str, Any]:
        found: dict[str, Any] = client.info("replication")
        return found


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeaderAndFollower]:
    with ExitStack() as stack:
        yield LeaderAndFollower(tmp_path_factory.mktemp("roles"), stack)


@pytest.fixture
def two(servers: LeaderAndFollower) -> LeaderAndFollower:
    servers.begin()
    return servers


def get(server: ServerProcess, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """GET, or PUT with a body."""
    url = f"http://127.0.0.1:{server.http_port}{path}"
    try:
        request = urllib.request.Request(url, body, method="GET" if body is None else "PUT")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_what_both_say_of_each_other(two: LeaderAndFollower) -> None:
    two.to_leader.set("k", "v")
    assert two.to_leader.wait(1, 20_000) == 1
    assert two.to_leader.execute_command("WAITAOF", 1, 1, 20_000) == [1, 1]
    leading, following = two.info(two.to_leader), two.info(two.to_follower)
    assert (leading["role"], leading["connected_slaves"]) == ("master", 1)
    assert leading["slave0"]["port"] == two.follower.port
    assert leading["slave0"]["state"] == "online"
    assert leading["slave0"]["offset"] == leading["master_repl_offset"] == following["slave_repl_offset"]
    assert leading["master_replid"] == following["master_replid"]
    assert (following["role"], following["master_port"]) == ("slave", two.leader.port)
    assert (following["master_link_status"], following["slave_priority"]) == ("up", 7)
    assert two.to_leader.role()[2] == [[b"127.0.0.1", b"%d" % two.follower.port, b"%d" % leading["master_repl_offset"]]]
    assert b"\ntidelog_followers 1\n" in get(two.leader, "/metrics")[1]
    assert b"\ntidelog_link_up 1\n" in get(two.follower, "/metrics")[1]
    assert json.loads(get(two.follower, "/health")[1]) == {"status": "ok", "role": "follower"}
    assert get(two.follower, "/feed?name=mine&since=0")[0] == 503
    assert get(two.follower, "/channel/news/message/a1", b"{}")[0] == 503
    assert two.to_follower.config_get("replicaof")["replicaof"] == f"127.0.0.1 {two.leader.port}"


def test_clients_that_wait_while_the_roles_change(two: LeaderAndFollower) -> None:
    popping, reading = two.client(two.leader).connection_pool, two.client(two.follower).connection_pool
    pop, read = popping.get_connection(), reading.get_connection()
    pop.send_command("BLPOP", "list", 0)
    read.send_command("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    wait_until(lambda: two.to_leader.info("clients")["blocked_clients"] == 1)
    wait_until(lambda: two.to_follower.info("clients")["blocked_clients"] == 1)
    two.to_leader.xadd("s", {"a": "1"})
    assert b"a" in str(read.read_response()).encode()
    read.send_command("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    # As Sentinel does it, at both.
    for client, address in ((two.to_follower, ("NO", "ONE")), (two.to_leader, ("127.0.0.1", two.follower.port))):
        with client.pipeline() as sentinel:
            sentinel.execute_command("SLAVEOF", *address)
            sentinel.execute_command("CONFIG", "REWRITE")
            sentinel.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            assert sentinel.execute(raise_on_error=False)[0] in (b"OK", True)
    with pytest.raises(redis.ResponseError, match="UNBLOCKED force unblock from blocking operation"):
        pop.read_response()
    with pytest.raises(redis.ConnectionError):
        pop.read_response()
    two.to_follower.xadd("s", {"b": "2"})  # it leads now
    assert b"b" in str(read.read_response()).encode()
    with pytest.raises(redis.ReadOnlyError):
        two.to_leader.set("k", "v")
    assert two.file.read_text() == "# ours\nreplica-priority = 7\n"
    wait_until(lambda: two.state(two.to_leader) == "connected")
    wait_until(lambda: two.to_leader.xlen("s") == 2)


def test_a_leader_that_needs_followers_and_a_follower_that_needs_its_leader(two: LeaderAndFollower) -> None:
    two.to_leader.config_set("min-replicas-to-write", 1)
    assert two.to_leader.set("k", "v")
    two.to_leader.config_set("min-slaves-to-write", 2)
    with pytest.raises(redis.ResponseError, match="NOREPLICAS Not enough good replicas to write"):
        two.to_leader.set("k", "w")
    assert two.to_leader.get("k") == b"v"
    two.to_leader.config_set("min-replicas-to-write", 0)
    assert two.to_leader.set("k", "w")
    assert two.to_leader.wait(1, 20_000) == 1
    two.to_follower.config_set("replica-serve-stale-data", "no")
    assert two.to_follower.get("k") == b"w"
    two.to_follower.slaveof("127.0.0.1", 1)  # where nobody is
    assert two.info(two.to_follower)["master_link_status"] == "down"
    with pytest.raises(redis.exceptions.MasterDownError):
        two.to_follower.get("k")
    assert get(two.follower, "/health")[0] == 503
    two.to_follower.config_set("replica-serve-stale-data", "yes")
    assert two.to_follower.get("k") == b"w"


def test_a_failover_by_command_loses_nothing(two: LeaderAndFollower) -> None:
    with pytest.raises(redis.ResponseError, match="FAILOVER target HOST and PORT is not a replica"):
        two.to_leader.execute_command("FAILOVER", "TO", "127.0.0.1", 1)
    for number in range(100):
        two.to_leader.incr("n", number)
    assert two.to_leader.execute_command("FAILOVER", "TO", "127.0.0.1", two.follower.port, "TIMEOUT", 20_000)
    wait_until(lambda: two.state(two.to_follower) == "master")
    assert two.to_follower.get("n") == b"4950"
    assert two.to_follower.set("k", "after")
    wait_until(lambda: two.state(two.to_leader) == "connected")
    wait_until(lambda: two.to_leader.get("k") == b"after")
    assert two.to_follower.info("replication")["connected_slaves"] == 1
