"""Day streams on several servers: writers, readers and leases go on where the leader is."""

from __future__ import annotations

import pytest
import redis

from tests.channels.replicas import with_replica
from tests.days.days_of_events import MAY_MS
from tidelog.days import EventId, JobSet, Lease, Message, Reader, Writer, Written, server_at

__all__ = ["with_replica"]

JOBSET = JobSet("q", "j")


def messages(first: int, last: int) -> list[Message]:
    return [Message(EventId(MAY_MS + number, 0), MAY_MS + number, b"{}") for number in range(first, last + 1)]


def test_days_go_on_after_a_failover(with_replica: tuple[int, int]) -> None:
    leader, follower = with_replica
    with server_at(f"redis://127.0.0.1:{leader},127.0.0.1:{follower}") as server:
        reader, writer = Reader(server, JOBSET), Writer(server, JOBSET)
        assert writer.write(messages(1, 5)) == Written(written=5)
        lease = Lease.take(server, "days")
        assert lease is not None
        assert reader.read() == messages(1, 5)
        assert server.wait(1, 10_000) == 1
        with redis.Redis(port=leader) as old, redis.Redis(port=follower) as new:
            new.replicaof("NO", "ONE")
            old.replicaof("127.0.0.1", follower)
            assert writer.write(messages(3, 8)) == Written(written=3, duplicate=3)
            assert reader.read(wait_s=10) == messages(6, 8)
            lease.renew()
            assert new.xlen(JOBSET.hot(messages(1, 1)[0].day).key) == 8
            old.replicaof("NO", "ONE")  # a Redis that stops waits for those that follow it


def test_a_password_that_is_given_counts(with_replica: tuple[int, int]) -> None:
    leader, _ = with_replica
    with redis.Redis(port=leader) as client:
        client.config_set("requirepass", "secret")
    with server_at(f"redis://:wrong@127.0.0.1:{leader},127.0.0.1:1/2", password="secret") as server:
        assert server.set("key", 1)
    with server_at(f"redis://:wrong@127.0.0.1:{leader},127.0.0.1:1/2") as server, pytest.raises(redis.ConnectionError):
        server.ping()
