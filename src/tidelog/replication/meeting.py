"""What a server answers to the hello of one that wants to follow it.

    hello ──► whose data is it?  ──► not ours, or none ───────────────► full sync
                  │ ours
                  └► compare ──► shared ──────────────────────────────► continue
                             ├─► shared, but what follows is damaged ─► full sync
                             ├─► erased, unrelated ───────────────────► full sync
                             ├─► ahead ──► we came back after a crash ► we want its tail
                             │             otherwise ─────────────────► refused: it waits until we have caught up
                             └─► diverged ──► it lived on without us,
                                              and we came back ───────► refused: we may not be the leader any more
                                              we follow it ───────────► refused: it waits until we have caught up
                                              otherwise ──────────────► refused: it sets aside what is not ours

A follower whose own link is down does not know whether its end of the history will last. It goes on with whoever shares
it, and sends all others away until it knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.ids import Ts
from tidelog.journal.readable import ReadableJournal
from tidelog.replication.message import FollowerHello, LinkRefused, RefusalReason, SyncReason
from tidelog.replication.shared_history import Ahead, Diverged, Erased, Shared, compare

NOTHING_UNREAD: Final = Ts(-1)


@dataclass(frozen=True, slots=True)
class ContinueAnswer:
    """It is sent what follows its position."""

    next_epoch: int
    """Index of the first of our epochs that it does not know."""


@dataclass(frozen=True, slots=True)
class FullSyncAnswer:
    """It is sent everything."""

    reason: SyncReason


@dataclass(frozen=True, slots=True)
class TailAnswer:
    """It sends us what we have lost."""


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """It is sent nothing."""

    refusal: LinkRefused
    deposes: bool = False
    """Somebody was made leader after us: we take no writes until we are told what we are."""


MeetingAnswer: TypeAlias = ContinueAnswer | FullSyncAnswer | TailAnswer | RefusedAnswer


def answer(
    journal: ReadableJournal,
    hello: FollowerHello,
    *,
    is_settled: bool,
    is_returning: bool,
    is_our_leader: bool = False,
    unread_ts: Ts = NOTHING_UNREAD,
) -> MeetingAnswer:
    """What a hello is answered with.

    `is_settled`: we lead, or are linked to our own leader. `is_returning`: we lead, have come back after a crash, and
    have not begun an epoch since. `is_our_leader`: we follow it. `unread_ts`: something after it cannot be read, so
    whoever has less gets a snapshot.
    """
    if not hello.database_id or not hello.position.shards:
        return _all_of_it(SyncReason.EMPTY, is_settled=is_settled)
    if hello.database_id != journal.meta.database_id:
        return _all_of_it(SyncReason.UNRELATED, is_settled=is_settled)
    found = compare(journal, hello.epochs, hello.position)
    if isinstance(found, Shared):
        if hello.position.ts <= unread_ts and hello.position.ts < journal.writer.visible.ts:
            return _all_of_it(SyncReason.ERASED, is_settled=is_settled)
        return ContinueAnswer(found.next_epoch)
    if isinstance(found, Ahead):
        if is_returning:
            return TailAnswer()
        return RefusedAnswer(LinkRefused(RefusalReason.BEHIND, "it has more than we have"))
    if isinstance(found, Diverged):
        if found.is_newer and is_returning:
            text = "it knows an epoch that began after ours: another server was made leader"
            return RefusedAnswer(LinkRefused(RefusalReason.NEWER_EPOCH, text), deposes=True)
        if not is_settled or is_our_leader:
            return _not_settled()
        text = f"what it has after ts {found.since} is not of our history"
        return RefusedAnswer(LinkRefused(RefusalReason.DIVERGED, text, found.since, found.epoch))
    reason = SyncReason.ERASED if isinstance(found, Erased) else SyncReason.UNRELATED
    return _all_of_it(reason, is_settled=is_settled)


def _all_of_it(reason: SyncReason, *, is_settled: bool) -> MeetingAnswer:
    return FullSyncAnswer(reason) if is_settled else _not_settled()


def _not_settled() -> RefusedAnswer:
    return RefusedAnswer(LinkRefused(RefusalReason.BEHIND, "we may lack what our own leader has"))
