"""A function of a library, and the first line of a library: `#!lua name=mylib`."""

from __future__ import annotations

import re
from typing import Final

from tidelog.errors import CommandError

_NAME: Final = re.compile(rb"[A-Za-z0-9_]+")
_BAD_NAME: Final = (
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
)


class Function:
    """What FCALL runs."""

    __slots__ = (
        "allows_oom",
        "allows_stale",
        "description",
        "flags",
        "has_flags",
        "is_read_only",
        "library",
        "name",
        "sha",
    )

    def __init__(self, library: bytes, name: bytes, flags: bytes, description: bytes | None) -> None:
        self.library = library
        self.name = name
        self.sha = name
        """What errors call it."""
        self.flags = flags.split()
        self.description = description
        self.has_flags = True
        self.is_read_only = b"no-writes" in self.flags
        self.allows_oom = b"allow-oom" in self.flags or self.is_read_only
        self.allows_stale = b"allow-stale" in self.flags


def library_name(code: bytes) -> bytes:
    """The name that the first line of a library gives it; `CommandError`: the line is not right."""
    if not code.startswith(b"#!"):
        raise CommandError("ERR Missing library metadata")
    end = code.find(b"\n")
    if end < 0:
        raise CommandError("ERR Invalid library metadata")
    engine, *words = code[2:end].split() or [b""]
    name: bytes | None = None
    for word in words:
        if not word.lower().startswith(b"name="):
            raise CommandError(f"ERR Invalid metadata value given: {_shown(word)}")
        if name is not None:
            raise CommandError("ERR Invalid metadata value, name argument was given multiple times")
        name = word[5:]
    if name is None:
        raise CommandError("ERR Library name was not given")
    if not _NAME.fullmatch(name):
        raise CommandError(_BAD_NAME)
    if engine.lower() != b"lua":
        raise CommandError(f"ERR Engine '{_shown(engine)}' not found")
    return name


def library_code(code: bytes) -> bytes:
    """What is compiled: the first line is empty, so that lines keep their numbers."""
    return code[code.index(b"\n") :]


def _shown(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
