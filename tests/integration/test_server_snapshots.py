"""Snapshots and backups of a real server, with clients that do not stop for them."""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.cli.command_line import run
from tests.integration import limited_server
from tests.integration.server_process import ServerProcess
from tests.store.changes import state
from tidelog.ids import Ts
from tidelog.journal.snapshot import list_snapshot_paths, open_snapshot
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

SECONDS_MAX = 60
DISK = SystemDisk()


class Writers:
    """Clients that change everything all the time."""

    def __init__(self, server: ServerProcess, count: int = 2) -> None:
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._pour, args=(number,)) for number in range(count)]
        self.rounds = 0

    def _pour(self, number: int) -> None:
        rng = random.Random(number)
        client = self._server.client(db=number)
        try:
            while not self._stop.is_set():
                pipe = client.pipeline(transaction=rng.random() < 0.3)
                for _ in range(30):
                    key = f"k{rng.randrange(3000)}"
                    pipe.set(key, rng.randbytes(20), px=rng.choice([None, 10**7]))
                    pipe.hset(f"h{rng.randrange(50)}", f"f{rng.randrange(100)}", key)
                    pipe.sadd(f"s{rng.randrange(50)}", key)
                    pipe.zadd(f"z{rng.randrange(50)}", {key: rng.random()})
                    pipe.delete(f"k{rng.randrange(3000)}", f"z{rng.randrange(50)}")
                pipe.execute()
                self.rounds += 1
        except redis.ConnectionError:
            pass  # the server was stopped

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS_MAX)


def wait_for(what: Any) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_idle(client: redis.Redis) -> bool:
    return bool(client.info("persistence")["rdb_bgsave_in_progress"] == 0)


def empty_store() -> Store:
    return Store(SystemClock(), random.Random(1))


@pytest.mark.parametrize("shards", ["1", "3"])
def test_a_snapshot_equals_a_replay_of_the_journal_up_to_its_ts(tmp_path: Path, shards: str) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--shards", shards, "--snapshot-after", "0") as server:
        client = server.client()
        with Writers(server) as writers:
            wait_for(lambda: writers.rounds > 20)
            assert client.bgsave()
            before = writers.rounds
            wait_for(lambda: is_idle(client))
            wait_for(lambda: writers.rounds > before + 5)
        facts, persistence = client.info("tidelog"), client.info("persistence")
        assert persistence["rdb_last_bgsave_status"] == "ok"
        assert persistence["rdb_changes_since_last_save"] > 0
        assert server.terminate() == 0
        assert server.stderr == ""
    [path] = list_snapshot_paths(DISK, str(data))
    snapshot = open_snapshot(DISK, path)
    assert facts["snapshot_ts"] == snapshot.point.ts
    shown = empty_store()
    shown.slots = snapshot.meta.slots
    snapshot.read(DISK, shown.replay, lambda _epoch: None)
    assert facts["snapshot_keys"] == len(state(shown)) > 100

    # The same moment from the journal alone: it was never erased.
    (data / "snapshots").rename(tmp_path / "elsewhere")
    (data / "snapshots").mkdir()
    replayed = empty_store()
    made = restore(DISK, replayed, str(data), str(tmp_path / "again"), until=Ts(snapshot.point.ts))
    assert made.ts == snapshot.point.ts
    assert state(replayed) == state(shown)


def test_it_is_made_by_itself_again_and_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--snapshot-after", "200kb", has_http=True) as server:
        client = server.client()
        with Writers(server):
            wait_for(lambda: client.info("persistence")["rdb_saves"] >= 3)
        wait_for(lambda: is_idle(client))
        assert len(list_snapshot_paths(DISK, str(data))) == 2
        keys = client.dbsize()
        assert server.terminate() == 0
    with ServerProcess(data, "--snapshot-after", "0") as server:
        client = server.client()
        assert client.dbsize() == keys
        newest = open_snapshot(DISK, list_snapshot_paths(DISK, str(data))[-1])
        assert int(client.lastsave().timestamp()) == newest.point.ts // 1_000_000


def test_a_server_that_is_killed_during_a_snapshot_has_everything(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    data = tmp_path / "data"
    for kill in range(4 if pytestconfig.getoption("--long") else 2):
        with ServerProcess(data, "--snapshot-after", "0") as server:
            client = server.client()
            if kill == 0:
                pipe = client.pipeline(transaction=False)
                for number in range(100_000):
                    pipe.set(f"many:{number}", number)
                pipe.execute()
            client.incr("kills")
            client.bgsave()
            for number in range(10 * kill):
                client.set(f"after:{kill}:{number}", "x")
            server.kill()
        with ServerProcess(data, "--snapshot-after", "0") as server:
            client = server.client()
            assert client.get("kills") == b"%d" % (kill + 1)
            assert client.dbsize() == 100_001 + sum(10 * number for number in range(kill + 1))
            assert not list((data / "snapshots").glob("*.partial"))


def test_commands(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--snapshot-after", "0") as server:
        client: Any = server.client()
        client.set("a", 1)
        assert client.save()
        assert client.save(), "again, although nothing is new"
        client.set("b", 1)
        assert client.bgsave(schedule=True)
        wait_for(lambda: is_idle(client))
        pipe = client.pipeline(transaction=True)
        pipe.set("c", 1)
        pipe.bgsave()
        pipe.set("d", 1)
        pipe.execute()
        wait_for(lambda: is_idle(client))
        shown = empty_store()
        newest = open_snapshot(DISK, list_snapshot_paths(DISK, str(data))[-1])
        shown.slots = newest.meta.slots
        newest.read(DISK, shown.replay, lambda _epoch: None)
        assert set(state(shown)) == {(0, name) for name in (b"a", b"b", b"c", b"d")}, "all of a MULTI or nothing"
        client.set("e", 1)
        with pytest.raises(redis.ConnectionError):
            client.execute_command("SHUTDOWN", "SAVE")
        server.process.wait(SECONDS_MAX)
    newest = open_snapshot(DISK, list_snapshot_paths(DISK, str(data))[-1])
    assert newest.point.keys == 5


def test_a_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    data, backup, new = tmp_path / "data", tmp_path / "backup", tmp_path / "new"
    (tmp_path / "secret").write_text("swordfish\n")
    (tmp_path / "secret").chmod(0o600)
    secret = ("--requirepass-file", str(tmp_path / "secret"))
    with ServerProcess(data, "--shards", "3", *secret) as server:
        client = server.client(password="swordfish")
        client.zadd("z", {"a": 1.5, "b": -2})
        client.hset("h", mapping={str(number): number for number in range(2000)})
        client.sadd("s", *range(700))
        client.set("e", "soon", ex=1000)
        server.client(password="swordfish", db=7).set("far", "away")
        url = f"redis://127.0.0.1:{server.port}"
        refused = run("snapshot", "--data", data, "--to", backup, "--url", url)
        assert refused.status == 2
        assert "NOAUTH" in refused.stderr
        outcome = run(
            *("snapshot", "--data", data, "--to", backup, "--url", url, "--json"),
            *("--password-file", tmp_path / "secret"),
        )
        assert outcome.status == 0, outcome.stderr
        assert outcome.of_kind("backup")[0]["keys"] == 5
        client.set("later", 1)
        in_use = run("restore", data, "--data", new)
        assert in_use.status == 2
        assert "tidelog snapshot" in in_use.stderr
    assert run("restore", backup, "--data", new, "--shards", "2").status == 0
    with ServerProcess(new) as server:
        client = server.client()
        assert client.info("tidelog")["shards"] == 2
        assert client.zrange("z", 0, -1, withscores=True) == [(b"b", -2.0), (b"a", 1.5)]
        assert client.hlen("h") == 2000
        assert client.scard("s") == 700
        assert 900 < client.ttl("e") <= 1000
        assert server.client(db=7).get("far") == b"away"
        assert client.get("later") is None
        client.set("new", 1)
        assert client.info("tidelog")["last_ts"] > outcome.of_kind("backup")[0]["ts"]


def test_another_server_is_not_taken_for_the_right_one(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data"), ServerProcess(tmp_path / "other") as other:
        url = f"redis://127.0.0.1:{other.port}"
        outcome = run("snapshot", "--data", tmp_path / "data", "--to", tmp_path / "backup", "--url", url)
        assert outcome.status == 2
        assert "--url must name the server of this directory" in outcome.stderr
        gone = run("snapshot", "--data", tmp_path / "data", "--to", tmp_path / "backup", "--url", "redis://127.0.0.1:1")
        assert gone.status == 2
        assert "no server answers" in gone.stderr
        assert not (tmp_path / "backup").exists()
        assert list_snapshot_paths(DISK, str(tmp_path / "other")) == []


SMALL_SEGMENTS = {"SNAPSHOTS_KEPT": 1, "FRAMES_PER_SEGMENT_MAX": 1}


def write_some_segments(client: Any) -> None:
    """Of one frame each, all but the last of them under a snapshot."""
    for number in range(48):
        client.set(f"k{number % 4}", bytes(128 * 1024))
    client.save()


def count_segments(server: ServerProcess) -> int:
    return len(list(server.data.glob("shard-0/journal-*")))


def test_on_a_nearly_full_disk_old_segments_go_first(tmp_path: Path) -> None:
    command = [*limited_server.COMMAND, json.dumps({**SMALL_SEGMENTS, "DISK_LOW_SEGMENTS": 10**12}), "serve"]
    with ServerProcess(tmp_path / "data", "--frame-size", "1mb", command=command, has_http=True) as server:
        client: Any = server.client(decode_responses=True)
        write_some_segments(client)
        wait_for(lambda: client.info("tidelog")["segments_erased_for_space"] >= 3)
        facts = client.info("tidelog")
        assert (facts["disk_nearly_full"], facts["writable"]) == (1, 1)
        assert facts["disk_free_bytes"] > 0
        assert facts["bytes_erased_for_space"] >= 3 << 20
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        assert f"tidelog_erased_for_space_segments_total {facts['segments_erased_for_space']}" in lines
        assert "tidelog_disk_nearly_full 1" in lines
        assert "erased" in server.stderr
        assert "that only retain-bytes and retain-age kept" in server.stderr


def test_what_is_retained_can_be_changed(tmp_path: Path) -> None:
    command = [*limited_server.COMMAND, json.dumps(SMALL_SEGMENTS), "serve"]
    arguments = ["--frame-size", "1mb", "--retain-bytes", "0", "--retain-age", "0"]
    with ServerProcess(tmp_path / "data", *arguments, command=command) as server:
        client: Any = server.client(decode_responses=True)
        assert client.config_get("retain-*") == {"retain-bytes": "0", "retain-age": "0"}
        write_some_segments(client)
        before = count_segments(server)
        assert before >= 5
        with pytest.raises(redis.ResponseError, match="fixed when a data directory is made"):
            client.config_set("frame-size", 2 << 20)
        with pytest.raises(redis.ResponseError, match="must be a number of seconds"):
            client.config_set("retain-age", "soon")
        client.config_set("retain-age", "2d")
        client.config_set("retain-bytes", "3mb")
        wait_for(lambda: count_segments(server) < before)
        assert client.config_get("retain-*") == {"retain-bytes": str(3 << 20), "retain-age": "172800"}
        assert count_segments(server) >= 3
        assert client.info("tidelog")["segments_erased_for_space"] == 0
