"""Producers: the newest calls are remembered, older ones are forgotten, gaps are nobody's."""

from __future__ import annotations

from tests.streams.plain import plain
from tidelog import limits
from tidelog.streams.producer import Producer
from tidelog.streams.stream import Stream


def test_calls_are_answered_again() -> None:
    producer = Producer()
    assert producer.last_seq == -1
    for seq, offset in ((0, 1), (3, 4), (10, 9)):
        producer.add(seq, offset)
    assert [producer.offset_of(seq) for seq in (0, 1, 3, 10, 11)] == [1, None, 4, 9, None]
    assert producer.last_seq == 10


def test_as_many_as_promised_are_kept() -> None:
    producer = Producer()
    for seq in range(5 * limits.PRODUCER_SEQS_KEPT):
        producer.add(seq, seq + 1)
        kept = min(seq + 1, limits.PRODUCER_SEQS_KEPT)
        assert producer.offset_of(seq - kept + 1) == seq - kept + 2
    assert producer.offset_of(0) is None
    assert len(producer.seqs) < 2 * limits.PRODUCER_SEQS_KEPT


def test_of_too_many_the_one_silent_the_longest_is_forgotten() -> None:
    stream = Stream()
    for number in range(limits.PRODUCERS_MAX):
        stream.remember(b"%d" % number, 1, 1)
    stream.remember(b"0", 2, 2)
    stream.remember(b"one more", 1, 3)
    assert b"0" in stream.producers
    assert b"1" not in stream.producers
    assert len(stream.producers) == limits.PRODUCERS_MAX
    copy = stream.copy()
    copy.remember(b"0", 3, 4)
    assert plain(copy) != plain(stream)
