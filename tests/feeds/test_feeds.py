"""What a feed sends: each kind of event, checkpoints, where it begins and ends, and readers that are slow."""

from __future__ import annotations

import pytest

from tests.feeds.made import Watched, let_go
from tidelog import limits
from tidelog.errors import ClientError, FeedDiverged, HolderLapsed, TooOld
from tidelog.feeds.feed import State
from tidelog.feeds.span import Span, span_of_key, span_of_prefix
from tidelog.ids import ShardId, Ts
from tidelog.types.change import LargeString


def value(key: bytes, kind: str, field: bytes | None, data: object) -> list[object]:
    return [b"value", key, kind.encode(), field, data]


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_kind_of_change(watched: Watched, protocol: int) -> None:
    _, known = watched.watch(protocol=protocol)
    assert watched.events(known) == [[b"steady"]]
    for command, expected in [
        ("SET s 1", [value(b"s", "string", None, b"1")]),
        ("INCR s", [value(b"s", "string", None, b"2")]),
        ("APPEND s x", [value(b"s", "string", None, b"2x")]),
        ("HSET h f v g w", [value(b"h", "hash", b"f", b"v"), value(b"h", "hash", b"g", b"w")]),
        ("HDEL h f", [value(b"h", "hash", b"f", None)]),
        ("SADD m a b", [value(b"m", "set", b"a", b"1"), value(b"m", "set", b"b", b"1")]),
        ("SREM m a", [value(b"m", "set", b"a", None)]),
        ("ZADD z 1.5 a inf b", [value(b"z", "zset", b"a", b"1.5"), value(b"z", "zset", b"b", b"inf")]),
        ("ZREM z b", [value(b"z", "zset", b"b", None)]),
        ("RPUSH l a b c b", [value(b"l", "list", b"rpush", [b"a", b"b", b"c", b"b"])]),
        ("LPUSH l x y", [value(b"l", "list", b"lpush", [b"x", b"y"])]),
        ("LSET l -1 z", [value(b"l", "list", b"lset", [5, b"z"])]),
        ("LINSERT l AFTER a b", [value(b"l", "list", b"linsert", [3, b"b"])]),
        ("LREM l 0 b", [value(b"l", "list", b"lrem", [b"b", [3, 4]])]),
        ("LTRIM l 1 -1", [value(b"l", "list", b"ltrim", [1, 4])]),
        ("RPOP l 2", [value(b"l", "list", b"rpop", [b"z", b"c"])]),
        ("LPOP l", [value(b"l", "list", b"lpop", [b"x"])]),
        ("LMOVE l new LEFT LEFT", [value(b"l", "list", b"lpop", [b"a"]), value(b"new", "list", b"lpush", [b"a"])]),
        ("LMOVE new new LEFT RIGHT", [value(b"new", "list", b"rpush", [b"a"]), value(b"new", "list", b"lpop", [b"a"])]),
        ("LTRIM new 1 0", [value(b"new", "none", None, None)]),
        ("XADD x 7-1 f v", [value(b"x", "stream", None, [[1, b"7-1", b"", [b"f", b"v"]]])]),
        ("XADD x 8-0 tag t entry e", [value(b"x", "stream", None, [[2, b"8-0", b"t", b"e"]])]),
        ("XDEL x 7-1", [value(b"x", "stream", b"del", [1])]),
        ("XSETID x 9-5 ENTRIESADDED 7", [value(b"x", "stream", b"setid", [1, 2, b"9-5", b"7-1", 7])]),
        ("XTRIM x MAXLEN 0", [value(b"x", "stream", b"evict", 3)]),
        ("DEL s h", [value(b"s", "none", None, None), value(b"h", "none", None, None)]),
        ("SET m now-a-string", [value(b"m", "none", None, None), value(b"m", "string", None, b"now-a-string")]),
        ("EXPIRE m 100", []),
        ("XGROUP CREATE x g 0", []),
        ("FLUSHDB", [[b"deleterange", b"", b""]]),
    ]:
        watched(*command.split())
        assert watched.events(known) == expected, command


def test_expiry_is_a_delete(watched: Watched) -> None:
    _, known = watched.watch()
    watched.settle()
    watched("SET", "k", "v", "PX", 10)
    watched.wait(20)
    watched("GET", "k")
    watched("SET", "k", "w")
    assert watched.events(known)[1:] == [
        value(b"k", "string", None, b"v"),
        value(b"k", "none", None, None),
        value(b"k", "string", None, b"w"),
    ]


def test_an_expiry_may_come_before_the_first_entry_of_a_stream(watched: Watched) -> None:
    """A group can make a stream that has none. Nothing tells of it but its expiry, which holds when entries come."""
    _, known = watched.watch(has_expiry=True)
    watched.settle()
    watched("XGROUP", "CREATE", "x", "g", "0", "MKSTREAM")
    watched("PEXPIREAT", "x", 9_000_000_000_000)
    watched.settle()
    assert watched.events(known)[1:] == [[b"expire", b"x", 9_000_000_000_000]]
    assert (known.state, known.expiries) == ({}, {b"x": 9_000_000_000_000})
    watched("XADD", "x", "5-0", "f", "v")
    watched.settle()
    assert list(known.state) == [b"x"]
    assert known.expiries == {b"x": 9_000_000_000_000}
    watched("DEL", "x")
    watched.settle()
    assert (known.state, known.expiries) == ({}, {})


def test_groups_are_told_to_who_asks(watched: Watched) -> None:
    _, with_groups = watched.watch(has_groups=True)
    _, without = watched.watch()
    watched("XADD", "x", "5-0", "f", "v")
    watched("XGROUP", "CREATE", "x", "g", "0")
    watched("XREADGROUP", "GROUP", "g", "c", "STREAMS", "x", ">")
    watched("XACK", "x", "g", "5-0")
    watched("XGROUP", "DESTROY", "x", "g")
    of_groups = [event[-1] for event in watched.events(with_groups) if b"group" in event]
    assert [(event[0], event[1]) for event in of_groups] == [
        (b"g", b"set"), (b"g", b"deliver"), (b"g", b"ack"), (b"g", b"drop")
    ]  # fmt: skip
    assert of_groups[0][2:] == [0, b"0-0", -1, 0, b"", 0]
    assert of_groups[1][2:] == [1, b"5-0", 1, b"c", [1]]
    assert not [event for event in without.events if b"group" in event]


def test_only_the_spans_and_the_database(watched: Watched) -> None:
    spans = [span_of_key(b"a"), span_of_prefix(b"p:"), Span(b"x", b"z")]
    _, known = watched.watch(spans)
    _, elsewhere = watched.watch(database=1)
    watched.settle()
    for key in ("a", "aa", "p:", "p:1", "p", "q", "w", "x", "y9", "z"):
        watched("SET", key, 1)
    watched.settle()
    assert [event[2] for event in known.events[1:]] == [b"a", b"p:", b"p:1", b"x", b"y9"]
    assert watched.events(elsewhere) == [[b"steady"]]
    watched("FLUSHDB")
    known.events.clear()
    assert watched.events(known) == [[b"deleterange", span.start, span.end] for span in spans]


def test_since_begins_after_a_ts(watched: Watched) -> None:
    watched("SET", "a", 1)
    since = watched.now
    watched("SET", "a", 2)
    watched.settle()
    _, known = watched.watch(since=since)
    assert watched.events(known) == [value(b"a", "string", None, b"2"), [b"steady"]]
    watched("SET", "a", 3)
    assert watched.events(known) == [value(b"a", "string", None, b"3")]


def test_without_anything_it_begins_now(watched: Watched) -> None:
    watched("SET", "a", 1)
    _, known = watched.watch()
    watched("SET", "a", 2)
    assert [b"value", b"a", b"string", None, b"1"] not in watched.events(known)


def test_initial_values_then_changes(watched: Watched) -> None:
    for command in (
        "SET s 1",
        "HSET h f v",
        "SADD m a",
        "ZADD z 2 a",
        "XADD x 1-0 f v",
        "XADD x 2-0 f v",
        "RPUSH l a b",
    ):
        watched(*command.split())
    watched.settle()
    _, known = watched.watch(is_initial=True)
    events = watched.events(known)
    assert sorted(events[:-1]) == sorted(
        [
            value(b"s", "string", None, b"1"),
            value(b"h", "hash", b"f", b"v"),
            value(b"m", "set", b"a", b"1"),
            value(b"z", "zset", b"a", b"2"),
            value(b"x", "stream", None, [1, 2]),
            value(b"l", "list", None, [b"a", b"b"]),
        ]
    )
    assert events[-1] == [b"steady"]
    watched("SET", "s", 2)
    watched("LPOP", "l")
    assert watched.events(known) == [value(b"s", "string", None, b"2"), value(b"l", "list", b"lpop", [b"a"])]


def test_initial_values_with_the_groups_of_streams(watched: Watched) -> None:
    for command in (
        "TWRITE x ENTRIES t 1 t 2 t 3",
        "TGROUP x g MAXPENDING 5 DEADLETTER dead MAXDELIVERIES 3",
        "XGROUP CREATE x h 2-0",
        "XREADGROUP GROUP g c COUNT 2 STREAMS x >",
        "SET s 1",
    ):
        watched(*command.split())
    last = watched("XINFO", "STREAM", "x")
    ids = [entry[0] for entry in watched("XRANGE", "x", "-", "+")]
    assert last
    watched.settle()
    _, known = watched.watch([span_of_key(b"x")], is_initial=True, has_groups=True)
    assert watched.events(known) == [
        value(b"x", "stream", None, [1, 3]),
        value(b"x", "stream", b"group", [b"g", b"set", 2, ids[1], 2, 5, b"dead", 3]),
        value(b"x", "stream", b"group", [b"g", b"pend", b"c", [1, 2]]),
        value(b"x", "stream", b"group", [b"h", b"set", 0, b"2-0", -1, 0, b"", 0]),
        [b"steady"],
    ]
    watched("XACK", "x", "g", ids[0])
    assert watched.events(known) == [value(b"x", "stream", b"group", [b"g", b"ack", [1]])]
    _, plain = watched.watch([span_of_key(b"x")], is_initial=True)
    assert watched.events(plain) == [value(b"x", "stream", None, [1, 3]), [b"steady"]]


def test_a_flush_ends_the_scan(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_EVENTS_AT_ONCE", 2000)
    for number in range(100):
        watched("SET", f"k{number}", number)
    watched.settle()
    _, known = watched.watch(is_initial=True)
    watched.feeds.work(0)
    assert 0 < len(known.events) < 100
    watched("FLUSHDB")
    watched("SET", "new", 1)
    events = watched.events(known)
    place = events.index([b"deleterange", b"", b""])
    assert events[place + 1 :] == [value(b"new", "string", None, b"1"), [b"steady"]]
    assert known.state == {b"new": b"1"}


def test_a_flush_ends_the_scan_of_a_feed_with_an_end(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_EVENTS_AT_ONCE", 2000)
    for number in range(100):
        watched("SET", f"k{number}", number)
    watched.settle()
    _, known = watched.watch(is_initial=True, until=watched.now)
    watched.feeds.work(0)
    assert 0 < len(known.events) < 100
    watched("FLUSHDB")
    flushed = watched.now
    watched("SET", "new", 1)
    watched.settle()
    assert known.state == {}
    assert known.checkpoint == flushed
    assert known.ended == [None]


# --- checkpoints ------------------------------------------------------------------------------------------------


def test_checkpoints_flow_while_nothing_happens(watched: Watched) -> None:
    _, known = watched.watch([span_of_key(b"a"), span_of_key(b"b")], checkpoint_ms=100)
    watched.settle()
    before = 0
    for _ in range(3):
        known.events.clear()
        watched.tick(100)
        assert [event[0] for event in known.events] == [b"checkpoint", b"checkpoint"]
        assert [event[2] for event in known.events] == [b"a", b"b"]
        assert known.checkpoint > before
        before = known.checkpoint
    watched("SET", "a", 1)
    assert watched.now > before
    watched.tick(50)
    watched.settle()
    assert known.unchecked == 1
    watched.tick(50)
    assert known.unchecked == 0


def test_one_checkpoint_for_all_keys(watched: Watched) -> None:
    spans = [span_of_key(b"k%d" % number) for number in range(1000)]
    opened, known = watched.watch(spans, has_one_checkpoint=True)
    known.spans = [*spans, Span(b"", b"")]
    watched.settle()
    watched.tick()
    assert [event[0] for event in known.events] == [b"steady", b"checkpoint"]
    assert known.events[-1][2:4] == [b"", b""]
    watched("SET", "k5", 1)
    watched.settle()
    watched.tick()
    assert opened.feed.checkpoint_ts == known.checkpoint > watched.now


def test_checkpoints_come_as_often_as_the_server_says(watched: Watched) -> None:
    _, known = watched.watch()
    _, own = watched.watch(checkpoint_ms=100)
    watched.settle()
    watched.tick(1000)
    assert len(known.events) == len(own.events) == 2
    watched.feeds.checkpoint_ms = 5000
    watched.tick(1000)  # as it was planned
    for _ in range(4):
        watched.tick(1000)
    assert (len(known.events), len(own.events)) == (3, 7)
    watched.tick(1000)
    assert len(known.events) == 4


def test_nothing_below_a_checkpoint_follows_it(watched: Watched) -> None:
    _, known = watched.watch(checkpoint_ms=10)
    for number in range(100):
        watched("SET", "a", number)
        if number % 3:
            watched.settle()
        watched.tick(number % 20)  # `known` itself looks at every event
    watched.settle()
    watched.tick()
    assert known.state == {b"a": b"99"}


def test_until_is_inclusive_and_ends_with_a_checkpoint(watched: Watched) -> None:
    watched("SET", "a", 1)
    watched("SET", "a", 2)
    until = watched.now
    watched("SET", "a", 3)
    watched.settle()
    _, known = watched.watch(since=Ts(0), until=until)
    events = watched.events(known)
    assert events[:2] == [value(b"a", "string", None, b"1"), value(b"a", "string", None, b"2")]
    assert events[-1][0] == b"checkpoint"
    assert known.checkpoint == until
    assert known.ended == [None]
    assert not len(watched.feeds)


def test_until_a_time_that_has_not_come(watched: Watched) -> None:
    until = Ts(watched.clock.wall_us() + 500_000)
    _, known = watched.watch(until=until)
    watched.settle()
    watched.tick(400)
    assert not known.ended
    watched.tick(700)
    assert known.ended == [None]
    assert known.checkpoint == until


def test_transactions_are_whole(watched: Watched) -> None:
    _, known = watched.watch(has_commits=True)
    watched.settle()
    watched("MSET", "a", 1, "b", 2)
    watched("SET", "c", 3)
    names = [event[0] for event in watched.events(known)]
    assert names == [b"steady", b"value", b"value", b"commit", b"value", b"commit"]


def test_initial_values_have_a_flush_that_is_not_visible_yet(watched: Watched) -> None:
    watched("SET", "a", 1)
    watched.settle()
    watched("FLUSHDB")
    watched("SET", "b", 2)
    _, known = watched.watch(is_initial=True)
    assert watched.events(known) == [value(b"b", "string", None, b"2"), [b"steady"]]


# --- shards -----------------------------------------------------------------------------------------------------


def test_one_shard_of_several() -> None:
    watched = Watched(3)
    parts = [watched.watch(shard=ShardId(shard))[1] for shard in range(3)]
    _, whole = watched.watch()
    for number in range(30):
        watched("MSET", *(word for each in range(3) for word in (f"k{number}-{each}", number)))
    watched("FLUSHDB")
    watched("SET", "a", 1)
    watched.settle()
    for known in parts:
        assert [event[0] for event in known.events].count(b"deleterange") == 1
    assert [event[0] for event in whole.events].count(b"deleterange") == 1
    assert sum(len(known.events) for known in parts) == len(whole.events) + 2 + 2  # a steady and a flush each
    assert sorted(key for known in parts for key in known.state) == sorted(whole.state) == [b"a"]
    order = [event[1] for event in whole.events]
    assert order == sorted(order)


# --- errors -----------------------------------------------------------------------------------------------------


def test_a_time_that_has_not_come_is_no_beginning(watched: Watched) -> None:
    with pytest.raises(ClientError, match="ahead of the clock"):
        watched.watch(since=Ts(watched.clock.wall_us() + 10_000_000))


def test_history_that_is_gone(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(watched.store.journal), "erased_ts", Ts(500))
    with pytest.raises(TooOld) as error:
        watched.watch(since=Ts(499))
    assert error.value.oldest == 500
    watched.watch(since=Ts(500))


def test_what_a_client_has_seen_and_a_crash_has_taken_back(watched: Watched) -> None:
    watched("SET", "a", 1)
    watched.settle()
    watched.store.journal.writer.sync()
    kept = watched.now
    watched("SET", "a", 2)
    _, known = watched.watch(since=Ts(0))
    watched.settle()
    watched.tick()
    assert known.seen == watched.now > kept
    watched.disk.crash()
    watched.store = watched._open()
    watched.feeds = type(watched.feeds)(watched.store, watched.clock)
    epochs = watched.store.journal.epochs
    watched.watch(since=Ts(0), epoch=known.epoch, seen=kept)
    if epochs[-1].last_ts < known.seen:
        with pytest.raises(FeedDiverged) as error:
            watched.watch(since=Ts(known.checkpoint), epoch=known.epoch, seen=Ts(known.seen))
        assert error.value.since == epochs[-1].last_ts
    with pytest.raises(FeedDiverged):
        watched.watch(since=Ts(0), epoch=known.epoch + 99, seen=Ts(0))


# --- slow readers and names -------------------------------------------------------------------------------------


def test_a_slow_reader_goes_back_to_the_journal(watched: Watched) -> None:
    opened, known = watched.watch()
    watched.settle()
    known.is_full = True
    watched("SET", "a", 0)
    watched.settle()
    assert opened.feed.state is State.BEHIND
    for number in range(1, 500):
        watched("SET", "a", number)
        watched.settle()
    assert opened.feed.out_bytes == 0
    assert len(known.events) == 2
    known.is_full = False
    watched.feeds.resume(opened)
    watched.settle()
    assert [event[-1] for event in known.events if event[0] == b"value"] == [b"%d" % each for each in range(500)]
    assert [event[0] for event in known.events].count(b"steady") == 1


def test_a_name_keeps_its_place(watched: Watched) -> None:
    watched("SET", "a", 1)
    watched.settle()
    opened, _ = watched.watch(name="n", since=Ts(0))
    watched.settle()
    done = watched.now
    watched.feeds.holds.acknowledge(0, "n", done)
    watched.feeds.close(opened)
    watched("SET", "a", 2)
    watched.restart()
    _, known = watched.watch(name="n")
    assert watched.events(known) == [value(b"a", "string", None, b"2"), [b"steady"]]
    with pytest.raises(ClientError):
        watched.feeds.holds.acknowledge(0, "other", done)


def test_feeds_are_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEEDS_MAX", 2)
    first, _ = watched.watch()
    watched.watch()
    with pytest.raises(ClientError, match="2 feeds already"):
        watched.watch()
    watched.feeds.close(first)
    watched.watch()


def test_many_that_are_behind_take_turns(watched: Watched) -> None:
    for number in range(300):
        watched("SET", f"k{number}", number)
    watched.settle()
    everyone = [watched.watch(since=Ts(0))[1] for _ in range(3 * limits.CATCH_UPS_MAX)]
    watched.feeds.work(0)
    assert sum(opened.router is not None for opened in watched.feeds.all) <= limits.CATCH_UPS_MAX
    watched.settle()
    assert all(len(known.state) == 300 for known in everyone)


def test_what_is_not_visible_yet_is_neither_sent_nor_gathered(watched: Watched) -> None:
    for number in range(500):
        watched("SET", f"k{number}", number)
    watched.settle()
    watched("SET", "k0", "pending")
    opened, known = watched.watch(is_initial=True)
    for _ in range(20):
        watched.feeds.work(0)
        watched.tick()
    assert known.events == []
    assert len(opened.feed.out) <= limits.FEED_EVENTS_AT_ONCE
    watched.settle()
    watched.tick()
    assert known.is_steady
    assert known.state[b"k0"] == b"pending"
    assert len(known.state) == 500


def test_initial_values_are_never_newer_than_the_last_checkpoint(watched: Watched) -> None:
    watched("SET", "a", 1)
    until = watched.now
    watched("SET", "a", 2)
    watched.settle()
    _, known = watched.watch(is_initial=True, until=until)
    watched.settle()
    assert known.ended == [None]
    assert known.checkpoint == watched.now


def test_damaged_history_ends_the_feed_that_reads_it_and_nothing_else(watched: Watched) -> None:
    for number in range(50):
        watched("SET", f"k{number}", "some value")
    watched.restart()  # so that it is read from the disk
    _, elsewhere = watched.watch()
    watched.settle()
    watched("SET", "a", 0)
    watched.settle()
    path = next(each for each in watched.disk.list("/data/shard-0") if each.startswith("journal"))
    data = watched.disk.read_file(f"/data/shard-0/{path}")
    watched.disk.flip_bit(f"/data/shard-0/{path}", 8 * data.index(b"some value"))
    _, known = watched.watch(since=Ts(0))
    watched.settle()
    assert str(known.ended[0]).startswith("ERR the feed ends: ")
    watched("SET", "a", 1)
    watched.settle()
    assert elsewhere.state == {b"a": b"1"}


def test_checkpoints_move_on_over_history_that_concerns_nobody(watched: Watched) -> None:
    for number in range(5000):
        watched("SET", f"k{number}", number)
        if number % 50 == 0:
            watched.store.journal.writer.write()
    watched.settle()
    opened, known = watched.watch([span_of_key(b"k4999")], since=Ts(0))
    while opened.router is None or opened.router.reached_ts <= 0:
        watched.feeds.work(0)
    watched.tick()
    assert opened.feed.state is State.BEHIND
    assert 0 < known.checkpoint < watched.now
    watched.settle()
    assert known.state == {b"k4999": b"4999"}


@pytest.mark.parametrize("is_initial", [False, True])
def test_large_values_are_sent_a_few_at_a_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, is_initial: bool
) -> None:
    monkeypatch.setattr(limits, "FEED_SENT_BYTES", 1000)
    for number in range(100):
        watched("SET", f"{{same}}k{number}", "x" * 400)
    watched.settle()
    sizes: list[int] = []
    opened, known = watched.watch(is_initial=True) if is_initial else watched.watch(since=Ts(0))
    send = known.send

    def measured(data: bytes | LargeString) -> None:
        assert isinstance(data, bytes)
        sizes.append(len(data))
        known.is_full = True
        send(data)

    known.send = measured  # type: ignore[method-assign]
    for _ in range(200):
        watched.settle()
        known.is_full = False
        watched.feeds.resume(opened)
    assert len(known.state) == 100
    assert max(sizes) < 2000


def test_a_name_goes_on_where_its_last_durable_acknowledgement_says(watched: Watched) -> None:
    """What was lost in a crash takes the acknowledgement of it along. A reader that says what it has seen is told."""
    outcomes = set()
    for round_ in range(30):
        name = f"n{round_}"
        watched("SET", "a", 1)
        began = watched.now
        opened, _ = watched.watch(name=name, since=began)
        watched.settle()
        watched.store.journal.writer.sync()
        watched("SET", "a", 2)
        watched.settle()
        acknowledged, epoch = watched.now, watched.store.journal.epoch_id
        watched.feeds.holds.acknowledge(0, name, acknowledged)
        moved = watched.now
        watched.store.journal.writer.write()
        watched.feeds.close(opened)
        watched.disk.crash()
        watched.store = watched._open()
        watched.feeds = type(watched.feeds)(watched.store, watched.clock)
        last_ts = watched.store.journal.epochs[-1].last_ts
        kept = (acknowledged <= last_ts, moved <= last_ts)
        outcomes.add(kept)
        assert watched.feeds.holds.get(0, name).ts == (acknowledged if kept[1] else began)
        _, known = watched.watch(name=name)
        events = [event for event in watched.events(known) if event[0] == b"value"]
        assert events == ([value(b"a", "string", None, b"2")] if kept == (True, False) else [])
        if not kept[0]:
            with pytest.raises(FeedDiverged) as error:
                watched.watch(name=name, since=acknowledged, epoch=epoch, seen=acknowledged)
            assert error.value.since == last_ts
    assert {(False, False), (True, True)} <= outcomes


def test_errors_about_a_name_have_the_name_that_was_given(watched: Watched) -> None:
    with pytest.raises(ClientError, match=r"^there is no feed named 'mine'$"):
        watched.feeds.holds.acknowledge(0, "mine", Ts(0))
    watched.watch(name="mine", since=Ts(0))
    let_go(watched)
    for ask in (lambda: watched.watch(name="mine"), lambda: watched.feeds.holds.acknowledge(0, "mine", Ts(0))):
        with pytest.raises(HolderLapsed, match=r"^the feed named 'mine' was let go: it did not move$"):
            ask()
