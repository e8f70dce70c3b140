"""Planted bugs of node files, of what is kept of cold nodes, and of what streams keep by themselves: each must be
caught by `cooling_world`, or by the bits that `node_damage` flips."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import FIRST_SEED, Mutant


def _mutant(name: str, file: str, old: str, new: str, why: str, seed: int = FIRST_SEED) -> Mutant:
    return Mutant(name, file, old, new, why, "cooling", seed)


_WRITTEN: Final = (
    _mutant(
        "cold-before-it-is-durable",
        "journal/node_files.py",
        "            write_all(handle, file.size_bytes, chunks)\n            handle.sync()\n",
        "            write_all(handle, file.size_bytes, chunks)\n",
        "memory lets go of nodes that a power cut takes from the disk",
    ),
    _mutant(
        "first-nodes-of-a-file-not-synced",
        "journal/node_files.py",
        "            handle.sync()\n",
        "            if file.size_bytes > FILE_HEADER_BYTES:\n                handle.sync()\n",
        "a snapshot is named before what it refers to is durable",
    ),
    _mutant(
        "place-before-its-file-has-a-name",
        "journal/node_files.py",
        "                self.disk.sync_folder(folder)\n",
        "                pass\n",
        "the name of a new node file is not durable",
        7_000_019,
    ),
    _mutant(
        "position-of-the-data",
        "journal/node_files.py",
        "places.append(NodePlace(file, file.size_bytes, size, crc))",
        "places.append(NodePlace(file, file.size_bytes + NODE_HEADER_BYTES, size, crc))",
        "a node is looked for behind its header",
    ),
    _mutant(
        "failed-write-gives-places",
        "journal/node_files.py",
        "            self._give_up(shard)\n            raise\n",
        "            pass\n",
        "what could not be written, or not be synced, is let go of by memory",
    ),
    _mutant(
        "result-given-to-other-nodes",
        "store/cooling.py",
        "zip(job.nodes, job.places, job.last_ids, strict=True)",
        "zip(reversed(job.nodes), job.places, job.last_ids, strict=True)",
        "a node that has become cold has the entries of another one",
    ),
    _mutant(
        "failed-nodes-leave-the-line",
        "store/cooling.py",
        "            job.line.put_back(job.nodes)\n",
        "",
        "nodes that could not be written once stay in memory for good",
    ),
    _mutant(
        "rewritten-node-loses-entries",
        "streams/sealed_node.py",
        "        batch = self.read()\n",
        "        batch = self.read()\n        batch = batch.slice(self._batch is None and self.count > 1)\n",
        "a node that is written once more is without its first entry",
    ),
    _mutant(
        "rewritten-node-keeps-its-old-bound",
        "streams/sealed_node.py",
        "        self.last_id = last_id  # first: a thread that finds the new place compares with this\n",
        "",
        "a node that had lost its last entry is taken for another one after it was written once more",
        7_000_164,
    ),
)
_KEPT: Final = (
    _mutant(
        "length-listed-too-early",
        "journal/snapshot.py",
        "self._node_files[file] = max(self._node_files.get(file, 0), place.end)",
        "self._node_files.setdefault(file, place.end)",
        "a snapshot lists a file as long as the first node needs it that it refers to",
    ),
    _mutant(
        "snapshot-lists-no-files",
        "store/capture.py",
        "                self.snapshot.refer_to(place)\n",
        "                place.read()\n",
        "a snapshot refers to nodes of files that it does not list",
    ),
    _mutant(
        "pins-released-when-all-is-visited",
        "store/store.py",
        'keep no more old values for it."""\n',
        'keep no more old values for it."""\n        if self._capture:\n            self._capture.snapshot.release()\n',
        "files that a snapshot refers to which has no name yet are removed, and not listed",
    ),
    _mutant(
        "pins-ignored",
        "journal/node_files.py",
        "return bool(self.live_count or self.pins or self.is_written_to)",
        "return bool(self.live_count or self.is_written_to)",
        "a file goes that a half-made snapshot refers to",
        7_000_084,
    ),
    _mutant(
        "sparse-file-goes-before-its-nodes",
        "journal/node_files.py",
        "return bool(self.live_count or self.pins or self.is_written_to)",
        "return bool((self.live_count and not self.is_sparse) or self.pins or self.is_written_to)",
        "a file goes before the few nodes that are needed of it are written elsewhere",
    ),
    _mutant(
        "part-of-a-place-not-counted",
        "journal/node_files.py",
        "        file.add(self.live_bytes)\n",
        "        if live_bytes is None:\n            file.add(self.live_bytes)\n",
        "a file goes that a stream, or its copy, has a part of a node in",
    ),
    _mutant(
        "place-counted-for-ever",
        "journal/node_files.py",
        "        self.file.let_go(self.live_bytes)\n",
        "        pass\n",
        "no node file ever goes",
    ),
    _mutant(
        "listed-file-removed",
        "journal/node_files.py",
        "going = [file for file in files if file.id not in kept]",
        "going = list(files)",
        "a file goes that a snapshot lists",
    ),
    _mutant(
        "older-snapshots-keep-nothing",
        "journal/snapshot.py",
        "for snapshot in list_snapshots(disk, folder) for each in snapshot",
        "for snapshot in list_snapshots(disk, folder)[-1:] for each in snapshot",
        "a file goes that an older snapshot lists, which is kept as well",
        7_000_018,
    ),
    _mutant(
        "files-go-before-their-snapshot-durably-has",
        "store/cooling.py",
        "            files.disk.sync_folder(snapshots)\n",
        "            pass\n",
        "a snapshot whose removal could not be synced comes back after a power cut, and its files do not",
        7_000_037,
    ),
    _mutant(
        "kept-file-forgotten",
        "journal/node_files.py",
        "        return going\n",
        "        return list(files)\n",
        "a file that a snapshot still listed when it was to go never goes",
        7_000_099,
    ),
    _mutant(
        "ended-file-never-goes",
        "journal/node_files.py",
        "        file.is_written_to = False\n",
        "",
        "a full file counts as the one that is written to",
    ),
)
_READ: Final = (
    _mutant(
        "holes-of-a-cold-node-forgotten",
        "streams/sealed_node.py",
        "        offsets = left if last - first + 1 != count else None\n",
        "        offsets = None\n",
        "the entries after a hole get the offsets before",
    ),
    _mutant(
        "holes-before-the-first-entry",
        "streams/sealed_node.py",
        "None if self.offsets is None else self.offsets[index:]",
        "self.offsets",
        "a node with holes that loses its first entries keeps their offsets",
        7_000_120,
    ),
    _mutant(
        "evicted-off-by-one",
        "streams/node_ipc.py",
        "return batch.slice(first - base, count)",
        "return batch.slice(max(first - base - 1, 0), count)",
        "a cold node that was cut begins with the entry before",
    ),
    _mutant(
        "last-entry-of-a-node-believed",
        "streams/reading.py",
        "        if index == len(node) and place < len(self.sealed):  # its last entry is gone\n"
        "            node, index = self._node(place + 1), 0\n",
        "",
        "an id between the last entry that a cold node has and the one it had is found nowhere",
        7_000_029,
    ),
    _mutant(
        "first-id-of-a-cut-node",
        "streams/sealed_node.py",
        "first_id = self._first_id if index == 0 else UNKNOWN_ID",
        "first_id = self._first_id",
        "a cold node whose first entries are gone still begins with their id",
    ),
    _mutant(
        "cut-node-taken-for-whole",
        "streams/sealed_node.py",
        "return SealedNode(None, self._part(count), size, first, last, count, *ids, offsets, is_whole=False)",
        "return SealedNode(None, self._part(count), size, first, last, count, *ids, offsets)",
        "a cold node that has lost entries is taken for another one, and cannot be read",
    ),
    _mutant(
        "part-noted-as-whole",
        "streams/payload.py",
        "flags = (_IS_WHOLE if each.is_whole else 0) | (",
        "flags = _IS_WHOLE | (",
        "a part of a cold node comes back from a snapshot as all of it",
    ),
    _mutant(
        "checksum-not-looked-at",
        "journal/node_format.py",
        "    if header == (size, crc) == (size, found):\n",
        "    if header == (size, crc):\n",
        "entries that have rotted are served",
    ),
    _mutant(
        "header-not-looked-at",
        "journal/node_format.py",
        "    found = crc32c(data)\n    if header",
        "    found = crc32c(data)\n    if found == crc:\n        return data\n    if header",
        "the header of a node has rotted, and nobody notices",
    ),
    _mutant(
        "short-file-not-noticed-at-once",
        "journal/snapshot_nodes.py",
        "    if size < listed.length:\n",
        "    if False:\n",
        "a start fails only where it comes to the nodes that are missing, and a backup or a full sync does not fail",
    ),
)

_RETAINED: Final = (
    _mutant(
        "rule-not-in-snapshots",
        "streams/dump.py",
        "    operations += _rule(key, stream)\n",
        "",
        "a stream that comes back from a snapshot grows without a bound",
    ),
    _mutant(
        "rule-that-nobody-applies",
        "streams/effects.py",
        "    keyspace.note_rule(op.key, has_rule=stream.rule is not None)\n",
        "",
        "a stream with a rule is never looked at",
    ),
    _mutant(
        "rule-of-a-key-that-is-gone",
        "store/keyspace.py",
        "        self.ruled.pop(key, None)\n        if not bucket:\n",
        "        if not bucket:\n",
        "keys of streams that were deleted fill the memory of a follower",
    ),
    _mutant(
        "evicted-by-a-rule-not-journaled",
        "store/stream_retention.py",
        "    store.commit(transaction)\n",
        "",
        "entries that went by a rule come back after a crash",
    ),
    _mutant(
        "backlog-evicted",
        "streams/retention.py",
        "        if node.count > spare:\n",
        "        if node.count > spare and not excess > 0:\n",
        "MAXBYTES takes entries that BACKLOG keeps",
    ),
    _mutant(
        "young-entries-evicted",
        "streams/retention.py",
        "pack_id(max(now_ms - rule.age_max_ms, 0), 0)",
        "pack_id(now_ms, 0)",
        "with MAXAGE, entries go as soon as they are in a full node",
    ),
    _mutant(
        "bytes-of-a-cut-node-forgotten",
        "streams/stream.py",
        "            self.sealed_bytes += left.opened_bytes - self.sealed[0].opened_bytes\n",
        "",
        "entries that were evicted count for MAXBYTES for ever",
    ),
    _mutant(
        "backlog-evicted-for-all-streams",
        "store/stream_total.py",
        "return stream.length - (stream.rule.backlog if stream.rule is not None else 0)",
        "return stream.length",
        "stream-bytes-max takes entries that BACKLOG keeps",
    ),
)

COOLING_MUTANTS: Final = (*_WRITTEN, *_KEPT, *_READ, *_RETAINED)
