"""`cjson` beside the one in Redis."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.scripting.lua_beside_redis import Beside

TEXTS = r"""1|-1|1.5|1e3|1E+3|1e|-|-.5|.5|+5|0x1F|0x|-0x10|007|nul|null|true|false|tru|"a"|"a|"\u00e9"|"\ud83d\ude00"
"\ud83d"|"\ude00"
"\uZZZZ"|"\x"|"\n\t\"\\\/\b\f\r"|[]|{}|[1,2|[1,]|[,]|{"a"}|{"a":}|{"a":1,}|{"a":1|{"a":1 "b"|{1:2}
 [ 1 , 2 ] |{"a" : [ 1, {"b":null} ] }|[1] x|[1]]|a|'|{"a\q":1}|{"a"x|[1 "x\q"]|12-|1.2.3|--1|1.|0x1.8p3|[tru]|[+x]
[inx]||"\u0000"|[1,"a",true,false,null,{"k":[{}]}]|"\u12|{"a":1}}|[[[[]]]]|{"":1}|{"a":1,"a":2}|[1e5,-0.0,1E-2]"""
ODD_NUMBERS = ["inf", "-inf", "Infinity", "nan", "NaN", "-nan", "nan(1)", "1e400", "-Infinity", "+inf"]
VALUES = [
    *[
        "1",
        "1.5",
        "-0",
        "1e15",
        "123456789012345678",
        "0.1",
        "1/3",
        "2^53",
        r"'a\0b\127/\"\\'",
        "{}",
        "{1, 2, 3}",
        "nil",
    ],
    *["{1, nil, 3}", "{[1]=1, [30]=2}", "{[1]=1, [11]=2}", "{[1]=1, [10]=2}", "{[1.5]=1}", "{[0]=1}", "{[-1]=1}"],
    *["{a=1, b=2, c={1, 2}, d={e={}}}", "{[true]=1}", "function() end", "1/0", "-1/0", "0/0", "{[1/0]=1}", "true"],
    *[
        "cjson.null",
        "{cjson.null}",
        "{[2^31]=1}",
        "{[2^31]=1, [1]=2}",
        "{1, 2, a=3}",
        "coroutine.create(function() end)",
    ],
    *["{{}, {{}}}", "{[{}]=1}", "'/'", r"'\200\255'", "{['k']={['/']=1}}"],
]


@pytest.mark.parametrize("text", [text for line in TEXTS.split("\n") for text in line.split("|")])
def test_decode(beside: Beside, text: str) -> None:
    beside(f"local value = cjson.decode([==[{text}]==]) return cjson.encode({{value}})")
    beside(f"local ok, value = pcall(cjson.decode, [==[{text}]==]) return {{type(value), not ok and value}}")
    beside(f"""cjson.decode_invalid_numbers(false)
      local ok, value = pcall(cjson.decode, [==[{text}]==])
      cjson.decode_invalid_numbers(true)
      return {{type(value), not ok and value}}""")


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_decode_odd_numbers(beside: Beside, text: str) -> None:
    beside(f"return tostring(cjson.decode('{text}'))")
    beside(f"return tostring(cjson.decode('[{text}, 1]')[1])")


def test_decode_stops_at_a_zero_byte(beside: Beside) -> None:
    for text in (r"12\0xx", r"1\0xx", r"\"ab\0c\"", r"[1\0]", r"\"a\\\0", r"\"a\\u00\0"):
        beside(f'local ok, value = pcall(cjson.decode, "{text}") return {{type(value), value}}')


@pytest.mark.parametrize("value", VALUES)
def test_encode(beside: Beside, value: str) -> None:
    beside(f"local text = cjson.encode({value}) return text")
    for setting, default in (
        ("encode_invalid_numbers(true)", "encode_invalid_numbers(false)"),
        ("encode_invalid_numbers('null')", "encode_invalid_numbers(false)"),
        ("encode_sparse_array(true)", "encode_sparse_array(false)"),
        ("encode_sparse_array(false, 0)", "encode_sparse_array(false, 2)"),
        ("encode_number_precision(3)", "encode_number_precision(14)"),
    ):
        if "2^31" in value and "0)" in setting:
            continue  # two thousand million nulls
        beside(f"cjson.{setting} local result = {{pcall(cjson.encode, {value})}} cjson.{default} return result")


@pytest.mark.parametrize(
    "script",
    [
        "local x = cjson.encode() return 1",
        "local x = cjson.encode(1, 2) return 1",
        "local f = cjson.decode local x = f({}) return 1",
        "local x = cjson.decode() return 1",
        "return {pcall(cjson.decode, {})}",
        "return {cjson.encode_sparse_array()}",
        "local x = cjson.encode_sparse_array(true, 2, 3, 4) return 1",
        "return {cjson.encode_max_depth()}",
        "local x = cjson.encode_max_depth(0) return x",
        "local x = cjson.encode_max_depth('x') return x",
        "local x = cjson.decode_max_depth({}) return x",
        "local x = cjson.encode_number_precision(15) return x",
        "local x = cjson.encode_invalid_numbers('x') return 1",
        "local x = cjson.encode_invalid_numbers({}) return 1",
        "return {cjson.encode_invalid_numbers('null'), cjson.encode_invalid_numbers('off')}",
        "return {cjson.encode_keep_buffer(), cjson.encode_keep_buffer('off'), cjson.encode_keep_buffer(true)}",
        "local n = cjson.new() n.encode_max_depth(5) return {n.encode_max_depth(), cjson.encode_max_depth()}",
        "return {cjson.new().null == cjson.null, type(cjson.null), cjson._NAME, cjson._VERSION}",
        "return cjson.encode(setmetatable({1, nil, 3}, {__index = function() return 7 end}))",
        "local t = {} t.t = t local x = cjson.encode(t) return 1",
        "local t = {} for i = 1, 999 do t = {t} end return #cjson.encode(t)",
        "local t = {} for i = 1, 1000 do t = {t} end local x = cjson.encode(t) return 1",
        "local x = cjson.decode(('['):rep(1000) .. (']'):rep(1000)) return 1",
        "local x = cjson.decode(('['):rep(1001) .. (']'):rep(1001)) return 1",
        "local x = cjson.decode(('{\"a\":'):rep(1001)) return 1",
        """cjson.decode_max_depth(1e9)
        local ok, problem = pcall(cjson.decode, ('['):rep(100000))
        cjson.decode_max_depth(1000)
        return {ok, (problem:gsub('%d+', 'N'))}""",
        """cjson.encode_max_depth(1e9)
        local t = {} for i = 1, 20000 do t = {t} end
        local ok, problem = pcall(cjson.encode, t)
        cjson.encode_max_depth(1000)
        return {ok, (problem:gsub('%d+', 'N'))}""",
    ],
)
def test_settings_and_errors(beside: Beside, script: str) -> None:
    beside(script)


def _value(random: Random, depth: int) -> Any:
    kind = random.randrange(8 if depth < 4 else 6)
    if kind == 0:
        return random.randrange(-(10**6), 10**6)
    if kind == 1:
        return random.uniform(-1e6, 1e6)
    if kind < 4:
        return "".join(random.choice('abc"\\/\n\x00\x1f\x7féß€😀 ') for _ in range(random.randrange(8)))
    if kind < 6:
        return random.choice([True, False, None, ""])
    if kind == 6:
        return [_value(random, depth + 1) for _ in range(random.randrange(5))]
    return {f"k{random.randrange(20)}": _value(random, depth + 1) for _ in range(random.randrange(5))}


@pytest.mark.parametrize("seed", range(4))
def test_random_values(beside: Beside, seed: int) -> None:
    random = Random(seed)
    for _ in range(150):
        text = json.dumps([_value(random, 0)], ensure_ascii=random.random() < 0.5).encode()
        if random.random() < 0.3:  # broken
            at = random.randrange(len(text))
            text = text[:at] + bytes([random.choice(b'[]{},:"\\ x1-.eu')]) + text[at + random.randrange(2) :]
        beside(
            b"local ok, value = pcall(cjson.decode, [==[" + text + b"]==]) if not ok then return value end "
            b"return {pcall(cjson.encode, value)}"
        )


def test_arrays_can_be_marked(beside: Beside) -> None:
    assert beside.here("return cjson.encode(cjson.decode('[[],{}]'))") == b"[{},{}]"
    assert (
        beside.here("cjson.decode_array_with_array_mt(true) return cjson.encode(cjson.decode('[[],{}]'))") == b"[[],{}]"
    )


def test_settings_are_reset(beside: Beside) -> None:
    beside.here("cjson.encode_max_depth(3) cjson.encode_number_precision(2)")
    assert beside.here("return {cjson.encode_max_depth(), cjson.encode_number_precision()}") == [1000, 14]


def test_a_long_string_is_escaped_in_pieces(beside: Beside) -> None:
    beside("return #cjson.encode(('a/\\n'):rep(50000))")
    beside("return cjson.decode(cjson.encode(('a/\\n'):rep(50000))) == ('a/\\n'):rep(50000)")
