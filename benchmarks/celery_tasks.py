"""The tasks of `benchmarks.celery`, and the clock in the worker that runs them.

A worker of Celery imports this module; its environment says where the server is, how many tasks will come and where to
write how long they took. The time runs from the start of the first task to the end of the last, so that starting and
ending the worker do not count.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import task_postrun, task_prerun

URL_VARIABLE = "BENCHMARK_URL"
TASKS_VARIABLE = "BENCHMARK_TASKS"
RESULT_VARIABLE = "BENCHMARK_RESULT"


def make_app(url: str) -> Celery:
    app = Celery("benchmark", broker=url, backend=url)
    app.conf.broker_connection_retry_on_startup = True

    app.task(_do_nothing, shared=False, name="forget", ignore_result=True)
    app.task(_do_nothing, shared=False, name="keep")
    return app


def _do_nothing() -> None:
    pass


class Stopwatch:
    """Writes the seconds that so many tasks took to a file."""

    def __init__(self, tasks: int, result: Path) -> None:
        self._left = tasks
        self._result = result
        self._began_s = 0.0
        task_prerun.connect(self._begin)
        task_postrun.connect(self._end)

    def _begin(self, **_: Any) -> None:
        self._began_s = self._began_s or time.perf_counter()

    def _end(self, **_: Any) -> None:
        self._left -= 1
        if self._left == 0:
            # Renamed when it is whole: somebody waits for it.
            part = self._result.with_suffix(".part")
            part.write_text(str(time.perf_counter() - self._began_s))
            part.rename(self._result)


if URL_VARIABLE in os.environ:  # in a worker process
    app = make_app(os.environ[URL_VARIABLE])
    stopwatch = Stopwatch(int(os.environ[TASKS_VARIABLE]), Path(os.environ[RESULT_VARIABLE]))
