"""A transaction: what a command reads and writes through.

A handler reads with `find` and its relatives and returns operations; it changes nothing itself. `run` applies them, so
that later commands of the same transaction see them, and gathers their records, which are journaled together. There is
no roll-back: a command that failed contributes nothing, and the effects of those before it stay. A command that would
make the transaction larger than the journal takes is refused before any of it is applied.

Wall time is sampled once. Keys expire only here: a key that a command finds expired is removed by an operation of its
own, before those of the command. While the journal takes no writes, and on a follower, the key stays where it is, and
counts as gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import CommandError, EnvironmentFault, InternalError, LimitExceeded
from tidelog.ids import ShardId
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import VAL, Del, encode_flat, encode_pair
from tidelog.store.keyspace import Database
from tidelog.store.large import Pieces, is_same, join
from tidelog.store.range_removal import RangeRemoval
from tidelog.store.slots import slot_of
from tidelog.types.effect import Effect, StoredValue

if TYPE_CHECKING:
    from tidelog.store.store import Store
    from tidelog.streams.compaction import Compaction


_new_record: Final = partial(tuple.__new__, NewRecord)  # hot: the call of the class itself is Python
NOT_PLAIN: Final = object()
"""In the place of a value or a reply: nothing has happened, and the general path is to be taken."""
WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"

_ONE_SHARD: Final = ShardId(0)
"""Of a store that has only one."""
_PAYLOAD_BYTES_SMALL: Final = 4 * limits.KIB
"""A transaction that has not gathered more is not looked at: no limit is that low."""
_PLAIN_BYTES_MAX: Final = limits.KIB
"""A record of a change that is applied at once has fewer bytes of words: no limit on a record is that low."""
_RUN_BYTES_MAX: Final = 2 * limits.RECORD_SPLIT_BYTES
"""A record of plain strings is smaller, with all that it has beside them."""


class InDatabase(NamedTuple):
    """An operation on another database than the selected one: COPY reaches over."""

    number: int
    operation: Any


class _StringRun:
    """Plain strings of different keys that were set after each other: they are applied, and share a record."""

    __slots__ = ("bytes", "database", "items", "keys", "shard")

    def __init__(self, database: Database, shard: ShardId) -> None:
        self.database = database
        self.shard = shard
        self.items: list[bytes] = []
        """Key, value, key, value ..."""
        self.keys: set[bytes] = set()
        self.bytes = 0


class Transaction:
    """One command, or all that EXEC or a script runs."""

    __slots__ = (
        "_bytes", "_expired", "_run_of_strings", "compaction", "database", "fetches", "may_wait", "now_ms", "records",
        "removal", "store", "takes_steps",
    )  # fmt: skip

    def __init__(self, store: Store, database: Database, now_ms: int) -> None:
        self.store = store
        self.database = database
        """The one that is selected."""
        self.now_ms = now_ms
        self.records: list[NewRecord] = []
        self._bytes = 0
        """The size of the payloads of its records."""
        self.may_wait = False
        """A command with nothing to answer may raise `WouldBlock`: not inside EXEC or a script."""
        self.fetches = False
        """A command that needs cold nodes may raise `NodesAway`, and is run again when they are open."""
        self.takes_steps = False
        """A command with much to look at may raise `TakesSteps` first, and is then run again with ..."""
        self.removal: RangeRemoval | None = None
        """... what it has found."""
        self.compaction: Compaction | None = None
        """Of a command that looks at a stream portion by portion: how far it is."""
        self._expired: dict[tuple[int, bytes], None] = {}
        """Keys that were come across expired and still have to be removed."""
        self._run_of_strings: _StringRun | None = None
        """The newest strings, which have no record yet."""

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, key: bytes) -> StoredValue | None:
        """The value of a key that is there and has not expired."""
        return self.find_in(self.database, key)

    def peek(self, key: bytes) -> StoredValue | None:
        """As `find`, for a command that asks about a key and does not use it (OBJECT IDLETIME)."""
        return self._unless_expired(self.database, key, self.database.peek(key))

    def find_in(self, database: Database, key: bytes) -> StoredValue | None:
        return self._unless_expired(database, key, database.find(key))

    def _unless_expired(self, database: Database, key: bytes, value: StoredValue | None) -> StoredValue | None:
        if value is not None and database.expiries:
            when = database.expiries.get(key)
            if when is not None and when <= self.now_ms:
                self._expired[database.number, key] = None
                return None
        return value

    def find_typed(self, key: bytes, kind: type[Any]) -> Any:
        """The value of a key, which must be of this type if it is there."""
        value = self.find_in(self.database, key)
        if value is not None and type(value) is not kind:
            raise CommandError(WRONG_TYPE)
        return value

    def expiry(self, key: bytes) -> int | None:
        """When a key expires (absolute ms); None: never."""
        return self.database.expiries.get(key)

    def join(self, pieces: Pieces) -> bytes:
        """The string of these pieces, which may have been made before the command ran (`large`)."""
        for made in self.store.joined:
            if is_same(made.pieces, pieces):
                return made.value
        return join(pieces)

    # --- writing ------------------------------------------------------------------------------------------------

    def remove_expired(self) -> None:
        """Remove what was found expired, if the journal takes it. A read leaves it while writes are held back."""
        if self._expired and not self.store.keeps_expired:
            with contextlib.suppress(LimitExceeded):
                self._remove_expired()

    def _remove_expired(self) -> None:
        expired, self._expired = self._expired, {}
        if self.store.refusal is None and not self.store.is_follower:
            self._run([InDatabase(number, Del([key])) for number, key in expired])
            self.store.expired_count += len(expired)

    def set_plain(self, key: bytes, value: bytes) -> bool:
        """Set a string in the place of a string without expiry, or of nothing; false: it is not that, and nothing has
        happened. Hot in long transactions: so many of them share a record, as those of one buffer do (`server/hot`)."""
        database, size = self.database, len(key) + len(value)
        slot = slot_of(key)
        old = database.find_at(slot, key)
        if not (old is None or isinstance(old, bytes)) or key in database.expiries or self._expired:
            return False
        shard, run = self.store.owners[slot], self._run_of_strings
        if (
            run is None
            or key in run.keys
            or run.bytes + size > limits.RECORD_SPLIT_BYTES
            or len(run.keys) >= limits.RECORD_MEMBERS_MAX
            or run.shard != shard
            or run.database is not database
        ):
            self.end_run()
            if size > limits.RECORD_SPLIT_BYTES or self._bytes > limits.TRANSACTION_BYTES_MAX - _RUN_BYTES_MAX:
                return False
            run = self._run_of_strings = _StringRun(database, shard)
        run.items += (key, value)
        run.keys.add(key)
        run.bytes += size
        database.put_at(slot, key, value)
        return True

    def find_plain(self, slot: int, key: bytes) -> StoredValue | None:
        """The value of a key whose slot is known, or `NOT_PLAIN` if it may have expired. Hot."""
        database = self.database
        value = database.find_at(slot, key)
        if value is not None and database.expiries:
            when = database.expiries.get(key)
            if when is not None and when <= self.now_ms:
                return NOT_PLAIN
        return value

    def takes_plain(self, size: int) -> bool:
        """Whether a change may be applied at once, and its record gathered after it (`gather`): the record is small,
        and there is nothing to do before. `size`: of the words in it. Hot."""
        if size >= _PLAIN_BYTES_MAX or self._expired:
            return False
        return self._bytes < _PAYLOAD_BYTES_SMALL or self._bytes < limits.TRANSACTION_BYTES_MAX - 2 * _PLAIN_BYTES_MAX

    def gather(self, slot: int, opcode: int, payload: bytes, expire_ms: int | None = None) -> None:
        """The record of a change in the selected database that is applied already, as `takes_plain` allowed. Hot."""
        if self._run_of_strings is not None:
            self.end_run()
        self._bytes += len(payload)
        self.records.append(
            _new_record((self.store.owners[slot], opcode, payload, expire_ms, self.database.number, None))
        )

    @property
    def size_bytes(self) -> int:
        """What its records take."""
        return self._bytes

    def end_run(self) -> None:
        """Make the record of the newest strings."""
        run, self._run_of_strings = self._run_of_strings, None
        if run is not None:
            items = run.items
            payload = encode_pair(items[0], items[1]) if len(items) == 2 else encode_flat(items)
            self._bytes += len(payload)
            self.records.append(_new_record((run.shard, VAL, payload, None, run.database.number, None)))

    def run(self, operations: Sequence[Any]) -> None:
        """Apply operations and gather their records: all of them or, if that would be too much, none."""
        if self._expired:
            if not operations:
                self.remove_expired()
                return
            self._remove_expired()  # or not even begin: they are for a keyspace without it
        if operations:
            self._run(operations)

    def _run(self, operations: Sequence[Any]) -> None:
        if self._run_of_strings is not None:
            self.end_run()
        if len(operations) == 1 and not self.store.staged and self._run_one(operations[0]):
            return
        store, selected, size = self.store, self.database, self._bytes
        records: list[NewRecord] = []
        planned: list[tuple[Effect, Database, Any]] = []
        for operation in operations:
            database = selected
            if type(operation) is InDatabase:
                database, operation = store.database(operation.number), operation.operation
            effect = store.effect_of[type(operation)]
            planned.append((effect, database, operation))
            expire_ms = operation.expire_ms if effect.carries_expiry else None
            if store.staged:
                found = store.encode_staged(effect, operation)
                if found is not None:
                    shard, opcode, head, staged = found
                    size += len(head) + len(staged.value)
                    _check_size(size, len(head) + len(staged.value))
                    records.append(NewRecord(shard, opcode, head, expire_ms, database.number, staged))
                    continue
            try:
                encoded = store.encode(effect, operation)
            except EnvironmentFault:
                raise  # a cold node that a copy of a stream is to have: nothing was applied
            except Exception as error:
                raise InternalError("an operation has no record: nothing was applied") from error
            for shard, opcode, payload in encoded:
                size += len(payload)
                if size > _PAYLOAD_BYTES_SMALL:
                    _check_size(size, len(payload))
                records.append(_new_record((shard, opcode, payload, expire_ms, database.number, None)))
        self.records += records
        self._bytes = size
        for effect, database, operation in planned:
            effect.apply(database, operation)

    def _run_one(self, operation: Any) -> bool:
        """As `_run`, for one operation with one small record, as most are; false: it is not that, and nothing has
        happened. Hot."""
        store, database = self.store, self.database
        effect = store.effect_of.get(type(operation))
        if effect is None or len(store.slots) > 1:
            return False
        try:
            payload = effect.kind.encode(operation)
        except EnvironmentFault:
            raise
        except Exception as error:
            raise InternalError("an operation has no record: nothing was applied") from error
        size = self._bytes + len(payload)
        if size > _PAYLOAD_BYTES_SMALL:
            _check_size(size, len(payload))
        expire_ms = operation.expire_ms if effect.carries_expiry else None
        self.records.append(_new_record((_ONE_SHARD, effect.kind.opcode, payload, expire_ms, database.number, None)))
        self._bytes = size
        effect.apply(database, operation)
        return True


def _check_size(size: int, payload_size: int) -> None:
    if size > limits.TRANSACTION_BYTES_MAX or payload_size > limits.PAYLOAD_BYTES_MAX:
        raise LimitExceeded(f"a transaction is too large: at most {limits.TRANSACTION_BYTES_MAX} bytes")
