"""The functions of a server: libraries that FUNCTION LOAD brought, in the interpreter that runs scripts.

The store keeps the code (`store/libraries.py`). What it means is found out by running it: when a library comes, and
again when an interpreter is new or a journal was read, but not before somebody asks. A library that cannot be loaded
then is logged and tried again after a while, and its functions are not found; it stops nothing else.

    FUNCTION DUMP   | "TLFN" | 1 | count flit | length flit ... | code ... | crc32c 4 |
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

import crc32c

from tidelog import limits
from tidelog.errors import CommandError, FormatError
from tidelog.journal.operation import decode_items, encode_items
from tidelog.scripting.function import Function, library_code, library_name
from tidelog.scripting.scripts import Scripts, scripts_of

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.engine.session import Session
    from tidelog.scripting.interpreter import Interpreter

_LOG: Final = logging.getLogger("tidelog")
_MAGIC: Final = b"TLFN\x01"
_CRC: Final = struct.Struct("<I")


class Functions:
    """The functions that FCALL finds. One thread."""

    def __init__(self, engine: Engine, scripts: Scripts) -> None:
        self._libraries = engine.store.libraries
        self._scripts = scripts
        self._by_library: dict[bytes, list[Function]] = {}
        self._by_name: dict[bytes, Function] = {}
        """Name in small letters -> function."""
        self._stopwatch_s = engine.stopwatch_s
        self._took_s: dict[bytes, float] = {}
        """Library -> how long it took to load."""
        self._failed: dict[bytes, float] = {}
        """Libraries that could not be loaded -> when to try again: the machine may have been busy."""
        self._version = -1
        """Of the libraries as they are loaded ..."""
        self._interpreter: Interpreter | None = None
        """... and where."""

    # --- as they are in the interpreter -------------------------------------------------------------------------

    def refresh(self, session: Session) -> None:
        """Load what is not loaded."""
        now_s = self._stopwatch_s()
        is_whole = all(now_s < retry_s for retry_s in self._failed.values())
        if is_whole and self._version == self._libraries.version and self._interpreter is self._scripts.interpreter():
            return
        codes = self._libraries.codes
        self._failed = {name: retry_s for name, retry_s in self._failed.items() if name in codes and now_s < retry_s}
        while not self._load_all(session):
            pass  # one more has failed and is left out

    def _load_all(self, session: Session) -> bool:
        """Load all libraries but those that failed; false: one of them took the interpreter and the others with it."""
        interpreter = self._interpreter = self._scripts.interpreter()
        self._version = self._libraries.version
        self._by_library, self._by_name = {}, {}
        self._took_s = {name: took_s for name, took_s in self._took_s.items() if name in self._failed}
        for name, code in self._libraries.codes.items():
            if name in self._failed:
                continue
            try:
                self._take(name, self._loaded(session, name, code))
            except CommandError as error:
                self._failed[name] = self._stopwatch_s() + limits.LIBRARY_RETRY_S
                _LOG.error("the library of functions %s cannot be loaded: %s", name.decode("ascii", "replace"), error)
                if self._scripts.interpreter() is not interpreter:  # it met a limit
                    return False
        return True

    def _loaded(self, session: Session, name: bytes, code: bytes) -> list[Function]:
        others_s = sum(self._took_s.values()) - self._took_s.get(name, 0.0)
        if others_s > limits.LIBRARIES_LOAD_MS_MAX / 1000:
            raise CommandError(f"ERR the libraries take more than {limits.LIBRARIES_LOAD_MS_MAX} ms to load")
        began_s = self._stopwatch_s()
        try:
            entries = self._scripts.load_library(session, library_code(code))
        finally:
            self._took_s[name] = self._stopwatch_s() - began_s
        return [Function(name, function, flags, text) for function, flags, text in entries]

    def _take(self, name: bytes, functions: list[Function]) -> None:
        self._forget(name)
        self._failed.pop(name, None)
        self._scripts.interpreter().take_library(name)
        self._by_library[name] = functions
        for function in functions:
            self._by_name[function.name.lower()] = function

    def _forget(self, name: bytes) -> None:
        for function in self._by_library.pop(name, ()):
            del self._by_name[function.name.lower()]

    def find(self, session: Session, name: bytes) -> Function:
        self.refresh(session)
        function = self._by_name.get(name.lower())
        if function is None:
            raise CommandError("ERR Function not found")
        return function

    def all(self, session: Session) -> dict[bytes, list[Function]]:
        """Library -> functions; those of a library that cannot be loaded are not known."""
        self.refresh(session)
        return {name: self._by_library.get(name, []) for name in self._libraries.codes}

    @property
    def count(self) -> int:
        """How many functions are loaded."""
        return len(self._by_name)

    # --- changes ------------------------------------------------------------------------------------------------

    def check_room(self, codes: dict[bytes, bytes]) -> None:
        """Whether these may be all libraries, by name."""
        if len(codes) > limits.LIBRARIES_MAX or sum(map(len, codes.values())) > limits.LIBRARIES_BYTES_MAX:
            raise CommandError(
                f"ERR at most {limits.LIBRARIES_MAX} libraries with {limits.LIBRARIES_BYTES_MAX} bytes in all are kept"
            )

    def begin_change(self, *, is_alone: bool = False) -> None:
        """A command begins that brings libraries: those that an earlier one brought in vain do not count, and if all
        others will be gone, none does."""
        kept = () if is_alone else self._by_library
        self._took_s = {name: took_s for name, took_s in self._took_s.items() if name in kept}

    def check_new(self, session: Session, code: bytes, *, may_replace: bool, is_alone: bool = False) -> list[Function]:
        """Load a library; its functions. It is not taken yet. `is_alone`: all others will be gone."""
        name = library_name(code)
        self.refresh(session)
        if name in self._libraries.codes and not may_replace:
            raise CommandError(f"ERR Library '{name.decode()}' already exists")
        functions = self._loaded(session, name, code)
        for function in functions:
            known = self._by_name.get(function.name.lower())
            if known is not None and known.library != name and not is_alone:
                raise CommandError(f"ERR Function {function.name.decode()} already exists")
        return functions

    def take_new(self, functions: list[Function]) -> None:
        """The store has the library that was checked last."""
        self._take(functions[0].library, functions)
        self._version = self._libraries.version

    def remove(self, names: list[bytes]) -> None:
        """The store has no longer these libraries; the others keep what is local to them."""
        interpreter = self._scripts.interpreter()
        # One that was thrown away since is not to be called again.
        if interpreter is self._interpreter and self._version + len(names) == self._libraries.version:
            for name in names:
                self._forget(name)
                self._took_s.pop(name, None)
                self._failed.pop(name, None)
                interpreter.remove_library(name)
            self._version = self._libraries.version


def functions_of(engine: Engine) -> Functions:
    """The functions of a server."""
    scripts = scripts_of(engine)
    if not isinstance(scripts.functions, Functions):
        scripts.functions = Functions(engine, scripts)
    return scripts.functions


def dump(codes: list[bytes]) -> bytes:
    """Libraries as FUNCTION DUMP gives them."""
    data = _MAGIC + encode_items(codes)
    return data + _CRC.pack(crc32c.crc32c(data))


def undump(data: bytes) -> list[bytes]:
    """What `dump` was given; `CommandError` if this is not of it: payloads of Redis are another format."""
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    if not data.startswith(_MAGIC) or len(crc) != _CRC.size or crc32c.crc32c(body) != _CRC.unpack(crc)[0]:
        raise CommandError("ERR DUMP payload version or checksum are wrong")
    try:
        return decode_items(body[len(_MAGIC) :])
    except FormatError:
        raise CommandError("ERR DUMP payload version or checksum are wrong") from None
