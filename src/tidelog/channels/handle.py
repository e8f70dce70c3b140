"""Receipt handles: proof that a subscriber was given all messages up to a clock.

     0         1                           9                   15
    ┌─────────┬───────────────────────────┬───────────────────┬──────────────────────────────────────┐
    │ version │ clock, signed, big-endian │ trail, or nothing │ the first 18 bytes of an HMAC-SHA256 │
    └─────────┴───────────────────────────┴───────────────────┴──────────────────────────────────────┘

in base64url: 36 characters (version 1, without a trail) or 44 (version 2), without padding and without spare bits, so
that there is one way to write a handle. The HMAC is over version, channel, subscriber, clock and trail (the two names
end with a byte that no name has). A handle is valid for its channel and subscriber only; which of its clocks the
channel has, the script of the acknowledgement looks.

The trail is that of the message at the clock (`message.py`), if it has one: a failover may take messages back and give
their clocks to others, which the subscriber was never given.

The key is configured, or kept in the backend: the first process that needs one offers its own with SET NX, and all
take what is there then. So handles survive restarts and are valid at every gateway of the backend. A process keeps the
key. It looks again now and then, and when a handle proves wrong (at most once a second): the backend may have been
emptied, or lost the key in a failover. Then it offers the one that it has; if another process was faster, it takes that
one's, and still reads handles of its own.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from tidelog import limits
from tidelog.channels.clock import is_clock
from tidelog.channels.message import TRAIL_DIGITS, ChannelPlace
from tidelog.errors import AckHandleMalformed, EnvironmentFault, LimitExceeded

KEY_BYTES: Final = 32
"""Of a key that is made; one that is configured has at least half as many."""
_PLAIN: Final = b"\x01"
_WITH_TRAIL: Final = b"\x02"
_CLOCK_BYTES: Final = 8
_PROOF_BYTES: Final = 18
_SIZE: Final = 1 + _CLOCK_BYTES + _PROOF_BYTES
_SIZE_WITH_TRAIL: Final = _SIZE + TRAIL_DIGITS // 2
_TEXT: Final = re.compile(
    rf"[0-9A-Za-z_-]{{{_SIZE * 4 // 3}}}(?:[0-9A-Za-z_-]{{{(_SIZE_WITH_TRAIL - _SIZE) * 4 // 3}}})?", re.ASCII
)

# Otherwise the last character would have bits that count for nothing, and might be anything.
assert _SIZE % 3 == _SIZE_WITH_TRAIL % 3 == 0


def made_handle(key: bytes, channel: str, subscriber: str, clock: int, trail: str = "") -> str:
    version = _WITH_TRAIL if trail else _PLAIN
    proven = version + clock.to_bytes(_CLOCK_BYTES, "big", signed=True) + bytes.fromhex(trail)
    return base64.urlsafe_b64encode(proven + _proof(key, channel, subscriber, proven)).decode()


def place_of(keys: Sequence[bytes], channel: str, subscriber: str, handle: str) -> ChannelPlace | None:
    """What a handle that was made with one of these keys for this subscriber proves; None for any other text."""
    if _TEXT.fullmatch(handle) is None:
        return None
    try:
        data = base64.urlsafe_b64decode(handle)
    except binascii.Error:
        return None
    proven, proof = data[:-_PROOF_BYTES], data[-_PROOF_BYTES:]
    is_proven = False
    for key in keys:  # all of them: how long it takes tells nothing
        is_proven |= hmac.compare_digest(proof, _proof(key, channel, subscriber, proven))
    version = _PLAIN if len(data) == _SIZE else _WITH_TRAIL
    clock = int.from_bytes(proven[1 : 1 + _CLOCK_BYTES], "big", signed=True)
    if not is_proven or proven[:1] != version or not is_clock(clock):
        return None
    return ChannelPlace(clock, proven[1 + _CLOCK_BYTES :].hex())


def _proof(key: bytes, channel: str, subscriber: str, proven: bytes) -> bytes:
    told = b"%b%b\x00%b\x00%b" % (proven[:1], channel.encode(), subscriber.encode(), proven[1:])
    return hmac.digest(key, told, "sha256")[:_PROOF_BYTES]


class Handles:
    """Makes handles and reads them, with the keys that are configured or the one of the backend."""

    def __init__(
        self,
        configured: Sequence[bytes],
        *,
        shared_key: Callable[[bytes | None], Awaitable[bytes]],
        now_s: Callable[[], float],
    ) -> None:
        """
        configured    the first makes handles, all read them; none: the key of the backend
        shared_key    gets that one; if there is none, it makes one, or puts the one there that it is given
        """
        if any(len(key) < KEY_BYTES // 2 for key in configured):
            raise LimitExceeded(f"a key for receipt handles has at least {KEY_BYTES // 2} bytes")
        self._keys = list(configured)
        self._is_configured = bool(configured)
        self._shared_key = shared_key
        self._now_s = now_s
        self._looked_s = -limits.CHANNEL_KEY_LOOK_S

    async def make(self, channel: str, subscriber: str, clock: int, trail: str) -> str:
        if not self._keys:
            await self._look()
        elif not self._is_configured and self._now_s() - self._looked_s >= limits.CHANNEL_KEY_KEPT_S:
            with suppress(EnvironmentFault):  # what it has is good
                await self._look()
        return made_handle(self._keys[0], channel, subscriber, clock, trail)

    async def read(self, channel: str, subscriber: str, handle: str) -> ChannelPlace:
        """What a handle proves; `AckHandleMalformed` if it was not made for this subscriber."""
        place = place_of(self._keys, channel, subscriber, handle)
        is_due = self._now_s() - self._looked_s >= limits.CHANNEL_KEY_LOOK_S
        if place is None and not self._is_configured and _TEXT.fullmatch(handle) and (is_due or not self._keys):
            await self._look()
            place = place_of(self._keys, channel, subscriber, handle)
        if place is None:
            raise AckHandleMalformed(
                f"that handle was not given out to the subscriber {subscriber} of the channel {channel}: "
                "fetch again, and acknowledge with the handle that comes with the messages"
            )
        return place

    async def _look(self) -> None:
        self._looked_s = self._now_s()
        before = self._keys[:1]
        found = await self._shared_key(before[0] if before else None)
        self._keys = [found, *(key for key in before if key != found)]
