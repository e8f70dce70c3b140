"""A script: its text, its name and the flags of its first line.

    #!lua flags=no-writes,allow-oom

A script without such a line runs as scripts always did: it may write, and each command decides about memory.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Final

from tidelog.errors import CommandError

NO_SCRIPT: Final = "NOSCRIPT No matching script. Please use EVAL."
SHA_BYTES: Final = 40
"""The length of a script's name."""
_ENGINE: Final = b"#!lua"
_FLAGS: Final = frozenset([b"no-writes", b"allow-oom", b"allow-stale", b"no-cluster", b"allow-cross-slot-keys"])


class Script:
    """What EVAL is given."""

    __slots__ = ("allows_oom", "allows_stale", "code", "has_flags", "is_kept", "is_read_only", "sha", "size_bytes")

    def __init__(self, text: bytes, sha: bytes) -> None:
        flags = read_flags(text)
        self.sha = sha
        self.size_bytes = len(text)
        self.code = text
        """What is compiled: the first line is empty if it told flags, so that lines keep their numbers."""
        self.has_flags = flags is not None
        """The script says what it needs, so it is refused before it runs instead of at a command."""
        self.is_read_only = False
        self.allows_oom = False
        self.allows_stale = False
        """It may run on a follower whose data is too old to be read."""
        self.is_kept = False
        """SCRIPT LOAD has named it: it stays until SCRIPT FLUSH."""
        if flags is not None:
            self.code = text[text.index(b"\n") :]
            self.is_read_only = b"no-writes" in flags
            self.allows_oom = b"allow-oom" in flags or self.is_read_only
            self.allows_stale = b"allow-stale" in flags


def sha_of(text: bytes) -> bytes:
    """The name of a script."""
    return sha1(text, usedforsecurity=False).hexdigest().encode()


def read_flags(text: bytes) -> frozenset[bytes] | None:
    """The flags in the first line of a script; None: it has no such line."""
    if not text.startswith(b"#!"):
        return None
    end = text.find(b"\n")
    if end < 0:
        raise CommandError("ERR Invalid script shebang")
    words = text[:end].split()
    if words[0] != _ENGINE:
        raise CommandError(f"ERR Unexpected engine in script shebang: {_shown(words[0])}")
    flags: list[bytes] = []
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(f"ERR Unknown lua shebang option: {_shown(word)}")
        flags += filter(None, word.removeprefix(b"flags=").split(b","))
    for flag in flags:
        if flag not in _FLAGS:
            raise CommandError(f"ERR Unexpected flag in script shebang: {_shown(flag)}")
    return frozenset(flags)


def _shown(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
