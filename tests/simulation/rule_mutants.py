"""Planted bugs of what the journal tells, keeps and refuses (`mutants`)."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

RULES: Final = (
    Mutant(
        "synced-not-vouched-for",
        "journal/writer.py",
        "        if not any(shard.is_dirty for shard in self._shards):",
        "        if False:",
        "what was fsynced last is named by no mark, so damage in it is cut like a torn tail",
    ),
    Mutant(
        "vouches-for-its-own-marks",
        "journal/writer.py",
        "self._vouched_cycle >= min(self._data_cycle, self._synced_cycle)",
        "self._vouched_cycle >= self._synced_cycle",
        "an idle server writes marks for ever",
    ),
    Mutant(
        "segment-made-before-the-last-is-named",
        "journal/open_files.py",
        "                    self._disk.sync_folder(folder)\n",
        "                    pass\n",
        "a power cut leaves a segment without the one before it, which looks as if it had been taken away",
        seed=7_000_586,
    ),
    Mutant(
        "tail-not-copied",
        "journal/tail.py",
        "            copy_end(disk, source, piece, _free_name(disk, target_folder, source, piece))\n",
        "",
        "the end of a segment is cut off for good",
    ),
    Mutant(
        "tail-removed-instead-of-moved",
        "journal/loader.py",
        'disk.rename(f"{folder}/{name}", free_path(disk, f"{aside}/{name}"))',
        'disk.remove(f"{folder}/{name}")',
        "segments behind the cut are gone for good",
    ),
    Mutant(
        "tail-moved-oldest-first",
        "journal/loader.py",
        "sorted(owners, reverse=True)",
        "sorted(owners)",
        "a start that is cut short leaves a segment without the one before it",
        "damage",
    ),
    Mutant(
        "tail-not-told",
        "journal/journal.py",
        "hlc, writer, ring, plan, cut_tail, epochs)",
        "hlc, writer, ring, plan, None, epochs)",
        "nobody hears that something was cut",
    ),
    Mutant(
        "tails-kept-for-ever",
        "journal/tail.py",
        "half_made + whole[: -(limits.CUT_TAILS_KEPT - 1)]",
        "half_made",
        "every crash costs disk space for ever",
        "damage",
    ),
    Mutant(
        "what-no-crash-leaves-is-cut",
        "journal/cycles.py",
        "refused = [scan for scan in scans if scan.is_refused]",
        "refused = []",
        "records of a newer version, and what follows a missing segment, are cut like a torn tail",
        "damage",
    ),
    Mutant(
        "file-cut-short-ends-the-journal",
        "journal/scan.py",
        "        elif not is_last_segment:",
        "        elif False:",
        "segments behind a file that was cut are never looked at",
        "damage",
    ),
    Mutant(
        "transaction-without-an-end",
        "journal/scan.py",
        'the transaction has no end") if self._is_open else None',
        'the transaction has no end") if False else None',
        "a transaction without an end is left out without a word",
        "damage",
    ),
    Mutant(
        "verify-does-not-start",
        "journal/verify.py",
        "            audit.check_start()\n",
        "",
        "verify calls sound what a server refuses",
        "damage",
    ),
    Mutant(
        "other-frame-size-believed",
        "journal/loader.py",
        "    check_shard_metas(disk, folder, meta)\n",
        "",
        "a meta.json of another directory is believed",
        "damage",
    ),
)
