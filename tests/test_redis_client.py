"""Clients from addresses: one that was sent elsewhere connects, and errors of redis-py become ours."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import redis
from redis.exceptions import AskError, MovedError

from tests.days.servers import Servers, servers
from tidelog.address import ServerAddress
from tidelog.errors import CommandError, ServerRefused, ServerUnreachable
from tidelog.redis_client import connect, connect_async, connect_calls, connect_raw, connected, explained

__all__ = ["servers"]


@pytest.mark.parametrize("kind", ["tidelog", "redis", "cluster"])
def test_an_address_that_was_sent_elsewhere_connects(servers: Servers, kind: str) -> None:
    made = ServerAddress(port=servers.port(kind), is_cluster=kind == "cluster")
    sent: ServerAddress = pickle.loads(pickle.dumps(made))
    assert sent == made
    with connect(sent) as client:
        link: Any = client
        assert link.set("key", b"\xff")
        assert link.get("key") == b"\xff"


def test_a_node_that_sends_us_elsewhere_is_one_of_a_cluster() -> None:
    for error in (MovedError("1234 127.0.0.1:7001"), AskError("1234 127.0.0.1:7001")):
        told = explained(error, "redis://h:1")
        assert isinstance(told, ServerRefused)
        assert str(told) == "the server at redis://h:1 has not all keys: this is a cluster: use --cluster"


def test_a_database_is_kept(servers: Servers) -> None:
    port = servers.port("redis")
    with connect(ServerAddress(port=port, database=3)) as client:
        client.set("only in 3", 1)
    for database, count in ((3, 1), (0, 0)):
        raw = connect_raw(ServerAddress(port=port, database=database), retries=False)
        assert raw.execute_command("EXISTS", "only in 3") == count
        raw.close()


@pytest.mark.parametrize("make", [connect, connect_async, connect_calls])
def test_every_client_is_told_how_to_log_in(make: Any) -> None:
    address = ServerAddress.parse("rediss://me:%C3%A4%FF@h:7/2?ssl_ca_certs=ca.pem", takes_settings=True)
    made = make(address).connection_pool
    wanted = {"host": "h", "port": 7, "db": 2, "username": "me", "password": "ä\udcff", "ssl_ca_certs": "ca.pem"}
    assert wanted.items() <= made.connection_kwargs.items()
    assert "SSL" in made.connection_class.__name__
    assert make(ServerAddress(path="/run/a b")).connection_pool.connection_kwargs["path"] == "/run/a b"


def test_errors_of_a_block_become_ours(servers: Servers) -> None:
    address = ServerAddress(port=servers.port("redis"))
    with (
        pytest.raises(ServerRefused, match=f"the server at {address.url} refused: .*unknown command"),
        connected(address) as client,
    ):
        client.execute_command("NONSENSE")
    with (
        pytest.raises(ServerUnreachable, match=r"no server answers at redis://127\.0\.0\.1:1: "),
        connected(ServerAddress(port=1)) as client,
    ):
        client.ping()


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (redis.AuthenticationError("no"), ServerRefused, "the server at redis://h:1 does not let us in: no"),
        (redis.ResponseError("no such thing"), CommandError, "ERR no such thing"),
        (redis.ConnectionError("refused"), ServerUnreachable, "no server answers at redis://h:1: refused"),
        (TimeoutError(), ServerUnreachable, "no server answers at redis://h:1: TimeoutError"),
    ],
)
def test_errors_of_redis_become_ours(error: Exception, kind: type[Exception], says: str) -> None:
    found = explained(error, "redis://h:1")
    assert type(found) is kind
    assert str(found) == says
    assert "redis://" not in str(explained(error))
