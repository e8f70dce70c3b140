"""What goes of a stream by its rule (TCONFIG).

    MAXBYTES    the oldest nodes go while its entries take more bytes
    MAXAGE      nodes go once their last entry is older
    BACKLOG     so many of its newest entries stay, whatever the others say; alone: all others go

An entry goes if one of the first two says so and BACKLOG does not keep it: with MAXAGE that is what TWRITE's options of
these names mean. Whole nodes go, oldest first. The active node goes only as a whole too, and never for its bytes.

The cost follows what goes, and no node is opened: a node's last id, count and bytes are known without.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from tidelog.streams.rows import pack_id
from tidelog.streams.stream import Stream

BY_AGE: Final = "age"
BY_BYTES: Final = "bytes"
BY_BACKLOG: Final = "backlog"
BY_TOTAL: Final = "total"
REASONS: Final = (BY_AGE, BY_BYTES, BY_BACKLOG, BY_TOTAL)
"""Why entries go: the last because all streams of a server take too many bytes."""


class GoingNode(NamedTuple):
    """A node that goes: why, how many entries it has, and what they take."""

    reason: str
    entries: int
    bytes: int


def going_by_rule(stream: Stream, now_ms: int, nodes_max: int) -> tuple[int, list[GoingNode]]:
    """The first offset that stays, and the nodes before it, at most so many. The stream must have a rule."""
    rule = stream.rule
    assert rule is not None
    is_backlog_alone = not rule.bytes_max and not rule.age_max_ms
    excess = stream.entry_bytes - rule.bytes_max if rule.bytes_max else 0
    oldest_id = pack_id(max(now_ms - rule.age_max_ms, 0), 0) if rule.age_max_ms else 0
    spare = stream.length - rule.backlog
    first = stream.first
    going: list[GoingNode] = []
    for node in islice(stream.sealed, nodes_max):
        if node.last_id < oldest_id:
            reason = BY_AGE
        elif excess > 0:
            reason = BY_BYTES
        elif is_backlog_alone:
            reason = BY_BACKLOG
        else:
            return first, going
        if node.count > spare:
            return first, going
        going.append(GoingNode(reason, node.count, node.opened_bytes))
        excess -= node.opened_bytes
        spare -= node.count
        first = node.last_offset + 1
    active = stream.active
    if len(going) == len(stream.sealed) and 0 < len(active) <= spare:
        is_old = active.last_id < oldest_id
        if is_old or is_backlog_alone:
            going.append(GoingNode(BY_AGE if is_old else BY_BACKLOG, len(active), active.size_bytes))
            first = stream.next
    return first, going
