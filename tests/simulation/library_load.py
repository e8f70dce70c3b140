"""Libraries of functions, drawn at random: they come, replace each other and go, are restored and called.

Each is known by a number, which its read-only function returns: a call tells which code runs. Its other function runs
the commands that it is told, as the scripts of `scripted` do. Some libraries register a name that others have too, so
that they are refused.
"""

from __future__ import annotations

import re
from random import Random
from typing import Final

from tests.simulation.scripted import told
from tests.simulation.store_load import Load, Words
from tidelog.scripting.functions import dump

NAMES: Final = (b"one", b"two", b"three")
_CODE: Final = b"""#!lua name=%(name)b
-- number %(number)d
redis.register_function('run_%(name)b', function(keys, args)
  local at = 1
  while at <= #args do
    local count = tonumber(args[at])
    redis.pcall(unpack(args, at + 1, at + count))
    at = at + count + 1
  end
  return at
end)
redis.register_function{
  function_name = '%(name)b', callback = function() return %(number)d end, flags = {'no-writes'}
}
%(more)b
-- %(filling)b
"""
_SHARED: Final = b"redis.register_function('shared', function() return 0 end)"
_NUMBER: Final = re.compile(rb"^-- number (\d+)$", re.MULTILINE)


def number_of(code: bytes) -> int:
    """What a library of this code returns."""
    found = _NUMBER.search(code)
    assert found is not None, code
    return int(found[1])


class LibraryLoad:
    """Draws changes of libraries, and calls."""

    def __init__(self, rng: Random, load: Load, filling_bytes_max: int) -> None:
        self._rng = rng
        self._load = load
        self._filling_bytes_max = filling_bytes_max

    def command(self) -> Words:
        rng, kind = self._rng, self._rng.random()
        if kind < 0.35:
            return [b"FUNCTION", b"LOAD", *rng.choice(([], [b"REPLACE"], [b"REPLACE"])), self._code()]
        if kind < 0.5:
            return [b"FUNCTION", b"DELETE", rng.choice(NAMES)]
        if kind < 0.55:
            return [b"FUNCTION", b"FLUSH"]
        if kind < 0.75:
            codes = [self._code() for _ in range(rng.randint(0, 3))]
            return [b"FUNCTION", b"RESTORE", dump(codes), rng.choice((b"FLUSH", b"FLUSH", b"APPEND", b"REPLACE"))]
        if kind < 0.85:
            return [rng.choice((b"FLUSHALL", b"FLUSHDB"))]
        return self._call()

    def transaction(self) -> list[Words]:
        """Some of them, with commands on keys in between."""
        drawn = [self.command() if self._rng.random() < 0.6 else self._load.command() for _ in range(4)]
        return [told(words) for words in drawn[: self._rng.randint(2, 4)]]

    def _call(self) -> Words:
        commands = [told(self._load.command()) for _ in range(self._rng.randint(1, 3))]
        words = [word for command in commands for word in (b"%d" % len(command), *command)]
        return [b"FCALL", b"run_" + self._rng.choice(NAMES), b"0", *words]

    def _code(self) -> bytes:
        """Now and then so long that it takes several frames, or a blob file."""
        rng = self._rng
        size = rng.randint(0, rng.choice((10, 10, self._filling_bytes_max)))
        return _CODE % {
            b"name": rng.choice(NAMES),
            b"number": rng.getrandbits(30),
            b"more": _SHARED if rng.random() < 0.15 else b"",
            b"filling": bytes(rng.choices(range(97, 123), k=size)),
        }
