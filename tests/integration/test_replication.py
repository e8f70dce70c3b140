"""Servers that follow each other: real processes, real sockets."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import redis

from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until


def follower_of(leader: ServerProcess, data: Path, *options: str) -> ServerProcess:
    return ServerProcess(data, "--replicaof", f"127.0.0.1:{leader.port}", *options)


def is_connected(server: ServerProcess) -> bool:
    with server.client() as client:
        role, *rest = client.role()
        return role == b"slave" and bool(rest[2] == b"connected")


def test_a_follower_serves_what_its_leader_has(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, leader.client() as writing:
        for number in range(1000):
            writing.set(f"key{number}", "x" * 100)
        with follower_of(leader, tmp_path / "b") as follower, follower.client() as reading:
            wait_until(lambda: is_connected(follower))
            writing.set("key7", "changed")
            assert writing.wait(1, 10_000) == 1
            assert reading.get("key7") == b"changed"
            assert reading.dbsize() == 1000
            with pytest.raises(redis.ReadOnlyError):
                reading.set("key7", "otherwise")


def test_sentinels_transaction_changes_the_role(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, follower_of(leader, tmp_path / "b") as follower:
        wait_until(lambda: is_connected(follower))
        with leader.client() as writing:
            writing.set("x", "1")
            assert writing.wait(1, 10_000) == 1
        with follower.client() as client:
            with client.pipeline() as sentinel:
                sentinel.execute_command("SLAVEOF", "NO", "ONE")
                sentinel.execute_command("CONFIG", "REWRITE")
                sentinel.execute_command("CLIENT", "KILL", "TYPE", "normal")
                sentinel.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                sentinel.execute(raise_on_error=False)
            assert client.set("x", "2")
        with leader.client() as former:
            former.slaveof("127.0.0.1", follower.port)
        wait_until(lambda: is_connected(leader))
        with leader.client() as former:
            assert former.get("x") == b"2"


def test_a_follower_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, leader.client() as writing:
        with follower_of(leader, tmp_path / "b") as follower:
            wait_until(lambda: is_connected(follower))
            writing.set("x", "1")
            assert writing.wait(1, 10_000) == 1
            follower.kill()
        writing.set("x", "2")
        with follower_of(leader, tmp_path / "b") as follower, follower.client() as reading:
            wait_until(lambda: is_connected(follower))
            assert reading.get("x") == b"2"


def test_published_messages_reach_listeners_of_a_follower(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, follower_of(leader, tmp_path / "b") as follower:
        wait_until(lambda: is_connected(follower))
        with leader.client() as writing, follower.client() as reading, reading.pubsub() as listening:
            listening.subscribe("news")
            assert listening.get_message(timeout=10)
            writing.publish("news", "hello")
            message = listening.get_message(timeout=10)
            assert message is not None
            assert message["data"] == b"hello"


def test_a_password_is_needed_to_follow(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse")
    secret.chmod(0o600)
    with ServerProcess(tmp_path / "a", "--requirepass-file", str(secret)) as leader:
        with follower_of(leader, tmp_path / "b") as follower:
            wait_until(lambda: "NOAUTH" in follower.stderr)
        with follower_of(leader, tmp_path / "b", "--masterauth-file", str(secret)) as follower:
            wait_until(lambda: is_connected(follower))


def test_a_leader_that_stops_in_order_gives_its_follower_everything_first(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, follower_of(leader, tmp_path / "b") as follower:
        wait_until(lambda: is_connected(follower))
        os.kill(follower.pid, signal.SIGSTOP)
        try:
            with leader.client() as writing:
                for number in range(32):  # more than sockets hold
                    writing.set(f"key{number}", b"x" * 1_000_000)
            os.kill(leader.pid, signal.SIGTERM)
            time.sleep(0.5)
        finally:
            os.kill(follower.pid, signal.SIGCONT)
        assert leader.process.wait(30) == 0
        with follower.client() as reading:
            assert reading.exists(*(f"key{number}" for number in range(32))) == 32


def test_a_client_waits_for_what_it_has_written_and_not_for_others(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, follower_of(leader, tmp_path / "b") as follower:
        wait_until(lambda: is_connected(follower))
        with leader.client() as one, leader.client() as other:
            one.set("x", "1")
            assert one.wait(1, 10_000) == 1
            os.kill(follower.pid, signal.SIGSTOP)
            try:
                other.set("y", "2")
                assert one.wait(1, 200) == 1
                assert other.wait(1, 200) == 0
                with one.pipeline(transaction=False) as pipeline:
                    pipeline.set("x", "3")
                    pipeline.execute_command("WAIT", 1, 200)
                    assert pipeline.execute() == [True, 0]
            finally:
                os.kill(follower.pid, signal.SIGCONT)
            assert one.wait(1, 10_000) == other.wait(1, 10_000) == 1


def test_a_client_waits_for_what_it_popped_while_it_was_blocked(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, follower_of(leader, tmp_path / "b") as follower:
        wait_until(lambda: is_connected(follower))
        with leader.connect() as popping, leader.client() as pushing:
            popping.sendall(b"BLPOP q 0\r\n")
            wait_until(lambda: pushing.info("clients")["blocked_clients"] == 1)
            os.kill(follower.pid, signal.SIGSTOP)
            try:
                pushing.rpush("q", "a")
                assert popping.recv(1000) == b"*2\r\n$1\r\nq\r\n$1\r\na\r\n"
                popping.sendall(b"WAIT 1 200\r\n")
                assert popping.recv(1000) == b":0\r\n"
            finally:
                os.kill(follower.pid, signal.SIGCONT)
