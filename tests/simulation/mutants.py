"""Planted bugs: each is one exact change of the source, and each must be caught by the simulation.

A check that never fails proves nothing. Every mutant here is a mistake that someone could make in good faith, in a
place where a unit test of the happy path sees no difference. It is applied to a copy of the package, and a process of
its own runs worlds (`world`) or flips bits (`specimen`) against that copy until something is noticed.

The text of a mutant must occur exactly once in its file: if the source has moved on, the test says so, and the mutant
is to be rewritten with it.

    python -m tests.simulation.mutants store 500 COPY [SEED [FOCUS]]    hunt by hand; COPY comes first in PYTHONPATH
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

CAUGHT: Final = 3
"""The exit status of a hunt that noticed something."""
NONSENSE: Final = 4
"""... and of one of a mutant that nobody could have written in good faith, for it does not run: rewrite it."""
_NO_MISTAKES: Final = ("NameError", "UnboundLocalError", "ImportError")
FIRST_SEED: Final = 7_000_000
SOURCE: Final = Path(__file__).resolve().parents[2] / "src"
COPIED: Final = (
    "scripting/lua/*.lua",
    *(
        f"{part}*.py"
        for part in (
            "",
            "journal/",
            "testing/",
            "resp/",
            "types/",
            "streams/",
            "store/",
            "feeds/",
            "replication/",
            "shipping/",
            "system/",
            "engine/",
            "commands/",
            "scripting/",
            "server/",
            "shipping/",
            "system/",
        )
    ),
)


class Mutant(NamedTuple):
    """One planted bug."""

    name: str
    file: str
    """In `src/tidelog`."""
    old: str
    new: str
    why: str
    """What goes wrong, for who reads that it was not caught."""
    hunt: str = "crashes"
    """Where it must be caught: `crashes`, `damage`, `store` (`store_mutants`), `cooling` (`cooling_mutants`), `feeds`
    (`feed_mutants`), `replication` (`replication_mutants`) or `shipping` (`shipping_mutants`)."""
    seed: int = FIRST_SEED
    """Tried first: of a world that has caught it before."""
    focus: str = ""
    """What the worlds of `store` do most, for a bug that takes several commands of a kind (`store_world.FOCI`)."""


MUTANTS: Final = (
    Mutant(
        "kept-not-written-again",
        "journal/loader.py",
        "        _write_again(disk, path, meta.geometry, plan.complete.synced_places[shard], cut)\n",
        "",
        "after a failed fsync and a restart, pages that the kernel has given up are taken for durable",
    ),
    Mutant(
        "synced-place-too-far",
        "journal/cycles.py",
        "self._places[1][0] <= synced_cycle:",
        "True:",
        "what is written again after a restart begins behind what was fsynced",
    ),
    Mutant(
        "mark-vouches-for-nothing",
        "journal/scan.py",
        "if crc32c(memoryview(data)[base : payload_end - control.MARK_CRC_BYTES]) != mark.crc:",
        "if False:",
        "a mark whose data did not reach the disk is believed, as if it had been written before them",
        "damage",
    ),
    Mutant(
        "file-not-synced",
        "journal/durability.py",
        "for path, open_file in self.files:",
        "for path, open_file in self.files[1:]:",
        "one of the files of a cycle is said to be durable without an fsync",
    ),
    Mutant(
        "folder-not-synced",
        "journal/durability.py",
        "for folder in self.folders:",
        "for folder in self.folders[:0]:",
        "the name of a new segment is not durable",
    ),
    Mutant(
        "vector-ignored",
        "journal/cycles.py",
        "lacking = tuple(scan.shard for scan in scans if ends[scan.shard] < mark.ends[scan.shard])",
        "lacking = ()",
        "each shard recovers to its own newest mark, whatever the others have",
    ),
    Mutant(
        "frame-lsn-off-by-one",
        "journal/shard_writer.py",
        "self._append(encode_header(self.next_lsn, ts, prev_record_offset))",
        "self._append(encode_header(Lsn(self.next_lsn + 1), ts, prev_record_offset))",
        "the head of a frame names the lsn after its first record",
    ),
    Mutant(
        "finish-missing",
        "journal/appender.py",
        "flags = FINISH if last_of[new.shard] == index else 0",
        "flags = FINISH if index == len(records) - 1 else 0",
        "only one shard of a transaction ends its part",
    ),
    Mutant(
        "finish-ignored",
        "journal/reader.py",
        "            if flags & FINISH:\n                if (open_part or",
        "            if True:\n                if (open_part or",
        "every record is handed out as a transaction of its own",
    ),
    Mutant(
        "blob-not-synced",
        "journal/open_files.py",
        "        self.dirty[path] = None",
        "        self.dirty.update({} if '/blob-' in path else {path: None})",
        "a cycle is said to be durable without its whales",
    ),
    Mutant(
        "staged-value-of-an-ended-segment",
        "journal/shard_writer.py",
        "if staged.position.segment != self._segment or len(head)",
        "if len(head)",
        "a record refers to a place in the blob file of its segment, and the value lies in that of another",
    ),
    Mutant(
        "staged-crc-of-the-value-alone",
        "journal/shard_writer.py",
        "crc = joined_crc(crc32c(head), staged.crc, staged.size)",
        "crc = staged.crc",
        "the checksum of a staged payload leaves out its head",
    ),
    Mutant(
        "staged-room-given-out-twice",
        "journal/shard_writer.py",
        "        self._blob_end = start + size\n",
        "        self._blob_end = start\n",
        "the next whale is written over a value that was staged",
    ),
    Mutant(
        "staged-fsync-error-ignored",
        "journal/writer.py",
        "each.sync_error for each in self._stage_jobs if each.sync_error is not None",
        "each.sync_error for each in ()",
        "what was lost by a failed fsync of a staged value is said to be durable by the next fsync of the same file",
        seed=23_000_328,
    ),
    Mutant(
        "blob-crc-not-checked",
        "journal/blob.py",
        "if crc != reference.crc:",
        "if False:",
        "a whale that did not reach the disk is believed",
    ),
    Mutant(
        "tail-not-truncated",
        "journal/loader.py",
        "if file.size() > cut.at:",
        "if False:",
        "what recovery left out lies behind what is written next",
    ),
    Mutant(
        "kept-not-synced",
        "journal/loader.py",
        "                    file.sync()",
        "                    pass",
        "what recovery keeps may be in the page cache alone",
    ),
    Mutant(
        "durable-too-early",
        "journal/writer.py",
        "        self._sync_in_flight = True\n",
        "        self._sync_in_flight = True\n        self._durable_ts = self._written.ts\n",
        "what is about to be fsynced is said to be durable",
    ),
    Mutant(
        "written-during-a-sync-forgotten",
        "journal/writer.py",
        "        if job.files:\n",
        "        if job.files:\n            self._files.dirty.clear()\n",
        "what was written while an fsync ran is never fsynced",
    ),
    Mutant(
        "visible-too-early",
        "journal/writer.py",
        "        if self.policy is not FsyncPolicy.ALWAYS:\n            self._visible = self._written",
        "        self._visible = self._written",
        "readers see what a power cut can still take back",
    ),
    Mutant(
        "synced-cycle-too-high",
        "journal/writer.py",
        ".end_batch(self._cycle, self._last_ts, self._synced_cycle, ends)",
        ".end_batch(self._cycle, self._last_ts, Cycle(self._cycle - 1), ends)",
        "a mark names as synced what is only written, so a torn tail looks like rot",
    ),
    Mutant(
        "full-batch-dropped",
        "journal/writer.py",
        "            self.refusal = JournalFull(",
        "            self._pending = None\n            self.refusal = JournalFull(",
        "what was accepted is gone after the disk was full",
    ),
    Mutant(
        "failed-sync-retried",
        "journal/writer.py",
        '            self._fail("an fsync", error)',
        "            self._files.dirty.update({path: None for path, _ in job.files})\n            return",
        "after a failed fsync the next one is believed, although the pages were given up",
    ),
    Mutant(
        "failed-sync-ignored",
        "journal/writer.py",
        '            self._fail("an fsync", error)',
        "            pass",
        "a failed fsync counts as one that worked",
    ),
    Mutant(
        "clock-not-synced",
        "hlc.py",
        "        self.write(ts, clean=clean)\n        self.sync()",
        "        self.write(ts, clean=clean)",
        "a ts may be given out twice",
    ),
    Mutant(
        "clock-starts-at-the-journal",
        "hlc.py",
        "self.last: Ts = stored.ts if stored is not None else Ts(0)",
        "self.last: Ts = stored.ts if stored is not None and stored.clean else Ts(0)",
        "after a crash the clock goes on from the journal, below what was given out and lost",
    ),
    Mutant(
        "snapshot-not-synced",
        "journal/snapshot.py",
        "            self._files.sync(self._check_wanted)\n",
        "",
        "a snapshot gets its name before it is durable",
    ),
    Mutant(
        "snapshot-ahead-of-journal",
        "journal/journal.py",
        "if self.writer.durable_ts < snapshot.point.ts:",
        "if False:",
        "a snapshot counts before the journal is durable up to its point",
    ),
    Mutant(
        "erased-ts-after-unlink",
        "journal/journal.py",
        "        self._erased.store(max(self.erased_ts, going[-1].last_ts))\n",
        "        going_ts = max(self.erased_ts, going[-1].last_ts)\n"
        "        for segment in going:\n"
        "            remove_segment(self._disk, layout.shard_folder(self._folder, segment.shard), segment.first)\n"
        "        self._erased.store(going_ts)\n",
        "segments go before it is durable that they are gone",
        seed=7_000_347,
    ),
    Mutant(
        "erases-what-is-not-covered",
        "journal/retention.py",
        "            if after >= covered[source.shard]:\n                break\n",
        "",
        "segments behind the snapshot go, and with them the newest synced mark",
    ),
    Mutant(
        "holder-ignored",
        "journal/retention.py",
        "    if needed is None:\n",
        "    if needed != -1:\n",
        "what someone still wants to read is erased",
    ),
    Mutant(
        "ring-confuses-segments",
        "journal/ring.py",
        "ring.push((segment, at), chunk)",
        "ring.push((segment, at), (ring._chunks[ring._head :] or [chunk])[-1])",
        "the ring serves bytes of another place",
    ),
    Mutant(
        "ring-unbounded",
        "journal/ring.py",
        "while self._bytes > self._bytes_max:",
        "while False:",
        "the ring grows with the journal",
    ),
    Mutant(
        "first-ts-omitted",
        "journal/appender.py",
        "                flags |= TS\n",
        "                flags |= TS if index == 0 else 0\n",
        "the first record of a transaction in a further shard has no ts",
    ),
    Mutant(
        "select-omitted",
        "journal/shard_writer.py",
        "        if self.database:\n            self._append(control.encode_select(self.database))",
        "        pass",
        "a frame does not begin with the database that is selected",
    ),
    Mutant(
        "short-write-ignored",
        "journal/layout.py",
        "while written < total:",
        "while False:",
        "what a short write left is never written",
    ),
    Mutant(
        "no-epoch-after-a-crash",
        "journal/journal.py",
        "not (hlc.was_clean and epochs and not plan.tail_bytes)",
        "not epochs",
        "who saw what was lost is not told",
    ),
    Mutant(
        "frame-crc-not-checked-by-the-reader",
        "journal/reader.py",
        'raise Corruption("the checksum of the frame is wrong")',
        "pass",
        "a reader hands out what rotted",
        "damage",
    ),
    Mutant(
        "rot-taken-for-a-tail",
        "journal/loader.py",
        "if complete.cycle >= complete.synced_cycle:",
        "if True:",
        "what was fsynced and rotted is cut off without a word",
        "damage",
    ),
    Mutant(
        "marks-beyond-damage-not-looked-for",
        "journal/scan.py",
        "        return Cycle(highest)\n",
        "        return Cycle(0)\n",
        "rot looks like a tail, because the marks that say otherwise lie behind it",
        "damage",
    ),
    Mutant(
        "head-believed-before-it-is-proved",
        "journal/scan.py",
        "        if not start.at:\n            return start.segment\n",
        "",
        "a damaged head makes a shard look as if it had everything",
        "damage",
    ),
)


def misplaced(mutant: Mutant) -> str:
    """Why a mutant cannot be applied to the source as it is; empty: it can."""
    path = SOURCE / "tidelog" / mutant.file
    if not path.exists():
        return f"{mutant.name}: there is no {mutant.file}; rewrite the mutant"
    text = path.read_text()
    count = text.count(mutant.old)
    if count != 1:
        return f"{mutant.name}: its text occurs {count} times in {mutant.file}; rewrite the mutant"
    try:
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    except SyntaxError as error:
        return f"{mutant.name}: {mutant.file} is no Python with it: {error}"
    return ""


def apply(mutant: Mutant | None, folder: Path) -> Path:
    """Copy the package into a folder, with the bug in it; returns what must come first in PYTHONPATH."""
    package = folder / "tidelog"
    for pattern in COPIED:
        for file in (SOURCE / "tidelog").glob(pattern):
            target = package / file.relative_to(SOURCE / "tidelog")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    if mutant is not None:
        if problem := misplaced(mutant):
            raise ValueError(problem)
        path = package / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
    return folder


# --- the hunt, in a process of its own --------------------------------------------------------------------------------


def hunt_crashes(worlds_max: int, first_seed: int, _focus: str) -> Iterator[str]:
    from tests.simulation.run import run_seed

    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        _, _, _, problem = run_seed(seed)
        if problem:
            yield f"seed {seed}: {problem}"


def hunt_damage(worlds_max: int, _first_seed: int, _focus: str) -> Iterator[str]:
    from random import Random

    from tests.journal.test_tail import (
        test_a_start_that_is_cut_short_anywhere_loses_nothing_and_the_next_tells_it,
        test_only_the_newest_are_kept_and_the_count_goes_on,
    )
    from tests.simulation.agreement import check_refusals, damage_and_compare
    from tests.simulation.specimen import closed, every_bit, flip_each, shards, torn, with_snapshot
    from tests.simulation.test_damage import (
        test_a_missing_or_shortened_segment_is_refused,
        test_a_reader_hands_out_nothing_of_a_damaged_frame,
        test_the_last_segment_of_a_shard_cut_at_every_byte,
    )
    from tidelog.journal.durability import FsyncPolicy

    try:
        bits = range(32, 96, 9)  # of the lsn in the head of a frame
        for specimen in (closed(), torn(), shards()):
            heads = [(path, bit) for path in specimen.paths(part="/journal-") for bit in bits]
            flip_each(specimen, heads + Random(1).sample(every_bit(specimen), worlds_max))
        # Here no epoch begins in what is scanned, which would tell that a shard has nothing.
        flip_each(with_snapshot(), [(path, bit) for path in with_snapshot().paths(part="/shard-1/") for bit in bits])
        test_a_reader_hands_out_nothing_of_a_damaged_frame(0)
        test_only_the_newest_are_kept_and_the_count_goes_on()
        test_a_start_that_is_cut_short_anywhere_loses_nothing_and_the_next_tells_it(1)
        test_a_missing_or_shortened_segment_is_refused(FsyncPolicy.NEVER)
        test_a_missing_or_shortened_segment_is_refused(FsyncPolicy.EVERYSEC)
        test_the_last_segment_of_a_shard_cut_at_every_byte(0)
        for specimen in (closed(), shards()):
            check_refusals(specimen)
            for seed in range(worlds_max // 4):
                damage_and_compare(specimen, seed)
    except Exception as error:  # any failure is what is hunted for
        yield f"{type(error).__name__}: {error}"


def hunt_store(worlds_max: int, first_seed: int, focus: str) -> Iterator[str]:
    from tests.simulation.store_world import StoreWorld

    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        try:
            StoreWorld(seed, focus=focus).run()
        except Exception as error:  # any failure is what is hunted for
            yield f"seed {seed}: {type(error).__name__}: {error}"


def hunt_cooling(worlds_max: int, first_seed: int, _focus: str) -> Iterator[str]:
    from tests.simulation.cooling_world import CoolingWorld
    from tests.simulation.node_damage import flip_bits, node_specimen

    try:
        flip_bits(node_specimen(), node_specimen().bits[::41])
    except Exception as error:  # any failure is what is hunted for
        yield f"bits: {type(error).__name__}: {error}"
    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        try:
            CoolingWorld(seed).run()
        except Exception as error:  # any failure is what is hunted for
            yield f"seed {seed}: {type(error).__name__}: {error}"


def hunt_feeds(worlds_max: int, first_seed: int, _focus: str) -> Iterator[str]:
    from tests.simulation.feed_world import FeedWorld

    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        try:
            FeedWorld(seed).play(150)
        except Exception as error:  # any failure is what is hunted for
            yield f"seed {seed}: {type(error).__name__}: {error}"


def hunt_replication(worlds_max: int, first_seed: int, _focus: str) -> Iterator[str]:
    from tests.simulation.run import run_replication_seed

    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        *_, problem = run_replication_seed(seed)
        if problem:
            yield f"seed {seed}: {problem}"


def hunt_shipping(worlds_max: int, first_seed: int, _focus: str) -> Iterator[str]:
    from tests.simulation.run import run_shipping_seed

    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        *_, problem = run_shipping_seed(seed)
        if problem:
            yield f"seed {seed}: {problem}"


def hunt_copies(worlds_max: int, first_seed: int, _focus: str) -> Iterator[str]:
    from tests.simulation.copy_world import CopyWorld
    from tests.simulation.run import undisturbed

    for seed in [first_seed, *range(FIRST_SEED, FIRST_SEED + worlds_max)]:
        try:
            with undisturbed():
                CopyWorld(seed).run()
        except Exception as error:
            yield f"seed {seed}: {type(error).__name__}: {error}"


HUNTS: Final = {
    "crashes": hunt_crashes,
    "damage": hunt_damage,
    "store": hunt_store,
    "cooling": hunt_cooling,
    "feeds": hunt_feeds,
    "replication": hunt_replication,
    "shipping": hunt_shipping,
    "copies": hunt_copies,
}


def main() -> int:
    kind, worlds_max, source = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    first_seed = int(sys.argv[4]) if len(sys.argv) > 4 else FIRST_SEED
    focus = sys.argv[5] if len(sys.argv) > 5 else ""
    import tidelog

    if source.resolve() not in Path(tidelog.__file__).resolve().parents:
        raise SystemExit(f"{tidelog.__file__} was imported instead of the copy in {source}")
    for catch in HUNTS[kind](worlds_max, first_seed, focus):
        print(catch)
        return NONSENSE if any(name in catch for name in _NO_MISTAKES) else CAUGHT
    return 0


if __name__ == "__main__":
    sys.exit(main())
