"""An S3 on this machine, for tests: moto's server in a process of its own.

`s3_server` is one for the whole run of a process, `s3_bucket` a bucket in it. Tests that share the bucket take a
folder of their own: `s3_bucket.folder()`.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

_NUMBERS: Final = itertools.count(1)
READY_S_MAX: Final = 60


class S3Bucket(NamedTuple):
    url: str
    """s3://…, without a `/` at its end."""
    endpoint: str
    """http://…"""
    options: Mapping[str, str]
    """For `open_object_store`: endpoint, region and credentials."""
    env: Mapping[str, str]
    """The same for a process, as AWS_* variables."""

    def folder(self) -> str:
        """The URL of a folder in it that nobody else has."""
        return f"{self.url}/folder-{next(_NUMBERS)}"


class S3Server:
    """Where it listens, and how to make buckets."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def make_bucket(self, name: str) -> S3Bucket:
        """Fine if it is there."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self.endpoint}/{name}", method="PUT"), timeout=READY_S_MAX
        ).close()
        return self.bucket(name)

    def bucket(self, name: str) -> S3Bucket:
        """How to reach a bucket, which need not exist."""
        given = {"access_key_id": "testing", "secret_access_key": "testing-secret", "region": "us-east-1"}
        env = {f"AWS_{key.upper()}": value for key, value in given.items()}
        return S3Bucket(
            f"s3://{name}",
            self.endpoint,
            {**given, "endpoint": self.endpoint, "allow_http": "true"},
            {**env, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"},
        )


@contextmanager
def run_s3_server(folder: Path) -> Iterator[S3Server]:
    """Start one, which logs into a file of this folder, and stop it at the end."""
    log = folder / "moto.log"
    with log.open("wb") as output:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + READY_S_MAX
        while (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield S3Server(found[1])
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_bucket(s3_server: S3Server) -> S3Bucket:
    return s3_server.make_bucket("bucket")
