"""Day streams against a ledger: whatever writers, jobs, retention and readers do at the same time, in any order.

One step of one actor at a time, drawn from a seed: a writer writes a few messages (some of them again, some out of
order), a job takes a step of compressing some day or is abandoned half-way, retention removes what is old, a reader
reads a page. The ledger knows which ids were taken as written, in which order, and which of them retention has removed.
At every moment:

    a reader sees increasing ids, all of them written, with the events that were written
    between what it saw and what it sees nothing was left out, unless it was told that a day is gone
    all messages are written, duplicates of what was written, or in the dead letters
    whoever reads from the beginning sees exactly what was written and not removed
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from datetime import date, timedelta
from random import Random
from typing import Any, Final

import pytest

from tests.days.days_of_events import DAY_MS, MAY_MS
from tests.days.servers import Servers, servers
from tidelog import limits
from tidelog.days.compressor import Compressed, compress_day, compression
from tidelog.days.index import read_index
from tidelog.days.jobset import JobSet
from tidelog.days.message import ZERO, EventId, Message, parse_id
from tidelog.days.reader import BEGINNING, NOW, Reader
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer
from tidelog.errors import Contended, DayGone, FencedOff

__all__ = ["servers"]

JOBSET: Final = JobSet("queue", "jobs")
STEPS: Final = 250


class Run:
    """One run of all actors on one server."""

    def __init__(self, server: Any, seed: int) -> None:
        self.server = server
        self.random = Random(seed)
        self.now_s = 0.0
        self.day = 0
        """Of May, from 0; it only goes on."""
        self.number = 0
        self.given: list[Message] = []
        """Every message that was ever given to a writer."""
        self.written: list[Message] = []
        self.removed_through: EventId = ZERO
        self.token = 0
        self.jobs: list[Generator[str, None, Compressed]] = []
        self.readers: list[ReaderAtWork] = []
        self.writer = Writer(server, JOBSET, sleep=lambda _: None)
        self.late = 0
        self.swaps = 0
        self.gone = 0

    def step(self) -> None:
        actions = [self.write] * 6 + [self.read] * 8 + [self.work] * 8
        actions += [self.next_day, self.begin_job, self.begin_job, self.begin_reader, self.expire, self.compare]
        self.random.choice(actions)()
        self.now_s += self.random.choice([0, 0.1, 2])

    # --- writing ----------------------------------------------------------------------------------------------------

    def next_day(self) -> None:
        self.day += self.random.choice([1, 1, 2])

    def fresh(self) -> Message:
        """Usually the next one; sometimes one that is out of order or of an earlier day."""
        self.number += self.random.choice([1, 2, 5])
        back = self.random.choice([0] * 12 + [1, 3])
        day = self.day - self.random.choice([0] * 12 + [1, 2])
        ms = MAY_MS + DAY_MS * day + (self.number if day == self.day else 0)
        # The id goes on over all days; time is another matter.
        return Message(
            EventId(1000 + self.number - back, self.random.choice([0, 0, 1])), ms, b"%d" % self.random.randrange(10**9)
        )

    def write(self) -> None:
        chunk: list[Message] = []
        for _ in range(self.random.randrange(1, 6)):
            is_retry = self.given and self.random.random() < 0.25
            message = self.random.choice(self.given[-40:]) if is_retry else self.fresh()
            if not is_retry and any(each.id == message.id for each in [*self.given, *chunk]):
                continue  # an id stands for one message
            chunk.append(message)
        before = {each.id for each in self.written}
        result = self.writer.write(chunk)
        assert sum(result) == len(chunk)
        self.given += [each for each in chunk if each not in self.given]
        found = {each.id for each in self.stored()}
        fresh: list[Message] = []
        for each in chunk:
            if each.id in found and each.id not in before and each not in fresh:
                fresh.append(each)
        assert result.written == len(fresh)
        self.written += fresh
        assert [each.id for each in self.written] == sorted(each.id for each in self.written)
        dead = {parse_id(values[b"id"]) for _, values in self.server.xrange(JOBSET.late)}
        for each in chunk:
            assert each.id in found or each.id in dead
        self.late = len(dead)

    def stored(self) -> list[Message]:
        return list(Reader(self.server, JOBSET).until_now())

    def compare(self) -> None:
        assert self.stored() == [each for each in self.written if each.id > self.removed_through]

    # --- jobs -------------------------------------------------------------------------------------------------------

    def begin_job(self) -> None:
        days = sorted({each.day for each in self.written})
        if days:
            self.token += 1
            day = self.random.choice(days)
            self.jobs.append(compression(self.server, JOBSET, day, self.token, batch_bytes_max=25))
            if len(self.jobs) > 3:
                self.jobs.pop(0)  # killed

    def work(self) -> None:
        if not self.jobs:
            return
        job = self.random.choice(self.jobs)
        try:
            for _ in range(self.random.randrange(1, 6)):
                self.swaps += next(job) == "swapped"
        except (StopIteration, FencedOff, Contended):
            self.jobs.remove(job)

    def expire(self) -> None:
        today = date(2024, 5, 1) + timedelta(days=self.day)
        removed = expire_days(self.server, JOBSET, keep_days=self.random.choice([2, 3, 4]), today=today)
        for each in self.written:
            if each.day in removed:
                self.removed_through = max(self.removed_through, each.id)

    # --- reading ----------------------------------------------------------------------------------------------------

    def begin_reader(self) -> None:
        start: Any = self.random.choice([BEGINNING, NOW, "id"])
        if start == "id":
            start = self.random.choice(self.given).id if self.given else ZERO
        self.readers.append(ReaderAtWork(self, start))
        if len(self.readers) > 4:
            self.readers.pop(0)

    def read(self) -> None:
        if self.readers:
            self.random.choice(self.readers).read()


class ReaderAtWork:
    """A reader, and what it has to see."""

    def __init__(self, run: Run, start: Any) -> None:
        self._run = run
        self._reader = Reader(
            run.server,
            JOBSET,
            start,
            wall=lambda: (MAY_MS + DAY_MS * run.day) / 1000,
            monotonic=lambda: run.now_s,
            sleep=lambda _: None,
        )
        self._at = self._reader.position
        if start is NOW:
            assert self._at == max([each.id for each in run.written] or [ZERO])
        self._may_skip = start is not NOW
        """What was removed before it began to read is not missed."""

    def read(self) -> None:
        run = self._run
        try:
            page = self._reader.read(run.random.choice([1, 3, 100]))
        except DayGone:
            run.gone += 1
            assert any(self._at < each.id <= run.removed_through for each in run.written)
            self._may_skip = True
            return
        if page:
            following = [each for each in run.written if each.id > self._at]
            if self._may_skip:
                first = next(index for index, each in enumerate(following) if each.id == page[0].id)
                assert all(each.id <= run.removed_through for each in following[:first])
                following = following[first:]
            assert page == following[: len(page)]
            self._at = page[-1].id
            self._may_skip = False

    def finish(self) -> None:
        """Reads to the end: nothing that still exists is missing."""
        idle = 0
        while idle < 3:  # one of them may be told that a day is gone
            self._run.now_s += 100
            before = self._at
            self.read()
            idle = idle + 1 if self._at == before else 0
        rest = [each for each in self._run.written if each.id > max(self._at, self._run.removed_through)]
        assert rest == []


def run_all(server: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(limits, "DAYS_PAGE_ENTRIES_MAX", 16)
    run = Run(server, seed)
    for _ in range(STEPS):
        run.step()
    run.compare()
    for reader in run.readers:
        reader.finish()
    for job in run.jobs:
        job.close()
    return run


@pytest.mark.parametrize("kind", ["tidelog-RESP2", "redis-RESP3", "cluster"])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_doubled_or_reordered(
    servers: Servers, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.client(kind)
    run_all(server, seed, monkeypatch)
    server.close()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["tidelog-RESP3", "redis-RESP2"])
def test_nothing_is_lost_doubled_or_reordered_in_many_runs(
    servers: Servers, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {"late": 0, "swaps": 0, "gone": 0}
    for seed in range(1000, 1100):
        server = servers.client(kind)
        run = run_all(server, seed, monkeypatch)
        for name in seen:
            seen[name] += getattr(run, name)
        server.close()
    assert all(count > 20 for count in seen.values()), seen


@pytest.mark.parametrize("kind", ["tidelog-RESP2", "redis-RESP2", "cluster"])
def test_threads_that_write_compress_and_read_at_the_same_time(servers: Servers, kind: str) -> None:
    """Not one step after the other: here WATCH has to notice what others do."""
    server = servers.client(kind)
    messages = [
        Message(EventId(1 + number, 0), MAY_MS + DAY_MS * (number // 100), b"%d" % number) for number in range(800)
    ]
    stop = threading.Event()
    failures: list[BaseException] = []
    seen: list[list[Message]] = [[], []]

    def write(seed: int) -> None:
        random, writer, at = Random(seed), Writer(server, JOBSET), 0
        while at < len(messages):
            count = random.randrange(1, 20)
            writer.write(messages[at : at + count])  # both write all: one of them each time finds duplicates
            at += count

    def compress() -> None:
        token = 0
        while not stop.is_set():
            token += 1
            streams = read_index(server, JOBSET).streams
            for stream in streams[:-1] if streams else []:
                compress_day(server, JOBSET, stream.day, token, batch_bytes_max=100)

    def read(number: int) -> None:
        reader = Reader(server, JOBSET, index_s=0.01)
        while len(seen[number]) < len(messages) and not stop.is_set():
            seen[number] += reader.read(17, wait_s=0.1)

    def noting(work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as failure:
            failures.append(failure)
            stop.set()
            raise

    writing = [threading.Thread(target=noting, args=(write, seed)) for seed in (1, 2)]
    reading = [threading.Thread(target=noting, args=(read, number)) for number in (0, 1)]
    compressing = threading.Thread(target=noting, args=(compress,))
    for thread in (*writing, *reading, compressing):
        thread.start()
    for thread in (*writing, *reading):
        thread.join(100)
    stop.set()
    compressing.join(100)
    assert failures == []
    assert seen[0] == seen[1] == messages
    assert server.xlen(JOBSET.late) == 0
    server.close()
