"""The Spark session of a job: started when there is work, and ended with the job unless it existed before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidelog.spark.session import session


class LazySession:
    """Calling it gives the session."""

    def __init__(
        self, app: str, master: str | None, conf: Mapping[str, str], on_made: Callable[[], object] = lambda: None
    ) -> None:
        self._app = app
        self._master = master
        self._conf: Mapping[str, Any] = conf
        self._on_made = on_made
        self._made: SparkSession | None = None
        self._is_ours = False

    def __call__(self) -> SparkSession:
        if self._made is None:
            self._is_ours = SparkSession.getActiveSession() is None
            self._made = session(self._app, self._master, **self._conf)
            self._on_made()
        return self._made

    def close(self) -> None:
        if self._made is not None and self._is_ours:
            try:
                self._made.stop()
            except (Py4JError, OSError):
                return  # the signal that ended this process ended its Java first
