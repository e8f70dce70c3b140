"""Streams that keep what TCONFIG said, and stream-bytes-max, on real servers: a leader and its follower, restarts."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.server_process import ServerProcess
from tests.integration.waiting import wait_until


def write(client: Any, key: str, count: int) -> None:
    client.execute_command("TWRITE", key, "ENTRIES", *["tag", "x" * 73] * count)  # 100 bytes each


def first(client: Any, key: str) -> int:
    return int(client.execute_command("TREAD", key, 1, 1, "WITHINFO")[0][0])


def test_the_leader_lets_entries_go_and_its_follower_follows(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "a", "--stream-bytes-max", "1mb", has_http=True) as leader,
        ServerProcess(tmp_path / "b", "--replicaof", f"127.0.0.1:{leader.port}") as follower,
        leader.client() as client,
        follower.client() as reading,
    ):
        client.execute_command("TCONFIG", "sized", "MAXBYTES", 250_000)
        with client.pipeline() as transaction:
            transaction.execute_command("TCONFIG", "aged", "MAXAGE", 300)
            transaction.execute_command("TCONFIG", "aged")
            assert transaction.execute()[1] == {b"max-bytes": 0, b"max-age": 300, b"backlog": 0}
        client.eval("return redis.call('TCONFIG', KEYS[1], 'BACKLOG', 1500)", 1, "kept")
        for key, count in (("sized", 5500), ("aged", 1500), ("kept", 3500)):
            write(client, key, count)
        firsts = {"sized": 3001, "aged": 1501, "kept": 2001}
        wait_until(lambda: all(first(client, key) == offset for key, offset in firsts.items()))
        wait_until(lambda: all(first(reading, key) == offset for key, offset in firsts.items()))
        assert reading.execute_command("TCONFIG", "kept")[b"backlog"] == 1500
        with pytest.raises(redis.ReadOnlyError):
            reading.execute_command("TCONFIG", "kept", "BACKLOG", 0)

        write(client, "old", 7000)
        write(client, "young", 5000)
        # 250 kB, 150 kB and 500 kB stay as they are: of 1.6 MB the oldest 600 kB go.
        wait_until(lambda: first(client, "old") > 1)
        facts = client.info("streams")
        assert facts["configured_streams"] == 3
        assert facts["stream_bytes"] <= facts["stream_bytes_max"] == 1024**2
        assert facts["evicted_entries_by_age"] == 1500
        assert facts["evicted_bytes_by_backlog"] == 200_000
        assert first(client, "young") == 1
        wait_until(lambda: first(reading, "old") == first(client, "old"))
        own = reading.info("streams")
        assert (own["configured_streams"], own["evicted_entries_by_age"], own["evicted_entries_by_total"]) == (3, 0, 0)
        with urllib.request.urlopen(f"http://127.0.0.1:{leader.http_port}/metrics") as page:
            text = page.read().decode()
        assert 'tidelog_stream_evicted_entries_total{reason="age"} 1500\n' in text
        assert "tidelog_streams_configured 3\n" in text


def test_settings_and_parameter_survive(tmp_path: Path) -> None:
    path = tmp_path / "tidelog.toml"
    path.write_text("stream-bytes-max = '5mb'\n")
    options = "--config", str(path)
    with ServerProcess(tmp_path / "data", *options) as server, server.client(decode_responses=True) as client:
        assert client.config_get("stream-bytes-max") == {"stream-bytes-max": str(5 * 1024**2)}
        client.config_set("stream-bytes-max", "7mb")
        client.config_rewrite()
        client.execute_command("TCONFIG", "k", "MAXAGE", 10**9, "BACKLOG", 7)
        client.bgsave()
    with ServerProcess(tmp_path / "data", *options) as server, server.client(decode_responses=True) as client:
        assert client.config_get("stream-bytes-max") == {"stream-bytes-max": str(7 * 1024**2)}
        assert client.execute_command("TCONFIG", "k") == {"max-bytes": 0, "max-age": 10**9, "backlog": 7}
        assert client.info("streams")["configured_streams"] == 1


def test_nothing_goes_by_itself_while_writes_are_held(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        client.execute_command("TCONFIG", "held", "MAXAGE", 1000)
        client.set("key", "value", px=1000)
        write(client, "held", 1500)
        client.client_pause(60_000, all=False)
        before = client.info("tidelog")["last_ts"], first(client, "held"), client.dbsize()
        assert before[1:] == (1, 2)
        time.sleep(1.5)  # some looks after both were due
        assert (client.info("tidelog")["last_ts"], first(client, "held"), client.dbsize()) == before
        client.client_unpause()
        wait_until(lambda: (first(client, "held"), client.dbsize()) == (1501, 1))
