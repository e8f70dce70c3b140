"""How far a feed has come: where it resumes, and what is not to be delivered again.

    checkpoint, for every span      nothing at or below the least of them will follow: the feed resumes there
    events above it                 counted by their ts: so many of each come again after a reconnect, and are dropped

A transaction has its events in the same order whenever it is sent, so counting them is enough. What is counted is
bounded: past `CLIENT_FEED_REMEMBERED_MAX` transactions without a checkpoint the oldest are forgotten, and delivered
again. Nothing is counted while initial values come: without a checkpoint after them they begin anew.

`epoch` and `seen` let the server tell whether what was delivered is still history there. They belong together: once a
connection has taken us in, what we have seen is part of the history of *its* epoch. A server that is made a leader
begins another one while we are connected; its checkpoints say so.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog import limits
from tidelog.client.event import Checkpoint, DeleteRange, Event, Steady
from tidelog.client.request import FeedRequest, Word


class Progress:
    """How far one feed has come, over all its connections."""

    def __init__(self, request: FeedRequest) -> None:
        self._request = request
        self._by_span: dict[tuple[bytes, bytes], Checkpoint] = {}
        self._checkpoints_at_once = 1 if request.one_checkpoint else len(request.spans)
        """The server sends so many in a row."""
        self._checkpoint_count = 0
        """Since the least of them was last looked for."""
        self.checkpoint: Checkpoint | None = None
        """The least over all spans; None: there is not one for each yet."""
        since = request.since
        self._since = since.ts if isinstance(since, Checkpoint) else since
        self._epoch = since.epoch if isinstance(since, Checkpoint) else None
        self._seen = since.seen if isinstance(since, Checkpoint) else 0
        self._delivered: dict[int, int] = {}
        """How many events of each transaction, above the checkpoint."""
        self._repeated: dict[int, int] = {}
        """How many of them this connection will send again."""
        self._epoch_here = 0
        """That of the server that we are connected to, which has not taken us in yet."""
        self._is_taken_in = False

    def has_ended(self) -> bool:
        """UNTIL is reached."""
        until = self._request.until
        return until is not None and self.checkpoint is not None and self.checkpoint.ts >= until

    @property
    def since(self) -> int | None:
        """The point from which the feed resumes."""
        return self._since

    # --- connections --------------------------------------------------------------------------------------------

    def is_ahead(self, visible_ts: int) -> bool:
        """Whether initial values were delivered that are newer than what a server has.

        They begin anew, and must not be older then: readers may sort by ts.
        """
        return self._is_scanning and self._seen > visible_ts

    def begin(self, visible_ts: int, epoch: int) -> list[Word]:
        """A connection begins, to a server that stands at a ts in an epoch: where the feed is to begin."""
        self._repeated = dict(self._delivered)
        self._epoch_here, self._is_taken_in = epoch, False
        if self._is_scanning:
            return ["INITIAL"]
        if self._since is None:
            if self._request.name is not None:
                return []  # where its name was left
            # "From now on" means from this moment on also if the connection is lost before the first checkpoint.
            self._since = self._seen = visible_ts
            self._epoch = epoch
        words: list[Word] = ["SINCE", self._since]
        if self._epoch is not None:
            words += ["EPOCH", self._epoch, "SEEN", self._seen]
        return words

    @property
    def _is_scanning(self) -> bool:
        return self._request.initial and self.checkpoint is None

    def start_over(self) -> Sequence[DeleteRange]:
        """The events that take back old values before initial values begin anew."""
        if not self._is_scanning or not self._seen:
            return []
        ts, self._seen = self._seen, 0
        return [DeleteRange(ts, span.start, span.end) for span in self._request.spans]

    # --- events -------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> bool:
        """Whether an event is to be delivered."""
        if not self._is_taken_in:
            self._is_taken_in = True
            if self._since is not None and self._epoch != self._epoch_here and event.ts <= self._since:
                # The clock there is behind our checkpoint, as it may be where a backup was restored. The server knows
                # what we share, and goes on from there.
                self._since = event.ts - 1
                self._by_span.clear()
            self._epoch = self._epoch_here
        if isinstance(event, Checkpoint):
            return self._take_checkpoint(event)
        if isinstance(event, Steady):
            return True
        ts = event.ts
        if self._is_scanning:
            self._seen = max(self._seen, ts)
            return True
        if self._since is not None and ts <= self._since:
            return False
        repeated = self._repeated.get(ts)
        if repeated:
            self._repeated[ts] = repeated - 1
            return False
        self._seen = max(self._seen, ts)
        delivered = self._delivered
        delivered[ts] = delivered.get(ts, 0) + 1
        if len(delivered) > limits.CLIENT_FEED_REMEMBERED_MAX:
            del delivered[next(iter(delivered))]
        return True

    def _take_checkpoint(self, event: Checkpoint) -> bool:
        self._epoch = event.epoch
        span = (event.start, event.end)
        known = self._by_span.get(span)
        if known is not None and event.ts < known.ts:
            return False
        self._by_span[span] = event
        self._checkpoint_count += 1
        # The least is looked for once, not for each of those that come in a row.
        if self._checkpoint_count >= self._checkpoints_at_once <= len(self._by_span):
            self._checkpoint_count = 0
            self.checkpoint = least = min(self._by_span.values(), key=lambda each: each.ts)
            self._since, self._seen = least.ts, max(self._seen, least.seen)
            self._delivered = {ts: count for ts, count in self._delivered.items() if ts > least.ts}
        return True
