"""The libraries as a whole: what they hand to scripts, and `bit`."""

from __future__ import annotations

from random import Random

import lupa.lua51
import pytest

from tests.scripting.lua_beside_redis import Beside
from tidelog.scripting.libraries import load_libraries

WORDS = ["0", "1", "-1", "255", "2^31", "2^31-1", "-2^31", "2^32", "2^32+5", "1.5", "2.5", "-1.5", "0x12345678", "'17'"]
LARGE = ["2^51", "2^52", "-2^51", "-2^52-1", "2^53+2", "2^60+12345", "-2^60", "1e300", "1/0", "0/0", "'0x10'"]
DISTANCES = ["0", "1", "31", "32", "33", "-1", "0xff00ff", "1.5"]


@pytest.mark.parametrize("name", ["band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror"])
def test_of_two_words(beside: Beside, name: str) -> None:
    for word in WORDS + LARGE:
        results = ", ".join(f"bit.{name}({word}, {other})" for other in DISTANCES)
        beside(f"return {{{results}}}")


def test_of_one_word(beside: Beside) -> None:
    for word in WORDS + LARGE:
        beside(f"return {{bit.tobit({word}), bit.bnot({word}), bit.bswap({word}), bit.tohex({word})}}")
        for digits in (0, 1, 4, 8, 9, -1, -4, -9, -2147483647):
            beside(f"return bit.tohex({word}, {digits})")


def test_of_many_words(beside: Beside) -> None:
    random = Random(7)
    for _ in range(100):
        words = ", ".join(
            repr(random.choice([random.randrange(-(2**33), 2**33), random.uniform(-1e10, 1e10)])) for _ in "abcd"
        )
        beside(f"return {{bit.band({words}), bit.bor({words}), bit.bxor({words}), bit.band({words[:9]})}}")


def test_the_smallest_number_of_digits_is_safe(beside: Beside) -> None:
    """Redis once read beyond a buffer here, so it is not asked."""
    assert beside.here("return bit.tohex(0xabc, -2147483648)") == b"00000ABC"


@pytest.mark.parametrize(
    "call",
    [
        "bit.band()",
        "bit.band(1, nil)",
        "bit.bxor(1, 2, 'x')",
        "bit.tobit({})",
        "bit.tohex('x')",
        "bit.bor(1, nil, 3)",
    ],
)
def test_arguments_that_are_no_numbers(beside: Beside, call: str) -> None:
    beside(f"local a = {call} return a")


def test_they_are_lua_and_touch_no_globals() -> None:
    lua = lupa.lua51.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    names = set(lua.globals())
    libraries = load_libraries(lua)
    assert set(lua.globals()) == names
    lua.globals()[b"libraries"] = libraries
    assert lua.execute(b"""
        local function look(value)
          if type(value) == "table" then
            for _, inner in pairs(value) do look(inner) end
          elseif type(value) == "userdata" then
            assert(value == libraries.cjson.null and getmetatable(value) == nil)
          elseif type(value) == "function" then
            assert(debug.getinfo(value).what == "Lua")
          end
        end
        look(libraries)
        return true
    """)
