"""Errors of the source stand above their tracebacks, wherever Spark meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.days.days_of_events import DAY_1, JOBSET, at
from tests.spark.conftest import Peer
from tidelog.days.writer import Writer
from tidelog.errors import ServerUnreachable
from tidelog.spark.jobs.query_error import explained
from tidelog.spark.source.told_first import Problem, ToldFirst

pytestmark = pytest.mark.xdist_group("spark")

AHEAD = 9_999_999_999_999_999


def failing(work: Callable[[], Any]) -> tuple[str, Exception]:
    with pytest.raises(PySparkException) as caught:
        work()
    return str(caught.value), caught.value


def run_query(spark: SparkSession, **options: Any) -> None:
    frame = spark.readStream.format("tidelog").options(**options).load("feed:*")
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()


def test_errors_of_planning_and_of_tasks(spark: SparkSession, tide: Peer) -> None:
    Writer(tide.client, JOBSET).write([at(1, 1)])
    tide.client.delete(JOBSET.hot(DAY_1).key)

    def count(target: str, **options: Any) -> Any:
        return lambda: spark.read.format("tidelog").options(url=tide.url, **options).load(target).count()

    for work, message, inside in (
        (count("stream:a", x=1), "BadOption: a stream that is read has no option 'x'", "options.py"),
        (count("feed:*", since=AHEAD), "BadOption: since=", "position.py"),
        (count("days:queue/jobs"), "DayGone: {queue_jobs}_2024-05-01", "reading.py"),
    ):
        text, _ = failing(work)
        assert message in "".join(text.splitlines()[:6]), text
        assert text.index(message) < text.index(inside)


def test_errors_of_queries_without_end(spark: SparkSession, tide: Peer) -> None:
    text, error = failing(lambda: run_query(spark, url=tide.url, start=AHEAD))
    assert f"tidelog.Problem: start={AHEAD} lies ahead" in text.splitlines()[0]
    assert str(explained(error, None)).startswith(f"start={AHEAD} lies ahead")
    text, error = failing(lambda: run_query(spark, url="redis://127.0.0.1:1"))
    assert "tidelog.Problem: redis://127.0.0.1:1: " in text.splitlines()[0]
    assert isinstance(explained(error, None), ServerUnreachable)


def test_an_error_stays_what_it_is() -> None:
    class Base(ToldFirst):
        def read(self) -> Any:
            yield 1
            raise ServerUnreachable("gone")

    class Outer(ToldFirst):
        def read(self) -> Any:
            return Base().read()

    found = []
    with pytest.raises(ServerUnreachable, match="gone") as caught:
        found.extend(Outer().read())
    assert found == [1]
    assert type(caught.value.__cause__) is Problem
    [note] = caught.value.__notes__
    assert note.startswith("It was raised here:\n")
    assert "ServerUnreachable" in note
