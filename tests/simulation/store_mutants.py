"""Planted bugs of the store and the types: each must be caught by the simulation of the store (`store_world`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

STORE_MUTANTS: Final = (
    Mutant(
        "snapshot-shares-collections",
        "types/hash.py",
        "    return dict(value)",
        "    return value",
        "a collection that changes while a snapshot is taken is in it as it is later",
        "store",
    ),
    Mutant(
        "flush-not-told",
        "store/keyspace.py",
        "            self.observer(self, None)\n",
        "            pass\n",
        "what is flushed while a snapshot is taken is missing in it",
        "store",
    ),
    Mutant(
        "new-expiry-not-told",
        "store/keyspace.py",
        "        if self.find(key) is None:\n            return\n        self.observe(key)\n",
        "        if self.find(key) is None:\n            return\n",
        "a snapshot has an expiry that was set after its point",
        "store",
    ),
    Mutant(
        "snapshot-without-expiries",
        "store/type_table.py",
        "        operations.append(Expire(key, expire_ms))",
        "        pass",
        "a collection that comes back from a snapshot never expires",
        "store",
    ),
    Mutant(
        "replay-without-expiry",
        "store/store.py",
        "                        database.put(key, value, expire_ms)",
        "                        database.put(key, value)",
        "a string that comes back from the journal never expires",
        "store",
    ),
    Mutant(
        "flush-clears-other-shards",
        "store/store.py",
        "database.clear(self.slots[part.shard])",
        "database.clear()",
        "what a transaction writes on one shard after a flush is cleared by another shard's part of it",
        "store",
    ),
    Mutant(
        "deleted-on-one-shard",
        "store/store.py",
        "return [(shard, DEL, encode_items(keys)) for shard, keys in self._by_shard(operation.keys, lambda key: key)]",
        "return [(owners[slot_of(operation.keys[0])], DEL, encode_items(operation.keys))]",
        "keys of one DEL are deleted in the order of another shard",
        "store",
    ),
    Mutant(
        "expired-not-journaled",
        "store/expiry.py",
        "    store.commit(transaction)\n",
        "",
        "what expired is removed from memory alone",
        "store",
    ),
    Mutant(
        "expired-removed-without-space",
        "store/transaction.py",
        "        if self.store.refusal is None:\n",
        "        if True:\n",
        "a read changes what cannot be journaled",
        "store",
    ),
    Mutant(
        "hot-in-the-wrong-database",
        "server/hot.py",
        "encode_field(items[0], items[1], items[2]), self._number)",
        "encode_field(items[0], items[1], items[2]), 0)",
        "what the hot path writes to another database comes back in the first",
        "store",
    ),
    Mutant(
        "heap-not-restored",
        "store/keyspace.py",
        "        heappush(self.due, (expire_ms, key))\n",
        "        if self.observer is not None or not self.due:\n            heappush(self.due, (expire_ms, key))\n",
        "a key that expires is never removed unless someone asks for it",
        "store",
    ),
)
