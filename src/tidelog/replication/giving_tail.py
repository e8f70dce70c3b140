"""What a follower has beyond a leader that lost its tail in a crash: sent up, as far as the socket takes it."""

from __future__ import annotations

from tidelog.errors import Corruption, TooOld
from tidelog.journal.journal import Journal
from tidelog.replication.history import History
from tidelog.replication.leader_link import LeaderLink
from tidelog.replication.message import EndReason, HistoryPosition, Reached, TailEnd
from tidelog.replication.wire import encode


class GivingTail:
    """The history after the leader's position, up to its end here."""

    def __init__(self, journal: Journal, link: LeaderLink, begin: HistoryPosition) -> None:
        self._journal = journal
        self._link = link
        self._begin = Reached(begin.ts, begin.lsns)
        self._history: History | None = None
        self._is_over = False

    def send(self) -> None:
        """Some more, and the end after the last."""
        if self._is_over:
            return
        try:
            if self._history is None:
                self._history = History(self._journal, self._begin, len(self._journal.epochs))
            history = self._history
            while self._link.has_room and not self._is_over:  # sending may end the link, and this with it
                messages = history.read()
                if messages is None:
                    visible = self._journal.writer.visible
                    self._link.send(TailEnd(Reached(visible.ts, visible.lsns)))
                    self.close()
                    return
                self._link.send_pieces(b"".join(map(encode, messages)))
        except (TooOld, Corruption, OSError) as error:
            self.close()
            self._link.end(EndReason.DAMAGED, str(error))

    def close(self) -> None:
        self._is_over = True
        if self._history is not None:
            self._history.close()
            self._history = None
