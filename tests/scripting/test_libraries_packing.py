"""`cmsgpack` and `struct` beside those in Redis."""

from __future__ import annotations

import math
import struct
from random import Random

import pytest

from tests.scripting.lua_beside_redis import Beside

NUMBERS = [
    *["1", "0", "-0", "127", "128", "255", "256", "65535", "65536", "2^32-1", "2^32", "2^53", "2^62", "2^63", "-1"],
    *["-32", "-33", "-128", "-129", "-32768", "-32769", "-2^31", "-2^31-1", "-2^63", "1.5", "0.1", "1/3", "-1.5"],
]
FAR_NUMBERS = ["2^64", "-2^64", "1e300", "1/0", "-1/0", "0/0", "-(0/0)", "1e-310", "2^-149", "2^-150", "1e39"]
OTHERS = [
    *["true", "false", "nil", "'abc'", "('x'):rep(31)", "('x'):rep(32)", "('x'):rep(255)", "('x'):rep(256)"],
    *["('x'):rep(65535)", "('x'):rep(65536)", "{}", "{1, 2, 3}", "{a=1}", "{[1]=1, [3]=3}", "{1, nil, 3}", "{['1']=1}"],
    *["{[1.5]=2}", "{[2^31]=1}", "{{{}}}", "cjson.null", "{1, {2, {3, 'x'}}, k={true}}"],
    "(function() local t = {} for i = 1, 20 do t = {t} end return t end)()",
    "(function() local t = {} for i = 1, 16 do t[i] = i end return t end)()",
    "(function() local t = {} t.x = t return t end)()",
    "(function() local t = {} for i = 1, 66000 do t[i] = 1 end return t end)()",
    "(function() local t = {} for i = 1, 20 do t['k' .. i] = i end return t end)()",
]


@pytest.mark.parametrize("value", NUMBERS + FAR_NUMBERS + OTHERS)
def test_messages(beside: Beside, value: str) -> None:
    beside(f"return cmsgpack.pack({value}, {value})")
    if value not in FAR_NUMBERS:
        beside(f"return cjson.encode({{pcall(cmsgpack.unpack, cmsgpack.pack({value}))}})")


@pytest.mark.parametrize("value", NUMBERS + FAR_NUMBERS)
def test_numbers_in_structures(beside: Beside, value: str) -> None:
    options = "f d" if value in FAR_NUMBERS else "b B h H l L T i I f d i1 i2 i3 i4 i5 i6 i7 i8 I3 I5 I8 I16 I32 i0"
    for option in options.split():
        for order in "<>":
            beside(f"local data = struct.pack('{order}{option}', {value}) return data")
            beside(
                f"local number = struct.unpack('{order}{option}', struct.pack('{order}{option}', {value})) "
                "return string.format('%.17g', number)"
            )


def test_random_doubles(beside: Beside) -> None:
    random = Random(3)
    for _ in range(150):
        number = random.choice(
            [
                random.uniform(-1e6, 1e6),
                struct.unpack(">d", random.randbytes(8))[0],
                struct.unpack(">f", random.randbytes(4))[0],
                random.uniform(-1, 1) * 2.0 ** random.randint(-1070, -1020),
                random.uniform(-1, 1) * 2.0 ** random.randint(-151, -120),
            ]
        )
        if math.isfinite(number):
            beside(f"return struct.pack('>dfd', {number!r}, {number!r}, -({number!r})) .. cmsgpack.pack({number!r})")
            beside(
                f"return string.format('%.17g %.17g', struct.unpack('>fd', struct.pack('>fd', {number!r}, {number!r})))"
            )


@pytest.mark.parametrize(
    "call",
    [
        *["struct.pack('Y', 1)", "struct.pack('i')", "struct.pack('i', nil)", "struct.pack('i', 'x')"],
        *["struct.pack('i', '12')", "struct.pack('!4bi', 1, 2)", "struct.pack('!8bdbh', 1, 2, 3, 4)"],
        *["struct.pack('!16bi16', 1, 2)", "struct.pack('!4bi3b', 1, 2, 3)", "struct.pack('!bd', 1, 2)"],
        *["struct.pack('!3')", "struct.pack('!0')", "struct.pack('i33', 1)", "struct.pack('i99999999999', 1)"],
        *[
            "struct.pack('c5', 'abc')",
            "struct.pack('c2', 'abc')",
            "struct.pack('c0', 'abc')",
            "struct.pack('c', 'abc')",
        ],
        *["struct.pack('sxs', 'abc', 'd')", r"struct.pack('i\0Y', 1)", "struct.pack()", "struct.pack({})"],
        *["struct.pack(' i ', 1)", "struct.pack('s', 12)", "struct.unpack('c0', 'abc')"],
        *[r"struct.unpack('bc0', '\3abcd')", r"struct.unpack('bc0', '\9abcd')", "struct.unpack('cc0', '3abcd')"],
        *["struct.unpack('i4', 'abc')", "struct.unpack('i', 'abcd', 0)", "struct.unpack('i', 'abcd', 1)"],
        *["struct.unpack('i', 'abcd', 2)", "struct.unpack('s', 'abc')", r"struct.unpack('ss', 'abc\0d\0')"],
        *["struct.unpack('!4bi', 'abcdefghi')", "struct.unpack('!4bi', 'abcdefghi', 2)", "struct.unpack('Y', 'abc')"],
        *["struct.unpack('xb', 'ab')", "struct.unpack('>h<h', 'abcd')", "struct.unpack('b')", "struct.unpack('', '')"],
        *["struct.unpack('', '', 5)", "struct.unpack('b', 'abc', 2.7)", r"struct.unpack('bc0', '\255abcd')"],
        *["struct.unpack('c3', 'abcd')", "struct.size('i4s')", "struct.size('c0')", "struct.size('!8bd')"],
        *["struct.size('Y')", "struct.size('>')", "struct.size('?')", "struct.size('hi3!8d')", "struct.size('c7')"],
        *["cmsgpack.pack()", "cmsgpack.unpack()", "cmsgpack.unpack({})", "cmsgpack.unpack('')", "cmsgpack.unpack(12)"],
        *["cmsgpack.unpack_one('')", "cmsgpack.unpack_one('abc', -1)", "cmsgpack.unpack_one('abc', 10)"],
        *["cmsgpack.unpack_one('abc', 1)", "cmsgpack.unpack_one('abc', 3)", "cmsgpack.unpack_limit('abc', 2)"],
        *[
            "cmsgpack.unpack_limit('abc', 0)",
            "cmsgpack.unpack_limit('abc', 0, 1)",
            "cmsgpack.unpack_limit('abc', 5, 1)",
        ],
        *["cmsgpack.unpack_limit('abc')", "cmsgpack.unpack_limit('abc', -1)", "cmsgpack.unpack_limit('abc', 'x')"],
        *[r"cmsgpack.unpack('\193')", r"cmsgpack.unpack('\196a')", r"cmsgpack.unpack('\204')"],
        *[r"cmsgpack.unpack('\205a')", r"cmsgpack.unpack('\163ab')", r"cmsgpack.unpack('\221\255\255\255\255')"],
        *[r"cmsgpack.unpack('\223\255\255\255\255ab')", r"cmsgpack.unpack('\219\255\255\255\255ab')"],
        *[r"cmsgpack.unpack('\129\192a')", r"cmsgpack.unpack('\217\3abcd')", r"cmsgpack.unpack('\203abc')"],
        *[r"cmsgpack.unpack('\211abcdef')", "cmsgpack.unpack(('a'):rep(9000))"],
    ],
)
def test_formats_and_errors(beside: Beside, call: str) -> None:
    name, _, arguments = call.partition("(")
    beside(f"local a, b = {call} return {{a, b}}")
    beside(f"return {{pcall({name}{', ' if arguments != ')' else ''}{arguments}}}")


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_are_read_or_refused_alike(beside: Beside, seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        data = "".join(f"\\{random.choice([random.randrange(256), random.randrange(128, 256)]):03}" for _ in range(9))
        beside(f"""local results = {{pcall(cmsgpack.unpack, '{data}')}}
          for i = 1, 12 do
            results[i] = type(results[i]) == "number" and string.format("%.17g", results[i]) or results[i] or false
          end
          return results""")


def test_deep_messages_are_refused(beside: Beside) -> None:
    assert b"stack overflow" in beside.here(r"local x = cmsgpack.unpack(('\145'):rep(100000)) return 1")
    assert b"stack overflow" in beside.there(r"local x = cmsgpack.unpack(('\145'):rep(100000)) return 1")
