"""A client at the other end of a socket: where it is, since when, and what is on its way from it and to it.

`connection` decides what is run, and when.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING

from tidelog import limits
from tidelog.engine.disclosure import Asked
from tidelog.engine.engine import Engine
from tidelog.engine.session import Session
from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.encoder import encode_error
from tidelog.resp.exact import RequestLimits, Words
from tidelog.server.activity import Activity
from tidelog.server.backlog import Backlog
from tidelog.server.listener import address_of
from tidelog.server.long_reply import LongReply

if TYPE_CHECKING:
    from tidelog.server.connections import Connections


class SocketSession(Session):
    """A session with a transport."""

    __slots__ = (
        "_asked",
        "_backlog",
        "_connections",
        "_decoder",
        "_is_at_end",
        "_is_in_line",
        "_is_reading",
        "_is_stopping",
        "_is_stuck",
        "_long",
        "_out_bytes",
        "_transport",
        "_waited",
        "_writer",
        "activity",
        "is_own",
        "out",
        "waiting_turns",
    )

    def __init__(self, engine: Engine, connections: Connections, *, is_own: bool = False) -> None:
        super().__init__(engine)
        self._connections = connections
        self.is_own = is_own
        """The client is a part of this server: it needs no password, and takes nobody's place."""
        if is_own:
            self.is_authenticated = True
            self.name = b"tidelog-own"
        self._transport: asyncio.Transport | None = None
        """None: not connected yet, or no longer."""
        self.activity = Activity(engine.clock.monotonic_us())
        self._decoder = RequestDecoder(RequestLimits(is_authenticated=self.is_authenticated, leaves_large=True))
        self._backlog = Backlog(self._decoder)
        """What could not be run yet: see `connection` for the reasons."""
        self._is_in_line = False
        """It waits for its go."""
        self._is_reading, self._is_stopping = True, False
        self._is_stuck = False
        """The replies wait for space on the disk."""
        self.out: list[bytes] = []
        """Replies of this turn."""
        self._out_bytes = 0
        """Their size and that of messages, without those of the last run of hot commands."""
        self._writer = engine.store.journal.writer
        self._asked = Asked()
        """The commands that they answer."""
        self._long = LongReply()
        """What is left to send of a reply with long strings."""
        self._waited: Words = []
        """The command that is blocked, or was last."""
        self._is_at_end = False
        """The client sends no more: the connection ends with the last reply."""
        self.waiting_turns = 0
        """Earlier turns whose replies wait for an fsync."""

    def set_transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.local, _ = address_of(transport.get_extra_info("sockname"))
        self.peer, self.is_local = address_of(transport.get_extra_info("peername") or self.local.removesuffix(":0"))

    def set_engine(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.store.journal.writer

    # --- from it ------------------------------------------------------------------------------------------------

    def update_reading(self) -> None:
        """Read only commands that can be run. From a blocked client, and one that waits for its go, read a little more:
        the first may go away, and stopping for a moment costs more than it saves."""
        is_wanted = not (
            self.is_clogged or self._is_stuck or self._is_stopping or self._connections.waits_for_disk
        ) and (
            len(self._backlog.received) <= limits.UNREAD_BYTES_MAX
            if self._is_in_line or self.is_blocked
            else self._backlog.is_empty
        )
        if is_wanted == self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def stop_reading(self) -> None:
        """It is not served any longer: what was read is answered, and nothing more is read."""
        self._is_stopping = True
        self.update_reading()

    @property
    def is_busy(self) -> bool:
        """Some command of the client has no reply yet."""
        is_behind = not (self._backlog.is_empty or self.is_blocked) or not self._long.is_over
        return bool(self.out or self.waiting_turns or is_behind)

    @property
    def backlog_bytes(self) -> int:
        return self._decoder.buffered_bytes + self._backlog.size

    def become_link(self) -> None:
        super().become_link()
        if self._transport is not None:
            self._transport.pause_reading()  # what comes now is for the link

    @abstractmethod
    def run_commands(self, commands: list[Words]) -> None:
        """Run them, as far as that goes now."""

    def run_and_remember(self, commands: list[Words]) -> None:
        """Run commands; remember those that `may_tell_of_unwritten` has to look at. Hot: see `Asked`."""
        writer = self._writer
        before, self.begun_ts = writer.batch_bytes, writer.last_ts
        is_remembered = before != 0 or writer.refusal is not None or self._is_open
        if is_remembered:
            self._asked.add(commands, self.watched)
        self.run_commands(commands)
        self.answered_ts = writer.last_ts
        is_open = self._is_open
        if is_open and not is_remembered:
            self._asked.add(commands, self.watched)
        if writer.batch_bytes != before:
            self._asked.has_written = True
            if not is_open:
                self._asked.buffers = []

    @property
    def _is_open(self) -> bool:
        """A transaction has begun whose EXEC tells of what came before."""
        return self.queued is not None or bool(self.watched)

    def begin_wait(self, command: Words) -> None:
        """A command has no reply yet. If the client sends no more, it does not wait for a key: nobody would notice
        that it is gone, and what it pops would be lost."""
        self._waited = command
        if self._is_at_end and self.engine.blocking.has(self):
            self.engine.blocking.forget(self)
            self.close_after_reply()

    # --- to it --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close once everything that was sent has been taken."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close with an error instead of the replies that were about to be sent."""
        self.out.clear()
        if self._transport is not None:
            self._transport.write(encode_error(f"MISCONF {reason}"))
            self._transport.close()

    def may_tell_of_unwritten(self, *, are_writes_refused: bool) -> bool:
        """Whether its replies could tell of changes that there is no space for."""
        engine = self.engine
        return self._asked.may_tell_of(engine.store.unwritten_keys(), engine.table, are_writes_refused)

    @property
    def is_inside_reply(self) -> bool:
        return not self._long.is_over

    @property
    def unsent_bytes(self) -> int:
        waiting = self._out_bytes if self.feed_sink is None else self._out_bytes + self.feed_sink.reply_bytes
        return waiting + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def descriptor(self) -> int:
        connection = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connection is None else int(connection.fileno())

    @property
    def age_s(self) -> int:
        return self.activity.age_s(self.engine.clock.monotonic_us())

    @property
    def idle_s(self) -> int:
        now_us = self.engine.clock.monotonic_us()
        self.activity.look(now_us, self.command_count)
        return self.activity.idle_s(now_us)
