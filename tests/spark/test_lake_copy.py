"""Lakes out of a copy in an object store: what a server gives, each change once, and going on from one to the other."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.integration.s3_server import S3Bucket
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


class ServedCopy(NamedTuple):
    """A server, and where it ships to."""

    data: Path
    url: str
    storage: Mapping[str, str]
    env: Mapping[str, Any]

    def serve(self) -> ServerProcess:
        return ServerProcess(self.data, "--shards", "3", "--ship-to", self.url, has_flight=True, **self.env)

    def origin(self) -> CopyOrigin:
        return find_copy(CopyPlace(self.url, self.storage))

    def shipped(self, client: Any) -> CopyOrigin:
        """The copy, once it has all that the server has now."""
        wanted = min(row[1] for row in client.execute_command("FEED", "POSITION"))
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            try:
                copy = self.origin()
                if copy.position().visible >= wanted:
                    return copy
            except (ClientError, EnvironmentFault):
                pass  # its first manifests are on their way
            time.sleep(0.2)
        raise AssertionError("nothing was shipped")


MakeCopy = Callable[[str], ServedCopy]


@pytest.fixture(params=["folder", "s3"])
def make_copy(request: pytest.FixtureRequest, tmp_path: Path) -> MakeCopy:
    """Copies by name."""

    def make(name: str) -> ServedCopy:
        folder = tmp_path / name
        folder.mkdir()
        if request.param == "folder":
            return ServedCopy(folder / "data", str(folder / "objects"), {}, {})
        bucket: S3Bucket = request.getfixturevalue("s3_bucket")
        return ServedCopy(folder / "data", bucket.folder(), bucket.options, bucket.env)

    return make


def test_a_lake_goes_on_from_copy_to_server_and_back(make_copy: MakeCopy, tmp_path: Path) -> None:
    copy = make_copy("one")
    lake, draw = Lake(tmp_path / "lake"), random.Random(11)
    with copy.serve() as server, server.client() as client:
        write(client, draw, 300)
        client.execute_command("TWRITE", "log", "ENTRIES", "t", "a", "t", "b")
        InProcess(copy.shipped(client), lake.folder).run()
        check(server.port, client, lake.folder)
        write(client, draw, 100)
        InProcess(server.port, lake.folder).run()
        check(server.port, client, lake.folder)
        client.rename("log", "renamed")
        client.execute_command("TWRITE", "renamed", "ENTRIES", "t", "c")
        copy.shipped(client)
        client.delete("renamed")  # the copy still knows what it had
        write(client, draw, 100)
        InProcess(copy.shipped(client), lake.folder).run()
        check(server.port, client, lake.folder)
        assert [offset for stream, offset in lake.entries() if stream == b"renamed"] == [1, 2, 3]
        InProcess(copy.origin(), lake.folder).run()
        check(server.port, client, lake.folder)


def test_a_lake_begins_with_the_values_of_a_copy(make_copy: MakeCopy, tmp_path: Path) -> None:
    copy = make_copy("one")
    lake, draw = Lake(tmp_path / "lake"), random.Random(12)
    initial = LakeOptions(start="initial")
    with copy.serve() as server, server.client() as client:
        write(client, draw, 300)
        client.rpush("list", "a", "b")
        client.execute_command("TWRITE", "x:ruled", "ENTRIES", "t", "a")
        client.execute_command("TCONFIG", "x:ruled", "MAXBYTES", "1000000")
        held = {key: len(client.xrange(key)) for key in client.keys("x:*")}
        InProcess(copy.shipped(client), lake.folder, initial).run()
        assert lake.current() == stored(client)
        entries = lake.rows(ENTRIES)
        assert {row["seq"] for row in entries} == {SEQ_INITIAL}
        assert {key: sum(row["stream"] == key for row in entries) for key in held} == held
        assert [row["value"] for row in lake.rows(CHANGES)] == [b'["a","b"]']
        write(client, draw, 100)
        InProcess(copy.shipped(client), lake.folder).run()
        assert lake.current() == stored(client)
        write(client, draw, 100)
        InProcess(server.port, lake.folder).run()
        assert lake.current() == stored(client)


def test_the_copy_of_another_server_is_refused(make_copy: MakeCopy, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    one, other = make_copy("one"), make_copy("other")
    for name, copy in (("one", one), ("other", other)):
        with copy.serve() as server, server.client() as client:
            client.set("k", name)
            copy.shipped(client)
    InProcess(one.origin(), lake.folder).run()
    assert [row["value"] for row in lake.rows(CHANGES)] == [b"one"]
    with pytest.raises(HistoryLost):
        InProcess(other.origin(), lake.folder).run()


def test_the_job_asks_no_server(spark: SparkSession, make_copy: MakeCopy, tmp_path: Path) -> None:
    lake, one, another = Lake(tmp_path / "lake"), make_copy("one"), make_copy("other")

    def run() -> LakeJob:
        place = find_storage(str(lake.folder))
        job = LakeJob(address_of(1), place, LakeOptions(), copy=one.origin())  # nobody listens there
        job.run(lambda: spark, Stop())
        return job

    with one.serve() as server, server.client() as client:
        client.mset({f"k{number}": "v" for number in range(100)})
        one.shipped(client)
        assert run().figures()["changes"] == 100
        client.set("k0", "w")
        one.shipped(client)
        assert run().figures()["changes"] == 1
        check(server.port, client, lake.folder)
    with another.serve() as server, server.client() as client:
        client.set("k", "w")
        other = another.shipped(client)
    job = LakeJob(address_of(1), find_storage(str(lake.folder)), LakeOptions(), copy=other)
    with pytest.raises(ClientError, match="Begin a new one in another folder"):
        job.run(lambda: spark, Stop())
