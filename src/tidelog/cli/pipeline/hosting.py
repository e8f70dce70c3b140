"""How a command of `tidelog pipeline` runs as one of several jobs in a process (`tidelog pipeline run`).

A command's function checks its options and then hands its work to a `JobRun`. In a process with several jobs, the host
is found there: it has the Spark session, the signals and what is shown, and the job has only its work left.

The host is a context variable, because the command line gives a function nothing but its options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from tidelog.cli.exits import FINE
from tidelog.cli.server_link import connected
from tidelog.errors import EnvironmentFault

if TYPE_CHECKING:
    from tidelog.address import ServerAddress
    from tidelog.spark.jobs.job_lease import Stop


class Checked(Exception):
    """The options of a command are good: it would begin its work now."""

    def __init__(self, address: ServerAddress | None) -> None:
        super().__init__()
        self.address = address
        """The server that it would work on."""


class JobHost:
    """Takes over the work of one run of a command."""

    def __init__(self, stop: Stop, make_spark: Callable[[], Any] | None, is_stopping: Callable[[], bool]) -> None:
        """`make_spark` None: the command is only checked."""
        self.stop = stop
        self._make_spark = make_spark
        self._is_stopping = is_stopping

    def run(
        self,
        name: str,
        work: Callable[[Any, Any], object],
        display: AbstractContextManager[Any],
        address: ServerAddress | None,
    ) -> int:
        """In place of `JobRun.run`: errors, and the loss of a lease, are raised."""
        if self._make_spark is None:
            raise Checked(address)
        with nullcontext() if address is None else connected(address), display as shown:
            work(self._make_spark, shown)
        if self.stop.is_set() and not self._is_stopping():
            raise EnvironmentFault(f"{name} was stopped before its end: {self.stop.reason}")
        return FINE


_HOST: Final[ContextVar[JobHost | None]] = ContextVar("host", default=None)


def present_host() -> JobHost | None:
    """The host of the command that runs on this thread; None: it has the process to itself."""
    return _HOST.get()


@contextmanager
def hosted_by(host: JobHost) -> Iterator[None]:
    """Commands in the block, on this thread, are run by this host."""
    token = _HOST.set(host)
    try:
        yield
    finally:
        _HOST.reset(token)
