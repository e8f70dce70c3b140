"""A job that stays outlives a server that goes away for a while."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.errors import ServerUnreachable
from tidelog.spark.jobs.feed_query import while_it_answers
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.query_error import explained


class Runs:
    """Fails so many times."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self.count <= self._failures:
            raise ServerUnreachable("it is gone")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINE_REPORT_S", 0.01)
    monkeypatch.setattr(limits, "SPARK_FEED_LOST_S", 0.1)


def test_it_is_run_again() -> None:
    run = Runs(3)
    while_it_answers(run, Stop(), is_once=False)
    assert run.count == 4


def test_not_for_ever() -> None:
    run = Runs(1000)
    with pytest.raises(ServerUnreachable):
        while_it_answers(run, Stop(), is_once=False)
    assert 3 < run.count < 30


def test_not_if_it_takes_what_there_is_or_is_stopped() -> None:
    run = Runs(1)
    with pytest.raises(ServerUnreachable):
        while_it_answers(run, Stop(), is_once=True)
    stop = Stop()
    stop.because("enough")
    run = Runs(2)
    with pytest.raises(ServerUnreachable):
        while_it_answers(run, stop, is_once=False)
    assert run.count == 1


def test_the_error_is_known_by_its_name_in_what_spark_says() -> None:
    found = explained(RuntimeError("...\ntidelog.client.link.ServerUnreachable: no server answers at x\n"), None)
    assert isinstance(found, ServerUnreachable)


def test_other_errors_are_told_by_what_was_raised_last() -> None:
    told = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "task.py", line 22, in <module>\n    import pyarrow as pa\n'
        "ModuleNotFoundError: No module named 'pyarrow'\n\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)\n"
    )
    found = str(explained(RuntimeError("Job aborted"), RuntimeError(told)))
    assert found.startswith("Spark ended the query: ModuleNotFoundError: No module named 'pyarrow'. Executors need")
    assert "PYSPARK_PYTHON" in found
    assert str(explained(RuntimeError("Job aborted\nbecause"), None)) == "Spark ended the query: Job aborted"
