"""What loads channels over HTTP: pollers that wait, take messages and acknowledge them, and publishers.

Each is a connection of its own that is kept open, as a browser's is. Requests are written by hand and answers are read
no further than needed, so that the load takes less of the machine than what is measured.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

SETTLE_S = 1.0
"""Rest before figures count: pollers are all waiting again."""


@dataclass
class Figures:
    """What was seen while it counted."""

    requests: int = 0
    publish_s: list[float] = field(default_factory=list)
    """From the request to its answer."""
    delivery_s: list[float] = field(default_factory=list)
    """From the request that published a message to the answer that brought it, for each poller."""


class HttpLink:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> HttpLink:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        content = await self._reader.readexactly(int(length)) if length else b""
        if answer[9:12] not in (b"200", b"204"):
            raise SystemExit(f"{method} {path} was answered {answer[9:12].decode()}: {content.decode()}")
        return content

    def close(self) -> None:
        self._writer.close()


class ChannelLoad:
    """Pollers over some channels, all of which wait; then publishers, as often as wanted."""

    def __init__(self, port: int, channels: int, pollers: int) -> None:
        self._port = port
        self._channels = channels
        self._pollers = pollers
        self._published = 0
        self._due: dict[int, int] = {}
        """How many pollers have still to get a message, by its number."""
        self.figures = Figures()
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: list[HttpLink] = []

    async def __aenter__(self) -> ChannelLoad:
        opened = asyncio.Semaphore(50)
        await asyncio.gather(*(self._begin(number, opened) for number in range(self._pollers)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._links:
            link.close()

    async def _begin(self, number: int, opened: asyncio.Semaphore) -> None:
        path = f"/channel/load{number % self._channels}/subscription/polling/poller{number}"
        async with opened:
            link = await HttpLink.open(self._port)
            self._links.append(link)
            await link.call("PUT", path)
        self._tasks.add(asyncio.create_task(self._poll(link, path)))

    async def _poll(self, link: HttpLink, path: str) -> None:
        while True:
            fetched: dict[str, Any] = json.loads(await link.call("GET", f"{path}?timeout=30s"))
            now_s = time.perf_counter()
            self.figures.requests += 1
            for message in fetched["messages"]:
                number, sent_s = message["content"]
                self.figures.delivery_s.append(now_s - sent_s)
                self._due[number] -= 1
                if not self._due[number]:
                    del self._due[number]
            if "ackHandle" in fetched:
                await link.call("DELETE", f"{path}/message?ackHandle={quote(fetched['ackHandle'])}")
                self.figures.requests += 1

    async def _publish(self, link: HttpLink) -> None:
        self._published += 1
        number = self._published
        channel = number % self._channels
        self._due[number] = len(range(channel, self._pollers, self._channels))
        sent_s = time.perf_counter()
        await link.call("PUT", f"/channel/load{channel}/message/m{number}", json.dumps([number, sent_s]).encode())
        self.figures.publish_s.append(time.perf_counter() - sent_s)
        self.figures.requests += 1

    async def steady(self, seconds: float, per_s: float) -> Figures:
        """Publish at a rate."""
        link = await self._fresh()
        begun_s = time.perf_counter()
        for number in range(int(seconds * per_s)):
            await asyncio.sleep(max(0.0, begun_s + number / per_s - time.perf_counter()))
            await self._publish(link)
        return await self._settled()

    async def full(self, seconds: float, publishers: int, ahead_max: int) -> Figures:
        """Publish as fast as answers come, but not if so many messages are still on their way to somebody."""
        end_s = time.perf_counter() + seconds

        async def publish_on() -> None:
            link = await self._fresh()
            while time.perf_counter() < end_s:
                if len(self._due) >= ahead_max:
                    await asyncio.sleep(0.001)
                else:
                    await self._publish(link)

        await asyncio.gather(*(publish_on() for _ in range(publishers)))
        return await self._settled()

    async def _fresh(self) -> HttpLink:
        link = await HttpLink.open(self._port)
        self._links.append(link)
        return link

    async def _settled(self) -> Figures:
        """Wait until everybody has everything, and look whether every poller is still there."""
        deadline_s = time.perf_counter() + 30
        while self._due:
            if (ended := next((task for task in self._tasks if task.done()), None)) is not None:
                raise SystemExit(f"a poller has ended: {ended}")
            if time.perf_counter() > deadline_s:
                raise SystemExit(f"{len(self._due)} messages did not reach everybody")
            await asyncio.sleep(0.001)
        figures, self.figures = self.figures, Figures()
        return figures
