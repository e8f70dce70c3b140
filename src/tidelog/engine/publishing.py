"""PUBLISH: to the listeners here at once, and to followers after the data that came before it.

A message that EXEC or a script publishes goes to followers when the transaction is committed. Otherwise a listener
there could be told of a change that it does not see yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine


class Publishing:
    """Sends messages to listeners and followers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: list[tuple[bytes, bytes, bool]] = []
        """Messages of the transaction that runs: channel, message, and whether the channel is a shard's."""

    def publish(self, channel: bytes, message: bytes, *, is_sharded: bool = False) -> int:
        """Returns how many listeners there were here."""
        engine = self._engine
        send = engine.subscriptions.publish_shard if is_sharded else engine.subscriptions.publish
        count = send(channel, message)
        if engine.replication is not None:
            self._kept.append((channel, message, is_sharded))
            if engine.may_wait:
                self.committed()
        return count

    def committed(self) -> None:
        """The transaction is committed, or there was none."""
        kept, self._kept = self._kept, []
        if self._engine.replication is not None:
            for channel, message, is_sharded in kept:
                self._engine.replication.publish(channel, message, is_sharded=is_sharded)
