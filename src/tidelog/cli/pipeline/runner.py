"""Runs a job on Spark for every `tidelog pipeline` command that starts one: a session, signals that stop it, something
to look at meanwhile, a summary, and an exit status that says how it ended.

    0    it did all of its work; for a job without an end: a signal stopped it, or nobody reads its output any more
    2    it was stopped by something else, such as a lease that was lost
    3    another job is running
    130  Ctrl-C
    143  SIGTERM

A new kind of job gives the runner its work, a context manager that shows the progress, and its summary. In a process
with several jobs, the runner hands the work on to their host (`hosting`), and prints nothing itself.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.cli.exits import BUSY, CANNOT, FINE, INTERRUPTED, TERMINATED, complain, until_pipe_closes
from tidelog.cli.output.stdout import Output
from tidelog.cli.pipeline.hosting import present_host
from tidelog.cli.pipeline.session import needs_spark, spark_session, stopped_in_order
from tidelog.cli.server_link import connected

if TYPE_CHECKING:
    from tidelog.address import ServerAddress
    from tidelog.spark.jobs.lazy_session import LazySession

_UNHEARD: Final = "nobody reads what it prints"
_STATUSES: Final[Mapping[int, int]] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}

Display = TypeVar("Display")


class JobRun:
    """One run of a job."""

    def __init__(self, name: str, output: Output, *, is_endless: bool = False) -> None:
        with needs_spark():
            from tidelog.spark.jobs.job_lease import Stop
        self._name = name
        self._output = output
        self._is_endless = is_endless
        """The job follows a server until it is stopped: being stopped is how it ends well."""
        self._host = present_host()
        self.stop = Stop() if self._host is None else self._host.stop
        self._begun_s = time.monotonic()

    def run(
        self,
        work: Callable[[LazySession, Display], object],
        display: AbstractContextManager[Display],
        sum_up: Callable[[], None],
        *,
        master: str | None,
        conf: list[str] | None,
        settings: Mapping[str, str] | None = None,
        address: ServerAddress | None = None,
    ) -> int:
        """Runs the work until it returns, prints the summary, and returns the exit status.

        work       gets the Spark session, and whatever the display hands out
        display    shows the progress while the work runs
        sum_up     prints the summary, also of a job that was stopped
        address    the server that the job works on; its errors become ours
        """
        from tidelog.spark.jobs.job_lease import JobRunning

        if self._host is not None:
            return self._host.run(self._name, work, display, address)
        with (
            stopped_in_order(self.stop) as signals,
            nullcontext() if address is None else connected(address),
            spark_session(f"tidelog {self._name}", master, conf, signals.install, settings) as spark,
            display as shown,
        ):
            try:
                work(spark, shown)
            except JobRunning as error:
                complain(str(error))
                return BUSY
        with until_pipe_closes():  # a reader that went away does not change the status
            sum_up()
        is_intended = self._is_endless and (signals.number or self.stop.reason == _UNHEARD)
        if not self.stop.is_set() or is_intended:
            return FINE
        complain(f"{self._name} was stopped before its end: {self.stop.reason}")
        return _STATUSES.get(signals.number, CANNOT)

    def tell_batch(self, figures: Mapping[str, Any]) -> None:
        """Prints the progress as JSON. A batch does not fail if nobody reads it; a job without an end then stops."""
        if not self._output.as_json:
            return
        is_heard = False
        with until_pipe_closes():
            self._output.object("batch", dict(figures))
            sys.stdout.flush()
            is_heard = True
        if not is_heard and self._is_endless:
            self.stop.because(_UNHEARD)

    def tell_summary(self, figures: Mapping[str, Any]) -> None:
        """Prints the summary as JSON."""
        self._output.object(
            "summary", {**figures, "seconds": round(self.seconds, 1), "stopped": self.stop.reason or None}
        )

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._begun_s
