"""Tokens that were revoked before their time was over. The backend keeps them, so that all gateways see them.

    tidelog:channels:revoked:<SHA-256 of the token's id>    lives until the token would have expired anyway

The id of a token (`jti`) may be any text; its hash makes a key of one length, and keeps ids out of the backend. A key
lives a little longer than its token: rules may accept a token for some minutes after its end (`clock-skew`).

That a token is revoked is remembered for as long as this process runs; that it is not, for two seconds. So a
revocation counts at once at the gateway that was told, and two seconds later at all. If the backend does not answer,
no token with an id is accepted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from tidelog import limits
from tidelog.channels.backend import Backend, Word
from tidelog.errors import BadChannelInput
from tidelog.keys import CHANNEL_REVOKED_PREFIX

_EXPIRES_S_MAX: Final = 2**43
"""So that milliseconds are exact everywhere; beyond it is no time that anybody means."""


class Revocations:
    """The revoked tokens of a backend."""

    def __init__(self, backend: Backend, *, now_s: Callable[[], float]) -> None:
        """`now_s`: unix time."""
        self._backend = backend
        self._now_s = now_s
        self._known: dict[str, float] = {}
        """By key, until when it counts as not revoked; infinity: it is revoked. The oldest first."""

    async def revoke(self, token_id: str, expires_s: float | None) -> None:
        """Refuse the token with this id from now on; `expires_s`: its `exp`, None if it has none."""
        key = revocation_key(token_id)
        if expires_s is None:
            await self._backend.call("SET", key, "1")
            self._note(key, float("inf"))
            return
        if not 0 <= expires_s <= _EXPIRES_S_MAX:
            raise BadChannelInput("exp must be a unix time in seconds")
        ttl_ms = int((expires_s - self._now_s()) * 1000) + limits.CHANNEL_CLOCK_SKEW_MS_MAX
        if ttl_ms <= 0:
            return  # no rule accepts it any more
        words: tuple[Word, ...] = ("SET", key, "1", "PX", ttl_ms)
        if await self._backend.call(*words, "NX") is None:
            # It is there, maybe by a call that was sent twice. A time is only ever put off; -1 is for ever.
            left_ms = await self._backend.call("PTTL", key)
            if left_ms != -1 and left_ms < ttl_ms:
                await self._backend.call(*words)
        self._note(key, float("inf"))

    async def is_revoked(self, token_id: str) -> bool:
        """Whether the token with this id was revoked, as of at most two seconds ago."""
        key = revocation_key(token_id)
        now = self._now_s()
        until = self._known.get(key)
        # A clock that was set back must not make an answer last.
        if until is not None and (until == float("inf") or now < until <= now + limits.CHANNEL_REVOCATION_STALE_S):
            return until == float("inf")
        is_revoked = bool(await self._backend.call("EXISTS", key))
        self._note(key, float("inf") if is_revoked else now + limits.CHANNEL_REVOCATION_STALE_S)
        return is_revoked

    def _note(self, key: str, until: float) -> None:
        if self._known.pop(key, None) == float("inf"):
            until = float("inf")  # an answer that was on its way when the token was revoked
        while len(self._known) >= limits.CHANNEL_REVOCATIONS_KEPT_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = until


def revocation_key(token_id: str) -> str:
    """The key of a revoked token; `BadChannelInput` if that is no id."""
    if not 0 < len(token_id) <= limits.CHANNEL_TOKEN_ID_LENGTH_MAX:
        raise BadChannelInput(f"jti must have 1 to {limits.CHANNEL_TOKEN_ID_LENGTH_MAX} characters")
    return CHANNEL_REVOKED_PREFIX + hashlib.sha256(token_id.encode("utf-8", "surrogatepass")).hexdigest()
