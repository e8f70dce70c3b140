"""What a client sent, as commands: `plain` for what is whole and plain, `exact` for everything else.

    bytes --> is a command under way? --no--> plain --what it did not take--> exact, to the end of these bytes
                   |                            ^
                   yes --> exact, its end only -'

A client that has not authenticated is `exact`'s alone, which knows its limits. hiredis decodes requests too, but it was
made for replies: it makes room for as many elements as a head declares, takes types that a request cannot have, and
knows no line form.
"""

from __future__ import annotations

from tidelog.resp.exact import ExactDecoder, ProtocolError, RequestLimits, Words
from tidelog.resp.plain import BULK_BYTES_MAX, take_plain


class RequestDecoder:
    """One connection's requests."""

    def __init__(self, bounds: RequestLimits) -> None:
        self._exact = ExactDecoder(bounds)
        self._is_exact = not bounds.is_authenticated
        """A command is under way, or only `exact` may look at what comes."""
        self._bulk_bytes_max = min(bounds.bulk_bytes_max, BULK_BYTES_MAX)
        """Of `plain`."""
        self.unjoined = self._exact.unjoined
        """Large arguments of commands that were returned, still in pieces; the taker empties it."""
        self.error: str | None = None
        """What is wrong with the bytes after the last command; nothing more will come."""

    @property
    def bounds(self) -> RequestLimits:
        return self._exact.bounds

    @property
    def gathering(self) -> int:
        """Bytes of a large argument that are still to come, before anything can be complete."""
        return self._exact.gathering

    @property
    def is_behind(self) -> bool:
        """There may be more commands in what it was fed: feed it again, if need be with no bytes."""
        return self._exact.is_behind

    @property
    def buffered_bytes(self) -> int:
        """What has arrived of a command that is not complete."""
        return self._exact.buffered_bytes

    def set_limits(self, bounds: RequestLimits) -> None:
        """From the next bytes on."""
        self._exact.bounds = bounds
        self._bulk_bytes_max = min(bounds.bulk_bytes_max, BULK_BYTES_MAX)
        self._choose()

    def resume(self) -> list[Words]:
        """What follows the last command if only limits were in the way, and are no more (AUTH and more in one buffer);
        otherwise the error stays as it is."""
        self.error = None
        return self._decode_exactly(b"")

    def feed(self, data: bytes) -> list[Words]:
        """The commands that are complete with these bytes. Hot. Afterwards `error` may be set."""
        commands: list[Words] = []
        if self._is_exact:
            if self.error is not None or not self._exact.bounds.is_authenticated:
                return self._decode_exactly(data)
            rest = self._end_command(data, commands)
            if rest is None:
                return commands
            data = rest
        at = take_plain(data, commands, self._bulk_bytes_max)
        if at < len(data):
            commands += self._decode_exactly(data[at:])
        return commands

    def _end_command(self, data: bytes, commands: list[Words]) -> bytes | None:
        """Let `exact` have the end of the command under way; the bytes behind it, or None if it is not complete."""
        exact = self._exact
        try:
            is_ended = exact.feed_one(data)
        except ProtocolError as error:
            self.error = str(error)
            is_ended = False
        commands += exact.take_commands()
        if not is_ended:
            return None
        self._is_exact = False
        return exact.take_rest()

    def _decode_exactly(self, data: bytes) -> list[Words]:
        exact = self._exact
        if self.error is not None:
            exact.keep(data)  # AUTH may come to be run before it is too late
            return []
        try:
            exact.feed(data)
        except ProtocolError as error:
            self.error = str(error)
        self._choose()
        return exact.take_commands()

    def _choose(self) -> None:
        self._is_exact = self.error is not None or not self._exact.bounds.is_authenticated or not self._exact.is_idle
