"""One server in the world of shippers: its disk, its store and its shipper."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.recovery import require
from tests.store.changes import change, run
from tests.store.changes import state as keys_of
from tidelog import limits
from tidelog.ids import ShardId, Ts
from tidelog.journal.node_files import NodeFiles
from tidelog.shipping.block_cache import BlockCache
from tidelog.shipping.dropping import drop_file, is_listed_beyond, may_drop
from tidelog.shipping.hydration import Hydration
from tidelog.shipping.point import point_of
from tidelog.shipping.remote_blocks import RemoteBlocks
from tidelog.shipping.remote_file import RemoteNodeFile, settle_remote_files
from tidelog.shipping.shipper import Shipper
from tidelog.shipping.tiered_disk import TieredDisk
from tidelog.store.store import Store
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.library import LibDel, LibLoad

if TYPE_CHECKING:
    from tests.simulation.shipping_world import ShippingWorld

FOLDER: Final = "/data"
HOUR_US: Final = 3600 * 1_000_000
_HOLDER: Final = "shipping"
URL: Final = "/objects"
Branch = list[tuple[Ts, Any]]
"""The states of one history, each with the transaction that it follows."""


def state(store: Store) -> dict[Any, Any]:
    """All that a store has: every key of every database, and the libraries of functions."""
    return keys_of(store) | {("library", name): code for name, code in store.libraries.codes.items()}


class ShippingServer:
    """One server with its disk, its store and its shipper."""

    def __init__(self, world: ShippingWorld, disk: SimulatedDisk, branch: Branch) -> None:
        self.world = world
        self.disk = disk
        self.branch = branch
        self.store: Store
        self.shipper: Shipper
        self.open()

    def open(self) -> None:
        """Start, as after a stop of any kind."""
        world = self.world
        looker = world.sealed(world.bucket.client("reads of history"))
        cache = BlockCache(self.disk, f"{FOLDER}/history-cache", limits.HISTORY_CACHE_BYTES_MIN, nullcontext())
        blocks = RemoteBlocks(lambda _url, _is_sealed: looker, cache, world.clock, nullcontext())
        self.tiered = TieredDisk(self.disk, blocks, FOLDER)
        self.store = Store.open(
            self.tiered, FOLDER, world.clock, world.settings, world.new_epoch_id, Random(world.rng.getrandbits(60))
        )
        settle_remote_files(self.disk, FOLDER, world.settings.shard_count)
        for file in self.node_files:
            file.is_remote = self.tiered.is_remote(file.path)
        found, last_ts = state(self.store), self.journal.writer.written_ts
        kept = [each for each in self.branch if each[0] <= last_ts]
        require(found == (kept[-1][1] if kept else {}), "a start does not show what was there at", last_ts)
        if len(kept) < len(self.branch):
            world.coverage["tail_lost"] += 1
            self.branch = kept  # another history from here on; who has the old list keeps it
        self.objects = world.new_client(self)
        self.sealed = world.sealed(self.objects)
        self.shipper = Shipper(self.tiered, FOLDER, self.journal.meta, self.sealed, world.clock, keep_us=world.keep_us)
        self.cool()

    @property
    def journal(self) -> Any:
        return self.store.journal

    def change(self) -> None:
        rng = self.world.rng
        if rng.random() < 0.1:  # a whale
            run(self.store, [b"SET", b"whale%d" % rng.randrange(3), rng.randbytes(rng.randrange(1000, 5000))])
        elif rng.random() < 0.05:
            transaction = self.store.begin()
            name = b"library%d" % rng.randrange(3)
            is_load = rng.random() < 0.7
            transaction.run([LibLoad(name, b"-- %d" % rng.randrange(1000)) if is_load else LibDel([name])])
            self.store.commit(transaction)
        else:
            change(self.store, rng)
        self.note()  # before it is written: a crash in the middle of that may keep it
        self.journal.writer.write()

    def note(self) -> None:
        ts = self.journal.writer.last_ts
        if ts > (self.branch[-1][0] if self.branch else 0):
            self.branch.append((ts, state(self.store)))

    def cool(self) -> None:
        cooling = self.store.cooling
        assert cooling is not None
        while (job := cooling.take()) is not None:
            job.run()
            cooling.finish(job)

    @property
    def node_files(self) -> NodeFiles:
        assert self.store.cooling is not None
        return self.store.cooling.files

    def end_node_file(self) -> None:
        """Let the next nodes begin a new file, as those are that have grown enough."""
        for shard in range(self.world.settings.shard_count):
            if shard in self.node_files._open:
                self.node_files._end(ShardId(shard))

    def drop(self) -> None:
        """What `ServerHistory` does: let files go that are old, and are shipped."""
        world = self.world
        found = self.shipper.copied_files(Ts(max(0, world.clock.wall_us() - world.local_us)))
        old = {} if found is None else found.old
        for file in self.node_files:
            shipped = old.get(file.path.removeprefix(f"{FOLDER}/"))
            if shipped is None or not may_drop(file, shipped):
                continue
            if is_listed_beyond(self.disk, FOLDER, file.id, shipped.size):
                continue
            remote = RemoteNodeFile(URL, False, self.journal.meta.database_id, shipped.size, shipped.extents)
            self.tiered.forget(file.path)
            drop_file(self.disk, file.path, remote, self.sealed)
            file.is_remote = True
            file.size_bytes = remote.size
            world.coverage["dropped"] += 1

    def hydrate(self, chance: float) -> None:
        for file in self.node_files:
            if file.is_remote and self.world.rng.random() < chance:
                hydration = Hydration(self.disk, file.path, self.tiered.describe(file.path), self.sealed)
                while not hydration.is_whole:
                    hydration.step()
                self.tiered.forget(file.path)
                file.is_remote = False
                self.world.coverage["came_back"] += 1

    def remove_unneeded(self) -> None:
        assert self.store.cooling is not None
        self.store.cooling.remove_unneeded()

    def save(self) -> None:
        self.cool()
        self.store.save()

    def erase(self) -> None:
        self.journal.erase()

    # --- shipping, as the server does it ------------------------------------------------------------------------

    def ship(self) -> None:
        """A step of what `ServerShipping` does."""
        shipper, journal = self.shipper, self.journal
        for pinned in shipper.gone:
            pinned.release()
        shipper.gone.clear()
        if shipper.lease < 0:
            journal.writer.write()
            require(journal.writer.note_blob_extents(), "a large value is being written")
            journal.holders.hold(_HOLDER, journal.erased_ts, self.world.clock.wall_us())
            journal.writer.sync()
            shipper.take_over(point_of(journal))
            self.world.coverage["taken_over"] += 1
        elif not shipper.is_begun:
            pinned = journal.pin_snapshot(shipper.wants_snapshot_until)
            try:
                shipper.begin(pinned)
            finally:
                if pinned is not None and shipper.snapshot is not pinned:
                    pinned.release()
        else:
            newest = journal.newest_snapshot
            if newest is not None and shipper.wants(newest.point):
                pinned = journal.pin_snapshot()
                if pinned is not None and shipper.wants(pinned.snapshot.point):
                    shipper.give(pinned)
                elif pinned is not None:
                    pinned.release()
            shipper.ship(point_of(journal))
            journal.holders.hold(_HOLDER, shipper.shipped_ts, self.world.clock.wall_us())

    def finish_work(self, steps_max: int) -> None:
        for _ in range(steps_max):
            if self.shipper.lease < 0 or not self.shipper.work():
                break
        for pinned in self.shipper.gone:
            pinned.release()
        self.shipper.gone.clear()

    def work(self) -> None:
        for _ in range(self.world.rng.randrange(1, 12)):
            if self.shipper.lease < 0 or not self.shipper.work():
                break
