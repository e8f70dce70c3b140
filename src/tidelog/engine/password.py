"""The password of the server. Users with rights of their own will take its place."""

from __future__ import annotations

import hmac


class Password:
    """The password that clients must send first; None: the server has none."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret

    @property
    def is_needed(self) -> bool:
        return self._secret is not None

    def matches(self, given: bytes) -> bool:
        """Compares in constant time. Without a password nothing matches."""
        return self._secret is not None and hmac.compare_digest(given, self._secret)
