"""Messages to pieces and back: every message, cut anywhere; damage, nonsense and what is too large are refused."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replication.exchange import (
    EXCHANGE,
    FROM_FOLLOWER,
    FROM_LEADER,
    SECOND,
    decoded,
    encoded,
    record,
    whole_links,
)
from tidelog import limits
from tidelog.errors import InternalError, LinkDamaged, LinkMisused, LinkVersion, ReplicationError
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.reader import Part
from tidelog.replication.kinds import KINDS, MAGIC, LinkSide
from tidelog.replication.message import (
    VERSION,
    Announcement,
    EndReason,
    FilePiece,
    FollowerHello,
    HistoryPosition,
    LeaderHello,
    LinkFarewell,
    LinkMessage,
    LinkPing,
    LinkRefused,
    LinkRole,
    LongRecord,
    PayloadPiece,
    RefusalReason,
    ShardEnd,
    SyncFile,
    TransactionParts,
)
from tidelog.replication.wire import PIECE_OVERHEAD_BYTES, PieceDecoder, encode

LEADER, FOLLOWER = LinkSide.LEADER, LinkSide.FOLLOWER
HELLO = FROM_LEADER[0]


def piece(kind: int, body: bytes) -> bytes:
    """A piece with whatever in it, and the right checksum."""
    data = (1 + len(body)).to_bytes(4, "little") + bytes([kind]) + body
    return data + crc32c(data).to_bytes(4, "little")


def met(side: LinkSide = LEADER) -> PieceDecoder:
    """A decoder that has had its hello."""
    decoder = PieceDecoder(side)
    assert len(decoded(decoder, encode(EXCHANGE[side][0]))) == 1
    return decoder


# --- round trips ------------------------------------------------------------------------------------------------


def test_the_exchange_has_every_kind_of_message() -> None:
    assert {type(message) for message in FROM_FOLLOWER + FROM_LEADER} == {row.type for row in KINDS}


@pytest.mark.parametrize("side", LinkSide)
def test_an_exchange_comes_back_however_it_is_cut(side: LinkSide) -> None:
    data = encoded(EXCHANGE[side])
    for size in (1, 2, 3, 7, 50, len(data)):
        decoder = PieceDecoder(side)
        cuts = [data[at : at + size] for at in range(0, len(data), size)]
        assert decoded(decoder, *cuts) == list(EXCHANGE[side])
        assert decoder.unread_bytes == 0
        decoder.feed_end()


def test_only_a_hello_that_speaks_for_a_copy_says_so() -> None:
    assert isinstance(HELLO, LeaderHello)
    of_copy = replace(HELLO, is_of_copy=True)
    plain, more = encode(HELLO), encode(of_copy)
    assert len(more) == len(plain) + 1, "others are as versions expect them that know nothing of it"
    assert decoded(PieceDecoder(LEADER), more) == [of_copy]
    assert decoded(PieceDecoder(LEADER), plain) == [HELLO]


@given(whole_links(), st.data())
@settings(max_examples=100)
def test_any_messages_come_back_cut_at_any_bytes(link: tuple[LinkSide, list[LinkMessage]], data: st.DataObject) -> None:
    side, messages = link
    sent = encoded(messages)
    places = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    cuts = [sent[a:b] for a, b in zip([0, *places], [*places, len(sent)], strict=True)]
    assert decoded(PieceDecoder(side), *cuts) == messages


def test_a_piece_is_handed_out_when_its_last_byte_has_come() -> None:
    data = encode(HELLO)
    decoder = PieceDecoder(LEADER)
    for at in range(len(data) - 1):
        assert decoded(decoder, data[at : at + 1]) == []
        assert decoder.unread_bytes == at + 1
    assert decoded(decoder, data[-1:]) == [HELLO]


def test_what_does_not_go_over_a_link_is_left_out_of_flags() -> None:
    padded = record(7, SECOND, 0xFF)
    data = encode(TransactionParts([Part(Ts(SECOND), ShardId(0), [padded._replace(expire_ms=1)], True)]))
    (found,) = decoded(met(), data)
    assert isinstance(found, TransactionParts)
    assert found.parts[0].records[0].flags == 0x15, "TS, EXPIRE, FINISH"


def test_a_text_that_is_too_long_is_cut_between_characters() -> None:
    (found,) = decoded(met(), encode(LinkFarewell(EndReason.DAMAGED, "x" + "é" * 2000)))
    assert found == LinkFarewell(EndReason.DAMAGED, "x" + "é" * 511)


# --- damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", LinkSide)
def test_no_flipped_bit_becomes_another_message(side: LinkSide) -> None:
    sent, data = list(EXCHANGE[side]), encoded(EXCHANGE[side])
    ends, at = [], 0
    for message in sent:
        at += len(encode(message))
        ends.append(at)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        whole_before = sum(end <= bit // 8 for end in ends)
        decoder = PieceDecoder(side)
        found: list[LinkMessage] = []
        decoder.feed(bytes(damaged))
        try:
            while (next_one := decoder.next()) is not None:
                found.append(next_one)
            with pytest.raises(LinkDamaged, match="the link ended after"):
                decoder.feed_end()  # the length has become larger: what is missing never comes
        except ReplicationError:
            pass
        assert found == sent[:whole_before], bit


@pytest.mark.parametrize("side", LinkSide)
def test_an_end_inside_a_piece_or_a_payload_is_noticed(side: LinkSide) -> None:
    data, whole = encoded(EXCHANGE[side]), {0}
    for message in EXCHANGE[side]:
        whole.add(max(whole) + len(encode(message)))
    for end in range(len(data) + 1):
        decoder = PieceDecoder(side)
        decoded(decoder, data[:end])
        if end in whole and not decoder.owed_bytes:
            decoder.feed_end()
        else:
            with pytest.raises(LinkDamaged):
                decoder.feed_end()


def test_after_damage_nothing_more_is_decoded() -> None:
    decoder = met()
    data = bytearray(encode(LinkPing(1)))
    data[-1] ^= 1
    decoder.feed(bytes(data) + encode(LinkPing(2)))
    for _ in range(2):
        with pytest.raises(LinkDamaged, match="the checksum of a piece of 9 bytes is wrong"):
            decoder.next()


# --- nonsense ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"*1\r\n$4\r\nPING\r\n", "a piece of 168636714 bytes"),
        (b"\0\0\0\0\1", "a piece of 0 bytes"),
        (b"\1\0\4\0\1", "a piece of 262145 bytes: it has 1 to 262144"),
        (piece(0x77, b""), "kind 0x77, which this version does not know"),
        (piece(0x22, bytes(8)), "begins with a ping instead of a hello"),
        (piece(0x01, bytes(8)), "a follower's hello came from the leader, which never sends one"),
        (piece(0x02, b"TLX\1\0"), "begins with b'TLX' instead of b'TLR'"),
        (piece(0x02, b"TL"), "a leader's hello is cut short: it lacks 1 bytes"),
        (encode(HELLO) + encode(HELLO), "a leader's hello came a second time"),
        (encode(HELLO) + piece(0x22, bytes(9)), "a ping has 1 bytes too many"),
        (encode(HELLO) + piece(0x22, bytes(7)), "a ping is cut short: it lacks 1 bytes"),
        (encode(HELLO) + piece(0x40, b"\x63\0\0"), "an end has 99, which is no EndReason"),
        (encode(HELLO) + piece(0x40, b"\1\1\4" + bytes(1025)), "a text of 1025 bytes"),
        (encode(HELLO) + piece(0x40, b"\1\1\0\xff"), "a text that is not UTF-8"),
        (encode(HELLO) + piece(0x14, b"\2" + bytes(4)), "a publication has 2 where 0 or 1 belongs"),
        (encode(HELLO) + piece(0x13, bytes(24) + b"\1\1"), "an epoch has 257 shards: at most 256"),
        (encode(HELLO) + piece(0x12, b"x"), "a payload of which 0 bytes were to come goes on with 1"),
        (encode(HELLO) + encode(LinkFarewell(EndReason.STOPPING)) + encode(LinkPing(1)), "a ping came after an end"),
        (encode(LinkRefused(RefusalReason.LOADING)) + encode(HELLO), "hello came after a refusal, which nothing"),
    ],
)
def test_nonsense_is_refused_by_name(data: bytes, complaint: str) -> None:
    with pytest.raises(LinkMisused, match=complaint):
        decoded(PieceDecoder(LEADER), data)


LONG = LongRecord(Part(Ts(1), ShardId(0), [record(0, 1, payload=b"")], True), 3)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([LONG, LONG], "a long record came while 3 bytes of a payload were still to come"),
        ([LONG, PayloadPiece(b"xy"), TransactionParts([])], "transactions came while 1 bytes"),
        ([LONG, PayloadPiece(b"wxyz")], "of which 3 bytes were to come goes on with 4"),
        ([LONG, PayloadPiece(b"xyz"), PayloadPiece(b"!")], "of which 0 bytes were to come goes on with 1"),
        ([LONG._replace(size=2**30 + 1)], "a long record of 1073741825 bytes: it has 1 to 1073741824"),
        ([SyncFile(1, "../../etc/passwd", 1, 0)], "'../../etc/passwd' is not the name of a file of a snapshot"),
        ([SyncFile(1, "/etc/passwd", 1, 0)], "is not the name of a file"),
        ([SyncFile(1, "shard-0/.hidden", 1, 0)], "is not the name of a file"),
        ([SyncFile(1, "a" + "\0", 1, 0)], "is not the name of a file"),
        ([SyncFile(1, "meta.json", 7, 8)], "meta.json, of 7 bytes cannot begin at 8"),
    ],
)
def test_messages_out_of_place_are_refused(messages: list[LinkMessage], complaint: str) -> None:
    with pytest.raises(LinkMisused, match=complaint):
        decoded(met(), encoded(messages))


@pytest.mark.parametrize(
    "body",
    [
        b"\2" + bytes(20),  # reserved flags of a part
        b"\0\0\1" + bytes(18),  # shard 256
        b"\1" + bytes(19),  # the head of a part is cut
        b"\1" + bytes(18) + b"\1\0",  # it announces a record
        b"\1" + bytes(18) + b"\1\0" + b"\1\0\0\0\2\0\0\0x",  # whose payload is cut, or not to be there
        b"\1" + bytes(18) + b"\1\0" + b"\0\0\0\0\0\0\0\0",  # opcode 0
        b"\1" + bytes(18) + b"\1\0" + b"\xf0\0\0\0\0\0\0\0",  # a mark
        b"\1" + bytes(18) + b"\1\0" + b"\1\x20\0\0\0\0\0\0",  # a reference to a blob
        b"\1" + bytes(18) + b"\1\0" + b"\1\0\x10\0\0\0\0\0",  # database 16
        b"\1" + bytes(18) + b"\1\0" + b"\1\4\0\0\0\0\0\0" + bytes(7),  # its expiry is cut
    ],
)
@pytest.mark.parametrize("kind", [0x10, 0x11])
def test_a_part_that_is_none_is_refused(kind: int, body: bytes) -> None:
    with pytest.raises(LinkMisused):
        decoded(met(), piece(kind, body))


def test_another_version_is_told_apart_from_nonsense() -> None:
    for version, more in ((0, b""), (VERSION + 1, b"fields of a later version")):
        hello = piece(0x01, MAGIC + version.to_bytes(2, "little") + more)
        with pytest.raises(LinkVersion, match=f"version {version} of the protocol") as caught:
            decoded(PieceDecoder(FOLLOWER), hello)
        assert caught.value.version == version


# --- bounds -----------------------------------------------------------------------------------------------------


def test_what_is_too_large_for_a_piece_is_our_fault() -> None:
    room = limits.REPLICATION_PIECE_BYTES_MAX - 1
    data = encode(PayloadPiece(bytes(room)))
    assert len(data) == room + PIECE_OVERHEAD_BYTES
    with pytest.raises(InternalError, match="a piece of a payload of 262145 bytes"):
        encode(PayloadPiece(bytes(room + 1)))
    with pytest.raises(InternalError, match="too long for a link"):
        encode(FollowerHello("x" * 1025, LinkRole.FOLLOWER, HistoryPosition(Ts(0), ())))


def test_a_decoder_holds_no_more_than_a_piece() -> None:
    """A peer that announces much and sends it byte by byte, or not at all, costs no more than what it sent."""
    size = limits.REPLICATION_PIECE_BYTES_MAX
    one = (size).to_bytes(4, "little") + b"\x12" + bytes(size - 2)
    decoder = met()
    tracemalloc.start()
    try:
        decoder.feed(one[:5])
        assert decoder.next() is None
        assert tracemalloc.get_traced_memory()[0] < 10_000, "nothing is made because of a length"
        decoder.feed(one[5:])
        assert decoder.next() is None
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()


def test_a_long_payload_is_never_in_one_place() -> None:
    size, step = 32 * limits.MIB, limits.REPLICATION_PAYLOAD_BYTES
    decoder = met()
    pieces = bytes(step)
    tracemalloc.start()
    try:
        decoder.feed(encode(LONG._replace(size=size)))
        assert isinstance(decoder.next(), LongRecord)
        for _ in range(size // step):
            decoder.feed(encode(PayloadPiece(pieces)))
            assert decoder.next() == PayloadPiece(pieces)
        assert tracemalloc.get_traced_memory()[1] < 10 * step
    finally:
        tracemalloc.stop()
    assert decoder.owed_bytes == 0


def test_bytes_that_come_one_by_one_take_time_in_proportion() -> None:
    """Joining what waits with each byte would be a billion bytes of copies here."""
    data = encode(FilePiece(0, 0, bytes(100_000)))
    decoder = met()
    for at in range(len(data)):
        decoder.feed(data[at : at + 1])
        if at % 1000 == 0:
            assert decoder.next() is None
    assert isinstance(decoder.next(), FilePiece)


def test_others_pass_between_the_pieces_of_a_payload() -> None:
    announcement = Announcement(Ts(1), Ts(2), 3, 4, 5, 6)
    pieces = PayloadPiece(b"x"), PayloadPiece(b"yz")
    messages: list[LinkMessage] = [LONG, announcement, pieces[0], LinkPing(4), FilePiece(0, 0, b"f"), pieces[1]]
    assert decoded(met(), encoded(messages)) == messages


def test_lsns_of_all_shards_fit() -> None:
    ends = HistoryPosition(Ts(1), (ShardEnd(Lsn(13), Ts(1)),) * limits.SHARDS_MAX)
    hello = FollowerHello("id", LinkRole.FOLLOWER, ends)
    assert decoded(PieceDecoder(FOLLOWER), encode(hello)) == [hello]
    assert hello.position.lsns == (Lsn(13),) * limits.SHARDS_MAX
