"""What webhooks have done since the process started, for /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class WebhookCounts:
    """Of one webhook, over all its channels."""

    sent: int = 0
    """Messages that a receiver took."""
    failed: int = 0
    """Calls that did not succeed."""
    retried: int = 0
    """Calls that were made because an earlier one of the same message had failed."""
    dead_lettered: int = 0
    """Messages that went to the channel for dead letters."""
    waiting: int = 0
    """Messages that have failed and wait for their next attempt, now."""
    lost_leases: int = 0
    """How often another gateway took over in the middle of the work."""


class WebhookCounters:
    """The counts of all webhooks, by name."""

    def __init__(self) -> None:
        self._counts: dict[str, WebhookCounts] = {}

    def of(self, webhook: str) -> WebhookCounts:
        return self._counts.setdefault(webhook, WebhookCounts())

    def __iter__(self) -> Iterator[tuple[str, WebhookCounts]]:
        return iter(sorted(self._counts.items()))
