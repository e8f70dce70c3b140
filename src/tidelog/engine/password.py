"""The password of the server, and what wrong ones cost. Users with rights of their own will take its place.

Guessing is made slow, by address and for all ports together:

    wrong       the first few are answered at once, the next ones later and later
    right       is answered at once, so that one client with a wrong password does not hold up others beside it
    flooded     from an address with very many wrong ones, nothing is compared for a while, right or not. Otherwise a
                guesser need not wait for an answer: that none comes at once would be the answer

Nothing waits here: a verdict says how long its answer is to be put off.
"""

from __future__ import annotations

import hmac
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from tidelog import limits
from tidelog.ports import Clock


class Verdict(NamedTuple):
    """What is to be done about a password."""

    is_right: bool
    delay_s: float = 0.0
    """How long the answer to a wrong one is put off."""
    retry_after_s: int = 0
    """It was not even compared; another may be in so many seconds. 0: it was."""


class _Guesses:
    """The wrong passwords of one address."""

    __slots__ = ("count", "flood_count", "flood_us", "last_us")

    def __init__(self, now_us: int) -> None:
        self.count = 0
        """Until there was none for a while."""
        self.last_us = now_us
        self.flood_us = now_us
        """When the present stretch of time began ..."""
        self.flood_count = 0
        """... and how many there were in it."""


class Password:
    """The password that clients must send first; None: the server has none.

    It is one object for all ports, so that a change counts on all of them at once. Threads may ask `is_needed` and
    `changes`.
    """

    __slots__ = ("_clock", "_guesses", "_secret", "changes")

    def __init__(self, secret: bytes | None, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock
        self.changes = 0
        """How often it was changed: what was granted for an earlier one can be told by it."""
        self._guesses: dict[str, _Guesses] = {}
        """By address, the one with the newest wrong password last."""

    @property
    def is_needed(self) -> bool:
        return self._secret is not None

    @property
    def secret(self) -> bytes | None:
        """For other servers, which are expected to have the same."""
        return self._secret

    def change(self, secret: bytes | None) -> None:
        """Another one from now on, or none."""
        self._secret = secret
        self.changes += 1

    def check(self, given: bytes, host: str) -> Verdict:
        """Compare a password that came from a host, in constant time. Without a password nothing is right."""
        if self._secret is None:
            return Verdict(False)
        address, now_us = _address(host), self._clock.monotonic_us()
        left_s = self._flooded_s(address, now_us)
        if left_s:
            return Verdict(False, retry_after_s=left_s)
        if hmac.compare_digest(given, self._secret):
            return Verdict(True)
        return Verdict(False, self._note(address, now_us))

    def _flooded_s(self, address: str, now_us: int) -> int:
        """For how long nothing from an address is compared; 0: it is."""
        guesses = self._guesses.get(address)
        if guesses is None:
            return 0
        left_us = guesses.flood_us + 1_000_000 * limits.WRONG_PASSWORDS_FLOOD_S - now_us
        if left_us <= 0:
            guesses.flood_us, guesses.flood_count = now_us, 0
        return -(-left_us // 1_000_000) if guesses.flood_count >= limits.WRONG_PASSWORDS_FLOOD else 0

    def _note(self, address: str, now_us: int) -> float:
        """Count a wrong password; returns how long its answer is put off."""
        guesses = self._guesses.pop(address, None)
        if guesses is None or now_us - guesses.last_us >= 1_000_000 * limits.WRONG_PASSWORDS_FORGOTTEN_S:
            guesses = _Guesses(now_us)
        if len(self._guesses) >= limits.WRONG_PASSWORDS_ADDRESSES_MAX:
            del self._guesses[next(iter(self._guesses))]
        self._guesses[address] = guesses
        guesses.last_us = now_us
        guesses.count += 1
        guesses.flood_count += 1
        above = guesses.count - limits.WRONG_PASSWORDS_FREE
        if above <= 0:
            return 0.0
        doubled = limits.WRONG_PASSWORD_DELAY_S * 2.0 ** min(above - 1, 30)
        return min(doubled, limits.WRONG_PASSWORD_DELAY_S_MAX)


def _address(host: str) -> str:
    """What counts as one address: this machine has many, and with IPv6 everybody has a whole network (/64)."""
    try:
        found = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host  # a unix socket, or a port that does not know
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    address = mapped or found
    if address.is_loopback:
        return "loopback"
    return address.exploded[:19] if isinstance(address, IPv6Address) else str(address)
