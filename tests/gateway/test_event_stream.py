"""Events as text, and the sink in front of a slow reader."""

from __future__ import annotations

import asyncio

from tidelog import limits
from tidelog.gateway.event_stream import StreamSink, encode_error, encode_event, error_members


def test_events_as_text() -> None:
    assert encode_event([b"value", 1, b"k\n", b"hash", b"\xff", None]) == (
        b"event: value\n"
        b'data: {"kind":"value","ts":1,"key":"k\\n","type":"hash","field":{"base64":"/w=="},"value":null}\n\n'
    )
    assert encode_event([b"checkpoint", 5, b"a", b"", 7, 4]) == (
        b'event: checkpoint\nid: 5-7-4\ndata: {"kind":"checkpoint","ts":5,"start":"a","end":"","epoch":7,"seen":4}\n\n'
    )


def test_errors_as_text() -> None:
    assert encode_error("FEEDTOOOLD oldest=5") == b'event: error\ndata: {"error":"FEEDTOOOLD","oldest":5}\n\n'
    assert error_members("ERR that went wrong") == {"error": "ERR", "message": "that went wrong"}


def test_a_sink_is_full_until_most_of_it_is_taken() -> None:
    sink, bound = StreamSink("peer"), limits.HTTP_FEED_BUFFER_BYTES
    fullness = []
    for size in [bound // 8] * 8 + [1]:
        sink.send(b"x" * size)
        fullness.append(sink.is_full)
    assert fullness == [False] * 8 + [True]
    fullness.clear()
    while sink.take():
        fullness.append(sink.is_full)
    assert fullness == [True] * 6 + [False] * 3
    assert sink.unsent_bytes == 0


def test_waiting() -> None:
    async def work() -> None:
        sink = StreamSink("peer")
        assert not await sink.wait(0.01)
        for act in (lambda: sink.send(b"x"), lambda: sink.end(None), sink.abandon):
            asyncio.get_running_loop().call_later(0.01, act)
            assert await sink.wait(10)

    asyncio.run(work())
