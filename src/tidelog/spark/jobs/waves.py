"""Runs items on Spark, some at a time: small ones share a task, and each result comes as soon as its task is done.

Results come by an accumulator, which Spark updates once for each task, when the task succeeds. So progress can be
shown, and after a stop it is known what was done. (`collect` returns everything at the end, or nothing.)

A task returns its failures as results, so a Spark job fails only if its processes die. Then the remaining items run
again one by one: the item that kills its process is found, and the others go on.

Spark is called from a thread, so the caller can be interrupted at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Final, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from tidelog import limits
from tidelog.errors import EnvironmentFault

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_S: Final = 0.1
_GROUP: Final = "tidelog-pipeline"


class _Gathered(AccumulatorParam[list[Any]]):
    def zero(self, value: list[Any]) -> list[Any]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
        value1.extend(value2)
        return value1


class _WaveStep(Generic[Item, Result]):
    """What an executor runs for each partition."""

    def __init__(self, task: Callable[[Item], Result], gathered: Accumulator[list[Any]]) -> None:
        self._task = task
        self._gathered = gathered

    def __call__(self, groups: Iterable[Sequence[tuple[int, Item]]]) -> None:
        for group in groups:
            for number, item in group:
                self._gathered.add([(number, self._task(item))])


class Waves(Generic[Item, Result]):
    """The tasks of one job."""

    def __init__(
        self,
        spark: SparkSession,
        stop: threading.Event,
        *,
        on_result: Callable[[Result], object],
        failed: Callable[[Item, str], Result],
    ) -> None:
        self._context = spark.sparkContext
        self._stop = stop
        self._on_result = on_result
        self._failed = failed
        """Makes the result of an item whose task did not finish."""

    @property
    def parallel(self) -> int:
        """How many tasks run at once, as far as Spark knows now."""
        return int(self._context.defaultParallelism)

    def run(
        self,
        items: Sequence[Item],
        task: Callable[[Item], Result],
        size_bytes: Callable[[Item], int | None] | None = None,
    ) -> None:
        """Run a wave. Returns when all items have their results, or when the job is stopped.

        If the sizes of items are known, small ones share a task: a task takes Spark longer than a small item does.
        """
        left, _ = self._run_once(grouped(items, size_bytes), task)
        for item in left:
            if self._stop.is_set():
                return
            again, problem = self._run_once([[item]], task)
            if again and not self._stop.is_set():
                self._on_result(self._failed(item, problem or "its task did not finish"))

    def _run_once(
        self, groups: Sequence[Sequence[Item]], task: Callable[[Item], Result]
    ) -> tuple[list[Item], str | None]:
        """The items that got no result, and why. Each group is a task."""
        numbers = count()
        numbered = [[(next(numbers), item) for item in group] for group in groups]
        gathered = self._context.accumulator([], _Gathered())
        problems: list[str] = []

        def work() -> None:
            try:
                self._context.setJobGroup(_GROUP, _GROUP, interruptOnCancel=True)
                tasks = self._context.parallelize(numbered, len(numbered))
                tasks.foreachPartition(_WaveStep(task, gathered))
            except (Py4JError, PySparkException, OSError) as error:
                problems.append(_reason(error))

        thread = InheritableThread(target=work, daemon=True)
        thread.start()
        left = {number: item for group in numbered for number, item in group}
        seen = 0
        while thread.is_alive() and not self._stop.is_set():
            thread.join(_LOOK_S)
            seen = self._take(gathered, seen, left)
        if thread.is_alive():
            self._cancel(thread)
        self._take(gathered, seen, left)
        gathered.value = []  # Spark keeps accumulators for as long as the session
        if problems and not self._stop.is_set() and self._is_over():
            raise EnvironmentFault(f"Spark has ended: {problems[0]}")
        return list(left.values()), problems[0] if problems else None

    def _take(self, gathered: Accumulator[list[Any]], seen: int, left: dict[int, Item]) -> int:
        for number, result in (found := gathered.value[seen:]):
            if left.pop(number, None) is not None:
                self._on_result(result)
        return seen + len(found)

    def _cancel(self, thread: threading.Thread) -> None:
        try:
            self._context.cancelJobGroup(_GROUP)
        except (Py4JError, OSError):
            return  # Spark has ended already
        thread.join(limits.PIPELINE_STOP_S_MAX)

    def _is_over(self) -> bool:
        java: Any = self._context._jsc
        try:
            return java is None or bool(java.sc().isStopped())
        except (Py4JError, OSError):
            return True


def grouped(items: Sequence[Item], size_bytes: Callable[[Item], int | None] | None) -> list[list[Item]]:
    """The items of each task, in their order. An item whose size is not known has a task of its own."""
    groups: list[list[Item]] = []
    room_bytes = 0
    for item in items:
        size = None if size_bytes is None else size_bytes(item)
        if not groups or size is None or size > room_bytes or len(groups[-1]) >= limits.PIPELINE_TASK_ITEMS:
            groups.append([])
            room_bytes = limits.PIPELINE_TASK_BYTES
        groups[-1].append(item)
        room_bytes = 0 if size is None else room_bytes - size
    return groups


def _reason(error: Exception) -> str:
    """The error in one line, without its stack trace."""
    java = getattr(error, "java_exception", None)
    try:
        text = str(java.getMessage()) if java is not None else str(error)
    except (Py4JError, OSError):
        text = str(error)
    return (text.strip() or type(error).__name__).partition("\n")[0]
