"""Whether a position lies on a history: exactly where it does, and where two histories part if it does not."""

from __future__ import annotations

from random import Random

import pytest

from tests.journal.machine import FOLDER, Machine
from tests.replication.receiving import positions
from tests.replication.test_history import erasing, work
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Journal
from tidelog.replication.message import HistoryPosition, ShardEnd, newest_epochs
from tidelog.replication.shared_history import (
    Ahead,
    Diverged,
    Erased,
    HistoryComparison,
    Shared,
    Unrelated,
    compare,
    own_position,
)
from tidelog.store.restore import restore
from tidelog.store.store import Store


def nothing(shards: int) -> HistoryPosition:
    return HistoryPosition(Ts(0), (ShardEnd(Lsn(0), Ts(0)),) * shards)


def begin_epoch(machine: Machine, epoch_id: int) -> Epoch:
    """As a start that was not clean does, or a promotion."""
    writer = machine.journal.writer
    epoch = Epoch(epoch_id, writer.visible.lsns, writer.visible.ts)
    machine.journal.epochs.append(epoch)
    writer.append_epoch(epoch, Ts(writer.visible.ts or 1))
    writer.write()
    writer.sync()
    return epoch


def asked_of(journal: Journal, other: Machine) -> HistoryComparison:
    """What a leader says to a server that is what another is now."""
    return compare(journal, other.journal.epochs, own_position(other.journal))


def twins(shards: int, transactions: int = 5) -> tuple[Machine, Machine]:
    """Two servers with the same history: each was written as the other."""
    machines = Machine(shards=shards), Machine(shards=shards)
    for machine in machines:
        for number in range(transactions):
            machine.commit((number % shards, b"k%d" % number, bytes(100)))
    return machines


# --- positions that are on it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_every_place_between_two_transactions_is_found_and_no_other(shards: int, seed: int) -> None:
    rng = Random(seed)
    machine = Machine(shards=shards, ring_bytes_max=rng.choice([0, 10**6]))
    work(machine, rng, 30)
    journal, epochs = machine.journal, machine.journal.epochs
    places = positions(journal)
    for place in places:
        assert compare(journal, epochs, place) == Shared(1)
        unknown = place._replace(shards=tuple(end._replace(ts=None) for end in place.shards))
        assert compare(journal, epochs, unknown) == Shared(1), "as after a snapshot"
        for shard in range(shards):
            lsn, ts = place.shards[shard]
            for wrong in (ShardEnd(Lsn(lsn + 1), ts), ShardEnd(lsn, Ts((ts or 0) + 1))):
                ends = list(place.shards)
                ends[shard] = wrong
                assert isinstance(compare(journal, epochs, place._replace(shards=tuple(ends))), Diverged | Unrelated)
        assert not place.ts or isinstance(compare(journal, epochs, place._replace(ts=Ts(0))), Diverged | Unrelated)
    assert own_position(journal) == places[-1]


def test_a_server_that_knows_nothing_begins_at_the_beginning() -> None:
    machine = Machine(shards=2)
    assert compare(machine.journal, (), nothing(2)) == Shared(0)
    machine.fill(3)
    assert compare(machine.journal, (), nothing(2)) == Shared(0)


def test_epochs_that_the_other_does_not_know_are_named() -> None:
    machine = Machine(shards=2)
    known, place = list(machine.journal.epochs), own_position(machine.journal)
    for number in range(3):
        begin_epoch(machine, 70 + number)
        if number == 1:
            machine.fill(3)
            assert compare(machine.journal, known, place) == Shared(1)
            known, place = list(machine.journal.epochs), own_position(machine.journal)
    assert compare(machine.journal, known, place) == Shared(3)
    assert compare(machine.journal, machine.journal.epochs, own_position(machine.journal)) == Shared(4)


def test_old_epochs_may_be_missing_on_either_side() -> None:
    machine = Machine(shards=1)
    for number in range(5):
        machine.fill(2)
        begin_epoch(machine, 70 + number)
    place = own_position(machine.journal)
    assert compare(machine.journal, machine.journal.epochs[-2:], place) == Shared(6)
    known = list(machine.journal.epochs)
    del machine.journal.epochs[:3]
    assert compare(machine.journal, known, place) == Shared(3)
    assert isinstance(compare(machine.journal, known[:2], place), Unrelated)


def test_only_as_many_epochs_are_told_as_fit() -> None:
    assert newest_epochs([]) == ()
    epochs = [Epoch(number, (Lsn(0),) * 256, Ts(0)) for number in range(100)]
    found = newest_epochs(epochs)
    assert 50 < len(found) < 70
    assert found[-1] == epochs[-1]
    assert len(newest_epochs([Epoch(number, (Lsn(0),), Ts(0)) for number in range(3000)])) == 1024


@pytest.mark.parametrize("shards", [1, 2])
def test_a_position_is_told_after_a_restart_and_from_a_snapshot(shards: int) -> None:
    machine = Machine(shards=shards)
    for number in range(10):
        machine.commit((number % shards, b"k%d" % number, bytes(100)))
    before = own_position(machine.journal)
    machine.journal.close()
    machine.open()
    assert own_position(machine.journal) == before
    assert before == positions(machine.journal)[-1]


# --- erased -----------------------------------------------------------------------------------------------------


def test_a_position_whose_future_was_erased_is_told_so() -> None:
    machine = erasing(2)
    for number in range(60):
        machine.commit((number % 2, b"k%d" % number, bytes(200)))
    places = positions(machine.journal)
    machine.snapshot({})
    machine.fill(1)
    assert machine.journal.erase()
    erased = machine.journal.erased_ts
    found = [compare(machine.journal, machine.journal.epochs, place) for place in places]
    assert found == [Erased(erased) if place.ts < erased else Shared(1) for place in places]
    assert {type(each) for each in found} == {Erased, Shared}


def test_what_is_erased_while_a_position_is_looked_for_has_not_diverged() -> None:
    """Another thread removes segments: the position would seem to have other lsns."""
    machine = erasing(1)
    machine.fill(30)
    place = positions(machine.journal)[3]
    machine.snapshot({})
    machine.fill(1)

    class ErasedMeanwhile(Journal):
        """Erases when somebody begins to look."""

        def records_after(self, ts: Ts) -> list[int]:
            assert self.erase()
            return super().records_after(ts)

    machine.journal.__class__ = ErasedMeanwhile
    assert compare(machine.journal, machine.journal.epochs, place) == Erased(machine.journal.erased_ts)


# --- other histories --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_a_former_leader_is_told_where_the_new_one_took_over(shards: int) -> None:
    new, old = twins(shards)
    common = own_position(new.journal)
    begin_epoch(new, 77)  # it was promoted
    new.commit((0, b"new", b""))
    assert asked_of(new.journal, old) == Shared(1), "it had written nothing since"
    old.commit((0, b"lost", b""))
    assert asked_of(new.journal, old) == Diverged(common.ts, 1, is_newer=False)
    begin_epoch(old, 88)  # it has crashed and come back
    assert asked_of(new.journal, old) == Diverged(common.ts, 1, is_newer=False)
    old.commit((0, b"lost too", b""))
    assert asked_of(new.journal, old) == Diverged(common.ts, 1, is_newer=False)


def test_a_former_leader_without_more_data_only_has_an_epoch_to_forget() -> None:
    new, old = twins(2)
    begin_epoch(old, 88)
    begin_epoch(new, 77)
    new.commit((0, b"new", b""))
    place = own_position(old.journal)
    assert asked_of(new.journal, old) == Diverged(place.ts, 1, is_newer=False)
    assert compare(new.journal, old.journal.epochs[:1], place) == Shared(1)


def test_a_former_leader_that_was_behind_parts_where_its_own_epoch_began() -> None:
    new, old = twins(1)
    place = own_position(old.journal)
    new.commit((0, b"confirmed", b""))
    begin_epoch(old, 88)
    old.commit((0, b"lost", b""))
    begin_epoch(new, 77)
    assert asked_of(new.journal, old) == Diverged(place.ts, 1, is_newer=False)


def test_a_leader_learns_that_another_was_made_leader() -> None:
    new, old = twins(2)
    common = own_position(new.journal)
    begin_epoch(new, 77)
    assert asked_of(old.journal, new) == Diverged(common.ts, 1, is_newer=True)
    old.commit((1, b"lost", b""))
    new.commit((0, b"new", b""))
    assert asked_of(old.journal, new) == Diverged(common.ts, 1, is_newer=True)


def test_a_follower_that_is_ahead_in_the_same_epoch_is_asked_for_its_tail() -> None:
    """The leader lost its page cache: it has begun no epoch yet."""
    leader, follower = twins(2)
    follower.commit((0, b"more", b""))
    follower.commit((1, b"more", b""))
    assert asked_of(leader.journal, follower) == Ahead()
    assert asked_of(follower.journal, leader) == Shared(1)
    begin_epoch(leader, 77)
    assert asked_of(leader.journal, follower) == Diverged(own_position(leader.journal).ts, 1, is_newer=False)


def test_what_is_not_visible_yet_is_not_known() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.ALWAYS)
    machine.fill(3)
    machine.write((0, b"k", b""))
    written = machine.journal.writer.written
    place = HistoryPosition(written.ts, (ShardEnd(written.lsns[0], written.ts),))
    assert compare(machine.journal, machine.journal.epochs, place) == Ahead()
    machine.journal.writer.sync()
    assert compare(machine.journal, machine.journal.epochs, place) == Shared(1)


def test_two_copies_of_a_directory_that_went_on_by_themselves_part_where_their_epoch_began() -> None:
    one, other = twins(2, transactions=0)
    for machine, key in ((one, b"a"), (other, b"b")):
        machine.clock.advance(10 if machine is one else 20)
        machine.fill(4, prefix=key)
    assert asked_of(other.journal, one) == Diverged(Ts(0), 1, is_newer=False)
    assert asked_of(one.journal, other) == Ahead(), "which the other does not confirm"


@pytest.mark.parametrize(
    ("epochs", "place", "problem"),
    [
        ((), HistoryPosition(Ts(5), (ShardEnd(Lsn(1), Ts(5)),)), "knows no epoch"),
        ((Epoch(99, (Lsn(0),), Ts(0)),), nothing(1), "no epoch is known both"),
        ((Epoch(1, (Lsn(7),), Ts(0)),), nothing(1), "begins at lsns"),
        ((Epoch(1, (Lsn(0),), Ts(0)),), nothing(2), "it has 2 shards, and there are 1 here"),
        ((Epoch(1, (Lsn(0), Lsn(0)), Ts(0)),), nothing(1), "begins at lsns"),
        ((Epoch(77, (Lsn(3),), Ts(0)),), nothing(1), "begins at lsns"),
    ],
)
def test_what_cannot_be_compared_is_unrelated(epochs: tuple[Epoch, ...], place: HistoryPosition, problem: str) -> None:
    machine = Machine(shards=1)
    machine.fill(3)
    begin_epoch(machine, 77)
    found = compare(machine.journal, epochs, place)
    assert isinstance(found, Unrelated)
    assert problem in found.problem


def test_lsns_that_contradict_the_ts_are_unrelated() -> None:
    machine = Machine(shards=1)
    times = machine.fill(3)
    epoch = begin_epoch(machine, 77)
    first = machine.journal.epochs[0]
    late = HistoryPosition(times[1], (ShardEnd(Lsn(9), None),))
    assert compare(machine.journal, [first], late) == Unrelated(
        "its lsns lie behind the beginning of epoch 77, and its ts does not"
    )
    early = HistoryPosition(times[1], (ShardEnd(Lsn(2), None),))
    assert compare(machine.journal, [first, epoch], early) == Unrelated(
        "it knows epoch 77 and has less than all before it"
    )


def restored(machine: Machine, until: Ts | None = None) -> Journal:
    """The directory of a machine, restored into another and opened by a server."""
    store = Store(machine.clock, Random(1))
    machine.journal.close()
    restore(machine.disk, store, FOLDER, "/restored", until=until)
    return Journal.open(
        machine.disk, "/restored", machine.clock, machine.settings, apply=lambda _, __: None, new_epoch_id=lambda: 88
    )


def test_a_directory_that_was_restored_shares_no_lsns_with_what_it_was() -> None:
    """Its epochs come along, and its lsns begin anew."""
    machine = Machine(shards=1)
    machine.fill(5)
    begin_epoch(machine, 77)
    machine.fill(5)
    epochs, place = list(machine.journal.epochs), own_position(machine.journal)
    found = compare(restored(machine), epochs, place)
    assert isinstance(found, Unrelated)
    assert "begins at lsns" in found.problem


def test_a_directory_that_was_restored_to_an_earlier_moment_shares_nothing_in_the_end() -> None:
    """Who goes back to that moment comes with lsns that are not those of the new history."""
    machine = Machine(shards=1)
    times = machine.fill(5)
    epochs, places = list(machine.journal.epochs), positions(machine.journal)
    journal = restored(machine, times[2])
    assert compare(journal, epochs, places[-1]) == Diverged(times[2], 1, is_newer=False)
    assert isinstance(compare(journal, epochs, places[3]), Unrelated)


def test_a_server_that_was_filled_from_what_was_restored_goes_on_with_it() -> None:
    machine = Machine(shards=2)
    machine.fill(5)
    journal = restored(machine)
    snapshot = journal.newest_snapshot
    assert snapshot is not None
    found: list[Epoch] = []
    snapshot.read(machine.disk, lambda _, __: None, found.append)
    place = HistoryPosition(snapshot.point.ts, tuple(ShardEnd(lsn, None) for lsn in snapshot.point.lsns))
    assert compare(journal, found, place) == Shared(1)
    assert journal.epochs[1].id == 88
