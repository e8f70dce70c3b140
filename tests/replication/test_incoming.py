"""What comes in pieces is put together; what would make a hole, or half a transaction, is refused."""

from __future__ import annotations

import pytest

from tests.replication.exchange import (
    FROM_LEADER,
    LONG_PAYLOAD,
    NEXT_EPOCH,
    SECOND,
    SET_FOO_BAR,
    record,
)
from tests.replication.receiving import ORDERED, kept
from tidelog import limits
from tidelog.errors import LinkMisused
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import DEL, DELRANGE, START, VAL, Start, encode_items, encode_pairs, encode_start
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import FINISH, TS
from tidelog.replication.incoming import Incoming, LongPayload, LongTransaction, OrderedMessage, Whole
from tidelog.replication.message import (
    EpochBegins,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    Reached,
    TransactionParts,
    publication_messages,
)
from tidelog.replication.wire import encode


def incoming(ts: int = 0, lsns: tuple[int, ...] = (0, 0)) -> Incoming:
    return Incoming(Reached(Ts(ts), tuple(map(Lsn, lsns))), lambda opcode: opcode < 0x80)


def part(ts: int, shard: int, *records: Record, is_last: bool = True) -> Part:
    return Part(Ts(ts), ShardId(shard), list(records), is_last)


def start(lsn: int, ts: int, *shards: int) -> Record:
    return record(lsn, ts, TS, encode_start(Start(Ts(ts), [ShardId(shard) for shard in shards])), START)


def take_all(taker: Incoming, *messages: OrderedMessage) -> list[Whole]:
    return [found for message in messages for found in taker.take(message)]


def test_the_history_of_an_exchange_is_put_together() -> None:
    taker = incoming(SECOND, (9, 3))
    found = take_all(taker, *(message for message in FROM_LEADER if isinstance(message, ORDERED)))
    transactions = [kept(each) for each in found if isinstance(each, JournalTransaction)]
    assert [ts - SECOND for ts, _ in transactions] == [20, 30]
    first = [(sent.shard, sent.lsn, sent.opcode) for sent in transactions[0][1]]
    assert first == [(0, 9, START), (0, 10, VAL), (1, 3, DEL)]
    assert [sent.payload for sent in transactions[1][1]] == [LONG_PAYLOAD]
    assert found[2:] == [
        EpochBegins(NEXT_EPOCH),
        Publication(b"news", b"hello"),
        Publication(b"news", b"hello!", True),
    ]
    assert taker.reached == Reached(Ts(SECOND + 30), (Lsn(12), Lsn(4)))
    assert not taker.is_inside


def test_a_transaction_comes_out_when_all_of_it_has_come() -> None:
    taker = incoming()
    assert take_all(taker, TransactionParts([part(5, 0, start(0, 5, 0, 1), is_last=False)])) == []
    assert take_all(taker, TransactionParts([part(5, 1, record(0, 5, TS), is_last=False)])) == []
    long = LongRecord(part(5, 0, record(1, 5, FINISH, b""), is_last=False), 4)
    assert take_all(taker, long, PayloadPiece(b"ab")) == []
    assert taker.is_inside
    assert taker.held_bytes == len(SET_FOO_BAR) + 2
    assert take_all(taker, PayloadPiece(b"cd")) == []
    (found,) = take_all(taker, TransactionParts([part(5, 1, record(1, 5, FINISH))]))
    assert isinstance(found, JournalTransaction)
    assert [(sent.shard, sent.lsn, sent.payload) for sent in kept(found)[1]][1:] == [
        (0, 1, b"abcd"),
        (1, 0, SET_FOO_BAR),
        (1, 1, SET_FOO_BAR),
    ]
    assert (taker.is_inside, taker.held_bytes) == (False, 0)
    assert taker.reached == Reached(Ts(5), (Lsn(2), Lsn(2)))


GOOD = part(5, 0, record(0, 5))
OPEN = part(5, 0, record(0, 5, TS), is_last=False)
EPOCH = EpochBegins(NEXT_EPOCH._replace(lsns=(Lsn(0), Lsn(0)), last_ts=Ts(0)))
LONG = LongRecord(part(5, 0, record(0, 5, payload=b"")), 3)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([TransactionParts([GOOD, GOOD])], "transaction 5 came after that of ts 5"),
        ([TransactionParts([GOOD, part(4, 0, record(1, 4))])], "transaction 4 came after that of ts 5"),
        ([TransactionParts([GOOD, part(6, 0, record(2, 6))])], "record 2 of shard 0 came where 1 is due"),
        ([TransactionParts([GOOD, part(6, 0, record(0, 6))])], "record 0 of shard 0 came where 1 is due"),
        ([TransactionParts([part(5, 2, record(0, 5))])], "a part of shard 2: there are 2"),
        ([TransactionParts([OPEN, part(6, 0, record(1, 6))])], "transaction 6 began before that of ts 5 was whole"),
        ([TransactionParts([part(5, 0, record(0, 5, FINISH))])], "record 0 of shard 0 does not fit"),
        ([TransactionParts([part(5, 0, record(0, 5, TS))])], "transaction 5 has no end in shard 0"),
        ([TransactionParts([part(5, 0, record(0, 5), record(1, 5, FINISH))])], "record 1 of shard 0 does not fit"),
        ([TransactionParts([OPEN, part(5, 0, record(1, 5))])], "record 1 of shard 0 does not fit"),
        (
            [TransactionParts([OPEN._replace(records=[record(0, 5)]), part(5, 0, record(1, 5, FINISH))])],
            "record 1 of shard 0 does not fit",
        ),
        ([TransactionParts([part(5, 0)])], "transaction 5 has no record"),
        ([TransactionParts([part(5, 0, is_last=False), part(5, 1)])], "transaction 5 has no record"),
        (
            [TransactionParts([part(5, 0, record(0, 5), is_last=False), part(5, 1, record(0, 5))])],
            "parts of shards \\[0, 1\\] and 0 start records",
        ),
        ([TransactionParts([part(5, 0, start(0, 5, 0, 1), record(1, 5, FINISH))])], "announced for shards \\[0, 1\\]"),
        ([TransactionParts([part(5, 0, start(0, 6, 0), record(1, 5, FINISH))])], "announced for shards"),
        (
            [TransactionParts([part(5, 0, record(0, 5, TS, b"?", START), record(1, 5, FINISH))])],
            "a start record is cut short",
        ),
        ([TransactionParts([part(5, 0, record(0, 5, opcode=0x80))])], "opcode 0x80 is unknown here"),
        ([TransactionParts([OPEN]), EPOCH], "an epoch came inside the transaction of ts 5"),
        ([TransactionParts([OPEN]), Publication(b"", b"")], "a publication came inside the transaction of ts 5"),
        ([TransactionParts([OPEN]), LongPublication(1, 1)], "a publication came inside the transaction of ts 5"),
        ([TransactionParts([GOOD]), EPOCH], "came where ts 5 and lsns \\[1, 0\\] are reached"),
        ([EpochBegins(EPOCH.epoch._replace(last_ts=Ts(3)))], "came where ts 0 and lsns \\[0, 0\\] are reached"),
        ([PayloadPiece(b"x")], "1 bytes of a payload came where 0 are due"),
        ([LONG, PayloadPiece(b"wxyz")], "4 bytes of a payload came where 3 are due"),
        ([LONG, TransactionParts([GOOD])], "3 bytes of a payload are due, and something else came"),
        ([LONG, LONG], "3 bytes of a payload are due"),
        ([LONG, EPOCH], "3 bytes of a payload are due"),
        ([LongPublication(1, 1), Publication(b"", b"")], "2 bytes of a payload are due"),
    ],
)
def test_what_would_make_a_hole_is_refused(messages: list[OrderedMessage], complaint: str) -> None:
    with pytest.raises(LinkMisused, match=complaint):
        take_all(incoming(), *messages)


@pytest.mark.parametrize("sizes", [(0, 0), (4, 5), (4, 200_000), (200_000, 3), (0, 300_000)])
def test_a_publication_of_any_size_arrives(sizes: tuple[int, int]) -> None:
    channel, payload = b"c" * sizes[0], b"p" * sizes[1]
    messages = list(publication_messages(channel, payload, is_sharded=True))
    assert (len(messages) == 1) is (sum(sizes) < limits.REPLICATION_LONG_BYTES)
    assert all(len(encode(message)) < limits.REPLICATION_PIECE_BYTES_MAX for message in messages)
    ordered = [message for message in messages if isinstance(message, ORDERED)]
    assert take_all(incoming(), *ordered) == [Publication(channel, payload, True)]


def test_epochs_follow_each_other_without_a_transaction_between_them() -> None:
    taker = incoming()
    second = EpochBegins(EPOCH.epoch._replace(id=9))
    assert take_all(taker, EPOCH, second) == [EPOCH, second]


def test_what_is_held_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 1000)
    begin = part(5, 0, record(0, 5, TS, bytes(600)), is_last=False)
    taker = incoming()
    assert take_all(taker, TransactionParts([begin])) == []
    with pytest.raises(LinkMisused, match="transaction 5 has 1200 bytes"):
        take_all(taker, TransactionParts([part(5, 0, record(1, 5, 0, bytes(600)), is_last=False)]))
    taker = incoming()
    assert take_all(taker, TransactionParts([begin])) == []
    with pytest.raises(LinkMisused, match="transaction 5 has 1001 bytes"):
        take_all(taker, LongRecord(part(5, 0, record(1, 5, 0, b"")), 401))
    assert take_all(incoming(), TransactionParts([part(5, 0, record(0, 5, TS | FINISH, bytes(1000)))]))


def test_records_without_a_payload_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICATION_RECORDS_MAX", 10)
    taker = incoming()
    for lsn in range(10):
        flags = 0 if lsn else TS
        assert take_all(taker, TransactionParts([part(5, 0, record(lsn, 5, flags, b"", VAL), is_last=False)])) == []
    with pytest.raises(LinkMisused, match="in 11 records and more"):
        take_all(taker, TransactionParts([part(5, 0, record(10, 5, FINISH, b""))]))


def test_opcodes_are_asked_for_once() -> None:
    asked: list[int] = []

    def is_known(opcode: int) -> bool:
        asked.append(opcode)
        return True

    taker = Incoming(Reached(Ts(0), (Lsn(0),)), is_known)
    for lsn in range(20):
        assert len(take_all(taker, TransactionParts([part(lsn + 1, 0, record(lsn, lsn + 1))]))) == 1
    assert asked == [VAL]


# --- large payloads ---------------------------------------------------------------------------------------------


def large(lsn: int, payload: bytes, opcode: int = VAL, flags: int = TS | FINISH, *, is_last: bool = True) -> LongRecord:
    return LongRecord(part(5, 0, record(lsn, 5, flags, b"", opcode), is_last=is_last), len(payload))


def pieces(payload: bytes) -> list[PayloadPiece]:
    return [PayloadPiece(payload[at : at + 7]) for at in range(0, len(payload), 7)]


def leaving(monkeypatch: pytest.MonkeyPatch) -> Incoming:
    monkeypatch.setattr(limits, "REPLICATION_STAGED_BYTES_MIN", 20)
    return Incoming(Reached(Ts(0), (Lsn(0), Lsn(0))), lambda opcode: opcode < 0x80, leaves_large=True)


def test_large_payloads_are_left_out_of_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = leaving(monkeypatch)
    payload = encode_pairs([(b"key", b"a value of some length")])
    first, second = large(0, payload, flags=TS, is_last=False), large(1, payload, flags=FINISH)
    assert take_all(taker, first, *pieces(payload)) == []
    assert taker.held_bytes == len(payload)
    assert take_all(taker, second, PayloadPiece(payload[:7])) == []
    assert taker.held_bytes == len(payload) + 7
    (found,) = take_all(taker, *pieces(payload[7:]))
    assert isinstance(found, LongTransaction)
    records = found.transaction.parts[0].records
    assert [each.payload for each in records] == [b"", b""]
    for each, long in zip(records, found.payloads, strict=True):
        assert long == LongPayload(ShardId(0), each, b"key", [payload[:6], b"a value of some length"])
    assert taker.held_bytes == 0
    assert isinstance(take_all(taker, TransactionParts([part(6, 0, record(2, 6))]))[0], JournalTransaction)


@pytest.mark.parametrize(
    ("opcode", "payload"),
    [
        (VAL, encode_pairs([(b"key", b"value"), (b"other", b"another value")])),
        (VAL, encode_pairs([(b"a key that ends in a later piece", b"value")])),
        (0x10, encode_items([b"hash", b"field", b"a value of some length"])),
    ],
)
def test_a_large_payload_that_is_not_one_string_is_put_together(
    monkeypatch: pytest.MonkeyPatch, opcode: int, payload: bytes
) -> None:
    (found,) = take_all(leaving(monkeypatch), large(0, payload, opcode), *pieces(payload))
    assert isinstance(found, LongTransaction)
    assert found.payloads[0].key is None
    assert found.payloads[0].pieces == [payload]


def test_payloads_that_everybody_looks_into_stay_in_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = encode_items([b"from here on, and then", b"up to there"])
    (found,) = take_all(leaving(monkeypatch), large(0, payload, DELRANGE), *pieces(payload))
    assert isinstance(found, JournalTransaction)
    assert found.parts[0].records[0].payload == payload


def test_large_payloads_count_for_the_size_of_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = leaving(monkeypatch)
    payload = bytes(30)
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 50)
    take_all(taker, large(0, payload, flags=TS, is_last=False), *pieces(payload))
    with pytest.raises(LinkMisused, match="transaction 5 has 60 bytes"):
        taker.take(large(1, payload, flags=FINISH))
