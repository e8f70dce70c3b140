"""Writing: what becomes of a message, on every kind of server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.days.days_of_events import DAY_1, DAY_2, JOBSET, MAY_MS, at, everything, index_of, on, sent
from tests.days.servers import Servers
from tidelog import limits
from tidelog.days.compressor import Outcome, compress_day
from tidelog.days.message import EventId, Message
from tidelog.days.retention import expire_days
from tidelog.days.writer import Writer, Written, chunks
from tidelog.errors import BadMessage, ClientError, Contended


def late(server: Any) -> list[tuple[bytes, bytes]]:
    return [(values[b"id"], values[b"reason"]) for _, values in server.xrange(JOBSET.late)]


def test_a_day_is_a_stream_and_the_index_has_its_key(any_server: Any) -> None:
    messages = [*on(1, range(3)), *on(2, range(2))]
    assert Writer(any_server, JOBSET).write(messages) == (5, 0, 0)
    assert index_of(any_server) == {b"{queue_jobs}_2024-05-01", b"{queue_jobs}_2024-05-02"}
    assert any_server.xrange("{queue_jobs}_2024-05-01") == [
        (b"%d-0" % (MAY_MS + n), {b"event": b'{"n": %d}' % n}) for n in range(3)
    ]
    assert everything(any_server) == messages


def test_a_time_that_is_not_in_the_id_is_kept(server: Any) -> None:
    message = Message(EventId(7, 3), MAY_MS + 5, b"{}")
    Writer(server, JOBSET).write([message])
    assert server.xrange("{queue_jobs}_2024-05-01") == [
        (b"7-3", {b"event": b"{}", b"timestamp_ms": b"%d" % (MAY_MS + 5)})
    ]
    assert everything(server) == [message]


def test_what_is_written_again_is_a_duplicate(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET)
    writer.write(on(1, range(10)))
    assert writer.write(on(1, range(5, 15))) == (5, 5, 0)
    assert writer.write([at(1, 20), at(1, 20), at(1, 3)]) == (1, 2, 0)
    assert everything(any_server) == on(1, [*range(15), 20])


def test_an_id_between_those_that_exist_is_late(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET)
    writer.write(on(1, [1, 3]))
    assert writer.write([at(1, 2), at(1, 4)]) == (1, 0, 1)
    assert everything(any_server) == on(1, [1, 3, 4])
    [(_, values)] = any_server.xrange(JOBSET.late)
    assert values == {
        b"id": b"%d-0" % (MAY_MS + 2),
        b"timestamp_ms": b"%d" % (MAY_MS + 2),
        b"event": b'{"n": 2}',
        b"reason": b"out of order",
    }


def test_a_day_before_one_that_has_begun_is_closed(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET)
    writer.write([at(1, 1), at(2, 1)])
    straggler = Message(EventId(at(2, 9).id.ms, 0), at(1, 9).timestamp_ms, b"{}")
    assert writer.write([straggler, at(1, 1)]) == (0, 1, 1)
    assert late(any_server) == [(str(straggler.id).encode(), b"2024-05-02 has begun")]
    assert everything(any_server) == [at(1, 1), at(2, 1)]


def test_ids_increase_over_days(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write([at(1, 5)])
    low = Message(EventId(at(1, 4).id.ms, 0), at(2, 0).timestamp_ms, b"{}")
    assert writer.write([low]) == (0, 0, 1)
    assert index_of(server) == {JOBSET.hot(DAY_1).key}


def test_ids_increase_also_past_a_day_that_is_empty(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write([at(1, 5)])
    server.sadd(JOBSET.index, JOBSET.hot(DAY_2).key)
    assert writer.write([Message(at(1, 4).id, at(2, 0).timestamp_ms, b"{}"), at(2, 1)]) == (1, 0, 1)


def test_a_compressed_day_knows_its_duplicates_and_takes_no_more(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET)
    writer.write(on(1, range(0, 40, 2)))
    result = compress_day(any_server, JOBSET, DAY_1, 1, batch_bytes_max=50)
    assert result.outcome is Outcome.COMPRESSED
    assert result.batches > 2
    assert writer.write(on(1, range(40))) == (0, 20, 20)
    assert writer.write([at(1, 50)]) == (0, 0, 1)
    assert late(any_server)[-1] == (str(at(1, 50).id).encode(), b"2024-05-01 is compressed")
    assert not any_server.exists(JOBSET.hot(DAY_1).key)
    assert writer.write([at(2, 1)]) == (1, 0, 0)
    assert everything(any_server) == [*on(1, range(0, 40, 2)), at(2, 1)]


def test_an_expired_day_does_not_come_back(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write(on(1, range(3)))
    expire_days(server, JOBSET, keep_days=0, today=DAY_2)
    assert writer.write(on(1, range(3))) == (0, 0, 3)
    assert index_of(server) == set()
    assert writer.write([at(2, 1)]) == (1, 0, 0)


def test_what_others_put_beside_late_messages_is_left_alone(server: Any) -> None:
    server.xadd(JOBSET.late, {"id": "none", "timestamp_ms": "never"})
    server.xadd(JOBSET.late, {"else": "one"})
    assert Writer(server, JOBSET).write([at(1, 2), at(1, 1)]) == (1, 0, 1)
    assert server.xlen(JOBSET.late) == 3


def test_a_late_message_that_is_retried_is_kept_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_LATE_AT_ONCE", 2)
    writer = Writer(server, JOBSET)
    writer.write(on(1, [0, 100]))
    for _ in range(3):
        assert writer.write([*on(1, range(1, 8)), at(1, 3)]) == (0, 0, 8)
    assert server.xlen(JOBSET.late) == 7


def test_what_lies_far_in_the_future_is_late_and_does_not_end_the_job_set(any_server: Any) -> None:
    now_s = at(2, 0).timestamp_ms / 1000
    writer = Writer(any_server, JOBSET, wall=lambda: now_s)
    ms = int(1000 * now_s) + 3_600_000
    by_time = Message(at(2, 1).id, ms + 1, b'"time"')
    by_id = Message(EventId(ms + 1, 0), at(2, 2).timestamp_ms, b'"id"')
    at_the_limit = Message(EventId(ms, 0), ms, b'"limit"')
    assert writer.write([at(1, 1), by_time, by_id, at(2, 3), at_the_limit]) == (3, 0, 2)
    assert everything(any_server) == [at(1, 1), at(2, 3), at_the_limit]
    assert late(any_server) == [
        (str(by_time.id).encode(), b"its timestamp_ms lies too far in the future"),
        (str(by_id.id).encode(), b"its id lies too far in the future"),
    ]
    assert writer.write([by_id, at_the_limit]) == (0, 1, 1)
    assert any_server.xlen(JOBSET.late) == 2
    wide = Writer(any_server, JOBSET, wall=lambda: now_s, max_ahead_s=float("inf"))
    assert wide.write([by_id._replace(id=EventId(2**60, 0))]) == (1, 0, 0)


def test_the_clock_is_the_real_one_and_an_hour_ahead_is_too_much(server: Any) -> None:
    ms = time.time_ns() // 1_000_000
    far, near = (Message(EventId(ms + ahead, 0), ms + ahead, b"{}") for ahead in (7_200_000, 60_000))
    assert Writer(server, JOBSET).write([far, near]) == (1, 0, 1)


def test_a_day_whose_key_is_of_another_type_makes_its_messages_late_and_no_others(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET)
    writer.write(on(1, range(3)))
    any_server.set(JOBSET.hot(DAY_2).key, "x")
    any_server.sadd(JOBSET.index, JOBSET.hot(DAY_2).key)
    assert writer.write([at(2, 1), *on(3, range(3))]) == (3, 0, 1)
    assert late(any_server) == [(str(at(2, 1).id).encode(), b"{queue_jobs}_2024-05-02 is not a stream")]
    any_server.set(JOBSET.hot(DAY_1).key, "x")
    assert writer.write([at(1, 1), at(3, 1), at(3, 5)]) == (1, 1, 1)
    compress_day(any_server, JOBSET, at(3, 1).day, 1)
    any_server.set(JOBSET.compressed(at(3, 1).day).key, "x")
    assert writer.write([at(3, 1), at(4, 1)]) == (1, 0, 1)
    assert any_server.get(JOBSET.hot(DAY_2).key) == b"x"


def test_late_messages_are_kept_also_if_something_else_stands_in_their_place(any_server: Any) -> None:
    writer = Writer(any_server, JOBSET, wall=lambda: 5.0, max_ahead_s=float("inf"))
    writer.write([at(1, 5)])
    any_server.set(JOBSET.late, "x")
    assert writer.write([at(1, 2), at(1, 6)]) == (1, 0, 1)
    assert late(any_server) == [(str(at(1, 2).id).encode(), b"out of order")]
    assert any_server.get(JOBSET.late + b"_5000") == b"x"


def test_what_is_no_message_is_refused_and_nothing_of_its_chunk_is_written(server: Any) -> None:
    for bad in (
        Message(EventId(0, 0), 0, b""),
        Message(EventId(1, 2**64), 0, b""),
        Message(EventId(2**64, 0), 0, b""),
        Message(EventId(1, -1), 0, b""),
        Message(EventId(1, 0), -1, b""),
        Message(EventId(1, 0), 253_402_300_800_000, b""),
    ):
        with pytest.raises(BadMessage):
            Writer(server, JOBSET).write([at(1, 1), bad])
    assert server.dbsize() == 0


def test_an_event_of_the_largest_size_is_written_and_a_larger_one_is_not(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DAYS_EVENT_BYTES_MAX", 100)
    writer = Writer(server, JOBSET)
    assert writer.write([at(1, 1, b"x" * 99), at(1, 2, b"x" * 100)]) == (2, 0, 0)
    with pytest.raises(BadMessage, match="101 bytes"):
        writer.write([at(1, 3, b"x" * 101)])


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_WRITE_MESSAGES_MAX", 3)
    monkeypatch.setattr(limits, "DAYS_WRITE_BYTES_MAX", 10)
    sizes = [4, 4, 4, 1, 1, 1, 30, 2]
    made = [[len(each.event) for each in chunk] for chunk in chunks(at(1, n, b"x" * s) for n, s in enumerate(sizes))]
    assert made == [[4, 4], [4, 1, 1], [1], [30], [2]]


def test_hundreds_of_messages_are_a_handful_of_calls(server: Any) -> None:
    writer = Writer(server, JOBSET)
    writer.write([at(1, 0)])
    with sent(server) as items:
        assert writer.write(on(1, range(1, 901))) == (900, 0, 0)
    assert len(items) <= 6


def test_a_client_that_decodes_is_refused(servers: Servers) -> None:
    client = redis.Redis(port=servers.port("redis"), decode_responses=True)
    with pytest.raises(ClientError, match="decode_responses"):
        Writer(client, JOBSET)
    client.close()


def test_writers_side_by_side_write_each_message_once(any_server: Any) -> None:
    messages = on(1, range(600))
    results: list[Written] = []

    def write() -> None:
        writer = Writer(any_server, JOBSET)
        results.extend(writer.write(messages[begin : begin + 20]) for begin in range(0, 600, 20))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(each.written for each in results) == 600
    assert sum(each.duplicate for each in results) == 1200
    assert everything(any_server) == messages


def test_one_that_is_always_overtaken_gives_up(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_ATTEMPTS_MAX", 3)
    pauses: list[float] = []
    numbers = iter(range(100, 200))
    writer = Writer(server, JOBSET, sleep=pauses.append)
    original = Writer._existing

    def overtaken(self: Writer, messages: list[Message]) -> set[EventId]:
        server.xadd(JOBSET.hot(DAY_1).key, {"event": "{}"}, id=str(at(1, next(numbers)).id))
        server.sadd(JOBSET.index, JOBSET.hot(DAY_1).key)
        return original(self, messages)

    monkeypatch.setattr(Writer, "_existing", overtaken)
    with pytest.raises(Contended, match="writing 1 messages"):
        writer.write([at(1, 300)])
    assert len(pauses) == 3
    assert at(1, 300).id not in [each.id for each in everything(server)]


# --- others, between the decision and the deed ----------------------------------------------------------------------


def interfere(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Let somebody else do something once, when a writer has looked at everything and decided."""
    original, left = Writer._existing, [work]

    def then(self: Writer, messages: list[Message]) -> set[EventId]:
        found = original(self, messages)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(Writer, "_existing", then)


def test_a_day_that_another_begins_meanwhile_closes_ours(any_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer(any_server, JOBSET).write([at(1, 1)])
    interfere(monkeypatch, lambda: Writer(any_server, JOBSET).write([at(2, 1)]))
    assert Writer(any_server, JOBSET).write([at(1, 5)]) == (0, 0, 1)
    assert everything(any_server) == [at(1, 1), at(2, 1)]


def test_a_day_is_not_begun_below_what_another_writes_meanwhile(
    any_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(any_server, JOBSET).write([at(1, 1)])
    low = Message(at(1, 3).id, at(2, 0).timestamp_ms, b"{}")
    interfere(monkeypatch, lambda: Writer(any_server, JOBSET).write([at(1, 4)]))
    assert Writer(any_server, JOBSET).write([low]) == (0, 0, 1)
    assert everything(any_server) == [at(1, 1), at(1, 4)]


def test_a_day_that_is_compressed_meanwhile_takes_no_more(any_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer(any_server, JOBSET).write([at(1, 1)])
    interfere(monkeypatch, lambda: compress_day(any_server, JOBSET, DAY_1, 1))
    assert Writer(any_server, JOBSET).write([at(1, 1), at(1, 2)]) == (0, 1, 1)
    assert not any_server.exists(JOBSET.hot(DAY_1).key)
    assert everything(any_server) == [at(1, 1)]


def test_what_expires_meanwhile_does_not_come_back(any_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer(any_server, JOBSET).write([at(1, 1)])
    interfere(monkeypatch, lambda: expire_days(any_server, JOBSET, keep_days=0, today=DAY_2))
    assert Writer(any_server, JOBSET).write([at(1, 1), at(1, 2)]) == (1, 0, 1)
    assert everything(any_server) == [at(1, 2)]
