"""Grants calls on channels by configuration: the groups that a channel is in, and the tokens that they demand."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.channels.policy import ChannelGrant
from tidelog.channels.revocations import Revocations
from tidelog.channels.rules import ChannelRules
from tidelog.channels.tokens import TokenChecker


class RulesPolicy:
    """A `ChannelPolicy`."""

    def __init__(
        self, rules: Callable[[], ChannelRules], revocations: Revocations, *, now_s: Callable[[], float]
    ) -> None:
        """`rules`: those in force now; they may change. `now_s`: unix time."""
        self._rules = rules
        self._revocations = revocations
        self._tokens = TokenChecker(revocations, now_s=now_s)

    async def grant(self, channel: str, token: str | None) -> ChannelGrant:
        match = self._rules().match(channel)
        if match.tokens:
            await self._tokens.check(token, match.tokens)
        return ChannelGrant(match.expire_ms)

    async def revoke_token(self, jti: str, exp: int) -> None:
        await self._revocations.revoke(jti, exp)
