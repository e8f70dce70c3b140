"""What the parts of the demo compare: the messages of a job set, in order, as a number and a digest.

Who made them, who was told of them by a feed and who reads them back are different processes. If the three digests are
the same, all have seen the same ids and the same bytes in the same order, each once.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple


class Seen(NamedTuple):
    """What somebody has seen of a job set."""

    messages: int
    digest: str


class MessageDigest:
    """Grows with every message."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._count = 0

    def add(self, message_id: bytes, event: bytes) -> None:
        self._hash.update(b"%b %d\n%b" % (message_id, len(event), event))
        self._count += 1

    @property
    def seen(self) -> Seen:
        return Seen(self._count, self._hash.hexdigest())
