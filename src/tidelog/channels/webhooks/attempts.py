"""How often a message was tried, kept in the backend: a gateway that is started again goes on counting.

    c.{<channel>}.tries.<webhook>    <attempts> <message id>

Otherwise a message that no receiver takes would never become a dead letter where gateways are restarted more often than
its attempts take. Only webhooks with dead letters need it, and only for the message that is next in line: a holder of
the lease reads the note once, for its first message.

An attempt counts when it has failed, from the second on when it begins: so those count, too, in the middle of which a
gateway is killed. The note is removed with the last attempt, and lives no longer than messages do. If the backend does
not take it, the attempt is made all the same.
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.channels.backend import Backend
from tidelog.channels.names import ChannelKeys

_NOTE: Final = re.compile(rb"([0-9]{1,9}) ([0-9A-Za-z_-]+)")


class AttemptNote:
    """The note of a webhook of a channel."""

    def __init__(self, backend: Backend, channel: str, webhook: str) -> None:
        self._backend = backend
        self._key = ChannelKeys(channel).webhook_attempts(webhook)

    async def read(self) -> tuple[str, int]:
        """A message and how often it was tried; none was if there is no note."""
        found = _NOTE.fullmatch(await self._backend.call("GET", self._key) or b"")
        return ("", 0) if found is None else (found[2].decode(), int(found[1]))

    async def clear(self) -> None:
        await self._backend.call("DEL", self._key)

    async def write(self, message_id: str, attempts: int, expire_ms: int) -> None:
        await self._backend.call("SET", self._key, f"{attempts} {message_id}", "PX", expire_ms)
