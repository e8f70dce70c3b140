"""A chunk of Lua with our libraries, and the same chunk as a script of a real Redis: both must return the same.

    def test_encode(beside: Beside) -> None:
        beside("return cjson.encode({1, 2})")

Both sides reply as a script does: a table up to its first nil, numbers cut to integers, true as 1. An error counts by
its text, with the line of the script in it. What Redis adds to it (the SHA) is cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import hiredis
import lupa.lua51
import pytest

from tests.conformance.redis_oracle import Socket, decode
from tidelog.scripting.libraries import load_libraries

_RUN: Final = b"""
local libraries = ...
for name, value in pairs(libraries.patterns) do string[name] = value end
for _, name in ipairs({"cjson", "cmsgpack", "bit", "struct"}) do _G[name] = libraries[name] end
return function(code)
  libraries.reset_cjson()
  local chunk, problem = loadstring(code, "@user_script")
  if not chunk then return false, problem end
  local ok, value = pcall(chunk)
  return ok, value
end
"""


class Beside:
    """Runs chunks on both sides and compares."""

    def __init__(self, redis: Socket, check: Callable[[], None] | None = None) -> None:
        self._redis = redis
        self._lua = lupa.lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self._run = self._lua.execute(_RUN, load_libraries(self._lua, check))

    def here(self, code: str | bytes) -> Any:
        """What the chunk returns with our libraries; an error is its text."""
        ok, value = self._run(code.encode("latin-1") if isinstance(code, str) else code)
        return _reply(value) if ok else b"ERR " + value

    def there(self, code: str | bytes) -> Any:
        """What Redis answers."""
        script = code.encode("latin-1") if isinstance(code, str) else code
        reply = decode(self._redis.call([b"EVAL", script, b"0"]))
        if isinstance(reply, hiredis.ReplyError):
            return str(reply).rpartition(" script: ")[0].encode("latin-1")
        return reply

    def __call__(self, code: str | bytes) -> Any:
        here, there = self.here(code), self.there(code)
        assert here == there, code
        return here


def _reply(value: Any) -> Any:
    if value is None or value is False:
        return None
    if value is True:
        return 1
    if isinstance(value, float):
        return int(value)
    if isinstance(value, bytes | int):
        return value
    if lupa.lua51.lua_type(value) != "table":
        return None  # cjson.null
    items: list[Any] = []
    while (item := value[len(items) + 1]) is not None:
        items.append(_reply(item))
    return items


@pytest.fixture
def beside(redis_peer: Socket) -> Beside:
    redis_peer.call([b"SCRIPT", b"FLUSH"])
    return Beside(redis_peer)
