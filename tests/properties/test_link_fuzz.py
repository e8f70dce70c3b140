"""Broken links: whatever a peer sends, only the defined errors come out, and memory has a bound.

Pieces of an exchange are mutated, cut, repeated, dropped and swapped, or replaced by random bytes, and then given the
right checksums again, most of the time: so it is what stands in the pieces that has to be refused. What is decoded is
put together by `Incoming`, as a follower does it. Whatever comes out of that is a history without a hole.

`--fuzz-inputs N` tries as many; `test_broken_links[7]` runs the eighth part of them again.
"""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import Final

import pytest
from crc32c import crc32c

from tests.replication.exchange import EXCHANGE, SECOND
from tests.replication.receiving import ORDERED, kept
from tidelog import limits
from tidelog.errors import ReplicationError
from tidelog.ids import Lsn, Ts
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.record import FINISH, TS
from tidelog.replication.incoming import Incoming
from tidelog.replication.kinds import KINDS, LinkSide
from tidelog.replication.message import LinkMessage, Reached
from tidelog.replication.wire import PieceDecoder, encode

PARTS: Final = 5
NUMBERS: Final = [0, 1, 2, 3, 4, 9, 255, 256, 257, 1024, 1025, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
KIND_NUMBERS: Final = [row.number for row in KINDS]

Pieces = list[tuple[int, bytes]]
"""Kind and body of each."""


def pieces_of(side: LinkSide) -> Pieces:
    found = []
    for message in EXCHANGE[side]:
        data = encode(message)
        found.append((data[4], data[5:-4]))
    return found


WHOLE: Final = {side: pieces_of(side) for side in LinkSide}


def mutated(body: bytes, rng: Random) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            changed[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            del changed[at : at + rng.choice([1, 2, 8])]
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.choice([1, 2, 8, 40]))
        elif kind == 3 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        else:
            size = rng.choice([1, 2, 4, 8])
            number = rng.choice(NUMBERS) % 2 ** (8 * size)
            changed[at : at + size] = number.to_bytes(size, "little")
    return bytes(changed)


def broken(pieces: Pieces, rng: Random) -> Pieces:
    changed = list(pieces)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(changed))
        kind, body = changed[at]
        what = rng.randrange(8)
        if what < 4:
            changed[at] = kind, mutated(body, rng)
        elif what == 4:
            changed.insert(rng.randrange(1, len(changed) + 1), changed[at])
        elif what == 5 and len(changed) > 1:
            del changed[at]
        elif what == 6:
            other = rng.randrange(len(changed))
            changed[at], changed[other] = changed[other], changed[at]
        else:
            changed[at] = rng.choice(KIND_NUMBERS), body
    return changed


def joined(pieces: Pieces, rng: Random) -> bytes:
    """As bytes, nearly always with lengths and checksums that are right."""
    found = []
    for kind, body in pieces:
        head = (1 + len(body)).to_bytes(4, "little") + bytes([kind])
        found.append(head + body + crc32c(head + body).to_bytes(4, "little"))
    data = b"".join(found)
    chance = rng.random()
    if chance < 0.1:
        return mutated(data, rng)
    if chance < 0.15:
        return data[: rng.randrange(len(data) + 1)]
    return rng.randbytes(rng.randrange(200)) if chance < 0.18 else data


def run(side: LinkSide, data: bytes, rng: Random) -> tuple[int, bool]:
    """How many messages came out, and whether the link had to be ended."""
    decoder = PieceDecoder(side)
    begin = Reached(Ts(SECOND), (Lsn(9), Lsn(3)))
    incoming = Incoming(begin, lambda opcode: opcode < 0x80)
    found: list[LinkMessage] = []
    transactions: list[JournalTransaction] = []
    at = 0
    try:
        while at < len(data):
            size = rng.choice([1, 7, 64, 1 << 20])
            decoder.feed(data[at : at + size])
            at += size
            while (message := decoder.next()) is not None:
                found.append(message)
                if isinstance(message, ORDERED):
                    whole = incoming.take(message)
                    transactions += [each for each in whole if isinstance(each, JournalTransaction)]
            assert decoder.unread_bytes < limits.REPLICATION_PIECE_BYTES_MAX + 8
        decoder.feed_end()
        is_ended = False
    except ReplicationError:
        is_ended = True
    check_history(begin, transactions)
    return len(found), is_ended


def check_history(begin: Reached, transactions: list[JournalTransaction]) -> None:
    """Whatever was accepted goes on where the one before ended."""
    ts, lsns = begin.ts, list(begin.lsns)
    for transaction in transactions:
        assert transaction.ts > ts
        ts = transaction.ts
        records = kept(transaction)[1]
        for shard in {sent.shard for sent in records}:
            of_shard = [sent for sent in records if sent.shard == shard]
            assert [sent.lsn for sent in of_shard] == list(range(lsns[shard], lsns[shard] + len(of_shard)))
            lsns[shard] = Lsn(lsns[shard] + len(of_shard))
            assert [bool(sent.flags & TS) for sent in of_shard] == [True] + [False] * (len(of_shard) - 1)
            assert [bool(sent.flags & FINISH) for sent in of_shard][-1]


def run_inputs(seed: int, count: int) -> int:
    """How many links had to be ended."""
    rng = Random(seed)
    ended = 0
    for number in range(count):
        side = rng.choice(list(LinkSide))
        data = joined(broken(WHOLE[side], rng), rng)
        try:
            ended += run(side, data, rng)[1]
        except Exception as error:
            error.add_note(f"seed {seed}, input {number}: {data!r}")
            raise
    return ended


@pytest.mark.parametrize("side", LinkSide)
def test_a_link_that_is_not_broken_is_fine(side: LinkSide) -> None:
    assert run(side, joined(WHOLE[side], Random(3)), Random(1)) == (len(EXCHANGE[side]), False)


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_links(part: int, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--fuzz-inputs") // PARTS
    ended = run_inputs(part, count)
    assert count * 0.3 < ended, "most of what is broken is noticed; the rest is other values in the right places"


def test_memory_returns_to_its_level() -> None:
    run_inputs(1000, 300)  # caches fill
    gc.collect()
    tracemalloc.start()
    try:
        run_inputs(1001, 300)
        gc.collect()
        level = tracemalloc.get_traced_memory()[0]
        run_inputs(1002, 1000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < level + 100_000
        assert tracemalloc.get_traced_memory()[1] < level + 20 * limits.REPLICATION_PIECE_BYTES_MAX
    finally:
        tracemalloc.stop()
