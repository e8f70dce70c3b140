"""What every lock has to show, whichever library makes it: one holder at a time, whatever is killed."""

from __future__ import annotations

import time
from typing import Final

from tests.libraries.backing_server import BackingServer, client_of
from tests.libraries.job_log import JobLog
from tests.libraries.lock_rounds import NUMBER, START
from tests.libraries.server_kills import LOAD_S_MAX, kill_under_load, wait_for
from tests.libraries.worker_process import Workers, wait_until

LOCK_S: Final = "15"
HELD_S: Final = "2"
"""How long the lock of a process that is killed lasts."""


def check_exclusion(
    server: BackingServer, workers: Workers, jobs: JobLog, library: str, processes: int, rounds: int, kills: int = 0
) -> None:
    """Processes add to a number under the lock while the server is killed so often; every addition is there."""
    started = [
        workers.start("-m", "tests.libraries.lock_rounds", library, LOCK_S, str(rounds)) for _ in range(processes)
    ]
    every = processes * rounds
    wait_for(jobs, "ready", processes)
    with client_of(server) as client:
        client.set(START, "now")
    kill_under_load(server, jobs, "added", [every * (kill + 1) // (kills + 1) for kill in range(kills)])
    wait_until(lambda: all(each.has_ended() for each in started), "the end of the additions", LOAD_S_MAX)
    assert jobs.total("added") == every, workers.output()
    with client_of(server) as client:
        assert client.get(NUMBER) == str(every), "additions are lost"


def check_killed_holder(
    server: BackingServer, workers: Workers, jobs: JobLog, library: str, key: str, rounds: int = 3
) -> None:
    """A process that is killed keeps its lock until it expires; then the next one gets it."""
    holder = workers.start("-m", "tests.libraries.lock_rounds", library, HELD_S, "hold")
    wait_for(jobs, "held", 1)
    holder.kill()
    with client_of(server) as client:
        left_ms = int(client.pttl(key))
        assert left_ms > 0, "it does not expire, or was let go"
        client.set(START, "now")
        began_s = time.monotonic()
        workers.start("-m", "tests.libraries.lock_rounds", library, HELD_S, str(rounds))
        wait_for(jobs, "added", rounds)
        assert 1000 * (time.monotonic() - began_s) > left_ms - 100
        assert client.get(NUMBER) == str(rounds)
