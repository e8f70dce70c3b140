"""A transaction: what a command reads and writes through.

A handler reads with `find` and its relatives and returns operations; it changes nothing itself. `run` applies them, so
that later commands of the same transaction see them, and gathers their records, which are journaled together. There is
no roll-back: a command that failed contributes nothing, and what came before it stays.

Wall time is sampled once. Only here is a key treated as expired: it is removed by an operation of its own, before those
of the command that came across it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.errors import CommandError
from tidelog.journal.operation import Del
from tidelog.journal.writer import NewRecord
from tidelog.store.keyspace import Database
from tidelog.types.effect import Value

if TYPE_CHECKING:
    from tidelog.store.store import Store


_new_record: Final = partial(tuple.__new__, NewRecord)  # hot: the call of the class itself is Python
WRONG_TYPE: Final = "WRONGTYPE Operation against a key holding the wrong kind of value"


class InDatabase(NamedTuple):
    """An operation on another database than the selected one: COPY reaches over."""

    number: int
    operation: Any


class Transaction:
    """One command, or all that EXEC or a script runs."""

    __slots__ = ("_expired", "database", "now_ms", "records", "store")

    def __init__(self, store: Store, database: Database, now_ms: int) -> None:
        self.store = store
        self.database = database
        """The one that is selected."""
        self.now_ms = now_ms
        self.records: list[NewRecord] = []
        self._expired: dict[tuple[int, bytes], Database] = {}
        """Keys that were come across expired and still have to be removed."""

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, key: bytes) -> Value | None:
        """The value of a key that is there and has not expired."""
        return self.find_in(self.database, key)

    def find_in(self, database: Database, key: bytes) -> Value | None:
        value = database.find(key)
        if value is not None and database.expiries:
            when = database.expiries.get(key)
            if when is not None and when <= self.now_ms:
                self._expired[database.number, key] = database
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

    # --- writing ------------------------------------------------------------------------------------------------

    def remove_expired(self) -> None:
        """Remove what was found expired."""
        if self._expired:
            expired, self._expired = self._expired, {}
            self.store.expired_count += len(expired)
            for (_, key), database in expired.items():
                self._apply(database, Del([key]))

    def run(self, operations: Sequence[Any]) -> None:
        """Apply operations and gather their records."""
        self.remove_expired()
        for operation in operations:
            if type(operation) is InDatabase:
                self._apply(self.store.database(operation.number), operation.operation)
            else:
                self._apply(self.database, operation)

    def _apply(self, database: Database, operation: Any) -> None:
        store = self.store
        effect = store.effect_of[type(operation)]
        expire_ms = operation.expire_ms if effect.carries_expiry else None
        for shard, opcode, payload in store.encode(effect, operation):
            self.records.append(_new_record((shard, opcode, payload, expire_ms, database.number)))
        effect.apply(database, operation)
