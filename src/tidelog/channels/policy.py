"""Who may use which channel, and for how long that channel keeps its messages.

The HTTP edge asks for a grant before each call on a channel, and refuses the call if it gets none. A grant is of this
moment only: a rule that is reloaded or a token that is revoked counts from the next call on. A poll that waits was
granted when it began.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ChannelGrant(NamedTuple):
    """A channel may be used."""

    expire_ms: int
    """How long it keeps its messages, and a subscriber that does nothing."""


class ChannelPolicy(Protocol):
    """Grants calls."""

    async def grant(self, channel: str, token: str | None) -> ChannelGrant:
        """The grant for a channel; `token` is what came as `Authorization: Bearer ...`, None if nothing did.

        InvalidChannel          no rule is for such a channel (403)
        ChannelTokenMissing     it needs a token that did not come, or one that is not valid any more (401)
        ChannelTokenRefused     the token is not for this channel (403)
        """

    async def revoke_token(self, jti: str, exp: int) -> None:
        """Refuse the token with this id from now on; `exp`: the unix time, in seconds, at which it expires anyway.

        BadChannelInput         that cannot be the id of a token, or its time
        """


class OpenPolicy:
    """Every channel is open, and keeps its messages for the same time. There are no tokens: revoking does nothing."""

    def __init__(self, expire_ms: int) -> None:
        self._grant = ChannelGrant(expire_ms)

    async def grant(self, _channel: str, _token: str | None) -> ChannelGrant:
        return self._grant

    async def revoke_token(self, _jti: str, _exp: int) -> None:
        return
