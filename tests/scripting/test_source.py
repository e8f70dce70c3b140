"""What is refused before it is compiled, and how tail calls keep their line."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.scripting.source import (
    PRECOMPILED,
    TOO_LONG,
    TOO_MANY_BRANCHES,
    TOO_MANY_NAMES,
    TOO_MANY_PARAMETERS,
    TOO_MANY_WORDS,
    prepare,
    problem_of,
)


def test_problems() -> None:
    assert problem_of(b"return 1") == 0
    assert problem_of(b"\x1bLua") == PRECOMPILED
    assert problem_of(b"-" * limits.SCRIPT_BYTES_MAX) == 0
    assert problem_of(b"-" * (limits.SCRIPT_BYTES_MAX + 1)) == TOO_LONG
    branches = limits.SCRIPT_BRANCHES_MAX
    assert problem_of(b"return a" + b" or a" * branches) == 0
    assert problem_of(b"return a" + b" or a" * (branches + 1)) == TOO_MANY_BRANCHES
    assert problem_of(b"return " + b"operator, " * (branches + 1) + b"1") == 0


@pytest.mark.parametrize(
    "text",
    [
        b"function f(a, b, c, ...) end",
        b"function f(a,b,c,...)end",
        b"local f = function (\na,\nb,\nc,\n...) end",
        b"function f(a, --[[ x ]] b, --y\n c, [==[no]==] ...) end function g(a,b,c,...) end",
        b"function f(a,--[==[ ]] ( ]==]b,c,...) end",
    ],
)
def test_too_many_parameters(text: bytes) -> None:
    assert problem_of(text) == TOO_MANY_PARAMETERS


@pytest.mark.parametrize(
    "text",
    [
        b"function f(a, b, ...) end",
        b"function f(...) end",
        b"local s = '(a, b, c, ...)'",
        b"local s = [[(a, b, c, ...)]]",
        b"-- (a, b, c, ...)",
        b"f(a, b, c) g(...)",
        b"f(x.a, x.b, x.c, ...)",
        b"return {a, b, c, ...}",
    ],
)
def test_few_enough(text: bytes) -> None:
    assert problem_of(text) == 0


def test_a_call_with_dots_is_no_list_of_parameters() -> None:
    """Only what follows the word `function`, and perhaps a name, is one."""
    assert problem_of(b"return select('#', a, b, c, ...)") == 0
    assert problem_of(b"return g(a, b, c, ...)") == 0
    assert problem_of(b"return (a)(a, b, c, ...)") == 0
    assert problem_of(b"function t.a.b:c(a, b, c, ...) end") == TOO_MANY_PARAMETERS


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"return redis.call('get', KEYS[1])", b"return (redis.call('get', KEYS[1]))"),
        (b"return redis.pcall(f(1), {2}, (3))", b"return (redis.pcall(f(1), {2}, (3)))"),
        (
            b"if x then return redis.call('a') else return redis.call('b') end",
            b"if x then return (redis.call('a')) else return (redis.call('b')) end",
        ),
        (b"return redis.call('a') + 1", b"return redis.call('a') + 1"),
        (b"return redis.call('a'), 2", b"return redis.call('a'), 2"),
        (b"return redis.call('a').ok", b"return redis.call('a').ok"),
        (b"return redis.call('a')[1]", b"return redis.call('a')[1]"),
        (b"return redis.call 'a'", b"return redis.call 'a'"),
        (b"return redis.call(')')", b"return (redis.call(')'))"),
        (b"return redis.call('a' -- )\n)", b"return (redis.call('a' -- )\n))"),
        (b"-- return redis.call('a')", b"-- return redis.call('a')"),
        (b"return \"return redis.call('a')\"", b"return \"return redis.call('a')\""),
        (b"return table.concat(t)", b"return (table.concat(t))"),
        (b"return string.find(s, 'x')", b"return string.find(s, 'x')"),
        (b"return f(x)", b"return f(x)"),
        (b"return bit.tobit(x)", b"return (bit.tobit(x))"),
        (b"return redis.log.call(x)", b"return redis.log.call(x)"),
        (b"return redis.call(redis.call('a'))", b"return (redis.call(redis.call('a')))"),
        (b"return function() return redis.call('a') end", b"return function() return (redis.call('a')) end"),
        (b"return redis.call('a'", b"return redis.call('a'"),
    ],
)
def test_tail_calls(text: bytes, kept: bytes) -> None:
    assert prepare(text) == (0, kept)
    assert kept.count(b"\n") == text.count(b"\n")


FUNCTIONS = 190
LOCALS = b"local " + b",".join([b"a"] * 195) + b" "


def nested(body: bytes, functions: int = FUNCTIONS) -> bytes:
    return b"local function f() " * functions + body + b" end" * functions


def test_names_within_many_local_names() -> None:
    """The compiler looks for each of them in every function around it."""
    many = b"x=x;" * 20_000
    crowded = (b"local function f() " + LOCALS) * FUNCTIONS + many + b" end" * FUNCTIONS
    assert problem_of(crowded) == TOO_MANY_NAMES
    assert problem_of(nested(many)) == TOO_MANY_NAMES
    assert problem_of(nested(LOCALS + many, 3)) == 0
    assert problem_of(many * 5 + b"return 1") == 0


@pytest.mark.parametrize(
    "block",
    [
        b"do local a end ",
        b"for a = 1, 2 do local b end ",
        b"for a, b in f() do local c end ",
        b"while (function() do local a end return false end)() do local b end ",
        b"repeat local a until a ",
        b"if a then local b elseif c then local d else local e end ",
        b"function g.h:i(a, b) local c end ",
    ],
)
def test_names_that_are_out_of_scope_do_not_count(block: bytes) -> None:
    assert problem_of(block * 9_000) == 0
    assert problem_of((block + b"local f ") * 9_000) == TOO_MANY_NAMES


def test_different_words() -> None:
    most = limits.SCRIPT_WORDS_MAX - 10
    assert problem_of(b"return {%b}" % b",".join(b"%d" % number for number in range(most))) == 0
    assert problem_of(b"return {%b}" % b",".join(b"%d" % number for number in range(most + 20))) == TOO_MANY_WORDS
    assert problem_of(b"return {%b}" % b",".join(b"'%d'" % number for number in range(most + 20))) == TOO_MANY_WORDS
    assert problem_of(b"return {%b}" % b",".join(b"x%d" % number for number in range(most + 20))) == TOO_MANY_WORDS
    assert problem_of(b"return {%b}" % b",".join([b"'the same'"] * 50_000)) == 0
