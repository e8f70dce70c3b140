"""A process that writes to a data directory until it is ended: `live_writer.py DIR [erase]`.

Prints a line when it has begun. With `erase`, it takes snapshots and erases what they cover, so that segments vanish
under whoever looks.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Final

from tidelog.ids import ShardId
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.retention import RetentionLimits
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

_REST_S: Final = 0.001
"""Between two writes: whoever reads it all, again and again, must be faster."""


def main() -> None:
    folder, erases = sys.argv[1], sys.argv[2:] == ["erase"]
    # `verify` lists the folder once a segment: without erasing, small segments would become too many for a test.
    frames = 4 if erases else 64
    rng = random.Random(1)
    settings = Settings(
        Geometry(4096, frames), 2, FsyncPolicy.EVERYSEC, retention=RetentionLimits(bytes_max=0, snapshots_kept=1)
    )
    journal = Journal.open(
        SystemDisk(), folder, SystemClock(), settings, apply=lambda _, __: None, new_epoch_id=lambda: 7
    )
    number = 0
    while True:
        for _ in range(rng.randrange(1, 20)):
            number += 1
            sizes = rng.choice([[10], [300], [800, 100], [2000]])
            journal.writer.append(
                journal.hlc.next(),
                [
                    NewRecord(ShardId(shard), VAL, encode_pairs([(b"key:%d" % (number % 100), b"v" * size)]))
                    for shard, size in enumerate(sizes)
                ],
            )
        journal.writer.write()
        if rng.random() < 0.1:
            journal.writer.sync()
        if erases and rng.random() < 0.02 and (snapshot := journal.begin_snapshot()) is not None:
            journal.finish_snapshot(snapshot)
            journal.erase()
        time.sleep(_REST_S)
        if number > 500:
            print("writing", flush=True)
            number = -(10**12)


if __name__ == "__main__":
    main()
