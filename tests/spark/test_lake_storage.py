"""Where a lake lies: options, and an object store that speaks S3."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import InProcess, stored
from tidelog.errors import ClientError
from tidelog.spark.delta.storage import find_storage

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

KEYS = ("key=testing", "secret=testing", "region=us-east-1")


def test_names_of_fsspec_are_translated_and_others_passed_on() -> None:
    found = find_storage("s3://bucket/lake/", [*KEYS, "endpoint_url=http://127.0.0.1:9000", "timeout=30s", "a=b=c"])
    assert found.root == "s3://bucket/lake"
    assert found.options == {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
        "timeout": "30s",
        "a": "b=c",
    }
    assert "testing" not in repr(found)


def test_a_folder_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_storage("lake").root == str(tmp_path / "lake")
    assert find_storage(f"file://{tmp_path}/lake").uri("changes") == f"{tmp_path}/lake/changes"
    with pytest.raises(ClientError, match="is for object stores"):
        find_storage("lake", KEYS)


@pytest.mark.parametrize("target", ["s3://", "s3:///", "s3:///lake", "gs://", "file://", ""])
def test_a_url_without_a_bucket_is_refused(target: str) -> None:
    with pytest.raises(ClientError, match=r"--to .*(names no bucket|names no folder|is empty)"):
        find_storage(target)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    with moto_s3(tmp_path) as url:
        yield url


@contextmanager
def moto_s3(tmp_path: Path) -> Iterator[str]:
    """Where an S3 is that has a bucket `bucket`."""
    log = tmp_path / "moto.log"
    with log.open("wb") as output:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        made = urllib.request.Request(f"{found[1]}/bucket", method="PUT")
        urllib.request.urlopen(made, timeout=30).close()
        yield found[1]
    finally:
        process.terminate()
        process.wait(30)


def test_a_lake_lies_in_an_object_store(s3: str, tmp_path: Path) -> None:
    given = [*KEYS, f"endpoint_url={s3}"]
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client() as client:
        for number in range(50):
            client.hset(f"h{number % 7}", f"f{number % 5}", number)
        InProcess(server.port, "s3://bucket/lake", given=given).run()
        client.delete("h1")
        client.set("a", "1")
        InProcess(server.port, "s3://bucket/lake", given=given).run()
        options = dict(find_storage("s3://bucket", given).options)
        rows = DeltaTable("s3://bucket/lake/current", storage_options=options).to_pyarrow_table().to_pylist()
        found = {(row["key"], row["field"]): (row["type"], row["value"]) for row in rows}
        assert found == stored(client)
        changes = DeltaTable("s3://bucket/lake/changes", storage_options=options)
        assert changes.to_pyarrow_dataset().count_rows() == 52
