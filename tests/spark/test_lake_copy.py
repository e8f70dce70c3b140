"""Lakes out of a copy in an object store: what a server gives, each change once, and going on from one to the other."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import InProcess, Lake, address_of, check, stored
from tests.spark.test_lake import write
from tidelog.errors import ClientError, EnvironmentFault
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.lake.job import LakeJob, LakeOptions
from tidelog.spark.lake.layout import CHANGES, ENTRIES, SEQ_INITIAL
from tidelog.spark.source.feed.reading import HistoryLost
from tidelog.spark.source.feed.shipped import CopyOrigin, CopyPlace, find_copy

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


def serve(folder: Path) -> ServerProcess:
    folder.mkdir(exist_ok=True)
    return ServerProcess(folder / "data", "--shards", "3", "--ship-to", str(folder / "objects"), has_flight=True)


def copy_in(folder: Path) -> CopyOrigin:
    return find_copy(CopyPlace(str(folder / "objects")))


def shipped(client: Any, folder: Path) -> CopyOrigin:
    """The copy, once it has all that the server has now."""
    wanted = min(row[1] for row in client.execute_command("FEED", "POSITION"))
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            copy = copy_in(folder)
            if copy.position().visible >= wanted:
                return copy
        except (ClientError, EnvironmentFault):
            pass  # its first manifests are on their way
        time.sleep(0.2)
    raise AssertionError("nothing was shipped")


def test_a_lake_goes_on_from_copy_to_server_and_back(tmp_path: Path) -> None:
    lake, draw = Lake(tmp_path / "lake"), random.Random(11)
    with serve(tmp_path) as server, server.client() as client:
        write(client, draw, 300)
        client.execute_command("TWRITE", "log", "ENTRIES", "t", "a", "t", "b")
        InProcess(shipped(client, tmp_path), lake.folder).run()
        check(server.port, client, lake.folder)
        write(client, draw, 100)
        InProcess(server.port, lake.folder).run()
        check(server.port, client, lake.folder)
        client.rename("log", "renamed")
        client.execute_command("TWRITE", "renamed", "ENTRIES", "t", "c")
        shipped(client, tmp_path)
        client.delete("renamed")  # the copy still knows what it had
        write(client, draw, 100)
        InProcess(shipped(client, tmp_path), lake.folder).run()
        check(server.port, client, lake.folder)
        assert [offset for stream, offset in lake.entries() if stream == b"renamed"] == [1, 2, 3]
        InProcess(copy_in(tmp_path), lake.folder).run()
        check(server.port, client, lake.folder)


def test_a_lake_begins_with_the_values_of_a_copy(tmp_path: Path) -> None:
    lake, draw = Lake(tmp_path / "lake"), random.Random(12)
    initial = LakeOptions(start="initial")
    with serve(tmp_path) as server, server.client() as client:
        write(client, draw, 300)
        client.rpush("list", "a", "b")
        client.execute_command("TWRITE", "x:ruled", "ENTRIES", "t", "a")
        client.execute_command("TCONFIG", "x:ruled", "MAXBYTES", "1000000")
        held = {key: len(client.xrange(key)) for key in client.keys("x:*")}
        InProcess(shipped(client, tmp_path), lake.folder, initial).run()
        assert lake.current() == stored(client)
        entries = lake.rows(ENTRIES)
        assert {row["seq"] for row in entries} == {SEQ_INITIAL}
        assert {key: sum(row["stream"] == key for row in entries) for key in held} == held
        assert [row["value"] for row in lake.rows(CHANGES)] == [b'["a","b"]']
        write(client, draw, 100)
        InProcess(shipped(client, tmp_path), lake.folder).run()
        assert lake.current() == stored(client)
        write(client, draw, 100)
        InProcess(server.port, lake.folder).run()
        assert lake.current() == stored(client)


def test_the_copy_of_another_server_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for name in ("one", "other"):
        with serve(tmp_path / name) as server, server.client() as client:
            client.set("k", name)
            shipped(client, tmp_path / name)
    InProcess(copy_in(tmp_path / "one"), lake.folder).run()
    assert [row["value"] for row in lake.rows(CHANGES)] == [b"one"]
    with pytest.raises(HistoryLost):
        InProcess(copy_in(tmp_path / "other"), lake.folder).run()


def test_the_job_asks_no_server(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")

    def run() -> LakeJob:
        place = find_storage(str(lake.folder))
        job = LakeJob(address_of(1), place, LakeOptions(), copy=copy_in(tmp_path / "one"))  # nobody listens there
        job.run(lambda: spark, Stop())
        return job

    with serve(tmp_path / "one") as server, server.client() as client:
        client.mset({f"k{number}": "v" for number in range(100)})
        shipped(client, tmp_path / "one")
        assert run().figures()["changes"] == 100
        client.set("k0", "w")
        shipped(client, tmp_path / "one")
        assert run().figures()["changes"] == 1
        check(server.port, client, lake.folder)
    with serve(tmp_path / "other") as server, server.client() as client:
        client.set("k", "w")
        other = shipped(client, tmp_path / "other")
    job = LakeJob(address_of(1), find_storage(str(lake.folder)), LakeOptions(), copy=other)
    with pytest.raises(ClientError, match="Begin a new one in another folder"):
        job.run(lambda: spark, Stop())
