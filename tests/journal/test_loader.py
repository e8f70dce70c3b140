"""Recovery, second half: what counts, what is cut, what is refused, and that replaying it gives the state."""

from __future__ import annotations

import errno
import random

import pytest

from tests.journal.machine import FOLDER, FRAME_BYTES, TABLE, Machine, State
from tidelog.errors import Corruption
from tidelog.ids import Lsn, Ts
from tidelog.journal import loader
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.loader import RecoveryPlan, plan_recovery
from tidelog.journal.segment import blob_name, journal_name, sidecar_name
from tidelog.journal.sidecar import Sidecars
from tidelog.journal.snapshot import list_snapshots
from tidelog.testing.disk import SimulatedCrash


def plan(machine: Machine) -> RecoveryPlan:
    return plan_recovery(machine.disk, FOLDER, machine.journal.meta)


def shard_files(machine: Machine, shard: int = 0) -> dict[str, bytes]:
    folder = f"{FOLDER}/shard-{shard}"
    return {name: machine.disk.read_file(f"{folder}/{name}") for name in machine.disk.list(folder)}


def cut_file(machine: Machine, shard: int, size: int, segment: int = 0) -> None:
    path = machine.path(shard, segment)
    machine.disk.write_file(path, machine.disk.read_file(path)[:size])


# --- planning ---------------------------------------------------------------------------------------------------


def test_planning_changes_nothing() -> None:
    machine = Machine(policy=FsyncPolicy.NEVER)
    for number in range(30):
        machine.write((number % 2, b"k%d" % number, bytes(200)))
    machine.disk.kill()
    last = machine.segments(1)[-1]
    machine.disk.write_file(machine.path(1, last), machine.disk.read_file(machine.path(1, last)) + b"torn")
    before = machine.disk.operations
    assert plan(machine).tail_bytes == 4
    assert machine.disk.operations == before
    assert machine.disk.open_paths == []


def test_a_frame_whose_head_a_crash_has_torn_is_not_where_a_snapshot_ends() -> None:
    """Of the head, four bytes were written: the lsn that it seems to have is 0, which every snapshot covers."""
    machine = Machine(shards=2)
    machine.fill(2)
    machine.snapshot({})
    machine.disk.kill()
    path = machine.path(0, 0)
    durable = machine.disk.read_file(path)
    assert len(durable) < FRAME_BYTES
    machine.disk.write_file(path, durable.ljust(FRAME_BYTES, b"\0") + b"DJ0\x03" + bytes(300))
    found = plan(machine)
    assert found.lsns == (2, 0)
    assert found.cuts[0] is not None
    assert found.cuts[0].at == len(durable)


def test_an_undamaged_journal_is_kept_whole() -> None:
    machine = Machine(shards=3)
    machine.fill(30)
    machine.fill(3, shard=1)
    found = plan(machine)
    assert found.tail_bytes == 0
    assert found.cuts == machine.journal.writer.visible.ends
    assert found.lsns == (30, 3, 0)
    assert found.last_ts == machine.journal.writer.visible.ts


def test_a_torn_tail_is_measured_and_cut() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER)
    machine.write((0, b"kept", b""))
    end = len(machine.disk.read_file(machine.path()))
    machine.write((0, b"torn", bytes(300)))
    size = len(machine.disk.read_file(machine.path())) - 1
    machine.disk.kill()
    cut_file(machine, 0, size)
    assert plan(machine).tail_bytes == size - end
    machine.open()
    assert machine.state == {(0, 0, b"kept"): b""}
    assert machine.journal.recovered.tail_bytes == size - end


def test_all_shards_are_cut_back_to_one_cycle() -> None:
    machine = Machine(shards=2, policy=FsyncPolicy.NEVER)
    first = machine.write((0, b"a", b"1"), (1, b"a", b"1"))
    size = len(machine.disk.read_file(machine.path(1)))
    machine.write((0, b"b", b"1"), (1, b"b", b"1"))
    machine.write((0, b"c", b"1"))
    machine.disk.kill()
    cut_file(machine, 1, size)
    machine.open()
    assert machine.replayed == [first]
    assert machine.state == {(0, 0, b"a"): b"1", (1, 0, b"a"): b"1"}


def test_segments_and_files_behind_the_cut_are_removed() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER, frames_per_segment=1)
    for number in range(20):
        machine.write((0, b"k%d" % number, bytes(200)))
    machine.write((0, b"whale", bytes(2000)))
    machine.journal.make_sidecars(TABLE, 100)
    second = machine.segments()[1]
    machine.disk.kill()
    cut_file(machine, 0, 500, second)
    machine.open()
    left = shard_files(machine)
    assert [name for name in left if name.startswith("journal-")] == [journal_name(Lsn(0)), journal_name(second)]
    assert not [name for name in left if name.startswith("blob-")]
    assert [name for name in left if name.startswith("sidecar-")] == [sidecar_name(Lsn(0))]


def test_files_that_no_segment_owns_are_removed_and_strange_ones_left() -> None:
    machine = Machine(shards=1)
    machine.fill(2)
    machine.disk.kill()
    orphan = Lsn(0x999)
    for name in (blob_name(orphan), sidecar_name(orphan), "notes.txt"):
        machine.disk.write_file(f"{FOLDER}/shard-0/{name}", b"x")
    machine.open()
    assert sorted(shard_files(machine)) == [journal_name(Lsn(0)), "notes.txt", "shard.json"]


def test_a_journal_of_nothing_but_a_tail_begins_anew() -> None:
    machine = Machine(shards=1)
    machine.disk.kill()
    machine.disk.write_file(machine.path(), machine.disk.read_file(machine.path())[:40])
    machine.open()
    assert machine.state == {}
    assert machine.journal.recovered.cuts == (None,)
    machine.commit((0, b"k", b"v"))
    machine.journal.close()
    machine.open()
    assert machine.state == {(0, 0, b"k"): b"v"}


def test_a_cut_is_durable_before_anything_new_is_written() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER)
    machine.write((0, b"kept", b""))
    machine.write((0, b"torn", bytes(100)))
    size = len(machine.disk.read_file(machine.path())) - 1
    machine.disk.kill()
    cut_file(machine, 0, size)
    meta = machine.journal.meta
    loader.cut_tails(machine.disk, FOLDER, meta, plan(machine))
    machine.disk.crash("lose_all")
    assert plan(machine).tail_bytes == 0
    assert plan(machine).lsns == (1,)


def test_what_was_only_in_memory_is_made_durable_before_it_counts() -> None:
    machine = Machine(policy=FsyncPolicy.NEVER)
    written = [machine.write((number % 2, b"k%d" % number, bytes(500))) for number in range(10)]
    machine.disk.kill()
    machine.open()
    assert machine.replayed == written
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.replayed == written


def test_recovery_can_be_cut_short_anywhere_and_leads_to_the_same_state() -> None:
    def prepared(seed: int) -> Machine:
        machine = Machine(seed=seed, policy=FsyncPolicy.NEVER, frames_per_segment=1)
        for number in range(16):
            machine.write((number % 2, b"k%d" % number, bytes(200)))
        machine.disk.crash("keep_all")
        segment = machine.segments(1)[1]
        cut_file(machine, 1, 300, segment)
        return machine

    undisturbed = prepared(0)
    before = undisturbed.disk.operations
    undisturbed.open()
    expected = undisturbed.state
    for crash_at in range(1, undisturbed.disk.operations - before + 1):
        machine = prepared(crash_at)
        machine.disk.crash_after(crash_at)
        with pytest.raises(SimulatedCrash):
            machine.open()
        machine.disk.crash()
        machine.open()
        assert machine.state == expected


# --- refusing ---------------------------------------------------------------------------------------------------


def test_rot_below_what_was_synced_is_refused_and_names_the_place_and_the_way_out() -> None:
    machine = Machine(shards=2)
    machine.fill(30)
    machine.disk.kill()
    machine.disk.flip_bit(machine.path(), 8 * (2 * FRAME_BYTES + 100))
    before = shard_files(machine)
    with pytest.raises(Corruption, match=r"was fsynced, but only .* is whole.*`tidelog journal repair` cuts") as caught:
        machine.open()
    assert (caught.value.path, caught.value.frame) == (machine.path(), 2)
    assert caught.value.position is not None
    assert 2 * FRAME_BYTES <= caught.value.position < 3 * FRAME_BYTES
    assert shard_files(machine) == before, "nothing is cut"
    assert machine.disk.open_paths == []


@pytest.mark.parametrize("shard", [0, 1])
def test_a_synced_file_that_is_gone_is_refused(shard: int) -> None:
    machine = Machine(shards=2)
    machine.fill(3, shard=0)
    machine.fill(3, shard=1)
    machine.fill(3, shard=0)
    machine.disk.kill()
    machine.disk.remove(machine.path(shard))
    with pytest.raises(Corruption, match="was fsynced, but only"):
        machine.open()


def test_the_same_damage_above_what_was_synced_is_a_tail() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER)
    written = [machine.write((0, b"k%d" % number, bytes(200))) for number in range(30)]
    machine.disk.kill()
    machine.disk.flip_bit(machine.path(), 8 * (2 * FRAME_BYTES + 100))
    machine.open()
    assert machine.replayed == written[: len(machine.replayed)]
    assert 5 < len(machine.replayed) < 12


def test_a_journal_that_begins_behind_every_snapshot_is_refused() -> None:
    machine = Machine(shards=1)
    machine.fill(60)
    machine.journal.close()
    machine.disk.remove(machine.path())
    first = machine.segments()[0]
    with pytest.raises(Corruption, match=f"the journal begins at lsn {first}, but no snapshot reaches further than 0"):
        machine.open()


def test_a_journal_that_ends_before_the_snapshot_is_refused() -> None:
    machine = Machine(shards=1)
    machine.fill(60)
    machine.snapshot({})
    machine.disk.kill()
    for segment in machine.segments()[1:]:
        machine.disk.remove(machine.path(0, segment))
    with pytest.raises(Corruption):
        machine.open()


def test_a_snapshot_of_another_number_of_shards_is_refused() -> None:
    machine, other = Machine(shards=2), Machine(shards=1)
    machine.commit((0, b"k", b"v"))
    other.commit((0, b"k", b"v"))
    name = other.snapshot({}).path.rpartition("/")[2]
    machine.disk.kill()
    target = f"{FOLDER}/snapshots/{name}"
    machine.disk.make_folder(target)
    machine.disk.write_file(f"{target}/meta.json", other.disk.read_file(f"{target}/meta.json"))
    with pytest.raises(Corruption, match="it has 1 shards, the journal 2") as caught:
        machine.open()
    assert caught.value.path == target


def test_an_unreadable_disk_is_no_reason_to_cut() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER)
    machine.write((0, b"k", b"v"))
    machine.disk.kill()
    before = shard_files(machine)
    machine.disk.fail("read", errno.EIO, path_contains="journal-")
    with pytest.raises(OSError, match="EIO"):
        machine.open()
    assert shard_files(machine) == before
    machine.open()
    assert machine.state == {(0, 0, b"k"): b"v"}


# --- replaying --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_state_after_any_number_of_lives_is_that_of_a_naive_store(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(seed=seed, shards=rng.choice([1, 2, 3]), frames_per_segment=rng.choice([2, 4, 8]))
    model: State = {}
    shards = machine.settings.shard_count
    for _ in range(6):
        for _ in range(rng.randrange(40)):
            puts = [
                (rng.randrange(shards), b"k%d" % rng.randrange(20), rng.randbytes(rng.choice([0, 5, 240, 900])), db)
                for db in rng.choices([0, 0, 3], k=rng.choice([1, 1, 3]))
            ]
            machine.commit(*puts)
            model.update({(shard, db, key): value for shard, key, value, db in puts})
        if rng.random() < 0.4:
            machine.snapshot(model)
        match rng.choice(["close", "kill", "crash"]):
            case "close":
                machine.journal.close()
            case "kill":
                machine.disk.kill()
            case _:
                machine.disk.crash()
        machine.open()
        assert machine.state == model


def test_only_what_follows_the_snapshot_is_replayed_from_the_journal() -> None:
    machine = Machine(shards=2)
    machine.fill(40)
    state: State = {(0, 0, b"from the snapshot"): b"1"}
    point = machine.snapshot(state).point
    later = machine.commit((1, b"later", b"2"))
    machine.disk.kill()
    machine.open()
    assert machine.replayed == [point.ts, later]
    assert machine.state == {**state, (1, 0, b"later"): b"2"}


def test_with_a_snapshot_the_journal_before_it_is_not_read() -> None:
    machine = Machine(shards=1)
    machine.fill(200)
    machine.snapshot({})
    machine.commit((0, b"k", b"v"))
    machine.disk.kill()
    before = dict(machine.disk.bytes_read_by_path)
    machine.open()
    read = {path: count - before.get(path, 0) for path, count in machine.disk.bytes_read_by_path.items()}
    assert read.get(machine.path(), 0) == 0
    assert sum(read.values()) < 12 * FRAME_BYTES


def test_epochs_survive_snapshots_and_erased_segments() -> None:
    machine = Machine(shards=2)
    for _ in range(4):
        machine.fill(3)
        machine.disk.kill()
        machine.open()
    machine.snapshot(machine.state)
    machine.disk.kill()
    machine.open()
    assert [epoch.id for epoch in machine.journal.epochs] == [1, 2, 3, 4, 5, 6]
    assert [epoch.lsns[0] for epoch in machine.journal.epochs] == [0, 3, 6, 9, 12, 12]
    assert list_snapshots(machine.disk, FOLDER)


def test_a_writer_goes_on_with_the_database_that_was_selected() -> None:
    machine = Machine(shards=1)
    machine.commit((0, b"k", b"1", 7))
    machine.disk.kill()
    machine.open()
    machine.commit((0, b"k", b"2", 7))
    machine.commit((0, b"k", b"3", 0))
    machine.disk.kill()
    machine.open()
    assert machine.state == {(0, 7, b"k"): b"2", (0, 0, b"k"): b"3"}


def test_a_new_whale_does_not_overwrite_an_old_one() -> None:
    machine = Machine(shards=1)
    machine.commit((0, b"first", b"1" * 2000))
    machine.disk.kill()
    machine.open()
    machine.commit((0, b"second", b"2" * 2000))
    machine.disk.kill()
    machine.open()
    assert machine.state == {(0, 0, b"first"): b"1" * 2000, (0, 0, b"second"): b"2" * 2000}


def test_a_sidecar_never_outlives_the_frames_that_it_speaks_of() -> None:
    """A power cut may take the journal's tail and leave the sidecar: it must not be believed about what comes next."""
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER)
    for number in range(12):
        machine.write((0, b"lost%d" % number, bytes(200)))
    machine.journal.make_sidecars(TABLE, 100)
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.state == {}
    for number in range(12):
        machine.commit((0, b"new%d" % number, bytes(200)))
    machine.journal.make_sidecars(TABLE, 100)
    found = Sidecars(machine.disk, machine.source(), TABLE).summaries(Lsn(0), 2)
    assert found[0].may_hold_key(b"new0")
    assert found[0].smallest == b"new0"


def test_the_last_ts_is_that_of_the_journal_or_the_snapshot_whichever_is_later() -> None:
    machine = Machine(shards=1)
    ts = machine.commit((0, b"k", b"v"))
    machine.snapshot({})
    assert plan(machine).last_ts == ts
    later = machine.commit((0, b"k", b"v"))
    assert plan(machine).last_ts == later > Ts(0)
