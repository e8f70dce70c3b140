"""Retention: what may go, what must stay, and who is let go."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.earlier_holders import write_holders
from tests.journal.machine import FOLDER, TABLE, Machine
from tidelog import limits
from tidelog.errors import ClientError, Corruption, HolderLapsed, LimitExceeded, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.holders_file import read_holders_file
from tidelog.journal.retention import (
    Holder,
    Holders,
    RetentionLimits,
    Segment,
    list_erasable,
    list_lapsing,
    plan_erasure,
)
from tidelog.journal.segment import journal_name
from tidelog.store.holds import NamedHolds
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

NOW = 1_000_000_000
PATH = f"{FOLDER}/holders.json"
SMALL = RetentionLimits(bytes_max=0, snapshots_kept=1)


def let_go(who: Holders, *names: str, reason: str = "it did not move") -> None:
    assert who.let_go([who.get(name)._replace(lapsed=reason) for name in names]) == []


def segments(*last_ts: int, size: int = 100) -> list[Segment]:
    return [Segment(ShardId(0), Lsn(index), Lsn(index + 1), Ts(ts), size) for index, ts in enumerate(last_ts)]


def going(
    erasable: list[Segment], bounds: RetentionLimits, who: Holders | None = None, needed_bytes: int = 0
) -> list[Segment]:
    """What an open journal does with them."""
    who = who or Holders()
    who.let_go(list_lapsing(erasable, who.holding(), bounds, NOW))
    return plan_erasure(erasable, who.oldest_needed(Ts(NOW), Ts(NOW)), bounds, NOW, needed_bytes)


def count_going(
    erasable: list[Segment], bounds: RetentionLimits, who: Holders | None = None, needed_bytes: int = 0
) -> int:
    gone = going(erasable, bounds, who, needed_bytes)
    assert gone == erasable[: len(gone)]
    return len(gone)


# --- how much is kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bytes_max", "going"), [(0, 4), (99, 4), (100, 3), (250, 2), (400, 0), (10**6, 0)])
def test_what_is_over_the_limit_of_bytes_goes_oldest_first(bytes_max: int, going: int) -> None:
    bounds = RetentionLimits(bytes_max=bytes_max, age_max_us=10 * NOW)
    assert count_going(segments(1, 2, 3, 4), bounds) == going


@pytest.mark.parametrize(("age_max_us", "going"), [(10, 3), (20, 2), (29, 2), (30, 1), (40, 0)])
def test_what_is_too_old_goes(age_max_us: int, going: int) -> None:
    bounds = RetentionLimits(bytes_max=10**9, age_max_us=age_max_us)
    assert count_going(segments(NOW - 40, NOW - 30, NOW - 20, NOW - 10), bounds) == going


@pytest.mark.parametrize(
    ("needed", "bytes_max", "going"),
    [(0, 1000, 0), (1, 1000, 1), (100, 1000, 1), (101, 1000, 2), (9999, 1000, 4), (1, 150, 3), (400, 150, 4)],
)
def test_more_goes_when_room_is_needed_but_no_more_than_it_takes(needed: int, bytes_max: int, going: int) -> None:
    bounds = RetentionLimits(bytes_max=bytes_max, age_max_us=NOW)
    assert count_going(segments(1, 2, 3, 4), bounds, needed_bytes=needed) == going


def test_what_a_holder_needs_does_not_go_for_room() -> None:
    who = Holders()
    who.hold("reader", Ts(2), NOW)
    bounds = RetentionLimits(bytes_max=1000, age_max_us=NOW, holder_bytes_max=0)
    assert count_going(segments(1, 2, 3, 4), bounds, who, 9999) == 2
    assert who.get("reader").ts == 2, "and it is not let go either"


def test_nothing_goes_when_nothing_is_erasable() -> None:
    assert going([], SMALL) == []


# --- holders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ts", "going"), [(0, 0), (9, 0), (10, 1), (25, 2), (40, 4), (99, 4)])
def test_a_holder_keeps_everything_after_its_ts(ts: int, going: int) -> None:
    who = Holders()
    who.hold("reader", Ts(ts), NOW)
    assert count_going(segments(10, 20, 30, 40), SMALL, who) == going
    assert who.get("reader").ts == ts


def test_the_furthest_behind_decides() -> None:
    who = Holders()
    who.hold("ahead", Ts(35), NOW)
    who.hold("behind", Ts(15), NOW)
    assert count_going(segments(10, 20, 30, 40), SMALL, who) == 1
    who.release("behind")
    assert count_going(segments(10, 20, 30, 40), SMALL, who) == 3
    who.release("never was")


def test_a_holder_that_stalls_is_let_go_and_told_so_at_its_next_step() -> None:
    who = Holders()
    bounds = RetentionLimits(bytes_max=0, holder_lapse_us=1000)
    who.hold("stalled", Ts(15), NOW - 1001)
    who.hold("moving", Ts(25), NOW - 1000)
    assert count_going(segments(10, 20, 30, 40), bounds, who) == 2
    for step in (lambda: who.get("stalled"), lambda: who.move("stalled", Ts(20), NOW)):
        with pytest.raises(HolderLapsed, match="holder 'stalled' was let go: it did not move for 0 s"):
            step()
    who.move("moving", Ts(30), NOW)
    who.hold("stalled", Ts(35), NOW)
    assert who.get("stalled").ts == 35, "it may begin again"


def test_the_furthest_behind_is_let_go_when_too_much_is_kept_for_holders_alone() -> None:
    who = Holders()
    bounds = RetentionLimits(bytes_max=0, holder_bytes_max=250)
    who.hold("far behind", Ts(5), NOW)
    who.hold("behind", Ts(15), NOW)
    who.hold("close", Ts(20), NOW)
    assert count_going(segments(10, 20, 30, 40), bounds, who) == 2
    for name in ("far behind", "behind"):
        with pytest.raises(HolderLapsed, match="more than 250 bytes of journal were kept for it"):
            who.get(name)
    assert who.get("close").ts == 20


def test_what_would_be_kept_anyway_is_not_held_against_a_holder() -> None:
    who = Holders()
    bounds = RetentionLimits(bytes_max=10**6, age_max_us=10 * NOW, holder_bytes_max=0)
    who.hold("behind", Ts(0), NOW)
    assert count_going(segments(10, 20, 30, 40), bounds, who) == 0
    assert who.get("behind").lapsed is None


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 300)), max_size=12),
    st.lists(st.integers(0, 100), max_size=4),
    st.integers(0, 1500),
    st.integers(0, 120),
)
def test_what_goes_is_a_prefix_that_no_holder_needs(
    rows: list[tuple[int, int]], held: list[int], bytes_max: int, age_max_us: int
) -> None:
    erasable = [
        Segment(ShardId(0), Lsn(index), Lsn(index + 1), Ts(NOW - 100 + ts), size)
        for index, (ts, size) in enumerate(sorted(rows))
    ]
    who = Holders()
    for number, ts in enumerate(held):
        who.hold(f"h{number}", Ts(NOW - 100 + ts), NOW)
    bounds = RetentionLimits(bytes_max=bytes_max, age_max_us=age_max_us)
    gone = going(erasable, bounds, who)
    assert gone == erasable[: len(gone)]
    assert all(segment.last_ts <= NOW - 100 + ts for segment in gone for ts in held)
    left = erasable[len(gone) :]
    if not held:
        assert sum(segment.size for segment in left) <= bytes_max
        assert all(NOW - segment.last_ts <= age_max_us for segment in left)


# --- names ------------------------------------------------------------------------------------------------------


def test_named_holders_count_and_are_let_go_by_a_record_only() -> None:
    who, named = Holders(), NamedHolds()
    who.set_named(named)
    far = Holder("far", Ts(5), NOW - 2000)
    for holder in (far, Holder("near", Ts(15), NOW)):
        named.put(holder, Ts(0))
    who.hold("far", Ts(30), NOW)  # the same name means another one
    assert [holder.ts for holder in who.holding()] == [5, 15, 30]
    erasable = segments(10, 20, 30, 40)
    bounds = RetentionLimits(bytes_max=0, holder_lapse_us=1000)
    [lapsed] = list_lapsing(erasable, who.holding(), bounds, NOW)
    assert lapsed == far._replace(lapsed="it did not move for 0 s")
    assert who.let_go([lapsed]) == [lapsed]
    assert who.get("far").ts == 30, "the other one is not"
    assert count_going(erasable, bounds, who) == 0
    named.put(lapsed, Ts(0))
    assert count_going(erasable, bounds, who) == 1


def test_what_a_named_holder_held_stays_until_it_is_durable_that_it_moved() -> None:
    who, named = Holders(), NamedHolds()
    who.set_named(named)

    def move(ts: int) -> None:
        named.put(Holder("n", Ts(ts), NOW), Ts(0))

    def needed(durable_ts: int, last_ts: int) -> int | None:
        return who.oldest_needed(Ts(durable_ts), Ts(last_ts))

    move(10)  # the record has ts 100, and is durable before anybody asks
    move(20)  # 101
    assert needed(100, 101) == 10
    assert needed(100, 101) == 10
    move(30)  # 102: it moves all the time, and the newest is never durable
    assert needed(100, 102) == 10
    assert needed(101, 102) == 20
    move(40)  # 103
    move(50)  # 104
    assert needed(102, 104) == 30
    assert needed(103, 104) == 30, "it may be asked for less often than it would help"
    assert needed(104, 104) == 50
    who.hold("passing", Ts(25), NOW)
    assert needed(104, 104) == 25
    who.release("passing")
    named.remove("n", Ts(0))  # 105
    assert needed(104, 105) == 50
    assert needed(105, 105) is None
    move(7)  # 106: a new one counts at once
    assert needed(105, 106) == 7


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), st.booleans()), max_size=30))
def test_no_crash_brings_back_a_holder_of_what_may_be_erased(steps: list[tuple[int, int, bool]]) -> None:
    """Every state that a crash can leave, from what is durable on, holds no less than what is said to be needed."""
    who, named = Holders(), NamedHolds()
    who.set_named(named)
    states: list[int | None] = [None]
    """After each record: what is held."""
    durable = 0
    for ts, fsynced, is_asked in steps:
        if ts:
            named.put(Holder("n", Ts(ts), NOW), Ts(0))
        else:
            named.remove("n", Ts(0))
        states.append(ts or None)
        durable = min(len(states) - 1, durable + fsynced)
        if is_asked:
            needed = who.oldest_needed(Ts(durable), Ts(len(states) - 1))
            held = [each for each in states[durable:] if each is not None]
            assert not held or (needed is not None and needed <= min(held))
    needed = who.oldest_needed(Ts(len(states)), Ts(len(states) - 1))
    assert needed == states[-1], "and it does not hold more for ever"


def test_a_holder_never_moves_back_unless_it_holds_anew() -> None:
    who = Holders()
    who.hold("reader", Ts(10), NOW)
    who.move("reader", Ts(5), NOW + 1)
    assert (who.get("reader").ts, who.get("reader").moved_us) == (10, NOW + 1)
    who.hold("reader", Ts(5), NOW + 2)
    assert who.get("reader").ts == 5


def test_a_holder_that_never_was_is_the_clients_error() -> None:
    with pytest.raises(ClientError, match="there is no holder 'nobody'"):
        Holders().get("nobody")


@pytest.mark.parametrize("name", ["", "x" * 257, "ü" * 129])
def test_a_name_has_its_limits(name: str) -> None:
    with pytest.raises(LimitExceeded, match="1 to 256 bytes"):
        Holders().hold(name, Ts(0), NOW)


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDERS_MAX", 2)
    who = Holders()
    who.hold("a", Ts(0), NOW)
    who.hold("b", Ts(0), NOW)
    who.hold("b", Ts(1), NOW)
    with pytest.raises(LimitExceeded, match="2 holders already"):
        who.hold("c", Ts(0), NOW)


def test_those_that_were_let_go_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDERS_MAX", 3)
    who = Holders()
    for number, name in enumerate(("a", "b", "c")):
        who.hold(name, Ts(number), NOW)
    let_go(who, "b", "c")
    with pytest.raises(HolderLapsed):
        who.get("b")
    who.hold("d", Ts(9), NOW)
    assert [holder.name for holder in who.all()] == ["a", "c", "d"], "the furthest behind of them made room"
    with pytest.raises(ClientError, match="there is no holder 'b'"):
        who.get("b")
    who.hold("e", Ts(9), NOW)
    with pytest.raises(LimitExceeded, match="3 holders already"):
        who.hold("f", Ts(9), NOW)
    assert [holder.name for holder in who.holding()] == ["a", "d", "e"]


def test_holders_that_stalled_make_room_in_an_open_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDERS_MAX", 5)
    machine = grown()
    for number in range(5):
        machine.journal.holders.hold(f"feed-{number}", Ts(1), machine.clock.wall_us())
    machine.clock.advance(limits.HOLDER_LAPSE_US + 1)
    with pytest.raises(LimitExceeded):
        machine.journal.holders.hold("new", Ts(1), machine.clock.wall_us())
    machine.journal.erase()
    machine.journal.holders.hold("new", machine.journal.erased_ts, machine.clock.wall_us())
    assert [holder.name for holder in machine.journal.holders.holding()] == ["new"]


@pytest.mark.parametrize("bit", range(0, 800, 53))
def test_a_damaged_file_of_an_earlier_version_is_refused(bit: int) -> None:
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    assert read_holders_file(disk, FOLDER) == []
    before = [Holder("named", Ts(123456), NOW, None, 7, Ts(123)), Holder("gone", Ts(1), NOW, "it did not move")]
    write_holders(disk, FOLDER, *before)
    assert read_holders_file(disk, FOLDER) == before
    disk.flip_bit(PATH, bit)
    with suppress(Corruption):
        assert read_holders_file(disk, FOLDER) == before, "a change of white space alone does not matter"


# --- on disk ----------------------------------------------------------------------------------------------------


def grown(**options: object) -> Machine:
    """Two shards with many segments, covered by a snapshot."""
    machine = Machine(retention=SMALL, **options)  # type: ignore[arg-type]
    for number in range(120):
        machine.commit((number % 2, b"k%d" % number, bytes(200)))
    machine.snapshot({})
    return machine


def test_without_a_snapshot_nothing_is_erased() -> None:
    machine = Machine(retention=SMALL)
    machine.fill(100)
    assert machine.journal.erase() == []
    assert machine.journal.erased_ts == 0


def test_segments_that_the_snapshot_covers_go_and_the_last_synced_mark_stays() -> None:
    machine = grown()
    before = [machine.segments(0), machine.segments(1)]
    going = machine.journal.erase()
    for shard in (0, 1):
        left = machine.segments(shard)
        gone = [segment.first for segment in going if segment.shard == shard]
        assert gone + left == before[shard]
        assert gone
        assert len(left) >= 1
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.state == {}, "the snapshot was of nothing"


def test_only_what_the_oldest_kept_snapshot_covers_may_go() -> None:
    machine = Machine(shards=1, retention=RetentionLimits(bytes_max=0, snapshots_kept=2))
    machine.fill(60)
    first = machine.snapshot({})
    machine.fill(60)
    machine.snapshot({})
    machine.journal.erase()
    assert machine.segments()[0] < first.point.lsns[0]
    erasable = list_erasable(machine.disk, [machine.source()], first.point.lsns)
    assert erasable == []


def test_a_segment_says_what_it_takes_and_when_it_ends() -> None:
    machine = Machine(shards=1)
    written = machine.fill(60)
    machine.commit((0, b"whale", bytes(3000)))
    machine.fill(60)
    found = list_erasable(machine.disk, [machine.source()], [Lsn(10**6)])
    assert [(segment.first, segment.end) for segment in found] == list(
        zip(machine.segments(), machine.segments()[1:], strict=False)
    )
    for segment in found:
        inside = [ts for lsn, ts in enumerate(written) if lsn < segment.end]
        assert segment.last_ts >= inside[-1]
    whale = next(segment for segment in found if segment.first <= 60 < segment.end)
    assert whale.size > 4096 + 3000
    assert found[0].size == 4096


def test_who_asks_for_what_is_gone_is_told_the_oldest_place_that_is_left() -> None:
    machine = grown()
    everything = machine.read()
    machine.journal.erase()
    oldest = machine.journal.erased_ts
    with pytest.raises(TooOld, match="no longer has the transactions after ts 0") as caught:
        machine.journal.reader_since(Ts(0))
    assert caught.value.oldest == oldest
    with pytest.raises(TooOld):
        machine.journal.reader_since(Ts(oldest - 1))
    assert machine.read(oldest) == [seen for seen in everything if seen.ts > oldest]


def test_the_erased_ts_is_durable_before_the_first_segment_is_unlinked() -> None:
    operations = 0
    machine = grown()
    before = machine.disk.operations
    machine.journal.erase()
    operations = machine.disk.operations - before
    for crash_at in range(1, operations + 1):
        machine = grown(seed=crash_at)
        everything = machine.read()
        machine.disk.crash_after(crash_at)
        with pytest.raises(SimulatedCrash):
            machine.journal.erase()
        machine.disk.crash()
        machine.open()
        oldest = machine.journal.erased_ts
        expected = [seen for seen in everything if seen.ts > oldest]
        assert machine.read(oldest) == expected
        assert len(expected) < len(everything) or oldest == 0


def test_a_holder_of_the_journal_keeps_its_segments_until_it_moves() -> None:
    machine = grown()
    everything = machine.read()
    place = everything[30].ts
    machine.journal.holders.hold("reader", place, machine.clock.wall_us())
    machine.journal.erase()
    assert machine.read(place) == everything[31:]
    assert 0 < machine.journal.erased_ts <= place
    later = everything[90].ts
    machine.journal.holders.move("reader", later, machine.clock.wall_us())
    assert machine.journal.erase()
    assert machine.read(later) == everything[91:]
    with pytest.raises(TooOld):
        machine.journal.reader_since(place)


def test_erasing_again_erases_nothing_more() -> None:
    machine = grown()
    assert machine.journal.erase()
    oldest = machine.journal.erased_ts
    assert machine.journal.erase() == []
    assert machine.journal.erased_ts == oldest


def test_what_is_left_goes_on_being_written_and_recovered() -> None:
    machine = grown()
    machine.journal.erase()
    later = [machine.commit((number % 2, b"k", bytes(100))) for number in range(30)]
    machine.disk.kill()
    machine.open()
    assert machine.replayed[-30:] == later
    assert [seen.ts for seen in machine.read(machine.journal.erased_ts)][-30:] == later


def test_sidecars_of_erased_segments_are_neither_kept_nor_made() -> None:
    machine = grown()
    machine.journal.make_sidecars(TABLE, 10)
    machine.journal.erase()
    while machine.journal.make_sidecars(TABLE, 10):
        pass
    for shard in (0, 1):
        names = machine.disk.list(f"{FOLDER}/shard-{shard}")
        left = {name.partition("-")[2].partition(".")[0] for name in names if name != "shard.json"}
        assert left == {journal_name(segment)[8:24] for segment in machine.segments(shard)}
