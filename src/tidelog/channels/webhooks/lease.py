"""One runner for a webhook of a channel, over all gateways: a lease that ends by itself, and a token that only grows.

    c.{<channel>}.lease.<webhook>    the holder, until the lease ends
    c.{<channel>}.fence.<webhook>    the token of the last holder

A holder trusts its lease by its own clock, counted from before it asked, and less a margin: so it stops before another
can begin, unless it stalls in the middle of a call. For that case every request carries the token (`Tidelog-Fence`): a
receiver that must never see an older message after a newer one refuses a token that is smaller than the largest it has
seen for the channel. The cursor needs no such check: an acknowledgement only ever moves it past what was sent.

A token is the time of day in ms, or one more than the last if that is higher. So it grows even if the backend was
emptied. Calls may be repeated: to take a lease that one already holds is to renew it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from tidelog import limits
from tidelog.channels.backend import Backend, Word
from tidelog.channels.names import ChannelKeys
from tidelog.channels.scripts import LuaScript

_TAKE: Final = LuaScript(
    """
-- KEYS: lease, fence. ARGV: holder, ms of the lease, the time of day in ms, ms for which the token is kept.
-- Returns the token, or nothing if another holds the lease.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return redis.call('GET', KEYS[2])
end
if holder then return false end
local token = math.max(tonumber(redis.call('GET', KEYS[2]) or 0) + 1, tonumber(ARGV[3]))
local text = string.format('%.0f', token)
redis.call('SET', KEYS[2], text, 'PX', ARGV[4])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return text
"""
)

_RENEW: Final = LuaScript(
    """
-- KEYS: lease, fence. ARGV: holder, ms of the lease, token, ms for which the token is kept.
-- Returns whether the lease is still held.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('GET', KEYS[2]) ~= ARGV[3] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
"""
)

_RELEASE: Final = LuaScript(
    """
-- KEYS: lease. ARGV: holder.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
)


class WebhookLease:
    """A lease that was taken."""

    def __init__(self, backend: Backend, channel: str, webhook: str, *, now_s: Callable[[], float]) -> None:
        """`now_s`: a clock that only goes forward."""
        keys = ChannelKeys(channel)
        self._keys = [keys.webhook_lease(webhook), keys.webhook_fence(webhook)]
        self._backend = backend
        self._now_s = now_s
        self._holder = secrets.token_hex(16)
        self._until_s = float("-inf")
        self.token = 0

    async def take(self, time_ms: int) -> bool:
        """False: another has it. `time_ms`: the time of day."""
        asked_s = self._now_s()
        arguments: list[Word] = [self._holder, limits.WEBHOOK_LEASE_MS, time_ms, limits.WEBHOOK_FENCE_MS]
        token = await self._backend.run(_TAKE, self._keys, arguments)
        if token is None:
            return False
        self.token = int(token)
        self._hold_from(asked_s)
        return True

    async def renew(self) -> bool:
        """False: it is lost."""
        asked_s = self._now_s()
        arguments: list[Word] = [self._holder, limits.WEBHOOK_LEASE_MS, self.token, limits.WEBHOOK_FENCE_MS]
        if not await self._backend.run(_RENEW, self._keys, arguments):
            self._until_s = float("-inf")
            return False
        self._hold_from(asked_s)
        return True

    @property
    def is_held(self) -> bool:
        return self._now_s() < self._until_s

    async def release(self) -> None:
        self._until_s = float("-inf")
        await self._backend.run(_RELEASE, self._keys[:1], [self._holder])

    def _hold_from(self, asked_s: float) -> None:
        self._until_s = asked_s + (limits.WEBHOOK_LEASE_MS - limits.WEBHOOK_LEASE_MARGIN_MS) / 1000
