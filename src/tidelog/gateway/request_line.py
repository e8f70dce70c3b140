"""Requests over HTTP go one by one: the server's loop has a look at all its sockets before the next begins.

A request takes a hundred times what a command of a Redis client takes. If a few hundred connections send them without a
pause, all that came in one turn of the loop would be answered in that turn, while everybody else waits.

    the line is empty --> at once
    somebody waits    --> behind them; one goes in each turn of the loop
"""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send


class RequestLine:
    """Lets one request begin in a turn of the loop. It holds no more than there are connections."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_moving = False
        """One has gone in this turn: the next goes in the next one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        if self._is_moving:
            go = loop.create_future()
            self._waiting.append(go)
            await go
        else:
            self._is_moving = True
            loop.call_soon(self._move_on)
        await self._app(scope, receive, send)

    def _move_on(self) -> None:
        while self._waiting:
            go = self._waiting.popleft()
            if not go.done():  # a connection that is lost takes its request along
                go.set_result(None)
                asyncio.get_running_loop().call_soon(self._move_on)
                return
        self._is_moving = False
