"""The Spark session of a job, and the signals that stop the job."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import ClientError, EnvironmentFault

if TYPE_CHECKING:
    from tidelog.spark.jobs.job_lease import Stop
    from tidelog.spark.jobs.lazy_session import LazySession

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
STEADY: Final = {_JAVA_OPTIONS: "-XX:+UseSerialGC", "spark.default.parallelism": "1"}
"""Spark settings for jobs that give Spark little work, again and again, and do the rest in Python; only on this
machine."""
LIGHT: Final = {**STEADY, _JAVA_OPTIONS: f"-XX:TieredStopAtLevel=1 {STEADY[_JAVA_OPTIONS]}"}
"""The same for jobs that end soon: Java's second compiler would cost more than it saves."""


@contextmanager
def needs_spark() -> Iterator[None]:
    """For imports that fail if the extra `spark` is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFault(f"this needs {error.name}: pip install 'tidelog[spark]'") from None


@contextmanager
def spark_session(
    app: str,
    master: str | None,
    conf: list[str] | None,
    on_made: Callable[[], object] = lambda: None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[LazySession]:
    """Makes the session when it is first called, and ends it with the block unless it existed before.

    `settings` are the job's own. They give way to `conf`, and do not count if Spark runs on other machines.
    """
    is_here = (master or os.environ.get("MASTER", "local")).startswith("local")
    settings = {**((settings or {}) if is_here else {}), **dict(map(_setting, conf or []))}
    with needs_spark():
        from tidelog.spark.jobs.lazy_session import LazySession
    made = LazySession(app, master, settings, on_made)
    try:
        yield made
    finally:
        made.close()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or "." not in name:
        raise ClientError(f"--conf {text!r} is not NAME=VALUE, such as spark.executor.memory=2g")
    return name, value


class StopSignals:
    """The first Ctrl-C or SIGTERM tells a job to stop; a second one ends it at once."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.number = 0
        """The number of the first signal that came; 0: none."""

    def install(self) -> None:
        """Also called when the session is made, because Spark installs a handler of its own."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def install_here(self) -> None:
        """The same for a session that any thread may make: Spark installs a handler only on the main one."""
        if threading.current_thread() is threading.main_thread():
            self.install()

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.number:
            logging.disable()  # py4j would log every call that was interrupted
            raise KeyboardInterrupt
        self.number = number
        self._stop.because("interrupted" if number == signal.SIGINT else "terminated")
        if sys.stderr.isatty():
            sys.stderr.write("\nstopping; once more to end at once\n")


@contextmanager
def stopped_in_order(stop: Stop) -> Iterator[StopSignals]:
    """Signals stop the job while the block runs."""
    made = StopSignals(stop)
    if threading.current_thread() is not threading.main_thread():
        yield made
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    made.install()
    try:
        yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
