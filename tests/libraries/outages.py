"""A server that is killed and started again while jobs are handed in and worked on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tests.libraries.backing_server import BackingServer
from tests.libraries.job_log import JobLog
from tests.libraries.worker_process import Workers, wait_until

WORK_S: Final = 0.5
"""How long work goes on before a kill."""
DOWN_S: Final = 0.2
PACE_S: Final = 0.004
"""Between two jobs handed in, so that kills fall between them."""
AGAIN_S: Final = 0.2


class Outages:
    """Inside the block, a thread kills the server so many times; leaving the block waits for the last start."""

    def __init__(self, server: BackingServer, count: int) -> None:
        self._server = server
        self._count = count
        self._thread = threading.Thread(target=self._run)
        self._problem: BaseException | None = None
        self.has_ended = threading.Event()

    def _run(self) -> None:
        try:
            for _ in range(self._count):
                time.sleep(WORK_S)
                self._server.kill()
                time.sleep(DOWN_S)
                self._server.start_again()
            time.sleep(WORK_S)
        except BaseException as problem:
            self._problem = problem
        finally:
            self.has_ended.set()

    def __enter__(self) -> Outages:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem


@dataclass
class HandedIn:
    """Jobs that were handed in, by name, against the log of what was done."""

    jobs: JobLog
    sure: list[str] = field(default_factory=list)
    """Acknowledged by the server."""
    in_doubt: list[str] = field(default_factory=list)
    """The acknowledgement was lost with a server: in the queue or not."""

    def lost(self) -> set[str]:
        """Acknowledged, and not done (yet)."""
        return set(self.sure) - set(self.jobs.counts("done"))

    def twice(self) -> set[str]:
        done = self.jobs.counts("done")
        return {name for name in [*self.sure, *self.in_doubt] if done[name] > 1}

    def tally(self) -> str:
        sizes = {"acknowledged": self.sure, "in doubt": self.in_doubt, "not done": self.lost(), "twice": self.twice()}
        return ", ".join(f"{len(names)} {what}" for what, names in sizes.items())


def hand_in_during_outages(
    server: BackingServer,
    kills: int,
    workers: Workers,
    jobs: JobLog,
    submit: Callable[[str], object],
    *errors: type[Exception],
    least: int = 100,
) -> HandedIn:
    """Hand in jobs while the server is killed so many times, and until enough are acknowledged.

    The first kill waits until the workers work: they have done the first job. A worker that ends because its server is
    away is started again, as a supervisor does.
    """
    handed_in = HandedIn(jobs, sure=["job-0"])
    submit("job-0")
    wait_until(lambda: jobs.counts("done")["job-0"], "the first job is done")
    with Outages(server, kills) as outages:
        for number in count(1):
            if outages.has_ended.is_set() and len(handed_in.sure) >= least:
                break
            workers.start_again_ended()
            name = f"job-{number}"
            try:
                submit(name)
                handed_in.sure.append(name)
                time.sleep(PACE_S)
            except errors:
                handed_in.in_doubt.append(name)
                time.sleep(AGAIN_S)
    return handed_in
