"""A connection of a feed: when it counts as lost."""

from __future__ import annotations

import asyncio

import pytest

from tidelog import limits
from tidelog.client import Client, Value
from tidelog.types.change import bulk, number

PIECES = 10


async def serve_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server whose event takes longer than a connection may be silent, but of which something comes all the time."""
    greeted = False
    while data := await reader.read(1 << 16):
        if b"CHANGEFEED" not in data:
            is_position = b"POSITION" in data
            replies = data.count(b"*") - is_position
            writer.write(b"+OK\r\n" * replies + b"*1\r\n*3\r\n:0\r\n:5\r\n:7\r\n" * is_position)
            continue
        assert not greeted, "it has come again"
        greeted = True
        writer.write(b"*6\r\n" + bulk(b"checkpoint") + number(5) + bulk(b"") * 2 + number(7) + number(5))
        writer.write(b"*6\r\n" + bulk(b"value") + number(6) + bulk(b"k") + bulk(b"string") + b"$-1\r\n$%d\r\n" % PIECES)
        for _ in range(PIECES):
            await asyncio.sleep(0.1)
            writer.write(b"x")
            await writer.drain()
        writer.write(b"\r\n")
    writer.close()


def test_a_large_event_may_take_longer_than_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_SILENT_S_MAX", 0.4)
    lost: list[object] = []

    found: list[object] = []

    async def read() -> None:
        server = await asyncio.start_server(serve_slowly, "127.0.0.1", 0)
        async with server, Client(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
            feed = client.feed(since=5, checkpoint_ms=10, reconnect_s_max=0, on_lost=lost.append)
            async for event in feed:
                if isinstance(event, Value):
                    found.append(event.value)
                    break
            await feed.aclose()
            await asyncio.sleep(0.05)  # the server sees that it is gone

    asyncio.run(read())
    assert found == [b"x" * PIECES]
    assert not lost
