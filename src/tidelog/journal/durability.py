"""What is durable, what is visible, and what an fsync has to do: the values that the writer exchanges with the server.

The writer says *what* is to be fsynced (`SyncJob`); the server's loop chooses the thread. One job is under way at a
time, and many transactions share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.hlc import HybridClock
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal.segment import FilePosition
from tidelog.journal.shard_writer import ShardState
from tidelog.ports import Disk, File


class FsyncPolicy(Enum):
    """When what was written is made durable."""

    ALWAYS = "always"
    EVERYSEC = "everysec"
    NEVER = "never"


class Visible(NamedTuple):
    """How far readers may see: the end of a cycle, over all shards."""

    cycle: Cycle
    ts: Ts
    """Of the last transaction."""
    lsns: tuple[Lsn, ...]
    """Per shard, the first lsn that is not there yet."""
    ends: tuple[FilePosition | None, ...]
    """Per shard, where its files end; None: it has none."""


class BlobExtent(NamedTuple):
    """Bytes of a blob file that records of a cycle refer to; other bytes of it may still be on their way."""

    cycle: Cycle
    shard: ShardId
    position: FilePosition
    size: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a writer goes on."""

    shards: tuple[ShardState, ...]
    cycle: Cycle
    """The last one that is complete."""
    synced_cycle: Cycle
    last_ts: Ts


@dataclass(slots=True)
class SyncJob:
    """Files and folders to fsync. `run` is for any thread; the rest is for the writer."""

    cycle: Cycle
    visible: Visible
    files: list[tuple[str, File | None]]
    """Path, and the file if it is open."""
    folders: list[str]
    size: int
    """How many bytes of the journal become durable."""
    renews_clock: bool
    disk: Disk
    hlc: HybridClock

    def run(self) -> None:
        """Fsync. Any `OSError` goes to `finish_sync`."""
        for path, open_file in self.files:
            file = open_file or self.disk.open(path, "write")
            try:
                file.sync()
            finally:
                if open_file is None:
                    file.close()
        for folder in self.folders:
            self.disk.sync_folder(folder)
        if self.renews_clock:
            self.hlc.sync()
