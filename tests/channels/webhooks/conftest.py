"""The fixtures of the tests of webhooks."""

from __future__ import annotations

from tests.channels.webhooks.receivers import quick_limits

__all__ = ["quick_limits"]
