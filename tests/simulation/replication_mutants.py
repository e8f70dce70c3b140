"""Planted bugs of replication (see `mutants`): each must be caught by a life of some servers (`replication_world`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import FIRST_SEED, Mutant


def _mutant(name: str, file: str, old: str, new: str, why: str, seed: int = FIRST_SEED) -> Mutant:
    return Mutant(name, file, old, new, why, "replication", seed)


REPLICATION_MUTANTS: Final = (
    _mutant(
        "confirmed-as-durable-when-written",
        "replication/reception.py",
        "written, durable_ts = self._writer.written, self._writer.durable_ts",
        "written, durable_ts = self._writer.written, self._writer.written.ts",
        "a follower says that it has synced what a power cut takes",
    ),
    _mutant(
        "received-epoch-forgotten",
        "journal/journal.py",
        "        writer.append_epoch(epoch, writer.last_ts or epoch.first_ts)\n        self.epochs.append(epoch)\n",
        "        writer.append_epoch(epoch, writer.last_ts or epoch.first_ts)\n",
        "a follower does not know in which epoch it is",
    ),
    _mutant(
        "received-epoch-not-written",
        "journal/journal.py",
        "        writer.append_epoch(epoch, writer.last_ts or epoch.first_ts)\n        self.epochs.append(epoch)\n",
        "        self.epochs.append(epoch)\n",
        "a follower forgets the epoch when it is started again",
    ),
    _mutant(
        "half-a-transaction-applied",
        "store/store.py",
        "                self._apply_parts(parts)\n",
        "                self._apply_parts(parts[:1])\n",
        "of a transaction over several shards, a follower applies what the first has",
    ),
    _mutant(
        "received-expiry-not-journaled",
        "journal/appender.py",
        "flags & _TS_FINISH, payload, expire_ms if expire_ms >= 0 else None, database)",
        "flags & _TS_FINISH, payload, None, database)",
        "keys that were received never expire, once the follower was started again",
    ),
    _mutant(
        "received-into-another-database",
        "journal/appender.py",
        "flags & _TS_FINISH, payload, expire_ms if expire_ms >= 0 else None, database)",
        "flags & _TS_FINISH, payload, expire_ms if expire_ms >= 0 else None, 0)",
        "what was received for another database is in the first one, once the follower was started again",
    ),
    _mutant(
        "follower-deletes-what-has-expired",
        "store/transaction.py",
        "if self.store.refusal is None and not self.store.is_follower:",
        "if self.store.refusal is None:",
        "a read on a follower makes a transaction of its own",
    ),
    _mutant(
        "follower-expires-by-itself",
        "store/expiry.py",
        "if store.refusal is not None or store.is_follower:",
        "if store.refusal is not None:",
        "a follower removes keys that are due, and gives out a ts for it",
    ),
    _mutant(
        "checkpoint-beyond-the-closed-ts",
        "feeds/feeds.py",
        "        if self._store.is_follower:  # only a leader knows that nothing older will come\n",
        "        if False:\n",
        "a follower gives checkpoints by its own clock, and older transactions come after them",
    ),
    _mutant(
        "clock-bound-not-followed",
        "replication/following.py",
        "        self._server.store.journal.hlc.follow(message.clock_bound)\n",
        "",
        "a promoted server whose clock is late gives out a ts below checkpoints of the old leader",
    ),
    _mutant(
        "led-without-an-epoch",
        "replication/replication.py",
        "        self.server.begin_epoch(Ts(0))\n",
        "",
        "a promoted server goes on in the epoch of another",
    ),
    _mutant(
        "role-not-durable",
        "replication/role_file.py",
        '"role": _NAMES[stored.role],\n'
        '                "leader": None if stored.leader is None else list(stored.leader),',
        '"role": _NAMES[self.stored.role],\n'
        '                "leader": None if self.stored.leader is None else list(self.stored.leader),',
        "a server forgets its role",
    ),
    _mutant(
        "follower-begins-an-epoch",
        "replication/replication.py",
        "return stored.role is LinkRole.LEADER and not stored.followers and not stored.is_deposed",
        "return not stored.followers and not stored.is_deposed",
        "a follower that was not stopped in order begins an epoch when it starts",
    ),
    _mutant(
        "tail-not-taken-back",
        "replication/followers.py",
        "if transaction.ts > self.journal.writer.last_ts:",
        "if False:",
        "a returning leader is sent what it has lost, and does not keep it",
    ),
    _mutant(
        "epochs-sent-with-the-next-transaction",
        "replication/history.py",
        "messages = self._epochs_before(self._passes.visible_ts + 1)",
        "messages: list[LinkMessage] = []",
        "an epoch in which nothing has happened yet does not reach followers",
    ),
    _mutant(
        "divergence-ignored",
        "replication/meeting.py",
        "    found = compare(journal, hello.epochs, hello.position)\n",
        "    found = compare(journal, hello.epochs, hello.position)\n"
        "    if isinstance(found, Diverged):\n        return ContinueAnswer(len(journal.epochs))\n",
        "a former leader keeps what it had beyond the history of the new one",
    ),
    _mutant(
        "unknown-epochs-ignored",
        "replication/shared_history.py",
        "    if len(theirs) > 1:\n",
        "    if False:\n",
        "a follower keeps an epoch that is not one of its leader's history",
    ),
    _mutant(
        "rewound-tail-not-kept",
        "journal/rewind.py",
        "    if disk.exists(_partial(folder, name)):\n",
        "    if False:\n",
        "what a rewind has set aside is removed by the next start",
    ),
    _mutant(
        "rewound-not-far-enough",
        "journal/rewind.py",
        "last_ts > self._since) or not",
        "last_ts > self._since + 2_000_000) or not",
        "a rewind leaves transactions that are not the leader's",
    ),
    _mutant(
        "rewound-epochs-kept",
        "journal/rewind.py",
        "(self._since is not None and last_ts > self._since) or not self._forgotten.isdisjoint(begun)",
        "self._since is not None and last_ts > self._since",
        "a rewind leaves epochs that are not the leader's, and is asked for again and again",
    ),
    _mutant(
        "published-before-the-data",
        "replication/follower_link.py",
        "while self._publications and self._publications[0][0] <= ts:",
        "while self._publications:",
        "a follower delivers a message before the write that came before it",
        7_000_440,
    ),
    _mutant(
        "lost-events-not-told",
        "feeds/beginning.py",
        "        if seen > end:\n",
        "        if False:\n",
        "a client that has seen what a failover has lost goes on as if nothing had happened",
    ),
    _mutant(
        "landed-epochs-dropped",
        "replication/landing_disk.py",
        "writer.append_epoch(whole.epoch, writer.last_ts or whole.epoch.first_ts)",
        "continue",
        "an epoch that begins during a full sync is lost",
    ),
    _mutant(
        "landing-complete-too-early",
        "replication/landing.py",
        "and all(file.is_whole for file in self._listed)",
        "and any(file.is_whole for file in self._listed)",
        "a full sync counts before all of its files are there",
    ),
    _mutant(
        "landing-not-durable",
        "replication/landing_disk.py",
        "        file.sync()\n        file.close()\n",
        "        file.close()\n",
        "files of a full sync are gone after a power cut",
    ),
    _mutant(
        "landed-journal-without-its-start",
        "replication/landing_disk.py",
        "                writer.append_received(whole)\n",
        "                if writer.last_ts > writer.visible.ts:\n                    writer.append_received(whole)\n",
        "what happened while a full sync was sent is not beside it",
    ),
    _mutant(
        "large-values-overtaken",
        "replication/reception.py",
        "if self._waiting or not self._apply(received):",
        "if not self._apply(received):",
        "what comes after a large value is applied while a thread still writes the value",
    ),
    _mutant(
        "large-values-announced-too-early",
        "replication/following.py",
        "if self._reception is not None and not self._reception.is_stuck:",
        "if self._reception is not None:",
        "a follower gives checkpoints past a large value that a thread still writes",
        7_000_219,
    ),
    _mutant(
        "landing-goes-on-after-what-was-not-written",
        "replication/landing.py",
        "            file.size, file.crc = file.written\n",
        "            file.written = file.size, file.crc\n",
        "a full sync that was interrupted goes on behind bytes that never reached the disk",
    ),
    _mutant(
        "landing-complete-before-its-journal-is-closed",
        "replication/landing.py",
        "            self._queue.add(partial(self._landing_disk.finish, self._ts), self._finished)\n",
        "            self._finished()\n",
        "a full sync takes the place of the data while the end of its history is not there",
    ),
)
