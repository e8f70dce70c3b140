"""The kinds of messages: one row each, with its number, who sends it, and what its body has.

    0x01 follower hello    first                | opening | database_id text | role 1 | position | epochs | host text
                                                | port 2 | priority 4 | server_id text | unfinished 1
                                                | [ts 8 | files 2 | (name text | size 8 | crc32c 4) ... ] |
    0x02 leader hello      first                | opening | database_id text | role 1 | position | epochs
                                                | server_id text | [is_of_copy 1] |
    0x03 refusal           first or later; last | opening | reason 1 | since 8 | epoch 8 | text |
    0x04 continue          leader, ordered      | ts 8 |
    0x05 full sync         leader, ordered      | reason 1 | ts 8 | files 4 | size 8 | shards 2 | lsn 8 ... |
    0x06 tail wanted       leader, ordered      | |
    0x10 transactions      either, ordered      | part ... |                        (`parts`)
    0x11 long record       either, ordered      | part without its payload |        (`parts`)
    0x12 payload           either               | bytes |
    0x13 epoch             leader, ordered      | epoch |
    0x14 publication       leader, ordered      | sharded 1 | channel_len 4 | channel | payload |
    0x15 long publication  leader, ordered      | sharded 1 | channel_len 4 | payload_len 4 |
    0x16 tail end          follower, ordered    | reached |
    0x20 announcement      leader               | closed_ts 8 | clock_bound 8 | wall_us 8 | distance 1
                                                | records 8 | behind_bytes 8 |
    0x21 acknowledgement   follower             | written reached | durable reached |
    0x22 ping, 0x23 pong   either               | sent_us 8 |
    0x24 take over         leader               | ts 8 |
    0x30 file              leader               | number 4 | name text | size 8 | begin 8 |
    0x31 file piece        leader               | number 4 | position 8 | bytes |
    0x32 file end          leader               | number 4 | crc32c 4 |
    0x40 end               either; last         | reason 1 | text |

    opening                                     | "TLR" 3 | version 2 |

`fields` says what text, position, reached, epoch and epochs are. An *ordered* kind never comes inside of a payload; the
others may. A number is never given a second meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any, Final

from tidelog import limits
from tidelog.errors import InternalError, LinkMisused, LinkVersion
from tidelog.replication import fields, parts
from tidelog.replication.fields import FieldReader
from tidelog.replication.message import (
    VERSION,
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
    LeaderHello,
    LinkFarewell,
    LinkPing,
    LinkPong,
    LinkRefused,
    LinkRole,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    RefusalReason,
    SyncFile,
    SyncReason,
    TailEnd,
    TailWanted,
    TakeOver,
    TransactionParts,
    UnfinishedSync,
)

MAGIC: Final = b"TLR"
_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*(?:/[0-9A-Za-z][0-9A-Za-z._-]*){0,3}")
"""Never absolute, never upwards, never hidden: it is made into a path."""


class LinkSide(Enum):
    """Who sends."""

    FOLLOWER = "follower"
    """Whoever has connected."""
    LEADER = "leader"


class Opening(Enum):
    """Whether a kind opens what a side sends."""

    ALWAYS = 1
    """It does, and never comes later."""
    PERHAPS = 2
    NEVER = 3


@dataclass(frozen=True, slots=True)
class MessageKind:
    """One row."""

    number: int
    name: str
    type: type
    sender: LinkSide | None
    """None: either side."""
    encode: Callable[[Any], list[bytes]]
    """The body of a message, to be joined."""
    decode: Callable[[FieldReader], Any] | None
    """The message of a body; None: `wire` decodes it itself, as it is hot."""
    _: KW_ONLY
    is_ordered: bool = False
    opening: Opening = Opening.NEVER
    is_last: bool = False
    """Nothing follows it."""


def check_file_name(name: str) -> str:
    """The name of a file of a snapshot, if a path can be made of it."""
    if not _FILE_NAME.fullmatch(name):
        raise LinkMisused(f"{name[:100]!r} is not the name of a file of a snapshot")
    return name


# --- meeting ----------------------------------------------------------------------------------------------------


def _opening() -> bytes:
    return MAGIC + fields.number(VERSION, 2)


def _read_opening(body: FieldReader) -> None:
    """Before anything else of the first message: later versions may have other fields."""
    magic, version = body.bytes_of(len(MAGIC)), body.number(2)
    if magic != MAGIC:
        raise LinkMisused(f"the link begins with {magic!r} instead of {MAGIC!r}: the peer is no Tidelog server")
    if version != VERSION:
        raise LinkVersion(
            f"the peer speaks version {version} of the protocol of replication and this server version {VERSION}: "
            f"run the same version of Tidelog on both",
            version=version,
        )


def _encode_follower_hello(hello: FollowerHello) -> list[bytes]:
    chunks = [
        _opening(),
        fields.name(hello.database_id),
        fields.number(hello.role, 1),
        fields.position(hello.position),
        fields.epochs(hello.epochs),
        fields.name(hello.host),
        fields.number(hello.port, 2),
        fields.number(hello.priority, 4),
        fields.name(hello.server_id),
        fields.number(hello.unfinished is not None, 1),
    ]
    if hello.unfinished is not None:
        chunks += [fields.number(hello.unfinished.ts, 8), fields.number(len(hello.unfinished.files), 2)]
        for name, size, crc in hello.unfinished.files:
            chunks += [fields.name(name), fields.number(size, 8), fields.number(crc, 4)]
    return chunks


def _decode_follower_hello(body: FieldReader) -> FollowerHello:
    _read_opening(body)
    database_id, role = body.text(), body.choice(LinkRole)
    position, epochs = body.position(), body.epochs()
    host, port, priority, server_id = body.word(), body.number(2), body.number(4), body.word()
    unfinished = None
    if body.flag():
        ts = body.ts()
        files = [
            FilePart(check_file_name(body.text()), body.number(8), body.number(4))
            for _ in range(body.count(limits.REPLICATION_UNFINISHED_MAX, "files"))
        ]
        unfinished = UnfinishedSync(ts, tuple(files))
    return FollowerHello(database_id, role, position, epochs, unfinished, host, port, priority, server_id)


def _encode_leader_hello(hello: LeaderHello) -> list[bytes]:
    return [
        _opening(),
        fields.name(hello.database_id),
        fields.number(hello.role, 1),
        fields.position(hello.position),
        fields.epochs(hello.epochs),
        fields.name(hello.server_id),
        *([fields.number(True, 1)] if hello.is_of_copy else []),  # only who speaks for a copy says so
    ]


def _decode_leader_hello(body: FieldReader) -> LeaderHello:
    _read_opening(body)
    database_id, role = body.text(), body.choice(LinkRole)
    position, epochs, server_id = body.position(), body.epochs(), body.word()
    return LeaderHello(database_id, role, position, epochs, server_id, body.has_more and body.flag())


def _encode_refused(refused: LinkRefused) -> list[bytes]:
    reason, since, epoch = refused.reason, refused.since, refused.epoch
    head = [fields.number(reason, 1), fields.number(since, 8), fields.number(epoch, 8)]
    return [_opening(), *head, fields.text(refused.text)]


def _decode_refused(body: FieldReader) -> LinkRefused:
    _read_opening(body)
    reason, since, epoch = body.choice(RefusalReason), body.ts(), body.number(8)
    return LinkRefused(reason, body.text(), since, epoch)


def _encode_full_sync(sync: FullSync) -> list[bytes]:
    return [
        fields.number(sync.reason, 1),
        fields.number(sync.ts, 8),
        fields.number(sync.files, 4),
        fields.number(sync.size, 8),
        fields.lsns(sync.lsns),
    ]


def _decode_full_sync(body: FieldReader) -> FullSync:
    reason, ts, files, size = body.choice(SyncReason), body.ts(), body.number(4), body.number(8)
    if files > limits.REPLICATION_FILES_MAX:
        raise LinkMisused(f"a full sync of {files} files: at most {limits.REPLICATION_FILES_MAX}")
    return FullSync(reason, ts, body.lsns(), files, size)


# --- the history ------------------------------------------------------------------------------------------------


def _encode_publication(message: Publication) -> list[bytes]:
    channel, payload, is_sharded = message
    return [fields.number(is_sharded, 1), fields.number(len(channel), 4), channel, payload]


def _decode_publication(body: FieldReader) -> Publication:
    is_sharded = body.flag()
    channel = body.bytes_of(body.number(4))
    return Publication(channel, body.rest(), is_sharded)


def _encode_long_publication(message: LongPublication) -> list[bytes]:
    channel_size, payload_size, is_sharded = message
    return [fields.number(is_sharded, 1), fields.number(channel_size, 4), fields.number(payload_size, 4)]


def _decode_long_publication(body: FieldReader) -> LongPublication:
    is_sharded, channel_size, payload_size = body.flag(), body.number(4), body.number(4)
    if not 0 < channel_size + payload_size <= limits.COMMAND_BYTES_MAX:
        raise LinkMisused(f"a long publication of {channel_size + payload_size} bytes")
    return LongPublication(channel_size, payload_size, is_sharded)


# --- full sync --------------------------------------------------------------------------------------------------


def _encode_file(file: SyncFile) -> list[bytes]:
    number, size, begin = fields.number(file.number, 4), fields.number(file.size, 8), fields.number(file.begin, 8)
    return [number, fields.name(file.name), size, begin]


def _decode_file(body: FieldReader) -> SyncFile:
    number, name, size, begin = body.number(4), check_file_name(body.text()), body.number(8), body.number(8)
    if begin > size or number >= limits.REPLICATION_FILES_MAX:
        raise LinkMisused(f"file {number}, {name}, of {size} bytes cannot begin at {begin}")
    return SyncFile(number, name, size, begin)


def _encode_file_piece(piece: FilePiece) -> list[bytes]:
    return [fields.number(piece.number, 4), fields.number(piece.position, 8), piece.data]


def _decode_file_piece(body: FieldReader) -> FilePiece:
    number, position = body.number(4), body.number(8)
    return FilePiece(number, position, body.rest())


_LEADER: Final = LinkSide.LEADER
_FOLLOWER: Final = LinkSide.FOLLOWER

KINDS: Final[tuple[MessageKind, ...]] = (
    MessageKind(
        0x01, "a follower's hello", FollowerHello, _FOLLOWER, _encode_follower_hello, _decode_follower_hello,
        is_ordered=True, opening=Opening.ALWAYS,
    ),
    MessageKind(
        0x02, "a leader's hello", LeaderHello, _LEADER, _encode_leader_hello, _decode_leader_hello,
        is_ordered=True, opening=Opening.ALWAYS,
    ),
    MessageKind(
        0x03, "a refusal", LinkRefused, _LEADER, _encode_refused, _decode_refused,
        is_ordered=True, opening=Opening.PERHAPS, is_last=True,
    ),
    MessageKind(
        0x04, "a continue", ContinueSync, _LEADER,
        lambda message: [fields.number(message.ts, 8)], lambda body: ContinueSync(body.ts()), is_ordered=True,
    ),
    MessageKind(0x05, "a full sync", FullSync, _LEADER, _encode_full_sync, _decode_full_sync, is_ordered=True),
    MessageKind(
        0x06, "a wish for the tail", TailWanted, _LEADER, lambda _: [], lambda _: TailWanted(), is_ordered=True,
    ),
    MessageKind(
        0x10, "a piece with transactions", TransactionParts, None,
        lambda message: parts.encode_parts(message.parts), None, is_ordered=True,
    ),
    MessageKind(
        0x11, "a long record", LongRecord, None,
        lambda message: parts.encode_long_record(message.part, message.size), None, is_ordered=True,
    ),
    MessageKind(0x12, "a piece of a payload", PayloadPiece, None, lambda message: [message.data], None),
    MessageKind(
        0x13, "an epoch", EpochBegins, _LEADER,
        lambda message: [fields.epoch(message.epoch)], lambda body: EpochBegins(body.epoch()), is_ordered=True,
    ),
    MessageKind(0x14, "a publication", Publication, _LEADER, _encode_publication, _decode_publication, is_ordered=True),
    MessageKind(
        0x15, "a long publication", LongPublication, _LEADER, _encode_long_publication, _decode_long_publication,
        is_ordered=True,
    ),
    MessageKind(
        0x16, "the end of a tail", TailEnd, _FOLLOWER,
        lambda message: [fields.reached(message.reached)], lambda body: TailEnd(body.reached()), is_ordered=True,
    ),
    MessageKind(
        0x20, "an announcement", Announcement, _LEADER,
        lambda message: [
            fields.number(message.closed_ts, 8), fields.number(message.clock_bound, 8),
            fields.number(message.wall_us, 8), fields.number(message.distance, 1),
            fields.number(message.records, 8), fields.number(message.behind_bytes, 8),
        ],
        lambda body: Announcement(
            body.ts(), body.ts(), body.number(8), body.number(1), body.number(8), body.number(8)
        ),
    ),
    MessageKind(
        0x21, "an acknowledgement", Acknowledgement, _FOLLOWER,
        lambda message: [fields.reached(message.written), fields.reached(message.durable)],
        lambda body: Acknowledgement(body.reached(), body.reached()),
    ),
    MessageKind(
        0x22, "a ping", LinkPing, None,
        lambda message: [fields.number(message.sent_us, 8)], lambda body: LinkPing(body.number(8)),
    ),
    MessageKind(
        0x23, "a pong", LinkPong, None,
        lambda message: [fields.number(message.sent_us, 8)], lambda body: LinkPong(body.number(8)),
    ),
    MessageKind(
        0x24, "a handover", TakeOver, _LEADER,
        lambda message: [fields.number(message.ts, 8)], lambda body: TakeOver(body.ts()),
    ),
    MessageKind(0x30, "a file", SyncFile, _LEADER, _encode_file, _decode_file),
    MessageKind(0x31, "a piece of a file", FilePiece, _LEADER, _encode_file_piece, _decode_file_piece),
    MessageKind(
        0x32, "the end of a file", FileEnd, _LEADER,
        lambda message: [fields.number(message.number, 4), fields.number(message.crc, 4)],
        lambda body: FileEnd(body.number(4), body.number(4)),
    ),
    MessageKind(
        0x40, "an end", LinkFarewell, None,
        lambda message: [fields.number(message.reason, 1), fields.text(message.text)],
        lambda body: LinkFarewell(body.choice(EndReason), body.text()), is_last=True,
    ),
)  # fmt: skip

BY_NUMBER: Final = {row.number: row for row in KINDS}
BY_TYPE: Final = {row.type: row for row in KINDS}

if len(BY_NUMBER) != len(KINDS) or len(BY_TYPE) != len(KINDS):
    raise InternalError("two kinds of messages have one number, or one type two kinds")
