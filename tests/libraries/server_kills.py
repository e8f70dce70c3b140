"""Kills the server again and again while processes use it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.libraries.backing_server import BackingServer
from tests.libraries.job_log import JobLog
from tests.libraries.worker_process import wait_until

LOAD_S_MAX = 200.0


def wait_for(jobs: JobLog, what: str, count: int) -> None:
    """Until it was noted so often."""
    wait_until(lambda: jobs.total(what) >= count, f"{what}, {count} times", LOAD_S_MAX)


def kill_under_load(server: BackingServer, jobs: JobLog, what: str, counts: Iterable[int]) -> None:
    """Kill the server and start it again each time something was noted so often."""
    for count in counts:
        wait_for(jobs, what, count)
        server.kill()
        server.start_again()
