"""The libraries of functions that a store has: their names and their code. What the code means is for `scripting/`."""

from __future__ import annotations


class Libraries:
    """Name -> code. All databases share one."""

    __slots__ = ("codes", "version")

    def __init__(self) -> None:
        self.codes: dict[bytes, bytes] = {}
        self.version = 0
        """Grows with each change, so that whoever has compiled them notices."""

    def put(self, name: bytes, code: bytes) -> None:
        self.codes[name] = code
        self.version += 1

    def remove(self, name: bytes) -> None:
        """Fine if it is not there."""
        if self.codes.pop(name, None) is not None:
            self.version += 1
