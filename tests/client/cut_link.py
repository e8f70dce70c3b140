"""A proxy in front of a server that cuts connections when it is told to, or after so many bytes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CutLink:
    """Passes bytes on. `async with` opens it; leaving closes it and all its connections."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.count = 0
        """Connections that were made."""
        self.bytes_max: int | None = None
        """A connection that has brought so many bytes is cut."""
        self.is_refusing = False
        self.is_silent = False
        """What a server sends is swallowed; the connections stay."""

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        await asyncio.sleep(0.01)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        self._writers.append(writer)
        if self.is_refusing:
            writer.transport.abort()
            return
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        self._writers.append(to_writer)
        await asyncio.gather(
            self._pass_on(reader, to_writer, None),
            self._pass_on(to_reader, writer, self.bytes_max),
            return_exceptions=True,
        )

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bytes_max: int | None) -> None:
        left = bytes_max
        try:
            while data := await reader.read(65536):
                if self.is_silent:
                    continue
                if left is not None:
                    data, left = data[:left], left - len(data[:left])
                writer.write(data)
                await writer.drain()
                if left == 0:
                    break
        finally:
            writer.close()  # what was written is sent first
