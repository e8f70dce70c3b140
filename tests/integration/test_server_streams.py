"""Streams on a real server: blocked readers in threads, both protocols, kills and restarts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.server_process import ServerProcess


class Reader(threading.Thread):
    """Reads for a group until it is told to stop; acknowledges what it was given unless it is sloppy."""

    def __init__(self, server: ServerProcess, protocol: int, *, acknowledges: bool = True) -> None:
        super().__init__(daemon=True)
        self._client: Any = server.client(protocol=protocol)
        self._acknowledges = acknowledges
        self.got: list[int] = []
        self.stops = False
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stops:
                words = ["TREAD", "jobs", 0, 5, "GROUP", "workers", "RETRY", 60_000, 0, "BLOCK", 200]
                for offset, tag, entry in self._client.execute_command(*words) or []:
                    assert entry == b"job-%d" % offset
                    assert tag == b"t"
                    self.got.append(offset)
                    if self._acknowledges:
                        assert self._client.execute_command("TACK", "jobs", "workers", offset) == 1
        except Exception as error:
            self.error = error
        finally:
            self._client.close()


def as_map(reply: Any) -> dict[bytes, Any]:
    """A map in either protocol."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def wait_for(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("protocol", [2, 3])
def test_readers_share_the_work(tmp_path: Path, protocol: int) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client(protocol=protocol) as client:
        readers = [Reader(server, protocol) for _ in range(4)]
        for reader in readers:
            reader.start()
        wait_for(lambda: client.info("clients")["blocked_clients"] == 4)
        for at in range(1, 301):
            assert client.execute_command("TWRITE", "jobs", "t", f"job-{at}") == at
        wait_for(lambda: sum(len(reader.got) for reader in readers) == 300)
        for reader in readers:
            reader.stops = True
            reader.join(10)
            assert reader.error is None
            assert len(reader.got) > 30
        assert Counter(offset for reader in readers for offset in reader.got) == Counter(range(1, 301))
        info = as_map(client.execute_command("TINFO", "jobs"))
        assert info[b"length"] == 300
        assert as_map(info[b"groups"][0])[b"pending"] == 0


def test_nils_maps_and_timeouts_in_resp3(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client(protocol=3) as client:
        client.execute_command("TWRITE", "k", "ENTRIES", *["t", "e"] * 1500)
        assert client.execute_command("TEVICT", "k", 1000) == 1000
        assert client.execute_command("TREAD", "k", 1000, 2, "WITHINFO") == [[1001, 1500], None, [1001, b"t", b"e"]]
        assert client.execute_command("TREAD", "k", 9999, 2, "BLOCK", 20) is None
        assert client.execute_command("TINFO", "k")[b"first-offset"] == 1001
        assert client.type("k") == b"stream"


def test_a_killed_server_knows_what_is_pending(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        client.execute_command("TGROUP", "jobs", "workers", "MAXPENDING", 50)
        client.execute_command(
            "TWRITE", "jobs", "ENTRIES", *[word for at in range(1, 101) for word in ("t", f"job-{at}")]
        )
        given = client.execute_command("TREAD", "jobs", 0, 20, "GROUP", "workers", "RETRY", 60_000, 0)
        assert client.execute_command("TACK", "jobs", "workers", "1-5", 9) == 6
        client.bgsave()
        given += client.execute_command("TREAD", "jobs", 0, 20, "GROUP", "workers", "RETRY", 60_000, 0)
        waiting = Reader(server, 2, acknowledges=False)
        waiting.start()
        wait_for(lambda: len(waiting.got) == 16)  # what there is room for; the head is not due for a minute
        server.kill()
        waiting.join(10)
        assert isinstance(waiting.error, redis.ConnectionError)
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        facts = as_map(as_map(client.execute_command("TINFO", "jobs"))[b"groups"][0])
        assert facts[b"max-pending"] == 50
        unacknowledged = {offset for offset, _, _ in given} | set(waiting.got)
        unacknowledged -= {1, 2, 3, 4, 5, 9}
        assert facts[b"pending"] == len(unacknowledged)
        assert client.execute_command("TACK", "jobs", "workers", *unacknowledged) == len(unacknowledged)
        left = [entry[0] for entry in client.execute_command("TREAD", "jobs", 0, 100, "GROUP", "workers")]
        assert left == list(range(max(unacknowledged) + 1, 101))


@pytest.mark.parametrize("how", ["SIGTERM", "SHUTDOWN"])
def test_blocked_clients_do_not_hold_up_a_stop(tmp_path: Path, how: str) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        readers = [server.connect() for _ in range(3)]
        for number, reader in enumerate(readers):
            group = b"GROUP g RETRY 100 100" if number else b""
            reader.sendall(b"TREAD k 1 1 BLOCK 0 %b\r\nSET later 1\r\n" % group)
        wait_for(lambda: client.info("clients")["blocked_clients"] == 3)
        began = time.monotonic()
        if how == "SIGTERM":
            assert server.terminate() == 0
        else:
            with pytest.raises(redis.ConnectionError):
                client.execute_command("SHUTDOWN")
            assert server.process.wait(10) == 0
        assert time.monotonic() - began < 5
        assert [reader.recv(100) for reader in readers] == [b""] * 3
        for reader in readers:
            reader.close()
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        assert client.execute_command("EXISTS", "later") == 0


def test_a_client_that_disconnects_while_it_waits(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, server.client() as client:
        gone = server.connect()
        gone.sendall(b"TREAD k 0 1 GROUP g BLOCK 0\r\n")
        wait_for(lambda: client.info("clients")["blocked_clients"] == 1)
        gone.close()
        wait_for(lambda: client.info("clients")["blocked_clients"] == 0)
        client.execute_command("TWRITE", "k", "t", "e")
        assert client.execute_command("TREAD", "k", 0, 1, "GROUP", "g") == [[1, b"t", b"e"]]


def test_what_expires_goes_to_the_dead_letters_though_nobody_reads(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client() as client:
        run: Any = client.execute_command
        run("TGROUP", "jobs", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 3)
        run("TWRITE", "jobs", "ENTRIES", "t", "first", "t", "second")
        run("TREAD", "jobs", 0, 1, "GROUP", "g", "RETRY", 3_600_000, 0)
        run("TREAD", "jobs", 0, 1, "GROUP", "g", "RETRY", 3_600_000, 300)
        wait_for(lambda: client.exists("dead"))
        assert run("TREAD", "dead", 1, 9) == [[1, b"t", b"second"]]
        assert as_map(as_map(run("TINFO", "jobs"))[b"groups"][0])[b"pending"] == 1
