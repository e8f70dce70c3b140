"""What a server says of its streams: memory and disk apart, what became of nodes, and what the scrub finds."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.cli.command_line import run
from tests.integration import limited_server
from tests.integration.server_process import ServerProcess

LIMITS: Final = {
    "NODE_ENTRIES_MAX": 100,
    "HOT_NODES_KEPT": 1,
    "SCRUB_REST_S": 1,
    "COLD_AFTER_S": 1,
    "OPENED_NODES_BYTES_MAX": 20_000,
}
WAIT_S_MAX: Final = 30.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    command = [*limited_server.COMMAND, json.dumps(LIMITS), "serve"]
    with ServerProcess(tmp_path / "data", has_http=True, command=command) as running:
        yield running


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metrics_of(server: ServerProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def write(client: Any, count: int = 1000) -> None:
    """A stream of which all that is full is on disk."""
    client.execute_command("TWRITE", "s", "ENTRIES", *[word for n in range(count) for word in ("t", f"entry {n}")])
    wait_for(lambda: client.execute_command("TINFO", "s")[b"cold-nodes"] == count // LIMITS["NODE_ENTRIES_MAX"])


def test_memory_and_disk_are_told_apart(server: ServerProcess) -> None:
    with server.client() as client:
        untyped: Any = client
        write(untyped)
        facts = untyped.execute_command("TINFO", "s")
        assert facts[b"bytes"] == facts[b"memory-bytes"] + facts[b"disk-bytes"]
        assert facts[b"memory-bytes"] <= (client.memory_usage("s", samples=0) or 0)
        assert facts[b"disk-bytes"] > 0
        wait_for(lambda: client.info("streams")["stream_memory_bytes"] == facts[b"memory-bytes"])
        info, metrics = client.info("streams"), metrics_of(server)
        for name in ("stream_memory_bytes", "stream_disk_bytes", "stream_cold_nodes", "stream_hot_nodes", "node_files"):
            assert metrics[f"tidelog_{name}"] == info[name]
        assert info["stream_disk_bytes"] == facts[b"disk-bytes"]
        assert (info["stream_cold_nodes"], info["stream_hot_nodes"], info["cooled_nodes"]) == (10, 0, 10)
        (path,) = (server.data / "shard-0").glob("nodes-*.bin")
        assert metrics["tidelog_node_file_bytes"] == path.stat().st_size
        url = f"redis://127.0.0.1:{server.port}"
        listed = json.loads(run("stream", "ls", "--json", "--url", url).stdout)
        sizes = [facts[name] for name in (b"bytes", b"memory-bytes", b"disk-bytes")]
        assert [listed[name] for name in ("bytes", "memory_bytes", "disk_bytes")] == sizes
        head, row = run("stream", "ls", "--url", url).stdout.splitlines()
        assert "memory bytes      disk bytes" in head
        assert row.split()[4:6] == [str(size) for size in sizes[1:]]


def test_what_is_fetched_is_counted(server: ServerProcess) -> None:
    with server.client() as client:
        untyped: Any = client
        write(untyped)
        assert client.info("streams")["fetched_nodes"] == 0
        untyped.execute_command("TREAD", "s", 1, 10)
        metrics = metrics_of(server)
        assert metrics["tidelog_fetched_nodes_total"] == 1
        assert 0 < metrics["tidelog_fetched_bytes_total"] < metrics["tidelog_stream_disk_bytes"] / 5
        assert metrics["tidelog_opened_node_bytes"] > 0
        assert metrics["tidelog_unreadable_nodes_total"] == 0


def test_the_scrub_is_seen_at_work_and_tells_of_damage(server: ServerProcess) -> None:
    with server.client() as client:
        untyped: Any = client
        write(untyped)
        (path,) = (server.data / "shard-0").glob("nodes-*.bin")
        data_bytes = path.stat().st_size - 16
        wait_for(lambda: client.info("persistence")["scrub_bytes"] >= data_bytes)
        wait_for(lambda: client.info("persistence")["scrub_passes"] >= 1)
        metrics = metrics_of(server)
        assert metrics["tidelog_scrub_passes_total"] >= 1
        assert metrics["tidelog_scrub_bytes_total"] >= data_bytes
        assert metrics["tidelog_scrub_pass_bytes"] <= data_bytes
        assert metrics["tidelog_scrub_damaged_nodes"] == client.info("persistence")["scrub_damaged_nodes"] == 0
        data = bytearray(path.read_bytes())
        data[60] ^= 1  # in the first node
        path.write_bytes(data)
        wait_for(lambda: client.info("persistence")["scrub_damaged_nodes"] == 1)
        assert metrics_of(server)["tidelog_scrub_damaged_nodes"] == 1
        passes = client.info("persistence")["scrub_passes"]
        wait_for(lambda: client.info("persistence")["scrub_passes"] >= passes + 2)
        assert metrics_of(server)["tidelog_scrub_damaged_nodes"] == 1, "it is counted once"
        with pytest.raises(redis.ResponseError, match="a part of the stream cannot be read"):
            untyped.execute_command("TREAD", "s", 1, 1)
        assert metrics_of(server)["tidelog_unreadable_nodes_total"] == 1
        assert client.info("streams")["unreadable_nodes"] == 1
    assert server.stderr.count("a file of nodes is damaged") == 1
