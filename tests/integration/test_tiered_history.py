"""History that lies only in the object store: dropped from disk, read from there, restored without it. With real
processes, on a folder and on S3."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from tests.cli.command_line import run
from tests.integration import far_store_server
from tests.integration.s3_server import S3Bucket
from tests.integration.server_process import ServerProcess

WAIT_S_MAX = 60.0
PING_S_MAX = 0.8 * far_store_server.READ_S
ENTRIES = 600
VALUE = "x" * 40


class Place(NamedTuple):
    """Where a copy is kept, and how its store is made slow."""

    url: str
    env: Mapping[str, Any]
    control: Path

    def server(self, data: Path, *arguments: str, **env: Any) -> ServerProcess:
        command = [sys.executable, "-P", far_store_server.__file__, "serve"]
        return ServerProcess(data, *arguments, command=command, **{**self.env, "FAR_STORE": str(self.control), **env})

    def leader(self, data: Path, *arguments: str, **env: Any) -> ServerProcess:
        return self.server(data, "--ship-to", self.url, "--local-history", "1s", *arguments, **env)

    def set(self, name: str, *, to: bool) -> None:
        path = self.control / name
        path.touch() if to else path.unlink(missing_ok=True)


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    control = tmp_path / "control"
    control.mkdir()
    if request.param == "folder":
        return Place(str(tmp_path / "copy"), {}, control)
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return Place(bucket.folder(), bucket.env, control)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    """For what does not depend on the kind of store."""
    control = tmp_path / "control"
    control.mkdir()
    return Place(str(tmp_path / "copy"), {}, control)


def wait_for(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def info(client: redis.Redis, section: str = "history") -> dict[str, Any]:
    found: dict[str, Any] = client.info(section)
    return found


def write(client: redis.Redis, first: int = 1, count: int = ENTRIES, key: str = "s") -> None:
    pipe = client.pipeline(transaction=False)
    for number in range(first, first + count):
        pipe.xadd(key, {"n": f"{number}-{VALUE}"}, id=f"{number}-0")
    pipe.execute()


def require_all(client: redis.Redis, count: int = ENTRIES, key: str = "s") -> None:
    found: Any = client.xrange(key)
    assert [int(fields[b"n"].partition(b"-")[0]) for _, fields in found] == list(range(1, count + 1))


def wait_until_cold(client: redis.Redis, count: int = ENTRIES) -> None:
    wait_for(lambda: int(info(client, "streams")["stream_cold_nodes"]) >= count // 10 - 3)


def let_drop(client: redis.Redis, files: int = 1) -> None:
    """Make a snapshot, and wait until it is old enough, and what it lists is dropped."""
    wait_until_cold(client)
    client.save()
    wait_for(lambda: info(client)["history_remote_files"] >= files, lambda: (info(client), info(client, "shipping")))


def wait_for_drops(client: redis.Redis, was: int) -> None:
    wait_for(lambda: bool(info(client)["history_dropped_files"] > was))


def node_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("shard-*/nodes-*.bin"))


def test_old_entries_go_from_disk_and_are_read_all_the_same(place: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with place.leader(data) as server, server.client() as client:
        write(client)
        let_drop(client)
        before = info(client)
        facts = client.execute_command("TINFO", "s")
        facts = dict(zip(facts[::2], facts[1::2], strict=True)) if isinstance(facts, list) else facts
        assert facts[b"remote-bytes"] > 0
        assert node_bytes(data) == before["history_local_bytes"]
        require_all(client)
        after = info(client)
        assert after["history_fetches"] > before["history_fetches"]
        assert after["history_read_failures"] == 0
        require_all(client)
        assert info(client)["history_fetches"] == after["history_fetches"], "the cache has it"
        assert info(client)["history_cache_bytes"] > 0
        assert server.terminate() == 0
    with place.leader(data) as server, server.client() as client:
        assert info(client)["history_remote_files"] > 0
        require_all(client)
        assert info(client)["history_fetches"] == 0, "the cache outlives a restart"
        write(client, ENTRIES + 1, 50)
        require_all(client, ENTRIES + 50)


def test_a_server_that_is_killed_while_it_drops_loses_nothing(place: Place, tmp_path: Path) -> None:
    data, count = tmp_path / "data", 0
    for turn in range(4):
        with place.leader(data) as server, server.client() as client:
            require_all(client, count)
            write(client, count + 1, 300)
            count += 300
            wait_until_cold(client, count)
            client.save()
            wait_for_drops(client, info(client)["history_dropped_files"])
            time.sleep(0.02 * turn)
            server.kill()
    with place.leader(data) as server, server.client() as client:
        require_all(client, count)


def test_a_store_that_is_down_concerns_only_those_who_need_it(folder: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with folder.leader(data) as server, server.client() as client, server.client() as other:
        write(client)
        let_drop(client)
        write(client, 1, 100, "local")
        shutil.rmtree(data / "history-cache", ignore_errors=True)
        folder.set("down", to=True)
        errors: list[str] = []

        def read() -> None:
            with server.client() as reader:
                for _ in range(3):
                    try:
                        reader.xrange("s", count=5)
                    except redis.ResponseError as error:
                        errors.append(str(error) or type(error).__name__)

        readers = [threading.Thread(target=read) for _ in range(6)]
        for reader in readers:
            reader.start()
        longest = 0.0
        number = 101
        while any(reader.is_alive() for reader in readers):
            began = time.monotonic()
            other.ping()
            other.xadd("local", {"n": f"{number}-"}, id=f"{number}-0")
            other.xrange("local", count=15)
            longest = max(longest, time.monotonic() - began)
            number += 1
            time.sleep(0.005)
        assert longest < PING_S_MAX
        assert len(errors) == 18
        assert all("object store" in error and "no answer" in error for error in errors), errors
        assert info(client)["history_read_failures"] > 0
        with pytest.raises(redis.ResponseError, match="cannot be read"):  # in a script nobody can wait
            client.eval("return redis.call('XRANGE', 's', '-', '+', 'COUNT', 5)", 1, "s")
        folder.set("down", to=False)
        time.sleep(0.5)
        require_all(client)


def test_a_script_gets_what_is_away_at_the_second_attempt(folder: Place, tmp_path: Path) -> None:
    with folder.leader(tmp_path / "data") as server, server.client() as client:
        write(client)
        let_drop(client)
        shutil.rmtree(tmp_path / "data" / "history-cache", ignore_errors=True)
        found: list[Any] = []
        errors: list[str] = []

        def try_it() -> bool:
            try:
                found.extend(client.eval("return redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 5)", 1, "s"))
            except redis.ResponseError as error:
                errors.append(str(error))
            return bool(found)

        wait_for(try_it)
        assert len(found) == 5
        assert all("try again" in error for error in errors)


def has_synced(follower: redis.Redis) -> bool:
    """Its clients are cut when it has got other data."""
    try:
        return bool(info(follower, "replication")["master_link_status"] == "up" and follower.exists("s"))
    except (redis.ConnectionError, redis.ResponseError):
        return False


def test_a_follower_gets_all_of_it_by_a_full_sync(place: Place, tmp_path: Path) -> None:
    with place.leader(tmp_path / "data") as server, server.client() as client:
        write(client)
        let_drop(client)
        place.set("slow", to=True)
        leader = f"127.0.0.1:{server.port}"
        with place.server(tmp_path / "follower", "--replicaof", leader) as follower, follower.client() as reader:
            wait_for(lambda: has_synced(reader))
            place.set("slow", to=False)
            assert info(reader)["history_remote_files"] == 0
            require_all(reader)


def test_a_backup_has_all_of_it(folder: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with folder.leader(data) as server, server.client() as client:
        write(client)
        let_drop(client)
        url = f"redis://127.0.0.1:{server.port}"
        outcome = run("snapshot", "--data", data, "--to", tmp_path / "backup", "--url", url, "--json")
        assert outcome.status == 0, outcome
    outcome = run("restore", tmp_path / "backup", "--data", tmp_path / "restored")
    assert outcome.status == 0, outcome
    shutil.rmtree(folder.url)
    with folder.server(tmp_path / "restored") as server, server.client() as client:
        require_all(client)


def test_what_is_away_is_neither_damaged_nor_erased(folder: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with folder.leader(data) as server, server.client() as client:
        write(client)
        let_drop(client)
        assert server.terminate() == 0
    away = len(list(data.glob("shard-0/*.remote")))
    files = sorted(path.name for path in data.glob("shard-0/*"))
    shutil.move(folder.url, f"{folder.url}-not-here")

    outcome = run("journal", "verify", data, "--json")
    assert outcome.status == 0, outcome
    assert outcome.of_kind("summary")[0]["remote_node_files"] == away
    notes = [each["text"] for each in outcome.of_kind("note")]
    assert sum("lies only in the object store" in note for note in notes) == away
    outcome = run("journal", "ls", data, "--json")
    states = [each["state"] for each in outcome.of_kind("node_file")]
    assert sum(state.endswith("in the object store") for state in states) == away
    outcome = run("journal", "repair", data, "--json")
    assert outcome.status == 0, outcome
    assert not outcome.of_kind("action")
    assert sorted(path.name for path in data.glob("shard-0/*")) == files


def test_a_lost_machine_serves_before_its_history_is_there(place: Place, tmp_path: Path) -> None:
    with place.leader(tmp_path / "lost") as server, server.client() as client:
        write(client)
        let_drop(client)
        wait_for(lambda: info(client, "shipping")["shipping_shipped_ts"] >= info(client, "tidelog")["last_ts"])
        server.kill()
    shutil.rmtree(tmp_path / "lost")
    place.set("slow", to=True)
    arguments = "--ship-to", place.url, "--restore-from", place.url, "--restore-wait", "1s", "--restore-lazy"
    with place.server(tmp_path / "new", *arguments) as server, server.client() as client:
        assert info(client)["history_remote_files"] > 0, "it serves before"
        assert len(client.xrange("s", count=20)) == 20, "from the store"
        write(client, ENTRIES + 1, 20)
        place.set("slow", to=False)
        wait_for(lambda: info(client)["history_remote_files"] == 0, lambda: info(client))
        assert info(client)["history_returned_files"] > 0
        require_all(client, ENTRIES + 20)
        wait_for(lambda: info(client, "shipping")["shipping_shipped_ts"] >= info(client, "tidelog")["last_ts"])
        assert server.terminate() == 0
    assert not list((tmp_path / "new").glob("shard-*/*.remote"))
    assert not list((tmp_path / "new").glob("shard-*/*.fetching"))


def test_without_a_copy_to_ship_to_history_is_read_and_comes_back(place: Place, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with place.leader(data) as server, server.client() as client:
        write(client)
        let_drop(client)
        assert server.terminate() == 0
    shutil.rmtree(data / "history-cache", ignore_errors=True)
    with place.server(data, HISTORY_STAYS_AWAY="yes") as server, server.client() as client:
        assert info(client)["history_remote_files"] > 0
        require_all(client)
        wait_for(lambda: "no space" in str(info(client)["history_error"]))
    with place.server(data) as server, server.client() as client:
        wait_for(lambda: info(client)["history_remote_files"] == 0)
        require_all(client)


def test_an_encrypted_copy_needs_its_key(place: Place, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("7a" * 32)
    key.chmod(0o600)
    data = tmp_path / "data"
    with place.leader(data, "--ship-key-file", str(key)) as server, server.client() as client:
        write(client)
        let_drop(client)
        require_all(client)
        assert server.terminate() == 0
    shutil.rmtree(data / "history-cache")
    with place.server(data) as server, server.client() as client:
        with pytest.raises(redis.ResponseError, match="--ship-key-file"):
            client.xrange("s", count=5)
        wait_for(lambda: "--ship-key-file" in str(info(client)["history_error"]))


def test_local_history_needs_a_copy(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="--local-history needs ship-to beside it"):
        ServerProcess(tmp_path / "data", "--local-history", "1s")
    arguments = "--ship-to", str(tmp_path / "copy"), "--local-history", "2h", "--ship-keep", "1h"
    with pytest.raises(RuntimeError, match="more than ship-keep"):
        ServerProcess(tmp_path / "data", *arguments)
