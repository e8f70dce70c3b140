"""The keys of a job set.

    {<queue>_<jobset>}_<YYYY-MM-DD>               hot stream: the events of one UTC day, an entry each
    {<queue>_<jobset>}_compressed_<YYYY-MM-DD>    compressed stream: the same events, an entry for up to 4 MB of them
    {<queue>_<jobset>}_streams                    index: set of the full keys of the streams that count
    {<queue>_<jobset>}_late                       stream of messages that came too late for their day
    {<queue>_<jobset>}_fence                      token of the job that rewrites one of its days, while it does
    {<queue>_<jobset>}_expired                    highest id that retention has removed
    {<queue>_<jobset>}_left_hot                   hash of the days whose compression would save too little

All begin with the same hash tag, so that a Redis Cluster keeps them in one slot and a transaction may span them. In
queue and job set the characters `{ } _ %` are percent-encoded: the tag ends where it should, and no two job sets share
a key (`a_b` and `c`, `a` and `b_c`).

A stream counts if the index has it. Streams are ordered by their day, never by their key: every compressed key would
sort behind every hot one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from tidelog import limits
from tidelog.errors import ClientError, LimitExceeded

_ENCODED: Final = {ord(char): f"%{ord(char):02X}" for char in "{}_%"}
_STREAM: Final = re.compile(rb"_(compressed_)?(\d{4}-\d{2}-\d{2})")
_INDEX: Final = re.compile(rb"\{([^{}_]+)_([^{}_]+)\}_streams", re.DOTALL)


class DayStream(NamedTuple):
    """One stream of a job set. A day may have two for a moment; then the compressed one sorts and is read first."""

    day: date
    is_hot: bool
    key: bytes


class JobSet:
    """A queue's job set, by its names."""

    def __init__(self, queue: str, jobset: str) -> None:
        self.queue = queue
        self.jobset = jobset
        tag = b"{%b_%b}" % (_encoded("queue", queue), _encoded("job set", jobset))
        self.index: Final = tag + b"_streams"
        self.late: Final = tag + b"_late"
        self.fence: Final = tag + b"_fence"
        self.expired: Final = tag + b"_expired"
        self.left_hot: Final = tag + b"_left_hot"
        self._tag = tag

    def __repr__(self) -> str:
        return f"JobSet({self.queue!r}, {self.jobset!r})"

    def hot(self, day: date) -> DayStream:
        return DayStream(day, True, b"%b_%b" % (self._tag, day.isoformat().encode()))

    def compressed(self, day: date) -> DayStream:
        return DayStream(day, False, b"%b_compressed_%b" % (self._tag, day.isoformat().encode()))

    def stream(self, key: bytes) -> DayStream | None:
        """The stream that a member of the index names; None if it names none of this job set."""
        found = _STREAM.fullmatch(key, len(self._tag)) if key.startswith(self._tag) else None
        if found is None:
            return None
        try:
            return DayStream(date.fromisoformat(found[2].decode()), found[1] is None, key)
        except ValueError:  # the 31st of February
            return None

    def streams(self, members: Iterable[bytes]) -> list[DayStream]:
        """The streams that the members of the index name, in the order in which they are read."""
        return sorted(stream for stream in map(self.stream, members) if stream is not None)


def jobset_of_index(key: bytes) -> JobSet | None:
    """The job set that an index belongs to; None if the key is not an index."""
    found = _INDEX.fullmatch(key)
    if found is None:
        return None
    names = [unquote_to_bytes(part).decode(errors="surrogateescape") for part in found.groups()]
    made = JobSet(*names)
    return made if made.index == key else None


def _encoded(what: str, name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    if not encoded:
        raise ClientError(f"a {what} needs a name")
    if len(encoded) > limits.DAYS_NAME_BYTES_MAX:
        raise LimitExceeded(f"the name of a {what} has at most {limits.DAYS_NAME_BYTES_MAX} bytes, not {len(encoded)}")
    return name.translate(_ENCODED).encode("utf-8", "surrogateescape")
