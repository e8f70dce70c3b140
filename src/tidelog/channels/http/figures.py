"""The numbers of the calls over HTTP, for /metrics.

They come as plain rows, in the order that the gateway's samples have: this package runs without the gateway, and knows
nothing of it. Rows of one metric follow each other, as the format wants it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidelog.channels.channels import Channels
from tidelog.channels.http.body_room import BodyRoom
from tidelog.channels.http.polls import PollPlaces

FigureRow = tuple[str, str, str, float, str, str]
"""Name, kind (counter, gauge or histogram), help, value, labels, and what follows the name."""

_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_REQUESTS: Final = "tidelog_channels_requests_total", "counter", "Requests that were answered, by call and status."
_SECONDS: Final = (
    "tidelog_channels_request_seconds",
    "histogram",
    "How long answers took; without polls and streams, which wait.",
)


class ChannelFigures:
    """Counts what happens."""

    def __init__(self, channels: Channels, places: PollPlaces, room: BodyRoom) -> None:
        self._channels = channels
        self._places = places
        self._room = room
        self._requests: Counter[tuple[str, int]] = Counter()
        self._durations: dict[str, list[int]] = {}
        """By call: how many were no longer than each bound, and than no bound."""
        self._sums_s: dict[str, float] = {}
        self.published = 0
        """Messages that were new."""
        self.repeated = 0
        """Messages that their channels had already."""
        self.delivered = 0
        """Messages in answers and streams; one counts as often as it is sent."""
        self.acknowledged = 0
        self.gone = 0
        """Polls whose clients went away."""

    def answered(self, call: str, status: int, seconds: float | None) -> None:
        """A request is over; None: it may have waited, which says nothing about the server. Hot."""
        self._requests[call, status] += 1
        if seconds is None:
            return
        found = self._durations.get(call)
        if found is None:
            found = self._durations[call] = [0] * (len(_BOUNDS_S) + 1)
        found[bisect_left(_BOUNDS_S, seconds)] += 1
        self._sums_s[call] = self._sums_s.get(call, 0.0) + seconds

    def rows(self) -> Iterator[FigureRow]:
        """All of them."""
        for (call, status), count in sorted(self._requests.items()):
            yield *_REQUESTS, count, f'{{call="{call}",status="{status}"}}', ""
        for call, counts in sorted(self._durations.items()):
            yield from _histogram(call, counts, self._sums_s[call])
        for name, kind, text, value in self._plain():
            yield f"tidelog_channels_{name}", kind, text, value, "", ""

    def _plain(self) -> Iterator[tuple[str, str, str, float]]:
        wakes = self._channels.wakes
        yield "polls_waiting", "gauge", "Polls and event streams that wait.", self._places.count
        yield "polls_gone_total", "counter", "Of them, those whose clients went away.", self.gone
        yield "held_bytes", "gauge", "Large bodies of requests and answers that are under way.", self._room.held_bytes
        yield "published_total", "counter", "Messages that were published.", self.published
        yield "repeated_total", "counter", "Messages that were published again.", self.repeated
        yield "delivered_total", "counter", "Messages that were sent to subscribers.", self.delivered
        yield "acknowledged_total", "counter", "Acknowledgements that moved a subscriber on.", self.acknowledged
        yield "wakes_total", "counter", "Times that the backend told of new messages.", wakes.wake_count
        yield "wake_topics", "gauge", "Channels that the backend is asked to tell of.", wakes.topic_count
        yield "wake_losses_total", "counter", "Times that the connection for it was lost.", wakes.loss_count


def _histogram(call: str, counts: list[int], sum_s: float) -> Iterator[FigureRow]:
    so_far = 0
    for bound_s, count in zip([*_BOUNDS_S, None], counts, strict=True):
        so_far += count
        bound = "+Inf" if bound_s is None else f"{bound_s:g}"
        yield *_SECONDS, so_far, f'{{call="{call}",le="{bound}"}}', "_bucket"
    yield *_SECONDS, sum_s, f'{{call="{call}"}}', "_sum"
    yield *_SECONDS, so_far, f'{{call="{call}"}}', "_count"
