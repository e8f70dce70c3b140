"""A restored directory has what the backup had, at the moment that was asked for, or does not count."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.feeds.made import Watched
from tests.feeds.rebuilt import Rebuilt
from tests.journal.earlier_holders import write_holders
from tests.store.changes import change, open_store, state
from tests.store.changes import run as write
from tidelog.errors import (
    ClientError,
    Corruption,
    DataDirectoryError,
    DirectoryInUse,
    FeedDiverged,
    LimitExceeded,
    TooOld,
)
from tidelog.feeds.feeds import Feeds
from tidelog.ids import Ts
from tidelog.journal import layout
from tidelog.journal.journal import Settings
from tidelog.journal.operation import Val
from tidelog.journal.retention import Holder
from tidelog.journal.snapshot import list_snapshot_paths, snapshot_ts
from tidelog.store.backup import copy_newest_snapshot
from tidelog.store.restore import Restored, restore
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

State = dict[Any, Any]


class Filled:
    """A data directory, with its state after each of its transactions."""

    def __init__(self, shards: int, *, seed: int = 1, snapshots: int = 2) -> None:
        self.disk, rng = SimulatedDisk(), random.Random(seed)
        store = open_store(self.disk, shards)
        self.states: list[tuple[Ts, State]] = []
        self.snapshot_ts: list[Ts] = []
        for number in range(300):
            change(store, rng)
            store.journal.writer.write()
            self.states.append((store.journal.writer.written_ts, state(store)))
            if snapshots and number % 100 == 80:
                store.save()
                self.snapshot_ts.append(store.journal.writer.written_ts)
        store.journal.close()

    @property
    def last(self) -> State:
        return self.states[-1][1]

    def at(self, ts: Ts) -> State:
        return [found for when, found in self.states if when <= ts][-1]


def run(disk: SimulatedDisk, source: str = "/data", **options: Any) -> Restored:
    return restore(disk, Store(SimulatedClock(), random.Random(1)), source, "/new", **options)


def opened(disk: SimulatedDisk, folder: str = "/new") -> Store:
    return Store.open(disk, folder, SimulatedClock(), Settings(), new_epoch_id=lambda: 5, random=random.Random(1))


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, None), (4, 1)])
def test_a_directory_and_a_snapshot_are_restored_into_any_number_of_shards(old: int, new: int | None) -> None:
    filled = Filled(old)
    disk = filled.disk
    made = run(disk, shard_count=new)
    assert (made.ts, made.shard_count, made.keys) == (filled.states[-1][0], new or old, len(filled.last))
    disk.crash("lose_all")
    store = opened(disk)
    assert state(store) == filled.last
    assert store.journal.meta.shard_count == (new or old)
    store.journal.close()

    backup = copy_newest_snapshot(disk, "/data", "/backup")
    made = restore(disk, Store(SimulatedClock(), random.Random(1)), "/backup", "/other", shard_count=new)
    assert made.ts == backup.ts == filled.snapshot_ts[-1]
    assert state(opened(disk, "/other")) == filled.at(made.ts)


def test_history_goes_on_above_what_was_restored() -> None:
    disk = Filled(2).disk
    made = run(disk)
    store = opened(disk)
    assert store.journal.erased_ts >= made.ts
    change_until_written(store)
    assert store.journal.writer.written_ts > made.ts
    after = state(store)
    store.save()
    store.journal.close()
    store = opened(disk)
    assert state(store) == after


def change_until_written(store: Store) -> None:
    rng, before = random.Random(9), store.journal.writer.written_ts
    while store.journal.writer.written_ts == before:
        change(store, rng)
        store.journal.writer.write()


@pytest.mark.parametrize("index", [5, 80, 81, 150, 298])
def test_a_moment_is_restored_up_to_and_including_its_transaction(index: int) -> None:
    filled = Filled(3)
    ts, expected = filled.states[index]
    made = run(filled.disk, until=ts)
    assert made.ts == ts
    assert state(opened(filled.disk)) == expected


def test_a_moment_before_everything_is_refused() -> None:
    filled = Filled(1)
    with pytest.raises(DataDirectoryError, match="nothing as old"):
        run(filled.disk, until=Ts(5))
    assert not filled.disk.exists("/new")


def test_a_snapshot_alone_has_one_moment() -> None:
    filled = Filled(1)
    copy_newest_snapshot(filled.disk, "/data", "/backup")
    with pytest.raises(DataDirectoryError, match="no other moment"):
        run(filled.disk, "/backup", until=filled.states[3][0])


def test_a_damaged_snapshot_gives_way_to_an_older_one_and_the_journal() -> None:
    filled = Filled(2)
    newest = list_snapshot_paths(filled.disk, "/data")[-1]
    filled.disk.flip_bit(f"{newest}/shard-0/journal-0000000000000000.dj0", 900)
    made = run(filled.disk)
    assert made.snapshot_ts == filled.snapshot_ts[-2]
    assert len(made.damaged) == 1
    assert state(opened(filled.disk)) == filled.last


@pytest.mark.parametrize("place", ["meta.json", "shard-0/journal-0000000000000000.dj0"])
def test_a_damaged_backup_is_refused_and_leaves_nothing(place: str) -> None:
    filled = Filled(1)
    copy_newest_snapshot(filled.disk, "/data", "/backup")
    filled.disk.flip_bit(f"/backup/{place}", 700)
    with pytest.raises(Corruption):
        run(filled.disk, "/backup")
    assert not filled.disk.exists("/new")


def test_bad_targets_and_numbers_are_refused() -> None:
    filled = Filled(1)
    disk = filled.disk
    for shard_count in (0, -1, 257):
        with pytest.raises(LimitExceeded, match="shards"):
            run(disk, shard_count=shard_count)
    with pytest.raises(DataDirectoryError, match=r"no meta\.json"):
        run(disk, "/nowhere")
    disk.make_folder("/new")
    disk.write_file("/new/letter.txt", b"mine")
    with pytest.raises(DataDirectoryError, match="not empty"):
        run(disk)
    assert disk.read_file("/new/letter.txt") == b"mine"


def test_a_directory_in_use_is_refused() -> None:
    filled = Filled(1)
    store = opened(filled.disk, "/data")
    with pytest.raises(DirectoryInUse, match="tidelog snapshot"):
        run(filled.disk)
    store.journal.close()


def test_a_directory_that_was_restored_shows_no_moment_without_what_it_was_restored_from() -> None:
    """Its journal begins at lsn 0, and still has nothing of what came before."""
    disk = restored_and_written(saves=True)
    first = snapshot_ts(list_snapshot_paths(disk, "/data")[0])

    with pytest.raises(DataDirectoryError, match=f"nothing as old as ts {first - 1}"):
        run(disk, until=Ts(first - 1))
    store = Store(SimulatedClock(), random.Random(1))
    restore(disk, store, "/data", "/new", until=first)
    assert (0, b"base") in state(store)


@pytest.mark.parametrize("lost", ["nothing", layout.ERASED])
def test_a_damaged_snapshot_that_a_directory_began_with_is_not_passed_over(lost: str) -> None:
    disk = restored_and_written()
    [path] = list_snapshot_paths(disk, "/data")
    if lost == layout.ERASED:
        disk.remove(f"/data/{layout.ERASED}")
    file = disk.open(f"{path}/{layout.META}", "write")
    file.write(0, [b"#"])
    file.close()

    refused = Corruption if lost == "nothing" else DataDirectoryError
    with pytest.raises(refused, match="not a file that" if lost == "nothing" else "was restored"):
        run(disk)
    assert not disk.exists("/new/meta.json")


def restored_and_written(*, saves: bool = False) -> SimulatedDisk:
    """A directory that was restored, and to which somebody has written since."""
    disk = SimulatedDisk()
    old = open_store(disk, 1, "/old")
    write(old, [b"SET", b"base", b"x"])
    old.save()
    old.journal.close()
    restore(disk, Store(SimulatedClock(), random.Random(1)), "/old", "/data")
    store = open_store(disk, 1)
    for key in (b"a", b"b", b"c", b"d"):
        write(store, [b"SET", key, b"y"])
        if saves and key != b"a":
            store.save()  # two are kept: that of the restore goes
    store.journal.writer.write()
    store.journal.close()
    return disk


@pytest.mark.parametrize("style", ["lose_all", "keep_all", "scatter"])
def test_a_restore_that_is_cut_off_anywhere_never_counts_and_can_be_begun_anew(style: Any) -> None:
    """Crash at every change that it makes: what is there then is refused, empty, or complete."""
    filled = Filled(2, snapshots=1)
    fresh, filled_last = filled.disk, filled.last
    probe = fresh.clone(1)
    before = probe.operations
    run(probe)
    count = probe.operations - before
    outcomes = set()
    for n in {*range(1, count, max(1, count // 20)), *range(count - 12, count + 1)}:
        disk = fresh.clone(n)
        disk.crash_after(n)
        with pytest.raises(SimulatedCrash):
            run(disk)
        disk.crash(style)
        again = disk.clone(n)
        outcome = outcome_of(disk, filled_last)
        outcomes.add(outcome)
        if outcome != "complete":
            run(again)
            assert state(opened(again)) == filled_last
    assert "refused" in outcomes
    assert outcomes <= {"refused", "empty", "complete"}


def outcome_of(disk: SimulatedDisk, expected: State) -> str:
    try:
        found = state(opened(disk))
    except DataDirectoryError as error:
        return "refused" if "restore that did not finish" in str(error) else str(error)
    return "complete" if found == expected else "half" if found else "empty"


# --- feeds --------------------------------------------------------------------------------------------------------


class Followed:
    """A history in two epochs, with a feed that was at some of its moments."""

    def __init__(self) -> None:
        self.watched = Watched(2)
        self.places: list[dict[str, Any]] = []
        self._live()
        self.watched.restart()
        self.watched.clock.advance(60_000_000)  # past what the clock before may have given out
        self._live()

    def _live(self) -> None:
        _, known = self.watched.watch(name="mine", since=Ts(0))
        for number in range(5):
            self.watched("MSET", "a", number, "b", number)
            self.watched.settle()
            self.places.append(self._look(known))
            self.watched.feeds.holds.acknowledge(0, "mine", Ts(known.checkpoint))
        self._known = known

    def _look(self, known: Rebuilt) -> dict[str, Any]:
        self.watched.tick()
        return {"since": Ts(known.checkpoint), "epoch": known.epoch, "seen": Ts(known.seen)}

    def look(self) -> dict[str, Any]:
        """Where the feed is now: behind everything."""
        self.watched.settle()
        return self._look(self._known)

    def restored(self, source: str, clock_us: int, **options: Any) -> Watched:
        """What is restored, on a machine with another clock."""
        disk = self.watched.disk
        restore(disk, Store(SimulatedClock(), random.Random(1)), source, "/new", shard_count=3, **options)
        made = Watched(3)
        made.disk, made.clock = disk, SimulatedClock(clock_us)
        made.store = Store.open(disk, "/new", made.clock, Settings(), lambda: 99, random.Random(1))
        made.feeds = Feeds(made.store, made.clock)
        return made


@pytest.mark.parametrize("is_backup", [False, True])
@pytest.mark.parametrize("behind_us", [-10_000_000, 500_000])
def test_a_feed_goes_on_after_a_restore_into_other_shards(is_backup: bool, behind_us: int) -> None:
    """Where the clock is behind the last checkpoint, and somebody writes before it has caught up, it is told."""
    followed = Followed()
    last = followed.look()
    source = "/data"
    if is_backup:
        followed.watched.store.save()
        source = copy_newest_snapshot(followed.watched.disk, "/data", "/backup").path
    followed.watched.store.journal.close()
    made = followed.restored(source, last["since"] - behind_us)
    assert made.store.journal.meta.shard_count == 3
    made("SET", "early", "1")
    made.settle()
    assert (made.now <= last["since"]) == (behind_us > 0)
    wanted = last
    if behind_us > 0:  # it was promised that nothing comes at or below its checkpoint
        with pytest.raises(FeedDiverged) as diverged:
            made.watch(**wanted)
        assert diverged.value.since == last["seen"]
        wanted = {"since": diverged.value.since}
    for each in (wanted, followed.places[-1], {"name": "mine"}):  # the last two are before the last acknowledgement
        _, known = made.watch(**each)
        assert made.events(known) == [[b"value", b"early", b"string", None, b"1"], [b"steady"]]
    with pytest.raises(TooOld) as too_old:
        made.watch(**followed.places[-2])
    assert too_old.value.oldest == followed.places[-1]["seen"]
    with pytest.raises(TooOld):
        made.watch(**followed.places[2])  # of the epoch before


@pytest.mark.parametrize("acknowledges", [1, 3])
@pytest.mark.parametrize("is_saved", [False, True])
def test_a_name_goes_on_after_a_restore_however_often_it_had_acknowledged(acknowledges: int, is_saved: bool) -> None:
    """Acknowledgements are transactions, but no reader misses one: after a start and in a snapshot as well."""
    followed = Followed()
    for _ in range(acknowledges):
        if is_saved:
            followed.watched.store.save()
        followed.watched.restart()
        followed.watched.feeds.holds.acknowledge(0, "mine", followed.places[-1]["since"])
    followed.watched.store.save()
    backup = copy_newest_snapshot(followed.watched.disk, "/data", "/backup").path
    made = followed.restored(backup, followed.watched.clock.wall_us())
    made.watch(name="mine")
    assert made.store.journal.erased_ts == followed.places[-1]["seen"]


def test_what_is_in_one_transaction_with_an_acknowledgement_counts() -> None:
    followed = Followed()
    watched = followed.watched
    transaction = watched.store.begin()
    transaction.run([Val([(b"a", b"more")])])
    watched.feeds.holds.acknowledge(0, "mine", followed.places[-1]["since"], transaction)
    watched.store.commit(transaction)
    watched.settle()
    watched.store.journal.close()
    made = followed.restored("/data", watched.clock.wall_us())
    with pytest.raises(TooOld):
        made.watch(name="mine")


def test_a_feed_that_saw_more_than_was_restored_is_told_from_where_on() -> None:
    followed = Followed()
    followed.watched.store.journal.close()
    place = followed.places[7]
    made = followed.restored("/data", followed.places[-1]["since"], until=place["seen"])
    for wanted in (followed.places[-1], {"name": "mine"}):
        with pytest.raises(FeedDiverged) as error:
            made.watch(**wanted)
        assert error.value.since == place["seen"]
    made.watch(**place)


def test_a_hold_that_began_after_what_was_restored_is_told() -> None:
    followed = Followed()
    watched = followed.watched
    until = watched.now
    watched("SET", "a", "lost")
    watched.settle()
    watched.watch(name="late", since=watched.now)
    watched.feeds.holds.drop(0, "mine")
    watched.store.journal.close()
    made = followed.restored("/data", watched.clock.wall_us() + 10_000_000, until=until)
    with pytest.raises(FeedDiverged) as error:
        made.watch(name="late")
    assert error.value.since == until
    with pytest.raises(ClientError, match="there is no feed named 'mine'"):
        made.watch(name="mine")


def test_a_restored_hold_is_as_if_it_had_just_moved() -> None:
    followed = Followed()
    before = followed.watched.store.journal.holders.all()
    followed.watched.store.journal.close()
    made = followed.restored("/data", followed.places[-1]["since"])
    [hold] = made.store.journal.holders.all()
    assert (hold.name, hold.ts, hold.epoch, hold.seen) == (
        before[0].name, before[0].ts, before[0].epoch, before[0].seen
    )  # fmt: skip
    assert hold.moved_us != before[0].moved_us


@pytest.mark.parametrize("is_backup", [False, True])
def test_holders_of_an_earlier_version_come_along(is_backup: bool) -> None:
    followed = Followed()
    disk, store = followed.watched.disk, followed.watched.store
    earlier = [Holder("feed:old", store.journal.writer.last_ts, 5), Holder("feed 0:mine", Ts(1), 5)]
    store.save()
    store.journal.close()
    source = copy_newest_snapshot(disk, "/data", "/backup").path if is_backup else "/data"
    write_holders(disk, source, *earlier)
    made = followed.restored(source, followed.places[-1]["since"])
    held = {holder.name: holder.ts for holder in made.store.journal.holders.all()}
    assert held == {"feed:old": earlier[0].ts, "feed 0:mine": followed.places[-1]["since"]}
    assert not disk.exists("/new/holders.json")
