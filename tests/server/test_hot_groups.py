"""The hot path of groups does what the general path does: the same replies, groups and history."""

from __future__ import annotations

import random
import re
from array import array
from collections import Counter
from typing import Any

import pytest

from tests.server.test_hot import TABLE, Side, run_one
from tidelog.commands.stream_ids import parse_id, plain_id
from tidelog.engine.dispatch import find_command, run_command
from tidelog.engine.would_block import WouldBlock
from tidelog.journal.operation import OperationTable
from tidelog.resp.encoder import encode
from tidelog.server.hot import HotPath
from tidelog.store.type_table import operation_table
from tidelog.streams.group import Group
from tidelog.streams.group_records import ACK, DELIVER, encode_ack, encode_delivery
from tidelog.streams.operations import Ack, Deliver
from tidelog.streams.payload import id_runs
from tidelog.streams.read_ahead import ReadAhead
from tidelog.streams.rows import pack_ids
from tidelog.streams.stream import Stream
from tidelog.types.effect import StoredValue

ID = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")


def groups_of(value: StoredValue | None) -> dict[bytes, Any]:
    """Everything that groups of a stream know."""
    return {name: _facts(group) for name, group in value.groups.items()} if isinstance(value, Stream) else {}


def _facts(group: Group) -> Any:
    pending = [
        (offset, each.id, each.consumer, each.delivered_ms, each.deliveries, each.retry_after_ms, each.expire_ms)
        for offset, each in group.pending.items()
    ]
    consumers = {name: (each.seen_ms, each.active_ms, each.pending_count) for name, each in group.consumers.items()}
    by_id = list(group.ids.from_id(0))
    return (
        group.last_offset,
        group.last_id,
        group.entries_read,
        pending,
        list(group.due),
        sorted(group.lost),
        consumers,
        by_id,
    )


def random_command(rng: random.Random, ids: list[bytes]) -> list[bytes]:
    key, group = b"s%d" % rng.randrange(2), b"g%d" % rng.randrange(2)
    consumer, count = b"c%d" % rng.randrange(3), b"%d" % rng.choice([1, 3, 10, 200])
    some = [rng.choice(ids) for _ in range(rng.randrange(1, 5))]
    offset = rng.randrange(1, 300)
    options = rng.choice([[], [b"COUNT", count], [b"COUNT", count, b"BLOCK", b"5"], [b"count", b"0"], [b"NOACK"]])
    return rng.choice(
        [
            [b"TWRITE", key, b"ENTRIES", *[b"t", b"e"] * rng.randrange(1, 40)],
            [b"XADD", key, b"*", b"f", b"v"],
            [b"XGROUP", b"CREATE", key, group, rng.choice([b"0", b"$"]), b"MKSTREAM"],
            [b"XGROUP", b"SETID", key, group, rng.choice([b"0", b"$", rng.choice(ids)])],
            [b"TGROUP", key, group, b"MAXPENDING", rng.choice([b"5", b"100"])],
            [b"XDEL", key, *some],
            [b"TEVICT", key, b"-%d" % rng.randrange(50, 300)],
            [b"DEL", key] if rng.random() < 0.1 else [b"XREAD", b"STREAMS", key, b"0-0"],
            [b"PEXPIRE", key, b"100000"] if rng.random() < 0.1 else [b"PERSIST", key],
            [b"XREAD", b"COUNT", count, b"STREAMS", key, rng.choice([b"0-0", *some])],
            *[[b"XREADGROUP", b"GROUP", group, consumer, *options, b"STREAMS", key, b">"]] * 3,
            [b"XREADGROUP", b"GROUP", group, consumer, b"STREAMS", key, b"0-0"],
            *[[b"XACK", key, group, *some]] * 3,
            [b"XACK", key, group, b"0-1", b"x"],
            [b"TREAD", key, b"%d" % rng.choice([0, 1, offset]), count],
            [b"TREAD", key, b"0", count, b"GROUP", group],
            *[[b"TREAD", key, b"0", count, b"GROUP", group, b"RETRY", b"%d" % rng.randrange(900), b"2000"]] * 2,
            [b"TREAD", key, b"0", count, b"GROUP", group, b"BLOCK", b"0"],
            *[[b"TACK", key, group, b"%d" % offset, b"%d-%d" % (offset, offset + rng.randrange(-1, 50))]] * 2,
        ]
    )


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_hot_and_general_agree(seed: int, shards: int, protocol: int) -> None:
    rng = random.Random(seed)
    ours, theirs = Side(shards), Side(shards)
    hot = HotPath(ours.store, 0, protocol).commands()
    taken: Counter[bytes] = Counter()
    ids = [b"1-1"]
    for _ in range(1500):
        command = random_command(rng, ids)
        run, out = hot.get(command[0]), list[bytes]()
        if run is not None and run([command], 0, out):
            taken[command[0]] += 1
        else:
            out = general(ours, command, protocol)
        assert out == general(theirs, command, protocol), command
        ids = [*ids, *ID.findall(b"".join(out))][-200:]
        ours.clock.advance(rng.choice([0, 0, 0, 50_000, 300_000]))
        theirs.clock.set_wall(ours.clock.wall_us())
        for key in (b"s0", b"s1"):
            found = groups_of(ours.store.database(0).find(key))
            assert found == groups_of(theirs.store.database(0).find(key)), command
        assert ours.store.database(0).alarms.times == theirs.store.database(0).alarms.times, command
        if rng.random() < 0.02:
            for side in (ours, theirs):
                stream = side.store.database(0).find(b"s0")
                if isinstance(stream, Stream):
                    stream.seal()
    assert min(taken[name] for name in (b"XREAD", b"XREADGROUP", b"TREAD", b"XACK", b"TACK")) > 5, taken
    expected = [groups_of(ours.store.database(0).find(key)) for key in (b"s0", b"s1")]
    ours.store.journal.close()
    ours.store = ours.opened()
    assert [groups_of(ours.store.database(0).find(key)) for key in (b"s0", b"s1")] == expected


def general(side: Side, command: list[bytes], protocol: int) -> list[bytes]:
    transaction = side.store.begin()
    transaction.may_wait = True
    try:
        reply = encode(run_command(find_command(TABLE, command), transaction, command), protocol)
    except WouldBlock:
        reply = b"it waits"
    side.store.commit(transaction)
    return [reply]


def test_records_are_those_of_the_table() -> None:
    table: OperationTable = operation_table()
    for offsets in ([7], [7, 8, 9], [7, 9, 10], list(range(1000, 1200))):
        last_id = 1_700_000_000_000 << 64 | 5
        for ms, seqs in (
            (array("Q", [5] * len(offsets)), array("Q", offsets)),
            (offsets, [0] * len(offsets)),
            ([at // 50 for at in range(len(offsets))], [at % 50 for at in range(len(offsets))]),
        ):
            delivery = Deliver(
                b"key", b"g" * 200, b"c", 5, 6, 7, offsets[-1], last_id, -1, True, offsets, pack_ids(ms, seqs)
            )
            made = encode_delivery(b"key", b"g" * 200, b"c", (5, 6, 7), offsets, last_id, -1, id_runs(ms, seqs))
            assert made == table.kind(DELIVER).encode(delivery)
        forgotten = Deliver(b"key", b"g" * 200, b"c", 5, 6, 7, offsets[-1], last_id, -1, False, offsets)
        made = encode_delivery(b"key", b"g" * 200, b"c", (5, 6, 7), offsets, last_id, -1, b"")
        assert made == table.kind(DELIVER).encode(forgotten)
        assert encode_ack(b"key", b"g", offsets) == table.kind(ACK).encode(Ack(b"key", b"g", offsets))


@pytest.mark.parametrize(
    "word", [b"1-1", b"0-0", b"007-3", b"1", b"-", b"1-", b"-1", b"1-x", b"", b"9" * 18 + b"-" + b"9" * 18]
)
def test_a_plain_id_is_what_the_exact_one_is(word: bytes) -> None:
    assert plain_id(word) in (-1, parse_id(word))


@pytest.mark.parametrize("word", [b"9" * 19 + b"-1", b"1-" + b"9" * 19, b"+1-1", b"1-1 ", b"1--1"])
def test_what_is_not_plainly_an_id(word: bytes) -> None:
    assert plain_id(word) == -1


def test_reading_ahead_gives_what_reading_gives() -> None:
    stream, ahead, rng = Stream(), ReadAhead(), random.Random(1)
    for number in range(30):
        stream.append(number + 1, 0, 0, [b"t"] * 100, [b"%d" % number] * 100)
        if number % 4 == 3:
            stream.seal()
    stream.delete(rng.sample(range(1, 3001), 200))
    for _ in range(3000):
        offset, count = rng.randrange(1, 3010), rng.choice([1, 10, 50, 200])
        ours, plain = ahead.read(stream, offset, count), stream.read(offset, count)
        assert [list(each) for each in ours] == [list(each) for each in plain]


def test_a_watch_sees_what_a_group_gives_out_and_takes_back() -> None:
    class Watcher:
        watched: set[tuple[int, bytes]] = set()  # noqa: RUF012
        is_dirty = False

    side = Side(1)
    hot = HotPath(side.store, 0, 2).commands()
    side.general([[b"TWRITE", b"s", b"t", b"e"], [b"XGROUP", b"CREATE", b"s", b"g", b"0"]], 2)
    for command, is_change in (
        ([b"XACK", b"s", b"g", b"1-1"], False),
        ([b"TREAD", b"s", b"0", b"1", b"GROUP", b"g", b"RETRY", b"9", b"0"], True),
        ([b"TACK", b"s", b"g", b"1"], True),
    ):
        watcher = Watcher()
        side.store.watch(watcher, 0, b"s")
        assert run_one(hot, command)[0] == 1
        assert watcher.is_dirty == is_change, command
        side.store.unwatch(watcher)
