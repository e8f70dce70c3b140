"""Servers that follow a copy in an object store, with no leader to connect to: real processes, on a folder and on S3.

Servers die in the middle of it and another one takes over the shipping. A follower has what the one that ships has, a
feed that is read from it is told everything once and in order, and one that is promoted goes its own way.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis

from tests.cli.running_command import RunningCommand
from tests.integration.s3_server import S3Bucket
from tests.integration.server_process import ServerProcess
from tests.integration.test_lost_machines import Writer, wait_until_shipped
from tests.integration.waiting import wait_until
from tidelog.journal.layout import META

WAIT_S_MAX: Final = 30.0
SMALL_SNAPSHOTS: Final = ("--snapshot-after", "200kb")


class CopyPlace(NamedTuple):
    """Where a copy is kept."""

    url: str
    env: Mapping[str, Any]

    def leader(self, data: Path, *arguments: str) -> ServerProcess:
        return ServerProcess(data, "--ship-to", self.url, *SMALL_SNAPSHOTS, *arguments, **self.env)

    def follower(self, data: Path, *arguments: str, **options: Any) -> ServerProcess:
        return ServerProcess(data, "--follow-from", self.url, *arguments, **options, **self.env)


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> CopyPlace:
    if request.param == "folder":
        return CopyPlace(str(tmp_path / "copy"), {})
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return CopyPlace(bucket.folder(), bucket.env)


def replication(server: ServerProcess) -> dict[str, Any]:
    with server.client(decode_responses=True) as client:
        found: dict[str, Any] = client.info("replication")
        return found


def numbers(server: ServerProcess) -> list[int]:
    with server.client() as client:
        entries = client.execute_command("TREAD", "numbers", 1, 10_000_000)
        return [int(entry) for _, _, entry in entries]


def wait_until_level(follower: ServerProcess, leader: ServerProcess) -> None:
    """Until it has all that the other has, at a moment when nobody writes."""
    with leader.client() as client:
        wanted = int(client.info("tidelog")["last_ts"])
    wait_until(lambda: int(replication(follower)["slave_repl_offset"]) >= wanted, WAIT_S_MAX)


def database_id(server: ServerProcess) -> str:
    return str(json.loads((server.data / META).read_text())["database_id"])


def read_until(feed: RunningCommand, last: int) -> None:
    """Take what a feed says up to a number: all of them once, in order, and nothing that was closed before."""
    closed_ts, seen = 0, 0
    while seen < last:
        line = feed.line()
        if line["kind"] == "checkpoint":
            closed_ts = line["ts"]
        elif line["kind"] == "value":
            assert line["ts"] > closed_ts, line
            for *_, text in line["value"]:
                assert int(text) == seen + 1, line
                seen += 1


def reading(follower: ServerProcess) -> RunningCommand:
    """A feed of the numbers, before there are any."""
    wait_until(lambda: replication(follower)["master_link_status"] == "up", WAIT_S_MAX)
    url = f"redis://127.0.0.1:{follower.port}"
    feed = RunningCommand("feed", "--url", url, "--key", "numbers", "--initial", "--json")
    while feed.line()["kind"] != "steady":
        pass
    return feed


def test_a_follower_goes_on_whoever_dies(place: CopyPlace, tmp_path: Path) -> None:
    with place.leader(tmp_path / "one", "--fsync", "always") as one:
        one.client().set("before", "anything")
        replica = ("--replicaof", f"127.0.0.1:{one.port}", "--ship-to", place.url)
        with (
            ServerProcess(tmp_path / "two", *replica, **place.env) as two,
            place.follower(tmp_path / "follower") as first,
            reading(first) as feed,
        ):
            writer = Writer(one, 1)
            time.sleep(3)
            first.kill()
            time.sleep(1)
            with place.follower(tmp_path / "follower", instead_of=first) as follower:
                wait_until(lambda: len(numbers(follower)) > 0, WAIT_S_MAX)
                assert replication(follower)["own_full_syncs"] == 0
                time.sleep(2)
                writer.stop()
                wait_until(lambda: len(numbers(two)) == len(numbers(one)), WAIT_S_MAX)
                written = len(numbers(one))
                one.kill()
                two.client().execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
                writer = Writer(two, written + 1)
                time.sleep(4)
                writer.stop()
                wait_until_shipped(two)
                wait_until_level(follower, two)
                found = numbers(follower)
                assert found == numbers(two) == list(range(1, len(found) + 1))
                assert len(found) > written
                assert replication(follower)["own_full_syncs"] == 0
                read_until(feed, len(found))
                assert feed.end(signal.SIGINT)[0] in (0, 130)


def test_what_it_says_about_itself(place: CopyPlace, tmp_path: Path) -> None:
    with place.leader(tmp_path / "leader") as leader, place.follower(tmp_path / "follower") as follower:
        client = follower.client(decode_responses=True)
        wait_until(lambda: replication(follower)["master_link_status"] == "up", WAIT_S_MAX)
        leader.client().set("key", "value")
        wait_until(lambda: client.get("key") == "value", WAIT_S_MAX)
        with pytest.raises(redis.ReadOnlyError):
            client.set("key", "other")
        told = replication(follower)
        assert (told["role"], told["master_host"], told["master_port"]) == ("slave", place.url, 0)
        assert 0 <= told["lag_ms"] < 30_000
        assert client.execute_command("ROLE")[:4] == ["slave", place.url, 0, "connected"]  # type: ignore[no-untyped-call]
        assert client.config_get("replicaof") == {"replicaof": ""}


def test_a_follower_that_is_promoted_is_another_database(place: CopyPlace, tmp_path: Path) -> None:
    with place.leader(tmp_path / "leader") as leader:
        leader.client().set("key", "original")
        wait_until_shipped(leader)
        own = f"{place.url}-of-follower"
        with place.follower(tmp_path / "follower", "--ship-to", own) as follower:
            wait_until(lambda: follower.client().get("key") == b"original", WAIT_S_MAX)
            assert database_id(follower) == database_id(leader)
            follower.client().execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
            follower.client().set("key", "promoted")
            follower.kill()
        with place.follower(tmp_path / "follower", "--ship-to", own) as follower:
            assert follower.client().get("key") == b"promoted"
            assert database_id(follower) != database_id(leader)
            assert replication(follower)["role"] == "master"
            wait_until_shipped(follower)
            assert "does not count: the role was changed since" in follower.stderr
            # Somebody else can follow it: its snapshots may be of the time when it was another database.
            to = f"127.0.0.1:{follower.port}"
            with ServerProcess(tmp_path / "chain", "--replicaof", to) as chain:
                wait_until(lambda: chain.client().get("key") == b"promoted", WAIT_S_MAX)
                assert database_id(chain) == database_id(follower)
                assert replication(chain)["own_full_syncs"] == 1
        leader.client().set("key", "goes on")
        wait_until_shipped(leader)
        with place.follower(tmp_path / "another") as another:
            wait_until(lambda: another.client().get("key") == b"goes on", WAIT_S_MAX)


def test_a_follower_of_a_follower_that_is_promoted_is_another_database_too(place: CopyPlace, tmp_path: Path) -> None:
    """It could ship over the original otherwise, which goes on."""
    no_one = "REPLICAOF", "NO", "ONE"
    with place.leader(tmp_path / "leader") as leader:
        leader.client().set("key", "original")
        wait_until_shipped(leader)
        with place.follower(tmp_path / "follower") as follower:
            to = f"127.0.0.1:{follower.port}"
            with ServerProcess(tmp_path / "chain", "--replicaof", to) as chain:
                wait_until(lambda: chain.client().get("key") == b"original", WAIT_S_MAX)
                chain.kill()
            with ServerProcess(tmp_path / "chain", "--replicaof", to) as chain:
                chain.client().execute_command(*no_one)  # type: ignore[no-untyped-call]
                chain.client().set("key", "promoted")
                assert database_id(chain) != database_id(leader)
            with ServerProcess(tmp_path / "last", "--replicaof", to) as last:
                wait_until(lambda: last.client().get("key") == b"original", WAIT_S_MAX)
                last.client().execute_command("REPLICAOF", "127.0.0.1", leader.port)  # type: ignore[no-untyped-call]
                leader.client().set("key", "goes on")
                wait_until(lambda: last.client().get("key") == b"goes on", WAIT_S_MAX)
                last.client().execute_command(*no_one)  # type: ignore[no-untyped-call]
                assert database_id(last) == database_id(leader), "it followed the leader itself"


def test_followers_of_followers_and_an_encrypted_copy(place: CopyPlace, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("17" * 32)
    key.chmod(0o600)
    secret = ("--ship-key-file", str(key))
    with place.leader(tmp_path / "other", *secret) as other:
        other.client().set("key", "of another database")
        wait_until_shipped(other)
    with place.leader(tmp_path / "leader", *secret) as leader:
        leader.client().set("key", "value")
        wait_until_shipped(leader)
        with place.follower(tmp_path / "follower", *secret) as follower:
            wait_until(lambda: "several databases" in str(replication(follower)["link_error"]), WAIT_S_MAX)
            follower.kill()
        which = ("--database", database_id(leader))
        with (
            place.follower(tmp_path / "follower", *secret, *which) as follower,
            ServerProcess(tmp_path / "chain", "--replicaof", f"127.0.0.1:{follower.port}") as chain,
        ):
            wait_until(lambda: chain.client().get("key") == b"value", WAIT_S_MAX)
            leader.client().set("key", "more")
            wait_until(lambda: chain.client().get("key") == b"more", WAIT_S_MAX)
            assert replication(chain)["master_link_status"] == "up"
