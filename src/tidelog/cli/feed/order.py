"""Events of a feed in order of ts: kept until a checkpoint says that nothing older follows."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tidelog import limits
from tidelog.errors import LimitExceeded

if TYPE_CHECKING:
    from tidelog.client.event import Checkpoint, Event

_EVENT_BYTES = 300
"""What one takes beside what is in it, about."""


class Ordered:
    """Takes events as they come and gives them out in order."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._bytes = 0
        self._closed_ts = -1

    def take(self, event: Event, checkpoint: Checkpoint | None) -> Iterator[Event]:
        """An event, and the newest checkpoint over all spans: the events whose turn it is."""
        self._events.append(event)
        self._bytes += _size(event)
        if checkpoint is not None and checkpoint.ts > self._closed_ts:
            self._closed_ts = checkpoint.ts
            ready = [each for each in self._events if each.ts <= checkpoint.ts]
            self._events = [each for each in self._events if each.ts > checkpoint.ts]
            self._bytes = sum(map(_size, self._events))
            ready.sort(key=attrgetter("ts"))  # stable: a transaction keeps its order
            yield from ready
        elif self._bytes > limits.FEED_ORDERED_BYTES_MAX:
            raise LimitExceeded(
                f"{len(self._events)} events without a checkpoint take more than {limits.FEED_ORDERED_BYTES_MAX >> 20} "
                f"MiB, which is too much to put them in order: none of them was printed; try again without --ordered"
            )


def _size(event: Any) -> int:
    value = getattr(event, "value", None)
    return _EVENT_BYTES + len(getattr(event, "key", b"")) + _bytes_in(value)


def _bytes_in(value: Any) -> int:
    if isinstance(value, list):
        return 64 * len(value) + sum(map(_bytes_in, value))
    return len(value) if isinstance(value, bytes) else 0
