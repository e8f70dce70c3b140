"""Libraries of functions that the writers of a killed server load, call and delete.

Each writer has a few of its own. In the state of its ledger a library is one more key (`key_of`), with its code as the
value: after a kill it must be as it was after the same unit as everything else of the writer. A function has the name
of its library. It knows the number that its library was made with, and leaves it in a list of the writer, so that
answers and lists tell which code ran.

    FUNCTION LOAD [REPLACE] | DELETE | RESTORE ... REPLACE     refused as by Redis, if the library is or is not there
    FCALL name 2 number list                                   counts, and pushes the number of its library
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tidelog.scripting.functions import dump, undump

Command = tuple[bytes, ...]
LIBRARIES_PER_WRITER: Final = 3
FILLING_BYTES_MAX: Final = 3000

_CODE: Final = b"""#!lua name=%b
-- number %d
redis.register_function('%b', function(keys)
  local count = redis.call('INCR', keys[1])
  redis.call('RPUSH', keys[2], '%d')
  return {count, '%d'}
end)
-- %b
"""
_NAME: Final = re.compile(rb"^#!lua name=(\w+)$", re.MULTILINE)
_NUMBER: Final = re.compile(rb"^-- number (\d+)$", re.MULTILINE)


class ServerError(Exception):
    """An error reply; two with the same text are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerError) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)


def library_code(name: bytes, number: int, filling: bytes = b"") -> bytes:
    return _CODE % (name, number, name, number, number, filling)


def number_of(code: bytes) -> bytes:
    """What the function of a library pushes."""
    found = _NUMBER.search(code)
    assert found is not None, code
    return found[1]


def key_of(name: bytes) -> bytes:
    """Of a library in the state of its writer's ledger: w0_1 -> w0:library:1."""
    return name.replace(b"_", b":library:", 1)


def change(is_there: Callable[[bytes], bool], command: Command) -> tuple[Any, dict[bytes, bytes | None]]:
    """What FUNCTION does: its reply, and the libraries that it changes, name -> code; None: it is gone."""
    match command[1:]:
        case b"LOAD", *replace, code:
            name = _name_of(code)
            if not replace and is_there(name):
                return ServerError(f"ERR Library '{name.decode()}' already exists"), {}
            return name, {name: code}
        case b"DELETE", name:
            return (b"OK", {name: None}) if is_there(name) else (ServerError("ERR Library not found"), {})
        case b"RESTORE", payload, b"REPLACE":
            return b"OK", {_name_of(code): code for code in undump(payload)}
    raise ValueError(f"the ledger does not know {command!r}")


def draw(rng: Random, prefix: bytes) -> Command:
    """Something to do for the writer whose keys have this prefix."""
    names = [b"%b_%d" % (prefix[:-1], number) for number in range(LIBRARIES_PER_WRITER)]
    name, kind = rng.choice(names), rng.random()
    if kind < 0.5:
        return b"FCALL", name, b"2", b"%bn:%d" % (prefix, rng.randrange(5)), b"%bl:%d" % (prefix, rng.randrange(5))
    if kind < 0.75:
        return b"FUNCTION", b"LOAD", *rng.choice(((), (b"REPLACE",), (b"REPLACE",))), _draw_code(rng, name)
    if kind < 0.93:
        return b"FUNCTION", b"DELETE", name
    return b"FUNCTION", b"RESTORE", dump([_draw_code(rng, each) for each in names[:2]]), b"REPLACE"


def read_libraries(client: Any) -> dict[bytes, bytes]:
    """Those that a server has, by a client that speaks RESP3: name -> code."""
    listed = client.execute_command("FUNCTION", "LIST", "WITHCODE")
    return {each[b"library_name"]: each[b"library_code"] for each in listed}


def _draw_code(rng: Random, name: bytes) -> bytes:
    return library_code(name, rng.getrandbits(30), b"x" * rng.choice((0, 0, 0, rng.randrange(FILLING_BYTES_MAX))))


def _name_of(code: bytes) -> bytes:
    found = _NAME.search(code)
    assert found is not None, code
    return found[1]
