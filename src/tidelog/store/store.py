"""The store: databases, the effects that change them, and the journal that remembers.

    transaction   what a command reads and writes through
    commit        its records go to the journal under one ts
    replay        the journal's records, applied by the same effects
    received      transactions of a leader: journaled, and applied as in a replay

One thread. Replies may leave once `commit` and the journal's `write` have returned (`always`: once it is durable).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelog import limits
from tidelog.errors import ApplyFailed
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import Visible
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.layout import slots_in
from tidelog.journal.merge import JournalTransaction, unreadable
from tidelog.journal.operation import DELRANGE, FLUSHDB, START, VAL, decode_pairs, decode_start
from tidelog.journal.reader import Part, Record
from tidelog.journal.replacement import finish_replacement
from tidelog.journal.staging import StagedBlob
from tidelog.ports import Clock, Disk, Random
from tidelog.store.capture import Capture
from tidelog.store.cooling import StoreCooling
from tidelog.store.hold_changes import change_holds, take_over_holders
from tidelog.store.holds import NamedHolds
from tidelog.store.keyspace import Database
from tidelog.store.large import NONE_LARGE, Joined, LargePayloads
from tidelog.store.libraries import Libraries
from tidelog.store.range_removal import ALL_SLOTS, RangeRemoval
from tidelog.store.scan_orders import ScanOrders
from tidelog.store.shard_records import FIRST_SHARD, Encoded, encode_by_shard
from tidelog.store.slots import shards_by_slot, slot_of
from tidelog.store.string_loader import StringLoader
from tidelog.store.transaction import Transaction
from tidelog.store.type_table import TypeTable, value_types
from tidelog.store.uses import KeyUses
from tidelog.store.watch import Watcher, Watches
from tidelog.types.effect import Effect
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.key import DelRange, decode_range


class Store:
    """All state of a server."""

    def __init__(
        self, clock: Clock, random: Random, types: TypeTable | None = None, bounds: EncodingBounds | None = None
    ) -> None:
        self._clock = clock
        self.types = types if types is not None else TypeTable(value_types())
        """The types that its values may have."""
        self.random = random
        """Draws what commands such as SPOP choose."""
        self.scan_orders = ScanOrders()
        self.signals: dict[tuple[int, bytes], bool] = {}
        """Database and key of what has changed while somebody waited for it, and whether it was made anew; the taker
        empties it. In the order of their first change, but those made anew in the order in which they first were."""
        self.uses = KeyUses(clock.monotonic_us())
        """When keys were last used."""
        self.libraries = Libraries()
        """Functions (FUNCTION LOAD)."""
        self.holds = NamedHolds()
        """Whom the journal is kept for, by name."""
        self.bounds = bounds if bounds is not None else EncodingBounds()
        """Up to where OBJECT ENCODING says that values are small."""
        shared = self.signals, self.uses, self.libraries, self.holds, self.bounds
        self._databases = [Database(number, *shared) for number in range(limits.DATABASES)]
        for each in self._databases:
            each.all = self._databases
        self.effect_of = self.types.effect_of
        """Class of operations -> what they do. Hot: kept at hand."""
        self._by_opcode = self.types.effect_by_opcode
        self._loader = StringLoader(self._databases)
        """Strings that recovery has read; empty once the store is open."""
        self._watches = Watches()
        self._capture: Capture | None = None
        self._removals: list[RangeRemoval] = []
        """Ranges that are being looked for step by step."""
        self.expired_count, self.keeps_expired = 0, False
        """Keys that were removed because they had expired; whether a read leaves them, as writes are held back."""
        self.staged: dict[int, StagedBlob] = {}
        """Large values of the command that runs now which lie in the blob file already, by their identity ..."""
        self.joined: list[Joined] = []
        """... and those of them that it makes itself."""
        self._received: Mapping[tuple[int, int], Any] = NONE_LARGE.operations
        """Of the transaction that is being applied: operations that were decoded before."""
        self._unwritten: tuple[Visible, frozenset[bytes] | None] | None = None
        """What `unwritten_keys` said, and what was written then: until more is, it stays so."""
        self.on_range: Callable[[Ts, int, DelRange], None] | None = None
        """Told of a range that has gone from a database, and of its ts: for initial scans of feeds."""
        self.cooling: StoreCooling | None = None
        """None: all nodes of streams stay in memory."""
        self.journal: Journal
        self.announced_ts = Ts(0)
        """On a follower: no transaction at or below it will come, as its leader announced."""
        self.slots: Sequence[tuple[int, int]] = ()
        """For every shard, its first and last slot."""
        self.owners: list[ShardId] = []
        """For every slot, its shard."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        clock: Clock,
        settings: Settings,
        new_epoch_id: Callable[[], int],
        random: Random,
        types: TypeTable | None = None,
        *,
        leads: bool = True,
        bounds: EncodingBounds | None = None,
        database_id: str = "",
    ) -> Store:
        """Open a data directory and load what it holds; `leads` and `database_id` as for `Journal.open`."""
        finish_replacement(disk, folder)
        store = cls(clock, random, types, bounds)
        store.slots = slots_in(disk, folder, settings.shard_count)
        store.owners = shards_by_slot(store.slots)
        store.cooling = StoreCooling.open(disk, folder, random, store.databases, store.owners)
        store.journal = Journal.open(
            disk,
            folder,
            clock,
            settings,
            apply=store.cooling.spilling(store.replay),
            load_strings=store._loader.add,
            new_epoch_id=new_epoch_id,
            is_known=store.types.operations.is_known, leads=leads, database_id=database_id,
        )  # fmt: skip
        store._loader.flush()
        store._connect_holds(disk, folder)
        store.cooling.begin(store.journal)
        return store

    def _connect_holds(self, disk: Disk, folder: str) -> None:
        """Let the journal keep what named holders need; whoever leads lets them go, and takes over a file of them."""
        journal = self.journal
        journal.holders.set_named(self.holds)
        journal.on_lapse = lambda lapsed: change_holds(self, lapsed)
        journal.on_lead = lambda: take_over_holders(self, disk, folder)
        if journal.leads:
            journal.on_lead()

    @property
    def is_follower(self) -> bool:
        """Transactions are received, and none are made: keys that have expired are read as missing, and stay."""
        return not self.journal.leads

    @is_follower.setter
    def is_follower(self, value: bool) -> None:
        self.journal.leads = not value
        if not value and self.journal.on_lead is not None:
            self.journal.on_lead()

    @property
    def refusal(self) -> Exception | None:
        """Why no write is taken at the moment; None: they are. Hot."""
        return self.journal.writer.refusal

    def unwritten_keys(self) -> frozenset[bytes] | None:
        """The keys whose last changes there is no space for, in whatever database; None: it may be any."""
        written = self.journal.writer.written
        if self._unwritten is None or self._unwritten[0] is not written:
            self._unwritten = written, self.journal.writer.unwritten_keys(self.types.operations)
        return self._unwritten[1]

    # --- watching -----------------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher, database: int, key: bytes) -> None:
        self._watches.add(watcher, database, key)
        self._set_observers()

    def unwatch(self, watcher: Watcher) -> None:
        if watcher.watched or watcher.is_dirty:
            self._watches.forget(watcher)
            self._set_observers()

    def begin_removal(self, removal: RangeRemoval) -> None:
        """A database is being looked at step by step: let it forget what changes."""
        self._removals.append(removal)
        self._set_observers()

    def end_removal(self, removal: RangeRemoval) -> None:
        """Fine if it never began."""
        if removal in self._removals:
            self._removals.remove(removal)
            self._set_observers()

    def _set_observers(self) -> None:
        """Databases tell of changes only while someone wants to know."""
        wanted: Callable[[Database, bytes | None], None] | None = None
        if self._removals:
            wanted = self._observe
        elif self._capture is not None:
            wanted = self._observe if self._watches else self._capture.observe
        elif self._watches:
            wanted = self._watches.touch
        for database in self._databases:
            database.observer = wanted
            database.on_range = self._watches.touch_range if self._watches else None
            database.on_replaced = None if self._capture is None else self._capture.freeze

    def _observe(self, database: Database, key: bytes | None) -> None:
        """A key is about to change; None: all of them."""
        if self._capture is not None:
            self._capture.observe(database, key)
        self._watches.touch(database, key)
        if key is not None:
            for removal in self._removals:
                if removal.database is database:
                    removal.forget(key)

    # --- snapshots ----------------------------------------------------------------------------------------------

    @property
    def is_capturing(self) -> bool:
        return self._capture is not None

    def begin_capture(self) -> Capture | None:
        """A snapshot of this moment, to be visited in slices; None if there is one of it, or one is under way."""
        if self._capture is not None:
            return None
        snapshot = self.journal.begin_snapshot()
        if snapshot is None:
            return None
        snapshot.places = self.journal.writer.written_places
        self._capture = Capture(self, snapshot)
        self._set_observers()
        return self._capture

    def end_capture(self) -> None:
        """The capture is complete or given up: keep no more old values for it."""
        self._capture = None
        self._set_observers()

    def save(self) -> None:
        """Take a snapshot here and now."""
        capture = self.begin_capture()
        if capture is None:
            return
        try:
            while not capture.is_done:
                capture.visit(limits.CAPTURE_KEYS_AT_ONCE)
            self.journal.finish_snapshot(capture.snapshot)
        except BaseException:
            capture.snapshot.discard()
            raise
        finally:
            self.end_capture()
            capture.snapshot.release()

    # --- databases ----------------------------------------------------------------------------------------------

    def database(self, number: int) -> Database:
        return self._databases[number]

    @property
    def databases(self) -> list[Database]:
        return self._databases

    # --- transactions -------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Wall time."""
        return self._clock.wall_us() // 1000

    def note_time(self) -> None:
        """Some times a second: what is used from now on is used now."""
        self.uses.set_now(self._clock.monotonic_us())

    def idle_s(self, key: bytes) -> int:
        """How long ago a key was last used."""
        return self.uses.idle_s(slot_of(key), self._clock.monotonic_us())

    def begin(self, database: int = 0) -> Transaction:
        """A transaction at this moment."""
        return Transaction(self, self._databases[database], self._clock.wall_us() // 1000)

    def commit(self, transaction: Transaction) -> Ts | None:
        """Hand its records to the journal under one ts; None if it changed nothing."""
        transaction.remove_expired()
        transaction.end_run()
        records = transaction.records
        if not records:
            return None
        ts = self.journal.hlc.next()
        self.journal.writer.append(ts, records)
        transaction.records = []
        if self.on_range is not None:
            for shard, opcode, payload, _, database, _ in records:
                self._tell_range(ts, shard, opcode, database, payload)
        return ts

    def _tell_range(self, ts: Ts, shard: ShardId, opcode: int, database: int, payload: bytes) -> None:
        if opcode == DELRANGE and shard == 0 and self.on_range is not None:  # every shard has it
            self.on_range(ts, database, decode_range(payload))

    def encode(self, effect: Effect, operation: Any) -> list[Encoded]:
        """The records of an operation: one per shard that it names keys of."""
        kind = effect.kind
        if len(self.slots) == 1:
            return [(FIRST_SHARD, kind.opcode, kind.encode(operation))]
        return encode_by_shard(kind, operation, self.owners, len(self.slots))

    def encode_staged(self, effect: Effect, operation: Any) -> tuple[ShardId, int, bytes, StagedBlob] | None:
        """The record of an operation whose payload ends with a value that was staged: shard, opcode, head and value.

        None: there is no such value, or it cannot be referred to. A staged value is for one record.
        """
        kind = effect.kind
        if kind.last is None:
            return None
        value = kind.last(operation)
        staged = self.staged.get(id(value))
        if staged is None:
            return None
        found = self.split_large(effect, operation)
        if found is None or found[0] != staged.shard:
            return None
        del self.staged[id(value)]
        return staged.shard, kind.opcode, found[1], staged

    def split_large(self, effect: Effect, operation: Any) -> tuple[ShardId, bytes] | None:
        """The shard of an operation and its payload without its last item; None: that cannot be staged."""
        kind = effect.kind
        if kind.parts is None:
            return None
        before = kind.parts(operation)[:-1]
        if sum(map(len, before)) > limits.STAGED_HEAD_BYTES_MAX:
            return None
        shard = FIRST_SHARD
        if len(self.slots) > 1:
            keys = [key for key, _ in operation.pairs] if kind.opcode == VAL else [operation.key]
            shards = {self.owners[slot_of(key)] for key in keys}
            if len(shards) > 1:
                return None
            shard = shards.pop()
        return shard, b"".join(before)

    def end_staged(self) -> None:
        """The command with large values has run."""
        self.staged.clear()
        self.joined.clear()

    # --- recovery -----------------------------------------------------------------------------------------------

    def replay(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        """Apply one transaction of the journal. Hot while loading."""
        self._loader.flush()
        for part in transaction.parts:
            for record in part.records:
                try:
                    self._replay_record(self.slots[part.shard], record, payload_of(part, record))
                except (OSError, MemoryError):
                    raise
                except Exception as error:  # whatever it is, it is told with the place
                    raise unreadable(part, record, error) from error
        if self.holds.is_touched:
            self.holds.note(transaction.ts)

    def _replay_record(self, slots: tuple[int, int], record: Record, payload: bytes) -> None:
        """`slots`: the first and the last that a record without keys is about."""
        opcode = record.opcode
        database = self._databases[record.database]
        expire_ms = record.expire_ms if record.expire_ms >= 0 else None
        if opcode == VAL:
            for key, value in decode_pairs(payload):
                database.put(key, value, expire_ms)
        elif opcode == START:
            decode_start(payload)
        elif opcode == FLUSHDB:
            self._by_opcode[FLUSHDB].kind.decode(payload, expire_ms)
            database.clear(slots)
        elif opcode == DELRANGE:
            operation = decode_range(payload)
            removal = RangeRemoval(database, operation.start, operation.end, slots)
            removal.look_at_rest()
            database.remove_range(removal)
        else:
            effect = self._by_opcode[opcode]
            effect.apply(database, effect.kind.decode(payload, expire_ms))

    # --- following ----------------------------------------------------------------------------------------------

    def apply_received(self, transaction: JournalTransaction, large: LargePayloads = NONE_LARGE) -> None:
        """Journal a transaction that was made elsewhere, and apply it by the code of recovery. Hot on a follower.

        Clients that watch or wait for its keys, a snapshot that is being made, and scans of feeds are told as they are
        of transactions that are made here. If the journal refuses it, nothing has happened. `ApplyFailed`: state and
        journal may differ, and the process must stop.
        """
        self.journal.writer.append_received(transaction, large.blobs)
        ts, parts = transaction
        self._received = large.operations
        try:
            if len(self.slots) == 1:
                for record in parts[0].records:
                    self._apply_record(ALL_SLOTS, FIRST_SHARD, record)
            else:
                self._apply_parts(parts)
        except Exception as error:
            raise ApplyFailed(f"transaction {ts} could not be applied: {type(error).__name__}") from error
        finally:
            self._received = NONE_LARGE.operations
        if self.holds.is_touched:
            self.holds.note(ts)
        if self.on_range is not None:
            for part in parts:
                for record in part.records:
                    self._tell_range(ts, part.shard, record.opcode, record.database, record.payload)

    def _apply_parts(self, parts: list[Part]) -> None:
        """Flushes come between, each once and for all shards, as where they were made.

        Shard after shard would be the same in the end, but not for a snapshot: it takes over all of a database with the
        first shard's flush, and would see what others still have to change before theirs.
        """
        places = [0] * len(parts)
        while True:
            flush: Record | None = None
            for index, (_, shard, records, _) in enumerate(parts):
                slots, place = self.slots[shard], places[index]
                while place < len(records):
                    record = records[place]
                    place += 1
                    if record.opcode in (FLUSHDB, DELRANGE):
                        flush = record
                        break
                    self._apply_record(slots, shard, record)
                places[index] = place
            if flush is None:
                return
            self._replay_record(ALL_SLOTS, flush, flush.payload)

    def _apply_record(self, slots: tuple[int, int], shard: ShardId, record: Record) -> None:
        """Hot."""
        if self._received:
            operation = self._received.get((shard, record.lsn))
            if operation is not None:
                self._by_opcode[record.opcode].apply(self._databases[record.database], operation)
                return
        self._replay_record(slots, record, record.payload)
