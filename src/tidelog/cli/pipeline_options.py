"""What `tidelog pipeline ...` commands share: where Spark runs, and how a job is stopped."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.errors import ClientError, EnvironmentFault

if TYPE_CHECKING:
    from tidelog.spark.jobs.holding import Stop
    from tidelog.spark.jobs.lazy_session import LazySession

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs: spark://HOST:PORT, yarn, k8s://..., local[4]. Without it, what MASTER or spark-submit "
        "says, otherwise all cores of this machine.",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's; may be given again.", show_default=False),
]
OlderThanDays = Annotated[
    int,
    typer.Option(
        "--older-than-days",
        metavar="N",
        min=0,
        help="Days whose UTC date lies more than N days before today's: with 2, on the 10th, those up to the 7th.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what there is to do.")]
StreamsPerHour = Annotated[
    float | None,
    typer.Option("--streams-per-hour", metavar="N", min=0.001, help="Begin at most so many.", show_default=False),
]
LeaseSeconds = Annotated[
    float,
    typer.Option(
        "--lease-seconds", metavar="S", min=1.0, help="How long a job that was killed keeps others from beginning."
    ),
]
Today = Annotated[
    str | None,
    typer.Option("--today", metavar="YYYY-MM-DD", help="Count from this day, not from today's.", show_default=False),
]


def read_today(text: str | None) -> date:
    """Today in UTC, unless a test says otherwise."""
    if text is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ClientError(f"--today {text!r} is no date such as 2024-05-01") from None


@contextmanager
def needs_spark() -> Iterator[None]:
    """What is imported in the block comes with an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise EnvironmentFault(f"this needs {error.name}: pip install 'tidelog[spark]'") from None


_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
STEADY: Final = {_JAVA_OPTIONS: "-XX:+UseSerialGC", "spark.default.parallelism": "1"}
"""For jobs that hand Spark a little, again and again, and do the rest in Python; on this machine only."""
LIGHT: Final = {**STEADY, _JAVA_OPTIONS: f"-XX:TieredStopAtLevel=1 {STEADY[_JAVA_OPTIONS]}"}
"""The same for jobs that end soon: what Java's second compiler takes pays off later."""


@contextmanager
def spark_session(
    app: str,
    master: str | None,
    conf: list[str] | None,
    on_made: Callable[[], object] = lambda: None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[LazySession]:
    """Makes the session when it is first called, and ends it with the block if nobody else had made it.

    `settings` are those of the job, unless `conf` says otherwise or it runs elsewhere.
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
        raise ClientError(f"--conf {text!r} is no NAME=VALUE such as spark.executor.memory=2g")
    return name, value


class Signals:
    """Ctrl-C and SIGTERM tell a job to stop; a second one ends it at once."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.number = 0
        """Of the first that came."""

    def install(self) -> None:
        """Called again when Spark is there, which installs a handler of its own."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.number:
            logging.disable()  # py4j tells of every call that it was in
            raise KeyboardInterrupt
        self.number = number
        self._stop.because("interrupted" if number == signal.SIGINT else "terminated")
        if sys.stderr.isatty():
            sys.stderr.write("\nstopping; once more to end at once\n")


@contextmanager
def stopped_in_order(stop: Stop) -> Iterator[Signals]:
    """Signals stop the job while the block runs."""
    import threading

    made = Signals(stop)
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
