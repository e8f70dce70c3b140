"""The libraries that scripts find beside Lua's own: `cjson`, `cmsgpack`, `bit`, `struct`, and bounded string patterns.

They are written in Lua (the folder `lua/`), so that nothing of Python is in the hands of a script, so that the limit on
a script's time holds inside them, and so that their memory counts as the script's.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lupa.lua51 import LuaRuntime

_NAMES = ("arguments", "floats", "cjson", "cmsgpack", "bit", "struct", "patterns")


def _source(name: str) -> bytes:
    return (resources.files("tidelog.scripting") / "lua" / f"{name}.lua").read_bytes()


def load_libraries(lua: LuaRuntime, check: Any = None) -> Any:
    """Load them into a runtime that still has all of Lua; return them as a Lua table, by name.

    `check` is a Lua function that raises when the script's time is over: libraries call it where one call of C may
    take long, because hooks count instructions of Lua only.
    """
    sources = lua.table_from({name.encode(): _source(name) for name in _NAMES})
    return lua.execute(_source("load"), sources, check)
