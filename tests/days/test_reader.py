"""Reading: from anywhere, across days, and through what happens to streams meanwhile."""

from __future__ import annotations

import threading
from datetime import date
from itertools import islice
from typing import Any

import pytest

from tests.days.days_of_events import DAY_1, DAY_2, DAY_MS, JOBSET, MAY_MS, at, everything, on, sent
from tidelog import limits
from tidelog.days.batch import pack
from tidelog.days.compressor import compress_day
from tidelog.days.message import EventId, Message
from tidelog.days.reader import BEGINNING, NOW, Reader
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer
from tidelog.errors import DayGone, FormatError

MESSAGES = [*on(1, range(6)), *on(2, range(6)), *on(3, range(6))]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, day: int) -> None:
        self.now_s = (MAY_MS + (day - 1) * DAY_MS) / 1000

    def __call__(self) -> float:
        return self.now_s


def reader_on(server: Any, clock: Clock, **options: Any) -> Reader:
    return Reader(server, JOBSET, wall=clock, monotonic=clock, sleep=lambda _: None, **options)


@pytest.fixture(params=[(), (1,), (1, 2), (1, 2, 3), (2,)], ids=lambda days: f"compressed-{days}")
def filled(request: pytest.FixtureRequest, any_server: Any) -> Any:
    """Three days, some of them compressed."""
    Writer(any_server, JOBSET).write(MESSAGES)
    for day in request.param:
        compress_day(any_server, JOBSET, date(2024, 5, day), 1, batch_bytes_max=20)
    return any_server


def test_from_the_beginning_and_after_every_id(filled: Any) -> None:
    assert list(Reader(filled, JOBSET, BEGINNING).until_now()) == MESSAGES
    for number, message in enumerate(MESSAGES):
        assert list(Reader(filled, JOBSET, message.id).until_now()) == MESSAGES[number + 1 :]
        before = EventId(message.id.ms - 1, 2**64 - 1)
        assert list(Reader(filled, JOBSET, before).until_now()) == MESSAGES[number:]


def test_in_pages_of_any_size(filled: Any) -> None:
    for count in (1, 4, 5, 100):
        reader = Reader(filled, JOBSET)
        pages = []
        while page := reader.read(count):
            assert len(page) <= count
            assert reader.position == page[-1].id
            pages.append(page)
        assert [message for page in pages for message in page] == MESSAGES


def test_from_now_on(filled: Any) -> None:
    reader = Reader(filled, JOBSET, NOW)
    assert reader.position == MESSAGES[-1].id
    assert list(reader.until_now()) == []
    Writer(filled, JOBSET).write([at(4, 1)])
    assert list(reader.until_now()) == [at(4, 1)]


def test_a_job_set_that_does_not_exist_yet(any_server: Any) -> None:
    for start in (BEGINNING, NOW, EventId(5, 5)):
        any_server.flushall()
        reader = Reader(any_server, JOBSET, start, index_s=0.01)
        assert reader.read() == []
        assert list(reader.until_now()) == []
        Writer(any_server, JOBSET).write([at(1, 1)])
        assert reader.read(wait_s=20) == [at(1, 1)]


def test_until_now_leaves_what_comes_later(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(3)))
    found = []
    reader = Reader(server, JOBSET)
    for message in reader.until_now():
        found.append(message)
        writer.write([at(1, 10 + len(found))])
    assert found == on(1, range(3))
    assert reader.read() == on(1, range(11, 14))


def test_iterating_goes_on_for_ever(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(3)))
    later = threading.Timer(0.2, lambda: Writer(server, JOBSET).write([at(1, 3), at(2, 0)]))
    later.start()
    assert list(islice(Reader(server, JOBSET, index_s=0.05), 5)) == [*on(1, range(4)), at(2, 0)]
    later.join()


def test_hundreds_of_pages_with_large_events(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_PAGE_BYTES", 4000)
    messages = [at(1, number, b'"%s"' % (b"x" * (number % 50 * 20))) for number in range(2000)]
    Writer(server, JOBSET).write(messages)
    assert everything(server) == messages


# --- midnight -------------------------------------------------------------------------------------------------------


def test_on_the_current_day_the_index_is_looked_into_rarely_and_after_midnight_once_an_interval(server: Any) -> None:
    clock = Clock(1)
    Writer(server, JOBSET).write([at(1, 1)])
    reader = reader_on(server, clock)
    assert reader.read() == [at(1, 1)]
    assert reader.read() == []
    with sent(server) as items:

        def looks() -> int:
            return sum(b"SMEMBERS" in item for item in items)

        for _ in range(20):
            assert reader.read() == []
        server.xadd(JOBSET.hot(DAY_1).key, {"event": at(1, 2).event}, id=str(at(1, 2).id))
        assert (reader.read(), looks()) == ([at(1, 2)], 0)
        clock.now_s += limits.DAYS_INDEX_SAME_DAY_S
        assert (reader.read(), looks()) == ([], 1)
        clock.now_s += DAY_MS / 1000
        for expected in (2, 3, 4):
            for _ in range(5):
                assert (reader.read(), looks()) == ([], expected)
            clock.now_s += limits.DAYS_INDEX_S
    # Until the next day begins, the old stream may still grow.
    Writer(server, JOBSET).write([at(1, 3)])
    assert reader.read() == [at(1, 3)]
    Writer(server, JOBSET).write([at(2, 0)])
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == [at(2, 0)]


def test_what_was_appended_just_before_the_next_day_began_is_not_skipped(server: Any) -> None:
    clock = Clock(2)
    writer = Writer(server, JOBSET)
    writer.write([at(1, 1)])
    reader = reader_on(server, clock)
    assert reader.read() == [at(1, 1)]
    assert reader.read() == []
    writer.write([at(1, 2), at(2, 1)])
    clock.now_s += limits.DAYS_INDEX_S
    assert [*reader.read(), *reader.read()] == [at(1, 2), at(2, 1)]


# --- what happens to streams ------------------------------------------------------------------------------------------


def test_a_stream_that_is_compressed_under_its_reader(any_server: Any) -> None:
    for read_before in range(6):
        any_server.flushall()
        Writer(any_server, JOBSET).write(MESSAGES)
        reader = Reader(any_server, JOBSET)
        found = reader.read(read_before) if read_before else []
        reader._ahead.clear()
        reader._fetched = reader.position
        compress_day(any_server, JOBSET, DAY_1, 1, batch_bytes_max=20)
        assert found + list(reader.until_now()) == MESSAGES


def test_a_tail_that_is_compressed_while_it_is_waited_for(server: Any) -> None:
    clock = Clock(3)
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(3)))
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    assert reader.read() == []
    writer.write(on(1, range(3, 5)))
    compress_day(server, JOBSET, DAY_1, 1)
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == on(1, range(3, 5))
    writer.write([at(3, 1)])
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == [at(3, 1)]


def test_a_half_written_compressed_stream_does_not_count(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(4)))
    half = on(1, range(2))
    server.xadd(JOBSET.compressed(DAY_1).key, {"batch": pack(half)}, id=str(half[-1].id))
    assert everything(server) == on(1, range(4))


def test_a_day_with_both_streams_is_read_once_compressed_first(server: Any) -> None:
    Writer(server, JOBSET).write(on(1, range(4)))
    first = [message._replace(event=b'"compressed"') for message in on(1, range(3))]
    server.xadd(JOBSET.compressed(DAY_1).key, {"batch": pack(first)}, id=str(first[-1].id))
    server.sadd(JOBSET.index, JOBSET.compressed(DAY_1).key)
    assert everything(server) == [*first, at(1, 3)]
    Writer(server, JOBSET).write([at(2, 0)])
    assert everything(server) == [*first, at(1, 3), at(2, 0)]


def test_a_day_that_expires_before_it_was_read_is_an_error_that_names_it(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(MESSAGES)
    reader = Reader(any_server, JOBSET)
    reader.read(2)
    reader._ahead.clear()
    reader._fetched = reader.position
    expire_days(any_server, JOBSET, keep_days=0, today=date(2024, 5, 3))
    with pytest.raises(DayGone, match=r"\{queue_jobs\}_2024-05-01 was removed") as caught:
        reader.read()
    assert caught.value.oldest == "{queue_jobs}_2024-05-03"
    assert reader.read() == on(3, range(6))


def test_a_day_that_expires_unseen_between_two_is_an_error_too(server: Any) -> None:
    clock = Clock(4)
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(3)))
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    assert reader.read() == []
    writer.write(on(2, range(3)))
    expire_days(server, JOBSET, keep_days=0, today=date(2024, 5, 3))
    writer.write(on(3, range(3)))
    clock.now_s += limits.DAYS_INDEX_S
    with pytest.raises(DayGone):
        reader.read()
    assert reader.read() == on(3, range(3))


def test_a_day_that_expires_when_all_of_it_was_read_is_not_missed(server: Any) -> None:
    clock = Clock(3)
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(3)))
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    assert reader.read() == []
    expire_days(server, JOBSET, keep_days=0, today=DAY_2)
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == []
    writer.write([at(3, 1)])
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == [at(3, 1)]


def test_a_day_that_was_removed_by_hand_is_an_error(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(MESSAGES[:12])
    reader = Reader(any_server, JOBSET, at(1, 3).id)
    assert reader.read(2) == on(1, [4, 5])
    any_server.delete(JOBSET.hot(DAY_2).key)
    any_server.srem(JOBSET.index, JOBSET.hot(DAY_2).key)
    with pytest.raises(DayGone):
        reader.read()


@pytest.mark.parametrize("read_before", [2, 6])
def test_a_stream_that_vanishes_while_the_index_has_it_is_an_error_once(any_server: Any, read_before: int) -> None:
    Writer(any_server, JOBSET).write(MESSAGES)
    reader = Reader(any_server, JOBSET)
    reader.read(read_before)
    reader._ahead.clear()
    reader._fetched = reader.position
    any_server.delete(JOBSET.hot(DAY_1).key)
    with pytest.raises(DayGone, match=r"\{queue_jobs\}_2024-05-01 was removed"):
        reader.read()
    assert list(reader.until_now()) == MESSAGES[6:]


def test_a_tail_that_vanishes_is_told_and_what_comes_then_is_read(server: Any) -> None:
    clock = Clock(2)
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(3)))
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    server.pexpire(JOBSET.hot(DAY_1).key, 0)
    clock.now_s += limits.DAYS_INDEX_S
    with pytest.raises(DayGone):
        reader.read()
    assert reader.read() == []
    writer.write([at(2, 1)])
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == [at(2, 1)]


def test_a_day_that_the_index_has_before_it_exists_is_waited_for(server: Any) -> None:
    clock = Clock(3)
    Writer(server, JOBSET).write(on(1, range(3)))
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    server.sadd(JOBSET.index, JOBSET.hot(DAY_2).key)
    assert reader.read() == []
    server.xadd(JOBSET.hot(DAY_2).key, {"event": at(2, 1).event}, id=str(at(2, 1).id))
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == [at(2, 1)]


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_stream_that_the_index_has_and_that_does_not_exist_is_an_error_once(any_server: Any, gone: int) -> None:
    Writer(any_server, JOBSET).write(MESSAGES)
    compress_day(any_server, JOBSET, DAY_2, 1)
    any_server.delete(JOBSET.hot(date(2024, 5, gone)).key, JOBSET.compressed(date(2024, 5, gone)).key)
    left = [message for message in MESSAGES if message.day.day != gone]
    before = [message for message in left if message.day.day < gone]
    reader = Reader(any_server, JOBSET)
    found: list[Message] = []
    with pytest.raises(DayGone, match=f"2024-05-0{gone} was removed, but the index still has it") as caught:
        found.extend(reader.until_now())
    assert found == before
    assert (caught.value.oldest is None) == (gone == 3)
    assert found + list(reader.until_now()) == left
    told: list[DayGone] = []
    assert list(Reader(any_server, JOBSET, on_gone=told.append).until_now()) == left
    assert [each.key for each in told] == [caught.value.key]


def test_a_missing_stream_before_the_id_that_a_reader_begins_after_is_not_missed(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(MESSAGES)
    compress_day(any_server, JOBSET, DAY_2, 1)
    any_server.delete(JOBSET.hot(DAY_1).key)
    assert list(Reader(any_server, JOBSET, at(2, 2).id).until_now()) == MESSAGES[9:]
    assert list(Reader(any_server, JOBSET, at(3, 2).id).until_now()) == MESSAGES[15:]
    with pytest.raises(DayGone):
        list(Reader(any_server, JOBSET, at(1, 2).id).until_now())


def test_a_missing_day_is_told_when_the_next_one_has_begun(server: Any) -> None:
    clock = Clock(3)
    Writer(server, JOBSET).write(on(1, range(3)))
    server.sadd(JOBSET.index, JOBSET.hot(DAY_2).key)
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    assert reader.read() == []  # it may still be written
    Writer(server, JOBSET).write(on(3, range(3)))
    clock.now_s += limits.DAYS_INDEX_S
    with pytest.raises(DayGone, match="2024-05-02 was removed"):
        reader.read()
    assert reader.read() == on(3, range(3))


def test_from_now_on_a_missing_day_is_not_missed(server: Any) -> None:
    Writer(server, JOBSET).write(MESSAGES)
    server.delete(JOBSET.hot(date(2024, 5, 3)).key)
    reader = Reader(server, JOBSET, NOW)
    assert list(reader.until_now()) == []
    Writer(server, JOBSET).write([at(4, 1)])
    assert list(reader.until_now()) == [at(4, 1)]


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_a_key_of_another_type_is_told_once_and_the_others_are_read(any_server: Any, wrong: int) -> None:
    Writer(any_server, JOBSET).write(MESSAGES)
    compress_day(any_server, JOBSET, DAY_2, 1)
    key = JOBSET.compressed(DAY_2).key if wrong == 2 else JOBSET.hot(date(2024, 5, wrong)).key
    any_server.set(key, "x")
    told: list[DayGone] = []
    reader = Reader(any_server, JOBSET, on_gone=told.append)
    left = [message for message in MESSAGES if message.day.day != wrong]
    assert [message for _ in range(4) for message in reader.read()] == left
    assert list(reader.until_now()) == []
    assert [each.key for each in told] == [key.decode()]
    assert "is not a stream" in str(told[0])


def test_a_tail_that_becomes_another_type_is_told(server: Any) -> None:
    clock = Clock(1)
    Writer(server, JOBSET).write(on(1, range(3)))
    reader = reader_on(server, clock)
    assert reader.read() == on(1, range(3))
    assert reader.read() == []
    server.set(JOBSET.hot(DAY_1).key, "x")
    assert reader.read() == []
    with pytest.raises(DayGone, match="is not a stream"):
        reader.read()
    Writer(server, JOBSET).write(on(2, range(3)))
    clock.now_s += limits.DAYS_INDEX_S
    assert reader.read() == on(2, range(3))


def test_a_note_of_another_type_does_not_keep_the_days_from_being_read(any_server: Any) -> None:
    Writer(any_server, JOBSET).write(MESSAGES)
    any_server.sadd(JOBSET.expired, "x")
    assert everything(any_server) == MESSAGES
    assert Writer(any_server, JOBSET).write([at(4, 1)]) == (1, 0, 0)


def test_a_reader_after_an_id_that_has_expired_begins_with_the_first_there_is(server: Any) -> None:
    Writer(server, JOBSET).write(MESSAGES)
    expire_days(server, JOBSET, keep_days=0, today=DAY_2)
    assert list(Reader(server, JOBSET, at(1, 2).id).until_now()) == MESSAGES[6:]


# --- what others write ------------------------------------------------------------------------------------------------


def test_days_that_another_program_wrote(any_server: Any) -> None:
    any_server.xadd("{queue_jobs}_2024-05-01", {"event": "one"}, id="5-1")
    any_server.xadd(
        "{queue_jobs}_compressed_2024-04-30", {"batch": pack([Message(EventId(4, 4), 4, b"zero")])}, id="4-4"
    )
    any_server.sadd("{queue_jobs}_streams", "{queue_jobs}_2024-05-01", "{queue_jobs}_compressed_2024-04-30", "{x}")
    assert [(str(each.id), each.timestamp_ms, each.event) for each in everything(any_server)] == [
        ("4-4", 4, b"zero"),
        ("5-1", 5, b"one"),
    ]


def test_entries_that_are_none_of_ours_are_named(server: Any) -> None:
    server.xadd("{queue_jobs}_2024-05-01", {"else": "one"}, id="5-1")
    server.sadd("{queue_jobs}_streams", "{queue_jobs}_2024-05-01")
    with pytest.raises(FormatError, match=r"\{queue_jobs\}_2024-05-01: entry 5-1"):
        everything(server)


def test_a_note_of_retention_that_is_none_is_named(server: Any) -> None:
    server.set(JOBSET.expired, "x")
    with pytest.raises(FormatError, match=r"\{queue_jobs\}_expired: b'x' is not an id"):
        everything(server)
