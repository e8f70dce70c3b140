"""A server with one bug of the kind that only a kill shows: run as `careless_server.py BUG serve ...`.

replies-first     replies leave before the journal has been written
torn              the records of a transaction are journaled one by one, each as if it were all
forgets-expiry    what expires no longer does after a restart
one-shard         a transaction is journaled on the first of its shards only
keeps-libraries   a library of functions that was deleted is back after a restart
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":  # before the others: what is compiled cannot be patched
    runpy.run_path(str(Path(__file__).parents[1] / "from_sources" / "sitecustomize.py"))

from tidelog.cli import main
from tidelog.server.turns import Turns
from tidelog.store.keyspace import Database
from tidelog.store.store import Store

LATE_S: Final = 0.05


def reply_first() -> None:
    end: Any = Turns._end

    def send_and_end_later(self: Any) -> None:
        for session in self._with_replies:
            replies = b"".join(session.out)
            session.out[:] = [b""]
            session.send(replies)
        self._loop.call_later(LATE_S, end, self)

    Turns._end = send_and_end_later  # type: ignore[method-assign]


def tear() -> None:
    def commit(self: Store, transaction: Any) -> Any:
        transaction.remove_expired()
        records, transaction.records = transaction.records, []
        for record in records:
            self.journal.writer.append(self.journal.hlc.next(), [record])
            self.journal.writer.write()
            time.sleep(0.001 if len(records) > 1 else 0)
        return None

    Store.commit = commit  # type: ignore[method-assign]


def forget_expiry() -> None:
    replay = Store.replay

    def replay_without(self: Store, transaction: Any, payload_of: Any) -> None:
        set_expiry = Database._set_expiry
        Database._set_expiry = lambda *_: None  # type: ignore[method-assign]
        replay(self, transaction, payload_of)
        Database._set_expiry = set_expiry  # type: ignore[method-assign]

    Store.replay = replay_without  # type: ignore[method-assign]


def keep_one_shard() -> None:
    commit = Store.commit

    def commit_one(self: Store, transaction: Any) -> Any:
        transaction.records = [new for new in transaction.records if new.shard == transaction.records[0].shard]
        return commit(self, transaction)

    Store.commit = commit_one  # type: ignore[method-assign]


def keep_libraries() -> None:
    replay = Store.replay

    def replay_without(self: Store, transaction: Any, payload_of: Any) -> None:
        remove = Database.remove_library
        Database.remove_library = lambda *_: None  # type: ignore[method-assign]
        replay(self, transaction, payload_of)
        Database.remove_library = remove  # type: ignore[method-assign]

    Store.replay = replay_without  # type: ignore[method-assign]


BUGS: Final = {
    "replies-first": reply_first,
    "torn": tear,
    "forgets-expiry": forget_expiry,
    "one-shard": keep_one_shard,
    "keeps-libraries": keep_libraries,
}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main()
