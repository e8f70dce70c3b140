"""A connection: bytes in, commands to the engine, replies out at the end of the turn.

A client that does not read its replies is not read from either: past the transport's high-water mark reading stops
until the client has caught up, and nothing that it sent before is run. Within one buffer, commands wait once their
replies have come to `REPLIES_BYTES_HELD`, because a buffer may ask for a large value thousands of times. What a client
makes the server do in one turn is bounded too (`rounds`).

    free --the client does not read, replies are too large, CLIENT PAUSE, BLOCK--> held: what it sent waits (`backlog`),
     | ^                                                                             |     little or nothing is read
     | +---- all has been run ---- in line <-- the client reads again, the replies are sent, the pause or wait is over
     +-- more than fits into a turn --^  |  ^
                                         +--+ its go: a piece is run, and there is more

Large values never pass through the loop in one go. A thread joins an argument from its pieces (`joining`), and writes
it if its command is a write (`engine/staging.py`). A reply with long strings goes out piece by piece (`long_reply`).

A client that has not authenticated has no business leaving replies unread, and is cut (`connections`).

What the state of the client means for a command is in `engine/session.py`; here are only bytes and when they flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tidelog import limits
from tidelog.engine.engine import BLOCKED, LONG, STAGING, Engine
from tidelog.resp.encoder import encode_error
from tidelog.resp.exact import RequestLimits, Words
from tidelog.server.joining import join_large
from tidelog.server.socket_session import SocketSession
from tidelog.server.turns import Turns

if TYPE_CHECKING:
    from tidelog.server.connections import Connections


class Connection(SocketSession):
    """One connection: an `asyncio.Protocol`, not by its class because a compiled class has only compiled parents."""

    __slots__ = (
        "_at_once_bytes",
        "_at_once_bytes_max",
        "_decode",
        "_hot",
        "_is_paused",
        "_piece_bytes",
        "_rounds",
        "_signals",
        "_turns",
        "_waits_for_large",
        "_write",
    )

    def __init__(self, engine: Engine, turns: Turns, connections: Connections, *, is_own: bool = False) -> None:
        super().__init__(engine, connections, is_own=is_own)
        self._turns = turns
        self._rounds = turns.rounds
        self._write: Callable[[bytes | memoryview], None] | None = None
        """Sends replies: the transport's `write`, or between the events of a feed; None: the connection is gone."""
        self._at_once_bytes_max = 0
        """So much is run when it comes, whatever else there is to do ..."""
        self._at_once_bytes = -1
        """... at the moment; -1: it has to wait behind what is there."""
        self._piece_bytes = 0
        """So much is decoded and run at a time."""
        self._is_paused = False
        """CLIENT PAUSE holds commands back."""
        self._waits_for_large = False
        """The next command waits for a thread: large values are not joined or written yet, or cold nodes not read."""
        self._decode = self._decoder.feed
        self._signals = engine.store.signals
        self.is_plain = engine.is_plain(self)
        self._hot = engine.hot_commands(self)

    def state_changed(self) -> None:
        self._write = self._write and (self.write if self.feed_sink is None else self.feed_sink.reply)
        self.is_plain = self.engine.is_plain(self)
        self._hot = self.engine.hot_commands(self)
        if self._decoder.bounds.is_authenticated != self.is_authenticated:
            self._decoder.set_limits(RequestLimits(is_authenticated=self.is_authenticated, leaves_large=True))
            self._set_bounds()
            self._settle()

    def _set_bounds(self) -> None:
        """How much is done for it at a time, and how much it may leave unread: less if it has not authenticated."""
        is_known = self.is_authenticated
        self._piece_bytes = limits.RECEIVED_PIECE_BYTES if is_known else limits.UNAUTHENTICATED_PIECE_BYTES
        self._at_once_bytes_max = limits.AT_ONCE_BYTES if is_known else limits.UNAUTHENTICATED_AT_ONCE_BYTES
        if self._transport is not None:
            self._transport.set_write_buffer_limits(None if is_known else limits.UNAUTHENTICATED_OUTPUT_BYTES_MAX)

    # --- the transport's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self.set_transport(transport)
        refusal = self._connections.refusal(self)
        if refusal is not None:
            transport.write(encode_error(refusal))
            transport.close()
            return
        now = self._connections.serving
        if now is not None and now[0] is not self.engine:  # TLS has shaken hands since this object was made
            self.move_to(*now)
        self.engine.sessions.add(self)
        self._write = self.write = transport.write
        self.state_changed()  # the server's state may have changed since this object was made
        self._set_bounds()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = self._write = None
        self._backlog.clear()
        self._long.clear()
        self.leave()
        self.engine.blocking.forget(self)
        self.engine.sessions.remove(self)

    def data_received(self, data: bytes) -> None:
        """Hot."""
        if self.closes_after_reply:
            return  # nothing is run after QUIT, nor for one that was cut off
        if len(data) > self._at_once_bytes:
            self._receive_much(data)
            return
        if not self.out:
            self._turns.add(self)
        self._run(self._decode(data))

    def _receive_much(self, data: bytes) -> None:
        """Run it as far as the turn goes."""
        if self._decoder.gathering > len(data) and self._backlog.is_empty:
            self._decode(data)  # a piece of a large argument
        elif self._at_once_bytes < 0 or not self._rounds.has_room():
            self._backlog.received += data
            self._settle(is_new=not self.is_slow)
        elif len(data) <= self._piece_bytes:
            if not self.out:
                self._turns.add(self)
            self._run(self._decode(data))
            if self._decoder.is_behind:
                self._settle()
        else:
            self._backlog.received += data
            self._run_piece()
            while self._may_run and self._rounds.has_room():
                self._run_piece()
            self._settle()

    def _run_piece(self) -> None:
        """Run the next commands of the backlog."""
        out = self.out
        if not out:
            self._turns.add(self)
        before, made = self._out_bytes, len(out)
        self._run(self._backlog.take(self._piece_bytes))
        if self.fetch is not None and not self._waits_for_large:
            self.leave_fetch()
        self._out_bytes = before + sum(map(len, out[made:]))

    def take_go(self) -> None:
        """It is this client's go."""
        self._is_in_line = self.is_slow = False
        if not self._long.is_over:
            self._make_long()
        elif self._may_run:
            self._run_piece()
        self._settle()

    def _join_large(self, commands: list[Words]) -> list[Words]:
        """Hold those from the first on that has a large argument in pieces; returns those before it."""
        self.has_sent_large = self._waits_for_large = True
        first = join_large(commands, self._decoder.unjoined, self.engine.staging, self.end_staging)
        self._backlog.put_back(commands[first:])
        self._settle()
        return commands[:first]

    def _run(self, commands: list[Words]) -> None:
        if self._decoder.unjoined:
            commands = self._join_large(commands)
        self.run_and_remember(commands)

    def run_commands(self, commands: list[Words]) -> None:
        out = self.out
        at, count, clocked = 0, len(commands), limits.CLOCKED_COMMANDS
        self.command_count += count
        while at < count:
            if at >= clocked:
                if self._rounds.is_late:
                    self._hold(commands[at:])
                    return
                clocked = at + limits.CLOCKED_COMMANDS
            hot = self._hot.get(commands[at][0])
            if hot is not None:
                begun, made = at, len(out)
                hot.untimed -= 1
                at = hot.run(commands, at, out) if hot.untimed else self.engine.time_run(hot, commands, at, out)
                hot.tally.hot_calls += at - begun
                if self._signals:
                    self.engine.blocking.serve()
                if at == count:
                    break
                if at != begun:
                    for index in range(made, len(out)):
                        self._out_bytes += len(out[index])
                    if self._out_bytes >= limits.REPLIES_BYTES_HELD:
                        self._hold(commands[at:])
                        return
                    continue
            reply = self.engine.execute(self, commands[at])
            at += 1
            if not self._take(reply):
                if reply is BLOCKED:
                    self.begin_wait(commands[at - 1])
                self._hold(commands[at if reply is not None and reply is not STAGING else at - 1 :])
                return
            if self.is_slow:  # everybody has waited for it
                self._rounds.rest()
                self._hold(commands[at:])
                self._settle()
                return
        if self._decoder.error is not None or self._is_at_end:
            self._end_of_commands()

    def eof_received(self) -> bool:
        """The client sends no more. It is answered first, unless it waits for a key or has a feed: that may not end."""
        if self.is_blocked and (self.feed_sink is not None or self.engine.blocking.has(self)):
            self.engine.blocking.forget(self)
            return False
        self._is_at_end = self.is_blocked or not (self._backlog.is_empty and self._long.is_over)
        if not self._is_at_end and (self.out or self.waiting_turns):
            self.close_after_reply()
        return self._is_at_end or self.closes_after_reply

    def pause_writing(self) -> None:
        self.is_clogged = True
        if not self.is_authenticated:
            # Not from here: the transport is in the middle of a write.
            asyncio.get_running_loop().call_soon(self._connections.cut_unauthenticated, self)
        self._settle()

    def resume_writing(self) -> None:
        self.is_clogged = False
        self._send_long()
        if self.feed_sink is not None:
            self.feed_sink.go_on()
        self._settle()

    # --- commands that wait -------------------------------------------------------------------------------------

    def _take(self, reply: bytes | None) -> bool:
        """Take the reply of the general path; false: the commands after it, and it too if there is none, wait."""
        if reply is None:
            self._is_paused = True
            return False
        if reply is BLOCKED:
            return False
        if reply is STAGING:
            self._waits_for_large = True
            return False
        if reply is LONG:
            parts, self.long_reply = self.long_reply, []
            reply = self._long.begin(parts) if self.takes_reply() else b""
        elif not self.takes_reply():
            reply = b""
        self.out.append(reply)
        self._out_bytes += len(reply)
        return self._out_bytes < limits.REPLIES_BYTES_HELD and not self.closes_after_reply and self._long.is_over

    def _hold(self, commands: list[Words]) -> None:
        """These have to wait; they may be none, behind one that is blocked."""
        if self.closes_after_reply:
            return
        if commands or self.is_blocked or not self._long.is_over:
            self._backlog.put_back(commands)
            self.command_count -= len(commands)  # they count when they are run
            self._settle()
        else:
            self._end_of_commands()

    @property
    def _may_run(self) -> bool:
        """There is something to run, and nothing but the time of a turn in its way."""
        return (
            not self._backlog.is_empty
            and not (self.is_blocked or self.is_clogged or self._is_paused or self._is_stuck or self._waits_for_large)
            and not self.closes_after_reply
            and self._transport is not None
            and self._out_bytes < limits.REPLIES_BYTES_HELD
            and self._long.is_over
        )

    def _settle(self, *, is_new: bool = False) -> None:
        """Commands were held or run, or something that was in their way is gone: see what comes next."""
        is_held = self.is_blocked or self.is_clogged or self._is_stuck or not self._long.is_over
        is_free = self._backlog.is_empty and not is_held and not self.is_slow
        self._at_once_bytes = self._at_once_bytes_max if is_free else -1
        if not self._is_in_line and self._may_run:
            self._is_in_line = True
            self._turns.line_up(self, is_new=is_new)
        self.update_reading()

    def unblock(self, reply: bytes) -> None:
        """The command that waited for a key has its reply."""
        if self._transport is None:
            return
        if not self.out:
            self._turns.add(self, is_woken=True)
        self._asked.add([self._waited], self.watched)
        self.answered_ts = self._writer.last_ts
        self._take(reply)
        if not self._backlog.commands and self._long.is_over:
            self._end_of_commands()
        self._settle()  # held commands go on later: the caller may be in the middle of a command

    def run_again(self, command: Words) -> None:
        self._backlog.put_back([command])
        self._settle()

    def end_pause(self) -> None:
        self._is_paused = False
        self._settle()

    def end_staging(self) -> None:
        self._waits_for_large = False
        self._settle()

    def _end_of_commands(self) -> None:
        """All commands that were decoded have been run."""
        if self._decoder.error is not None and self.is_authenticated:
            # AUTH may have come together with a command that was too large for a stranger.
            self._backlog.commands = self._decoder.resume()
            if self._backlog.commands:
                self._settle()
                return
        if self._decoder.error is not None:
            self.out.append(encode_error(f"ERR {self._decoder.error}"))
            self.close_after_reply()
        elif self._is_at_end and self._backlog.is_empty:
            self.close_after_reply()

    def move_to(self, engine: Engine, turns: Turns) -> None:
        """Be served by another engine from now on, whose store has data. None of its replies may be under way, and of
        the data it has only watched keys: those are another's now."""
        before, is_monitor = self.engine, self.is_monitor
        before.monitors.forget(self)
        if self.watched:
            before.store.unwatch(self)
            self.is_dirty = True
        self.set_engine(engine)
        self._turns, self._rounds, self._signals = turns, turns.rounds, engine.store.signals
        if is_monitor:
            engine.monitors.add(self)
        self._is_in_line = self._is_paused = False
        self.state_changed()
        self._settle()

    # --- replies ------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send the replies of a turn. Hot."""
        if self._write is None:
            return
        self._write(data)
        self._out_bytes = 0
        if self.queued is None and not self.out:
            self._asked.clear()  # they would keep alive what they set
        if not self._long.is_over:
            self._send_long()
        elif self.closes_after_reply:
            if self._transport is not None and not (self.out or self.waiting_turns):
                self._end(self._transport)
        elif self._at_once_bytes < 0:
            self._settle()

    def _end(self, transport: asyncio.Transport) -> None:
        """All replies are sent: close the connection, or let it be a link of replication from now on."""
        if not self.becomes_link:
            transport.close()
            return
        self._connections.make_link(transport)
        self.connection_lost(None)

    def _send_long(self) -> None:
        """Send the next piece of a long reply, if there is one and the client takes it. `send` comes back here if its
        first part, or what goes before it, still waits for the turn's end or an fsync."""
        if self._write is None or self.is_clogged or self._long.is_over or self.out or self.waiting_turns:
            return
        if self._long.is_to_be_made:
            if not self._is_in_line:  # that is work, so clients take turns with it
                self._is_in_line = True
                self._turns.line_up(self, is_new=False)
            return
        if not self._long.send_piece(self._write):
            asyncio.get_running_loop().call_soon(self._send_long)
            return
        if not self.out:
            self._turns.add(self)
        self.out += self._long.take_messages()
        if not self._backlog.commands:
            self._end_of_commands()
        self._settle()

    def _make_long(self) -> None:
        """It is this client's go to have the next part of a long reply made."""
        if self._write is not None and not self.is_clogged:
            self._is_in_line = True
            self._long.make(self.engine.fetching, self._end_making)

    def _end_making(self, is_made: bool) -> None:
        self._is_in_line = False
        if is_made:
            self._send_long()
        else:
            self.kill()

    def push(self, data: bytes) -> None:
        """A message of pub/sub: it leaves with this turn's replies. A client that does not read is cut off."""
        if self._transport is None:
            return
        if self._long.is_over:
            if not self.out:
                self._turns.add(self)
            self.out.append(data)
        else:
            self._long.messages.append(data)
        self._out_bytes += len(data)
        if self.unsent_bytes > self._connections.output_limits.hard_bytes:
            self._connections.cut_for_output(self)

    def set_stuck(self, is_stuck: bool) -> None:
        """The replies wait for space on the disk, or no longer. Meanwhile nothing is read: replies would pile up."""
        self._is_stuck = is_stuck
        self._settle()

    def kill(self) -> None:
        """Close at once, whatever it has not taken yet."""
        self.close_after_reply()
        self.engine.blocking.forget(self)
        self.out.clear()
        self._backlog.clear()
        self._long.clear()
        if self._transport is not None:
            self._transport.abort()
