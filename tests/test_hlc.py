"""The hybrid clock: unique and increasing, whatever the wall clock, the disk and the power do."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import ClockAhead, Corruption, JournalFailed
from tidelog.hlc import HybridClock, StoredTs, TsFile
from tidelog.ids import U64_MAX, Ts
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

FOLDER = "/data"
PATH = f"{FOLDER}/clock"
SECTOR = 512


def new_disk(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_folder(FOLDER)
    disk.sync_folder("/")
    return disk


def open_clock(disk: SimulatedDisk, clock: SimulatedClock) -> HybridClock:
    return HybridClock(clock, TsFile.open(disk, FOLDER, "clock"))


def stored(disk: SimulatedDisk) -> StoredTs | None:
    """What the next process would find; looked at in a copy of the machine."""
    return TsFile.open(disk.clone(), FOLDER, "clock").stored


# --- giving out -------------------------------------------------------------------------------------------------


def test_a_ts_is_the_time_of_day() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    assert hlc.next() == clock.wall_us()
    clock.advance(1234)
    assert hlc.next() == clock.wall_us()


def test_within_one_microsecond_each_is_one_above_the_last() -> None:
    hlc = open_clock(new_disk(), SimulatedClock(wall_us=100))
    assert [hlc.next() for _ in range(4)] == [100, 101, 102, 103]


@given(st.lists(st.integers(-20_000_000, 20_000_000), max_size=60))
def test_every_ts_is_above_all_before_it_however_the_wall_clock_steps(steps: list[int]) -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    given_out = [hlc.next()]
    for step in steps:
        clock.step_wall(step)
        given_out.append(hlc.next())
        assert given_out[-1] >= clock.wall_us()
        assert hlc.last == given_out[-1]
    assert given_out == sorted(set(given_out))


def test_no_ts_is_given_out_beyond_what_is_stored() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    for _ in range(50):
        clock.advance(900_000)
        ts = hlc.next()
        found = stored(disk)
        assert found is not None
        assert not found.clean
        assert ts <= found.ts <= clock.wall_us() + limits.CLOCK_BOUND_AHEAD_WALL_US


def test_the_bound_lies_above_the_wall_clock_and_above_the_last_ts() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    assert stored(disk) == StoredTs(Ts(clock.wall_us() + limits.CLOCK_BOUND_AHEAD_WALL_US), False)

    last = Ts(clock.wall_us() + 50 * limits.SECOND_US)
    hlc.observe(last)
    assert hlc.next() == last + 1
    assert stored(disk) == StoredTs(Ts(last + 1 + limits.CLOCK_BOUND_AHEAD_LAST_US), False)


def test_the_disk_is_written_only_when_the_bound_is_reached() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    before = disk.operations
    for _ in range(1000):
        hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US)
    hlc.next()
    assert disk.operations == before
    clock.advance(1)
    hlc.next()
    assert disk.operations == before + 2, "one write, one sync"


# --- restarts ---------------------------------------------------------------------------------------------------


def test_a_restart_begins_above_the_bound_although_the_wall_clock_stepped_back() -> None:
    disk, clock = new_disk(), SimulatedClock()
    first = open_clock(disk, clock)
    ts = first.next()
    bound = stored(disk)
    assert bound is not None
    disk.crash()
    clock.step_wall(-3600 * limits.SECOND_US)

    second = open_clock(disk, clock)

    assert not second.was_clean
    assert second.next() == bound.ts + 1 > ts


def test_a_clean_stop_stores_the_last_ts_and_says_so() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    last = [hlc.next() for _ in range(5)][-1]
    hlc.close(clean=True)
    disk.crash("lose_all")
    clock.step_wall(-limits.SECOND_US)

    again = open_clock(disk, clock)

    assert again.was_clean
    assert again.last == last
    assert again.next() == last + 1


def test_an_unclean_close_leaves_the_bound() -> None:
    disk = new_disk()
    hlc = open_clock(disk, SimulatedClock())
    hlc.next()
    before = stored(disk)
    hlc.close(clean=False)
    assert stored(disk) == before
    assert disk.open_paths == []


def test_a_clean_stop_counts_only_until_the_next_ts() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    hlc.close(clean=True)
    open_clock(disk, clock).next()
    assert not open_clock(disk.clone(), clock).was_clean


def test_a_new_file_was_not_clean() -> None:
    hlc = open_clock(new_disk(), SimulatedClock())
    assert not hlc.was_clean
    assert hlc.last == 0


class Lives:
    """Processes that follow each other on one disk, with a wall clock that nobody can trust."""

    def __init__(self, seed: int) -> None:
        self.disk = new_disk(seed)
        self.clock = SimulatedClock()
        self.given_out: set[int] = set()
        self.highest = 0

    def run(self) -> None:
        """One life: 40 ts, renewals in the background, a clean stop. It may end anywhere."""
        hlc = open_clock(self.disk, self.clock)
        for turn in range(40):
            ts = hlc.next()
            assert ts not in self.given_out
            assert ts > self.highest
            self.given_out.add(ts)
            self.highest = ts
            self.clock.advance(self.disk.rng.choice([1, 400_000, 3 * limits.SECOND_US]))
            if turn % 3 == 0 and hlc.begin_renewal():
                if turn % 2:
                    self.take(hlc)
                hlc.sync()
                hlc.finish_renewal()
        hlc.close(clean=True)

    def take(self, hlc: HybridClock) -> None:
        ts = hlc.next()
        assert ts > self.highest
        self.given_out.add(ts)
        self.highest = ts

    def end(self) -> None:
        if self.disk.rng.random() < 0.3:
            self.disk.kill()
        else:
            self.disk.crash()
        self.clock.step_wall(self.disk.rng.choice([0, -1, -30 * limits.SECOND_US, 2 * limits.SECOND_US]))


def operations_of_a_life(seed: int) -> int:
    lives = Lives(seed)
    before = lives.disk.operations
    lives.run()
    return lives.disk.operations - before


@pytest.mark.parametrize("seed", range(12))
def test_no_ts_is_given_out_twice_wherever_the_power_is_cut(seed: int) -> None:
    for crash_at in range(1, operations_of_a_life(seed) + 1):
        lives = Lives(seed)
        lives.disk.crash_after(crash_at)
        with suppress(SimulatedCrash):
            lives.run()
        lives.end()
        found = stored(lives.disk)
        assert lives.highest <= (found.ts if found else 0)
        lives.run()


@pytest.mark.parametrize("seed", range(12))
def test_no_ts_is_given_out_twice_over_two_deaths(seed: int) -> None:
    """What a process finds may be there only because the machine lived on; the next death may take it."""
    for crash_at in range(1, operations_of_a_life(seed) + 1, 3):
        for second_at in range(1, 6):
            lives = Lives(seed * 1000 + second_at)
            for at in (crash_at, second_at):
                lives.disk.crash_after(at)
                with suppress(SimulatedCrash):
                    lives.run()
                if at == crash_at:
                    lives.disk.kill()
                else:
                    lives.end()
            lives.run()


# --- what comes from elsewhere ----------------------------------------------------------------------------------


def test_the_clock_jumps_past_a_remote_ts() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    remote = Ts(clock.wall_us() + limits.CLOCK_REMOTE_AHEAD_MAX_US)
    hlc.observe(remote)
    assert hlc.next() == remote + 1


def test_a_remote_ts_in_the_past_changes_nothing() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    ts = hlc.next()
    hlc.observe(Ts(ts - 1000))
    assert hlc.last == ts


def test_a_remote_ts_too_far_ahead_is_refused_and_changes_nothing() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    ts = hlc.next()
    with pytest.raises(ClockAhead, match=r"60\.0 s ahead .* more than the 60 s .* set the clocks"):
        hlc.observe(Ts(clock.wall_us() + limits.CLOCK_REMOTE_AHEAD_MAX_US + 1))
    assert hlc.last == ts


def test_a_remote_ts_below_our_own_last_is_never_too_far_ahead() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    ts = hlc.next()
    clock.step_wall(-3600 * limits.SECOND_US)
    hlc.observe(ts)
    assert hlc.last == ts


def test_our_own_history_is_believed_however_far_ahead_it_lies() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    own = Ts(clock.wall_us() + 365 * 24 * limits.HOUR_US)
    hlc.restore(own)
    assert hlc.next() == own + 1


def test_a_ts_that_leaves_no_room_for_another_is_refused() -> None:
    hlc = open_clock(new_disk(), SimulatedClock())
    hlc.restore(Ts(U64_MAX - limits.CLOCK_BOUND_AHEAD_LAST_US))
    with pytest.raises(ClockAhead, match="no room"):
        hlc.restore(Ts(U64_MAX - limits.CLOCK_BOUND_AHEAD_LAST_US + 1))


# --- renewal in the background ----------------------------------------------------------------------------------


def test_nothing_is_renewed_while_there_is_room() -> None:
    clock = SimulatedClock()
    hlc = open_clock(new_disk(), clock)
    hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US - limits.CLOCK_BOUND_RENEW_US - 1)
    assert not hlc.begin_renewal()
    clock.advance(1)
    assert hlc.begin_renewal()
    assert not hlc.begin_renewal(), "one at a time"


def test_with_renewals_in_time_next_never_waits_for_the_disk() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    for _ in range(30):
        clock.advance(limits.SECOND_US)
        if hlc.begin_renewal():
            hlc.sync()
            hlc.finish_renewal()
        before = disk.operations
        hlc.next()
        assert disk.operations == before


def test_a_renewal_counts_only_when_it_is_finished() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US)
    assert hlc.begin_renewal()
    clock.advance(1)
    before = disk.operations
    hlc.next()
    assert disk.operations > before, "the old bound is reached, and the new one is not known to be durable"


def test_next_extends_while_a_renewal_is_in_flight_and_the_renewal_then_no_longer_matters() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US)
    assert hlc.begin_renewal()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US + 1)
    ts = hlc.next()
    extended = stored(disk)
    assert extended is not None
    assert extended.ts >= ts
    hlc.sync()
    hlc.finish_renewal()
    assert stored(disk) == extended
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US + 1)
    later = hlc.next()
    disk.crash("lose_all")
    found = stored(disk)
    assert found is not None
    assert found.ts >= later


# --- a disk that fails ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_bound_that_cannot_be_stored_is_a_failed_journal_and_gives_out_nothing(operation: str) -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    last = hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US + 1)
    disk.fail("write" if operation == "write" else "sync", errno.EIO)
    with pytest.raises(JournalFailed, match="the bound of the clock could not be stored"):
        hlc.next()
    assert hlc.last == last


def test_a_renewal_that_cannot_be_written_is_a_failed_journal() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US)
    disk.fail("write", errno.EIO)
    with pytest.raises(JournalFailed, match="the bound of the clock could not be stored"):
        hlc.begin_renewal()


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("first", ["next", "following", "begin_renewal"])
def test_once_the_bound_could_not_be_stored_nothing_beyond_it_is_tried_again(first: str, operation: str) -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US - 1)
    below = hlc.next()
    calls = {"next": hlc.next, "following": hlc.following, "begin_renewal": hlc.begin_renewal}
    if first == "begin_renewal":
        disk.fail("write", errno.EIO)
    else:
        clock.advance(2)
        hlc.catch_up()
        disk.fail("write" if operation == "write" else "sync", errno.EIO)
    with pytest.raises(JournalFailed, match="restart the server") as caught:
        calls[first]()
    operations = disk.operations
    clock.advance(10)
    hlc.catch_up()
    for _ in range(3):
        for call in calls.values():
            with pytest.raises(JournalFailed) as again:
                call()
            assert again.value is caught.value
    assert disk.operations == operations, "the disk works again, and is not asked"
    assert hlc.last >= below
    disk.crash("lose_all")
    assert open_clock(disk, clock).next() > below


def test_after_a_renewal_that_failed_what_lies_below_the_bound_is_still_given_out() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US - 100)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(JournalFailed):
        hlc.begin_renewal()
    given = [hlc.next() for _ in range(50)]
    assert given == sorted(set(given))
    clock.advance(101)
    with pytest.raises(JournalFailed):
        hlc.next()


def test_a_clock_that_failed_does_not_grow_its_traceback() -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    clock.advance(2 * limits.CLOCK_BOUND_AHEAD_WALL_US)
    disk.fail("write", errno.EIO)
    lengths = []
    for _ in range(1000):
        with pytest.raises(JournalFailed) as caught:
            hlc.next()
        lengths.append(len(caught.traceback))
    assert max(lengths) < 10


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_clean_stop_that_cannot_be_stored_is_a_failed_journal_and_not_clean(operation: str) -> None:
    disk, clock = new_disk(), SimulatedClock()
    hlc = open_clock(disk, clock)
    hlc.next()
    disk.fail("write" if operation == "write" else "sync", errno.EIO)
    with pytest.raises(JournalFailed, match="the last ts could not be stored"):
        hlc.close(clean=True)
    assert disk.open_paths == []
    disk.crash("lose_all")
    assert not open_clock(disk, clock).was_clean


def test_short_writes_are_continued() -> None:
    disk, clock = new_disk(3), SimulatedClock()
    disk.short_writes = 0.9
    hlc = open_clock(disk, clock)
    ts = hlc.next()
    found = stored(disk)
    assert found is not None
    assert found.ts >= ts


# --- damage -----------------------------------------------------------------------------------------------------


def two_values(disk: SimulatedDisk) -> None:
    file = TsFile.open(disk, FOLDER, "clock")
    file.store(Ts(1000))
    file.store(Ts(2000))
    file.close()


@pytest.mark.parametrize("byte", range(28))
def test_damage_to_the_newer_copy_leaves_the_older(byte: int) -> None:
    disk = new_disk()
    two_values(disk)
    disk.flip_bit(PATH, 8 * (SECTOR + byte))
    assert stored(disk) == StoredTs(Ts(1000), False)


def test_every_byte_of_a_copy_is_under_its_crc() -> None:
    for byte in range(28):
        disk = new_disk()
        two_values(disk)
        disk.flip_bit(PATH, 8 * byte)
        disk.flip_bit(PATH, 8 * (SECTOR + byte))
        with pytest.raises(Corruption, match=r"both copies .* restore the file") as caught:
            TsFile.open(disk, FOLDER, "clock")
        assert caught.value.path == PATH


def test_copies_take_turns_so_a_torn_one_never_is_the_only_one() -> None:
    disk = new_disk()
    file = TsFile.open(disk, FOLDER, "clock")
    for value in range(1, 8):
        before = disk.read_file(PATH).ljust(2 * SECTOR, b"\0")
        file.store(Ts(value))
        after = disk.read_file(PATH).ljust(2 * SECTOR, b"\0")
        changed = {at // SECTOR for at in range(2 * SECTOR) if before[at] != after[at]}
        assert changed == {(value - 1) % 2}


def test_a_first_write_that_was_torn_counts_as_none() -> None:
    disk = new_disk()
    TsFile.open(disk, FOLDER, "clock").store(Ts(5))
    whole = disk.read_file(PATH)
    for size in range(len(whole.rstrip(b"\0"))):  # what follows is the empty second slot
        disk.write_file(PATH, whole[:size])
        assert stored(disk) is None


def test_what_was_only_found_is_made_durable_before_it_counts() -> None:
    """A kill leaves in memory what a later power cut takes: the copy that is durable must not be overwritten first."""
    disk = new_disk()
    first = TsFile.open(disk, FOLDER, "clock")
    first.store(Ts(1000))
    first.store(Ts(2000))
    first.write(Ts(3000))
    disk.kill()
    second = TsFile.open(disk, FOLDER, "clock")
    assert second.stored == StoredTs(Ts(3000), False)
    disk.crash("lose_all")
    assert stored(disk) == StoredTs(Ts(3000), False)


def test_the_name_of_a_file_that_was_only_found_is_made_durable() -> None:
    disk = new_disk()
    disk.open(PATH, "create").close()
    disk.kill()
    TsFile.open(disk, FOLDER, "clock").store(Ts(1000))
    disk.crash("lose_all")
    assert disk.exists(PATH)
    assert stored(disk) == StoredTs(Ts(1000), False)
