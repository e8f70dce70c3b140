"""The link to one server that follows us: our end of it.

    meeting ──► catching up ──► online            the history after its position, then as it becomes visible
       │  ├────► snapshot due ──► files           a full sync: files of a snapshot, and beside them the history
       │  └────► taking tail ──► catching up      it has what we lost in a crash, and sends it
       └───────► refused

We never wait for its socket: what it does not take stays in the journal, on disk, and is read when it takes more. Only
messages that were published wait in memory, with a bound.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.errors import Corruption, HistoryAway, HolderLapsed, JournalFull, LinkMisused, TooOld
from tidelog.ids import Ts
from tidelog.journal.journal import Journal
from tidelog.ports import NetworkAddress, NetworkLink
from tidelog.replication.hello import leader_hello
from tidelog.replication.history import History, epochs_at
from tidelog.replication.kinds import LinkSide
from tidelog.replication.meeting import ContinueAnswer, FullSyncAnswer, MeetingAnswer, RefusedAnswer, TailAnswer, answer
from tidelog.replication.message import (
    Acknowledgement,
    Announcement,
    ContinueSync,
    EndReason,
    FollowerHello,
    FullSync,
    LinkFarewell,
    LinkMessage,
    LinkRefused,
    Reached,
    RefusalReason,
    SyncReason,
    TailWanted,
)
from tidelog.replication.options import PRIORITY_DEFAULT
from tidelog.replication.role_file import FollowerName
from tidelog.replication.sending_files import SendingFiles
from tidelog.replication.speaker import LinkSpeaker
from tidelog.replication.states import FollowerState
from tidelog.replication.taking_tail import TakingTail
from tidelog.replication.waiting_publications import WaitingPublications
from tidelog.replication.wire import encode

if TYPE_CHECKING:
    from tidelog.replication.followers import Followers

_LOG: Final = logging.getLogger("tidelog")


def holder_name_of(follower: FollowerName) -> str:
    return f"follower {follower}"


class FollowerLink(LinkSpeaker):
    """Our end of a link that a follower has made."""

    def __init__(self, followers: Followers, link: NetworkLink) -> None:
        super().__init__(followers.clock, LinkSide.FOLLOWER)
        self._followers = followers
        self.set_link(link)
        self._since_us = self._clock.monotonic_us()
        self.state = FollowerState.MEETING
        self.name = FollowerName(*link.peer, "")
        self.is_doubted = False
        """Another server has come under its address and it was not heard of since: it may be what was there before."""
        self.priority = PRIORITY_DEFAULT
        self.written = Reached(Ts(0), ())
        """What survives the death of its process ..."""
        self.durable = Reached(Ts(0), ())
        """... and that of its machine, as far as it told."""
        self._hello: FollowerHello | None = None
        self._history: History | None = None
        self._files: SendingFiles | None = None
        self._sync_reason = SyncReason.EMPTY
        self._snapshot_path = ""
        """Of the snapshot that it is sent."""
        self._tail: TakingTail | None = None
        """The tail that it sends ..."""
        self.tail_us = 0
        """... and when some of it last came (monotonic)."""
        self._publications = WaitingPublications()
        self._announced_us = 0

    # --- what others ask ----------------------------------------------------------------------------------------

    @property
    def is_online(self) -> bool:
        return self.state in (FollowerState.CATCHING_UP, FollowerState.ONLINE)

    @property
    def has_met(self) -> bool:
        """It has said who it is."""
        return self._hello is not None

    @property
    def counts(self) -> bool:
        """What it has confirmed counts as what one server has."""
        return self.is_online and not self.is_doubted

    @property
    def address(self) -> NetworkAddress:
        """Where clients find it, as it says."""
        return self.name.address

    @property
    def holder_name(self) -> str:
        """What the journal keeps for it is held under this name."""
        return holder_name_of(self.name)

    @property
    def records_behind(self) -> int:
        """Visible records that it has not acknowledged; -1: not known."""
        if not self.written.lsns:
            return -1
        return sum(self._followers.journal.writer.visible.lsns) - sum(self.written.lsns)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._link is None else self._link.unsent_bytes

    @property
    def file_bytes_left(self) -> int:
        return 0 if self._files is None else self._files.bytes_left

    # --- meeting ------------------------------------------------------------------------------------------------

    def take(self, message: LinkMessage) -> None:
        if isinstance(message, Acknowledgement):
            self._acknowledge(message)
        elif isinstance(message, FollowerHello):
            self.read_for_peer(partial(self._meet, message))
        elif self._tail is not None:
            self._take_tail(self._tail, message)
        else:
            raise LinkMisused(f"{type(message).__name__} came while the link is in state {self.state.value}")

    def _meet(self, hello: FollowerHello) -> None:
        followers = self._followers
        if not followers.is_open:
            self._refuse(LinkRefused(RefusalReason.LOADING, "the data is being loaded"))
            return
        journal = followers.journal
        self._hello, self.priority = hello, hello.priority
        host, port = self.address
        self.name = FollowerName(hello.host or host, hello.port or port, hello.server_id)
        followers.replace(self)
        hello_back = leader_hello(journal, followers.role, followers.server_id, is_of_copy=followers.speaks_for_copy)
        found = self._answer(journal, hello)
        if isinstance(found, RefusedAnswer):
            self._refuse(found.refusal)
            if found.deposes:
                followers.depose(self)
            return
        self.send(hello_back)
        if isinstance(found, ContinueAnswer):
            followers.partial_syncs += 1
            self._continue(Reached(hello.position.ts, hello.position.lsns), found.next_epoch)
        elif isinstance(found, TailAnswer):
            self.state = FollowerState.TAKING_TAIL
            position = hello_back.position
            begin = Reached(position.ts, position.lsns)
            self._tail = TakingTail(followers.server, begin, followers.worker, self._tail_went_on)
            self.tail_us = self._clock.monotonic_us()
            self.send(TailWanted())
        elif isinstance(found, FullSyncAnswer):
            followers.full_syncs += 1
            self._sync_reason = found.reason
            self.state = FollowerState.SNAPSHOT_DUE
            _LOG.info("follower %s:%d needs a full sync: %s", *self.address, found.reason.name.lower())
            self._begin_files(may_wait=True)

    def _answer(self, journal: Journal, hello: FollowerHello) -> MeetingAnswer:
        followers, is_our_leader = self._followers, self._followers.is_our_leader(self.name)
        try:
            return answer(
                journal, hello, unread_ts=followers.unread_ts,
                is_settled=followers.is_settled, is_our_leader=is_our_leader, is_returning=followers.is_returning,
            )  # fmt: skip
        except Corruption as error:
            if not followers.is_settled or is_our_leader:
                raise
            _LOG.error("what follower %s:%d has cannot be compared: %s", *self.address, error)
            followers.note_unread(hello.position.ts)
            return FullSyncAnswer(SyncReason.UNRELATED)  # it may have diverged, so it sets aside what it has

    def _refuse(self, refusal: LinkRefused) -> None:
        self._followers.refused_syncs += 1
        _LOG.warning("server %s:%d cannot follow: %s", *self.address, refusal.text)
        self.send(refusal)
        if self._link is not None:
            self._link.close()
        self._finish(refusal.text)

    def _continue(self, begin: Reached, next_epoch: int) -> None:
        self._hold(begin.ts)
        try:
            self._history = History(self._followers.journal, begin, next_epoch)
        except TooOld as error:
            self.end(EndReason.ERASED, str(error))
            return
        except (Corruption, OSError) as error:
            self.end_unread(error)
            return
        self.written = begin
        self.state = FollowerState.CATCHING_UP
        self.send(ContinueSync(begin.ts))
        self._followers.answered(self)
        self._followers.pump_soon()

    def unspoken_end(self, text: str) -> LinkMessage:
        return LinkRefused(RefusalReason.NOT_SERVING, text)

    def end_unread(self, error: Corruption | OSError) -> None:
        _LOG.error("what follower %s:%d needs cannot be read: %s", *self.address, error)
        self.end(EndReason.DAMAGED, str(error))

    def _hold(self, ts: Ts) -> None:
        self._followers.journal.holders.hold(self.holder_name, ts, self._clock.wall_us())

    # --- what we lost -------------------------------------------------------------------------------------------

    def _take_tail(self, tail: TakingTail, message: LinkMessage) -> None:
        if not self._followers.is_returning:
            raise LinkMisused("the tail came too late: an epoch has begun without it")
        self.tail_us = self._clock.monotonic_us()
        try:
            tail.take(message)
        except JournalFull as error:
            self.cut(f"there is no space for the tail: {error}")

    def took_all(self) -> None:
        if self._tail is not None:
            self._go_on_with_tail(self._tail)

    def _tail_went_on(self) -> None:
        """A thread is done with some of it."""
        if self._tail is not None and not self._is_over:
            if self._followers.is_returning:
                self._go_on_with_tail(self._tail)
            else:
                self.end(EndReason.MISUSED, "the tail came too late: an epoch has begun without it")

    def _go_on_with_tail(self, tail: TakingTail) -> None:
        was_stuck = tail.is_stuck
        try:
            end = tail.go_on()
        except JournalFull as error:
            self.cut(f"there is no space for the tail: {error}")
            return
        if tail.is_stuck:
            self.stop_receiving()
        elif was_stuck:
            self.resume_receiving()
        if end is not None:
            _LOG.warning("took back from %s:%d what was lost here, up to ts %d", *self.address, end.ts)
            self._tail = None
            self._followers.partial_syncs += 1
            self._continue(end, len(self._followers.journal.epochs))

    # --- full sync ----------------------------------------------------------------------------------------------

    def _begin_files(self, *, may_wait: bool) -> None:
        """Send the newest snapshot, if the journal has all that follows it; otherwise have one made."""
        journal = self._followers.journal
        pinned = journal.pin_snapshot()
        if pinned is not None and not self._has_all_after(pinned.snapshot.point.ts):
            pinned.release()
            pinned = None
        if pinned is None:
            if may_wait:
                self._followers.server.begin_snapshot()
            return
        point = pinned.snapshot.point
        begin = Reached(point.ts, point.lsns)
        assert self._hello is not None
        try:
            self._hold(point.ts)
            self._history = History(journal, begin, epochs_at(journal.epochs, begin))
        except TooOld:
            pinned.release()
            return
        except BaseException:
            pinned.release()
            raise
        self._snapshot_path = pinned.snapshot.path
        self._files = SendingFiles(pinned, self._hello.unfinished)
        self.state = FollowerState.FILES
        self.send(
            FullSync(self._sync_reason, point.ts, point.lsns, len(self._files.listed), self._files.size),
            *self._files.listed,
        )
        self._followers.answered(self)
        self._followers.pump_soon()

    def _has_all_after(self, ts: Ts) -> bool:
        """Whether a history after a snapshot of a moment can be sent, as far as is known."""
        journal = self._followers.journal
        is_newest = ts == journal.writer.written.ts  # then there is no better one
        return ts >= journal.erased_ts and (ts > self._followers.unread_ts or is_newest)

    # --- sending ------------------------------------------------------------------------------------------------

    def pump(self) -> bool:
        """Send some; true if there is more that its socket takes. Hot."""
        link, history = self._link, self._history
        if link is None or history is None or self._is_over:
            return False
        sent = 0
        try:
            while link.has_room and sent < limits.REPLICATION_PUMP_BYTES:
                files = self._files
                unsent = 0 if files is None else files.bytes_unsent
                data = self._next_pieces(history)
                if data is None:
                    return False
                sent += len(data)
                if files is not None:
                    sent += files.bytes_unsent - unsent  # reading takes its time, too
                if data:
                    self.send_pieces(data)
        except TooOld as error:
            self.end(EndReason.ERASED, str(error))
            return False
        except HistoryAway:
            return False  # it is being fetched from the object store: the next tick asks again
        except (Corruption, OSError) as error:
            if self._files is None and (isinstance(error, Corruption) or error.errno == errno.EIO):
                self._followers.note_unread(history.ts)
            self.end_unread(error)
            return False
        return link.has_room

    def _next_pieces(self, history: History) -> bytes | None:
        """Some of what is to be sent; None: nothing is. Hot."""
        pieces = b""
        if self._files is not None:
            pieces = b"".join(map(encode, self._files.read()))
            if not self._files.has_described:
                return pieces
            if self._files.is_over:
                self._files.close()
                self._files = None
        messages = history.read()
        if messages is None:
            if self.state is FollowerState.CATCHING_UP:
                self.state = FollowerState.ONLINE
            if not history.is_inside:
                pieces += self._publications.take(history.ts)
            return pieces if pieces or self._files is not None else None
        pieces += b"".join(map(encode, messages))
        if not history.is_inside:
            pieces += self._publications.take(history.ts)
        return pieces

    def publish(self, ts: Ts, pieces: bytes) -> bool:
        """Something was published after a ts; false: it was dropped, since too much waits already."""
        return not self.is_online or self._publications.add(ts, pieces)

    def room(self) -> None:
        super().room()
        self._announce_if_due()  # before it is sent more: one that is behind has no room for long
        self._followers.pump_soon()

    def tick(self) -> None:
        """Some times a second."""
        now_us = self._clock.monotonic_us()
        if self.state is FollowerState.MEETING and now_us - self._since_us > limits.REPLICATION_MEETING_S * 1e6:
            self.cut("it never said what it has")
            return
        if self.state is FollowerState.SNAPSHOT_DUE:
            self.read_for_peer(partial(self._begin_files, may_wait=True))
        if self._is_over:
            return
        self._announce_if_due()
        if self._tail is None or not self._tail.is_stuck:
            self.look()
            return
        self.tail_us = now_us  # a thread works on it
        self._tail_went_on()

    def _announce_if_due(self) -> None:
        """Not while it has no room: then it is done once there is."""
        now_us, has_met = self._clock.monotonic_us(), self.state not in (FollowerState.MEETING, FollowerState.OVER)
        if has_met and self.has_room and now_us - self._announced_us >= limits.REPLICATION_ANNOUNCE_US:
            self._announced_us = now_us
            self._announce()

    def _announce(self) -> None:
        """What it may know of time: all at or below the closed ts was sent."""
        history, followers = self._history, self._followers
        closed = Ts(0)
        if history is not None and self._files is None:
            closed = history.ts
            if self.state is FollowerState.ONLINE and not history.is_inside and history.records_behind == 0:
                closed = max(closed, followers.closed_ts())
        hlc = followers.journal.hlc
        bound = max(hlc.bound, hlc.last)  # in a chain, what our own leader has announced
        behind_bytes = followers.lag_bytes(self.written.ts) if self.is_online else 0
        self.send(
            Announcement(
                closed, bound, self._clock.wall_us(), followers.distance,
                followers.history_records, behind_bytes + followers.own_lag_bytes,
            )
        )  # fmt: skip

    # --- what it has --------------------------------------------------------------------------------------------

    def _acknowledge(self, message: Acknowledgement) -> None:
        if self._history is None or len(message.written.lsns) != self._followers.journal.meta.shard_count:
            raise LinkMisused("an acknowledgement of what was never sent")
        if message.written.ts > self._history.ts:
            raise LinkMisused(f"ts {message.written.ts} is acknowledged, and only {self._history.ts} was sent")
        with contextlib.suppress(HolderLapsed):  # it reads on for as long as the journal has what it needs
            self._followers.journal.holders.move(self.holder_name, message.written.ts, self._clock.wall_us())
        if self.is_online:
            self.is_doubted = False
            self.written, self.durable = message.written, message.durable
            self._followers.acknowledged()

    # --- the end ------------------------------------------------------------------------------------------------

    def parted(self, farewell: LinkFarewell) -> None:
        """It may have found that a snapshot has rotted here: the next attempt gets another."""
        if farewell.reason is EndReason.DAMAGED and self.state is FollowerState.FILES:
            self._followers.journal.distrust_snapshot(self._snapshot_path, farewell.text)

    def finished(self, reason: str) -> None:
        was = self.state
        self.state = FollowerState.OVER
        if self._history is not None:
            self._history.close()
            self._history = None
        if self._files is not None:
            self._files.close()
            self._files = None
        if self._tail is not None:
            self._tail.drop()
            self._tail = None
        if was is not FollowerState.MEETING:
            _LOG.info("the link to follower %s:%d is over: %s", *self.address, reason)
        self._followers.remove(self)
