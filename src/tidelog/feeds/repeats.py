"""Readers that begin at the same place again and again.

A client that is broken, or that dies of what it reads, connects again and asks for the same history, which is read from
disk each time. Nothing is wrong with a request, so none is refused: past some repeats it begins later, while its
connection stays open and is given checkpoints. So such a client costs a bounded share, and one that comes back for good
reasons notices nothing.

A repeat has the same address (without the port), database, keys, name, SHARD and UNTIL, and begins at the same place. A
client that moves on in between is never held back.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.ports import Clock


class Repeats:
    """How often each place was asked for. One number per place: when it will have been asked for no more than once."""

    def __init__(self, clock: Clock, burst: int = limits.FEED_REPEATS_DEFAULT) -> None:
        self._clock = clock
        self.burst = burst
        """So many come at once, then one every `FEED_REPEAT_US`; 0: there is no limit."""
        self.delayed_count = 0
        self._even_us: dict[int, int] = {}

    def delay_us(self, peer: str, request: ChangeFeedRequest) -> int:
        """How long a feed waits before it begins to read."""
        if not self.burst or (request.since is None and not request.is_initial):
            return 0  # it begins now, or where its name was left, which moves on
        place = hash((
            peer.rpartition(":")[0], request.database, tuple(request.spans), request.name, request.shard,
            request.since, request.is_initial, request.until,
        ))  # fmt: skip
        now_us = self._clock.monotonic_us()
        allowed_us = self.burst * limits.FEED_REPEAT_US
        even_us = max(now_us, self._even_us.pop(place, 0)) + limits.FEED_REPEAT_US
        even_us = min(even_us, now_us + allowed_us + limits.FEED_REPEAT_DELAY_US_MAX)
        self._even_us[place] = even_us
        if len(self._even_us) > limits.FEED_REPEATS_KEPT:
            del self._even_us[next(iter(self._even_us))]
        delay_us = max(0, even_us - now_us - allowed_us)
        self.delayed_count += delay_us > 0
        return delay_us
