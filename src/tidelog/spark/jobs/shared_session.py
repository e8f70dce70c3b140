"""One Spark session for several jobs: started when the first of them needs it, with a pool of tasks for each kind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from tidelog.spark.jobs.lazy_session import LazySession
from tidelog.spark.jobs.pools import use_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSession:
    """Any thread may ask for it."""

    def __init__(self, session: LazySession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._made: SparkSession | None = None

    def in_pool(self, pool: str | None) -> Callable[[], SparkSession]:
        """What gives a job the session; the thread that calls it runs its Spark jobs in this pool."""

        def make() -> SparkSession:
            with self._lock:
                made = self._made = self._session()
            use_pool(made, pool)
            return made

        return make

    def is_over(self) -> bool:
        """It was made, and Spark has ended since."""
        if self._made is None:
            return False
        java: Any = self._made.sparkContext._jsc
        try:
            return java is None or bool(java.sc().isStopped())
        except (Py4JError, OSError):
            return True
