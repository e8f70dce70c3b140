"""Compressing a day: what it leaves, what it refuses, and what becomes of it when it is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from itertools import count
from typing import Any

import pytest

from tests.days.days_of_events import DAY_1, DAY_2, JOBSET, at, everything, index_of, on
from tests.days.servers import Servers
from tests.integration.server_process import environment
from tidelog import limits
from tidelog.days import compressor
from tidelog.days.batch import pack, unpack_entry
from tidelog.days.compressor import Compressed, Outcome, compress_day, compression
from tidelog.days.fence import check_fence, lower_fence, raise_fence
from tidelog.days.lease import Lease
from tidelog.days.message import EventId, Message
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer
from tidelog.errors import Contended, Corruption, FencedOff, FormatError

HOT, COMPRESSED = JOBSET.hot(DAY_1).key, JOBSET.compressed(DAY_1).key


def test_a_day_becomes_batches_under_the_highest_id_in_them(any_server: Any) -> None:
    messages = on(1, range(30))
    Writer(any_server, JOBSET).write(messages)
    result = compress_day(any_server, JOBSET, DAY_1, 1, batch_bytes_max=80)
    assert index_of(any_server) == {COMPRESSED}
    assert not any_server.exists(HOT)
    entries = any_server.xrange(COMPRESSED)
    batches = [unpack_entry(COMPRESSED, *entry) for entry in entries]
    assert [entry_id.decode() for entry_id, _ in entries] == [str(batch[-1].id) for batch in batches]
    assert all(sum(len(each.event) for each in batch) <= 80 for batch in batches)
    assert [message for batch in batches for message in batch] == messages
    event_bytes, packed_bytes = sum(len(each.event) for each in messages), sum(len(e[b"batch2"]) for _, e in entries)
    assert result[:5] == (Outcome.COMPRESSED, 30, len(entries), event_bytes, packed_bytes)
    assert result.memory.compressed_bytes == any_server.memory_usage(COMPRESSED, samples=0)
    assert not any_server.exists(JOBSET.fence), "the fence is not needed any more"
    assert everything(any_server) == messages


def test_batches_have_up_to_4_mb_and_a_larger_event_is_alone(server: Any) -> None:
    sizes = [1_500_000, 2_500_000, 1, 5_000_000, 3_999_999, 1, 1]
    Writer(server, JOBSET).write([at(1, n, b"%d" % n + bytes(size - 1)) for n, size in enumerate(sizes)])
    compress_day(server, JOBSET, DAY_1, 1)
    found = [[len(m.event) for m in unpack_entry(COMPRESSED, *entry)] for entry in server.xrange(COMPRESSED)]
    assert found == [[1_500_000, 2_500_000], [1], [5_000_000], [3_999_999, 1], [1]]


def test_a_batch_of_tiny_events_ends_before_they_are_too_many(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_BATCH_MESSAGES_MAX", 4)
    messages = [at(1, n, b"") for n in range(10)]
    Writer(server, JOBSET).write(messages)
    compress_day(server, JOBSET, DAY_1, 1)
    assert [len(unpack_entry(COMPRESSED, *entry)) for entry in server.xrange(COMPRESSED)] == [4, 4, 2]
    assert everything(server) == messages


def test_times_that_are_not_in_the_id_survive(server: Any) -> None:
    messages = [Message(EventId(n, 1), at(1, n).timestamp_ms, b"{}") for n in range(1, 5)]
    Writer(server, JOBSET).write(messages)
    compress_day(server, JOBSET, DAY_1, 1)
    assert everything(server) == messages


def test_there_may_be_nothing_to_do(any_server: Any) -> None:
    assert compress_day(any_server, JOBSET, DAY_1, 1) == Compressed(Outcome.MISSING)
    Writer(any_server, JOBSET).write(on(1, range(3)))
    compress_day(any_server, JOBSET, DAY_1, 1)
    before = any_server.xrange(COMPRESSED)
    assert compress_day(any_server, JOBSET, DAY_1, 2) == Compressed(Outcome.ALREADY)
    assert any_server.xrange(COMPRESSED) == before


def test_an_empty_stream_is_left_as_it_is(server: Any) -> None:
    Writer(server, JOBSET).write([at(1, 1)])
    server.xdel(HOT, str(at(1, 1).id))
    assert compress_day(server, JOBSET, DAY_1, 1).outcome is Outcome.EMPTY
    assert index_of(server) == {HOT}


def test_a_half_written_stream_is_begun_anew(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(on(1, range(9)))
    any_server.xadd(COMPRESSED, {"batch": b"nonsense"}, id=str(at(1, 100).id))
    assert compress_day(any_server, JOBSET, DAY_1, 1).messages == 9
    assert everything(any_server) == on(1, range(9))


def test_a_swap_that_another_left_half_done_is_finished(server: Any) -> None:
    messages = on(1, range(3))
    Writer(server, JOBSET).write(messages)
    server.xadd(COMPRESSED, {"batch": pack(messages)}, id=str(messages[-1].id))
    server.sadd(JOBSET.index, COMPRESSED)
    assert compress_day(server, JOBSET, DAY_1, 1).outcome is Outcome.COMPRESSED
    assert index_of(server) == {COMPRESSED}
    assert everything(server) == messages


def test_a_swap_that_another_left_after_removing_the_hot_stream_is_finished(server: Any) -> None:
    messages = on(1, range(3))
    server.xadd(COMPRESSED, {"batch": pack(messages)}, id=str(messages[-1].id))
    server.sadd(JOBSET.index, COMPRESSED, HOT)
    assert compress_day(server, JOBSET, DAY_1, 1).outcome is Outcome.COMPRESSED
    assert index_of(server) == {COMPRESSED}
    assert everything(server) == messages


def test_a_fence_that_is_none_is_named(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(3)))
    server.set(JOBSET.fence, "x")
    with pytest.raises(FormatError, match=r"_fence: b'x' is not a token"):
        compress_day(server, JOBSET, DAY_1, 1)
    assert index_of(server) == {HOT}


def test_a_fence_of_another_type_is_none(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(on(1, range(3)))
    any_server.sadd(JOBSET.fence, "x")
    assert compress_day(any_server, JOBSET, DAY_1, 1).outcome is Outcome.COMPRESSED
    assert not any_server.exists(JOBSET.fence)


def test_a_day_that_is_not_a_stream_is_named_and_others_are_compressed(server: Any) -> None:
    Writer(server, JOBSET).write([*on(1, range(3)), *on(2, range(3))])
    server.set(HOT, "x")
    with pytest.raises(FormatError, match=r"_2024-05-01: it is not a stream"):
        compress_day(server, JOBSET, DAY_1, 1)
    assert compress_day(server, JOBSET, DAY_2, 1).outcome is Outcome.COMPRESSED


def test_two_streams_that_differ_are_left_for_a_person(server: Any) -> None:
    messages = on(1, range(3))
    Writer(server, JOBSET).write(messages)
    server.xadd(COMPRESSED, {"batch": pack(messages[:2])}, id=str(messages[1].id))
    server.sadd(JOBSET.index, COMPRESSED)
    with pytest.raises(Corruption, match=r"2 messages up to .* are not the 3"):
        compress_day(server, JOBSET, DAY_1, 1)
    assert everything(server) == messages


# --- others, meanwhile ------------------------------------------------------------------------------------------------


def test_a_day_that_is_appended_to_is_begun_anew(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET)
    writer.write(on(1, range(10)))
    steps = compression(any_server, JOBSET, DAY_1, 1, batch_bytes_max=30)
    taken = []
    for number, step in enumerate(steps):
        taken.append(step)
        if number in (1, 4):
            writer.write([at(1, 50 + number)])
        assert everything(any_server) == sorted(everything(any_server))
    assert taken.count("begun anew") == 2
    assert everything(any_server) == on(1, [*range(10), 51, 54])


def test_a_day_that_never_rests_is_given_up(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(10)))
    numbers = count(50)
    with pytest.raises(Contended, match="is its day over"):
        compress_day(server, JOBSET, DAY_1, 1, on_step=lambda _: writer.write([at(1, next(numbers))]))
    assert index_of(server) == {HOT}


def test_a_day_that_expires_meanwhile_stays_away(server: Any) -> None:
    for cut in range(10):
        server.flushall()
        Writer(server, JOBSET).write(on(1, range(10)))
        steps = compression(server, JOBSET, DAY_1, 1, batch_bytes_max=30)
        for _ in range(cut + 1):
            next(steps, None)
        expire_days(server, JOBSET, keep_days=0, today=DAY_2)
        for _ in steps:
            pass
        assert index_of(server) == set()
        assert not server.exists(HOT)
        assert not server.exists(COMPRESSED)


@pytest.mark.parametrize("cut", range(9))
def test_a_job_that_was_replaced_changes_nothing_more(server: Any, cut: int) -> None:
    messages = on(1, range(10))
    Writer(server, JOBSET).write(messages)
    steps = compression(server, JOBSET, DAY_1, 1, batch_bytes_max=30)
    taken = [next(steps) for _ in range(cut)] if cut else []
    if "swapped" in taken:
        return
    raise_fence(server, JOBSET, 2)
    before = server.xrange(COMPRESSED)
    with pytest.raises(FencedOff, match="is at 2"):
        taken.extend(steps)
    assert server.xrange(COMPRESSED) == before
    assert index_of(server) == {HOT}
    assert compress_day(server, JOBSET, DAY_1, 2).messages == 10
    assert everything(server) == messages


def test_two_jobs_at_the_same_time(server: Any) -> None:
    messages = on(1, range(20))
    rng = random.Random(7)
    for _ in range(15):
        server.flushall()
        Writer(server, JOBSET).write(messages)
        jobs = [compression(server, JOBSET, DAY_1, token, batch_bytes_max=30) for token in (1, 2)]
        while jobs:
            job = rng.choice(jobs)
            try:
                next(job)
            except (StopIteration, FencedOff):
                jobs.remove(job)
            assert everything(server) == messages
        assert index_of(server) == {COMPRESSED}


def test_what_another_version_compressed_is_read_beside_ours(server: Any) -> None:
    Writer(server, JOBSET).write([*on(1, range(5)), *on(2, range(5))])
    compress_day(server, JOBSET, DAY_2, 1)
    server.xadd(COMPRESSED, {"batch": pack(on(1, range(5)))}, id=str(at(1, 4).id))
    server.sadd(JOBSET.index, COMPRESSED)
    server.srem(JOBSET.index, HOT)
    assert everything(server) == [*on(1, range(5)), *on(2, range(5))]
    assert Writer(server, JOBSET).write(on(1, range(5))) == (0, 5, 0)


def test_what_a_batch_cannot_keep_is_not_compressed(server: Any) -> None:
    Writer(server, JOBSET).write([at(1, 1)])
    server.xadd(HOT, {"event": "{}", "more": "x"}, id=str(at(1, 2).id))
    with pytest.raises(FormatError, match="more"):
        compress_day(server, JOBSET, DAY_1, 1)
    assert index_of(server) == {HOT}


def test_a_batch_that_was_not_written_right_is_noticed(server: Any) -> None:
    messages = on(1, range(10))
    Writer(server, JOBSET).write(messages)
    steps = compression(server, JOBSET, DAY_1, 1)
    while next(steps) != "batch written":
        pass
    server.delete(COMPRESSED)
    changed = [*messages[:-1], messages[-1]._replace(event=b'"other"')]
    server.xadd(COMPRESSED, {"batch": pack(changed)}, id=str(messages[-1].id))
    with pytest.raises(Corruption, match="which was left as it is"):
        next(steps)
    assert everything(server) == messages


def test_a_large_day_is_read_in_small_pages(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_PAGE_BYTES", 2000)
    messages = [at(1, n, b"x" * (n % 40 * 10 + 1)) for n in range(1000)]
    Writer(server, JOBSET).write(messages)
    assert compress_day(server, JOBSET, DAY_1, 1, batch_bytes_max=5000).messages == 1000
    assert everything(server) == messages


# --- the fence that all job sets share --------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(8))
def test_a_job_that_was_replaced_changes_nothing_also_when_its_successor_has_gone(any_server: Any, cut: int) -> None:
    """Its successor has compressed another day, and left no fence at this job set."""
    messages = [*on(1, range(10)), *on(2, range(10))]
    Writer(any_server, JOBSET).write(messages)
    earlier, later = (Lease.take(any_server, "days"), Lease.take(any_server, "days"))
    assert earlier is not None
    assert later is None
    steps = compression(any_server, JOBSET, DAY_1, earlier.token, batch_bytes_max=30)
    for _ in range(cut):
        next(steps)
    any_server.delete("tidelog:pipeline:lease:days")  # it expired
    later = Lease.take(any_server, "days")
    assert later is not None
    assert compress_day(any_server, JOBSET, DAY_2, later.token).outcome is Outcome.COMPRESSED
    later.release()
    assert any_server.keys(JOBSET.fence) == []
    before = any_server.xrange(COMPRESSED)
    with pytest.raises(FencedOff, match=f"tidelog:pipeline:fence:days is at {later.token}"):
        list(steps)
    assert any_server.xrange(COMPRESSED) == before
    assert HOT in index_of(any_server)
    with pytest.raises(FencedOff):
        expire_days(any_server, JOBSET, keep_days=0, today=DAY_2, token=earlier.token)
    assert everything(any_server) == messages


def test_what_was_decided_before_a_later_job_came_is_not_done_after_it(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later job comes between the look at the tokens and the change, and leaves no fence."""
    Writer(server, JOBSET).write([*on(1, range(10)), *on(2, range(10))])
    earlier = Lease.take(server, "days")
    assert earlier is not None
    steps = compression(server, JOBSET, DAY_1, earlier.token)
    while next(steps) != "verified":
        pass
    original, left = check_fence, [1]

    def then(*arguments: Any) -> int:
        found = original(*arguments)
        if left:
            left.pop()
            server.delete("tidelog:pipeline:lease:days")
            later = Lease.take(server, "days")
            assert later is not None
            raise_fence(server, JOBSET, later.token)
            lower_fence(server, JOBSET, later.token)
        return found

    monkeypatch.setattr(compressor, "check_fence", then)
    with pytest.raises(FencedOff):
        list(steps)
    assert HOT in index_of(server)


def test_the_fence_of_a_job_that_was_killed_ends_by_itself(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(on(1, range(10)))
    steps = compression(any_server, JOBSET, DAY_1, 1)
    next(steps)
    assert 0 < any_server.pttl(JOBSET.fence) <= limits.DAYS_FENCE_MS


def test_no_outcome_leaves_a_fence(server: Any) -> None:
    Writer(server, JOBSET).write([at(1, 1)])
    assert compress_day(server, JOBSET, DAY_2, 1).outcome is Outcome.MISSING
    assert compress_day(server, JOBSET, DAY_1, 1, saving_min=0.9).outcome is Outcome.LEFT_HOT
    server.xadd(HOT, {"else": "x"}, id=str(at(1, 2).id))
    with pytest.raises(FormatError):
        compress_day(server, JOBSET, DAY_1, 1)
    assert not server.exists(JOBSET.fence)


# --- killed -----------------------------------------------------------------------------------------------------------

_JOB = """
import sys
from datetime import date
import redis
from tidelog.days import JobSet, Lease, compress_day

server = redis.Redis(port=int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
compress_day(server, JobSet("queue", "jobs"), date(2024, 5, 1), int(sys.argv[2]), batch_bytes_max=2000)
"""


@pytest.mark.parametrize("kind", ["tidelog", pytest.param("redis", marks=pytest.mark.long)])
def test_killed_at_any_moment_nothing_is_lost_and_the_next_run_finishes(servers: Servers, kind: str) -> None:
    server = servers.client(kind)
    messages = [at(1, n, b'{"n": %d, "text": "%s"}' % (n, b"x" * 100)) for n in range(1500)]
    rng = random.Random(5)
    unfinished = 0
    for kill in range(6):
        server.flushall()
        Writer(server, JOBSET).write(messages)
        with subprocess.Popen(
            [sys.executable, "-c", _JOB, str(servers.port(kind)), "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        ) as job:
            assert job.stdin is not None
            assert job.stdout is not None
            assert job.stdout.readline() == b"ready\n"
            job.stdin.write(b"go\n")
            job.stdin.flush()
            batches = rng.randrange(60) if kill else 0
            while server.xlen(COMPRESSED) < batches and job.poll() is None:
                time.sleep(0.0005)
            job.kill()
        unfinished += index_of(server) == {HOT}
        assert everything(server) == messages
        assert compress_day(server, JOBSET, DAY_1, 2).outcome in (Outcome.COMPRESSED, Outcome.ALREADY)
        assert index_of(server) == {COMPRESSED}
        assert everything(server) == messages
    assert unfinished >= 3
    server.close()


@pytest.mark.parametrize("reached", ["half-written stream removed", "batch written", "verified"])
@pytest.mark.parametrize("later_steps", [2, 3, 20])
def test_of_two_attempts_with_one_token_one_gives_up(any_server: Any, reached: str, later_steps: int) -> None:
    """A scheduler may try again what still runs: the fence cannot tell the two apart."""
    messages = on(1, range(30))
    Writer(any_server, JOBSET).write(messages)
    earlier = compression(any_server, JOBSET, DAY_1, 1, batch_bytes_max=200)
    while next(earlier) != reached:
        pass
    later = compression(any_server, JOBSET, DAY_1, 1, batch_bytes_max=200)
    for _ in zip(range(later_steps), later, strict=False):
        pass
    gave_up = 0
    for attempt in (earlier, later):
        try:
            list(attempt)
        except Contended:
            gave_up += 1
        assert everything(any_server) == messages
    assert gave_up < 2
    compress_day(any_server, JOBSET, DAY_1, 1)
    assert index_of(any_server) == {COMPRESSED}
    assert everything(any_server) == messages


def test_whoever_counts_bytes_is_told_all_that_was_read_and_written(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(30)))
    sizes: list[int] = []
    result = compress_day(server, JOBSET, DAY_1, 1, batch_bytes_max=80, on_bytes=sizes.append)
    assert sum(sizes) == result.event_bytes + 2 * result.packed_bytes
