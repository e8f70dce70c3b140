"""One Lua state: the sandbox and the libraries in it, and the scripts that were compiled for it.

Lua runs with a limit on its memory. A script that meets the limit gets an error from Lua, which is safe inside Lua and
nowhere else: where Python hands a value to Lua, an error would leave Python in the middle of something. So a part of
the memory is in reserve: Lua looks whether the reserve is there before it calls Python, and what Python hands over is
smaller than the reserve. Between scripts little is in use.

While no script runs there is no limit: whatever else is done in a state may need a few bytes, and no error could be
caught there. Even letting go of a function takes some at times, as the place for it in a list may be new; and a state
in which a script has used up all memory is still to be taken apart.

A state in which a limit was met is thrown away, and its memory with it. Making another one takes about a millisecond.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from tidelog import limits
from tidelog.scripting.host import TOO_LONG
from tidelog.scripting.libraries import load_libraries
from tidelog.scripting.source import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.scripting.function import Function
    from tidelog.scripting.host import Host
    from tidelog.scripting.script import Script

_CHUNK: Final = b"=tidelog"
"""The name of our own chunks; one that begins with `=` is never the place of an error."""
_LATER: Final = b"local later = {} return later, function() if later.check then later.check() end end"
"""A function that the libraries can be given before there is a sandbox."""
_LOAD: Final = (
    b"local load, check = loadstring, assert return function(text, name, ...) return check(load(text, name))(...) end"
)


class NotCompiled(Exception):
    """A script is not Lua; the message is Lua's."""


class Interpreter:
    """One Lua state."""

    def __init__(self, host: Host, memory_bytes: int, version: bytes, version_number: int, seed: int) -> None:
        from lupa import lua51  # heavy, and not every server runs scripts

        self._lua = lua51.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_filter=_refuse,
            max_memory=memory_bytes,
        )
        self._memory_bytes = memory_bytes
        self._limit_memory = self._lua.set_max_memory
        self._host = host
        self._used_bytes = self._lua.get_memory_used
        self.errors: tuple[type[BaseException], ...] = (lua51.LuaError,)
        """What running a script raises when it was stopped."""
        self._memory_error: type[BaseException] = lua51.LuaMemoryError
        self.reserve_bytes = memory_bytes // 4
        """What Python may hand over at once."""
        load = self._lua.execute(_LOAD)
        later, check = self._lua.execute(_LATER)
        box = load(
            _lua_file("sandbox"),
            _CHUNK,
            host.check_clock,
            host.note_stop,
            _guarded(host, host.vet_source),
            (memory_bytes - 2 * self.reserve_bytes) // 1024,
            memory_bytes // 16 // 1024,
            memory_bytes // 4,
            seed,
            load_libraries(self._lua, check),
        )
        later[b"check"] = box[b"check_time"]
        self._calls = load(
            _lua_file("redis"),
            _CHUNK,
            box,
            host.call,
            _guarded(host, host.set_protocol),
            _guarded(host, host.sha1hex),
            _guarded(host, host.log),
            _guarded(host, host.may_run),
            version,
            version_number,
            limits.SCRIPT_REPLY_DEPTH_MAX,
        )
        self._functions = load(_lua_file("functions"), _CHUNK, box, limits.LIBRARY_FUNCTIONS_MAX)
        self._full_bytes = memory_bytes - 2 * self.reserve_bytes
        self._run_script = self._calls[b"run_script"]
        self._run_function = self._calls[b"run_function"]
        self._compile_text = self._calls[b"compile"]
        self._load_library = self._functions[b"load"]
        self._compiled: dict[bytes, Any] = {}
        self._limit_memory(0)

    @property
    def used_bytes(self) -> int:
        return int(self._used_bytes())

    @property
    def is_full(self) -> bool:
        """Whether Python must not hand over anything: what was compiled takes the place."""
        return self.used_bytes > self._full_bytes

    def is_of_memory(self, error: BaseException) -> bool:
        """Whether there was no memory even for saying so."""
        return isinstance(error, self._memory_error)

    def compiled(self, script: Script) -> Any:
        """A script as a function of Lua; `NotCompiled`: it is none."""
        function = self._compiled.get(script.sha)
        if function is None:
            function = self._compiled[script.sha] = self._make(script.code)
        return function

    def _make(self, code: bytes) -> Any:
        problem, prepared = prepare(code)
        if not problem:
            self._host.trust(prepared)
            made = self._compile(prepared)
            if not isinstance(made, tuple):
                return made
        made = self._compile(code)  # so that the message is about the text as it was sent
        if isinstance(made, tuple):
            raise NotCompiled(_text(made[1]))
        return made

    def _compile(self, code: bytes) -> Any:
        """A function of Lua; or false and what is wrong with the code."""
        self._limit_memory(self._memory_bytes)
        try:
            return self._compile_text(code)
        finally:
            self._limit_memory(0)

    def forget(self, script: Script) -> None:
        self._compiled.pop(script.sha, None)

    def run_script(self, script: Script, protocol: int, keys_count: int, words: Sequence[bytes]) -> Any:
        """Run it; what it returned, as `lua/redis.lua` says. `errors`: it was stopped. It must not be full."""
        function = self._compiled.get(script.sha)
        if function is None:
            function = self.compiled(script)
            self._check_room()
        if len(words) > limits.SCRIPT_WORDS_AT_ONCE:
            self._add_words(words)
            words = ()
        self._limit_memory(self._memory_bytes)
        try:
            return self._run_script(function, script.sha, protocol, keys_count, *words)
        finally:
            self._limit_memory(0)

    def _check_room(self) -> None:
        if self.is_full:
            raise self._memory_error("not enough memory")

    # --- functions ----------------------------------------------------------------------------------------------

    def load_library(self, code: bytes) -> list[tuple[bytes, bytes, bytes | None]]:
        """Run the code of a library; name, flags and description of its functions. `NotCompiled`: why it is none."""
        problem, prepared = prepare(code)
        if problem:
            raise NotCompiled("Error compiling function: " + _text(self._compile(code)[1]))
        self._host.trust(prepared)
        self._limit_memory(self._memory_bytes)
        try:
            answer = self._load_library(prepared)
        finally:
            self._limit_memory(0)
        self._check_room()
        if not answer[0]:
            raise NotCompiled(_text(answer[1]))
        entries = iter(answer[1:])
        return [(name, flags, text or None) for name, flags, text in zip(entries, entries, entries, strict=True)]

    def take_library(self, name: bytes) -> None:
        """The library that was loaded last has this name; one of the same name is gone."""
        self._functions[b"take"](name)

    def remove_library(self, name: bytes) -> None:
        self._functions[b"remove"](name)

    def run_function(self, function: Function, protocol: int, keys_count: int, words: Sequence[bytes]) -> Any:
        """As `run_script`, for a function of a library that was loaded here."""
        self._check_room()
        callback = self._functions[b"find"](function.library, function.name.lower())
        if len(words) > limits.SCRIPT_WORDS_AT_ONCE:
            self._add_words(words)
            words = ()
        self._limit_memory(self._memory_bytes)
        try:
            return self._run_function(callback, function.name, protocol, keys_count, *words)
        finally:
            self._limit_memory(0)

    def _add_words(self, words: Sequence[bytes]) -> None:
        """What Lua takes for a word grows with those before it whose hashes are alike, and no hook fires in it."""
        add = self._calls[b"add_words"]
        step = limits.SCRIPT_WORDS_AT_ONCE
        for at in range(0, len(words), step):
            add(*words[at : at + step])
            if self._host.is_over:
                self._host.note_stop(TOO_LONG, 0)
                raise self.errors[0]("")


def _text(message: bytes) -> str:
    return bytes(message).decode("utf-8", "surrogateescape")


def _lua_file(name: str) -> bytes:
    return (resources.files("tidelog.scripting") / "lua" / f"{name}.lua").read_bytes()


def _guarded(host: Host, call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but a bug in it ends the script instead of reaching it as an object."""

    def guarded(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            host.failure = error
            return None

    return guarded


def _refuse(_object: object, _name: object, _is_setting: bool) -> object:
    raise AttributeError("not for scripts")
