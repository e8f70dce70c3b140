"""Grants calls on channels by configuration: the groups that a channel is in, and the tokens that they demand.

A grant comes right before a call, so this is also where webhooks learn that a channel is used: their subscribers are
made before the message is published that is the first for them. A call that is refused makes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidelog.channels.policy import ChannelGrant
from tidelog.channels.revocations import Revocations
from tidelog.channels.rules import ChannelRules
from tidelog.channels.tokens import TokenChecker


class RulesPolicy:
    """A `ChannelPolicy`."""

    def __init__(
        self,
        rules: Callable[[], ChannelRules],
        revocations: Revocations,
        *,
        now_s: Callable[[], float],
        before_use: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """
        rules         those in force now; they may change at any time
        now_s         unix time
        before_use    is told of a channel before each call that is granted: `WebhookRunner.prepare`
        """
        self._rules = rules
        self._revocations = revocations
        self._before_use = before_use
        self._tokens = TokenChecker(revocations, now_s=now_s)

    async def grant(self, channel: str, token: str | None) -> ChannelGrant:
        match = self._rules().match(channel)
        if match.tokens:
            await self._tokens.check(token, match.tokens)
        if match.webhooks and self._before_use is not None:
            await self._before_use(channel)
        return ChannelGrant(match.expire_ms)

    async def revoke_token(self, jti: str, exp: int) -> None:
        await self._revocations.revoke(jti, exp)
