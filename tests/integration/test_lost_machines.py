"""A machine is lost with its disk, and another goes on from the copy: on a folder and on S3, with real processes.

Two losses of each kind by default, 25 with `--long`. Every third machine that takes the place of a lost one is lost as
well, at any moment of its restore and its takeover. How much each loss took is told by the last line (`pytest -s`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis

from tests.integration.s3_server import S3Bucket
from tests.integration.server_process import ServerProcess
from tidelog.ids import Ts
from tidelog.shipping.manifest_log import ManifestLog, only_database
from tidelog.system.object_store import open_object_store

LOSSES: Final = 2
LOSSES_LONG: Final = 25
LOST_S_MAX: Final = 6.0
"""An fsync and a round take two seconds at most, and what a busy machine adds."""
WAIT_S_MAX: Final = 60.0
STOP_S_MAX: Final = 12.0
"""What a server takes to stop in order at most, and what a busy machine adds."""


class CopyPlace(NamedTuple):
    """Where a copy is kept."""

    url: str
    env: Mapping[str, Any]
    options: Mapping[str, str] | None = None
    """For those who open it themselves."""

    @property
    def shipped_ts(self) -> Ts:
        """The last transaction that the newest manifest tells of."""
        objects = open_object_store(self.url, self.options)
        database_id = only_database(objects, self.url, None)
        assert database_id is not None
        newest = ManifestLog(objects, database_id).newest()
        assert newest is not None
        return newest.lineages[-1].history_ts

    def server(self, data: Path, *arguments: str) -> ServerProcess:
        return ServerProcess(
            data, "--ship-to", self.url, "--restore-from", self.url, "--restore-wait", "1s", *arguments, **self.env
        )


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> CopyPlace:
    if request.param == "folder":
        return CopyPlace(str(tmp_path / "copy"), {})
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return CopyPlace(bucket.folder(), bucket.env, bucket.options)


def shipping(server: ServerProcess) -> dict[str, str]:
    with server.client(decode_responses=True) as client:
        return {key: str(value) for key, value in client.info("shipping").items()}


def wait_until_shipped(server: ServerProcess) -> None:
    """Until the copy has everything that was written before."""
    deadline = time.monotonic() + WAIT_S_MAX
    with server.client() as client:
        last_ts = int(client.info("tidelog")["last_ts"])
        while int(client.info("shipping")["shipping_shipped_ts"]) < last_ts:
            assert time.monotonic() < deadline, client.info("shipping")
            time.sleep(0.05)


class Writer:
    """Writes numbers one after the other, and knows when each was answered."""

    def __init__(self, server: ServerProcess, first: int) -> None:
        self._client = server.client()
        self._next = first
        self.answered: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run)
        self._is_stopped = False
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                number = self._next
                self._client.execute_command("TWRITE", "numbers", "tag", b"%d" % number)  # type: ignore[no-untyped-call]
                self.answered[number] = time.monotonic()
                self._next += 1
        except redis.ConnectionError:
            pass

    def stop(self) -> None:
        self._is_stopped = True
        self._thread.join(WAIT_S_MAX)
        self._client.close()


def test_a_machine_that_is_lost_loses_seconds_at_most(
    place: CopyPlace, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    rng = random.Random(1)
    data, written = tmp_path / "data-0", 0
    lost_s: list[float] = []
    for loss in range(LOSSES_LONG if pytestconfig.getoption("--long") else LOSSES):
        with place.server(data, "--snapshot-after", "200kb") as server:
            assert server.client().xlen("numbers") == written
            writer = Writer(server, written + 1)
            time.sleep(rng.uniform(1.5, 4))
            server.kill()
            killed = time.monotonic()
            writer.stop()
        shipped_ts = place.shipped_ts
        shutil.rmtree(data)
        if loss % 3 == 1:
            lose_while_it_begins(place, tmp_path / f"data-{loss}-lost", rng)
        data = tmp_path / f"data-{loss + 1}"
        with place.server(data) as server:
            client = server.client()
            assert int(client.info("tidelog")["last_ts"]) >= shipped_ts > 0, "all that a manifest tells of is there"
            entries = client.execute_command("TREAD", "numbers", 1, 10_000_000)  # type: ignore[no-untyped-call]
            assert [int(entry) for _, _, entry in entries] == list(range(1, len(entries) + 1))
            written = len(entries)
            lost = [at for number, at in writer.answered.items() if number > written]
            lost_s.append(killed - min(lost, default=killed))
            assert lost_s[-1] <= LOST_S_MAX, shipping(server)
            wait_until_shipped(server)
            assert server.terminate() == 0
        shutil.rmtree(data)
    median = statistics.median(lost_s)
    print(f"{place.url}: {len(lost_s)} losses took {median:.2f} s in the median and {max(lost_s):.2f} s at most")


def lose_while_it_begins(place: CopyPlace, data: Path, rng: random.Random) -> None:
    """A machine restores the copy, or takes over, and is lost meanwhile."""
    words = [sys.executable, "-m", "tidelog.cli", "serve", "--port", "auto", "--data", str(data)]
    words += ["--ship-to", place.url, "--restore-from", place.url, "--restore-wait", "1s"]
    environment = {**os.environ, **{name: str(value) for name, value in place.env.items()}}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    time.sleep(rng.uniform(1.0, 4.5))
    process.kill()
    process.wait(WAIT_S_MAX)
    shutil.rmtree(data, ignore_errors=True)


def test_a_server_that_wakes_up_too_late_ships_no_more(place: CopyPlace, tmp_path: Path) -> None:
    with place.server(tmp_path / "one") as one:
        one.client().set("key", "of one")
        wait_until_shipped(one)
        one.process.send_signal(signal.SIGSTOP)
        with place.server(tmp_path / "two") as two:
            client = two.client()
            assert client.get("key") == b"of one"
            client.set("key", "of two")
            wait_until_shipped(two)

            one.process.send_signal(signal.SIGCONT)
            one.client().set("key", "too late")
            deadline = time.monotonic() + WAIT_S_MAX
            while shipping(one)["shipping_state"] != "fenced":
                assert time.monotonic() < deadline, shipping(one)
                time.sleep(0.1)
            assert "another server" in shipping(one)["shipping_error"]
            wait_until_shipped(two)
            assert shipping(two)["shipping_state"] == "shipping"
            two.kill()
    with place.server(tmp_path / "three") as three:
        assert three.client().get("key") == b"of two"


def test_writes_go_on_while_the_store_cannot_be_reached(tmp_path: Path) -> None:
    nowhere: dict[str, Any] = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "a-secret-that-is-not-told",
        "AWS_REGION": "us-east-1",
    }
    with ServerProcess(tmp_path / "data", "--ship-to", "s3://bucket/copy", **nowhere) as server:
        client = server.client()
        deadline = time.monotonic() + WAIT_S_MAX
        while shipping(server)["shipping_state"] != "failing":
            assert time.monotonic() < deadline
            client.incr("writes")
        assert int(shipping(server)["shipping_failures"]) >= 1
        assert float(shipping(server)["shipping_lag_us"]) > 0
        assert "a-secret" not in server.stderr + shipping(server)["shipping_error"]
        assert server.terminate() == 0
    assert "fails, and is tried again" in server.stderr


def test_a_store_that_does_not_answer_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    """Calls to it end after minutes, on a thread that Python waits for when it ends."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nowhere: dict[str, Any] = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret-that-is-not-told",
            "AWS_REGION": "us-east-1",
        }
        with ServerProcess(tmp_path / "data", "--ship-to", "s3://bucket/copy", **nowhere) as server:
            server.client().set("key", "value")
            time.sleep(1)
            began = time.monotonic()
            assert server.terminate() == 0
            assert time.monotonic() - began < STOP_S_MAX
        assert "its copy" in server.stderr
