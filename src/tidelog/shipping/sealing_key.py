"""The key that objects are encrypted with: 32 bytes, in a file as they are or as 64 hexadecimal digits.

`openssl rand -hex 32 > key` makes one. A key has a short id, which every object carries, so that an object of another
key is told apart from one that was damaged. The id is a part of a hash of the key and gives nothing of it away.

Of a key, only the id is ever shown: `repr` and errors leave out the rest.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32
ID_BYTES: Final = 8
_HEX_DIGITS: Final = frozenset(b"0123456789abcdefABCDEF")


class SealingKey:
    """A key, and its id."""

    __slots__ = ("_key", "id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._key: Final = key
        self.id: Final = self.derive(b"", b"tidelog key id", ID_BYTES)

    def __repr__(self) -> str:
        return f"<SealingKey {self.id.hex()}>"

    def derive(self, salt: bytes, purpose: bytes, size: int = KEY_BYTES) -> bytes:
        """A key for one purpose (HKDF with SHA-256), which says nothing about this one."""
        return HKDF(SHA256(), size, salt, purpose).derive(self._key)


def parse_key(content: bytes) -> SealingKey:
    """The key that a file holds; `ValueError` says why there is none, and shows nothing of it."""
    if len(content) == KEY_BYTES:
        return SealingKey(content)
    digits = content.strip()
    if len(digits) == 2 * KEY_BYTES and _HEX_DIGITS.issuperset(digits):
        return SealingKey(bytes.fromhex(digits.decode()))
    wanted = f"{KEY_BYTES} bytes or {2 * KEY_BYTES} hexadecimal digits"
    raise ValueError(f"a key is {wanted}, and these are {len(content)} bytes of something else")
