"""A connection: bytes in, commands to the engine, replies out at the end of the turn.

A client that does not read its replies is not read from either: past the transport's high-water mark reading stops
until the client has caught up. Within one buffer, commands wait once their replies have come to `REPLIES_BYTES_HELD`,
because a buffer may ask for a large value thousands of times. So the memory that one client can
take is bounded.

    reading --the client does not read, replies are too large, CLIENT PAUSE, BLOCK--> held: commands that were not run
       ^                                                                               |    yet wait, nothing is read
       +--- the client reads again, the replies are sent, the pause or wait is over ---+

What the state of the client means for a command is in `engine/session.py`; here are only bytes and when they flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tidelog import limits
from tidelog.engine.engine import BLOCKED, Engine
from tidelog.engine.session import Session
from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.encoder import encode_error
from tidelog.resp.exact import RequestLimits, Words
from tidelog.server.hot import whole_transactions
from tidelog.server.listener import address_of
from tidelog.server.turns import Turns

if TYPE_CHECKING:
    from tidelog.server.connections import Connections


class Connection(Session):
    """One connection: an `asyncio.Protocol`, not by its class because a compiled class has only compiled parents."""

    __slots__ = (
        "_active_us",
        "_came_us",
        "_connections",
        "_decode",
        "_decoder",
        "_held",
        "_hot",
        "_is_at_end",
        "_is_clogged",
        "_is_paused",
        "_is_reading",
        "_is_stopping",
        "_is_stuck",
        "_out_bytes",
        "_seen_count",
        "_signals",
        "_transport",
        "_turns",
        "_write",
        "out",
        "slow_since_us",
        "waiting_turns",
    )

    def __init__(self, engine: Engine, turns: Turns, connections: Connections) -> None:
        super().__init__(engine)
        self._turns = turns
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._write: Callable[[bytes], None] | None = None
        """The transport's `write`; None: the connection is gone."""
        self.out: list[bytes] = []
        """Replies of this turn."""
        self.waiting_turns = 0
        """Earlier turns whose replies wait for an fsync."""
        self._seen_count = 0
        """`command_count` at the last look: a larger one now means that the client is not idle."""
        self._came_us = self._active_us = engine.clock.monotonic_us()
        self.slow_since_us = 0
        """Since when much has been left unread; 0: it has not."""
        self._out_bytes = 0
        """The size of this turn's replies and messages, without those of the last run of hot commands."""
        self._held: list[Words] = []
        """Commands that could not be run yet, for one of the reasons below."""
        self._is_paused = False
        """CLIENT PAUSE holds them back."""
        self._is_clogged = False
        """The client does not take what is sent to it."""
        self._is_reading = True
        self._is_stopping = False
        self._is_stuck = False
        """The replies wait for space on the disk."""
        self._is_at_end = False
        """The client sends no more: the connection ends with the last reply."""
        self._decoder = RequestDecoder(RequestLimits(is_authenticated=self.is_authenticated))
        self._decode = self._decoder.feed
        self._signals = engine.store.signals
        self.is_plain = engine.is_plain(self)
        self._hot = engine.hot_commands(self)

    def state_changed(self) -> None:
        self.is_plain = self.engine.is_plain(self)
        self._hot = self.engine.hot_commands(self)
        if self._decoder.bounds.is_authenticated != self.is_authenticated:
            self._decoder.set_limits(RequestLimits(is_authenticated=self.is_authenticated))

    # --- the transport's calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self.local, _ = address_of(transport.get_extra_info("sockname"))
        self.peer, self.is_local = address_of(transport.get_extra_info("peername") or self.local.removesuffix(":0"))
        refusal = self._connections.refusal(self)
        if refusal is not None:
            transport.write(encode_error(refusal))
            transport.close()
            return
        self.engine.sessions.add(self)
        self.state_changed()  # the server's state may have changed since this object was made
        self._write = transport.write
        self.update_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = self._write = None
        self._held.clear()
        self.leave()
        self.engine.blocking.forget(self)
        self.engine.sessions.remove(self)

    def data_received(self, data: bytes) -> None:
        """Hot."""
        if self.closes_after_reply:
            return  # nothing is run after QUIT, nor for one that was cut off
        if not self.out:
            self._turns.add(self)
        if len(data) <= limits.RECEIVED_PIECE_BYTES:
            self._run(self._decode(data))
        else:
            self._run_pieces(data)

    def _run_pieces(self, data: bytes) -> None:
        """Much at once is taken in pieces, each run before the next is decoded: what fits a cache is fast."""
        out = self.out
        begun: list[Words] = []
        for at in range(0, len(data), limits.RECEIVED_PIECE_BYTES):
            commands = begun + self._decode(data[at : at + limits.RECEIVED_PIECE_BYTES])
            end = len(commands)
            if at + limits.RECEIVED_PIECE_BYTES < len(data) and self._decoder.error is None:
                end = whole_transactions(commands)
            begun = commands[end:]
            del commands[end:]
            if self._out_bytes < limits.REPLIES_BYTES_HELD or self._held:
                before, made = self._out_bytes, len(out)
                self._run(commands)
                self._out_bytes = before + sum(map(len, out[made:]))
            else:
                self.command_count += len(commands)
                self._hold(commands)
            if self.closes_after_reply:
                return

    def _run(self, commands: list[Words]) -> None:
        out = self.out
        if self._held or self.is_blocked:
            self._held += commands
            self.update_reading()
            return
        at, count = 0, len(commands)
        self.command_count += count
        while at < count:
            run = self._hot.get(commands[at][0])
            if run is not None:
                begun, made = at, len(out)
                at = run(commands, at, out)
                if self._signals:
                    self.engine.blocking.serve()
                if at == count:
                    break
                if at != begun:
                    self._out_bytes += sum(map(len, out[made:]))
                    if self._out_bytes >= limits.REPLIES_BYTES_HELD:
                        self._hold(commands[at:])
                        return
                    continue
            reply = self.engine.execute(self, commands[at])
            at += 1
            if not self._take(reply):
                self._hold(commands[at if reply is not None else at - 1 :])
                return
        if self._decoder.error is not None or self._is_at_end:
            self._end_of_commands()

    def eof_received(self) -> bool:
        """The client sends no more. Unless a command is blocked, all are answered before the connection is closed."""
        if self.is_blocked:
            self.engine.blocking.forget(self)
            return False
        if not (self.out or self._held or self.waiting_turns):
            return False
        if self._held:
            self._is_at_end = True
        else:
            self.close_after_reply()
        return True

    def pause_writing(self) -> None:
        self._is_clogged = True
        self.update_reading()

    def resume_writing(self) -> None:
        self._is_clogged = False
        self.go_on()
        self.update_reading()

    # --- commands that wait -------------------------------------------------------------------------------------

    def _take(self, reply: bytes | None) -> bool:
        """Take the reply of the general path; false: the commands after it, and it too if there is none, wait."""
        if reply is None:
            self._is_paused = True
            return False
        if reply is BLOCKED:
            return False
        if not self.takes_reply():
            reply = b""
        self.out.append(reply)
        self._out_bytes += len(reply)
        return self._out_bytes < limits.REPLIES_BYTES_HELD and not self.closes_after_reply

    def _hold(self, commands: list[Words]) -> None:
        if self.closes_after_reply:
            return
        if commands or self.is_blocked:
            self._held = commands
            self.command_count -= len(commands)  # they count when they are run
            self.update_reading()
        else:
            self._end_of_commands()

    def go_on(self) -> None:
        """Run commands that were held, as far as they may."""
        if self.is_blocked or self._is_clogged or self._is_paused or self._transport is None or not self._held:
            return
        commands, self._held = self._held, []
        if not self.out:
            self._turns.add(self)
        self._run(commands)
        self.update_reading()

    def unblock(self, reply: bytes) -> None:
        """The command that waited for a key has its reply."""
        if self._transport is None:
            return
        if not self.out:
            self._turns.add(self, is_woken=True)
        self._take(reply)
        if not self._held:  # held commands go on when this is sent: the caller may be in the middle of a command
            self._end_of_commands()
        self.update_reading()

    def end_pause(self) -> None:
        self._is_paused = False
        self.go_on()

    def _end_of_commands(self) -> None:
        """All commands that were decoded have been run."""
        if self._decoder.error is not None and self.is_authenticated:
            # AUTH may have come together with a command that was too large for a stranger.
            self._held = self._decoder.resume()
            if self._held:
                self.go_on()
                return
        if self._decoder.error is not None:
            self.out.append(encode_error(f"ERR {self._decoder.error}"))
            self.close_after_reply()
        elif self._is_at_end:
            self.close_after_reply()

    def update_reading(self) -> None:
        """Read only commands that can be run. From a blocked client read a little more, to see whether it goes away."""
        is_behind = len(self._held) > (limits.HELD_COMMANDS_MAX if self.is_blocked else 0)
        is_wanted = not (
            self._is_clogged or is_behind or self._is_stuck or self._is_stopping or self._connections.waits_for_disk
        )
        if is_wanted == self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- replies ------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send the replies of a turn. Hot."""
        if self._write is None:
            return
        self._write(data)
        self._out_bytes = 0
        if self.closes_after_reply:
            if self._transport is not None and not (self.out or self.waiting_turns):
                self._transport.close()
        elif self._held:
            asyncio.get_running_loop().call_soon(self.go_on)

    def push(self, data: bytes) -> None:
        """A message of pub/sub: it leaves with this turn's replies. A client that does not read is cut off."""
        if self._transport is None:
            return
        if not self.out:
            self._turns.add(self)
        self.out.append(data)
        self._out_bytes += len(data)
        if self.unsent_bytes > self._connections.output_limits.hard_bytes:
            self.engine.metrics.cut_for_output += 1
            self.kill()

    def set_stuck(self, is_stuck: bool) -> None:
        """The replies wait for space on the disk, or no longer. Meanwhile nothing is read: replies would pile up."""
        self._is_stuck = is_stuck
        self.update_reading()

    def stop_reading(self) -> None:
        """The server stops: what was read is answered, and nothing more is read."""
        self._is_stopping = True
        self.update_reading()

    def close(self) -> None:
        """Close once everything that was sent has been taken."""
        if self._transport is not None:
            self._transport.close()

    def kill(self) -> None:
        """Close at once, whatever it has not taken yet."""
        self.close_after_reply()
        self.engine.blocking.forget(self)
        self.out.clear()
        self._held.clear()
        if self._transport is not None:
            self._transport.abort()

    def abort(self, reason: str) -> None:
        """Close with an error instead of the replies that were about to be sent."""
        self.out.clear()
        if self._transport is not None:
            self._transport.write(encode_error(f"MISCONF {reason}"))
            self._transport.close()

    # --- what others want to know -------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Some command of the client has no reply yet."""
        return bool(self.out or self.waiting_turns or (self._held and not self.is_blocked))

    @property
    def unsent_bytes(self) -> int:
        return self._out_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def descriptor(self) -> int:
        connection = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connection is None else int(connection.fileno())

    @property
    def age_s(self) -> int:
        return (self.engine.clock.monotonic_us() - self._came_us) // 1_000_000

    @property
    def idle_s(self) -> int:
        now_us = self.engine.clock.monotonic_us()
        self.look(now_us)
        return (now_us - self._active_us) // 1_000_000

    def look(self, now_us: int) -> None:
        """Note whether the client has sent commands since the last look."""
        if self.command_count != self._seen_count:
            self._seen_count = self.command_count
            self._active_us = now_us
