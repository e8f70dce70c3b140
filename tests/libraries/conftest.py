"""A server for all tests of this process, workers for each test, and a line of results for each outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.libraries.backing_server import BackingServer, client_of, start_server, waiting_clients
from tests.libraries.job_log import JobLog
from tests.libraries.results import Record, append_line, result_line
from tests.libraries.worker_process import Workers, wait_until


@pytest.fixture(scope="session")
def running_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackingServer]:
    """It may be killed, and is started again by the test that did it."""
    made = start_server(request.config.getoption("--against"), tmp_path_factory.mktemp("server"))
    yield made
    made.close()


@pytest.fixture
def server(running_server: BackingServer) -> BackingServer:
    """An empty server, of which no worker of an earlier test expects anything."""
    wait_until(lambda: waiting_clients(running_server) == 0, "nobody waits for the server")
    with client_of(running_server) as client:
        client.flushall()
    return running_server


@pytest.fixture
def jobs(tmp_path: Path) -> JobLog:
    """What the jobs of this test did."""
    return JobLog(tmp_path / "jobs.log")


@pytest.fixture
def workers(server: BackingServer, jobs: JobLog, tmp_path: Path) -> Iterator[Workers]:
    """Starts worker processes; those that are left are stopped after the test, and what they printed is shown."""
    made = Workers(server, jobs, tmp_path)
    yield made
    made.close()
    # pytest shows it only with a failure.
    print(made.output())


@pytest.fixture
def record(record_property: Record) -> Record:
    """Adds a name and a value to the line of results."""
    return record_property


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop, for the clients that need one."""
    with asyncio.Runner() as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    path = item.config.getoption("--library-results")
    if path and isinstance(item, pytest.Function):
        line = result_line(item, report, item.config.getoption("--against"))
        if line is not None:
            append_line(Path(path), line)
    return report
