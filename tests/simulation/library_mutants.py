"""Planted bugs of libraries of functions: each must be caught by the simulation of the store (`store_world`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_IN_SNAPSHOT: Final = "        self._add([LibLoad(name, code) for name, code in store.libraries.codes.items()])\n"

LIBRARY_MUTANTS: Final = (
    Mutant(
        "flush-removes-libraries",
        "store/keyspace.py",
        "        self.cleared_count += 1\n",
        "        self.cleared_count += 1\n        self.libraries.codes.clear()\n",
        "FLUSHALL takes the libraries with it",
        "store",
        focus="libraries",
    ),
    Mutant(
        "flush-removes-libraries-after-a-start",
        "store/store.py",
        "            database.clear(slots)\n",
        "            database.clear(slots)\n            self.libraries.codes.clear()\n",
        "a library that outlived a FLUSHALL is gone after a start",
        "store",
        focus="libraries",
    ),
    Mutant(
        "snapshot-without-libraries",
        "store/capture.py",
        _IN_SNAPSHOT,
        "",
        "a library is lost as soon as a snapshot takes the place of its record",
        "store",
        focus="libraries",
    ),
    Mutant(
        "snapshot-with-one-library",
        "store/capture.py",
        _IN_SNAPSHOT,
        "        self._add([LibLoad(name, code) for name, code in store.libraries.codes.items()][:1])\n",
        "of several libraries a snapshot has only the first",
        "store",
        focus="libraries",
    ),
    Mutant(
        "snapshot-with-later-libraries",
        "store/capture.py",
        "            self._number, self._slot = self._number + 1, 0\n",
        "            self._number, self._slot = self._number + 1, 0\n"
        "            self._add([LibLoad(*each) for each in self._store.libraries.codes.items()])\n",
        "a snapshot has libraries that came after its moment, and that a crash may have taken back",
        "store",
        focus="libraries",
    ),
    Mutant(
        "library-removal-not-replayed",
        "types/library.py",
        "        lambda payload, _: LibDel(decode_items(payload)),\n",
        "        lambda payload, _: LibDel(decode_items(payload)[:0]),\n",
        "a library that was deleted is back after a start",
        "store",
        focus="libraries",
    ),
    Mutant(
        "one-library-removed-after-a-start",
        "types/library.py",
        "        lambda payload, _: LibDel(decode_items(payload)),\n",
        "        lambda payload, _: LibDel(decode_items(payload)[:1]),\n",
        "of several libraries that FUNCTION FLUSH removed all but one are back after a start",
        "store",
        focus="libraries",
    ),
    Mutant(
        "library-kept-by-its-first-code",
        "types/library.py",
        "    return LibLoad(items[0], items[1])\n",
        "    return LibLoad(items[0], items[1][:512])\n",
        "a long library comes back without its end",
        "store",
        focus="libraries",
    ),
    Mutant(
        "library-placed-by-its-name",
        "store/shard_records.py",
        "    if opcode in LIBRARY_OPCODES or",
        "    if opcode in LIBRARY_OPCODES:\n"
        "        name = operation[0] if isinstance(operation[0], bytes) else (*operation[0], b'')[0]\n"
        "        return [(owners[slot_of(name)], opcode, payload)]\n"
        "    if",
        "records of one transaction that belong to one library are on two shards, and are replayed in another order",
        "store",
        focus="libraries",
    ),
    Mutant(
        "library-not-journaled",
        "commands/functions.py",
        "    if joined is None:\n        engine.commit(transaction)\n",
        "    pass\n",
        "a library is in memory alone",
        "store",
        focus="libraries",
    ),
    Mutant(
        "library-loaded-without-space",
        "commands/functions.py",
        "    if engine.store.refusal is not None:\n",
        "    if False:\n",
        "a library is loaded that cannot be journaled",
        "store",
        focus="libraries",
    ),
    Mutant(
        "library-leaves-exec",
        "commands/functions.py",
        "    joined = engine.transaction\n",
        "    joined = None\n",
        "a library that comes or goes inside EXEC is journaled before what EXEC did before it",
        "store",
        focus="libraries",
    ),
    Mutant(
        "restored-library-not-run",
        "store/libraries.py",
        "        self.codes[name] = code\n        self.version += 1\n",
        "        self.codes[name] = code\n",
        "FUNCTION RESTORE replaces the code of a library, and FCALL runs the old one",
        "store",
        focus="libraries",
    ),
)
