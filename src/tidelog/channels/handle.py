"""Receipt handles: proof that a subscriber was given all messages up to a clock.

     0         1                                 9                                      27
    ┌─────────┬─────────────────────────────────┬──────────────────────────────────────┐
    │ version │ clock, signed, big-endian       │ the first 18 bytes of an HMAC-SHA256 │
    └─────────┴─────────────────────────────────┴──────────────────────────────────────┘

in base64url: 36 characters without padding and without spare bits, so that there is one way to write a handle. The
HMAC is over version, channel, subscriber and clock (the two names end with a byte that no name has). A handle is valid
for its channel and subscriber only; which of its clocks the channel has, the script of the acknowledgement looks.

The key is configured, or kept in the backend: the first process that needs one offers its own with SET NX, and all
take what is there then. So handles survive restarts and are valid at every gateway of the backend. A process keeps the
key; it looks again when a handle proves wrong (at most once a second), since the backend may have been emptied and
another process may have made a new one.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tidelog import limits
from tidelog.channels.clock import is_clock
from tidelog.errors import AckHandleMalformed, LimitExceeded

KEY_BYTES: Final = 32
"""Of a key that is made; one that is configured has at least half as many."""
_VERSION: Final = b"\x01"
_CLOCK_BYTES: Final = 8
_PROOF_BYTES: Final = 18
_SIZE: Final = len(_VERSION) + _CLOCK_BYTES + _PROOF_BYTES
_TEXT: Final = re.compile(rf"[0-9A-Za-z_-]{{{_SIZE * 4 // 3}}}", re.ASCII)

assert _SIZE % 3 == 0  # otherwise the last character has bits that count for nothing, and may be anything


def made_handle(key: bytes, channel: str, subscriber: str, clock: int) -> str:
    proven = clock.to_bytes(_CLOCK_BYTES, "big", signed=True)
    return base64.urlsafe_b64encode(_VERSION + proven + _proof(key, channel, subscriber, proven)).decode()


def clock_of(keys: Sequence[bytes], channel: str, subscriber: str, handle: str) -> int | None:
    """The clock of a handle that was made with one of these keys for this subscriber; None for any other text."""
    if _TEXT.fullmatch(handle) is None:
        return None
    try:
        data = base64.urlsafe_b64decode(handle)
    except binascii.Error:
        return None
    version, proven, proof = data[:1], data[1 : 1 + _CLOCK_BYTES], data[1 + _CLOCK_BYTES :]
    is_proven = False
    for key in keys:  # all of them: how long it takes tells nothing
        is_proven |= hmac.compare_digest(proof, _proof(key, channel, subscriber, proven))
    clock = int.from_bytes(proven, "big", signed=True)
    return clock if is_proven and version == _VERSION and is_clock(clock) else None


def _proof(key: bytes, channel: str, subscriber: str, proven: bytes) -> bytes:
    told = b"%b%b\x00%b\x00%b" % (_VERSION, channel.encode(), subscriber.encode(), proven)
    return hmac.digest(key, told, "sha256")[:_PROOF_BYTES]


class Handles:
    """Makes handles and reads them, with the keys that are configured or the one of the backend."""

    def __init__(
        self,
        configured: Sequence[bytes],
        *,
        shared_key: Callable[[], Awaitable[bytes]],
        now_s: Callable[[], float],
    ) -> None:
        """
        configured    the first makes handles, all read them; none: the key of the backend
        shared_key    gets that one, and makes it if there is none
        """
        if any(len(key) < KEY_BYTES // 2 for key in configured):
            raise LimitExceeded(f"a key for receipt handles has at least {KEY_BYTES // 2} bytes")
        self._keys = list(configured)
        self._is_configured = bool(configured)
        self._shared_key = shared_key
        self._now_s = now_s
        self._looked_s = -limits.CHANNEL_KEY_LOOK_S

    async def make(self, channel: str, subscriber: str, clock: int) -> str:
        if not self._keys:
            await self._look()
        return made_handle(self._keys[0], channel, subscriber, clock)

    async def read(self, channel: str, subscriber: str, handle: str) -> int:
        """The clock of a handle; `AckHandleMalformed` if it was not made for this subscriber."""
        clock = clock_of(self._keys, channel, subscriber, handle)
        is_due = self._now_s() - self._looked_s >= limits.CHANNEL_KEY_LOOK_S
        if clock is None and not self._is_configured and _TEXT.fullmatch(handle) and (is_due or not self._keys):
            await self._look()
            clock = clock_of(self._keys, channel, subscriber, handle)
        if clock is None:
            raise AckHandleMalformed(
                f"that handle was not given out to the subscriber {subscriber} of the channel {channel}: "
                "fetch again, and acknowledge with the handle that comes with the messages"
            )
        return clock

    async def _look(self) -> None:
        self._looked_s = self._now_s()
        self._keys = [await self._shared_key()]
