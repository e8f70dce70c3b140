"""What must hold of node files (`journal/node_files`), seen from outside: on the disk alone, and beside a store.

    on disk     everything that a complete snapshot refers to is there, proved, and listed as far as it is needed
    counted     a file knows how many places of it are in use: those of the streams, and of what is on its way
    kept        files that nobody needs are gone once enough snapshots were taken
    found       entries of cold nodes are found by id and by offset as a plain dict would find them
    damaged     of a file that is too short, or not there, nothing is served: the start says so

Nothing here asks the code that it checks, apart from reading records and nodes: lengths are counted anew.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from random import Random

from tests.simulation.recovery import FOLDER, require
from tests.simulation.stream_model import PlainStream
from tidelog.journal.layout import shard_folder
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.node_files import NodePlace
from tidelog.journal.node_format import FoundNode, node_file_id, node_file_name, read_node, walk_nodes
from tidelog.journal.reader import Part, Record
from tidelog.journal.snapshot import Snapshot, list_snapshots
from tidelog.ports import Disk
from tidelog.store.store import Store
from tidelog.streams.operations import StreamNodes
from tidelog.streams.rows import Rows
from tidelog.streams.sealed_node import NodeReference, SealedNode
from tidelog.streams.stream import Stream
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.effect import Effect

_ALIGNMENT = 8


# --- on disk ----------------------------------------------------------------------------------------------------------


def check_snapshots(disk: SimulatedDisk, effect: Effect) -> int:
    """All complete snapshots of a disk; `effect`: of `StreamNodes`. Returns how many nodes they refer to."""
    if not disk.exists(f"{FOLDER}/snapshots"):
        return 0
    count = 0
    for snapshot in list_snapshots(disk, FOLDER):
        references = _references(disk, snapshot, effect)
        _check_snapshot(disk, snapshot, references)
        count += len(references)
    return count


def _references(disk: Disk, snapshot: Snapshot, effect: Effect) -> list[NodeReference]:
    found: list[NodeReference] = []

    def apply(transaction: JournalTransaction, payload_of: object) -> None:
        for part in transaction.parts:
            for record in part.records:
                if record.opcode == effect.kind.opcode:
                    found.extend(_decoded(part, record, payload_of, effect).references)

    snapshot.read(disk, apply, lambda _: None)
    return found


def _decoded(part: Part, record: Record, payload_of: object, effect: Effect) -> StreamNodes:
    assert callable(payload_of)
    operation = effect.kind.decode(payload_of(part, record), None)
    assert isinstance(operation, StreamNodes)
    return operation


def _check_snapshot(disk: SimulatedDisk, snapshot: Snapshot, references: list[NodeReference]) -> None:
    listed = {each.id: each for each in snapshot.point.node_files}
    needed: dict[int, int] = {}
    for each in references:
        room = -(-(8 + each.size) // _ALIGNMENT) * _ALIGNMENT
        needed[each.file_id] = max(needed.get(each.file_id, 0), each.position + room)
    lengths = {file_id: each.length for file_id, each in listed.items()}
    require(needed == lengths, snapshot.path, "needs", needed, "and lists", lengths)
    for file_id, (shard, _, length) in listed.items():
        path = f"{shard_folder(FOLDER, shard)}/{node_file_name(file_id)}"
        require(disk.exists(path), snapshot.path, "lists", path, "which is missing")
        size = len(disk.read_file(path))
        require(size >= length, snapshot.path, "needs", length, "bytes of", path, "which has", size)
        found: list[FoundNode] = []
        walk_nodes(disk, path, length, found.append)
        whole = {each.position for each in found}
        file = disk.open(path, "read")
        for reference in references:
            if reference.file_id == file_id:
                require(reference.position in whole, "no node begins at", reference.position, "of", path)
                read_node(file, reference.position, reference.size, reference.crc)
        file.close()


def node_files_on(disk: SimulatedDisk, shard_count: int) -> dict[int, str]:
    """Id -> path of all that there are."""
    found: dict[int, str] = {}
    for shard in range(shard_count):
        folder = shard_folder(FOLDER, shard)
        for name in disk.list(folder) if disk.exists(folder) else ():
            file_id = node_file_id(name)
            if file_id is not None:
                found[file_id] = f"{folder}/{name}"
    return found


def shorten_one(disk: SimulatedDisk, rng: Random) -> tuple[str, str] | None:
    """Take the end of what the newest snapshot needs of a file, or all of it, away; returns the paths of both."""
    snapshots = list_snapshots(disk, FOLDER) if disk.exists(f"{FOLDER}/snapshots") else []
    if not snapshots or not snapshots[-1].point.node_files:
        return None
    hurt = rng.choice(snapshots[-1].point.node_files)
    path = f"{shard_folder(FOLDER, hurt.shard)}/{node_file_name(hurt.id)}"
    if rng.random() < 0.3:
        disk.remove(path)
    else:  # what is cut off is more than the zeros at the end of a node
        disk.write_file(path, disk.read_file(path)[: hurt.length - _ALIGNMENT])
    return snapshots[-1].path, path


# --- beside a store ---------------------------------------------------------------------------------------------------


def streams_of(store: Store) -> list[tuple[int, bytes, Stream]]:
    """All of them, with their databases and keys."""
    return [
        (database.number, key, value)
        for database in store.databases
        if database.size
        for key in database.all_keys()
        if type(value := database.peek(key)) is Stream
    ]


def check_counts(store: Store, on_the_way: Sequence[SealedNode], places: Iterable[NodePlace]) -> None:
    """Every place is counted once, however many streams share its node; and its file is there.

    A node that is in line is in a line, or on its way.
    """
    assert store.cooling is not None
    nodes = [node for _, _, stream in streams_of(store) for node in stream.sealed]
    nodes += on_the_way
    waiting = {id(node) for line in store.cooling._lines for node in line.nodes} | {id(node) for node in on_the_way}
    lost = [node.first_offset for node in nodes if node.is_in_line and id(node) not in waiting]
    require(not lost, "nodes from", lost, "on are in no line")
    for line in store.cooling._lines:
        nodes += line.nodes
    held = {id(place): place for place in (*places, *(node.place for node in nodes)) if place is not None}
    expected = _counted(held.values())
    if expected != _counts(store):
        gc.collect()  # what went wrong before may be kept by its traceback
    found = _counts(store)
    require(expected == found, "places are", expected, "and counted", found)
    known = {file.id for file in store.cooling.files}
    require(known.issuperset(place.file.id for place in held.values()), "a file was forgotten that is needed")


def _counted(places: Iterable[NodePlace]) -> dict[int, tuple[int, int]]:
    counted: dict[int, tuple[int, int]] = {}
    for place in places:
        count, size = counted.get(place.file.id, (0, 0))
        counted[place.file.id] = count + 1, size + place.live_bytes
    return counted


def _counts(store: Store) -> dict[int, tuple[int, int]]:
    assert store.cooling is not None
    for file in store.cooling.files:
        file.tally()
    return {file.id: (file.live_count, file.live_bytes) for file in store.cooling.files if file.live_count}


def check_nothing_is_left(disk: SimulatedDisk, store: Store) -> None:
    """After snapshots in which nothing has changed, only files that streams need are there, and those written to."""
    assert store.cooling is not None
    there = node_files_on(disk, len(store.slots))
    needed = {file.id for file, _ in store.cooling.files._open.values()}
    needed.update(_counts(store))
    require(there.keys() == needed, "node files", sorted(there.values()), "are there, needed are", sorted(needed))
    pinned = [file.path for file in store.cooling.files if file.pins]
    require(not pinned, "nobody needs", pinned, "which are pinned")


def check_reads(rng: Random, stream: Stream, plain: PlainStream) -> None:
    """Ranges by id and by offset, forwards and backwards, against a scan over all entries."""
    entries = sorted(plain.entries.items())
    ids = [entry[0] for _, entry in entries]
    any_ids = [*ids, plain.last_id, 0]
    low, high = (max(rng.choice(any_ids) + rng.choice((-1, 0, 0, 1)), 0) for _ in range(2))
    low, high, count = min(low, high), max(low, high), rng.randint(1, 9)
    within = [offset for offset, entry in entries if low <= entry[0] <= high]
    _require_rows(stream.read_ids(low, high, count), within[:count], plain, ("ids from", low, "to", high))
    _require_rows(
        stream.find_ids_back(high, low, count).rows(), within[::-1][:count], plain, ("ids from", high, "back")
    )
    after = next((offset for offset, entry in entries if entry[0] >= low), plain.next)
    require(stream.offset_at_or_after(low) == after, "the first at id", low, "is", after)
    exact = next((offset for offset, entry in entries if entry[0] == low), None)
    require(stream.offset_of(low) == exact, "id", low, "is at", exact)
    start = rng.randint(max(plain.first - 1, 1), plain.next)
    ahead = [offset for offset, _ in entries if offset >= start]
    back = [offset for offset, _ in entries if offset <= start][::-1]
    _require_rows(stream.read(start, count), ahead[:count], plain, ("offset", start))
    _require_rows(stream.find_back(start, count).rows(), back[:count], plain, ("offset", start, "back"))
    wanted = [plain.entries[offset][0] for offset in ahead[:count]]
    require(stream.ids_from(start, count) == wanted, "ids from offset", start, "are", wanted)
    below = sum(offset < start for offset, _ in entries)
    require(stream.count_below(start) == below, below, "entries are below", start)
    for node in stream.sealed:
        require(node.first_id == plain.entries[node.first_offset][0], "a node begins with another id")
        require(node.top_id == plain.entries[node.last_offset][0], "a node ends with another id")


def _require_rows(rows: Rows, offsets: list[int], plain: PlainStream, what: tuple[object, ...]) -> None:
    found = list(zip(rows.offsets, rows.ids, rows.kinds, rows.tags, rows.entries, strict=True))
    expected = [(offset, *plain.entries[offset]) for offset in offsets]
    require(found == expected, *what, "gives", found, "instead of", expected)
