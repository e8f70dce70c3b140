"""How `tidelog pipeline lake` and `tidelog pipeline view` run: a job on Spark that follows a server until it is
stopped, with a live line, and a status that says how it ended."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.cli.exits import BUSY, CANNOT, FINE, INTERRUPTED, TERMINATED, complain, until_pipe_closes
from tidelog.cli.live_line import live_line
from tidelog.cli.output import Output
from tidelog.cli.pipeline_options import LIGHT, STEADY, needs_spark, spark_session, stopped_in_order
from tidelog.cli.server_link import connected

if TYPE_CHECKING:
    from tidelog.address import ServerAddress
    from tidelog.spark.jobs.holding import Stop

_UNHEARD: Final = "nobody reads what it prints"
_STATUSES: Final[Mapping[int, int]] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class Follower(Protocol):
    """A job that follows a server."""

    def run(self, make_spark: Callable[[], Any], stop: Stop) -> None:
        """Until there is nothing left, or it is stopped."""

    def told(self) -> Mapping[str, Any]:
        """What it last reported."""


class Following:
    """A run of such a job: once, or for ever."""

    def __init__(self, name: str, output: Output, *, is_once: bool) -> None:
        with needs_spark():
            from tidelog.spark.jobs.holding import Stop
        self._name = name
        self._output = output
        self._is_once = is_once
        self.stop = Stop()
        self._begun_s = time.monotonic()

    def run(
        self,
        job: Follower,
        address: ServerAddress,
        master: str | None,
        conf: list[str] | None,
        sum_up: Callable[[], None],
        *,
        shows_progress: bool,
    ) -> int:
        """Returns the exit status; says why, if it is no good one."""
        from tidelog.spark.jobs.holding import JobRunning

        settings = LIGHT if self._is_once else STEADY
        with (
            stopped_in_order(self.stop) as signals,
            connected(address),
            spark_session(f"tidelog {self._name}", master, conf, signals.install, settings) as spark,
            live_line(self._name, job.told, is_wanted=shows_progress),
        ):
            try:
                job.run(spark, self.stop)
            except JobRunning as error:
                complain(str(error))
                return BUSY
        with until_pipe_closes():  # the status is known, whoever listens
            sum_up()
        has_no_other_end = not self._is_once and (signals.number or self.stop.reason == _UNHEARD)
        if not self.stop.is_set() or has_no_other_end:
            return FINE
        complain(f"{self._name} was stopped: {self.stop.reason}")
        return _STATUSES.get(signals.number, CANNOT)

    def tell_batch(self, figures: Mapping[str, Any]) -> None:
        """Say how far it is, to a machine. Nobody may listen any more: a batch must not fail because of that."""
        if not self._output.as_json:
            return
        is_heard = False
        with until_pipe_closes():
            self._output.object("batch", dict(figures))
            sys.stdout.flush()
            is_heard = True
        if not is_heard and not self._is_once:  # which has an end of its own
            self.stop.because(_UNHEARD)

    def tell_summary(self, figures: Mapping[str, Any]) -> None:
        """To a machine, at the end."""
        stopped = self.stop.reason or None
        self._output.object("summary", {**figures, "seconds": round(self.seconds, 1), "stopped": stopped})

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begun_s
