"""One exchange of a leader and a follower with every kind of message, and how to draw any message at random."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hypothesis import strategies as st

from tidelog import limits
from tidelog.ids import U64_MAX, Lsn, ShardId, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.operation import DEL, START, VAL, Start, encode_items, encode_pairs, encode_start
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import EXPIRE, FINISH, TS
from tidelog.replication.kinds import BY_TYPE, LinkSide
from tidelog.replication.message import (
    Acknowledgement,
    Announcement,
    ContinueSync,
    EndReason,
    EpochBegins,
    FileEnd,
    FilePart,
    FilePiece,
    FollowerHello,
    FullSync,
    HistoryPosition,
    LeaderHello,
    LinkFarewell,
    LinkMessage,
    LinkPing,
    LinkPong,
    LinkRefused,
    LinkRole,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    Reached,
    RefusalReason,
    ShardEnd,
    SyncFile,
    SyncReason,
    TailEnd,
    TailWanted,
    TakeOver,
    TransactionParts,
    UnfinishedSync,
)
from tidelog.replication.wire import PieceDecoder, encode

SECOND: Final = 1_700_000_000_000_000
DATABASE_ID: Final = "0c1d2e3f405162738495a6b7c8d9eafb"
FIRST_EPOCH: Final = Epoch(0x0123456789ABCDEF, (Lsn(0), Lsn(0)), Ts(0))
NEXT_EPOCH: Final = Epoch(0x0FEDCBA987654321, (Lsn(12), Lsn(4)), Ts(SECOND + 30), Ts(SECOND + 40))
SET_FOO_BAR: Final = encode_pairs([(b"foo", b"bar")])


def record(lsn: int, ts: int, flags: int = TS | FINISH, payload: bytes = SET_FOO_BAR, opcode: int = VAL) -> Record:
    return Record(Lsn(lsn), Ts(ts), opcode, flags, 0, -1, payload)


def _two_shards(ts: int) -> list[Part]:
    """A transaction over both shards, from lsns 9 and 3 on."""
    first, second = ShardId(0), ShardId(1)
    start = record(9, ts, TS, encode_start(Start(Ts(ts), [first, second])), START)
    expiring = Record(Lsn(10), Ts(ts), VAL, FINISH | EXPIRE, 3, 1_800_000_000_000, SET_FOO_BAR)
    deleted = record(3, ts, TS | FINISH, encode_items([b"foo", b""]), DEL)
    return [Part(Ts(ts), first, [start, expiring], False), Part(Ts(ts), second, [deleted], True)]


LONG_PAYLOAD: Final = bytes(range(256))

FROM_FOLLOWER: Final[tuple[LinkMessage, ...]] = (
    FollowerHello(
        DATABASE_ID,
        LinkRole.FOLLOWER,
        HistoryPosition(Ts(SECOND), (ShardEnd(Lsn(9), Ts(SECOND)), ShardEnd(Lsn(3), None))),
        (FIRST_EPOCH,),
        UnfinishedSync(Ts(SECOND - 7), (FilePart("shard-0/journal-0000000000000000.dj0", 4096, 0xDEADBEEF),)),
        "node-b",
        6399,
        50,
        "0123456789abcdef",
    ),
    LinkPong(SECOND + 1),
    TransactionParts([Part(Ts(SECOND + 10), ShardId(0), [record(9, SECOND + 10)], True)]),
    TailEnd(Reached(Ts(SECOND + 10), (Lsn(10), Lsn(3)))),
    Acknowledgement(
        Reached(Ts(SECOND + 30), (Lsn(12), Lsn(4))),
        Reached(Ts(SECOND + 20), (Lsn(11), Lsn(4))),
    ),
    LinkFarewell(EndReason.ROLE_CHANGED, "it leads now"),
)
"""What the one that connected sends ..."""

FROM_LEADER: Final[tuple[LinkMessage, ...]] = (
    LeaderHello(
        DATABASE_ID,
        LinkRole.LEADER,
        HistoryPosition(Ts(SECOND + 50), (ShardEnd(Lsn(13), Ts(SECOND + 50)), ShardEnd(Lsn(4), Ts(SECOND + 20)))),
        (FIRST_EPOCH, NEXT_EPOCH),
        "fedcba9876543210",
    ),
    LinkPing(SECOND + 1),
    TailWanted(),
    ContinueSync(Ts(SECOND)),
    TransactionParts(_two_shards(SECOND + 20)),
    LongRecord(
        Part(Ts(SECOND + 30), ShardId(0), [record(11, SECOND + 30, TS | FINISH, b"")], False), len(LONG_PAYLOAD)
    ),
    PayloadPiece(LONG_PAYLOAD[:200]),
    Announcement(Ts(SECOND + 20), Ts(SECOND + 10_000_000), SECOND + 25, 1, 19, 300),
    PayloadPiece(LONG_PAYLOAD[200:]),
    TransactionParts([Part(Ts(SECOND + 30), ShardId(1), [], True)]),
    EpochBegins(NEXT_EPOCH),
    Publication(b"news", b"hello"),
    TakeOver(Ts(SECOND + 30)),
    LongPublication(4, 6, True),
    PayloadPiece(b"newshello!"),
    FullSync(SyncReason.ERASED, Ts(SECOND - 7), (Lsn(8), Lsn(2)), 2, 5000),
    SyncFile(0, "meta.json", 904, 0),
    SyncFile(1, "shard-0/journal-0000000000000000.dj0", 4100, 4096),
    FilePiece(1, 4096, b"DJ0!"),
    FileEnd(1, 0xCAFEBABE),
    LinkRefused(RefusalReason.DIVERGED, "it has 3 records that we lack", Ts(SECOND), FIRST_EPOCH.id),
)
"""... and what the other does. No real link has all of it: a tail, then a full sync, then a refusal."""

EXCHANGE: Final = {LinkSide.FOLLOWER: FROM_FOLLOWER, LinkSide.LEADER: FROM_LEADER}


def encoded(messages: Iterable[LinkMessage]) -> bytes:
    return b"".join(map(encode, messages))


def decoded(decoder: PieceDecoder, *pieces: bytes) -> list[LinkMessage]:
    """All messages that are whole."""
    found: list[LinkMessage] = []
    for piece in pieces:
        decoder.feed(piece)
        while (message := decoder.next()) is not None:
            found.append(message)
    return found


# --- any message ------------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, U64_MAX)
TIMES = st.integers(0, U64_MAX - 1).map(Ts)
LSNS = st.lists(NUMBERS.map(Lsn), max_size=5).map(tuple)
WORDS = st.text("abcxyz019.-:äß", max_size=100)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
NAMES = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z._-]{0,20}(/[0-9A-Za-z][0-9A-Za-z._-]{0,20}){0,3}", fullmatch=True)
EPOCHS = st.builds(Epoch, NUMBERS, LSNS, TIMES, TIMES)
ENDS = st.builds(ShardEnd, NUMBERS.map(Lsn), st.none() | TIMES)
POSITIONS = st.builds(HistoryPosition, TIMES, st.lists(ENDS, max_size=5).map(tuple))
REACHED = st.builds(Reached, TIMES, LSNS)
CRCS = st.integers(0, 2**32 - 1)
FILES = st.builds(FilePart, NAMES, NUMBERS, CRCS)


@st.composite
def records(draw: st.DrawFn, lsn: int, ts: int, payload: st.SearchStrategy[bytes]) -> Record:
    expire_ms = draw(st.just(-1) | NUMBERS)
    flags = draw(st.sampled_from([0, TS, FINISH, TS | FINISH])) | (EXPIRE if expire_ms >= 0 else 0)
    opcode, database = draw(st.integers(1, 0xEF)), draw(st.integers(0, limits.DATABASES - 1))
    return Record(Lsn(lsn), Ts(ts), opcode, flags, database, expire_ms, draw(payload))


@st.composite
def parts(draw: st.DrawFn, payload: st.SearchStrategy[bytes], min_size: int = 0, max_size: int = 4) -> Part:
    ts, lsn = draw(NUMBERS), draw(st.integers(0, U64_MAX - max_size))
    count = draw(st.integers(min_size, max_size))
    found = [draw(records(lsn + index, ts, payload)) for index in range(count)]
    return Part(Ts(ts), ShardId(draw(st.integers(0, limits.SHARDS_MAX - 1))), found, draw(st.booleans()))


BYTES = st.binary(max_size=300)
FOLLOWER_HELLOS = st.builds(
    FollowerHello,
    TEXTS,
    st.sampled_from(LinkRole),
    POSITIONS,
    st.lists(EPOCHS, max_size=4).map(tuple),
    st.none() | st.builds(UnfinishedSync, TIMES, st.lists(FILES, max_size=4).map(tuple)),
    WORDS,
    st.integers(0, 65535),
    CRCS,
    WORDS,
)
LEADER_HELLOS = st.builds(
    LeaderHello,
    TEXTS,
    st.sampled_from(LinkRole),
    POSITIONS,
    st.lists(EPOCHS, max_size=4).map(tuple),
    WORDS,
    st.booleans(),
)
REFUSALS = st.builds(LinkRefused, st.sampled_from(RefusalReason), TEXTS, TIMES, NUMBERS)
FREE: Final[dict[type, st.SearchStrategy[LinkMessage]]] = {
    Announcement: st.builds(Announcement, TIMES, TIMES, NUMBERS, st.integers(0, 255), NUMBERS, NUMBERS),
    Acknowledgement: st.builds(Acknowledgement, REACHED, REACHED),
    LinkPing: st.builds(LinkPing, NUMBERS),
    LinkPong: st.builds(LinkPong, NUMBERS),
    SyncFile: st.builds(
        lambda number, name, begin, more: SyncFile(number, name, begin + more, begin),
        st.integers(0, limits.REPLICATION_FILES_MAX - 1), NAMES, CRCS, CRCS,
    ),
    FilePiece: st.builds(FilePiece, CRCS, NUMBERS, BYTES),
    FileEnd: st.builds(FileEnd, CRCS, CRCS),
}  # fmt: skip
"""Messages that may come anywhere but first ..."""
ORDERED: Final[dict[type, st.SearchStrategy[LinkMessage]]] = {
    ContinueSync: st.builds(ContinueSync, TIMES),
    FullSync: st.builds(
        FullSync, st.sampled_from(SyncReason), TIMES, LSNS, st.integers(0, limits.REPLICATION_FILES_MAX), NUMBERS
    ),
    TailWanted: st.builds(TailWanted),
    TakeOver: st.builds(TakeOver, TIMES),
    TransactionParts: st.builds(TransactionParts, st.lists(parts(BYTES), max_size=5)),
    EpochBegins: st.builds(EpochBegins, EPOCHS),
    Publication: st.builds(Publication, BYTES, BYTES, st.booleans()),
    TailEnd: st.builds(TailEnd, REACHED),
}
"""... and those that may not come inside of a payload."""


@st.composite
def long_ones(draw: st.DrawFn, side: LinkSide) -> list[LinkMessage]:
    """A message with its payload in pieces, and others between them."""
    pieces = draw(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=4))
    size = sum(map(len, pieces))
    head: LinkMessage
    if side is LinkSide.FOLLOWER or draw(st.booleans()):
        head = LongRecord(draw(parts(st.just(b""), 1, 1)), size)
    else:
        channel_size = draw(st.integers(0, size))
        head = LongPublication(channel_size, size - channel_size, draw(st.booleans()))
    found: list[LinkMessage] = [head]
    for piece in pieces:
        found += draw(st.lists(one_of(FREE, side), max_size=1))
        found.append(PayloadPiece(piece))
    return found


def one_of(kinds: dict[type, st.SearchStrategy[LinkMessage]], side: LinkSide) -> st.SearchStrategy[LinkMessage]:
    """Of those that a side may send."""
    return st.one_of([drawn for kind, drawn in kinds.items() if BY_TYPE[kind].sender in (None, side)])


@st.composite
def whole_links(draw: st.DrawFn) -> tuple[LinkSide, list[LinkMessage]]:
    """Everything that one side might send, from its hello on."""
    side = draw(st.sampled_from(LinkSide))
    hello: LinkMessage = draw(FOLLOWER_HELLOS) if side is LinkSide.FOLLOWER else draw(LEADER_HELLOS)
    groups = draw(st.lists(one_of(FREE | ORDERED, side).map(lambda one: [one]) | long_ones(side), max_size=6))
    ends: st.SearchStrategy[LinkMessage] = st.builds(LinkFarewell, st.sampled_from(EndReason), TEXTS)
    if side is LinkSide.LEADER:
        ends |= REFUSALS
    return side, [hello, *(message for group in groups for message in group), *draw(st.lists(ends, max_size=1))]
