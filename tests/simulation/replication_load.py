"""What clients of a leader do in a world of replication: the commands of feeds, and all else that is state."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.feed_load import FeedLoad
from tests.simulation.hold_load import draw_change
from tests.simulation.store_load import Words
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.store.store import Store
from tidelog.store.transaction import Transaction
from tidelog.types.library import LibDel, LibLoad

TABLE: Final = command_table()


class ReplicationLoad(FeedLoad):
    """Draws transactions."""

    def __init__(self, rng: Random, value_bytes_max: int) -> None:
        super().__init__(rng, value_bytes_max)
        self._seq = 0

    def command(self) -> Words:
        if self._rng.random() < 0.08:
            self._seq += self._rng.choice((0, 1, 1, 2))
            pair = [self.member(), self.value()]
            return [b"TWRITE", self.stream(), b"PRODUCER", b"p", b"%d" % self._seq, b"ENTRIES", *pair]
        if self._rng.random() < 0.1:  # several nodes at once, so that there is something to cool
            entries = [word for _ in range(self._rng.randint(2, 9)) for word in (self.member(), self.value())]
            return [b"TWRITE", self.stream(), b"ENTRIES", *entries]
        if self._rng.random() < 0.06:
            return [b"TCONFIG", self.stream(), b"BACKLOG", self.few()]
        return super().command()

    def transact(self, store: Store, now_us: int) -> None:
        """One transaction, or none."""
        rng = self._rng
        if rng.random() < 0.05:
            draw_change(rng, store, [store.journal.writer.last_ts], now_us, self.command())
            return
        transaction = store.begin(self.database())
        for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 5)):
            words = self.command()
            run_command(find_command(TABLE, words), transaction, words)
        if rng.random() < 0.04:
            self._change_libraries(transaction)
        store.commit(transaction)

    def _change_libraries(self, transaction: Transaction) -> None:
        rng = self._rng
        name = rng.choice((b"one", b"two"))
        code = b"code %d" % rng.getrandbits(20)
        transaction.run([LibLoad(name, code) if rng.random() < 0.8 else LibDel([name])])
