"""A change feed of the demo, in a process of its own: it is told of every change of the day streams, and keeps count.

`python -m demo.watcher URL` prints a line of JSON at each checkpoint:

    {"ts": ..., "seen": {"queue/jobset": [messages, digest]}, "late": n, "reconnected": n,
     "compressed": {"queue/jobset": n}, "gone": {"queue/jobset": n}}

`seen` are messages, in the order in which they were told; `compressed` are the entries of compressed days, `gone` the
hot days whose streams were deleted. Nothing at or below `ts` will follow.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from demo.digest import MessageDigest
from tidelog.client.event import Value
from tidelog.client.listening import Listener

if TYPE_CHECKING:
    from tidelog.client.event import Checkpoint, Event
    from tidelog.client.feed import Lost

_KEY: Final = re.compile(rb"\{([^_]+)_([^_]+)\}_(compressed_)?(\d{4}-\d\d-\d\d|late)")
_CHECKPOINT_MS: Final = 250
_AWAY_S_MAX: Final = 60.0


class FeedWatcher:
    """What a feed has told so far."""

    def __init__(self) -> None:
        self._seen: dict[str, MessageDigest] = defaultdict(MessageDigest)
        self._compressed: Counter[str] = Counter()
        self._gone: Counter[str] = Counter()
        self._late = 0
        self._is_lost = False
        self._reconnected = 0
        self._told_ts = 0

    def take(self, event: Event, checkpoint: Checkpoint | None) -> bool:
        self._reconnected += self._is_lost
        self._is_lost = False
        if isinstance(event, Value):
            self._take_value(event)
        if checkpoint is not None and checkpoint.ts > self._told_ts:
            self._told_ts = checkpoint.ts
            self._tell()
        return False

    def _take_value(self, event: Value) -> None:
        found = _KEY.fullmatch(event.key)
        if found is None:  # an index, a fence
            return
        name = b"/".join(map(unquote_to_bytes, found.group(1, 2))).decode()
        if event.value is None:
            self._gone[name] += 1
        elif event.field is not None:
            return
        elif found[4] == b"late":
            self._late += len(event.value)
        elif found[3]:
            self._compressed[name] += len(event.value)
        else:
            for _, entry_id, _, (_, message, *_) in event.value:
                self._seen[name].add(entry_id, message)

    def lose(self, _lost: Lost) -> None:
        self._is_lost = True

    def _tell(self) -> None:
        members = {
            "ts": self._told_ts,
            "seen": {name: digest.seen for name, digest in sorted(self._seen.items())},
            "late": self._late,
            "reconnected": self._reconnected,
            "compressed": self._compressed,
            "gone": self._gone,
        }
        print(json.dumps(members), flush=True)


def main() -> None:
    watcher = FeedWatcher()
    with Listener(sys.argv[1]) as listener:
        listener.listen(
            watcher.take,
            prefix=[b"{"],
            checkpoint_ms=_CHECKPOINT_MS,
            on_lost=watcher.lose,
            reconnect_s_max=_AWAY_S_MAX,
        )


if __name__ == "__main__":
    main()
