"""One end of a link: bytes to messages and back, and the deadlines that hold for both ends.

    connected   the other end is there
    take        a message came
    finished    the link is over, whoever ended it; told once

A peer that breaks the protocol, or is not heard of for `REPLICATION_SILENCE_S`, is told so and cut. Both ends send
something often enough for that (announcements, acknowledgements), so a half-open link does not stay for long.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from tidelog import limits
from tidelog.errors import Corruption, ReplicationError, TooOld
from tidelog.ports import Clock, LinkEnd, NetworkLink
from tidelog.replication.kinds import LinkSide
from tidelog.replication.message import EndReason, LinkFarewell, LinkMessage, LinkPing, LinkPong
from tidelog.replication.wire import PieceDecoder, encode

_LOG: Final = logging.getLogger("tidelog")
_SILENCE_US: Final = round(limits.REPLICATION_SILENCE_S * 1e6)


class LinkSpeaker(ABC):
    """`ports.LinkOwner` of one end."""

    def __init__(self, clock: Clock, peer_side: LinkSide) -> None:
        self._clock = clock
        self._decoder = PieceDecoder(peer_side)
        self._link: NetworkLink | None = None
        self._heard_us = clock.monotonic_us()
        """When the peer was last heard of."""
        self._is_over = False
        self._has_spoken = False
        """Our first message is sent: before it, nothing else may be."""
        self._farewell = ""
        """Why the peer said that it ends the link."""
        self._unanswered: LinkPing | None = None
        """The newest ping that came while there was no room for an answer."""

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def silent_us(self) -> int:
        """For how long nothing has come from the peer."""
        return self._clock.monotonic_us() - self._heard_us

    def set_link(self, link: NetworkLink) -> None:
        self._link = link

    def send(self, *messages: LinkMessage) -> None:
        self._has_spoken = True
        self.send_pieces(b"".join(map(encode, messages)))

    def send_pieces(self, data: bytes) -> None:
        if self._link is not None and self._link.is_open:
            self._link.send(data)

    def end(self, reason: EndReason, text: str) -> None:
        """Tell the peer, and end the link."""
        if not self._is_over:
            parting = LinkFarewell(reason, text) if self._has_spoken else self.unspoken_end(text)
            if parting is not None:
                self.send(parting)
            if self._link is not None:
                self._link.close()
            self._finish(text)

    def cut(self, text: str) -> None:
        """End the link at once."""
        if not self._is_over:
            if self._link is not None:
                self._link.abort()
            self._finish(text)

    def read_for_peer(self, step: Callable[[], None]) -> None:
        """Do what reads the journal or a snapshot for this link: what cannot be read ends the link alone."""
        try:
            step()
        except TooOld as error:
            self.end(EndReason.ERASED, str(error))
        except (Corruption, OSError) as error:
            self.end_unread(error)

    def end_unread(self, error: Corruption | OSError) -> None:
        """What is needed for this link cannot be read."""
        _LOG.error("what a link needs cannot be read: %s", error)
        self.end(EndReason.DAMAGED, str(error))

    def stop_receiving(self) -> None:
        """Take nothing more for now: what the peer sends waits with it."""
        if self._link is not None:
            self._link.stop_receiving()

    def resume_receiving(self) -> None:
        if self._link is not None and not self._is_over:
            self._heard_us = self._clock.monotonic_us()
            self._link.resume_receiving()

    def look(self) -> None:
        """Some times a second: cut a peer that is not there."""
        if not self._is_over and self.silent_us > _SILENCE_US:
            self.send(LinkFarewell(EndReason.SILENT, "nothing came for too long"))
            self.cut(f"nothing was heard of the peer for {self.silent_us / 1e6:.0f} s")

    # --- ports.LinkOwner ----------------------------------------------------------------------------------------

    def connected(self) -> None:
        self._heard_us = self._clock.monotonic_us()

    def received(self, data: bytes) -> None:
        """Hot."""
        if self._is_over:
            return
        self._heard_us = self._clock.monotonic_us()
        decoder = self._decoder
        decoder.feed(data)
        try:
            while (message := decoder.next()) is not None:
                self._take(message)
                if self.is_over:
                    return
            self.took_all()
        except ReplicationError as error:
            self.end(EndReason.MISUSED, str(error))

    def _take(self, message: LinkMessage) -> None:
        if isinstance(message, LinkPing):
            self._unanswered = message
            self._answer_ping()
        elif isinstance(message, LinkFarewell):
            self._farewell = message.text or message.reason.name.lower().replace("_", " ")
            self.parted(message)
            self.cut(f"the peer ended the link: {self._farewell}")
        elif not isinstance(message, LinkPong):
            self.take(message)

    @property
    def has_room(self) -> bool:
        """Whether the peer reads what it is sent. If it does not, nothing that can wait is sent."""
        return self._link is not None and self._link.has_room

    def _answer_ping(self) -> None:
        if self._unanswered is not None and self.has_room:
            self.send(LinkPong(self._unanswered.sent_us))
            self._unanswered = None

    def room(self) -> None:
        self._answer_ping()

    def ended(self, end: LinkEnd, reason: str) -> None:
        self._finish(f"the link was {end}: {reason}" if end == "lost" else reason)

    def _finish(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self.finished(reason)

    # --- what an end does ---------------------------------------------------------------------------------------

    @abstractmethod
    def take(self, message: LinkMessage) -> None:
        """A message came. `ReplicationError`: it makes no sense, and the link ends."""

    def unspoken_end(self, text: str) -> LinkMessage | None:  # noqa: ARG002
        """How a link is ended before our hello; None: without a word, since only a hello may open what we send."""
        return None

    def parted(self, farewell: LinkFarewell) -> None:  # noqa: ARG002
        """The peer has said why it ends the link, which is over next."""
        return

    def took_all(self) -> None:
        """All messages that had come together were taken."""
        return

    @abstractmethod
    def finished(self, reason: str) -> None:
        """The link is over."""
