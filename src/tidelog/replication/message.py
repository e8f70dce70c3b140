"""Everything that a leader and a follower say to each other, as values.

    meeting        FollowerHello ->  <- LeaderHello, then ContinueSync, FullSync or TailWanted; or only LinkRefused
    the history    TransactionParts, LongRecord, EpochBegins, Publication, LongPublication, PayloadPiece: *ordered*,
                   what comes later happened later. TailEnd, where a follower sends its tail up
    beside it      Announcement, Acknowledgement, LinkPing, LinkPong, TakeOver: between any two pieces, also inside of a
                   payload
    full sync      SyncFile, FilePiece, FileEnd: beside the history, too
    the end        LinkFarewell

A transaction goes as parts of shards (`journal.reader.Part`), in order of ts: `is_last` ends it. A large one goes as
several, and a payload that is too long for a piece follows its record in pieces of its own, as does that of a
publication. `incoming` puts them together again.

What lies in files (frames, marks, positions, references to blobs) never goes over a link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from tidelog import limits
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.reader import Part

VERSION: Final = 1
"""Of the protocol. The first message of each side says which one it speaks."""


class LinkRole(IntEnum):
    """What a server is, as its data directory says."""

    LEADER = 1
    FOLLOWER = 2


class SyncReason(IntEnum):
    """Why a follower gets a full sync."""

    EMPTY = 1
    """It has nothing."""
    ERASED = 2
    """The journal here no longer has what follows its position."""
    UNRELATED = 3
    """Nothing shows that its lsns and ours are of one history."""
    ASKED = 4
    """It said that it wants one."""


class RefusalReason(IntEnum):
    """Why a leader has nothing for a follower."""

    VERSION = 1
    """It speaks another version of the protocol."""
    OTHER_DATABASE = 2
    """Its data is not a copy of ours."""
    OTHER_SHARDS = 3
    """Its data is divided into another number of shards."""
    DIVERGED = 4
    """It has transactions after `since` that are not of our history: it sets them aside and comes back."""
    NEWER_EPOCH = 5
    """It knows an epoch that began after ours: another server has been made leader."""
    BEHIND = 6
    """We have less than it has, and expect the rest from elsewhere: it waits and comes back."""
    LOADING = 7
    """We are still reading our data: it waits and comes back."""
    NOT_SERVING = 8
    """We take no followers: the text says why."""


class EndReason(IntEnum):
    """Why a link ends in order."""

    STOPPING = 1
    """The server stops."""
    ROLE_CHANGED = 2
    """It leads or follows somebody else now."""
    REPLACED = 3
    """The same peer has made another link."""
    ERASED = 4
    """The journal has moved past the follower: it comes back for a full sync."""
    DAMAGED = 5
    """What is to be sent cannot be read, or what was sent as a snapshot is none: the text says what."""
    MISUSED = 6
    """The peer sent what makes no sense: the text says what."""
    SILENT = 7
    """Nothing came from the peer for too long."""


# --- where a history stands -------------------------------------------------------------------------------------


class ShardEnd(NamedTuple):
    """Where the history of one shard ends."""

    lsn: Lsn
    """Of the next record."""
    ts: Ts | None
    """Of the record before it (0: there is none); None: not known, as after a snapshot that has its effect alone."""


class HistoryPosition(NamedTuple):
    """A place between two transactions, over all shards."""

    ts: Ts
    """Of the last transaction before it; 0: there is none."""
    shards: tuple[ShardEnd, ...]

    @property
    def lsns(self) -> tuple[Lsn, ...]:
        return tuple(end.lsn for end in self.shards)


class Reached(NamedTuple):
    """The same without what proves it: between two that have met already."""

    ts: Ts
    lsns: tuple[Lsn, ...]


class FilePart(NamedTuple):
    """What there is of a file of a full sync."""

    name: str
    size: int
    """Bytes from its start."""
    crc: int
    """CRC32C of them."""


class UnfinishedSync(NamedTuple):
    """What a follower has of a full sync that was interrupted."""

    ts: Ts
    """The moment of its snapshot."""
    files: tuple[FilePart, ...]


# --- meeting ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FollowerHello:
    """The first message of whoever connects: what it is, and what it has."""

    database_id: str
    """Empty: it has no data yet."""
    role: LinkRole
    position: HistoryPosition
    """The end of its history; without data, it has no shards."""
    epochs: tuple[Epoch, ...] = ()
    """The newest that it knows (`newest_epochs`), oldest first."""
    unfinished: UnfinishedSync | None = None
    host: str = ""
    """Where clients find it; empty: where the link comes from."""
    port: int = 0
    priority: int = 100
    """As Sentinel has it: the lowest is promoted first; 0: never."""
    server_id: str = ""
    """Of its data directory: others may say the same host and port."""


@dataclass(frozen=True, slots=True)
class LeaderHello:
    """The first answer: what the other side is, and what it has."""

    database_id: str
    role: LinkRole
    position: HistoryPosition
    """The end of what is visible."""
    epochs: tuple[Epoch, ...] = ()
    server_id: str = ""
    """Of its data directory, by which it is known if it asks to follow in its turn; empty: a copy, which never does."""
    is_of_copy: bool = False
    """It came out of a copy in an object store: whoever leads from here on is a database of its own."""


@dataclass(frozen=True, slots=True)
class ContinueSync:
    """The follower's position lies on our history: what comes after it follows."""

    ts: Ts
    """Of the last transaction that is not sent."""


@dataclass(frozen=True, slots=True)
class FullSync:
    """A snapshot follows as files, and beside it the history after its moment."""

    reason: SyncReason
    ts: Ts
    lsns: tuple[Lsn, ...]
    """Of the first records that the snapshot does not have."""
    files: int
    """So many are listed ..."""
    size: int
    """... and so many bytes they have together."""


@dataclass(frozen=True, slots=True)
class TailWanted:
    """The follower is ahead of us in our own epoch: it is to send what follows our position."""


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """Nothing follows."""

    reason: RefusalReason
    text: str = ""
    """For people."""
    since: Ts = Ts(0)
    """If it has diverged: the last ts up to which both histories are the same ..."""
    epoch: int = 0
    """... and the newest epoch that both know: the follower forgets what came after either."""


# --- the history ------------------------------------------------------------------------------------------------


class TransactionParts(NamedTuple):
    """Transactions, or some of one, in order. Records have no references: payloads are whole. Hot."""

    parts: list[Part]


class LongRecord(NamedTuple):
    """A record whose payload follows, in `PayloadPiece`s of `size` bytes together."""

    part: Part
    """It has this record only, with an empty payload. `is_last`: with that payload the transaction is whole."""
    size: int


class PayloadPiece(NamedTuple):
    """The next bytes of a payload."""

    data: bytes


@dataclass(frozen=True, slots=True)
class EpochBegins:
    """All before it belongs to earlier epochs."""

    epoch: Epoch


class Publication(NamedTuple):
    """A message that was published on the leader after all that was sent before it."""

    channel: bytes
    payload: bytes
    is_sharded: bool = False
    """Published with SPUBLISH: shard channels are channels of their own."""


class LongPublication(NamedTuple):
    """The same for a long one: channel and payload follow, as one, in `PayloadPiece`s."""

    channel_size: int
    payload_size: int
    is_sharded: bool = False


@dataclass(frozen=True, slots=True)
class TailEnd:
    """Our tail is sent, up to here."""

    reached: Reached


# --- beside it --------------------------------------------------------------------------------------------------

NOBODY_LEADS: Final = 255


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the leader knows of time. Whatever it says of transactions has been sent before it."""

    closed_ts: Ts
    """No transaction at or below it will follow."""
    clock_bound: Ts
    """The leader gives out no ts above it before it has announced a higher one: who is promoted begins above it."""
    wall_us: int
    """When this was said, by the leader's clock: its age is the lag."""
    distance: int
    """How many links away from a server that leads whoever says this is; `NOBODY_LEADS`: none is known."""
    records: int
    """How many records the leader's history has. This alone runs ahead: some of them may still be on their way ..."""
    behind_bytes: int
    """... and about how many bytes of it the follower has not confirmed."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """How far a follower is."""

    written: Reached
    """This survives the death of its process ..."""
    durable: Reached
    """... and this that of its machine."""


@dataclass(frozen=True, slots=True)
class LinkPing:
    """Answered with a pong of the same time."""

    sent_us: int


@dataclass(frozen=True, slots=True)
class LinkPong:
    """The answer to a ping."""

    sent_us: int


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The leader follows whoever gets this from now on, and has sent it everything: it is to lead."""

    ts: Ts
    """It has confirmed everything up to here."""


# --- full sync --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SyncFile:
    """One file of the snapshot. All are listed before the first piece; they are numbered from 0."""

    number: int
    name: str
    """Its path in the snapshot's folder, with `/` between parts (`check_name`)."""
    size: int
    begin: int
    """From here on it is sent: what lies before, the follower has, and its checksum is right."""


class FilePiece(NamedTuple):
    """Some of a file."""

    number: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class FileEnd:
    """All of a file has been sent."""

    number: int
    crc: int
    """CRC32C of the whole file, what the follower had of it among it."""


# --- the end ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LinkFarewell:
    """Nothing follows; the connection is closed."""

    reason: EndReason
    text: str = ""
    """For people."""


LinkMessage: TypeAlias = (
    FollowerHello
    | LeaderHello
    | ContinueSync
    | FullSync
    | TailWanted
    | LinkRefused
    | TransactionParts
    | LongRecord
    | PayloadPiece
    | EpochBegins
    | Publication
    | LongPublication
    | TailEnd
    | Announcement
    | Acknowledgement
    | LinkPing
    | LinkPong
    | TakeOver
    | SyncFile
    | FilePiece
    | FileEnd
    | LinkFarewell
)


def publication_messages(channel: bytes, payload: bytes, *, is_sharded: bool = False) -> Iterator[LinkMessage]:
    """What is sent of a message that was published: one message, or if it is long, several."""
    size = len(channel) + len(payload)
    if size <= limits.REPLICATION_LONG_BYTES:
        yield Publication(channel, payload, is_sharded)
        return
    yield LongPublication(len(channel), len(payload), is_sharded)
    for data in (channel, payload):
        for at in range(0, len(data), limits.REPLICATION_PAYLOAD_BYTES):
            yield PayloadPiece(data[at : at + limits.REPLICATION_PAYLOAD_BYTES])


def newest_epochs(epochs: Sequence[Epoch]) -> tuple[Epoch, ...]:
    """As many as two servers tell each other."""
    if not epochs:
        return ()
    count_max = limits.REPLICATION_EPOCHS_BYTES_MAX // (8 * (3 + len(epochs[-1].lsns)))
    return tuple(epochs[-min(count_max, limits.EPOCHS_KEPT_MAX) :])
