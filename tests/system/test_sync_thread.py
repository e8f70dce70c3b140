"""The thread that fsyncs: order, errors, and whose thread is whose."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.ids import ShardId
from tidelog.journal.durability import FsyncPolicy, SyncJob
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk
from tidelog.system.sync_thread import SyncThread

WAIT_S = 10


class Job:
    """Waits to be let go, then ends as it was told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.error = error
        self.thread = ""

    def run(self) -> None:
        self.thread = threading.current_thread().name
        assert self.go.wait(WAIT_S)
        if self.error is not None:
            raise self.error


@pytest.fixture
def thread() -> Iterator[SyncThread[Job]]:
    sync_thread: SyncThread[Job] = SyncThread()
    yield sync_thread
    sync_thread.close()


def test_a_job_runs_elsewhere_and_comes_back_when_asked_for(thread: SyncThread[Job]) -> None:
    job = Job()
    thread.start(job)
    assert thread.jobs_under_way == 1
    assert thread.poll() is None
    assert thread.wait(0.01) is None
    job.go.set()
    assert thread.wait(WAIT_S) == (job, None)
    assert thread.jobs_under_way == 0
    assert job.thread == "tidelog-sync"


def test_without_a_job_there_is_nothing_to_wait_for(thread: SyncThread[Job]) -> None:
    assert thread.poll() is None
    assert thread.wait() is None


def test_jobs_come_back_in_order(thread: SyncThread[Job]) -> None:
    jobs = [Job() for _ in range(5)]
    for job in jobs:
        thread.start(job)
    for job in reversed(jobs):
        job.go.set()
    assert [finished.job for _ in jobs if (finished := thread.wait(WAIT_S))] == jobs


def test_an_error_of_the_machine_comes_back_with_the_job_and_the_thread_goes_on(thread: SyncThread[Job]) -> None:
    failing, fine = Job(OSError(5, "Input/output error")), Job()
    for job in (failing, fine):
        job.go.set()
        thread.start(job)
    assert thread.wait(WAIT_S) == (failing, failing.error)
    assert thread.wait(WAIT_S) == (fine, None)


def test_a_bug_is_raised_where_the_owner_asks(thread: SyncThread[Job]) -> None:
    job = Job(ZeroDivisionError())
    job.go.set()
    thread.start(job)
    with pytest.raises(ZeroDivisionError):
        thread.wait(WAIT_S)
    assert thread.jobs_under_way == 0


def test_closing_finishes_what_was_started() -> None:
    thread: SyncThread[Job] = SyncThread()
    job = Job()
    job.go.set()
    thread.start(job)
    thread.close()
    thread.close()
    assert thread.poll() == (job, None)


def test_it_makes_a_journal_durable(tmp_path: Path) -> None:
    clock = SystemClock()
    settings = Settings(Geometry(4096, 4), 1, FsyncPolicy.ALWAYS)
    journal = Journal.open(
        SystemDisk(), str(tmp_path / "data"), clock, settings, apply=lambda _, __: None, new_epoch_id=lambda: 1
    )
    thread: SyncThread[SyncJob] = SyncThread()
    for number in range(50):
        ts = journal.hlc.next()
        journal.writer.append_one(ShardId(0), ts, VAL, encode_pairs([(b"k", b"%d" % number)]))
        journal.writer.write()
        assert journal.writer.durable_ts < ts
        job = journal.writer.begin_sync(clock.monotonic_us())
        assert job is not None
        thread.start(job)
        finished = thread.wait(WAIT_S)
        assert finished is not None
        journal.writer.finish_sync(*finished)
        assert journal.writer.durable_ts == ts
    thread.close()
    journal.close()
