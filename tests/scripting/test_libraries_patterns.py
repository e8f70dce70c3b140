"""Bounded string patterns beside Lua's own: the same results, and no time in C that no limit ends."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import lupa.lua51
import pytest

import tidelog.scripting.libraries as libraries

_BOTH: Final = b"""
local patterns = ...
local function runner(functions)
  local own = {}
  for name, value in pairs(string) do own[name] = functions[name] or value end
  return function(code, ...)
    local chunk = assert(loadstring("local text, pattern, replacement = ... " .. code, "@user_script"))
    setfenv(chunk, setmetatable({string = own}, {__index = _G}))
    local results, shown = {pcall(chunk, ...)}, {}
    for i = 1, 12 do
      shown[i] = type(results[i]) == "table" and table.concat(results[i], ";") or tostring(results[i])
    end
    return table.concat(shown, "|")
  end
end
return runner({}), runner(patterns)
"""

CALLS: Final = [
    b"local a, b, c, d, e = string.find(text, pattern) return a, b, c, d, e",
    b"local a, b, c, d, e = string.find(text, pattern, 3) return a, b, c, d, e",
    b"local a, b, c, d, e = string.find(text, pattern, -2) return a, b, c, d, e",
    b"local a, b = string.find(text, pattern, 2, true) return a, b",
    b"local a, b, c, d, e = string.match(text, pattern) return a, b, c, d, e",
    b"local a, b, c, d, e = string.match(text, pattern, 20) return a, b, c, d, e",
    b"""local found = {}
    for a, b, c in string.gmatch(text, pattern) do found[#found + 1] = tostring(a) .. tostring(b) .. tostring(c) end
    return found""",
    b"local a, b = string.gsub(text, pattern, replacement) return a, b",
    b"local a, b = string.gsub(text, pattern, replacement, 2) return a, b",
    b"local a, b = string.gsub(text, pattern, {a = 'A', b = 1, ab = false}) return a, b",
    b"""local function choose(x, y) return (y or x) == 'a' and tostring(x) .. '!' end
    local a, b = string.gsub(text, pattern, choose) return a, b""",
]
SIMPLE: Final = [
    *"abc.x -^$",
    "%a",
    "%d",
    "%s",
    "%w",
    "%.",
    "[ab]",
    "[^ab]",
    "[a-c]",
    "[%a_]",
    "[]]",
    "[^]]",
    "%z",
    "()",
]
WHOLE: Final = [*SIMPLE, "(", ")", "%1", "%2", "%b()", "%bab", "%f[a]", "%f[%w]"]
BROKEN: Final = ["%", "[", "[a", "[%", "%b", "%f", "\0"]


def load(*, only_in_lua: bool = False, check: Any = None) -> tuple[Any, Any]:
    """A function that runs code with Lua's own string functions, and one with ours."""
    lua = lupa.lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    with pytest.MonkeyPatch.context() as patch:
        if only_in_lua:
            read = libraries._source

            def source(name: str) -> bytes:
                text = read(name)
                if name == "patterns":
                    text = text.replace(b"COST_MAX = ", b"COST_MAX = 0 * ").replace(b"_CHECKED = ", b"_CHECKED = 0 * ")
                return text

            patch.setattr(libraries, "_source", source)
        loaded = libraries.load_libraries(lua, lua.execute(check) if check else None)
    plain, bounded = lua.execute(_BOTH, loaded.patterns)
    return plain, bounded


@pytest.mark.parametrize("only_in_lua", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_random_patterns(seed: int, only_in_lua: bool) -> None:
    plain, bounded = load(only_in_lua=only_in_lua)
    random = Random(seed)
    for _ in range(300):
        parts = [random.choice(WHOLE if random.random() < 0.97 else BROKEN) for _ in range(random.randrange(7))]
        pattern = "".join(part + random.choice(["", "", "", "*", "+", "-", "?"]) for part in parts)
        text = "".join(random.choice("aabbc x1()]_^$.\0") for _ in range(random.randrange(15)))
        replacement = "".join(
            random.choice(["x", "%1", "%0", "%%", "%2", "y", "%"]) for _ in range(random.randrange(4))
        )
        for call in CALLS:
            given = [word.encode("latin-1") for word in (text, pattern, replacement)]
            answer = bounded(call, *given)
            if b"unfinished capture" not in answer:  # C notices that only if it needs the capture
                assert answer == plain(call, *given), (call, given)


@pytest.mark.parametrize(
    "call",
    [
        *[
            "find()",
            "find('x')",
            "find({}, 'x')",
            "find('x', {})",
            "find('x', 'x', {})",
            "match(nil, 'x')",
            "gmatch('x')",
        ],
        *["gsub('x', 'x')", "gsub('x', 'x', true)", "gsub('x', 'x', 'y', 'z')", "gsub(1, 1, 2)", "find(12, 2)"],
        *["gsub('abc', '%w', function() return {} end)", "gsub('abc', '%w', {a = true})", "gsub('abc', '', '-')"],
        *["gsub('hello world', '(%w+) (%w+)', '%2 %1')", "gsub('abc', '^b', 'x')", "gsub('abc', '%w', '%1%0')"],
        *["gsub('abc', 'b', 'x%')", "gsub('a.b', '.', '%%', 1)", "gsub('abc', '$', '!')", "find('a\\0b', 'a\\0b')"],
        *["find('abc', '')", "find('', '')", "find('abc', '', 10)", "match('  x y ', '^%s*(.-)%s*$')"],
    ],
)
def test_arguments(call: str) -> None:
    plain, bounded = load()
    code = f"local a, b, c = string.{call} return a, b, c".encode()
    assert bounded(code) == plain(code)
    name, _, arguments = call.partition("(")
    code = f"return pcall(string.{name}{', ' if arguments != ')' else ''}{arguments}".encode()
    assert bounded(code) == plain(code)


END_AFTER: Final = b"""
local instructions = 0
debug.sethook(function()
  instructions = instructions + 1000
  if instructions > 3000000 then error("the time is over", 0) end
end, "", 1000)
return function() end
"""
"""A limit as the sandbox has one; it counts instructions, so that the test does not depend on the machine."""


@pytest.mark.parametrize(
    "call",
    [
        "string.find(('a'):rep(60), ('a?'):rep(30) .. ('a'):rep(61))",
        "string.find(('a'):rep(100000), ('.-'):rep(8) .. 'b')",
        "string.match(('a'):rep(100000), 'a*a*a*b')",
        "string.gsub(('a'):rep(1000000), '.-b', '')",
        "string.gsub(('x'):rep(20000000), '%w', '')",
        "string.find(('('):rep(100000), '%b()')",
        "(function() for word in string.gmatch(('a'):rep(100000), '(a*)*b%1') do end end)()",
        "(function() while true do string.find(('a'):rep(3000), 'a*a*b') end end)()",
    ],
)
def test_a_pattern_that_explodes_ends_with_the_limit(call: str) -> None:
    _, bounded = load(check=END_AFTER)
    assert b"the time is over" in bounded(b"local a = " + call.encode() + b" return a")


def test_a_search_for_plain_text_is_looked_at_on_its_way() -> None:
    _, bounded = load(
        check=b"local n = 0 return function() n = n + 1 if n > 3 then error('the time is over', 0) end end"
    )
    assert b"the time is over" in bounded(b"return string.find(('a'):rep(2^18), ('a'):rep(2^17) .. 'b', 1, true)")
    _, bounded = load()
    found = bounded(b"return string.find(('a'):rep(100000) .. 'b', ('a'):rep(3000) .. 'b', 1, true)")
    assert found.startswith(b"true|97001|100001")


def test_patterns_nest_only_so_deep() -> None:
    _, bounded = load()
    assert b"pattern too complex" in bounded(b"return string.find(('a'):rep(20000), ('a?'):rep(20000))")
    assert bounded(b"return string.find(('a'):rep(300), ('a?'):rep(300))").startswith(b"true|1|300")
