"""Entries that a repair gave up, as clients meet them: an error that says where to go on, and nothing else is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.cli.command_line import run
from tests.integration import limited_server
from tests.integration.server_process import ServerProcess
from tidelog.journal.node_format import examine_nodes
from tidelog.system.disk import SystemDisk

COMMAND: Final = [
    *limited_server.COMMAND,
    json.dumps({"NODE_ENTRIES_MAX": 100, "HOT_NODES_KEPT": 1, "COLD_AFTER_S": 1}),
    "serve",
]
WAIT_S_MAX: Final = 30.0
LOST: Final = r"a part of the stream cannot be read: .*nodes-.*is lost \(offsets 201 to 300, ids up to 300-0\)"
"""The third of ten nodes."""


def write(server: ServerProcess) -> None:
    """Entries on disk, some of which are pending."""
    with server.client() as client:
        pipeline = client.pipeline()
        for number in range(1, 1001):
            pipeline.xadd("s", {"n": number}, id=f"{number}-0")
        pipeline.xgroup_create("s", "fresh", "0")
        pipeline.xgroup_create("s", "half-way", "0")
        pipeline.xreadgroup("half-way", "me", {"s": ">"}, count=500)
        pipeline.execute()
        deadline = time.monotonic() + WAIT_S_MAX
        while client.execute_command("TINFO", "s")[b"cold-nodes"] < 10:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def damage(data: Path) -> None:
    (path,) = (data / "shard-0").glob("nodes-*.bin")
    file = SystemDisk().open(str(path), "read")
    try:
        position = [node.position for node in examine_nodes(file, file.size())][2]
    finally:
        file.close()
    content = bytearray(path.read_bytes())
    content[position + 40] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that nobody has opened since."""
    folder = tmp_path_factory.mktemp("repaired")
    with ServerProcess(folder / "data", command=COMMAND) as server:
        write(server)
        url = f"redis://127.0.0.1:{server.port}"
        assert run("snapshot", "--data", folder / "data", "--to", folder / "backup", "--url", url).status == 0
    # Its journal begins with the snapshot: there is no older history that a repair could go back to.
    assert run("restore", folder / "backup", "--data", folder / "restored").status == 0
    damage(folder / "restored")
    assert run("journal", "verify", folder / "restored").status == 1
    done = run("journal", "repair", folder / "restored")
    assert "give up entries 201 to 300 of stream s (database 0)" in done.stdout
    verified = run("journal", "verify", folder / "restored")
    assert verified.status == 0
    assert "1 nodes of streams are lost since a repair" in verified.stdout
    return folder / "restored"


@pytest.fixture
def client(repaired: Path, tmp_path: Path) -> Iterator[Any]:
    """Of a server that has such a directory for itself."""
    assert run("snapshot", "--data", repaired, "--to", tmp_path / "backup").status == 0
    assert run("restore", tmp_path / "backup", "--data", tmp_path / "data").status == 0
    with ServerProcess(tmp_path / "data", command=COMMAND) as server, server.client() as made:
        yield made


def test_reads_of_them_fail_and_say_where_to_go_on(client: Any) -> None:
    for words in (
        ["XRANGE", "s", "-", "+"],
        ["XRANGE", "s", "250", "250"],
        ["XREVRANGE", "s", "+", "-", "COUNT", 701],
        ["XREAD", "COUNT", 10, "STREAMS", "s", "195-0"],
        ["TREAD", "s", 1, 201],
        ["TREAD", "s", 300, 1],
        ["XREADGROUP", "GROUP", "half-way", "me", "STREAMS", "s", "0"],
        ["XDEL", "s", "250-0"],
        ["TCOMPACT", "s"],
    ):
        with pytest.raises(redis.ResponseError, match=LOST):
            client.execute_command(*words)
    assert len(client.xrange("s", count=200)) == 200
    assert [number for number, _ in client.xrange("s", "(300-0")] == [b"%d-0" % number for number in range(301, 1001)]
    assert len(client.xrevrange("s", count=700)) == 700
    assert [entry[0] for entry in client.execute_command("TREAD", "s", 301, 3)] == [301, 302, 303]
    assert client.xread({"s": "300-0"}, count=1)[0][1][0][0] == b"301-0"


def test_they_count_until_they_are_trimmed(client: Any) -> None:
    assert client.xlen("s") == client.execute_command("TINFO", "s")[b"length"] == 1000
    assert client.xinfo_stream("s")["length"] == 1000
    assert client.copy("s", "t")
    with pytest.raises(redis.ResponseError, match=LOST):
        client.execute_command("TREAD", "t", 201, 1)
    client.xadd("s", {"n": 1001}, id="1001-0")
    assert client.save()
    assert client.xtrim("s", minid="301") == 300
    assert (client.xlen("s"), len(client.xrange("s"))) == (701, 701)
    assert client.execute_command("TEVICT", "t", 300) == 300
    assert (client.xlen("t"), len(client.xrange("t"))) == (700, 700)


def test_a_group_is_moved_past_them(client: Any) -> None:
    read = {"s": ">"}
    assert len(client.xreadgroup("fresh", "me", read, count=200)[0][1]) == 200
    for _ in range(2):
        with pytest.raises(redis.ResponseError, match=LOST):
            client.xreadgroup("fresh", "me", read, count=10)
    assert client.xpending("s", "fresh")["pending"] == 200, "nothing was delivered that could not be read"
    client.xgroup_setid("s", "fresh", "300-0")
    assert client.xreadgroup("fresh", "me", read, count=1)[0][1][0][0] == b"301-0"


def test_those_that_are_pending_can_be_acknowledged(client: Any) -> None:
    assert client.xack("s", "half-way", *[f"{number}-0" for number in range(201, 301)]) == 100
    assert client.xpending("s", "half-way")["pending"] == 400
    history = client.xreadgroup("half-way", "me", {"s": "0"}, count=1000)[0][1]
    assert len(history) == 400
    assert client.xreadgroup("half-way", "me", {"s": ">"}, count=1)[0][1][0][0] == b"501-0"


def test_readers_of_the_t_commands_go_on_too(client: Any) -> None:
    read = ["TREAD", "s", 0, 10, "GROUP", "g", "RETRY", 60_000, 0]
    client.execute_command("TGROUP", "s", "g", "START", 195)
    with pytest.raises(redis.ResponseError, match=LOST):
        client.execute_command(*read)
    client.execute_command("TGROUP", "s", "g", "START", 301)
    assert client.execute_command(*read)[0][0] == 301
    assert client.execute_command("TACK", "s", "half-way", "201-300") == 100
